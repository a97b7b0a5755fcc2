"""Draw what `genoformer bench attention` measured: time and memory against length."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

from genoformer.bench.contenders import CONTENDERS, FUSED, GROUPS, MATRIX
from genoformer.cli.progress import size
from genoformer.plotting.files import write_figure

if TYPE_CHECKING:
    from genoformer.bench.speed import Measurement, Report

_SHADES = {
    "exact": ("#000000", "#777777"),
    "softmax": ("#444444",),
    "performer": ("#08519c", "#3182bd", "#6baed6", "#9ecae1", "#c6dbef"),
    "linformer": ("#006d2c", "#31a354", "#74c476", "#a1d99b", "#c7e9c0"),
    "local": ("#e6550d", "#fdae6b"),
    "hybrid": ("#6a51a3", "#9e9ac8"),
    "other": ("#8c6d31", "#bd9e39"),
}
"""A color for each family of mechanisms, a shade for each member."""
_OTHERS = {"performer": ("#e31a1c",), "linformer": ("#c51b8a", "#f768a1"), "local": ("#fdae6b",), "other": ("#ad1457",)}
"""The same for other libraries."""
_FONT = 13


def draw_plot(report: Report, path: Path) -> None:
    """Write a figure: a row of two panels, time and memory, for each group that was measured."""
    from matplotlib.figure import Figure

    rows = [row for row in report.measurements if not row.skipped]
    groups = [group for group in GROUPS if any(row.group == group for row in rows)]
    figure = Figure(figsize=(15, 1 + 5.5 * max(len(groups), 1)), layout="constrained")
    panels = figure.subplots(max(len(groups), 1), 2, squeeze=False)
    for (left, right), group in zip(panels, groups, strict=False):
        _draw_group(left, right, [row for row in rows if row.group == group])
        left.set_title(GROUPS[group].partition(":")[0].capitalize(), loc="left", fontsize=_FONT + 3, weight="bold")
    shape, step = report.setup.shape, "forward and backward" if report.setup.backward else "forward"
    figure.suptitle(
        f"{shape.heads} heads of {shape.dim}, {shape.features} features, {shape.rank} slots, {step}; "
        f"{report.processor}, threads: {report.threads}, torch {report.torch_version}",
        fontsize=_FONT - 1,
    )
    write_figure(figure, path, dpi=120)


def styles(group: str, names: list[str]) -> dict[str, dict[str, Any]]:
    """Return how each line looks: colors by family; other libraries dashed, with squares."""
    used: Counter[tuple[str, bool]] = Counter()
    found = {}
    for name in names:
        other = bool(CONTENDERS[f"{group}/{name}"].package)
        family = next((family for family in _SHADES if name.startswith(family)), "other")
        shades = (_OTHERS if other else _SHADES)[family]
        found[name] = {
            "color": shades[used[family, other] % len(shades)],
            "linestyle": "--" if other else ":" if name == MATRIX else "-",
            "marker": "s" if other else "o",
            "linewidth": 3.0 if name == FUSED else 1.8,
            "markersize": 6,
            "label": name,
        }
        used[family, other] += 1
    return found


def _draw_group(left: Any, right: Any, rows: list[Measurement]) -> None:
    names = list(dict.fromkeys(row.name for row in rows))
    for name, style in styles(rows[0].group, names).items():
        mine = [row for row in rows if row.name == name]
        left.plot([row.tokens for row in mine], [row.seconds for row in mine], **style)
        known = [row for row in mine if row.memory]
        right.plot([row.tokens for row in known], [row.memory for row in known], **style)
    for panel, words, unit in ((left, "time", "s"), (right, "memory beyond inputs, parameters, outputs", "B")):
        _label(panel, words, unit, sorted({row.tokens for row in rows}))
    right.legend(loc="center left", bbox_to_anchor=(1.0, 0.5), frameon=False, fontsize=_FONT)


def _label(panel: Any, words: str, unit: str, lengths: list[int]) -> None:
    panel.set_xscale("log")
    panel.set_yscale("log")
    panel.set_xticks(lengths, [f"{length:,}" for length in lengths])
    panel.minorticks_off()
    panel.yaxis.set_major_formatter(lambda value, _: _amount(value, unit))
    panel.tick_params(labelsize=_FONT)
    panel.set_xlabel("tokens", fontsize=_FONT)
    panel.set_ylabel(words, fontsize=_FONT)
    panel.grid(True, alpha=0.3)
    panel.spines[["top", "right"]].set_visible(False)


def _amount(value: float, unit: str) -> str:
    """Write a tick.

    >>> _amount(0.001, "s"), _amount(1e7, "B")
    ('1 ms', '10 MB')
    """
    small = unit == "s" and value < 0.999
    return f"{1000 * value:.3g} ms" if small else size(value, unit)
