"""Spans of sequences with a word or a number each, from BED and bedGraph.

Both formats count from 0, half-open, as everything does here.
"""

from __future__ import annotations

import math
import os
import re
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from genoformer.errors import FormatError
from genoformer.formats.bytestream import Source, sniff
from genoformer.formats.gff3 import open_text
from genoformer.formats.numbers import whole

_SKIPPED = re.compile(r"\s*$|#|(?:track|browser)(?:\s|$)")
_LARGEST = float(np.finfo(np.float32).max)
_STRAND = 5
"""Column of BED with the strand, from 0."""


class Spans(NamedTuple):
    """Spans of one sequence, in the order of the file."""

    starts: np.ndarray
    """int64, (spans,)"""
    ends: np.ndarray
    """int64, (spans,)"""
    values: np.ndarray
    """(spans,): float32, or text; "" where a BED line has no name"""


def read_bed_spans(path: str | os.PathLike[str]) -> dict[str, Spans]:
    """Read the spans of a BED file, plain or gzip, with the names in column 4; by sequence.

    Raises
    ------
    InputError : the file cannot be read
    FormatError : a line does not begin with name, start and end
    """
    return _gather(_read(path, "BED", columns=3), dtype=np.dtype(object))


def read_bed_strands(path: str | os.PathLike[str]) -> dict[str, Spans]:
    """Read the spans of a BED file, plain or gzip, with the strands in column 6: ``+``, ``-`` or ``.``; by sequence.

    Raises
    ------
    InputError : the file cannot be read
    FormatError : a line has fewer columns, or another strand
    """
    return _gather(_strands(_read(path, "BED", columns=3, word=_STRAND)), dtype=np.dtype(object))


def _strands(lines: Iterator[_Line]) -> Iterator[_Line]:
    for line in lines:
        if line.word not in ("+", "-", "."):
            found = repr(line.word) if line.word else "no such column"
            raise FormatError(f"{line.where}: expected a strand, + or - or ., in column {_STRAND + 1}, got {found}")
        yield line


def is_bed(path: str | os.PathLike[str]) -> bool:
    """Tell whether a text is BED: the first line that is no comment has a start and an end in columns 2 and 3.

    Raises
    ------
    InputError : the file cannot be read
    """
    if sniff(path) != "unknown":
        return False
    with open_text(Source(path)) as lines:
        cells = next(
            (line.split("\t") if "\t" in line else line.split() for line in lines if not _SKIPPED.match(line)), []
        )
    return len(cells) >= 3 and whole(cells[1]) is not None and whole(cells[2].strip()) is not None


def read_bedgraph(path: str | os.PathLike[str]) -> dict[str, Spans]:
    """Read the spans of a bedGraph file, plain or gzip, with the numbers in column 4; by sequence.

    Raises
    ------
    InputError : the file cannot be read
    FormatError : a line is not name, start, end and a finite number, or two spans overlap
    """
    found = _gather(((*line[:3], _number(*line)) for line in _read(path, "bedGraph", columns=4)), dtype=np.dtype("f4"))
    for name, spans in found.items():
        check_disjoint(spans, f"{path}: sequence {name!r}")
    return found


def check_disjoint(spans: Spans, where: str) -> None:
    """Raise FormatError if two spans overlap, so that a base would have two values."""
    order = np.argsort(spans.starts, kind="stable")
    clash = np.flatnonzero(spans.starts[order][1:] < spans.ends[order][:-1])
    if len(clash):
        start = int(spans.starts[order][clash[0] + 1])
        raise FormatError(f"{where}: spans overlap at position {start + 1}; expected one value a base")


class _Line(NamedTuple):
    sequence: str
    start: int
    end: int
    word: str
    where: str


def _read(path: str | os.PathLike[str], kind: str, *, columns: int, word: int = 3) -> Iterator[_Line]:
    source = Source(path)
    with open_text(source) as lines:
        for number, line in enumerate(lines, 1):
            if _SKIPPED.match(line):
                continue
            where = f"{source.name}: line {number}"
            cells = line.rstrip("\r\n").split("\t") if "\t" in line else line.split()
            expected = "name, start and end" if columns == 3 else "name, start, end and a number"
            start, end = (whole(cells[1]), whole(cells[2])) if len(cells) >= columns else (None, None)
            if start is None or end is None:
                raise FormatError(f"{where}: is no {kind} line: {line[:40].rstrip()!r}; expected {expected}")
            if start > end:
                raise FormatError(f"{where}: start {start} and end {end} are no span; expected start <= end")
            if start < end:
                yield _Line(cells[0], start, end, cells[word] if len(cells) > word else "", where)


def _number(sequence: str, start: int, end: int, word: str, where: str) -> float:
    try:
        value = float(word)
    except ValueError:
        value = math.nan
    if not abs(value) <= _LARGEST:
        raise FormatError(f"{where}: the value at {sequence}:{start + 1}-{end} must be a finite number, got {word!r}")
    return value


def _gather(lines: Iterator[tuple], *, dtype: np.dtype) -> dict[str, Spans]:
    found: dict[str, tuple[list[int], list[int], list]] = {}
    for sequence, start, end, value, *_ in lines:
        starts, ends, values = found.setdefault(sequence, ([], [], []))
        starts.append(start)
        ends.append(end)
        values.append(value)
    return {
        name: Spans(np.array(starts, dtype=np.int64), np.array(ends, dtype=np.int64), np.array(values, dtype=dtype))
        for name, (starts, ends, values) in found.items()
    }
