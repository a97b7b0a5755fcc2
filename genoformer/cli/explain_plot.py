"""Draw what explain wrote: heat maps of substitutions, or bars of attribution, for each group."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from genoformer.plotting.files import write_figure
from genoformer.regions import Region

if TYPE_CHECKING:
    from genoformer.store import TrackStore

_COLUMNS = 1_500
"""Bases drawn one by one; of longer regions, the largest effect of each column."""
_LETTERED = 120
"""Bases up to which the reference is written below."""
_COLORS = {"A": "#2a9d3a", "C": "#2560c4", "G": "#e08a00", "T": "#c62f2f", "N": "#888888"}


def draw_effects(path: Path, figure_path: Path) -> None:
    """Draw a store of effects as an image in the format of its name."""
    import h5py
    from matplotlib.figure import Figure

    from genoformer.store import open_store

    with h5py.File(path) as file:
        table = file["reference"][:]  # position and code of each base
    with open_store(path) as store:
        identity = store.metadata["identity"]
        region = Region(*identity["region"])
        groups = list(store.metadata["groups"])
        figure = Figure(figsize=(11, 1.2 + 1.7 * len(groups)), layout="constrained")
        axes = figure.subplots(len(groups), 1, sharex=True, squeeze=False)[:, 0]
        if identity["kind"] == "saturation":
            _heat_maps(figure, axes, store, region, groups, codes=table[:, 1])
        else:
            window = Region(region.sequence, int(table[0, 0]), int(table[-1, 0]) + 1)
            _bars(axes, store, region, window, groups)
            region = window
    reference = "".join("ACGTN"[code] for code in table[:, 1].tolist())
    _label(axes, region, reference)
    said = f"{identity['kind']}, model {identity['model']}, window {identity['window']:,} bases"
    figure.suptitle(f"{region}: {said}", fontsize=10)
    write_figure(figure, figure_path, dpi=150)


def _heat_maps(
    figure: Any, axes: Any, store: TrackStore, region: Region, groups: list[str], *, codes: np.ndarray
) -> None:
    """Draw the larger of gain and loss of each letter at each base; loss is negative."""
    gain, loss = (store.values(region, name).astype(float).reshape(region.length, -1, 4) for name in ("gain", "loss"))
    signed = np.where(gain >= loss, gain, -loss)
    most = max(float(np.nanmax(np.abs(signed))), 1e-3)
    for row, (axis, group) in enumerate(zip(axes, groups, strict=True)):
        image = axis.imshow(
            _thinned(signed[:, row]).T, aspect="auto", cmap="RdBu", vmin=-most, vmax=most, interpolation="nearest",
            extent=(region.start + 0.5, region.end + 0.5, 3.5, -0.5),
        )  # fmt: skip
        if region.length <= _LETTERED * 4:
            known = np.flatnonzero(codes < 4)
            axis.plot(region.start + 1 + known, codes[known], ".", color="black", markersize=3)
        axis.set_yticks(range(4), "ACGT")
        axis.set_ylabel(group.replace("_", " "))
    figure.colorbar(image, ax=list(axes), label="loss                gain", pad=0.01)


def _thinned(values: np.ndarray) -> np.ndarray:
    """Take the largest effect, by amount, of each column: (bases, 4) -> (columns, 4)."""
    if len(values) <= _COLUMNS:
        return values
    bounds = np.linspace(0, len(values), _COLUMNS + 1).astype(int)
    kept = np.nan_to_num(values)
    return np.stack([
        np.take_along_axis(part, np.abs(part).argmax(axis=0)[None], axis=0)[0]
        for part in (kept[a:b] for a, b in pairwise(bounds))
    ])  # fmt: skip


def _bars(axes: Any, store: TrackStore, region: Region, window: Region, groups: list[str]) -> None:
    """Draw gradient times input over the window, the region shaded."""
    values = store.values(window, "attribution").astype(float)
    places = np.arange(window.start, window.end) + 1
    for row, (axis, group) in enumerate(zip(axes, groups, strict=True)):
        axis.axvspan(region.start + 0.5, region.end + 0.5, color="#f1f1f1", zorder=0)
        axis.axhline(0, color="#888888", linewidth=0.6)
        axis.vlines(places, 0, values[:, row], color="#30588c", linewidth=0.8)
        axis.set_ylabel(group.replace("_", " "))
    axes[-1].set_xlim(window.start + 0.5, window.end + 0.5)


def _label(axes: Any, region: Region, reference: str) -> None:
    """Number the bases, and write them above where there is room."""
    last = axes[-1]
    last.set_xlabel("position (from 1)")
    last.ticklabel_format(axis="x", useOffset=False, style="plain")
    last.xaxis.set_major_formatter(lambda place, _: f"{place:,.0f}")
    if len(reference) <= _LETTERED:
        for place, letter in enumerate(reference):
            axes[0].text(
                region.start + 1 + place, 1.02, letter, transform=axes[0].get_xaxis_transform(), ha="center",
                va="bottom", fontsize=7, family="monospace", color=_COLORS[letter],
            )  # fmt: skip
