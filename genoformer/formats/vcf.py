"""VCF and BCF: variants checked against a reference, split, left-aligned and sorted.

Positions are 0-based inside; VCF counts from 1.
"""

from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from genoformer.errors import FormatError, GenoformerError, InputError
from genoformer.formats.bytestream import Source, inflate, is_bgzf
from genoformer.formats.htslib import indexed_reference, quiet_and_offline
from genoformer.formats.sequences import Sequences, example_names, open_sequences
from genoformer.regions import Region

if TYPE_CHECKING:
    from pysam import VariantFile

ORIGINAL = "GF_ORIGINAL"
"""INFO field in which bcftools keeps what a record was before it was split or moved."""
SKIPPED = "GF_SKIPPED"
"""INFO field that tells why there is no score."""
REASONS = {
    "unknown_sequence": "the reference has no such sequence",
    "beyond_sequence": "the position does not lie on its sequence",
    "reference_mismatch": "REF is not what the reference has there",
    "ambiguous": "letters other than A, C, G, T in REF, ALT or the reference",
    "no_alternate": "no alternate allele",
    "same": "ALT is REF",
    "symbolic": "a symbolic allele, such as <DEL>",
    "breakend": "a breakend",
    "overlapping_deletion": "the allele *",
    "too_long": "REF or ALT is longer than half the window",
}
"""Why an allele is passed through without a score."""
_LETTERS = re.compile(r"[ACGT]+")
_STEPS = ("given", "split", "good", "rest", "moved", "joined")
_TEXT: Any = {"encoding": "utf-8", "errors": "surrogateescape", "newline": "\n"}
_MEMORY = "200M"
_DAMAGE = (OSError, ValueError, AssertionError, LookupError, OverflowError)
"""What pysam raises at damage."""


class Variant(NamedTuple):
    """One alternate allele: ``reference`` at ``start`` (0-based) of a sequence becomes ``alternate``."""

    sequence: str
    start: int
    reference: str
    alternate: str

    def __str__(self) -> str:
        """Write the variant as VCF counts: from 1."""
        return f"{self.sequence}:{self.start + 1}:{self.reference}>{self.alternate}"


def reason_against_place(
    sequence: str, start: int, reference: str, *, sequences: Sequences, lengths: Mapping[str, int]
) -> str:
    """Return why a reference allele cannot be scored, a key of REASONS; "" if it can."""
    if sequence not in lengths:
        return "unknown_sequence"
    end = start + len(reference)
    if not 0 <= start < end <= lengths[sequence]:
        return "beyond_sequence"
    stated = reference.upper().replace("U", "T")
    there = sequences.fetch(Region(sequence, start, end)).decode("latin-1").upper().replace("U", "T")
    if not _LETTERS.fullmatch(stated) or not _LETTERS.fullmatch(there):
        return "ambiguous"
    return "" if stated == there else "reference_mismatch"


def reason_against_alternate(reference: str, alternate: str | None) -> str:
    """Return why an alternate allele cannot be scored, a key of REASONS; "" if it can."""
    if alternate is None or alternate in ("", "."):
        return "no_alternate"
    if alternate == "*":
        return "overlapping_deletion"
    if alternate.startswith("<"):
        return "symbolic"
    if any(mark in alternate for mark in "[].<>"):
        return "breakend"
    if not _LETTERS.fullmatch(alternate.upper().replace("U", "T")):
        return "ambiguous"
    return "same" if alternate.upper() == reference.upper() else ""


class Info(NamedTuple):
    """Definition of an INFO field."""

    name: str
    number: str
    kind: str
    description: str


_OWN = (
    Info(ORIGINAL, ".", "String", "Record before it was split or left-aligned, as bcftools norm writes it"),
    Info(
        SKIPPED, "1", "String", "Why there is no score. " + "; ".join(f"{key}: {why}" for key, why in REASONS.items())
    ),
)


@dataclass
class Variants:
    """A VCF that was checked, normalized and sorted.

    Attributes
    ----------
    path : BCF in a temporary folder, one alternate allele a record; those that cannot be scored have SKIPPED
    records, alleles : of the input
    normal : records now
    changed : records that were split or moved
    notes : what a user should know, in words
    """

    path: Path
    records: int = 0
    alleles: int = 0
    normal: int = 0
    changed: int = 0
    notes: tuple[str, ...] = ()

    @contextmanager
    def open(self) -> Iterator[VariantFile]:
        """Open the records."""
        import pysam

        with quiet_and_offline(), pysam.VariantFile(str(self.path)) as file:
            yield file


