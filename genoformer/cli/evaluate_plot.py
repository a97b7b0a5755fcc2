"""An evaluation as a figure: reliability, precision against recall, confusion."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from genoformer.evaluate.evaluation import Evaluation, LevelResult
from genoformer.evaluate.summary import reliability
from genoformer.evaluate.tally import CONFIDENCE_BINS
from genoformer.plotting.files import write_figure
from genoformer.plotting.style import FORWARD, NOTHING, REVERSE

_COLORS = (NOTHING, *FORWARD, *REVERSE)
_FONT = 12
_MOST_POINTS = 2000
_FEWEST = 30
"""Bases of a point of the reliability curve; the table in JSON has all."""


def draw(evaluation: Evaluation, path: Path) -> None:
    """Write a figure: a row for each level with reliability, curves and confusion; calls without probabilities have the
    last only. See `plotting.files.write_figure` for what may go wrong.
    """
    from matplotlib.figure import Figure

    levels = evaluation.levels
    drawn: tuple[Callable[[Any, LevelResult], None], ...] = (_draw_reliability, _draw_curves, _draw_confusion)
    if not any(result.tally.has_probabilities for result in levels.values()):
        drawn = (_draw_confusion,)
    figure = Figure(figsize=(6 * len(drawn) + 1, 0.6 + 5.6 * len(levels)), layout="constrained")
    rows = figure.subplots(len(levels), len(drawn), squeeze=False)
    for panels, (name, result) in zip(rows, levels.items(), strict=True):
        for panel, draw_panel in zip(panels, drawn, strict=True):
            draw_panel(panel, result)
        panels[0].set_title(f"{name}: {result.tally.bases:,} bases", loc="left", fontsize=_FONT + 2, weight="bold")
    between = " " if len(drawn) > 1 else "\n"
    title = f"{Path(evaluation.prediction).name}{between}against {Path(evaluation.truth).name}"
    figure.suptitle(title, fontsize=_FONT)
    write_figure(figure, path, dpi=110)


def _style(panel: Any, across: str, up: str) -> None:
    panel.set_xlabel(across, fontsize=_FONT)
    panel.set_ylabel(up, fontsize=_FONT)
    panel.tick_params(labelsize=_FONT)
    panel.spines[["top", "right"]].set_visible(False)


def _draw_reliability(panel: Any, result: LevelResult) -> None:
    """Accuracy against confidence; bars: the share of bases."""
    bins = [one for one in reliability(result.tally.bins) if one.bases >= _FEWEST]
    panel.plot([0, 1], [0, 1], color="#aaaaaa", linestyle=":", label="perfectly calibrated")
    points = [one.confidence for one in bins], [one.accuracy for one in bins]
    panel.plot(*points, color=FORWARD[0], marker="o", label="accuracy")
    low, width = [one.low for one in bins], 1 / CONFIDENCE_BINS
    shares = [one.bases / result.tally.bases for one in bins]
    panel.bar(low, shares, width, align="edge", color="#c6dbef", zorder=0, label="share of bases")
    numbers = result.numbers()
    words = f"ECE {numbers.calibration_error:.4f}, Brier {numbers.brier_score:.4f}"
    panel.legend(loc="upper left", frameon=False, fontsize=_FONT, title=words, title_fontsize=_FONT)
    panel.set(xlim=(0, 1), ylim=(0, 1.02))
    _style(panel, "highest probability", "accuracy")


def _draw_curves(panel: Any, result: LevelResult) -> None:
    """Precision against recall, one line a class."""
    assert result.histogram is not None
    for index, name in enumerate(result.level.classes):
        curve = result.histogram.curve(index)
        if len(curve.recall):
            kept = np.unique(np.linspace(0, len(curve.recall) - 1, _MOST_POINTS).astype(int))
            color = _COLORS[index % len(_COLORS)] if len(result.level.classes) > 3 else _COLORS[(0, 1, 4)[index]]
            words = f"{name}: AP {result.histogram.average_precision(index):.4f}"
            panel.plot(curve.recall[kept], curve.precision[kept], color=color, label=words, linewidth=1.8)
    panel.legend(loc="lower left", frameon=False, fontsize=_FONT)
    panel.set(xlim=(0, 1.02), ylim=(0, 1.02))
    panel.grid(True, alpha=0.3)
    _style(panel, "recall", "precision")


def _draw_confusion(panel: Any, result: LevelResult) -> None:
    """Share of each true class (row) that was called as which class."""
    matrix, classes = result.tally.matrix.astype(np.float64), result.level.classes
    shares = matrix / np.maximum(matrix.sum(axis=1, keepdims=True), 1)
    panel.imshow(shares, cmap="Blues", vmin=0, vmax=1)
    small = len(classes) > 4
    for true in range(len(classes)):
        for called in range(len(classes)):
            share = shares[true, called]
            words = f"{share:.3f}" if small else f"{share:.4f}\n{int(matrix[true, called]):,}"
            panel.text(
                called, true, words, ha="center", va="center", fontsize=_FONT - 3 if small else _FONT,
                color="white" if share > 0.5 else "black",
            )  # fmt: skip
    panel.set_xticks(range(len(classes)), classes)
    panel.set_yticks(range(len(classes)), classes)
    _style(panel, "called", "true (shares of a row)")
