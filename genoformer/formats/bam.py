"""BAM, CRAM and SAM as reads: each primary read once, as it was sequenced, under a name of its own."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from genoformer.errors import ConfigError, FormatError, InputError
from genoformer.formats.bed import merge_regions
from genoformer.formats.bytestream import Kind, Source
from genoformer.formats.htslib import (
    REFERENCE_HELP,
    alignment_index,
    check_cram_end,
    cram_reference,
    cut_short,
    quiet_and_offline,
)
from genoformer.formats.sequences import Record, check_region
from genoformer.regions import Region

if TYPE_CHECKING:
    from pysam import AlignedSegment, AlignmentFile

_PAIRED, _FIRST, _LAST, _SECONDARY, _SUPPLEMENTARY = 0x1, 0x40, 0x80, 0x100, 0x800
_HARD_CLIP = 5
_BATCH_READS = 1000
_BATCH_BASES = 1 << 22


@dataclass(frozen=True)
class ReadFilter:
    """Which primary reads are taken; the defaults take all. Secondary and supplementary alignments never are."""

    min_mapq: int = 0
    """mapping quality, 0 to 255; unmapped reads have 0"""
    min_length: int = 1
    """bases; reads without sequence are not judged by it"""
    include_flags: int = 0
    """bits of the SAM flag that must all be set, as in `samtools view -f`"""
    exclude_flags: int = 0
    """bits of the SAM flag of which none may be set, as in `samtools view -F`"""

    def __post_init__(self) -> None:
        highest = {"min_mapq": 255, "min_length": 1 << 62, "include_flags": 0xFFFF, "exclude_flags": 0xFFFF}
        for name, limit in highest.items():
            if not 0 <= getattr(self, name) <= limit:
                raise ConfigError(f"read filter: {name} must be from 0 to {limit}, got {getattr(self, name)}")

    def reason_against(self, read: AlignedSegment) -> str | None:
        """Say why a read is not taken; None if it is."""
        if read.flag & _SUPPLEMENTARY:
            return "supplementary alignment"
        if read.flag & _SECONDARY:
            return "secondary alignment"
        if read.flag & self.exclude_flags or read.flag & self.include_flags != self.include_flags:
            return "flags not wanted"
        if read.mapping_quality < self.min_mapq:
            return f"mapping quality below {self.min_mapq}"
        if 0 < read.query_length < self.min_length:
            return f"shorter than {self.min_length} bases"
        return None


class ReadSequences:
    """The reads of a BAM, CRAM or SAM file, see `Sequences`.

    A read is named by its query name, with ``/1`` or ``/2`` if it is one of a pair, and ``#2``, ``#3``... where a name
    comes again. A read without sequence is given with no bases. Of a hard-clipped read those bases are given that the
    file still has.

    Attributes
    ----------
    counts : Counter, reads left out by the last `records`, by reason
    hard_clipped : int, reads given by the last `records` whose ends are not in the file
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
        self._input = source
        self._kind = kind
        self._given_reference = reference
        self._reference: Path | None = None
        self._filter = reads or ReadFilter()
        self._lengths: dict[str, int] | None = None

    def records(self, regions: Iterable[Region] | None = None) -> Iterator[Record]:
        """Yield the reads in the order of the file, or those that overlap regions of the reference sequences.

        Raises
        ------
        FormatError : the file is damaged or cut short
        InputError : a CRAM lacks its reference, a region does not fit, or the file is not sorted as regions need
        """
        self.counts = Counter()
        self.hard_clipped = 0
        names: Counter[str] = Counter()
        places = None if regions is None else self._places(regions)
        with self._open(indexed=places is not None) as file:
            reads = file.fetch(until_eof=True) if places is None else _overlapping(file, places)
            while batch := self._next_batch(reads, names):
                yield from batch

    def lengths(self) -> dict[str, int]:
        """Return the length in bases of every reference sequence that a region may name."""
        if self._lengths is None:
            with self._open() as file:
                self._lengths = dict(zip(file.references, file.lengths, strict=True))
        return self._lengths

    def fetch(self, region: Region) -> bytes:
        """Refuse: regions choose reads (see `records`), they do not cut them."""
        raise InputError(f"{self.source}: holds reads, which regions such as {region} can choose but not cut")

    def _places(self, regions: Iterable[Region]) -> list[Region]:
        regions = list(regions)
        for region in regions:
            check_region(region, self.lengths(), self.source)
        return merge_regions(regions, self.lengths())

    def _next_batch(self, reads: Iterator[AlignedSegment], names: Counter[str]) -> list[Record]:
        """Take some reads, so that htslib's settings are changed only while it works."""
        batch: list[Record] = []
        size = 0
        with self._working():
            for read in reads:
                reason = self._filter.reason_against(read)
                if reason is not None:
                    self.counts[reason] += 1
                    continue
                bases = (read.get_forward_sequence() or "").encode()
                batch.append(Record(_own_name(read, names), "", "linear", bases))
                self.hard_clipped += any(operation == _HARD_CLIP for operation, _ in read.cigartuples or ())
                size += len(bases)
                if size >= _BATCH_BASES or len(batch) >= _BATCH_READS:
                    break
        return batch

    @contextmanager
    def _open(self, *, indexed: bool = False) -> Iterator[AlignmentFile]:
        import pysam

        with self._working():
            if self._kind == "cram" and self._reference is None:
                check_cram_end(self._input)
                self._reference = cram_reference(self._input, self._given_reference)
            file = pysam.AlignmentFile(
                str(self._input.path),
                "r",
                check_sq=False,
                reference_filename=None if self._reference is None else str(self._reference),
                index_filename=str(alignment_index(self._input, self._kind)) if indexed else None,
            )
        try:
            yield file
        except BaseException:
            with quiet_and_offline(), suppress(OSError):  # closing a damaged file fails again
                file.close()
            raise
        with self._working():
            file.close()

    @contextmanager
    def _working(self) -> Iterator[None]:
        try:
            with quiet_and_offline():
                yield
        except (InputError, FormatError):
            raise
        except (OSError, ValueError) as error:
            raise self._failure(error) from error

    def _failure(self, error: Exception) -> InputError | FormatError:
        if "EOF marker" in str(error):
            return cut_short(self.source)
        what = self._kind.upper()
        if self._kind != "cram":
            return FormatError(f"{self.source}: damaged {what} data ({error}); check it with `samtools quickcheck -v`")
        if self._reference is None:
            return InputError(f"{self.source}: this CRAM cannot be decoded by itself; {REFERENCE_HELP}")
        given = self._given_reference or "the reference that its header names"
        return FormatError(
            f"{self.source}: cannot be decoded; it is damaged, or {given} does not belong to it: {REFERENCE_HELP}"
        )


def _overlapping(file: AlignmentFile, regions: list[Region]) -> Iterator[AlignedSegment]:
    """Yield each read that overlaps one of the regions, which are sorted and apart, once."""
    sequence, end = None, 0
    for region in regions:
        end = end if region.sequence == sequence else 0
        for read in file.fetch(region.sequence, region.start, region.end):
            if read.reference_start >= end:  # else it reaches back into the region before, and was yielded there
                yield read
        sequence, end = region.sequence, region.end


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
