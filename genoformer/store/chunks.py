"""Write spans of values into the chunks of a store: compressed on worker threads, written in order, checksummed."""

from __future__ import annotations

import os
import zlib
from collections import deque
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, NamedTuple

import numpy as np

from genoformer.store import deflate
from genoformer.store.schema import CHUNK

MOST_WAITING = 256
"""Chunks that are compressed or wait to be written at any time."""

Span = tuple[int, dict[str, np.ndarray]]
"""Where on the common axis, and the values of each track: (bases, channels)."""


class _Waiting(NamedTuple):
    track: str
    row: int
    channel: int
    data: Future[bytes]


class ChunkWriter:
    """Writes spans, as many at a time as :meth:`start` is given, while the caller goes on computing.

    Whatever goes wrong in a worker is raised by :meth:`finish`.

    Parameters
    ----------
    datasets : the values of each track
    crcs : for each track, (rows of chunks, channels) uint32: CRC-32 of each chunk as stored, 0 where there is none;
        kept up to date. None: not known, as in files of earlier versions
    threads : that compress; None: the cores, at most 4
    """

    def __init__(
        self, datasets: dict[str, Any], *, crcs: dict[str, np.ndarray | None], threads: int | None = None
    ) -> None:
        self.crcs = crcs
        self._datasets = datasets
        self._threads = threads or min(os.cpu_count() or 1, 4)
        self._pool: ThreadPoolExecutor | None = None
        self._rows: Iterator[tuple[str, int, np.ndarray]] = iter(())
        self._is_cut, self._fast = True, False
        self._waiting: deque[_Waiting] = deque()

    def start(self, spans: list[Span], *, fast: bool = False) -> None:
        """Begin to write spans, which do not overlap, in order of position; the last ones must be finished.

        With ``fast`` the workers hurry: see `deflate.encode`.
        """
        assert self._is_cut
        assert not self._waiting
        self._rows, self._is_cut, self._fast = self._cut(spans), False, fast
        self._top_up()

    def is_ready(self) -> bool:
        """Tell whether :meth:`finish` would not have to wait for a worker."""
        return self._is_cut and all(chunk.data.done() for chunk in self._waiting)

    def finish(self) -> None:
        """Write what was begun, waiting for it."""
        while self._waiting or not self._is_cut:
            self._top_up()
            if self._waiting:
                chunk = self._waiting.popleft()
                self._write(chunk, chunk.data.result())

    def close(self) -> None:
        """Give up what was begun and end the workers."""
        if self._pool is not None:
            self._pool.shutdown(wait=True, cancel_futures=True)
        self._waiting.clear()
        self._rows, self._is_cut = iter(()), True
        self._datasets = {}

    def _write(self, chunk: _Waiting, data: bytes) -> None:
        self._datasets[chunk.track].id.write_direct_chunk((chunk.row * CHUNK, chunk.channel), data)
        crcs = self.crcs[chunk.track]
        if crcs is not None:
            crcs[chunk.row, chunk.channel] = zlib.crc32(data)

    def _top_up(self) -> None:
        """Hand rows of chunks to the workers until enough are waiting."""
        if self._pool is None:
            self._pool = ThreadPoolExecutor(self._threads, thread_name_prefix="deflate")
        while not self._is_cut and len(self._waiting) < MOST_WAITING:
            found = next(self._rows, None)
            if found is None:
                self._is_cut = True
                return
            track, row, slab = found
            for channel in range(slab.shape[1]):
                if self._has_values(track, row, slab[:, channel], channel):
                    data = self._pool.submit(deflate.encode, slab[:, channel], fast=self._fast)
                    self._waiting.append(_Waiting(track, row, channel, data))

    def _has_values(self, track: str, row: int, column: np.ndarray, channel: int) -> bool:
        """Tell whether a chunk must be written: not if it is nothing but the fill value, and was not there before."""
        crcs = self.crcs[track]
        if crcs is None or crcs[row, channel]:
            return True
        bits = column.view(f"u{column.dtype.itemsize}")
        return bool((bits != self._datasets[track].fillvalue.view(bits.dtype)).any())

    def _cut(self, spans: list[Span]) -> Iterator[tuple[str, int, np.ndarray]]:
        """Yield rows of chunks: the spans within, over what is there."""
        for row, within in _by_row(spans):
            for track, dataset in self._datasets.items():
                first, stop = row * CHUNK, min((row + 1) * CHUNK, len(dataset))
                slab = np.full((CHUNK, dataset.shape[1]), dataset.fillvalue, dtype=dataset.dtype)
                crcs = self.crcs[track]
                covered = sum(min(start + len(values[track]), stop) - max(start, first) for start, values in within)
                if covered < stop - first and (crcs is None or crcs[row].any()):
                    slab[: stop - first] = dataset[first:stop]
                for start, values in within:
                    a, b = max(start, first), min(start + len(values[track]), stop)
                    slab[a - first : b - first] = values[track][a - start : b - start]
                yield track, row, slab


def _by_row(spans: list[Span]) -> Iterator[tuple[int, list[Span]]]:
    """Yield each row of chunks with the spans that lie in it."""
    row, within = -1, list[Span]()
    for span in spans:
        start, values = span
        stop = start + len(next(iter(values.values())))
        for here in range(start // CHUNK, -(-stop // CHUNK)):
            if here != row and within:
                yield row, within
                within = []
            row = here
            within.append(span)
    if within:
        yield row, within
