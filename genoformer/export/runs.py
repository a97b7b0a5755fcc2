"""Runs of bases of one value, from slabs of values: without a loop over bases."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple

import numpy as np

from genoformer.export.selection import Slab


class Runs(NamedTuple):
    """Bases of one value each, in order; no run spans two sequences. Positions are of the common axis."""

    starts: np.ndarray
    """int64, (runs,)"""
    ends: np.ndarray
    """int64, (runs,)"""
    values: np.ndarray
    """float16, (runs,)"""


def equal_runs(slabs: Iterable[Slab], offsets: np.ndarray) -> Iterator[Runs]:
    """Yield the runs of equal values of the first channel, as long as they are, some for each slab; NaN is none.

    Parameters
    ----------
    slabs : in order
    offsets : int64, where sequences begin on the common axis
    """
    pending = Runs(np.empty(0, np.int64), np.empty(0, np.int64), np.empty(0, np.float16))
    for slab in slabs:
        values = slab.values[:, 0]
        has_value = ~np.isnan(values)
        is_new = np.ones(len(values), dtype=bool)
        is_new[1:] = (values[1:] != values[:-1]) | (has_value[1:] != has_value[:-1])
        is_new[borders_within(offsets, slab.first, slab.end)] = True
        firsts = np.flatnonzero(is_new)
        ends = np.append(firsts[1:], len(values))
        kept = has_value[firsts]
        starts, ends, found = firsts[kept] + slab.first, ends[kept] + slab.first, values[firsts[kept]]
        if (
            len(starts) and len(pending.starts) and starts[0] == pending.ends[0] and found[0] == pending.values[0]
            and not _is_border(offsets, int(starts[0]))
        ):  # fmt: skip
            starts[0], pending = pending.starts[0], Runs(*(column[:0] for column in pending))
        runs = Runs(*(np.concatenate(pair) for pair in zip(pending, (starts, ends, found), strict=True)))
        pending = Runs(*(column[-1:] for column in runs))
        yield Runs(*(column[:-1] for column in runs))
    yield pending


def borders_within(offsets: np.ndarray, first: int, end: int) -> np.ndarray:
    """Return where sequences begin in a stretch of the common axis, counted from its beginning."""
    low, high = np.searchsorted(offsets, [first, end])
    return offsets[low:high] - first


def _is_border(offsets: np.ndarray, place: int) -> bool:
    return bool(offsets[min(int(np.searchsorted(offsets, place)), len(offsets) - 1)] == place)
