"""The part of a page that holds predictions against the truth."""

from __future__ import annotations

from typing import Any

import numpy as np

from genoformer.evaluate.evaluation import Evaluation, LevelResult
from genoformer.evaluate.summary import reliability, summarize
from genoformer.evaluate.tally import CONFIDENCE_BINS
from genoformer.report import charts
from genoformer.report.markup import Markup, element, join, shown
from genoformer.report.sections import cards, figure, table

_FEWEST = 30
"""Bases of a point of the reliability curve."""
_POINTS = 150
_SIGNALS = ("pearson", "r2", "mean_squared_error", "bias")


def accuracy(evaluation: Evaluation) -> Markup:
    """Return calibration and agreement, by base and by gene."""
    summary = summarize(evaluation)
    parts = [element("p", "Against ", element("code", shown(evaluation.truth, most=500)), ".")]
    for name, result in evaluation.levels.items():
        parts.append(_level(name, result, summary["levels"][name]))
    if summary["signals"]:
        rows = [[shown(channel), f"{one['bases']:,}", *[_value(one[key]) for key in _SIGNALS]]
                for channel, one in summary["signals"].items()]  # fmt: skip
        heads = ("channel", "bases", "Pearson", "R²", "mean squared error", "bias")
        parts.append(table(heads, rows, caption="Agreement with the measured signal"))
    if summary["genes"] is not None:
        parts.append(_genes(summary["genes"]))
    notes = [element("li", shown(note, most=1000)) for note in evaluation.notes]
    parts.append(element("ul", *notes, attributes={"class": "notes"}))
    return join(*parts)


def _value(value: float | None) -> str:
    return "-" if value is None else f"{value:.4f}"


def _level(name: str, result: LevelResult, summary: dict[str, Any]) -> Markup:
    numbers = summary["numbers"]
    shown_numbers = {"F1": "f1", "precision": "precision", "recall": "recall", "MCC": "mcc", "ECE": "calibration_error",
                     "Brier score": "brier_score"}  # fmt: skip
    pairs = [(word, _value(numbers[key])) for word, key in shown_numbers.items() if numbers[key] is not None]
    parts = [element("h3", f"By base: {name} ({summary['bases']:,} bases)"), cards(pairs)]
    figures = []
    if result.tally.has_probabilities:
        figures.append(_reliability(result))
    if result.histogram is not None:
        figures.append(_precision_recall(result))
    if figures:
        parts.append(element("div", *figures, attributes={"class": "figures"}))
    heads = ["class", "true bases", "called", "precision", "recall", "F1", "MCC"]
    keys = ["precision", "recall", "f1", "mcc"]
    if result.histogram is not None:
        heads, keys = [*heads, "av. precision", "AUROC"], [*keys, "average_precision", "auroc"]
    rows = [[shown(one), f"{score['true']:,}", f"{score['called']:,}", *[_value(score[key]) for key in keys]]
            for one, score in summary["classes"].items()]  # fmt: skip
    parts.append(table(heads, rows, caption=f"Each class of {name}"))
    parts.append(_confusion(result))
    return join(*parts)


def _reliability(result: LevelResult) -> Markup:
    bins = [one for one in reliability(result.tally.bins) if one.bases >= _FEWEST]
    points = [(one.confidence or 0.0, one.accuracy or 0.0) for one in bins]
    lines = [
        charts.Line("perfectly calibrated", (0, 1), (0, 1), "ideal"),
        charts.Line("accuracy", [x for x, _ in points], [y for _, y in points], "dots"),
    ]
    total = max(result.tally.bases, 1)
    columns = [(one.low, one.high, one.bases / total) for one in bins]
    chart = charts.curves(lines, across="highest probability", up="accuracy", columns=columns)
    note = f"bars: the share of bases in each of {CONFIDENCE_BINS} bins; dotted: perfectly calibrated"
    return figure("Calibration", chart, note=note)


def _precision_recall(result: LevelResult) -> Markup:
    assert result.histogram is not None
    lines = []
    said = []
    for index, name in enumerate(result.level.classes[:12]):
        curve = result.histogram.curve(index)
        if len(curve.recall):
            kept = np.unique(np.linspace(0, len(curve.recall) - 1, _POINTS).astype(int))
            style = f"c{index % 8}" if len(result.level.classes) != 3 else f"c{(0, 2, 5)[index]}"
            lines.append(charts.Line(shown(name), curve.recall[kept].tolist(), curve.precision[kept].tolist(), style))
            said.append(element("span", shown(name), attributes={"class": f"key {style}"}))
    chart = charts.curves(lines, across="recall", up="precision")
    return join(element("figure", element("figcaption", "Precision against recall"), chart,
                        element("p", *said, attributes={"class": "note keys"})))  # fmt: skip


def _confusion(result: LevelResult) -> Markup:
    matrix, classes = result.tally.matrix, [shown(name) for name in result.level.classes]
    shares = matrix / np.maximum(matrix.sum(axis=1, keepdims=True), 1)
    rows = [[name, *[f"{value:.4f}" for value in row]] for name, row in zip(classes, shares.tolist(), strict=True)]
    caption = "Confusion: the share of each true class (row) that was called as which (column)"
    return element("details", element("summary", "Confusion"), table(("true", *classes), rows, caption=caption))


def _genes(genes: dict[str, Any]) -> Markup:
    parts = [element("h3", "By gene")]
    ends = genes["three-prime"]
    pairs = [("F1 of 3' ends", _value(ends["f1"])), ("F1, exact", _value(genes["exact"]["f1"])),
             ("true genes", f"{ends['true']:,}"), ("called", f"{ends['called']:,}")]  # fmt: skip
    parts.append(cards(pairs))
    rows = {"all": genes} | {f"strand {sign}": row for sign, row in genes["by-strand"].items()}
    for row in genes["by-length"]:
        rows[f"{row['from']:,}-{row['to'] - 1:,} bases" if row["to"] else f"{row['from']:,} or more bases"] = row
    cells = []
    for name, row in rows.items():
        end, exact = row["three-prime"], row["exact"]
        scores = [_value(part[key]) for part in (end, exact) for key in ("precision", "recall", "f1")]
        cells.append([name, f"{end['true']:,}", f"{end['called']:,}", *scores])
    heads = ("genes", "true", "called", "3' precision", "3' recall", "3' F1", "exact precision", "exact recall",
             "exact F1")  # fmt: skip
    parts.append(table(heads, cells, caption="Genes by strand and length"))
    out = genes["left-out"]
    said = (f"Left out: {out['true']:,} true genes that are pseudo, broken or cut within the sequence, and "
            f"{out['called']:,} called genes that lie in these.")  # fmt: skip
    parts.append(element("p", said, attributes={"class": "note"}))
    return join(*parts)
