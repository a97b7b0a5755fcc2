"""Columns of text, joined into lines all at once: how numbers are written, without a loop over lines."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cache

import numpy as np

_ROWS, _LETTERS = 1 << 16, 1 << 25


@cache
def number_texts(dtype: np.dtype) -> np.ndarray:
    """Return how each value of a type of two bytes or one is written, by its bits; "nan" where there is no value.

    Each text is the shortest that reads back as this very value.
    """
    if dtype == np.uint8:
        texts = np.arange(256).astype("S3")
        texts[255] = b"nan"
        return texts
    return np.arange(1 << 16, dtype=np.uint16).view(np.float16).astype("S12")


def position_texts(positions: np.ndarray) -> np.ndarray:
    """Return numbers of at least 0 as text."""
    width = len(str(int(positions.max()))) if len(positions) else 1
    return positions.astype(f"S{width}")


def joined(columns: Sequence[np.ndarray]) -> bytes:
    """Join columns of texts by tabs into lines, all rows at once; texts hold no NUL."""
    parts = []
    for number, column in enumerate(columns):
        parts.append(np.ascontiguousarray(column).view(np.uint8).reshape(len(column), column.dtype.itemsize))
        end = ord("\n" if number == len(columns) - 1 else "\t")
        parts.append(np.full((len(column), 1), end, dtype=np.uint8))
    letters = np.concatenate(parts, axis=1)
    return letters[letters != 0].tobytes()


def pieces(count: int, width: int) -> Iterator[slice]:
    """Cut rows of ``width`` letters into pieces that take bounded memory."""
    step = max(1, min(_ROWS, _LETTERS // max(width, 1)))
    for start in range(0, count, step):
        yield slice(start, min(start + step, count))


def label_texts(names: Sequence[str], numbers: np.ndarray) -> np.ndarray:
    """Return the name of each row, from the number of its name; bytes that were no UTF-8 are what they were."""
    used, places = np.unique(numbers, return_inverse=True)
    return np.array([names[index].encode("utf-8", "surrogateescape") for index in used.tolist()], dtype=bytes)[places]
