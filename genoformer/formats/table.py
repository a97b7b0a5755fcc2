"""Values of single bases as a table: a line a base, with sequence, position (from 1) and a column for each channel.

Tab-separated values have no way to write a tab or the end of a line within a cell; names that hold one are refused.
https://www.iana.org/assignments/media-types/text/tab-separated-values
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from typing import NamedTuple

import numpy as np

from genoformer.errors import FormatError, InputError
from genoformer.formats.bytestream import Source
from genoformer.formats.columns import joined, label_texts, number_texts, pieces, position_texts
from genoformer.formats.gff3 import open_text

HEADER = ("sequence", "position")
_UNWRITABLE = re.compile(r"[\t\n\r\x00]|^$")
_LINES = 1 << 16


class Rows(NamedTuple):
    """Bases of one sequence that follow each other in a table."""

    sequence: str
    positions: np.ndarray
    """int64, (bases,), 0-based"""
    values: np.ndarray
    """float32, (bases, channels)"""


def check_names(names: Iterable[str]) -> None:
    """Raise InputError for the first name that a table cannot hold."""
    for name in names:
        if _UNWRITABLE.search(name):
            raise InputError(
                f"sequence {name!r}: a table has no way to write this name, and nothing is renamed silently; "
                "rename it in the input, or write bigwig or npz"
            )


def table_header(channels: Sequence[str]) -> bytes:
    """Return the first line."""
    return ("\t".join([*HEADER, *channels]) + "\n").encode("utf-8", "surrogateescape")


def table_lines(
    names: Sequence[str], sequences: np.ndarray, positions: np.ndarray, values: np.ndarray
) -> Iterator[bytes]:
    """Yield a line for each base.

    Parameters
    ----------
    names : of all sequences
    sequences : int64, (bases,): number of the sequence of each base
    positions : int64, (bases,): 0-based
    values : float16 or uint8, (bases, channels); NaN, and 255 among codes, become ``nan``
    """
    texts = number_texts(values.dtype)
    codes = np.ascontiguousarray(values)
    codes = codes if values.dtype == np.uint8 else codes.view(np.uint16)
    width = 20 + 13 * values.shape[1] + 4 * max((len(names[i]) for i in np.unique(sequences).tolist()), default=0)
    for rows in pieces(len(positions), width):
        columns = [label_texts(names, sequences[rows]), position_texts(positions[rows] + 1)]
        yield joined([*columns, *(texts[codes[rows, channel]] for channel in range(codes.shape[1]))])


def read_table(path: str | os.PathLike[str]) -> tuple[list[str], Iterator[Rows]]:
    """Read a table, plain or gzip: its channels, and its rows, some at a time.

    Raises
    ------
    InputError : the file cannot be read
    FormatError : it does not begin with the columns sequence and position, or a line is none of such a table
    """
    source = Source(path)
    lines = iter(open_text(source))
    header = next(lines, "").rstrip("\r\n").split("\t")
    if tuple(header[:2]) != HEADER:
        raise FormatError(f"{source.name}: line 1: expected the columns {' and '.join(HEADER)} and one a channel, "
                          f"got {' '.join(header)[:60]!r}")  # fmt: skip
    return header[2:], _rows(lines, source.name, len(header))


def _rows(lines: Iterator[str], name: str, columns: int) -> Iterator[Rows]:
    done = 1
    while chunk := [line.rstrip("\r\n") for line in islice(lines, _LINES)]:
        try:
            if not all(chunk):
                raise ValueError("a line is empty")
            cells = np.loadtxt(chunk, dtype=str, delimiter="\t", comments=None, ndmin=2)
            if cells.shape != (len(chunk), columns):
                raise ValueError(f"expected {columns} columns")
            positions = cells[:, 1].astype(np.int64) - 1
            with np.errstate(over="ignore"):  # becomes infinite, and is refused
                values = cells[:, 2:].astype(np.float32)
            if positions.min() < 0 or np.isinf(values).any():
                raise ValueError("positions count from 1, and values are finite or nan")
        except (ValueError, OverflowError) as error:
            raise FormatError(f"{name}: lines {done + 1}-{done + len(chunk)}: are not all rows of this table "
                              f"({' '.join(str(error).split())})") from error  # fmt: skip
        done += len(chunk)
        bounds = np.concatenate([[0], np.flatnonzero(cells[1:, 0] != cells[:-1, 0]) + 1, [len(cells)]])
        for start, end in zip(bounds[:-1].tolist(), bounds[1:].tolist(), strict=True):
            yield Rows(str(cells[start, 0]), positions[start:end], values[start:end])