def open_reference(path: str | os.PathLike[str]) -> Sequences:
    """Open the FASTA that variants belong to.

    Raises
    ------
    InputError, FormatError : it cannot be read, or is not FASTA
    """
    from genoformer.formats.fasta import FastaSequences

    sequences = open_sequences(path)
    if not isinstance(sequences, FastaSequences) or str(path) == "-":
        raise InputError(f"{path}: the reference of variants must be a FASTA file; give the one they were called with")
    return sequences


def read_variants(
    path: str | os.PathLike[str], fasta: str | os.PathLike[str], folder: Path, *, fields: Iterable[Info] = ()
) -> Variants:
    """Check the variants of a VCF or BCF against a reference, split and left-align them, and sort them.

    Records are carried as lines of text: what pysam writes itself has its INFO/END changed.

    Parameters
    ----------
    path : VCF, plain, gzip or bgzip, or BCF; ``-`` is standard input
    fasta : the reference
    folder : an empty folder for temporary files, some three times the size of the input as text
    fields : INFO fields that will be written; what an earlier run wrote there is removed

    Raises
    ------
    FormatError : not VCF, or damaged
    InputError : a file cannot be read, or none of the sequences is in the reference
    """
    source = _checked(Source(path), folder)
    sequences = open_reference(fasta)
    lengths = sequences.lengths()
    own = (*_OWN, *fields)
    found = Variants(folder / "sorted.bcf")
    given, split, good, rest, moved, joined = (folder / f"{name}.vcf" for name in _STEPS)
    header = with_fields(_whole_header(source), own)
    named: Counter[str] = Counter()
    with given.open("w", **_TEXT) as lines:
        lines.write(header)
        for record in _records(source):
            named[record.sequence] += 1
            found.alleles += record.alleles
            lines.write(with_info(record.text, {}, drop={field.name for field in own}))
    found.records = named.total()
    _check_names(named, lengths, source.name, sequences.source)
    notes = list(_lengths_differ(source, lengths, sequences.source))
    norm = ("norm", "--old-rec-tag", ORIGINAL, "--no-version", "--force", "-Ov")
    for warning in _bcftools(*norm, "-m-", "-o", split, given, name=source.name):
        notes.append(f"{warning}; where records are split, such fields are left out")
    with good.open("w", **_TEXT) as fit, rest.open("w", **_TEXT) as unfit:
        fit.write(header)
        for line in _lines(split):
            reason = _reason_against(line, sequences, lengths)
            (unfit if reason else fit).write(with_info(line, {SKIPPED: reason} if reason else {}))
    with quiet_and_offline():
        reference = indexed_reference(Source(fasta))
    _bcftools(*norm, "-c", "w", "-f", reference, "-o", moved, good, name=source.name)
    with joined.open("w", **_TEXT) as lines:
        lines.write(header)
        for line in chain(_lines(moved), _lines(rest)):
            found.normal += 1
            found.changed += f"{ORIGINAL}=" in line
            lines.write(line)
    _bcftools("sort", "-m", _MEMORY, "-T", folder / "sort", "-Ob", "-o", found.path, joined, name=source.name)
    for file in (given, split, good, rest, moved, joined):
        file.unlink()
    (folder / "plain.vcf").unlink(missing_ok=True)
    found.notes = tuple(notes)
    return found


def _reason_against(line: str, sequences: Sequences, lengths: Mapping[str, int]) -> str:
    """Return why the one allele of a record cannot be scored, or ""."""
    name, position, _, reference, alternate, _ = line.split("\t", 5)
    return reason_against_place(
        name, int(position) - 1, reference, sequences=sequences, lengths=lengths
    ) or reason_against_alternate(reference, alternate)


def _lines(path: Path) -> Iterator[str]:
    """Yield the records of a VCF as text."""
    with path.open(**_TEXT) as lines:
        yield from (line for line in lines if not line.startswith("#"))


def with_fields(header: str, fields: Iterable[Info]) -> str:
    """Put definitions of INFO fields into the text of a header, in place of those of the same names."""
    fields = list(fields)
    old = tuple(f"##INFO=<ID={field.name}," for field in fields)
    *lines, last = [line for line in header.splitlines() if not line.startswith(old)]
    lines += [
        f'##INFO=<ID={name},Number={number},Type={kind},Description="{said}">' for name, number, kind, said in fields
    ]
    return "\n".join([*lines, last]) + "\n"


