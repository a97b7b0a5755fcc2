"""Draw the log of a training: loss and validation against steps."""

from __future__ import annotations

import json
from itertools import cycle
from pathlib import Path
from typing import Any

from genoformer.plotting.files import write_figure

_SMOOTHED = 0.95
"""Share of the running mean that each step keeps."""
_COLORS = ("#e6550d", "#31a354", "#6a51a3", "#8c6d31", "#c51b8a", "#636363")


def draw_curve(log: Path, path: Path) -> bool:
    """Draw a log (JSONL) as an image; return False, having drawn nothing, where there is no matplotlib or no step."""
    entries = [json.loads(line) for line in log.read_text(encoding="utf-8").splitlines()] if log.is_file() else []
    try:
        from matplotlib.figure import Figure
    except ImportError:
        return False
    if not entries:
        return False
    figure = Figure(figsize=(9, 5), layout="constrained")
    left = figure.subplots()
    steps, losses = [entry["step"] for entry in entries], [entry["loss"] for entry in entries]
    left.plot(steps, losses, color="#9ecae1", linewidth=0.8)
    (line,) = left.plot(steps, _smooth(losses), color="#08519c", label="loss")
    left.set_xlabel("step")
    left.set_ylabel("loss")
    lines = [line, *_draw_validation(left, entries)]
    left.grid(True, alpha=0.3)
    figure.legend(handles=lines, frameon=False, loc="outside lower center", ncols=min(len(lines), 4))
    write_figure(figure, path, dpi=120)
    return True


def _draw_validation(left: Any, entries: list[dict]) -> list[Any]:
    """Draw the means of the validations against an axis at the right."""
    measured = [entry for entry in entries if "validation" in entry]
    names = dict.fromkeys(name for entry in measured for name in entry["validation"] if name.startswith("mean_"))
    if not names:
        return []
    right = left.twinx()
    right.set_ylabel("validation")
    lines: list[Any] = []
    for name, color in zip(names, cycle(_COLORS), strict=False):
        known = [(entry["step"], entry["validation"].get(name)) for entry in measured]
        points = [(step, value) for step, value in known if value is not None]
        lines += (
            right.plot(*zip(*points, strict=True), "o-", color=color, label=name.replace("_", " ")) if points else []
        )
    return lines


def _smooth(values: list[float]) -> list[float]:
    """Return the running mean, unbiased at its beginning.

    >>> _smooth([2.0, 2.0])
    [2.0, 2.0]
    """
    smoothed, total, weight = [], 0.0, 0.0
    for value in values:
        total, weight = _SMOOTHED * total + value, _SMOOTHED * weight + 1
        smoothed.append(total / weight)
    return smoothed
