"""What to export of a store: a track, places and smoothing, as slabs of the common axis of its sequences."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np

from genoformer.export.channels import Channel
from genoformer.regions import Region
from genoformer.store import TrackStore
from genoformer.tracks import Track

SLAB = 4 * 65_536
"""Bases held in memory at once; a multiple of the chunks of a store."""


class Slab(NamedTuple):
    """Values of a stretch of the common axis."""

    first: int
    """where it begins, in bases"""
    values: np.ndarray
    """float16, (bases, channels); NaN where nothing was predicted or asked for"""

    @property
    def end(self) -> int:
        return self.first + len(self.values)


@dataclass(frozen=True)
class Selection:
    """What to export.

    Attributes
    ----------
    store : open
    track : its name
    regions : what was asked for, sorted and disjoint as `genoformer.formats.bed.parse_regions` returns them; None: all
    smooth : bases of a centered running mean over stretches that have values; 1: as stored
    size : bases held in memory at once
    """

    store: TrackStore
    track: str
    regions: Sequence[Region] | None = None
    smooth: int = 1
    size: int = SLAB

    @property
    def info(self) -> Track:
        return self.store.tracks[self.track]

    @property
    def offsets(self) -> np.ndarray:
        """Where each sequence begins on the common axis, and where the last one ends."""
        return self.store.sequences.offsets

    @cached_property
    def spans(self) -> np.ndarray:
        """What is asked for on the common axis: int64, (spans, 2), sorted, disjoint."""
        if self.regions is None:
            return np.array([[0, self.store.sequences.total_bases]], dtype=np.int64)
        numbers = [self.store.sequences.index(region.sequence) for region in self.regions]
        places = np.array([(region.start, region.end) for region in self.regions], dtype=np.int64).reshape(-1, 2)
        return places + self.offsets[numbers][:, None]

    def names(self) -> list[str]:
        """Return the names of the sequences that are asked for and have bases, in order."""
        table = self.store.sequences
        if self.regions is not None:
            return list(dict.fromkeys(region.sequence for region in self.regions))
        return [table.names[index] for index in np.flatnonzero(table.lengths).tolist()]

    def regions_or_sequences(self) -> list[Region]:
        """Return what is asked for: the regions, or every sequence."""
        if self.regions is not None:
            return list(self.regions)
        table = self.store.sequences
        return [Region(name, 0, length) for name, length in zip(table.names, table.lengths.tolist(), strict=True)]

    def wanted(self, slab: Slab) -> np.ndarray:
        """Tell of each base of a slab whether it was asked for."""
        spans = self.spans
        low, high = np.searchsorted(spans[:, 1], slab.first, side="right"), np.searchsorted(spans[:, 0], slab.end)
        return _covered(spans[low:high].clip(slab.first, slab.end) - slab.first, len(slab.values))

    def bases(self) -> int:
        """Return how many bases are asked for."""
        return int(np.diff(self.spans, axis=1).sum())

    def slabs(self, channels: Sequence[Channel], *, report: Callable[[int], None] = lambda _: None) -> Iterator[Slab]:
        """Yield the values of channels, slab by slab; slabs without a base that is asked for are left out.

        Parameters
        ----------
        channels : the columns of the slabs
        report : called with the number of bases asked for that are done
        """
        spans = self.spans
        total = self.store.sequences.total_bases
        here, low = 0, 0
        while low < len(spans) and total:
            here = max(here, int(spans[low, 0]) // self.size * self.size)
            stop = min(here + self.size, total)
            high = low + int(np.searchsorted(spans[low:, 0], stop))
            wanted = spans[low:high].clip(here, stop)
            if len(wanted) and (bases := int(np.diff(wanted, axis=1).sum())):
                yield Slab(here, self._masked(self._read(here, stop, channels), wanted - here))
                report(bases)
            low += int(np.searchsorted(spans[low:high, 1], stop, side="right"))
            here = stop

    def _masked(self, values: np.ndarray, wanted: np.ndarray) -> np.ndarray:
        """Put NaN where nothing was asked for."""
        if len(wanted) == 1 and wanted[0].tolist() == [0, len(values)]:
            return values
        values[~_covered(wanted, len(values))] = np.nan
        return values

    def _read(self, start: int, end: int, channels: Sequence[Channel]) -> np.ndarray:
        """Read the channels of a stretch of the common axis, smoothed: float16, (bases, channels)."""
        around = self.smooth // 2
        first, last = max(0, start - around), min(self.store.sequences.total_bases, end + around)
        columns = sorted({column for channel in channels for column in channel.columns})
        read = _numbers(self.store.axis_values(first, last, track=self.track, channels=columns))
        found = np.empty((len(read), len(channels)), dtype=np.float16)
        for index, channel in enumerate(channels):
            found[:, index] = channel.values(read[:, np.searchsorted(columns, channel.columns)])
        if around:
            borders = self.offsets[np.searchsorted(self.offsets, first) : np.searchsorted(self.offsets, last)] - first
            found = smoothed(found, around, borders)
        return found[start - first : end - first]


def _covered(spans: np.ndarray, length: int) -> np.ndarray:
    """Tell of each of ``length`` bases whether it lies in one of the spans."""
    edges = np.zeros(length + 1, dtype=np.int64)
    np.add.at(edges, spans[:, 0], 1)
    np.add.at(edges, spans[:, 1], -1)
    return np.cumsum(edges[:-1]) > 0


def _numbers(values: np.ndarray) -> np.ndarray:
    """Turn codes, if it is codes, into numbers."""
    if values.dtype != np.uint8:
        return values
    numbers = values.astype(np.float16)
    numbers[values == 255] = np.nan
    return numbers


def smoothed(values: np.ndarray, around: int, borders: np.ndarray) -> np.ndarray:
    """Return the mean of up to ``around`` bases on both sides of each, and itself, within stretches that have values.

    Parameters
    ----------
    values : float16, (bases, channels)
    around : int, bases
    borders : int64, where sequences begin: no mean reaches over them

    Returns
    -------
    ndarray, float16, (bases, channels), NaN where it was
    """
    found = np.empty_like(values)
    for column in range(values.shape[1]):
        found[:, column] = _means(values[:, column], around, borders)
    return found


def _means(values: np.ndarray, around: int, borders: np.ndarray) -> np.ndarray:
    count = len(values)
    has_value = ~np.isnan(values)
    cuts = np.unique(np.concatenate([[0], np.flatnonzero(np.diff(has_value)) + 1, borders, [count]]))
    stretch = np.repeat(np.arange(len(cuts) - 1), np.diff(cuts))
    places = np.arange(count)
    low = np.maximum(places - around, cuts[:-1][stretch])
    high = np.minimum(places + around + 1, cuts[1:][stretch])
    sums = np.zeros(count + 1)
    np.cumsum(np.nan_to_num(values.astype(np.float64)), out=sums[1:])
    means = ((sums[high] - sums[low]) / (high - low)).astype(values.dtype)
    means[~has_value] = np.nan
    return means
