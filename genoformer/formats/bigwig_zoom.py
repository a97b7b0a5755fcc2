"""Zoom levels of a bigWig file: counts, extremes and sums over bins, each level made of the one below it."""

from __future__ import annotations

import shutil
import tempfile
import zlib
from typing import IO

import numpy as np

RECORD = np.dtype([
    ("chromosome", "<u4"), ("start", "<u4"), ("end", "<u4"), ("count", "<u4"),
    ("low", "<f4"), ("high", "<f4"), ("sum", "<f4"), ("squares", "<f4"),
])  # fmt: skip
"""A bin as it is written; ``start`` to ``end`` are its first and last base with a value."""
_EXACT = np.dtype([(str(name), "f8" if name in ("sum", "squares") else RECORD[name]) for name in RECORD.names or ()])
_BLOCK = np.dtype([("box", "<u4", 4), ("size", "<u8")])
FIRST, FACTOR, MOST = 32, 4, 10
"""Bases of a bin of the lowest level, how much wider they are in the next, and how many levels there may be."""
_IN_BLOCK = 1024
_IN_MEMORY = 1 << 20


def zoom_sizes(longest: int) -> list[int]:
    """Return the bases of a bin of each level, for sequences of at most ``longest`` bases.

    >>> zoom_sizes(1000)
    [32, 128, 512]
    """
    sizes = [FIRST * FACTOR**level for level in range(MOST)]
    return [size for size in sizes if size < longest] or sizes[:1]


def summarize(chromosomes: np.ndarray, positions: np.ndarray, values: np.ndarray, size: int) -> np.ndarray:
    """Sum up single bases, in order, over bins of ``size`` bases: records with exact sums."""
    is_new = (np.diff(chromosomes) != 0) | (np.diff(positions // size) != 0)
    firsts = np.concatenate([[0], np.flatnonzero(is_new) + 1])
    lasts = np.append(firsts[1:], len(values)) - 1
    records = np.empty(len(firsts), dtype=_EXACT)
    records["chromosome"], records["start"] = chromosomes[firsts], positions[firsts]
    records["end"], records["count"] = positions[lasts] + 1, lasts + 1 - firsts
    records["low"], records["high"] = np.minimum.reduceat(values, firsts), np.maximum.reduceat(values, firsts)
    exact = values.astype(np.float64)
    records["sum"], records["squares"] = np.add.reduceat(exact, firsts), np.add.reduceat(exact * exact, firsts)
    return records


def _merged(records: np.ndarray, size: int) -> np.ndarray:
    """Join records of the same bin, which lie side by side."""
    if not len(records):
        return records
    is_new = np.diff(records["chromosome"]) != 0
    is_new |= np.diff(records["start"] // size) != 0
    firsts = np.concatenate([[0], np.flatnonzero(is_new) + 1])
    lasts = np.append(firsts[1:], len(records)) - 1
    merged = records[firsts]
    merged["end"] = records["end"][lasts]
    for name in ("count", "sum", "squares"):
        merged[name] = np.add.reduceat(records[name], firsts)
    merged["low"] = np.minimum.reduceat(records["low"], firsts)
    merged["high"] = np.maximum.reduceat(records["high"], firsts)
    return merged


class ZoomLevel:
    """One level: takes records of the level below, and keeps what is finished compressed, beyond 1 MiB on disk.

    Attributes
    ----------
    size : int, bases of a bin
    count : int, records written
    records_in_block : int
    """

    records_in_block = _IN_BLOCK

    def __init__(self, size: int):
        self.size, self.count = size, 0
        self._open = np.empty(0, dtype=_EXACT)  # the last bin, which may go on
        self._waiting = np.empty(0, dtype=_EXACT)  # less than a block
        self._blocks: list[np.ndarray] = []
        self._file: IO[bytes] = tempfile.SpooledTemporaryFile(_IN_MEMORY, prefix="genoformer-")  # noqa: SIM115 - closed by discard

    def add(self, records: np.ndarray) -> np.ndarray:
        """Take records in order; return the bins that are finished."""
        records = _merged(np.concatenate([self._open, records]), self.size)
        done, self._open = records[:-1], records[-1:]
        self._keep(done)
        return done

    def close(self) -> np.ndarray:
        """Return the last bin, which goes on no more."""
        rest, self._open = self._open, self._open[:0]
        self._keep(rest)
        self._write(self._waiting)
        self._waiting = self._waiting[:0]
        return rest

    def blocks(self) -> np.ndarray:
        """Return box and compressed size of each block."""
        return np.concatenate(self._blocks) if self._blocks else np.empty(0, dtype=_BLOCK)

    def copy_to(self, stream: IO[bytes]) -> None:
        """Copy all blocks, and let go of them."""
        self._file.seek(0)
        shutil.copyfileobj(self._file, stream, 1 << 20)
        self.discard()

    def discard(self) -> None:
        """Let go of all blocks."""
        self._file.close()

    def _keep(self, records: np.ndarray) -> None:
        waiting = np.concatenate([self._waiting, records])
        whole = len(waiting) - len(waiting) % _IN_BLOCK
        for start in range(0, whole, _IN_BLOCK):
            self._write(waiting[start : start + _IN_BLOCK])
        self._waiting = waiting[whole:]

    def _write(self, records: np.ndarray) -> None:
        if not len(records):
            return
        data = zlib.compress(records.astype(RECORD).tobytes(), 1)
        block = np.empty(1, dtype=_BLOCK)
        first, last = records[0], records[-1]
        block["box"] = [first["chromosome"], first["start"], last["chromosome"], last["end"]]
        block["size"] = len(data)
        self._blocks.append(block)
        self._file.write(data)
        self.count += len(records)
