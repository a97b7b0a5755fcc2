"""What values of a store can be written as: a table of formats, each streamed slab by slab."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from typing import IO, NamedTuple

import numpy as np

from genoformer.errors import ConfigError, InputError
from genoformer.export.channels import Channel, calling_channels, stored_channels
from genoformer.export.intervals import IntervalCaller, Intervals
from genoformer.export.runs import equal_runs
from genoformer.export.selection import Selection, Slab
from genoformer.formats import spans_write, table
from genoformer.formats.arrays import NpzWriter
from genoformer.formats.bgzip import BED_COLUMNS, Columns
from genoformer.formats.bigwig_write import BigWigWriter
from genoformer.tracks import Track

Report = Callable[[int], None]


@dataclass(frozen=True)
class Calling:
    """How intervals are called from values.

    Attributes
    ----------
    threshold : lowest value of a base within
    merge : most bases between two intervals that become one
    min_length : bases of the shortest one

    Raises
    ------
    ConfigError : the threshold is no number, or a number of bases is negative
    """

    threshold: float = 0.5
    merge: int = 0
    min_length: int = 1

    def __post_init__(self) -> None:
        if np.isnan(self.threshold):
            raise ConfigError("threshold must be a number, got nan")
        if self.merge < 0 or self.min_length < 0:
            raise ConfigError(
                f"bases to merge over and to keep must not be negative, got {self.merge}, {self.min_length}"
            )


@dataclass(frozen=True)
class Written:
    """What went into a file."""

    count: int
    noun: str
    """of what: value, span, interval, ..."""
    bases: int
    """that have a value, whether or not they are in an interval"""


Writer = Callable[[IO[bytes], Selection, Sequence[Channel], Calling, Report], Written]


class TrackFormat(NamedTuple):
    """A format for values of bases.

    ``check`` refuses names that it cannot hold; ``channels`` are those written unless others are asked for; a format
    of one channel gets a file for each. ``columns``: where a bgzip file of it has what, for tabix.
    """

    write: Writer
    channels: Callable[[Track], list[Channel]]
    one_channel: bool = False
    is_text: bool = False
    check: Callable[[Sequence[str]], None] = lambda _: None
    columns: Columns | None = None


def _check_finite(values: np.ndarray, selection: Selection) -> None:
    if np.isinf(values).any():
        raise InputError(f"{selection.store.path}: track {selection.track!r} holds infinite values, which this format "
                         "does not allow; export npz")  # fmt: skip


def _sequences_of(selection: Selection, places: np.ndarray) -> np.ndarray:
    """Return the number of the sequence that each place of the common axis lies in."""
    return np.searchsorted(selection.offsets, places, side="right") - 1


def _with_values(selection: Selection, slab: Slab) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return the sequences, positions and values, (bases, channels), of the bases that have any."""
    kept = np.flatnonzero(~np.isnan(slab.values).all(axis=1))
    sequences = _sequences_of(selection, kept + slab.first)
    return sequences, kept + slab.first - selection.offsets[sequences], slab.values[kept]


def _count(slab: Slab) -> int:
    """Count the bases that have a value."""
    return int((~np.isnan(slab.values)).any(axis=1).sum())


def _write_bigwig(
    stream: IO[bytes], selection: Selection, channels: Sequence[Channel], _: Calling, report: Report
) -> Written:
    sequences = selection.store.sequences
    count = 0
    with closing(BigWigWriter(stream, sequences.names, sequences.lengths)) as writer:
        for slab in selection.slabs(channels, report=report):
            numbers, positions, values = _with_values(selection, slab)
            _check_finite(values, selection)
            writer.add(numbers, positions, values[:, 0].astype(np.float32))
            count += len(values)
        writer.finish()
    return Written(count, "value", count)


def _write_bedgraph(
    stream: IO[bytes], selection: Selection, channels: Sequence[Channel], _: Calling, report: Report
) -> Written:
    names, count, bases = selection.store.sequences.names, 0, 0
    for runs in equal_runs(selection.slabs(channels, report=report), selection.offsets):
        _check_finite(runs.values, selection)
        sequences = _sequences_of(selection, runs.starts)
        shift = selection.offsets[sequences]
        for data in spans_write.bedgraph_lines(names, sequences, runs.starts - shift, runs.ends - shift, runs.values):
            stream.write(data)
        count, bases = count + len(runs.values), bases + int((runs.ends - runs.starts).sum())
    return Written(count, "span", bases)


