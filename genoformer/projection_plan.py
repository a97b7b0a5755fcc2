"""The plan of a projection: one pass over aligned reads that tells where on the references there will be values.

Every base of a read is projected, masked (in a gap of unknown bases), inserted, clipped, or elsewhere: outside the
regions asked for, or beyond the end of its reference.
"""

from __future__ import annotations

import hashlib
import heapq
import re
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import ClassVar

import numpy as np

from genoformer.errors import ConfigError, InputError
from genoformer.formats.bam import ReadSequences
from genoformer.formats.placed import Placed, PlacedReads, places_of
from genoformer.formats.sequences import Record, Sequences
from genoformer.pileup import Cell, Cells, Pileup
from genoformer.plan import Accounting, Plan, make_plan
from genoformer.regions import DEFAULT_WINDOW, Region, check_window, usual_overlap
from genoformer.sampling import MOST_RECORDS, SAMPLE_BASES, SAMPLE_WINDOWS
from genoformer.store import SequenceTable
from genoformer.tokens import UNKNOWN, encode, gaps


@dataclass(frozen=True)
class Projection(Plan):
    """What is predicted of aligned reads: the sequences are the references, what is owned are stretches with reads.

    Attributes
    ----------
    digest : checksum of all that decides on the values: references, reads, and where they are aligned
    sample : some of the longest reads, to tell the genetic code from
    """

    digest: str = ""
    sample: HeldReads = field(default_factory=lambda: HeldReads("", []))

    masked_as: ClassVar[str] = "without a read"

    def input_digest(self) -> str:
        """Return the checksum of references, reads and alignments."""
        return self.digest


class HeldReads:
    """Reads in memory, see `Sequences`; they are named by their numbers."""

    def __init__(self, source: str, reads: Sequence[bytes]) -> None:
        self.source, self._reads = source, reads

    def records(self) -> Iterator[Record]:
        """Yield the reads."""
        return (Record(str(number), "", "linear", bases) for number, bases in enumerate(self._reads))

    def lengths(self) -> dict[str, int]:
        """Return the length of each."""
        return {str(number): len(bases) for number, bases in enumerate(self._reads)}

    def fetch(self, region: Region) -> bytes:
        """Return a part of one."""
        return self._reads[int(region.sequence)][region.start : region.end]

    def plan(self) -> Plan:
        """Plan them alone."""
        return make_plan(self)


class _Survey:
    """What one pass over the reads tells: which bases get values, and what becomes of each base of a read."""

    def __init__(self, cells: Cells) -> None:
        self.pileup = Pileup(cells, lambda cell: np.zeros(cell.end - cell.start, dtype=bool))
        self.digest = begin_digest(cells.lengths)
        self.bases = dict.fromkeys(("projected", "masked", "inserted", "clipped", "elsewhere"), 0)
        self.passed = {"deleted": 0, "skipped": 0}
        self.reads: Counter[int] = Counter()
        self.owned: list[tuple[int, int, int]] = []
        self.covered = 0
        self._longest = _Longest()

    def add(self, read: Placed) -> None:
        self._note(self.pileup.before(read.sequence, read.start))
        add_to_digest(self.digest, read)
        self.reads[read.sequence] += 1
        on_read, on_reference = places_of(read.runs)
        has_value = valued(read.bases)
        if has_value is not None:
            has_value = has_value[::-1] if read.is_reverse else has_value
            on_reference = on_reference[has_value[on_read]]
        projected = 0
        for covered, places, _ in self.pileup.at(read.sequence, on_reference):
            covered[places] = True
            projected += len(places)
        masked = len(on_read) - len(on_reference)
        elsewhere = len(on_reference) - projected
        for what, count in zip(self.bases, (projected, masked, read.inserted, read.clipped, elsewhere), strict=True):
            self.bases[what] += count
        self.passed["deleted"] += read.deleted
        self.passed["skipped"] += read.skipped
        self._longest.add(read.bases)

    def finish(self) -> None:
        self._note(self.pileup.rest())

    def _note(self, cells: Iterable[tuple[Cell, np.ndarray]]) -> None:
        for cell, covered in cells:
            self.covered += int(np.count_nonzero(covered))
            self.owned.append(cell)

    @property
    def longest(self) -> list[bytes]:
        return self._longest.reads()


class _Longest:
    """Keeps the longest reads, no more than are wanted to tell the genetic code."""

    def __init__(self) -> None:
        self._heap: list[tuple[int, int, bytes]] = []
        self._size = self._seen = 0

    def add(self, bases: bytes) -> None:
        self._seen += 1
        heapq.heappush(self._heap, (len(bases), -self._seen, bases))
        self._size += len(bases)
        while len(self._heap) > MOST_RECORDS or (
            len(self._heap) > SAMPLE_WINDOWS and self._size - self._heap[0][0] >= SAMPLE_WINDOWS * SAMPLE_BASES
        ):
            self._size -= heapq.heappop(self._heap)[0]

    def reads(self) -> list[bytes]:
        return [bases for _, _, bases in sorted(self._heap, reverse=True)]


