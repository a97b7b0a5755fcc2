"""Table and plot of what long_range.py measured: accuracy against distance, means of seeds with 95% intervals."""

from __future__ import annotations

import math
from collections import defaultdict
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

_STUDENT = (math.nan, 12.71, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262)
"""97.5% quantiles of Student's t by degrees of freedom."""
_COLORS = {
    "softmax": "#444444", "local": "#d55e00", "performer": "#0072b2", "linformer": "#009e73", "hybrid": "#cc79a7",
    "joint": "#e69f00",
}  # fmt: skip
_ABOUT = {
    "single": ("kind of the one motif far away", "distance of the motif (bases)"),
    "paired": ("kind of the matching one of four motifs", "distance of the motif (bases)"),
    "nested": ("nested expressions", "bases spanned by the expression, up to"),
}


class Score(NamedTuple):
    """A mean over seeds; half the width of its 95% interval (nan for one seed); how many seeds."""

    mean: float
    half: float
    seeds: int

    def __str__(self) -> str:
        half = "" if math.isnan(self.half) else f" ± {100 * self.half:.1f}"
        return f"{100 * self.mean:.1f}{half}"


def score(values: list[float]) -> Score:
    n = len(values)
    half = _STUDENT[n - 1] * float(np.std(values, ddof=1)) / math.sqrt(n) if n > 1 else math.nan
    return Score(float(np.mean(values)), half, n)


_EVEN = ("single", "paired")
"""Tasks whose two answers are drawn evenly: guessing is right half of the time, whatever a sample says."""


def scores(results: list[dict[str, Any]], task: str) -> tuple[dict[str, dict[int, Score]], dict[int, float]]:
    """Return the score of each mechanism in each group, and that of the best guess."""
    values: dict[str, dict[int, list[float]]] = defaultdict(lambda: defaultdict(list))
    guesses: dict[int, float] = {}
    for result in results:
        if result["task"] != task:
            continue
        for group, found in result["groups"].items():
            values[result["mechanism"]][int(group)].append(found["right"] / found["asked"])
            guesses[int(group)] = 0.5 if task in _EVEN else found["guess"]
    means = {name: {group: score(v) for group, v in groups.items()} for name, groups in values.items()}
    return means, dict(sorted(guesses.items()))


def table(means: dict[str, dict[int, Score]], guesses: dict[int, float], label: str) -> list[str]:
    """Write one task's table in Markdown."""
    lines = [
        f"| {label} | {' | '.join(f'{group:,}' for group in guesses)} | seeds |",
        "|---|" + "---|" * (len(guesses) + 1),
    ]
    for name in (name for name in _COLORS if name in means):
        cells = [str(means[name][group]) if group in means[name] else "-" for group in guesses]
        lines.append(f"| {name} | {' | '.join(cells)} | {max(s.seeds for s in means[name].values())} |")
    lines.append(f"| best guess | {' | '.join(f'{100 * guess:.1f}' for guess in guesses.values())} | |")
    return lines


def plot(results: list[dict[str, Any]], path: Path) -> None:
    """Draw accuracy against distance, a panel a task."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    tasks = [task for task in _ABOUT if any(result["task"] == task for result in results)]
    figure, panels = pyplot.subplots(1, len(tasks), figsize=(6.2 * len(tasks), 4.4), squeeze=False)
    for panel, task in zip(panels[0], tasks, strict=True):
        means, guesses = scores(results, task)
        for place, (name, color) in enumerate(_COLORS.items()):
            groups = sorted(means.get(name, {}))
            if not groups:
                continue
            shift = 1.05 ** (place - 2.5)  # beside one another, not on top
            middle = [100 * means[name][group].mean for group in groups]
            half = [100 * np.nan_to_num(means[name][group].half) for group in groups]
            panel.errorbar(
                [group * shift for group in groups], middle, yerr=half, color=color, marker="o", markersize=4,
                capsize=3, linewidth=1.5, label=name,
            )  # fmt: skip
        panel.plot(list(guesses), [100 * guess for guess in guesses.values()], "k:", linewidth=1, label="best guess")
        panel.set(
            xscale="log", ylim=(0, 102), title=_ABOUT[task][0], xlabel=_ABOUT[task][1], ylabel="right answers (%)"
        )
        panel.set_xticks(list(guesses), [f"{group:,}" for group in guesses])
        panel.minorticks_off()
        panel.grid(alpha=0.3)
    panels[0][0].legend(loc="lower left", fontsize=8)
    figure.tight_layout()
    figure.savefig(path, dpi=120)


def write(results: list[dict[str, Any]], to: Path) -> None:
    """Write long_range.md and long_range.png."""
    to.mkdir(parents=True, exist_ok=True)
    lines = [
        "# Accuracy against distance",
        "",
        "`python tests/benchmarks/long_range.py train FOLDER`, then `report FOLDER tests/benchmarks/results`: right",
        "answers in %, mean of seeds ± 95% interval (Student's t). Best guess: what is had from the question alone.",
    ]
    for task, (about, label) in _ABOUT.items():
        means, guesses = scores(results, task)
        if means:
            steps = sorted({result["steps"] for result in results if result["task"] == task})
            seconds = sum(result["seconds"] for result in results if result["task"] == task)
            lines += ["", f"## {task}: {about}", "", *table(means, guesses, label), ""]
            lines.append(f"{', '.join(map(str, steps))} steps each; {seconds / 60:.0f} minutes of one core in all.")
    (to / "long_range.md").write_text("\n".join(lines) + "\n")
    plot(results, to / "long_range.png")