def with_info(line: str, values: Mapping[str, str], *, drop: Collection[str] = ()) -> str:
    """Change the INFO column of a record: add values, after dropping some fields."""
    columns = line.rstrip("\n").split("\t")
    kept = [field for field in columns[7].split(";") if field != "." and field.partition("=")[0] not in drop]
    columns[7] = ";".join([*kept, *(f"{name}={value}" for name, value in values.items())]) or "."
    return "\t".join(columns) + "\n"


def _checked(source: Source, folder: Path) -> Source:
    """Return the source if it is VCF or BCF, and whole at its end; decompressed if htslib could not go back in it."""
    with source.path.open("rb") as stream:
        head = stream.read(1 << 16)
    text = inflate(head)
    if not text:
        raise InputError(f"{source.name}: is empty; expected VCF or BCF")
    if not text.startswith((b"##fileformat=VCF", b"BCF\2")):
        raise FormatError(f"{source.name}: is not VCF or BCF; expected a first line ##fileformat=VCFv4.x")
    with source.open() as stream:  # refuses bgzip data without its end
        if not stream.is_gzip or is_bgzf(head):
            return source
        plain = folder / "plain.vcf"
        with plain.open("wb") as copy:
            while piece := stream.read(1 << 20):
                copy.write(piece)
    unpacked = Source(plain)
    unpacked.name = source.name
    return unpacked


class _Record(NamedTuple):
    sequence: str
    alleles: int
    text: str


def _records(source: Source, *, seen: list[str] | None = None) -> Iterator[_Record]:
    """Yield the records of a file; where its reader only says that there is damage, say where.

    ``seen`` gets the header as it is at the end: its reader adds to it what records use undeclared.
    """
    import pysam

    number, last = 0, "the header"
    try:
        with quiet_and_offline(), pysam.VariantFile(str(source.path)) as file:
            for record in file:
                given = _Record(record.chrom, max(len(record.alts or ()), 1), str(record))
                number, last = number + 1, f"{record.chrom}:{record.pos}"
                yield given
            if seen is not None:
                seen.append(str(file.header))
    except _DAMAGE as error:
        if isinstance(error, GenoformerError) or getattr(error, "errno", None):
            raise
        if isinstance(error, UnicodeDecodeError):
            raise FormatError(
                f"{source.name}: record {number + 1:,}, after {last}, holds bytes that are no UTF-8, which VCF is in; "
                "convert it with `iconv -t UTF-8`"
            ) from error
        raise FormatError(
            f"{source.name}: record {number + 1:,}, after {last}, is damaged or cut short; "
            "`bcftools view` may say more of it"
        ) from error


def _whole_header(source: Source) -> str:
    """Read a file once; return its header with all that its records use, declared or not."""
    seen: list[str] = []
    for _ in _records(source, seen=seen):
        pass
    return seen[0]


def _bcftools(command: str, *arguments: str | os.PathLike[str], name: str) -> list[str]:
    """Run a command of bcftools; return its warnings, raise its complaint as ours."""
    import pysam.bcftools

    run = getattr(pysam.bcftools, command)
    with quiet_and_offline():
        try:
            run(*map(str, arguments), catch_stdout=False)
        except pysam.SamtoolsError as error:
            said = str(error).partition("stderr=")[2].replace("\\n", "\n").strip("'\n ")
            last = said.splitlines()[-1] if said else str(error)
            raise FormatError(f"{name}: bcftools {command} cannot work on it: {last}") from error
        said = run.get_messages()
    return [line for line in (said or "").splitlines() if line.startswith("Warning")]


def _check_names(named: Mapping[str, int], lengths: Mapping[str, int], source: str, reference: str) -> None:
    """Raise InputError if there are records, and none on a sequence of the reference."""
    if named and not any(name in lengths for name in named):
        raise InputError(
            f"{source}: not one of its sequences is in {reference}{example_names(lengths)}; the variants are on "
            f"{', '.join(map(repr, list(named)[:5]))}: give their reference, or `bcftools annotate --rename-chrs`"
        )


def _lengths_differ(source: Source, lengths: Mapping[str, int], reference: str) -> Iterator[str]:
    import pysam

    try:
        with quiet_and_offline(), pysam.VariantFile(str(source.path)) as file:
            stated = {name: file.header.contigs[name].length for name in map(str, file.header.contigs)}
    except _DAMAGE as error:
        raise FormatError(
            f"{source.name}: the sequences in its header cannot be read; write or fetch it again"
        ) from error
    for name, length in stated.items():
        if name in lengths and length not in (None, lengths[name]):
            yield (
                f"sequence {name!r} has {length:,} bases by the header, {lengths[name]:,} in {reference}; "
                "is this the reference that the variants were called with?"
            )
