"""The panels of a figure: stacked probabilities, lines of signals, GC content, and their common axis."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from genoformer.plotting.style import FONT, GAP, GC, INK, NOTHING, SOFT, channel_colors, plain, shortened
from genoformer.plotting.values import Drawn
from genoformer.regions import Region
from genoformer.report.frames import FRAMES

_SCALED = 12
"""Bases from which on a region has a scale bar."""


def draw_values(panel: Any, drawn: Drawn) -> None:
    """Draw a track: classes stacked, with those of the reverse strand downwards; signals as lines."""
    if drawn.track.kind == "class":
        _draw_classes(panel, drawn)
    else:
        _draw_signals(panel, drawn)
    _shade_gaps(panel, drawn)
    plain(panel)


def _draw_classes(panel: Any, drawn: Drawn) -> None:
    is_stranded = {"+", "-"} <= set(drawn.strands)
    shown = [c for c in range(len(drawn.channels)) if drawn.strands[c] != "." or not is_stranded]
    colors = channel_colors(drawn.channels, drawn.strands)
    if not is_stranded and len(shown) > 1:
        colors[0] = NOTHING
    edges = drawn.edges + 0.5
    base = {"+": np.zeros(len(drawn.means)), "-": np.zeros(len(drawn.means)), ".": np.zeros(len(drawn.means))}
    for channel in shown:
        strand = drawn.strands[channel]
        top = base[strand] + drawn.means[:, channel] * (-1 if strand == "-" else 1)
        panel.stairs(top, edges, baseline=base[strand], fill=True, color=colors[channel], linewidth=0,
                     label=drawn.channels[channel])  # fmt: skip
        base[strand] = np.nan_to_num(top)
    panel.set_ylim((-1.02, 1.02) if is_stranded else (0, 1.02))
    panel.set_yticks([-1, 0, 1] if is_stranded else [0, 0.5, 1], ["1", "0", "1"] if is_stranded else None)
    if is_stranded:
        panel.axhline(0, color=INK, linewidth=0.8, zorder=3)
    unit = drawn.track.units
    panel.set_ylabel(f"{unit}\n− strand      + strand" if is_stranded else unit, fontsize=FONT)
    if drawn.channels == FRAMES:  # explained by their strands
        panel.text(1, 1.01, "shades: reading frames", transform=panel.transAxes, ha="right", va="bottom",
                   fontsize=FONT - 2, color=SOFT)  # fmt: skip
    else:
        _legend(panel)


def _draw_signals(panel: Any, drawn: Drawn) -> None:
    middles = (drawn.edges[:-1] + drawn.edges[1:]) / 2 + 0.5
    for channel, color in enumerate(channel_colors(drawn.channels, drawn.strands)):
        if drawn.bin_size > 1 and drawn.low is not None and drawn.high is not None:
            low, high = (np.where(np.isfinite(extreme[:, channel]), extreme[:, channel], np.nan)
                         for extreme in (drawn.low, drawn.high))  # fmt: skip
            panel.fill_between(middles, low, high, color=color, alpha=0.22, linewidth=0)
        panel.plot(middles, drawn.means[:, channel], color=color, linewidth=1.4, label=drawn.channels[channel])
    panel.set_ylabel(drawn.track.units, fontsize=FONT)
    if len(drawn.channels) > 1:
        _legend(panel)
    panel.margins(y=0.06)


def draw_true_values(panel: Any, drawn: Drawn, labels: np.ndarray) -> None:
    """Draw what is true of a signal, (bases, channels), as dashed lines behind what was predicted."""
    middles = (drawn.edges[:-1] + drawn.edges[1:]) / 2 + 0.5
    starts = drawn.edges[:-1] - drawn.edges[0]
    for channel, color in enumerate(channel_colors(drawn.channels, drawn.strands)):
        column = labels[:, channel].astype(np.float64)
        known = ~np.isnan(column)
        sums = np.add.reduceat(np.where(known, column, 0), starts)
        counts = np.add.reduceat(known.astype(np.float64), starts)
        means = np.divide(sums, counts, out=np.full(len(starts), np.nan), where=counts > 0)
        panel.plot(middles, means, color=color, linewidth=1, linestyle=(0, (4, 2)), alpha=0.7, zorder=1,
                   label=f"{drawn.channels[channel]} truth")  # fmt: skip


def draw_true_classes(panel: Any, labels: np.ndarray, region: Region, channels: tuple[str, ...]) -> None:
    """Draw the true class of every base, (bases,), as colored stretches; the first class is left white."""
    changes = np.flatnonzero(np.diff(labels)) + 1
    starts, ends = np.concatenate([[0], changes]), np.append(changes, len(labels))
    colors = channel_colors(channels, ["."] * len(channels))
    for number, name in enumerate(channels[1:], 1):
        spans = [(start + region.start + 0.5, end - start) for start, end in zip(starts, ends, strict=True)
                 if labels[start] == number]  # fmt: skip
        if spans:
            panel.broken_barh(spans, (0.15, 0.7), facecolors=colors[number], edgecolors="none", label=name)
    panel.set_ylim(0, 1)


def draw_gc(panel: Any, share: np.ndarray, region: Region) -> None:
    """Draw the share of G and C of equal bins of a region, with the mean as a line."""
    edges = np.linspace(region.start, region.end, len(share) + 1) + 0.5
    panel.plot((edges[:-1] + edges[1:]) / 2, 100 * share, color=GC, linewidth=1.2)
    if np.isfinite(share).any():
        panel.axhline(100 * float(np.nanmean(share)), color=SOFT, linewidth=0.8, linestyle=":")
    panel.set_ylabel("GC %", fontsize=FONT)
    plain(panel)


def _legend(panel: Any) -> None:
    count = len(panel.get_legend_handles_labels()[0])
    panel.legend(loc="lower right", bbox_to_anchor=(1, 1), ncols=min(count, 8), frameon=False, fontsize=FONT - 1,
                 borderaxespad=0.1, handlelength=1.2, columnspacing=1.2)  # fmt: skip


def _shade_gaps(panel: Any, drawn: Drawn) -> None:
    """Shade what has no prediction, and say so where there is room."""
    is_gap = np.isnan(drawn.means).all(axis=1)
    changes = np.flatnonzero(np.diff(np.concatenate([[False], is_gap, [False]])))
    for start, end in changes.reshape(-1, 2).tolist():
        low, high = drawn.edges[start] + 0.5, drawn.edges[end] + 0.5
        panel.axvspan(low, high, facecolor=GAP, edgecolor="#c4cad1", hatch="////", linewidth=0, zorder=0)
        if high - low > 0.12 * (drawn.edges[-1] - drawn.edges[0]):
            panel.text((low + high) / 2, sum(panel.get_ylim()) / 2, "not predicted", ha="center", va="center",
                       color=SOFT, fontsize=FONT - 1, backgroundcolor=GAP)  # fmt: skip


def label_positions(panel: Any, region: Region) -> None:
    """Write positions below a panel, counted from 1: in bases, kb or Mb as the region is long."""
    from matplotlib.ticker import FuncFormatter, MaxNLocator

    unit, words = unit_of(region.length)
    panel.set_xlim(region.start + 0.5, region.end + 0.5)
    panel.xaxis.set_major_locator(MaxNLocator(8, integer=unit == 1, min_n_ticks=1, steps=[1, 2, 2.5, 5, 10]))
    panel.xaxis.set_major_formatter(FuncFormatter(_written(unit)))
    panel.set_xlabel(f"position on {shortened(region.sequence)} ({words})", fontsize=FONT)


def _written(unit: int) -> Callable[[float, Any], str]:
    def write(value: float, _: Any) -> str:
        return f"{value / unit:,.10g}"

    return write


def unit_of(length: int) -> tuple[int, str]:
    """Return in what a length is told: how many bases, and how it is written.

    >>> unit_of(300), unit_of(5_000), unit_of(3_000_000)
    ((1, 'bases'), (1000, 'kb'), (1000000, 'Mb'))
    """
    return (1, "bases") if length < 2_000 else (1_000, "kb") if length < 2_000_000 else (1_000_000, "Mb")


def draw_scale_bar(panel: Any, region: Region, *, above: float) -> None:
    """Draw a bar of a round length above the right end of a panel, ``above`` points over it."""
    from matplotlib.transforms import ScaledTranslation

    if region.length < _SCALED:
        return
    length = round_length(region.length / 6)
    unit, words = unit_of(length * 2 if length < 1000 else max(length, 2000))
    raised = ScaledTranslation(0, above / 72, panel.figure.dpi_scale_trans)
    across = panel.get_xaxis_transform() + raised
    end = region.end + 0.5
    panel.plot([end - length, end], [1, 1], transform=across, color=INK, linewidth=2.2, clip_on=False,
               solid_capstyle="butt")  # fmt: skip
    panel.text(end - length - region.length * 0.006, 1, f"{length / unit:g} {words}",
               transform=across, ha="right", va="center", fontsize=FONT - 1, color=INK)  # fmt: skip


def round_length(length: float) -> int:
    """Return the largest of 1, 2, 5, 10, 20, 50, ... that is no longer.

    >>> round_length(700), round_length(0.3)
    (500, 1)
    """
    power = 10 ** int(np.floor(np.log10(max(length, 1))))
    return int(max(step * power for step in (1, 2, 5) if step * power <= max(length, 1)))
