"""An evaluation as tables for people, and as JSON."""

from __future__ import annotations

import json
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click
from rich import box
from rich.console import Console
from rich.table import Table

from genoformer.errors import printable

WIDTH = 100
FIRST = 10
_NAME = 38


def write_json(summary: dict[str, Any], path: Path) -> None:
    """Write every number; what is undefined is null."""
    part = path.with_name(path.name + ".part")
    part.write_text(json.dumps(summary, indent=1, allow_nan=False) + "\n")
    part.replace(path)


def show(summary: dict[str, Any], *, show_all: bool = False) -> None:
    """Print what was found to stdout."""
    console = Console(width=WIDTH, highlight=False, emoji=False)
    for line in _heading(summary):
        _say(line)
    for name, level in summary["levels"].items():
        console.print()
        _say(f"by base, {name}: {_intervals(level['numbers'], level.get('intervals'))}")
        console.print(_classes(level))
    if summary["signals"]:
        console.print()
        console.print(_signals(summary["signals"]))
    if summary["genes"] is not None:
        console.print()
        _show_genes(console, summary["genes"])
    if len(summary["sequences"]) > 1:
        console.print()
        console.print(_sequences(summary, None if show_all else FIRST))
        if not show_all and len(summary["sequences"]) > FIRST:
            console.print(f"... and {len(summary['sequences']) - FIRST:,} more; --all lists them")
    console.print()
    for note in summary["notes"]:
        _say(f"note: {note}")


def _say(text: str) -> None:
    """Print a paragraph to stdout."""
    text = printable(text)
    for line in textwrap.wrap(text, WIDTH, subsequent_indent="  ", break_on_hyphens=False, break_long_words=False):
        click.echo(line)


def _heading(summary: dict[str, Any]) -> Iterator[str]:
    compared, missing = summary["bases"]["compared"], summary["bases"]["without-prediction"]
    yield f"{summary['prediction']} against {summary['truth']}"
    without = f", {missing:,} of them without a prediction" if missing else ""
    yield f"track {summary['track']}, sequences: {len(summary['sequences']):,}, bases: {compared:,}{without}"


def _intervals(numbers: dict[str, Any], intervals: dict[str, Any] | None) -> str:
    """Write the main numbers with their intervals."""
    words = {
        "precision": "precision", "recall": "recall", "f1": "F1", "mcc": "MCC", "calibration_error": "ECE",
        "brier_score": "Brier",
    }  # fmt: skip
    parts = []
    for key, word in words.items():
        if numbers.get(key) is not None or key in ("precision", "recall", "f1"):
            low, high = (intervals or {}).get(key, (None, None))
            between = "" if low is None else f" ({_number(low)}-{_number(high)})"
            parts.append(f"{word} {_number(numbers[key])}{between}")
    return ", ".join(parts)


def _new_table(*heads: str) -> Table:
    table = Table(box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0), pad_edge=False)
    table.add_column(heads[0], no_wrap=True)
    for head in heads[1:]:
        table.add_column(head, justify="right", no_wrap=True)
    return table


def _classes(level: dict[str, Any]) -> Table:
    has_curves = level["calibration"] is not None
    curves = ("av.precision", "AUROC") if has_curves else ()
    table = _new_table("class", "true bases", "called", "precision", "recall", "F1", "MCC", *curves)
    for name, score in level["classes"].items():
        keys = ("precision", "recall", "f1", "mcc", *(("average_precision", "auroc") if has_curves else ()))
        numbers = (_number(score[key]) for key in keys)
        table.add_row(_escaped(printable(name)), f"{score['true']:,}", f"{score['called']:,}", *numbers)
    return table


def _show_genes(console: Console, genes: dict[str, Any]) -> None:
    for key, word in (("three-prime", "3' end"), ("exact", "exact")):
        numbers = genes[key]
        _say(f"by gene, {word}: {_intervals(numbers, numbers.get('intervals'))}")
    table = _new_table(
        "genes", "true", "called", "3' prec.", "3' recall", "3' F1", "exact prec.", "ex. recall", "ex. F1"
    )
    rows = {"all": genes} | {f"strand {sign}": row for sign, row in genes["by-strand"].items()}
    for row in genes["by-length"]:
        rows[f"{row['from']:,}-{row['to'] - 1:,} bases" if row["to"] else f"{row['from']:,} or more bases"] = row
    for name, row in rows.items():
        end, exact = row["three-prime"], row["exact"]
        cells = [_number(part[key]) for part in (end, exact) for key in ("precision", "recall", "f1")]
        table.add_row(name, f"{end['true']:,}", f"{end['called']:,}", *cells)
    console.print(table)
    out = genes["left-out"]
    _say(
        f"left out: {out['true']:,} true genes that are pseudo, broken or cut within the sequence, and "
        f"{out['called']:,} called genes that lie in these"
    )


def _signals(signals: dict[str, Any]) -> Table:
    table = _new_table("channel", "bases", "Pearson", "R2", "mean squared error", "bias")
    for name, numbers in signals.items():
        cells = [_number(numbers["pearson"]), _number(numbers["r2"])]
        sizes = ["-" if numbers[key] is None else f"{numbers[key]:.4g}" for key in ("mean_squared_error", "bias")]
        table.add_row(_escaped(printable(name)), f"{numbers['bases']:,}", *cells, *sizes)
    return table


_COLUMNS = {"precision": "precision", "recall": "recall", "f1": "F1", "calibration_error": "ECE"}
_SIGNAL_COLUMNS = {"pearson": "Pearson", "r2": "R2", "bias": "bias"}


def _sequences(summary: dict[str, Any], most: int | None) -> Table:
    """List sequences with the numbers of the first level, or of the first channel of a signal track."""
    level = next(iter(summary["levels"] or summary["signals"]))
    columns = _COLUMNS if summary["levels"] else _SIGNAL_COLUMNS
    has_genes = summary["genes"] is not None
    table = _new_table("sequence", "bases", *columns.values(), *(("3' F1",) if has_genes else ()))
    for one in summary["sequences"][:most]:
        numbers = one[level]
        name = printable(one["name"])
        name = name if len(name) <= _NAME else f"{name[: _NAME - 1]}…"
        genes = [_number(one["genes"]["three-prime"]["f1"])] if has_genes else []
        cells = [_number(numbers[key]) for key in columns]
        table.add_row(_escaped(name), f"{one['length']:,}", *cells, *genes)
    return table


def _escaped(text: str) -> str:
    """Keep brackets in names from being read as markup."""
    return text.replace("[", "\\[")


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:.4f}"
