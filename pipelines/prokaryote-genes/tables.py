"""Tables in Markdown of what measure.py found."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

NORMAL_95 = 1.96
"""Standard deviations to each side of the mean that hold 95% of a normal distribution."""
_NUMERIC = frozenset("0123456789+-")
OURS, OURS_GENES = "genoformer", "genoformer genes"
ONE_GENOME = ", one genome"
"""Behind the name of ours, where it was told that all contigs or reads are of one organism."""

Row = dict[str, Any]


class Estimate(NamedTuple):
    """A number and its 95% interval; NaN where it is not known."""

    value: float
    low: float = math.nan
    high: float = math.nan

    def __str__(self) -> str:
        if math.isnan(self.value):
            return "-"
        between = "" if math.isnan(self.low) else f" ({self.low:.4f}-{self.high:.4f})"
        return f"{self.value:.4f}{between}"


def table(head: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """Write a table; columns whose cells begin with a digit, a sign or a dash are aligned to the right."""
    cells = [[str(cell).replace("|", "\\|") for cell in row] for row in rows]
    is_number = [bool(cells) and all(row[column][:1] in _NUMERIC for row in cells) for column in range(len(head))]
    marks = ["---:" if number else "---" for number in is_number]
    return "\n".join(f"| {' | '.join(line)} |" for line in [list(head), marks, *cells])


def estimate(row: Row, *keys: str) -> Estimate:
    """Return a number of a row by its place, as ("strand", "f1") or ("genes", "three-prime", "f1")."""
    found: Any = row
    for key in keys[:-1]:
        found = (found or {}).get(key)
    if not found or found.get(keys[-1]) is None:
        return Estimate(math.nan)
    low, high = found.get("intervals", {}).get(keys[-1]) or (None, None)
    return Estimate(found[keys[-1]], *(math.nan if end is None else end for end in (low, high)))


def mean(estimates: Iterable[Estimate]) -> Estimate:
    """Return the mean over genomes.

    Its interval follows from theirs as of independent normal errors: it says how far other stretches of these genomes
    would change the mean, nothing of other genomes.
    """
    known = [one for one in estimates if not math.isnan(one.value)]
    if not known:
        return Estimate(math.nan)
    value = sum(one.value for one in known) / len(known)
    if any(math.isnan(one.low) for one in known):
        return Estimate(value)
    wide = math.sqrt(sum(((one.high - one.low) / 2) ** 2 for one in known)) / len(known)
    return Estimate(value, value - wide, min(1.0, value + wide))


def unique(values: Iterable[str]) -> list[str]:
    """Return values once each, in order."""
    return list(dict.fromkeys(values))


def of(rows: Iterable[Row], **wanted: str) -> list[Row]:
    """Return the rows that have these values."""
    return [row for row in rows if all(row[key] == value for key, value in wanted.items())]


_COLUMNS: dict[str, tuple[str, ...]] = {
    "precision": ("strand", "precision"),
    "recall": ("strand", "recall"),
    "F1 of bases": ("strand", "f1"),
    "F1 of 3' ends": ("genes", "three-prime", "f1"),
    "F1 of exact genes": ("genes", "exact", "f1"),
    "ECE": ("strand", "calibration_error"),
}
_PLAIN = ("precision", "recall", "ECE")


def _cells(number: Callable[[tuple[str, ...]], Estimate]) -> list[str]:
    """Write every column; those that need no interval without."""
    return [str(number(keys)._replace(low=math.nan) if name in _PLAIN else number(keys))
            for name, keys in _COLUMNS.items()]  # fmt: skip


def genome_table(rows: Sequence[Row]) -> str:
    """Write every caller on every whole genome."""
    lines = []
    for row in of(rows, data="genome"):
        lines.append(
            [row["organism"] or row["genome"], row["caller"], *_cells(lambda keys, row=row: estimate(row, *keys))]
        )
    return table(["genome", "by", *_COLUMNS], lines)


def mean_table(rows: Sequence[Row], *, data: Sequence[str]) -> str:
    """Write the mean over genomes of every caller on some data sets."""
    lines = []
    for name in data:
        for caller in unique(row["caller"] for row in of(rows, data=name)):
            chosen = of(rows, data=name, caller=caller)
            cells = _cells(lambda keys, chosen=chosen: mean(estimate(row, *keys) for row in chosen))
            lines.append([label(name), caller, len(chosen), *cells])
    return table(["data", "by", "genomes", *_COLUMNS], lines)


def label(data: str) -> str:
    """Say what a data set is."""
    kind, _, size = data.partition("-")
    if kind == "contigs":
        return f"contigs, {int(size):,} bases"
    return f"reads, {float(size) * 100:g}% errors" if kind == "reads" else "whole genomes"


def orforise_table(rows: Sequence[Row]) -> str:
    """Write what ORForise says; "" if it was not asked."""
    judged = [row for row in rows if "orforise" in row]
    if not judged:
        return ""
    names = list(judged[0]["orforise"])
    lines = [[row["organism"] or row["genome"], row["caller"], *(f"{row['orforise'][name]:.2f}" for name in names)]
             for row in judged]  # fmt: skip
    return table(["genome", "by", *names], lines)


def length_table(rows: Sequence[Row], callers: Sequence[str]) -> str:
    """Write how many genes of each length are found by their 3' end, and exactly, in all whole genomes together."""
    lines = []
    chosen = {caller: of(rows, data="genome", caller=caller) for caller in callers}
    chosen = {caller: found for caller, found in chosen.items() if found}
    if not chosen:
        return ""
    for index, bin_ in enumerate(next(iter(chosen.values()))[0]["genes"]["by-length"]):
        length = f"{bin_['from']:,}-{bin_['to'] - 1:,}" if bin_["to"] else f"{bin_['from']:,} or more"
        cells: list[object] = [length]
        for number, found in enumerate(chosen.values()):
            bins = [row["genes"]["by-length"][index] for row in found]
            true = sum(one["three-prime"]["true"] for one in bins)
            cells += [f"{true:,}"] if not number else []
            for key in ("three-prime", "exact"):
                right = sum(one[key]["recall"] * one[key]["true"] for one in bins if one[key]["recall"] is not None)
                cells.append(f"{right / true:.4f}" if true else "-")
        lines.append(cells)
    heads = [f"{caller}: {word}" for caller in chosen for word in ("3' ends", "exact")]
    return table(["genes of bases", "true", *heads], lines)


