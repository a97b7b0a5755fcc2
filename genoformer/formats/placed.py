"""Reads where they are aligned: which of a read's bases lies on which base of a reference sequence, by its CIGAR."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from genoformer.errors import FormatError
from genoformer.formats.alignments import REVERSE, AlignmentInput, Order, ReadFilter, Tally
from genoformer.regions import Region

if TYPE_CHECKING:
    from pysam import AlignedSegment

_INSERTION, _DELETION, _SKIP, _SOFT_CLIP, _BACK = 1, 2, 3, 4, 9
#                        M  I  D  N  S  H  P  =  X  B
_ON_READ = np.array([1, 1, 0, 0, 1, 0, 0, 1, 1, 0], dtype=np.int64)
_ON_REFERENCE = np.array([1, 0, 1, 1, 0, 0, 0, 1, 1, 0], dtype=np.int64)


class Placed(NamedTuple):
    """An aligned read."""

    sequence: int
    """number of the reference sequence, in the order of the header"""
    start: int
    """first base of it that the read is aligned to"""
    is_reverse: bool
    """whether the opposite strand was sequenced"""
    bases: bytes
    """as they were sequenced"""
    runs: np.ndarray
    """int64, (runs, 3): place on the read as it is aligned, place on the reference, and number of aligned bases"""
    inserted: int
    clipped: int
    """bases at its ends that are in the file and not aligned"""
    deleted: int
    """bases of the reference"""
    skipped: int
    """bases of the reference, such as introns"""


class PlacedReads:
    """The reads of a sorted BAM, CRAM or SAM file that lie on a reference sequence.

    Attributes
    ----------
    counts : Counter, reads left out by the last `read`, by reason
    """

    def __init__(self, alignments: AlignmentInput, reads: ReadFilter) -> None:
        self.counts: Counter[str] = Counter()
        self._alignments, self._filter = alignments, reads

    def read(self, regions: Iterable[Region] | None = None) -> Iterator[Placed]:
        """Yield the reads by position: all, or those that overlap regions.

        Raises
        ------
        InputError : the file is not sorted by position; and as `AlignmentInput.taken`
        FormatError : a CIGAR does not fit its read; and as there
        """
        source = self._alignments.source
        tally, order = Tally(self._filter), Order(source, "--project")
        self.counts = tally.counts

        def take(read: AlignedSegment) -> Placed | None:
            return _placed(read, source) if tally.takes(read, placed=True) else None

        for placed in self._alignments.taken(take, regions=regions):
            order.check(placed.sequence, placed.start)
            yield placed


def _placed(read: AlignedSegment, source: str) -> Placed:
    cigar = np.array(read.cigartuples, dtype=np.int64)
    operations, lengths = cigar.T
    bases = (read.get_forward_sequence() or "").encode()
    if (operations == _BACK).any() or int((lengths * _ON_READ[operations]).sum()) != len(bases):
        raise FormatError(
            f"{source}: read {read.query_name!r}: its CIGAR does not fit its {len(bases)} bases; "
            "check the file with `samtools quickcheck -v`"
        )

    def total(operation: int) -> int:
        return int(lengths[operations == operation].sum())

    return Placed(
        read.reference_id,
        read.reference_start,
        bool(read.flag & REVERSE),
        bases,
        aligned_runs(operations, lengths, read.reference_start),
        total(_INSERTION),
        total(_SOFT_CLIP),
        total(_DELETION),
        total(_SKIP),
    )


def aligned_runs(operations: np.ndarray, lengths: np.ndarray, start: int) -> np.ndarray:
    """Return the runs of aligned bases of a CIGAR, see `Placed`, if it begins at ``start`` of the reference.

    >>> aligned_runs(np.array([4, 0, 2, 7]), np.array([5, 10, 3, 8]), 100).tolist()
    [[5, 100, 10], [15, 113, 8]]
    """
    on_read, on_reference = lengths * _ON_READ[operations], lengths * _ON_REFERENCE[operations]
    aligned = (on_read > 0) & (on_reference > 0)
    runs = np.stack([np.cumsum(on_read) - on_read, start + np.cumsum(on_reference) - on_reference, lengths], axis=1)
    return runs[aligned]


def places_of(runs: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return, for every aligned base of some runs, its place on the read as it is aligned and on the reference."""
    lengths = runs[:, 2]
    within = np.arange(int(lengths.sum())) - np.repeat(np.cumsum(lengths) - lengths, lengths)
    return np.repeat(runs[:, 0], lengths) + within, np.repeat(runs[:, 1], lengths) + within
