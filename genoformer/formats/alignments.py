"""Files of alignments, BAM, CRAM and SAM: which of their reads are taken, and how they are opened and read."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

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
from genoformer.formats.sequences import check_region
from genoformer.regions import Region

if TYPE_CHECKING:
    from pysam import AlignedSegment, AlignmentFile

T = TypeVar("T")
UNMAPPED, REVERSE, SECONDARY, QC_FAIL, DUPLICATE, SUPPLEMENTARY = 0x4, 0x10, 0x100, 0x200, 0x400, 0x800
_BATCH_READS = 1000
_BATCH_BASES = 1 << 22


@dataclass(frozen=True)
class ReadFilter:
    """Which primary reads are taken; the defaults take all. Secondary alignments never are, nor supplementary ones
    unless they are wanted.
    """

    min_mapq: int = 0
    """mapping quality, 0 to 255; unmapped reads have 0"""
    min_length: int = 1
    """bases; reads without sequence are not judged by it"""
    include_flags: int = 0
    """bits of the SAM flag that must all be set, as in `samtools view -f`"""
    exclude_flags: int = 0
    """bits of the SAM flag of which none may be set, as in `samtools view -F`"""
    supplementary: bool = False
    """whether supplementary alignments are taken beside the primary ones"""

    def __post_init__(self) -> None:
        highest = {"min_mapq": 255, "min_length": 1 << 62, "include_flags": 0xFFFF, "exclude_flags": 0xFFFF}
        for name, limit in highest.items():
            if not 0 <= getattr(self, name) <= limit:
                raise ConfigError(f"read filter: {name} must be from 0 to {limit}, got {getattr(self, name)}")

    def reason_against(self, read: AlignedSegment) -> str | None:
        """Say why a read is not taken; None if it is."""
        if read.flag & SUPPLEMENTARY and not self.supplementary:
            return "supplementary alignment"
        if read.flag & SECONDARY:
            return "secondary alignment"
        if read.flag & self.exclude_flags or read.flag & self.include_flags != self.include_flags:
            return "flags not wanted"
        if read.mapping_quality < self.min_mapq:
            return f"mapping quality below {self.min_mapq}"
        if 0 < read.query_length < self.min_length:
            return f"shorter than {self.min_length} bases"
        return None


def reason_unplaced(read: AlignedSegment) -> str | None:
    """Say why a read lies nowhere on a reference sequence; None if it does."""
    if read.flag & UNMAPPED or read.reference_id < 0 or read.reference_start < 0:
        return "not mapped"
    if read.query_length == 0:
        return "without sequence"
    return None if read.cigartuples else "without CIGAR"


class AlignmentInput:
    """A BAM, CRAM or SAM file to read, any number of times.

    Attributes
    ----------
    source : what it is called in messages
    input : Source
    given_reference : path of the reference of a CRAM, as it was given
    """

    def __init__(self, source: Source, *, kind: Kind, reference: str | os.PathLike[str] | None = None):
        self.source = source.name
        self.input = source
        self._kind = kind
        self.given_reference = reference
        self._reference: Path | None = None
        self._lengths: dict[str, int] | None = None

    def taken(
        self,
        take: Callable[[AlignedSegment], T | None],
        *,
        regions: Iterable[Region] | None = None,
    ) -> Iterator[T]:
        """Yield what ``take`` makes of the reads, in the order of the file, without those it makes nothing of.

        Parameters
        ----------
        take : called with each read, which must not be kept
        regions : only the reads that overlap these regions of the reference sequences

        Raises
        ------
        FormatError : the file is damaged or cut short
        InputError : a CRAM lacks its reference, a region does not fit, or the file is not sorted as regions need
        """
        places = None if regions is None else self._places(regions)
        with self.open(indexed=places is not None) as file:
            reads = file.fetch(until_eof=True) if places is None else _overlapping(file, places)
            is_over = False
            while not is_over:
                batch, is_over = self._next_batch(reads, take)
                yield from batch

    def lengths(self) -> dict[str, int]:
        """Return the length in bases of every reference sequence, in the order of the header."""
        if self._lengths is None:
            with self.open() as file, self.working():
                self._lengths = dict(zip(file.references, file.lengths, strict=True))
        return self._lengths

    def header(self) -> list[dict[str, str]]:
        """Return the header's lines of reference sequences, the fields by their tags."""
        with self.open() as file, self.working():
            return list(file.header.to_dict().get("SQ", []))

    @property
    def reference(self) -> Path | None:
        """The indexed reference of a CRAM, once it was opened."""
        return self._reference

    def _places(self, regions: Iterable[Region]) -> list[Region]:
        regions = list(regions)
        for region in regions:
            check_region(region, self.lengths(), self.source)
        return merge_regions(regions, self.lengths())

    def _next_batch(
        self, reads: Iterator[AlignedSegment], take: Callable[[AlignedSegment], T | None]
    ) -> tuple[list[T], bool]:
        """Take some reads, so that htslib's settings are changed only while it works; tell whether that were all."""
        batch: list[T] = []
        seen = size = 0
        with self.working():
            for read in reads:
                found = take(read)
                if found is not None:
                    batch.append(found)
                    size += read.query_length
                seen += 1
                if size >= _BATCH_BASES or seen >= _BATCH_READS:
                    return batch, False
        return batch, True

    @contextmanager
    def open(self, *, indexed: bool = False) -> Iterator[AlignmentFile]:
        """Open the file, with an index if reads are to be fetched by region."""
        import pysam

        with self.working():
            if self._kind == "cram" and self._reference is None:
                check_cram_end(self.input)
                self._reference = cram_reference(self.input, self.given_reference)
            file = pysam.AlignmentFile(
                str(self.input.path),
                "r",
                check_sq=False,
                reference_filename=None if self._reference is None else str(self._reference),
                index_filename=str(alignment_index(self.input, self._kind)) if indexed else None,
            )
        try:
            yield file
        except BaseException:
            with quiet_and_offline(), suppress(OSError):  # closing a damaged file fails again
                file.close()
            raise
        with self.working():
            file.close()

    @contextmanager
    def working(self) -> Iterator[None]:
        """Have htslib work quietly, and turn its errors into ours."""
        try:
            with quiet_and_offline():
                yield
        except (InputError, FormatError):
            raise
        except UnicodeDecodeError as error:
            raise InputError(
                f"{self.source}: a name in it is not UTF-8 ({error.object!r:.60}); "
                "rename sequences with `samtools reheader`, reads by way of SAM"
            ) from error
        except (OSError, ValueError, NotImplementedError, AssertionError, OverflowError) as error:
            raise self.failure(error) from error

    def failure(self, error: Exception | str) -> InputError | FormatError:
        """Make the error of a file that htslib could not read."""
        if "EOF marker" in str(error):
            return cut_short(self.source)
        what = self._kind.upper()
        if self._kind != "cram":
            return FormatError(f"{self.source}: damaged {what} data ({error}); check it with `samtools quickcheck -v`")
        if self._reference is None:
            return InputError(f"{self.source}: this CRAM cannot be decoded by itself; {REFERENCE_HELP}")
        given = self.given_reference or "the reference that its header names"
        return FormatError(
            f"{self.source}: cannot be decoded; it is damaged, or {given} does not belong to it: {REFERENCE_HELP}"
        )


