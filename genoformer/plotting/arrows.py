"""Genes as arrows: which lie in a region, where they are drawn, and their names where there is room."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np

from genoformer.annotation import CodingSequence
from genoformer.formats.sequences import Sequences
from genoformer.genes import CallSettings, Gene, call_genes
from genoformer.genes.stored import matched_records, stored_code
from genoformer.plotting.style import FONT, INK, shortened
from genoformer.regions import Region
from genoformer.store import TrackStore
from genoformer.tokens import encode
from genoformer.tracks import CODING_FRAME

_HEIGHT = 0.72
_NAMED = 400
"""Genes of a region up to which names and outlines are drawn."""


class Arrow(NamedTuple):
    """A gene to draw."""

    parts: tuple[tuple[int, int], ...]
    """(start, end), ascending, 0-based half-open; beyond the sequence where it lies over the origin of a circle"""
    strand: int
    name: str
    open_left: bool = False
    open_right: bool = False

    @property
    def start(self) -> int:
        return self.parts[0][0]

    @property
    def end(self) -> int:
        return self.parts[-1][1]

    def moved(self, by: int) -> Arrow:
        return self._replace(parts=tuple((start + by, end + by) for start, end in self.parts))


def arrows_of_annotation(coding: Iterable[CodingSequence]) -> list[Arrow]:
    """Return coding sequences as arrows, named by their ID without the prefix that NCBI puts there."""
    return [Arrow(tuple(sorted(cds.parts)), cds.strand, cds.name.removeprefix("cds-")) for cds in coding]


def arrows_of_genes(genes: Iterable[Gene]) -> list[Arrow]:
    """Return called genes as arrows, numbered as `genoformer export` numbers those of a sequence."""
    return [
        Arrow(((gene.start, gene.end),), gene.strand, str(number), gene.open_left, gene.open_right)
        for number, gene in enumerate(genes, 1)
    ]


def call_arrows(store: TrackStore, sequences: Sequences, name: str) -> list[Arrow]:
    """Call the genes of one sequence of a store, as `genoformer export` does.

    Parameters
    ----------
    store : with the track coding-frame
    sequences : what was predicted
    name : of the sequence, which is held in memory

    Raises
    ------
    InputError : the sequences are not those that were predicted
    """
    settings = CallSettings(genetic_code=stored_code(store))
    region = Region(name, 0, int(store.sequences.lengths[store.sequences.index(name)]))
    for record, topology in matched_records(store, sequences):
        if record.name == name:
            values = store.values(region, CODING_FRAME.name)
            circular = topology == "circular"
            return arrows_of_genes(call_genes(encode(record.bases), values, circular=circular, settings=settings))
    return []


def within(arrows: Sequence[Arrow], region: Region, length: int) -> list[Arrow]:
    """Return the arrows that touch a region; those over the origin of a circle also where they go on."""
    both = (moved for arrow in arrows for moved in ((arrow, arrow.moved(-length)) if arrow.end > length else (arrow,)))
    return [arrow for arrow in both if arrow.start < region.end and arrow.end > region.start]


def draw_arrows(
    panel: Any, arrows: Sequence[Arrow], region: Region, *, colors: tuple[str, str], lanes: tuple[float, float] = (1, 0)
) -> None:
    """Draw arrows into a panel whose axis is that of the region: forward ones in the upper lane.

    Parameters
    ----------
    panel : Axes
    arrows : see `within`
    colors, lanes : of the forward and of the reverse strand
    """
    from matplotlib.collections import LineCollection, PolyCollection

    few = len(arrows) <= _NAMED
    shapes: list[np.ndarray] = []
    shades: list[str] = []
    links: list[list[tuple[float, float]]] = []
    for arrow in arrows:
        lane = lanes[0 if arrow.strand > 0 else 1]
        shapes += _shapes(arrow, region, lane, head=region.length * 0.008)
        shades += [colors[0 if arrow.strand > 0 else 1]] * (len(shapes) - len(shades))
        links += [[(a[1] + 0.5, lane), (b[0] + 0.5, lane)] for a, b in zip(arrow.parts, arrow.parts[1:], strict=False)]
    panel.add_collection(LineCollection(links, colors=INK, linewidths=0.8, zorder=2))
    panel.add_collection(PolyCollection(shapes, facecolors=shades, edgecolors="white" if few else "face",
                                        linewidths=0.6 if few else 0.2, zorder=3))  # fmt: skip
    if few:
        _write_names(panel, arrows, region, lanes)


def _shapes(arrow: Arrow, region: Region, lane: float, head: float) -> list[np.ndarray]:
    """Return the outline of each part that is in view: the one read last has a head, if its end is there."""
    forward = arrow.strand > 0
    last = arrow.parts[-1] if forward else arrow.parts[0]
    ends_in_view = arrow.end <= region.end if forward else arrow.start >= region.start
    has_head = ends_in_view and not (arrow.open_right if forward else arrow.open_left)
    found = []
    for part in arrow.parts:
        start, end = max(part[0], region.start) + 0.5, min(part[1], region.end) + 0.5
        if start >= end:
            continue
        tip = min(head, end - start) if part == last and has_head else 0.0
        low, high = lane - _HEIGHT / 2, lane + _HEIGHT / 2
        if forward:
            shape = [(start, low), (end - tip, low), (end, lane), (end - tip, high), (start, high)]
        else:
            shape = [(end, low), (start + tip, low), (start, lane), (start + tip, high), (end, high)]
        found.append(np.array(shape))
    return found


def _write_names(panel: Any, arrows: Sequence[Arrow], region: Region, lanes: tuple[float, float]) -> None:
    """Write the name of each gene into it, where it fits."""
    figure = panel.figure
    points = panel.get_position().width * figure.get_figwidth() * 72
    for arrow in arrows:
        start, end = max(arrow.start, region.start), min(arrow.end, region.end)
        room = (end - start) / region.length * points
        size = FONT - 2
        if arrow.name and room > len(arrow.name) * size * 0.66 + 8:
            lane = lanes[0 if arrow.strand > 0 else 1]
            panel.text((start + end) / 2 + 0.5, lane, shortened(arrow.name), ha="center", va="center", color="white",
                       fontsize=size, zorder=4, clip_on=True)  # fmt: skip
