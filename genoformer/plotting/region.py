"""A region of a store as a figure: genes on both strands, truth, probabilities, GC content, on one axis."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from genoformer.annotation import CodingSequence
from genoformer.errors import InputError
from genoformer.formats.annotated import check_fits, read_annotation
from genoformer.formats.bed import parse_regions
from genoformer.labels import read_labels
from genoformer.plotting import panels
from genoformer.plotting.arrows import Arrow, arrows_of_annotation, call_arrows, draw_arrows, within
from genoformer.plotting.files import need_matplotlib, write_figure
from genoformer.plotting.style import FONT, FORWARD, INK, REVERSE, SOFT, TRUTH, plain, shortened
from genoformer.plotting.values import gc_share, read_drawn
from genoformer.regions import Region
from genoformer.store import TrackStore, open_store
from genoformer.tokenizing import open_sequences_or_tokens
from genoformer.tracks import CODING_FRAME

File = str | os.PathLike[str]
CALL = "call"
"""In place of a file with genes: call them, as export does."""
_BINS_AN_INCH, _GC = 200, 100
"""Bins of values; bases from which on GC content is drawn."""
_HEIGHTS = {"genes": 0.95, "truth": 0.95, "labels": 0.45, "values": 2.6, "gc": 0.9}
"""Inches."""
_NAMES = {"genes": "genes", "truth": "annotation", "labels": "truth"}


def plot_region(
    store: TrackStore | File,
    region: Region | str,
    *,
    track: str | None = None,
    genes: File | Sequence[CodingSequence] | None = None,
    truth: File | Mapping[str, File] | None = None,
    fasta: File | None = None,
    width: float = 10.0,
) -> dict[str, Any]:
    """Draw a region of a store.

    Parameters
    ----------
    store : open, or its path
    region : where; text as ``chr:start-end`` (from 1, both ends included) or the name of a sequence
    track : whose values; the first one if None
    genes : GFF3 or GenBank file, coding sequences, or ``call``, which needs the bases; none are drawn if None
    truth : annotation of the track: GFF3 or GenBank for coding-frame, else what `genoformer.labels` reads
    fasta : the sequences that were predicted, for GC content and for calling genes
    width : inches

    Returns
    -------
    dict of matplotlib Axes, from top to bottom: those there are of ``genes``, ``truth`` (or ``labels``), ``values`` and
    ``gc``. The figure is ``axes["values"].figure``

    Raises
    ------
    InputError : no such region or track, or files that do not fit
    ResourceError : matplotlib is not installed

    Examples
    --------
    >>> axes = plot_region("lambda.h5", "NC_001416.1:1-10000")  # doctest: +SKIP
    >>> axes["values"].figure.savefig("lambda.pdf")  # doctest: +SKIP
    """
    need_matplotlib()
    if not isinstance(store, TrackStore):
        with open_store(Path(store)) as opened:
            return plot_region(opened, region, track=track, genes=genes, truth=truth, fasta=fasta, width=width)
    where = _the_region(store, region)
    name = next(iter(store.tracks)) if track is None else track
    store.values(Region(where.sequence, 0, 0), name)  # raises where there is no such track
    content: dict[str, Any] = {}
    if genes is not None:
        content["genes"] = _gene_arrows(store, where, genes, fasta)
    content |= _truth(store, where, name, truth)
    content["values"] = read_drawn(store, name, where, most_bins=max(1, int(width * _BINS_AN_INCH)))
    if fasta is not None and where.length >= _GC:
        content["gc"] = _gc(where, fasta, bins=min(where.length, int(width * 50)))
    return _draw(where, content, width)


def _the_region(store: TrackStore, region: Region | str) -> Region:
    lengths = dict(zip(store.sequences.names, store.sequences.lengths.tolist(), strict=True))
    if isinstance(region, str):
        found = parse_regions(region, lengths)
        if len(found) != 1:
            raise InputError(f"region {region!r}: holds {len(found)} regions; a figure shows one")
        return found[0]
    if region.sequence in lengths and 0 <= region.start < region.end <= lengths[region.sequence]:
        return region
    raise InputError(f"{store.path}: has no base at {region}")


def _gene_arrows(
    store: TrackStore, where: Region, genes: File | Sequence[CodingSequence], fasta: File | None
) -> list[Arrow]:
    length = int(store.sequences.lengths[store.sequences.index(where.sequence)])
    if genes == CALL:
        if CODING_FRAME.name not in store.tracks or fasta is None:
            raise InputError(f"{store.path}: genes are called from a track {CODING_FRAME.name!r} and from the bases; "
                             "give the sequences that were predicted, or a GFF3 file with genes")  # fmt: skip
        arrows = call_arrows(store, open_sequences_or_tokens(str(fasta)), where.sequence)
    elif isinstance(genes, str | os.PathLike):
        arrows = _annotated(store, where, genes)
    else:
        arrows = arrows_of_annotation(cds for cds in genes if cds.sequence == where.sequence)
    return within(arrows, where, length)


def _annotated(store: TrackStore, where: Region, path: File) -> list[Arrow]:
    annotation = read_annotation(path)
    lengths = dict(zip(store.sequences.names, store.sequences.lengths.tolist(), strict=True))
    check_fits(annotation, lengths, source=str(path), sequences=str(store.path))
    return arrows_of_annotation(annotation.coding_sequences.get(where.sequence, []))


def _truth(store: TrackStore, where: Region, track: str, truth: File | Mapping[str, File] | None) -> dict[str, Any]:
    if truth is None:
        return {}
    if track == CODING_FRAME.name and not isinstance(truth, Mapping):
        length = int(store.sequences.lengths[store.sequences.index(where.sequence)])
        return {"truth": within(_annotated(store, where, truth), where, length)}
    lengths = dict(zip(store.sequences.names, store.sequences.lengths.tolist(), strict=True))
    labels = read_labels(truth, lengths, store.tracks[track], sequences=str(store.path))
    kind = "labels" if store.tracks[track].kind == "class" else "signals"
    return {kind: labels[where.sequence][where.start : where.end]}


def _gc(where: Region, fasta: File, *, bins: int) -> np.ndarray:
    window = max(51, where.length // 100) | 1  # odd, so that a base is in the middle
    bases = open_sequences_or_tokens(str(fasta)).fetch(where)
    if len(bases) != where.length:
        raise InputError(f"{fasta}: has {len(bases)} of the {where.length} bases of {where}; give what was predicted")
    return gc_share(bases, most_bins=bins, window=window)


def _draw(where: Region, content: dict[str, Any], width: float) -> dict[str, Any]:
    from matplotlib.figure import Figure

    order = [name for name in ("genes", "truth", "labels", "values", "gc") if name in content]
    above = 14 if order[0] != "values" else 32  # points, of the title: over the legend, if there is one below it
    heights = [_HEIGHTS[name] for name in order]
    total = sum(heights) + 0.25 * (len(heights) - 1) + 0.6 + (above + 22) / 72
    figure = Figure(figsize=(width, total))
    grid = figure.subplots(len(order), 1, sharex=True, squeeze=False, gridspec_kw={
        "height_ratios": heights, "left": 0.9 / width, "right": 1 - 0.4 / width, "top": 1 - (above + 22) / 72 / total,
        "bottom": 0.6 / total, "hspace": 0.25 / (sum(heights) / len(heights)),
    })[:, 0]  # fmt: skip
    axes = dict(zip(order, grid, strict=True))
    panels.label_positions(grid[-1], where)
    for name in ("genes", "truth"):
        if name in axes:
            _draw_genes(axes[name], name, content[name], where)
    drawn = content["values"]
    if "signals" in content:
        panels.draw_true_values(axes["values"], drawn, content["signals"])
    panels.draw_values(axes["values"], drawn)
    if "labels" in axes:
        panels.draw_true_classes(axes["labels"], content["labels"], where, drawn.channels)
        _bare(axes["labels"], "labels")
    if "gc" in axes:
        panels.draw_gc(axes["gc"], content["gc"], where)
    title = f"{shortened(where.sequence)}:{where.start + 1:,}–{where.end:,}"
    grid[0].set_title(title, loc="left", fontsize=FONT + 1, color=INK, weight="bold", pad=above - 4)
    panels.draw_scale_bar(grid[0], where, above=above)
    figure.align_ylabels()
    return axes


def _draw_genes(panel: Any, name: str, arrows: list[Arrow], where: Region) -> None:
    colors = (FORWARD[0], REVERSE[0]) if name == "genes" else (TRUTH, TRUTH)
    panel.set_ylim(-0.55, 1.55)
    panel.hlines([0, 1], where.start + 0.5, where.end + 0.5, color="#c4cad1", linewidth=0.8, zorder=1)
    draw_arrows(panel, arrows, where, colors=colors)
    _bare(panel, name)
    panel.set_yticks([1, 0], ["+", "−"])


def _bare(panel: Any, name: str) -> None:
    plain(panel)
    panel.spines[["left", "bottom"]].set_visible(False)
    panel.tick_params(length=0, labelcolor=SOFT)
    panel.tick_params(axis="x", labelbottom=False)
    panel.set_yticks([])
    panel.set_ylabel(_NAMES[name], fontsize=FONT, color=INK)


def save_figure(axes: Mapping[str, Any], path: File, *, dpi: int = 200) -> None:
    """Write the figure that axes belong to; it appears under its name once it is whole.

    Parameters
    ----------
    axes : from `plot_region`
    path : its ending tells the kind: .png, .svg or .pdf
    dpi : dots an inch, of png

    Raises
    ------
    ConfigError : it has another ending
    ResourceError : it cannot be written there
    """
    write_figure(axes["values"].figure, path, dpi=dpi)