class Tally:
    """A filter that counts what it leaves out.

    Attributes
    ----------
    counts : Counter, reads left out, by reason
    """

    def __init__(self, reads: ReadFilter) -> None:
        self.counts: Counter[str] = Counter()
        self._filter = reads

    def takes(self, read: AlignedSegment, *, placed: bool = False) -> bool:
        """Tell whether a read is taken: of ``placed`` ones, only if it lies on a reference sequence."""
        reason = (placed and reason_unplaced(read)) or self._filter.reason_against(read)
        if reason:
            self.counts[reason] += 1
        return not reason


class Order:
    """Whether reads come by position."""

    def __init__(self, source: str, needed_for: str) -> None:
        self._source, self._needed_for = source, needed_for
        self._last = (-1, 0)

    def check(self, sequence: int, start: int) -> None:
        """Raise InputError if a read, by the number of its reference sequence and its place, lies before the last."""
        if (sequence, start) < self._last:
            raise InputError(
                f"{self._source}: is not sorted by position, which {self._needed_for} needs; "
                "sort it with `samtools sort -o sorted.bam`"
            )
        self._last = (sequence, start)


def _overlapping(file: AlignmentFile, regions: list[Region]) -> Iterator[AlignedSegment]:
    """Yield each read that overlaps one of the regions, which are sorted and apart, once."""
    sequence, end = None, 0
    for region in regions:
        end = end if region.sequence == sequence else 0
        for read in file.fetch(region.sequence, region.start, region.end):
            if read.reference_start >= end:  # else it reaches back into the region before, and was yielded there
                yield read
        sequence, end = region.sequence, region.end
