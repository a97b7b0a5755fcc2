"""Which sequences a page lists and draws, in bins of how many bases, and which stretches it may show base by base."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np

from genoformer.regions import Region
from genoformer.store import SequenceTable

LISTED = 10_000
"""Sequences that a page lists, the longest ones."""
FINEST = 16
"""Bases of the smallest bin."""
VALUES = 3_000_000
"""Values of all bins together, uncompressed; bins are as large as it takes."""
TILE = 32_768
"""Bases that are embedded together, base by base."""


@dataclass(frozen=True, eq=False)
class Selection:
    """What is listed and drawn.

    Attributes
    ----------
    table : all sequences
    indices : int64, (listed,), of the listed ones in ``table``, ascending
    bin_size : bases
    """

    table: SequenceTable
    indices: np.ndarray
    bin_size: int

    @cached_property
    def lengths(self) -> np.ndarray:
        """int64, (listed,)."""
        return self.table.lengths[self.indices]

    @cached_property
    def names(self) -> list[str]:
        return [self.table.names[index] for index in self.indices.tolist()]

    @cached_property
    def bin_offsets(self) -> np.ndarray:
        """int64, (listed + 1,): the first bin of each listed sequence; the last one is how many bins there are."""
        return np.concatenate([[0], np.cumsum(-(-self.lengths // self.bin_size))]).astype(np.int64)

    @cached_property
    def places(self) -> dict[int, int]:
        """Where each listed sequence stands among the listed, by its index in ``table``."""
        return {index: place for place, index in enumerate(self.indices.tolist())}


class Tile(NamedTuple):
    """A stretch that may be embedded base by base; ``place`` is that of its sequence among the listed."""

    place: int
    start: int
    end: int


def select(table: SequenceTable, *, channels: int, most: int = LISTED) -> Selection:
    """Choose the longest sequences, and bins for them.

    Parameters
    ----------
    table : of the store
    channels : values of each bin
    most : sequences
    """
    longest = np.argsort(-table.lengths, kind="stable")[:most]
    indices = np.sort(longest)
    size = FINEST
    while int((-(-table.lengths[indices] // size)).sum()) * channels > VALUES and size < table.lengths.max(initial=0):
        size *= 2
    return Selection(table, indices, size)


def tiles(selection: Selection, *, regions: Iterable[Region], most: int) -> list[Tile]:
    """Return stretches in the order in which they deserve room: regions, then the longest sequences from their starts.

    Parameters
    ----------
    selection : what is listed
    regions : what the user wants to see base by base; sequences that are not listed are left out
    most : bases of all together
    """
    found: dict[Tile, None] = {}
    left = most
    for tile in _ordered(selection, regions):
        if left <= 0:
            break
        if tile not in found:
            found[tile] = None
            left -= tile.end - tile.start
    return list(found)


def _ordered(selection: Selection, regions: Iterable[Region]) -> Iterator[Tile]:
    for region in regions:
        place = selection.places.get(selection.table.index(region.sequence))
        if place is not None:
            yield from _cut(place, region.start, region.end, int(selection.lengths[place]))
    for place in np.argsort(-selection.lengths, kind="stable").tolist():
        yield from _cut(place, 0, int(selection.lengths[place]), int(selection.lengths[place]))


def _cut(place: int, start: int, end: int, length: int) -> Iterator[Tile]:
    for first in range(start // TILE * TILE, end, TILE):
        yield Tile(place, first, min(first + TILE, length))
