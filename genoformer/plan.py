"""The plan of a prediction: one pass over the input that counts, checks and cuts it, before any model is loaded."""

from __future__ import annotations

import hashlib
import itertools
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, ClassVar, NamedTuple

import numpy as np

from genoformer.circles import own_origin
from genoformer.errors import ConfigError, InputError
from genoformer.formats.sequences import Record, Sequences, check_region, check_unique, checksum, example_names
from genoformer.regions import (
    DEFAULT_WINDOW,
    Region,
    Window,
    check_window,
    plan_circle,
    plan_whole,
    plan_windows,
    usual_overlap,
)
from genoformer.store import SequenceTable
from genoformer.tokens import Composition, composition, encode, gaps

ALL = "all"
"""What stands for every sequence among names of circular ones."""
WHOLE = "whole sequence"
"""What stands for the size of windows that are whole sequences."""
SHORT = 100
"""Bases below which predictions are called unreliable."""


class Accounting(NamedTuple):
    """What becomes of the bases of an input: the first four add up to ``total``."""

    predicted: int
    masked: int
    """in gaps: runs of unknown bases, for which nothing is predicted"""
    skipped: int
    """of sequences that are skipped"""
    not_requested: int
    """outside the regions asked for"""
    total: int


@dataclass(frozen=True)
class Plan:
    """What will be predicted.

    Attributes
    ----------
    source : the input's name
    sequences : names, lengths, checksums and what becomes of each
    gaps : for each sequence that has any, by index: (runs, 2) of start and end
    compositions : int64, (sequences, 4): what each sequence is made of, columns of `Composition`
    owned : int64, (windows, 3): sequence index, start and end of what each window owns, in order
    window, overlap : bases
    regions : the parts of sequences that were asked for, None for everything
    accounting : of every base
    left_out : records of the file that are no input, by reason: reads that the filter rejects
    chosen_by : of reads: only those that overlap these regions were asked for, None for all; see `records_of`
    origins : of each circular sequence that is predicted, by index: the base that its windows are counted from
    made_by : of sequences that are in no file, how they were made: ``how``, ``versions`` and ``counts`` by what is
        counted
    whole : each sequence is one window, however long; ``window`` is then what longer ones are written in
    """

    source: str
    sequences: SequenceTable
    gaps: dict[int, np.ndarray]
    compositions: np.ndarray
    owned: np.ndarray
    window: int
    overlap: int
    regions: tuple[Region, ...] | None
    accounting: Accounting
    left_out: dict[str, int]
    chosen_by: tuple[Region, ...] | None = None
    origins: dict[int, int] = field(default_factory=dict)
    made_by: dict[str, Any] = field(default_factory=dict)
    whole: bool = False

    masked_as: ClassVar[str] = "masked (gaps)"

    @property
    def blocks(self) -> np.ndarray:
        """Return the owned spans on the axis of all sequences, one behind the other: (windows, 2) int64."""
        offsets = self.sequences.offsets[self.owned[:, 0]]
        return np.stack([offsets + self.owned[:, 1], offsets + self.owned[:, 2]], axis=1)

    @cached_property
    def _wanted(self) -> dict[str, list[tuple[int, int]]] | None:
        """The regions by sequence."""
        if self.regions is None:
            return None
        wanted: dict[str, list[tuple[int, int]]] = {}
        for region in self.regions:
            wanted.setdefault(region.sequence, []).append((region.start, region.end))
        return wanted

    @property
    def letters(self) -> Composition:
        """Return what the whole input is made of."""
        return Composition(*self.compositions.sum(axis=0).tolist())

    @property
    def short(self) -> int:
        """Count the sequences whose predictions are unreliable, for want of bases around."""
        pending = np.array([status == "pending" for status in self.sequences.status], dtype=bool)
        return int((pending & (self.sequences.lengths < SHORT)).sum())

    def windows(self, index: int) -> Iterator[Window]:
        """Yield the windows of a sequence, in order."""
        if self.sequences.status[index] != "pending":
            return
        name, length = self.sequences.names[index], int(self.sequences.lengths[index])
        circular = index in self.origins
        if self.is_streamed(index):
            spans = [(0, length)] if self._wanted is None else self._wanted.get(name, [])
            margin, origin = (self.overlap // 2, self.origins[index]) if circular else (0, 0)
            yield from plan_whole(name, length, size=self.window, spans=spans, margin=margin, origin=origin)
            return
        if circular and self._wanted is None:
            yield from plan_circle(name, length, size=self.window, overlap=self.overlap, origin=self.origins[index])
            return
        for start, end in [(0, length)] if self._wanted is None else self._wanted.get(name, []):
            yield from plan_windows(
                name, length, size=self.window, overlap=self.overlap, start=start, end=end, circular=circular
            )

    def seen(self, index: int) -> int:
        """Return how many bases there are to be seen of a sequence: more than it has if it is circular."""
        return int(self.sequences.lengths[index]) + (2 * (self.overlap // 2) if index in self.origins else 0)

    def is_streamed(self, index: int) -> bool:
        """Tell whether a sequence is longer than a window and yet one context."""
        return self.whole and self.seen(index) > self.window

    @property
    def described_window(self) -> int | str:
        """Return the bases of a window, or that each is a whole sequence, as stores say it."""
        return WHOLE if self.whole else self.window

    @cached_property
    def streamed(self) -> np.ndarray:
        """Tell which windows are those of sequences longer than a window, yet one context: bool, (windows,)."""
        long = np.array([self.is_streamed(index) for index in range(len(self.sequences))] if self.whole else [], bool)
        return long[self.owned[:, 0]] if self.whole else np.zeros(len(self.owned), dtype=bool)

    @property
    def longest(self) -> int:
        """Return the bases of the longest context of a plan of whole sequences; 0 if nothing is to be predicted."""
        return max((self.seen(index) for index in np.unique(self.owned[:, 0]).tolist()), default=0)

    @property
    def repeated(self) -> int:
        """Count the bases that windows of circular sequences see once more, beyond the origin."""
        return len(self.origins) * 2 * (self.overlap // 2)

    def input_digest(self) -> str:
        """Return a checksum of all names and sequences, and of which are circular."""
        digest, table = hashlib.sha256(), self.sequences
        for name, md5, topology in zip(table.names, table.md5, table.topology, strict=True):
            ring = "" if topology == "linear" else f"\t{topology}"
            digest.update(f"{name}\t{md5}{ring}\n".encode("utf-8", "surrogateescape"))
        return digest.hexdigest()


class _Scan:
    """Collects what a plan needs of each record."""

    def __init__(self, *, min_length: int, circular: Collection[str]) -> None:
        self.min_length, self.circular = min_length, circular
        self.origins: dict[int, int] = {}
        self.names: list[str] = []
        self.columns: dict[str, list[Any]] = {key: [] for key in ("lengths", "md5", "topology", "status", "reason")}
        self.gaps: dict[int, np.ndarray] = {}
        self.compositions: list[Composition] = []

    def add(self, record: Record) -> None:
        letters = composition(record.bases) if record.original is None else record.original.letters
        is_circular = record.topology == "circular" or ALL in self.circular or record.name in self.circular
        self.compositions.append(letters)
        status, reason = "pending", ""
        if not record.bases:
            status, reason = "skipped", "no bases"
        elif len(record.bases) < self.min_length:
            status, reason = "skipped", f"shorter than {self.min_length} bases"
        elif letters.known == 0:
            status, reason = "masked", "no known base"
        if status == "pending" and letters.known < len(record.bases):
            runs = gaps(record.bases, circular=is_circular)
            if len(runs):
                self.gaps[len(self.names)] = runs
        if status == "pending" and is_circular:
            self.origins[len(self.names)] = own_origin(encode(record.bases))
        self.names.append(record.name)
        values = (len(record.bases), checksum(record), "circular" if is_circular else "linear", status, reason)
        for column, value in zip(self.columns.values(), values, strict=True):
            column.append(value)


def make_plan(
    sequences: Sequences,
    *,
    window: int = DEFAULT_WINDOW,
    overlap: int | None = None,
    regions: Sequence[Region] | None = None,
    min_length: int = 1,
    circular: Collection[str] = (),
    whole: bool = False,
) -> Plan:
    """Read the input once and plan its windows.

    Parameters
    ----------
    sequences : the input
    window, overlap : int, bases; overlap None: 5,000, at most a quarter of the window
    regions : predict only these, in any order, none overlapping another; of reads, those that overlap them
    min_length : int, bases; shorter sequences are skipped and listed
    circular : names of sequences whose ends are joined, beside those of which the file says so; ``all`` for every one
    whole : each sequence is one window, however long; those longer than ``window`` are written in blocks of that size

    Returns
    -------
    Plan

    Raises
    ------
    ConfigError : the window cannot advance, or reads are said to be circular
    InputError : there is no record, names come twice, regions overlap or lie on no sequence, or no sequence has a name
        of ``circular``
    """
    overlap = usual_overlap(window) if overlap is None else overlap
    check_window(window, overlap)
    circular = (circular,) if isinstance(circular, str) else circular
    if circular and is_reads(sequences):
        raise ConfigError(f"{sequences.source}: reads are not circular; leave out --circular")
    scan = _Scan(min_length=min_length, circular=frozenset(circular))
    for record in records_of(sequences, regions):
        scan.add(record)
    left_out: dict[str, int] = dict(getattr(sequences, "counts", {}))
    if not scan.names:
        why = "; ".join(f"{number:,} reads left out: {reason}" for reason, number in left_out.items())
        what = "sequence that is wanted" if why else "read that overlaps a region" if regions else "sequence"
        raise InputError(f"{sequences.source}: holds no {what}{f' ({why})' if why else ''}")
    check_unique(scan.names, sequences.source)
    table = SequenceTable.build(scan.names, **scan.columns)
    check_circular(circular, table, sequences.source)
    asked = None if regions is None or is_reads(sequences) else _in_order(regions, table, sequences.source)
    plan = Plan(
        source=sequences.source,
        sequences=table,
        gaps=scan.gaps,
        compositions=np.array(scan.compositions, dtype=np.int64).reshape(-1, 4),
        owned=np.empty((0, 3), dtype=np.int64),
        window=window,
        overlap=overlap,
        regions=asked,
        accounting=_account(table, scan.gaps, asked),
        left_out=left_out,
        chosen_by=tuple(regions) if regions is not None and is_reads(sequences) else None,
        origins=scan.origins,
        made_by=dict(getattr(sequences, "made_by", {})),
        whole=whole,
    )
    indices = (
        range(len(table)) if asked is None else [table.index(name) for name in dict.fromkeys(r.sequence for r in asked)]
    )
    owned = [(index, w.owned.start, w.owned.end) for index in indices for w in plan.windows(index)]
    array = np.array(owned, dtype=np.int64).reshape(-1, 3)
    return replace(plan, owned=array)


def _in_order(regions: Sequence[Region], table: SequenceTable, source: str) -> tuple[Region, ...]:
    """Return the regions in the order of the input; refuse those that overlap or lie nowhere."""
    lengths = dict(zip(table.names, table.lengths.tolist(), strict=True))
    for region in regions:
        check_region(region, lengths, source)
    ordered = sorted(regions, key=lambda region: (table.index(region.sequence), region.start, region.end))
    for before, after in itertools.pairwise(ordered):
        if before.overlaps(after):
            raise InputError(f"regions {before} and {after} overlap; each base is predicted once: merge them")
    return tuple(ordered)


def check_circular(names: Collection[str], table: SequenceTable, source: str) -> None:
    """Raise InputError unless every name is that of a sequence, or ``all``."""
    known = set(table.names) if names else set()
    for name in sorted(set(names) - {ALL} - known):
        raise InputError(f"{source}: has no sequence {name!r} to be circular{example_names(table.names)}")


def is_reads(sequences: Sequences) -> bool:
    """Tell whether records are reads, which regions select but do not cut."""
    return hasattr(sequences, "hard_clipped")


def records_of(sequences: Sequences, regions: Sequence[Region] | None) -> Iterator[Record]:
    """Yield the records of the input: all, or the reads that overlap the regions."""
    if regions is not None and is_reads(sequences):
        return sequences.records(regions)  # type: ignore[call-arg]
    return sequences.records()


def planned_records(plan: Plan, sequences: Sequences) -> Iterator[tuple[int, Record]]:
    """Yield the records of the input of a plan, each with its index in ``plan.sequences``.

    Raises
    ------
    InputError : the input is not the one that was planned
    """
    known, count = plan.sequences, 0
    for index, record in enumerate(records_of(sequences, plan.chosen_by)):
        if index >= len(known) or (record.name, len(record.bases)) != (known.names[index], known.lengths[index]):
            raise InputError(f"{plan.source}: has changed since it was planned (record {record.name!r}); run again")
        yield index, record
        count = index + 1
    if count < len(known):
        raise InputError(f"{plan.source}: has changed since it was planned (records are missing at its end); run again")


def _account(table: SequenceTable, gap_runs: dict[int, np.ndarray], regions: Sequence[Region] | None) -> Accounting:
    """Say what becomes of every base."""
    status = np.array(table.status)
    skipped = int(table.lengths[status == "skipped"].sum())
    if regions is None:
        spans = [(i, 0, int(table.lengths[i])) for i in np.flatnonzero(status != "skipped").tolist()]
    else:
        spans = [(i, r.start, r.end) for r in regions if table.status[i := table.index(r.sequence)] != "skipped"]
    requested = sum(end - start for _, start, end in spans)
    masked = 0
    for index, start, end in spans:
        if table.status[index] == "masked":
            masked += end - start
        elif index in gap_runs:
            runs = gap_runs[index].clip(start, end)
            masked += int((runs[:, 1] - runs[:, 0]).sum())
    total = table.total_bases
    return Accounting(requested - masked, masked, skipped, total - requested - skipped, total)


def check_predictable(plan: Plan) -> None:
    """Raise InputError, with the reasons, if not one base would be predicted."""
    if plan.accounting.predicted > 0:
        return
    reasons = sorted({reason for reason in plan.sequences.reason if reason}) or ["only gaps in what was asked for"]
    raise InputError(f"{plan.source}: nothing to predict in {len(plan.sequences)} sequence(s): {'; '.join(reasons)}")
