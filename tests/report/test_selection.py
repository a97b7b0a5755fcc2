"""What is listed, in which bins, and which stretches come first."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from genoformer.regions import Region
from genoformer.report.selection import FINEST, TILE, VALUES, select, tiles
from genoformer.store import SequenceTable


def table(*lengths: int) -> SequenceTable:
    return SequenceTable.build([f"s{k}" for k in range(len(lengths))], lengths)


@given(st.lists(st.integers(0, 500_000), max_size=30), st.integers(1, 12), st.integers(1, 20))
def test_the_longest_are_listed_in_order_and_every_base_has_a_bin(lengths, channels, most):
    selection = select(table(*lengths), channels=channels, most=most)
    assert selection.indices.tolist() == sorted(sorted(range(len(lengths)), key=lambda k: (-lengths[k], k))[:most])
    bins = [-(-length // selection.bin_size) for length in selection.lengths.tolist()]
    assert selection.bin_offsets.tolist() == [sum(bins[:k]) for k in range(len(bins) + 1)]
    assert selection.bin_size == FINEST or sum(bins) * channels <= VALUES or selection.bin_size >= max(lengths)


def test_bins_grow_with_the_genome():
    assert select(table(5_000_000), channels=6).bin_size == FINEST
    large = select(table(250_000_000), channels=6)
    assert large.bin_size > FINEST
    assert large.bin_offsets[-1] * 6 <= VALUES


def test_regions_come_first_then_the_longest():
    selection = select(table(100, 3 * TILE + 5, 0, 200), channels=1)
    found = tiles(selection, regions=[Region("s1", TILE + 3, TILE + 9), Region("s0", 0, 1)], most=10**9)
    assert [(tile.place, tile.start, tile.end) for tile in found] == [
        (1, TILE, 2 * TILE), (0, 0, 100), (1, 0, TILE), (1, 2 * TILE, 3 * TILE), (1, 3 * TILE, 3 * TILE + 5),
        (3, 0, 200),
    ]  # fmt: skip
    assert len(set(found)) == len(found)


@pytest.mark.parametrize(("most", "count"), [(0, 0), (1, 1), (TILE + 1, 2)])
def test_no_more_than_there_is_room_for(most, count):
    assert len(tiles(select(table(10 * TILE), channels=1), regions=[], most=most)) == count


def test_a_region_on_what_is_not_listed_is_left_out():
    selection = select(table(10, 1000), channels=1, most=1)
    assert [tile.place for tile in tiles(selection, regions=[Region("s0", 0, 5)], most=10**9)] == [0]
    assert selection.names == ["s1"]
