"""Intervals of bases at or above a threshold, from slabs of values: without a loop over bases."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from genoformer.export.runs import borders_within


class Intervals(NamedTuple):
    """Stretches of bases at or above a threshold, on the common axis."""

    starts: np.ndarray
    """int64, (intervals,)"""
    ends: np.ndarray
    """int64, (intervals,)"""
    means: np.ndarray
    """float64, (intervals,): over all of their bases"""


class _Open(NamedTuple):
    start: int
    end: int
    total: float  # sum of the values from start to end
    beyond: float  # sum of the values seen behind the end


class _Slab(NamedTuple):
    first: int
    sums: np.ndarray  # of all values before each base
    barriers: np.ndarray  # bases without a value, and beginnings of sequences, before each base
    starts: np.ndarray  # of stretches above the threshold
    ends: np.ndarray

    @property
    def length(self) -> int:
        return len(self.sums) - 1


class IntervalCaller:
    """Finds the intervals of one channel, slab by slab.

    Parameters
    ----------
    offsets : int64, where sequences begin on the common axis
    threshold : lowest value of a base within
    merge : most bases between two stretches that make one interval; bases without a value always part them
    min_length : bases of the shortest interval that is kept
    """

    def __init__(self, offsets: np.ndarray, *, threshold: float, merge: int = 0, min_length: int = 1):
        self._offsets = offsets
        with np.errstate(over="ignore"):
            self._threshold = np.float16(threshold)  # as values are: 0.1 is at the threshold 0.1
        self._merge, self._min_length = merge, min_length
        self._open: _Open | None = None
        self._end = 0  # of what was seen

    @property
    def open_start(self) -> int | None:
        """Where the interval begins that may still go on, if there is one."""
        return None if self._open is None else self._open.start

    def add(self, first: int, values: np.ndarray) -> Intervals:
        """Take the values, (bases,), of the next stretch of the common axis; return the intervals that ended."""
        before = [] if first == self._end else self._close()
        self._end = first + len(values)
        slab = self._look(first, values)
        starts, ends, totals = self._grouped(slab)
        if self._open is not None and not self._joins(slab, starts, ends, totals):
            before += self._close()
        still_open = self._open is None and len(ends) and self._may_go_on(slab, int(ends[-1]) - first)
        done = len(starts) - bool(still_open)
        if still_open:
            end = int(ends[-1])
            self._open = _Open(int(starts[-1]), end, float(totals[-1]), float(slab.sums[-1] - slab.sums[end - first]))
        return self._kept(before, starts[:done], ends[:done], totals[:done])

    def finish(self) -> Intervals:
        """Return the last interval, if one is open."""
        nothing = np.empty(0, dtype=np.int64)
        return self._kept(self._close(), nothing, nothing, np.empty(0))

    def _look(self, first: int, values: np.ndarray) -> _Slab:
        count = len(values)
        is_border = np.zeros(count + 1, dtype=bool)
        is_border[borders_within(self._offsets, first, first + count)] = True
        is_above = np.zeros(count + 2, dtype=bool)
        is_above[1:-1] = values >= self._threshold
        starts = np.flatnonzero(is_above[1:-1] & (~is_above[:-2] | is_border[:-1]))
        ends = np.flatnonzero(is_above[1:-1] & (~is_above[2:] | is_border[1:])) + 1
        sums, barriers = np.zeros(count + 1), np.zeros(count + 1, dtype=np.int64)
        np.cumsum(np.nan_to_num(values.astype(np.float64)), out=sums[1:])
        np.cumsum(np.isnan(values) | is_border[:-1], out=barriers[1:])
        return _Slab(first, sums, barriers, starts, ends)

    def _grouped(self, slab: _Slab) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Join stretches that are close: starts, ends and sums of values."""
        starts, ends = slab.starts, slab.ends
        is_blocked = slab.barriers[starts[1:] + 1] != slab.barriers[ends[:-1]]
        parts = np.flatnonzero(is_blocked | (starts[1:] - ends[:-1] > self._merge))
        starts, ends = (
            starts[np.append(0, parts + 1)[: len(starts)]],
            ends[np.append(parts, len(ends) - 1)[: len(ends)]],
        )
        return starts + slab.first, ends + slab.first, slab.sums[ends] - slab.sums[starts]

    def _joins(self, slab: _Slab, starts: np.ndarray, ends: np.ndarray, totals: np.ndarray) -> bool:
        """Let the open interval go on: into the first group, in place, or behind this slab; False if it has ended."""
        assert self._open is not None
        start, end, total, beyond = self._open
        if not len(starts):
            is_open = slab.barriers[-1] == 0 and slab.first + slab.length - end <= self._merge
            self._open = _Open(start, end, total, beyond + float(slab.sums[-1])) if is_open else self._open
            return is_open
        place = int(starts[0]) - slab.first
        if slab.barriers[place + 1] or int(starts[0]) - end > self._merge:
            return False
        starts[0], totals[0] = start, total + beyond + slab.sums[int(ends[0]) - slab.first]
        self._open = None
        return True

    def _may_go_on(self, slab: _Slab, end: int) -> bool:
        """Tell whether an interval that ends at a place of the slab could go on behind the slab."""
        return bool(slab.barriers[-1] == slab.barriers[end]) and slab.length - end <= self._merge

    def _close(self) -> list[tuple[int, int, float]]:
        found = [] if self._open is None else [self._open[:3]]
        self._open = None
        return found

    def _kept(
        self, before: list[tuple[int, int, float]], starts: np.ndarray, ends: np.ndarray, totals: np.ndarray
    ) -> Intervals:
        first = np.array(before, dtype=np.float64).reshape(-1, 3)
        starts = np.concatenate([first[:, 0].astype(np.int64), starts])
        ends = np.concatenate([first[:, 1].astype(np.int64), ends])
        means = np.concatenate([first[:, 2], totals]) / (ends - starts)
        kept = ends - starts >= self._min_length
        return Intervals(starts[kept], ends[kept], means[kept])
