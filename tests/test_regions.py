"""Windows: what they own partitions what was asked for, and what they see reaches beyond it."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from genoformer.errors import ConfigError
from genoformer.regions import Block, Region, Window, check_window, plan_windows


@st.composite
def plans(draw: st.DrawFn) -> tuple[int, int, int, int, int]:
    """Draw length, size, overlap, start, end."""
    length = draw(st.integers(1, 120))
    size = draw(st.integers(1, 60))
    overlap = draw(st.integers(0, size - 1))
    start = draw(st.integers(0, length))
    end = draw(st.integers(start, length))
    return (length, size, overlap, *((0, length) if draw(st.booleans()) else (start, end)))


def cut(length: int, size: int, overlap: int, start: int, end: int) -> list[Window]:
    return list(plan_windows("s", length, size=size, overlap=overlap, start=start, end=end))


@given(plans())
@example((1000, 100, 20, 300, 450))  # a region longer than a window, away from both ends
@example((1000, 100, 20, 300, 390))  # one that fits, but not with its surroundings
@example((101, 100, 0, 0, 101))  # the last window is shifted by nearly all of it
def test_windows_obey_their_laws(plan: tuple[int, int, int, int, int]) -> None:
    length, size, overlap, start, end = plan
    windows = cut(*plan)
    owned = [position for w in windows for position in range(w.owned.start, w.owned.end)]
    assert owned == list(range(start, end))  # each base once, in order
    for window in windows:
        region, own = window
        assert region.sequence == own.sequence == "s"
        assert own.length > 0
        assert region.covers(own)
        assert region.length == min(size, length)
        assert region.start >= 0
        assert region.end <= length
        assert own.start - region.start >= overlap // 2 or region.start == 0
        assert region.end - own.end >= overlap // 2 or region.end == length
    starts = [w.region.start for w in windows]
    assert all(a < b for a, b in itertools.pairwise(starts))


@given(plans())
def test_neighbours_overlap_as_asked_and_no_window_is_spare(plan: tuple[int, int, int, int, int]) -> None:
    _, size, overlap, start, end = plan
    windows = cut(*plan)
    shared = [a.region.end - b.region.start for a, b in itertools.pairwise(windows)]
    assert all(s == overlap for s in shared[:-1])
    assert all(s >= overlap for s in shared)
    seen = end - start + 2 * (overlap // 2)
    most = max(1, -(-(seen - overlap) // (size - overlap))) if seen > size else 1
    assert len(windows) <= most


def test_whole_sequence_by_hand() -> None:
    windows = [(w.region.start, w.region.end, w.owned.start, w.owned.end) for w in cut(25, 10, 4, 0, 25)]
    assert windows == [(0, 10, 0, 8), (6, 16, 8, 14), (12, 22, 14, 18), (15, 25, 18, 25)]


def test_a_short_region_stands_in_the_middle_of_its_window() -> None:
    assert cut(1000, 100, 20, 500, 510) == [Window(Region("s", 455, 555), Region("s", 500, 510))]
    assert cut(1000, 100, 20, 3, 13) == [Window(Region("s", 0, 100), Region("s", 3, 13))]
    assert cut(1000, 100, 20, 990, 1000) == [Window(Region("s", 900, 1000), Region("s", 990, 1000))]


def test_defaults_are_100_000_and_5_000() -> None:
    first, second = list(plan_windows("s", 150_000))
    assert first == Window(Region("s", 0, 100_000), Region("s", 0, 75_000))
    assert second == Window(Region("s", 50_000, 150_000), Region("s", 75_000, 150_000))
    assert next(w.owned.end for w in plan_windows("s", 300_000)) == 97_500


def test_nothing_to_own_gives_no_window() -> None:
    assert cut(10, 5, 1, 4, 4) == []
    assert list(plan_windows("s", 0)) == []


@pytest.mark.parametrize(("size", "overlap"), [(0, 0), (-1, 0), (5, 5), (5, 6), (5, -1)])
def test_windows_that_cannot_advance_are_refused(size: int, overlap: int) -> None:
    with pytest.raises(ConfigError, match=r"window|overlap"):
        check_window(size, overlap)
    with pytest.raises(ConfigError, match=r"window|overlap"):
        list(plan_windows("s", 3, size=size, overlap=overlap))


@pytest.mark.parametrize(("start", "end"), [(-1, 3), (0, 11), (5, 4), (11, 11)])
def test_spans_off_the_sequence_are_refused(start: int, end: int) -> None:
    with pytest.raises(ConfigError, match="does not lie within its 10 bases"):
        list(plan_windows("s", 10, start=start, end=end))


@given(*[st.tuples(st.sampled_from("ab"), st.integers(0, 8), st.integers(1, 8))] * 2)
def test_region_relations_are_those_of_sets(one: tuple[str, int, int], two: tuple[str, int, int]) -> None:
    a, b = (Region(name, start, start + length) for name, start, length in (one, two))
    a_set, b_set = ({(r.sequence, position) for position in range(r.start, r.end)} for r in (a, b))
    assert a.length == len(a_set)
    assert a.overlaps(b) == bool(a_set & b_set)
    assert a.covers(b) == (b_set <= a_set)


def test_a_region_is_written_as_samtools_does() -> None:
    assert str(Region("chr1", 0, 100)) == "chr1:1-100"


def test_a_block_ends_where_its_values_do() -> None:
    assert Block("s", 7, {"x": np.zeros((5, 2))}).end == 12
