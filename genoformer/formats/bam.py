"""BAM, CRAM and SAM as reads: each primary read once, as it was sequenced, under a name of its own."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from genoformer.errors import InputError
from genoformer.formats.alignments import AlignmentInput, ReadFilter, Tally
from genoformer.formats.bytestream import Kind, Source
from genoformer.formats.sequences import Record
from genoformer.regions import Region

if TYPE_CHECKING:
    from pysam import AlignedSegment

__all__ = ["ReadFilter", "ReadSequences"]

_PAIRED, _FIRST, _LAST = 0x1, 0x40, 0x80
_HARD_CLIP = 5


class ReadSequences:
    """The reads of a BAM, CRAM or SAM file, see `Sequences`.

    A read is named by its query name, with ``/1`` or ``/2`` if it is one of a pair, and ``#2``, ``#3``... where a name
    comes again. A read without sequence is given with no bases. Of a hard-clipped read those bases are given that the
    file still has.

    Attributes
    ----------
    counts : Counter, reads left out by the last `records`, by reason
    hard_clipped : int, reads given by the last `records` whose ends are not in the file
    alignments : AlignmentInput, the file itself
    filter : ReadFilter, which of its reads are taken
    """

    def __init__(
        self,
        source: Source,
        *,
        kind: Kind = "bam",
        reference: str | os.PathLike[str] | None = None,
        reads: ReadFilter | None = None,
    ):
        self.source = source.name
        self.counts: Counter[str] = Counter()
        self.hard_clipped = 0
        self.alignments = AlignmentInput(source, kind=kind, reference=reference)
        self.filter = reads or ReadFilter()

    def records(self, regions: Iterable[Region] | None = None) -> Iterator[Record]:
        """Yield the reads in the order of the file, or those that overlap regions of the reference sequences.

        Raises
        ------
        FormatError : the file is damaged or cut short
        InputError : a CRAM lacks its reference, a region does not fit, or the file is not sorted as regions need
        """
        tally, names = Tally(self.filter), Counter[str]()
        self.counts, self.hard_clipped = tally.counts, 0

        def take(read: AlignedSegment) -> Record | None:
            if not tally.takes(read):
                return None
            self.hard_clipped += any(operation == _HARD_CLIP for operation, _ in read.cigartuples or ())
            return Record(_own_name(read, names), "", "linear", (read.get_forward_sequence() or "").encode())

        yield from self.alignments.taken(take, regions=regions)

    def lengths(self) -> dict[str, int]:
        """Return the length in bases of every reference sequence that a region may name."""
        return self.alignments.lengths()

    def fetch(self, region: Region) -> bytes:
        """Refuse: regions choose reads (see `records`), they do not cut them."""
        raise InputError(f"{self.source}: holds reads, which regions such as {region} can choose but not cut")


def _own_name(read: AlignedSegment, names: Counter[str]) -> str:
    """Return a name that no read had before, and note it."""
    name = read.query_name or "*"
    if read.flag & _PAIRED and bool(read.flag & _FIRST) != bool(read.flag & _LAST):
        name += "/1" if read.flag & _FIRST else "/2"
    names[name] += 1
    if names[name] == 1:
        return name
    while (own := f"{name}#{names[name]}") in names:
        names[name] += 1
    names[own] = 1
    return own