def gain_table(rows: Sequence[Row], *, than: str = "Prodigal", data: str = "genome") -> str:
    """Write by how much our bases and genes differ from another program's, genome by genome."""
    lines = []
    bases, ends, exact = ("strand", "f1"), ("genes", "three-prime", "f1"), ("genes", "exact", "f1")
    compared = ((OURS, bases), (OURS_GENES, bases), (OURS_GENES, ends), (OURS_GENES, exact))
    for theirs in of(rows, data=data, caller=than):
        own = {row["caller"]: row for row in of(rows, data=data, genome=theirs["genome"])}
        cells = [theirs["organism"] or theirs["genome"]]
        for caller, keys in compared:
            cells.append(f"{estimate(own[caller], *keys).value - estimate(theirs, *keys).value:+.4f}")
        lines.append(cells)
    heads = ["bases", "bases of genes", "3' ends", "exact genes"]
    return table(["genome", *(f"F1 of {head}, difference" for head in heads)], lines) if lines else ""


def data_names(rows: Sequence[Row], kind: str) -> list[str]:
    """Return the data sets of one kind, smallest first."""
    return sorted(unique(row["data"] for row in of(rows, kind=kind)), key=lambda name: float(name.partition("-")[2]))


def show(measured: dict[str, Any]) -> str:
    """Write all tables of a measurement."""
    rows = measured["rows"]
    parts = [genome_table(rows), mean_table(rows, data=["genome"]), gain_table(rows), orforise_table(rows)]
    parts += [mean_table(rows, data=data_names(rows, kind)) for kind in ("contigs", "reads") if data_names(rows, kind)]
    if not of(rows, data="genome"):
        parts = parts[4:]
    else:
        parts.append(length_table(rows, [OURS_GENES, "Prodigal"]))
    return "\n\n".join(part for part in parts if part)