def _write_table(
    stream: IO[bytes], selection: Selection, channels: Sequence[Channel], _: Calling, report: Report
) -> Written:
    stream.write(table.table_header([channel.name for channel in channels]))
    count = 0
    for slab in selection.slabs(channels, report=report):
        sequences, positions, values = _with_values(selection, slab)
        for data in table.table_lines(selection.store.sequences.names, sequences, positions, values):
            stream.write(data)
        count += len(values)
    return Written(count, "line", count)


def _write_npz(
    stream: IO[bytes], selection: Selection, channels: Sequence[Channel], _: Calling, report: Report
) -> Written:
    regions, bases = selection.regions_or_sequences(), 0
    names = [channel.name for channel in channels]
    writer = NpzWriter(stream, track=selection.track, channels=names, regions=regions, dtype=np.dtype(np.float16))
    with closing(writer):
        for slab in selection.slabs(channels, report=report):
            writer.add(slab.values[selection.wanted(slab)])
            bases += _count(slab)
        writer.finish()
    return Written(len(regions), "array", bases)


def _write_bed(
    stream: IO[bytes], selection: Selection, channels: Sequence[Channel], calling: Calling, report: Report
) -> Written:
    options = {"threshold": calling.threshold, "merge": calling.merge, "min_length": calling.min_length}
    callers = [IntervalCaller(selection.offsets, **options) for _ in channels]  # type: ignore[arg-type]
    waiting = [_Found.none()]
    count = bases = 0

    def write(until: int | None) -> int:
        """Write, in order, what begins before a place: nothing that ends later can begin there."""
        found = _Found(*map(np.concatenate, zip(*waiting, strict=True))).in_order()
        ready = len(found.starts) if until is None else int(np.searchsorted(found.starts, until))
        waiting[:] = [_Found(*(column[ready:] for column in found))]
        for data in _bed(_Found(*(column[:ready] for column in found)), selection, channels):
            stream.write(data)
        return ready

    for slab in selection.slabs(channels, report=report):
        for number, caller in enumerate(callers):
            waiting.append(_Found.of(caller.add(slab.first, slab.values[:, number]), number))
        bases += _count(slab)
        opened = [caller.open_start for caller in callers if caller.open_start is not None]
        count += write(min([slab.end, *opened]))
    waiting += [_Found.of(caller.finish(), number) for number, caller in enumerate(callers)]
    return Written(count + write(None), "interval", bases)


class _Found(NamedTuple):
    """Intervals of several channels."""

    starts: np.ndarray
    ends: np.ndarray
    means: np.ndarray
    channels: np.ndarray

    @classmethod
    def of(cls, found: Intervals, channel: int) -> _Found:
        return cls(*found, np.full(len(found.starts), channel))

    @classmethod
    def none(cls) -> _Found:
        return cls(*(np.empty(0, dtype=kind) for kind in (np.int64, np.int64, np.float64, np.int64)))

    def in_order(self) -> _Found:
        order = np.lexsort([self.channels, self.ends, self.starts])
        return _Found(*(column[order] for column in self))


def _bed(found: _Found, selection: Selection, channels: Sequence[Channel]) -> Iterator[bytes]:
    sequences = _sequences_of(selection, found.starts)
    spans = np.column_stack([found.starts, found.ends]) - selection.offsets[sequences][:, None]
    scale = 1000 if selection.info.kind == "class" else 1
    scores = np.rint(np.nan_to_num(found.means * scale, posinf=1000)).clip(0, 1000).astype(np.int64)
    words = np.array([channel.name.encode("utf-8", "surrogateescape") for channel in channels])[found.channels]
    strands = np.array([channel.strand.encode() for channel in channels])[found.channels]
    names = selection.store.sequences.names
    return spans_write.bed_lines(names, sequences, spans, words=words, scores=scores, strands=strands)


TRACK_FORMATS: dict[str, TrackFormat] = {
    "bigwig": TrackFormat(_write_bigwig, stored_channels, one_channel=True),
    "bedgraph": TrackFormat(_write_bedgraph, stored_channels, one_channel=True, is_text=True,
                            check=spans_write.check_names, columns=BED_COLUMNS),
    "bed": TrackFormat(_write_bed, calling_channels, is_text=True, check=spans_write.check_names, columns=BED_COLUMNS),
    "tsv": TrackFormat(_write_table, stored_channels, is_text=True, check=table.check_names,
                       columns=Columns(0, 1, 1, zero_based=False, skipped=1)),
    "npz": TrackFormat(_write_npz, stored_channels),
}  # fmt: skip
"""What the values of a store can be written as, by name."""
