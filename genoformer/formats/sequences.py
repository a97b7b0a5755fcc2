"""Sequences, whatever file they come from: the record, the contract of a source, and the door that opens any file."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterable, Iterator
from typing import IO, TYPE_CHECKING, Literal, NamedTuple, Protocol

from genoformer.errors import ConfigError, FormatError, InputError
from genoformer.formats.bytestream import Source, inflate, kind_of, sniff
from genoformer.regions import Region
from genoformer.tokens import Composition

if TYPE_CHECKING:
    from genoformer.formats.alignments import ReadFilter

BamAs = Literal["reads", "consensus"]

__all__ = ["BamAs", "Record", "Sequences", "check_region", "check_unique", "open_sequences", "sniff"]

NO_NAME = "no name"
"""Why a record is left out: nothing that it could be called by follows its mark."""
_NAMES_SHOWN = 5
_PIECE = 1 << 22
_HINTS = (
    (b"@", "it looks like FASTQ; turn it into FASTA with `seqtk seq -A` or into BAM with `samtools import`"),
    (b"##gff", "it is GFF3, an annotation; give the FASTA it belongs to"),
    (b"##fileformat=VCF", "it is VCF, variants; give the FASTA they belong to"),
    (b"BZh", "it is compressed by bzip2; decompress it, or compress it with bgzip"),
    (b"\xfd7zXZ", "it is compressed by xz; decompress it, or compress it with bgzip"),
    (b"\x28\xb5\x2f\xfd", "it is compressed by zstd; decompress it, or compress it with bgzip"),
    (b"PK\x03\x04", "it is a zip archive; unpack it first"),
    (b"\xff\xfe", "it is UTF-16 text; save it as UTF-8 or plain text"),
    (b"\xfe\xff", "it is UTF-16 text; save it as UTF-8 or plain text"),
    (b"ID   ", "it looks like EMBL; turn it into FASTA or GenBank first"),
)


class Original(NamedTuple):
    """What is known of letters that others stand for."""

    md5: str
    letters: Composition


class Record(NamedTuple):
    """One sequence of an input."""

    name: str
    """first word of the header"""
    description: str
    """the rest of the header"""
    topology: str
    """linear or circular"""
    bases: bytes
    """letters as in the file, case kept, without white space; empty if the record has none"""
    original: Original | None = None
    """of a tokenized sequence: what it was before"""


def checksum(record: Record) -> str:
    """Return the MD5 of the upper-case letters of a sequence, or of what it was before it was tokenized.

    It is that of the SAM specification, section 1.3.2.
    """
    if record.original is not None:
        return record.original.md5
    digest = hashlib.md5(usedforsecurity=False)
    for first in range(0, len(record.bases), _PIECE):
        digest.update(record.bases[first : first + _PIECE].upper())
    return digest.hexdigest()


class Sequences(Protocol):
    """A source of sequences: a FASTA or GenBank file, or the reads of a BAM, CRAM or SAM file."""

    source: str
    """what the input is called in messages"""

    def records(self) -> Iterator[Record]:
        """Yield every record in the order of the file, one in memory at a time; may be called again."""
        ...

    def lengths(self) -> dict[str, int]:
        """Return the length in bases of every sequence that a region may name, in the order of the file."""
        ...

    def fetch(self, region: Region) -> bytes:
        """Return the bases of a region."""
        ...


def open_sequences(
    path: str | os.PathLike[str] | IO[bytes] | IO[str],
    *,
    reference: str | os.PathLike[str] | None = None,
    reads: ReadFilter | None = None,
    bam_as: BamAs = "reads",
) -> Sequences:
    """Open a FASTA, GenBank, BAM, CRAM or SAM file, told by its content, compressed or not.

    Parameters
    ----------
    path : file or pipe, ``-`` for standard input; or an open file, which is read to its end
    reference : FASTA that a CRAM was made with
    reads : which reads of a BAM, CRAM or SAM file are taken; default: every primary read
    bam_as : what a BAM, CRAM or SAM file is taken for: its reads, or the consensus of their alignments

    Raises
    ------
    ConfigError : a consensus of something else was asked for
    InputError : the file cannot be read or is empty
    FormatError : it is none of these formats
    """
    source = Source(path)
    with source.path.open("rb") as stream:
        head = stream.read(1 << 16)
    kind = kind_of(head)
    if kind == "empty":
        raise InputError(f"{source.name}: is empty; expected FASTA, GenBank, BAM or CRAM")
    if kind in {"bam", "cram", "sam"}:
        from genoformer.formats.bam import ReadSequences
        from genoformer.formats.consensus import ConsensusSequences

        kinds = ReadSequences if bam_as == "reads" else ConsensusSequences
        return kinds(source, kind=kind, reference=reference, reads=reads)
    check_bam_as(bam_as, source.name)
    if kind == "genbank":
        from genoformer.formats.genbank import GenBankSequences

        return GenBankSequences(source)
    if kind == "hdf5":
        raise FormatError(f"{source.name}: is HDF5, not sequences; expected FASTA, GenBank, BAM or CRAM")
    head = inflate(head)
    for magic, hint in _HINTS:
        if head.startswith(magic):
            raise FormatError(f"{source.name}: is not FASTA, GenBank, BAM or CRAM: {hint}")
    from genoformer.formats.fasta import FastaSequences

    return FastaSequences(source)  # its reader names the line of what is no FASTA


def check_bam_as(bam_as: BamAs, source: str) -> None:
    """Raise ConfigError if what holds no alignments is to be taken for them."""
    if bam_as != "reads":
        raise ConfigError(f"{source}: is no BAM, CRAM or SAM, so there is no consensus to make; leave out --bam-as")


def check_unique(names: Iterable[str], source: str) -> None:
    """Raise InputError, listing the first few, if a name (the first word of the header) comes twice."""
    seen: set[str] = set()
    repeated: dict[str, None] = {}
    for name in names:
        if name in seen:
            repeated[name] = None
        seen.add(name)
    if repeated:
        shown = ", ".join(repr(name) for name in list(repeated)[:_NAMES_SHOWN])
        more = f" and {len(repeated) - _NAMES_SHOWN} more" if len(repeated) > _NAMES_SHOWN else ""
        raise InputError(
            f"{source}: sequence names must differ in their first word, but these come more than once: {shown}{more}; "
            "rename or remove them"
        )


def check_region(region: Region, lengths: dict[str, int], source: str) -> None:
    """Raise InputError unless a region lies on a sequence of the source."""
    length = lengths.get(region.sequence)
    if length is None:
        raise InputError(f"{source}: has no sequence {region.sequence!r}{example_names(lengths)}")
    if not 0 <= region.start <= region.end <= length:
        raise InputError(
            f"{source}: region {region} does not lie on {region.sequence!r}, which has {length} bases (1-{length})"
        )


def example_names(names: Iterable[str]) -> str:
    """Say, for a message, which names there are."""
    names = list(names)
    shown = ", ".join(repr(name) for name in names[:_NAMES_SHOWN])
    more = f" and {len(names) - _NAMES_SHOWN} more" if len(names) > _NAMES_SHOWN else ""
    return f"; it has {shown}{more}" if names else "; it has none"
