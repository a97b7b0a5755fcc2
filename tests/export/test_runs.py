"""Runs and intervals from slabs are those of a loop over bases, however the axis is cut into slabs."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from genoformer.export.intervals import IntervalCaller
from genoformer.export.runs import equal_runs
from genoformer.export.selection import Slab, smoothed

NAN = float("nan")
VALUES = st.lists(st.sampled_from([0.0, 0.25, 0.5, 0.75, NAN]), max_size=40)
LENGTHS = st.lists(st.integers(0, 15), min_size=1, max_size=5)


def cut(values: np.ndarray, sizes: list[int]) -> list[Slab]:
    slabs, here = [], 0
    for size in [*sizes, len(values)]:
        if here < len(values):
            slabs.append(Slab(here, values[here : here + size, None]))
            here += size
    return slabs


def axis(values: list[float], lengths: list[int]) -> tuple[np.ndarray, np.ndarray]:
    offsets = np.concatenate([[0], np.cumsum(lengths)])
    total = int(offsets[-1])
    return np.resize(np.array(values or [NAN], dtype=np.float16), total), offsets


def naive_runs(values: np.ndarray, offsets: np.ndarray) -> list[tuple[int, int, float]]:
    found: list[tuple[int, int, float]] = []
    for place, value in enumerate(values.tolist()):
        if np.isnan(value):
            continue
        if found and found[-1][1] == place and found[-1][2] == value and place not in offsets:
            found[-1] = (found[-1][0], place + 1, value)
        else:
            found.append((place, place + 1, value))
    return found


@given(VALUES, LENGTHS, st.lists(st.integers(1, 9), max_size=20))
def test_runs(values, lengths, sizes):
    array, offsets = axis(values, lengths)
    pieces = list(equal_runs(cut(array, sizes), offsets))
    found = [row for runs in pieces for row in zip(*map(np.ndarray.tolist, runs), strict=True)]
    assert found == naive_runs(array, offsets)


def naive_intervals(values, offsets, *, threshold, merge, min_length):
    found: list[list[int]] = []
    for place, value in enumerate(values.tolist()):
        if not value >= threshold:
            continue
        if found:
            between = values[found[-1][1] : place]
            same = not any(found[-1][0] < offset <= place for offset in offsets.tolist())
            if same and len(between) <= merge and not np.isnan(between).any():
                found[-1][1] = place + 1
                continue
        found.append([place, place + 1])
    return [(a, b, float(values[a:b].astype(np.float64).mean())) for a, b in found if b - a >= min_length]


@given(VALUES, LENGTHS, st.lists(st.integers(1, 9), max_size=20), st.integers(0, 6), st.integers(1, 5))
def test_intervals(values, lengths, sizes, merge, min_length):
    array, offsets = axis(values, lengths)
    options = {"threshold": 0.5, "merge": merge, "min_length": min_length}
    caller = IntervalCaller(offsets, **options)
    pieces = [caller.add(slab.first, slab.values[:, 0]) for slab in cut(array, sizes)] + [caller.finish()]
    found = [row for piece in pieces for row in zip(*map(np.ndarray.tolist, piece), strict=True)]
    expected = naive_intervals(array, offsets, **options)
    assert [row[:2] for row in found] == [row[:2] for row in expected]
    assert np.allclose([row[2] for row in found], [row[2] for row in expected])


def test_a_stretch_that_was_not_asked_for_parts_intervals():
    caller = IntervalCaller(np.array([0, 100]), threshold=0.5, merge=50)
    caller.add(0, np.ones(10, dtype=np.float16))
    assert caller.open_start == 0
    assert [column.tolist() for column in caller.add(20, np.ones(5, dtype=np.float16))] == [[0], [10], [1.0]]
    assert [column.tolist() for column in caller.finish()] == [[20], [25], [1.0]]
    assert caller.open_start is None


@given(VALUES, LENGTHS, st.integers(1, 5))
def test_smoothing(values, lengths, around):
    array, offsets = axis(values, lengths)
    borders = offsets[offsets < len(array)]
    expected = np.full(len(array), np.nan, dtype=np.float16)
    for place in range(len(array)):
        low = high = place
        while low > 0 and low not in offsets and place - low < around and not np.isnan(array[low - 1]):
            low -= 1
        while (
            high + 1 < len(array)
            and high + 1 not in offsets
            and high - place < around
            and not np.isnan(array[high + 1])
        ):
            high += 1
        if not np.isnan(array[place]):
            expected[place] = array[low : high + 1].astype(np.float64).mean()
    assert np.array_equal(smoothed(array[:, None], around, borders)[:, 0], expected, equal_nan=True)
