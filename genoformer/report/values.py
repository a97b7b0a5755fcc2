"""What one pass over the values of a track tells: the whole, each sequence, and bins that a page can draw."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

import numpy as np

from genoformer.report.frames import FRAMES, to_frames
from genoformer.report.selection import Selection
from genoformer.store import TrackStore
from genoformer.tracks import CODING_FRAME, Track

SLAB = 262_144
"""Bases held at once."""
CONFIDENCE_STEPS = 50
_BITS = 1 << 16


def drawn_channels(track: Track) -> tuple[str, ...]:
    """Return what is drawn of a track: its channels, or the reading frames of coding-frame."""
    return FRAMES if track.name == CODING_FRAME.name else track.channels


@dataclass
class Bins:
    """Sums over the bins of all listed sequences, one behind the other.

    Attributes
    ----------
    sums : float64, (bins, channels)
    counts : int32, (bins,): bases with a value
    low, high : float32, (bins, channels), the extremes of a signal; None for classes
    """

    sums: np.ndarray
    counts: np.ndarray
    low: np.ndarray | None = None
    high: np.ndarray | None = None

    @classmethod
    def empty(cls, bins: int, channels: int, *, extremes: bool) -> Bins:
        made = cls(np.zeros((bins, channels)), np.zeros(bins, dtype=np.int32))
        if extremes:
            made.low = np.full((bins, channels), np.inf, dtype=np.float32)
            made.high = np.full((bins, channels), -np.inf, dtype=np.float32)
        return made

    def add(self, numbers: np.ndarray, values: np.ndarray) -> None:
        """Add bases: the bin of each, ascending (bases,), and their values, float32 (bases, channels), NaN left out."""
        known = ~np.isnan(values[:, 0])
        if not known.all():
            numbers, values = numbers[known], values[known]
        if not len(numbers):
            return
        starts = np.flatnonzero(np.diff(numbers, prepend=-1))
        bins = numbers[starts]
        self.sums[bins] += np.add.reduceat(values, starts, axis=0, dtype=np.float64)
        self.counts[bins] += np.diff(starts, append=len(numbers)).astype(np.int32)
        if self.low is not None and self.high is not None:
            self.low[bins] = np.minimum(self.low[bins], np.minimum.reduceat(values, starts, axis=0))
            self.high[bins] = np.maximum(self.high[bins], np.maximum.reduceat(values, starts, axis=0))

    def means(self) -> np.ndarray:
        """Return the mean of each bin, float32 (bins, channels), NaN where no base has a value."""
        counts = self.counts[:, None]
        means = np.where(counts > 0, self.sums / np.maximum(counts, 1), np.nan)
        return means.astype(np.float32)


@dataclass
class Values:
    """What was counted.

    Attributes
    ----------
    track : of what
    bins : of what is drawn, see `drawn_channels`
    predicted : int64, (sequences,): bases with a value
    likeliest : int64, (channels,): bases whose likeliest class it is
    coding : int64, (sequences,): bases whose likeliest class is not the first
    confidence : int64, (CONFIDENCE_STEPS,): bases by the probability of their likeliest class
    certainty : float64, (sequences,): sum of that probability
    counts : int64, (channels, 65536): bases of a signal by the bits of their value as float16; empty for classes
    """

    track: Track
    bins: Bins
    predicted: np.ndarray
    likeliest: np.ndarray
    coding: np.ndarray
    certainty: np.ndarray
    confidence: np.ndarray = field(default_factory=lambda: np.zeros(CONFIDENCE_STEPS, dtype=np.int64))
    counts: np.ndarray = field(default_factory=lambda: np.zeros((0, _BITS), dtype=np.int64))

    def quantiles(self, channel: int, shares: tuple[float, ...]) -> list[float]:
        """Return values of a signal below which these shares of its bases lie; 0 where it has no value."""
        order = np.arange(_BITS, dtype=np.uint16).view(np.float16).astype(np.float32)
        finite = np.flatnonzero(np.isfinite(order) & (self.counts[channel] > 0))
        if not len(finite):
            return [0.0 for _ in shares]
        finite = finite[np.argsort(order[finite], kind="stable")]
        running = np.cumsum(self.counts[channel][finite])
        places = [min(int(np.searchsorted(running, share * running[-1])), len(finite) - 1) for share in shares]
        return [float(order[finite[place]]) for place in places]


def read_values(
    store: TrackStore, track: Track, selection: Selection, *, report: Callable[[int], None] = lambda _: None
) -> Values:
    """Read all values of a track once.

    Parameters
    ----------
    store, track : of float16
    selection : whose bins are filled
    report : called with the number of bases done
    """
    sequences, is_signal = len(store.sequences), track.kind == "signal"
    bins = Bins.empty(int(selection.bin_offsets[-1]), len(drawn_channels(track)), extremes=is_signal)
    found = Values(
        track, bins, np.zeros(sequences, np.int64), np.zeros(len(track.channels), np.int64),
        np.zeros(sequences, np.int64), np.zeros(sequences),
    )  # fmt: skip
    if is_signal:
        found.counts = np.zeros((len(track.channels), _BITS), dtype=np.int64)
    for first, stored in slabs(store, track.name):
        _add(found, selection, first, stored)
        report(len(stored))
    return found


def slabs(store: TrackStore, track: str) -> Iterator[tuple[int, np.ndarray]]:
    """Yield where a slab begins on the common axis, and its values: short sequences come many at once."""
    waiting: list[np.ndarray] = []
    first = bases = 0
    for block in store.blocks(track, size=SLAB):
        waiting.append(block.values[track])
        bases += len(waiting[-1])
        if bases >= SLAB:
            yield first, np.concatenate(waiting) if len(waiting) > 1 else waiting[0]
            waiting, first, bases = [], first + bases, 0
    if bases:
        yield first, np.concatenate(waiting)


def _add(found: Values, selection: Selection, first: int, stored: np.ndarray) -> None:
    values = stored.astype(np.float32)
    known = ~np.isnan(values[:, 0])
    offsets = selection.table.offsets
    low, high = np.searchsorted(offsets, [first, first + len(values) - 1], side="right") - 1
    within = slice(int(low), int(high) + 1)
    bounds = offsets[low : high + 2].clip(first, first + len(values)) - first
    found.predicted[within] += _sums(known, bounds)
    if found.track.kind == "class":
        _add_classes(found, values, known, within, bounds)
    else:
        for channel, column in enumerate(stored.astype(np.float16, copy=False).T):
            bits = np.ascontiguousarray(column).view(np.uint16)[known]
            found.counts[channel] += np.bincount(bits, minlength=_BITS)
    _add_bins(found, selection, first, values)


def _add_classes(found: Values, values: np.ndarray, known: np.ndarray, within: slice, bounds: np.ndarray) -> None:
    filled = np.where(known[:, None], values, 0)
    called, top = filled.argmax(axis=1), filled.max(axis=1)
    found.likeliest += np.bincount(called[known], minlength=len(found.likeliest))
    found.coding[within] += _sums((called != 0) & known, bounds)
    found.certainty[within] += _sums(top, bounds)
    steps = (top[known] * CONFIDENCE_STEPS).astype(np.intp).clip(0, CONFIDENCE_STEPS - 1)
    found.confidence += np.bincount(steps, minlength=CONFIDENCE_STEPS)


def _add_bins(found: Values, selection: Selection, first: int, values: np.ndarray) -> None:
    """Add the bases of a slab that lie on listed sequences to their bins."""
    starts = selection.table.offsets[selection.indices]
    low = int(np.searchsorted(starts + selection.lengths, first, side="right"))
    high = int(np.searchsorted(starts, first + len(values), side="left"))
    if low >= high:
        return
    begins = starts[low:high].clip(first)
    widths = (starts[low:high] + selection.lengths[low:high]).clip(max=first + len(values)) - begins
    places = ranges(begins - starts[low:high], widths)
    rows = ranges(begins - first, widths)
    numbers = np.repeat(selection.bin_offsets[low:high], widths) + places // selection.bin_size
    drawn = values[rows] if len(rows) < len(values) else values
    found.bins.add(numbers, to_frames(drawn, places) if found.track.name == CODING_FRAME.name else drawn)


def ranges(starts: np.ndarray, widths: np.ndarray) -> np.ndarray:
    """Return the whole numbers from each start on, as many as its width, one range behind the other.

    >>> ranges(np.array([5, 0]), np.array([2, 3])).tolist()
    [5, 6, 0, 1, 2]
    """
    before = np.cumsum(widths) - widths
    return np.arange(int(widths.sum())) + np.repeat(starts - before, widths)


def _sums(values: np.ndarray, bounds: np.ndarray) -> np.ndarray:
    """Sum the values between each two bounds."""
    running = np.concatenate([[0], np.cumsum(values, dtype=np.float64)])
    sums = np.diff(running[bounds])
    return sums if values.dtype.kind == "f" else sums.astype(np.int64)
