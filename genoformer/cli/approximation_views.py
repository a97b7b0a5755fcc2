"""The audit of approximations as tables for people, as JSON, and as a plot."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich import box
from rich.console import Console
from rich.table import Table

from genoformer import __version__
from genoformer.bench.approximation import LayerAudit, Report, Settings
from genoformer.errors import ResourceError
from genoformer.plotting.files import write_figure

if TYPE_CHECKING:
    from matplotlib.axes import Axes

WIDTH = 100
FOOTNOTE = (
    "error: relative, of the outputs, mean over draws; by theory to first order, orthogonality included. limit: "
    "with infinitely many features. bias, spread: of single weights, up to a common factor; ~ is within the noise of "
    "the draws. smallest size: features, slots or window that meet the error in every held-out draw; held-out error: "
    "the largest of these; work: operations at this size, exact attention among as many tokens being 100%; the share "
    "falls as one over their number. By theory, Linformers need of the order of 5 ln n / (e^2 - e^3) slots (Wang et "
    "al. 2020, theorem 1), whatever the data."
)


def show(layers: Sequence[LayerAudit], settings: Settings) -> None:
    """Print what was found to stdout."""
    console = Console(width=WIDTH, highlight=False, emoji=False)
    for layer in layers:
        for line in _heading(layer):
            console.print(line, markup=False)
        console.print(_at_size(layer))
        console.print(_advice(layer, settings))
        for note in layer.notes:
            console.print(f"note: {note}", markup=False)
        console.print()
    console.print(FOOTNOTE, markup=False)


def _heading(layer: LayerAudit) -> Iterator[str]:
    matrix = layer.matrix
    yield (
        f"{layer.name}: {layer.tokens:,} tokens, {layer.heads} heads x {layer.dim}, mean squared norm of queries and "
        f"keys {layer.squared_norm:.3g}"
    )
    yield (
        f"attention matrix: effective rank {matrix.effective_rank:.1f}; 90% of its energy in "
        f"{matrix.rank_90:.3g} singular values, 99% in {matrix.rank_99:.3g} (what k must reach); a row spreads over "
        f"{math.exp(matrix.row_entropy):.0f} keys (entropy {matrix.row_entropy:.2f} of {matrix.most_entropy:.2f} nats)"
    )
    own = "" if layer.own_error is None else f"; of the model's own mechanism: {layer.own_error:.3g}"
    yield f"error of mean(V), the trivial answer: {layer.trivial_error:.3g}{own}"


def _new_table(*heads: str) -> Table:
    table = Table(box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0), pad_edge=False)
    table.add_column(heads[0], no_wrap=True)
    for head in heads[1:]:
        table.add_column(head, justify="left" if head.startswith("for") else "right", no_wrap=True)
    return table


def _at_size(layer: LayerAudit) -> Table:
    table = _new_table(
        "mechanism", "size", "error", "by theory", "limit", "bias", "by theory", "spread", "by theory"
    )  # fmt: skip
    for report in layer.reports:
        kernel, point = report.kernel, report.at_size
        pairs = ["-"] * 4
        if kernel is not None:
            mark = "~" if kernel.bias < 2 * kernel.noise else ""
            measured = (kernel.bias, kernel.bias_theory, kernel.spread, kernel.spread_theory)
            pairs = [_number(value) for value in measured]
            pairs[0] = mark + pairs[0]
        table.add_row(
            report.name, f"{point.size}", _number(point.error), _number(point.predicted),
            _number(report.floor_theory), *pairs,
        )  # fmt: skip
    return table


def _advice(layer: LayerAudit, settings: Settings) -> Table:
    table = _new_table(
        "mechanism", "smallest size", "by theory", "held-out error", "work", f"for an error of {settings.wanted:g}"
    )
    for report in layer.reports:
        advice = report.advice
        table.add_row(
            report.name,
            "-" if advice.size is None else f"{advice.size:,}",
            "-" if advice.theory is None else f"{advice.theory:,}",
            _number(advice.held_out_error),
            "-" if advice.work is None else f"{advice.work:.0%}",
            advice.reason,
        )
    return table


def _number(value: float | None) -> str:
    if value is None or math.isnan(value):
        return "-"
    if value >= 1000:
        return ">999"
    return f"{value:.0f}" if value >= 100 else f"{value:.1f}" if value >= 10 else f"{value:.3f}"


def write_json(layers: Sequence[LayerAudit], settings: Settings, path: Path) -> None:
    """Write every number; what is infinite or not known is null."""
    described = {
        "format": "genoformer-approximation",
        "format-version": 1,
        "generated-by": f"genoformer {__version__}",
        "settings": asdict(settings),
        "layers": [asdict(layer) for layer in layers],
    }
    try:
        path.write_text(json.dumps(_finite(described), indent=2, allow_nan=False) + "\n", encoding="utf-8")
    except OSError as error:
        raise ResourceError(f"{path}: cannot be written: {error.strerror}; name another file") from None


def _finite(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _finite(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def draw(layers: Sequence[LayerAudit], settings: Settings, path: Path) -> None:
    """Draw error against features (left) and against slots or window (right), a row of panels for each layer."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(12, 4.6 * len(layers)), layout="constrained")
    axes = figure.subplots(len(layers), 2, squeeze=False, sharey="row")
    for layer, (left, right) in zip(layers, axes, strict=True):
        performers = [r for r in layer.reports if r.name.startswith("performer")]
        _curves(left, performers, layer, settings, f"{layer.name}: features m")
        _curves(right, [r for r in layer.reports if r not in performers], layer, settings, "slots k, or window")
        left.set_ylabel("relative error of the outputs")
    write_figure(figure, path, dpi=130)


def _curves(axes: Axes, reports: Sequence[Report], layer: LayerAudit, settings: Settings, title: str) -> None:
    for index, report in enumerate(reports):
        sizes, color = [point.size for point in report.curve], f"C{index % 10}"
        label = report.name.removeprefix("performer ")
        found = [max(point.error, 1e-4) for point in report.curve]
        axes.plot(sizes, found, color=color, marker="os^vD<>pPX"[index % 10], markersize=4, linewidth=1.3, label=label)
        predicted = [(point.size, point.predicted) for point in report.curve if point.predicted is not None]
        if len(predicted) > 1:
            axes.plot(*zip(*predicted, strict=True), color=color, linestyle=":", linewidth=1.0)
    axes.axhline(layer.trivial_error, color="black", linewidth=1.0, linestyle="--", label="mean(V)")
    axes.axhline(settings.wanted, color="gray", linewidth=1.0, linestyle="-.", label="wanted")
    axes.set(xscale="log", yscale="log", xlabel=title, ylim=(1e-3, 30))
    sizes = list(settings.curve)
    axes.set_xticks(sizes, [str(size) for size in sizes])
    axes.minorticks_off()
    axes.grid(alpha=0.3)
    axes.legend(fontsize=8, ncols=2, title="dotted: by theory" if "features" in title else None, title_fontsize=8)