def begin_digest(lengths: Mapping[str, int]) -> hashlib._Hash:
    """Begin a checksum with the names and lengths of the reference sequences."""
    return hashlib.sha256(f"{list(lengths.items())}\n".encode("utf-8", "surrogateescape"))


def add_to_digest(digest: hashlib._Hash, read: Placed) -> None:
    """Add a read, and where it is aligned, to a checksum."""
    digest.update(f"{read.sequence} {read.is_reverse} {len(read.bases)} {len(read.runs)}\n".encode())
    digest.update(read.bases.upper())
    digest.update(read.runs.tobytes())


def valued(bases: bytes) -> np.ndarray | None:
    """Tell which bases of a read are predicted: bool, (bases,), as they were sequenced; None for all of them."""
    unknown = encode(bases) == UNKNOWN
    if not unknown.any():
        return None
    if unknown.all():
        return ~unknown
    has_value = np.ones(len(bases), dtype=bool)
    for start, end in gaps(bases):
        has_value[start:end] = False
    return has_value


def plan_projection(
    sequences: Sequences,
    *,
    window: int = DEFAULT_WINDOW,
    overlap: int | None = None,
    regions: Sequence[Region] | None = None,
    min_length: int = 1,
    circular: Collection[str] = (),
) -> Projection:
    """Read the alignments once and plan their projection; see `make_plan`.

    Memory is that of the references' stretches that some read still reaches, 64 Ki bases each.

    Parameters
    ----------
    sequences : of `open_sequences`, reads of a BAM, CRAM or SAM sorted by position, chosen by its filter
    window, overlap : int, bases, see `genoformer.plan.make_plan`; how reads are cut that are longer
    regions : values only there; the reads that overlap them are predicted as a whole
    min_length : is the filter's to heed
    circular : must be empty

    Raises
    ------
    ConfigError : these are no alignments, or are said to be circular
    InputError : no read is aligned, the file is not sorted, or regions do not fit
    FormatError : the file is damaged
    """
    del min_length
    overlap = usual_overlap(window) if overlap is None else overlap
    check_window(window, overlap)
    reads = placed_reads(sequences)
    if circular:
        raise ConfigError(f"{sequences.source}: reads are not circular; leave out --circular")
    lengths = sequences.lengths()
    survey = _Survey(Cells(lengths, regions))
    for read in reads.read(regions):
        survey.add(read)
    survey.finish()
    if not survey.reads:
        why = "; ".join(f"{number:,} {reason}" for reason, number in reads.counts.items())
        raise InputError(f"{sequences.source}: no read to project is aligned{f' ({why})' if why else ''}")
    table, accounting = _references(sequences, survey)
    return Projection(
        source=sequences.source,
        sequences=table,
        gaps={},
        compositions=np.zeros((len(table), 4), dtype=np.int64),
        owned=np.array(survey.owned, dtype=np.int64).reshape(-1, 3),
        window=window,
        overlap=overlap,
        regions=None if regions is None else tuple(regions),
        accounting=accounting,
        left_out=dict(reads.counts),
        made_by={
            "how": f"mean of the predictions of {survey.reads.total():,} reads, where they are aligned",
            "counts": {"bases of reads": survey.bases, "bases of references that reads pass over": survey.passed},
        },
        digest=survey.digest.hexdigest(),
        sample=HeldReads(sequences.source, survey.longest),
    )


def placed_reads(sequences: Sequences) -> PlacedReads:
    """Return the aligned reads of what `open_sequences` opened; ConfigError if it is no alignments, taken as reads."""
    if not isinstance(sequences, ReadSequences):
        raise ConfigError(
            f"{sequences.source}: only the reads of BAM, CRAM or SAM can be projected; leave out --project"
        )
    return PlacedReads(sequences.alignments, sequences.filter)


def _references(sequences: Sequences, survey: _Survey) -> tuple[SequenceTable, Accounting]:
    """Return the reference sequences, and what becomes of their bases."""
    assert isinstance(sequences, ReadSequences)
    lines = sequences.alignments.header()
    lengths = sequences.lengths()
    states, requested, skipped = [], 0, 0
    for number, length in enumerate(lengths.values()):
        asked = sum(end - start for start, end in survey.pileup.cells.asked(number))
        is_empty = asked > 0 and not survey.reads[number]
        states.append(("skipped", "no read is aligned to it") if is_empty else ("pending", ""))
        requested += 0 if is_empty else asked
        skipped += length if is_empty else 0
    checksums = [line.get("M5", "").lower() for line in lines]
    table = SequenceTable.build(
        lengths,
        list(lengths.values()),
        md5=[text if re.fullmatch("[0-9a-f]{32}", text) else "" for text in checksums],
        topology=["circular" if line.get("TP") == "circular" else "linear" for line in lines],
        status=[status for status, _ in states],
        reason=[reason for _, reason in states],
    )
    total = table.total_bases
    left = total - requested - skipped
    return table, Accounting(survey.covered, requested - survey.covered, skipped, left, total)
