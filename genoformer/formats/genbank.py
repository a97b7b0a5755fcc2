"""GenBank flat files: sequences with their coding sequences, read through Biopython."""

from __future__ import annotations

import logging
import os
import warnings
from collections.abc import Iterator
from typing import TYPE_CHECKING, NamedTuple

from genoformer.annotation import Annotation, CodingSequence
from genoformer.errors import FormatError, InputError
from genoformer.formats.bytestream import Source
from genoformer.formats.gff3 import open_text
from genoformer.formats.numbers import whole
from genoformer.formats.sequences import Record, check_region, check_unique
from genoformer.regions import Region

if TYPE_CHECKING:
    from Bio.SeqFeature import SeqFeature
    from Bio.SeqRecord import SeqRecord

_LOG = logging.getLogger(__name__)
_NAMELESS = ("", ".", "unknown", "<unknown id>", "<unknown description>")
_FATAL_WARNINGS = ("Expected sequence length", "Premature end of file")
"""Biopython only warns of these, but bases are lost."""


class GenBankFile(NamedTuple):
    """What a GenBank file holds."""

    records: list[Record]
    annotation: Annotation


class _Span(NamedTuple):
    start: int
    end: int
    strand: int
    is_here: bool
    """whether it lies on this record, not on another one that the location names"""


def read_genbank(path: str | os.PathLike[str]) -> GenBankFile:
    """Read sequences and coding sequences of a GenBank file, plain or gzip (told by content).

    Joins, complements, ribosomal slippage and locations over the origin are taken as written; ``/codon_start`` is the
    phase. A CDS is partial if an end of its location is fuzzy (``<``, ``>``) or a part lies on another record; pseudo
    if it, or the gene of its locus_tag, is marked so, or if its parts are given as an ``order``. A pseudo gene without
    a CDS is returned as one pseudo CDS. The parts of a CDS on both strands (trans-splicing) become one CDS a strand.

    Parameters
    ----------
    path : file or pipe; ``-`` is standard input

    Returns
    -------
    GenBankFile : records in file order, and their annotation

    Raises
    ------
    InputError : the file cannot be read, holds a record without bases, a protein, or two records of one name
    FormatError : the file is not GenBank, or is damaged
    """
    source = Source(path)
    records = []
    annotation = Annotation()
    for parsed in _parse(source):
        record = _to_record(parsed, source.name)
        records.append(record)
        annotation.topology[record.name] = record.topology
        annotation.lengths[record.name] = len(record.bases)
        annotation.coding_sequences[record.name] = list(_coding_sequences(parsed, record.name, source.name))
    check_unique((record.name for record in records), source.name)
    return GenBankFile(records, annotation)


class GenBankSequences:
    """The records of a GenBank file, see `Sequences`. Fetching regions keeps all its bases in memory."""

    def __init__(self, source: Source):
        self.source = source.name
        self._input = source
        self._bases: dict[str, bytes] | None = None

    def records(self) -> Iterator[Record]:
        """Yield every record in the order of the file.

        Raises
        ------
        InputError : a record has no bases, or is a protein
        FormatError : the file is not GenBank, or is damaged
        """
        for parsed in _parse(self._input):
            yield _to_record(parsed, self.source)

    def lengths(self) -> dict[str, int]:
        """Return the length in bases of every sequence."""
        return {name: len(bases) for name, bases in self._loaded().items()}

    def fetch(self, region: Region) -> bytes:
        """Return the bases of a region.

        Raises
        ------
        InputError : there is no such sequence, it is shorter, or two have the same name
        """
        check_region(region, self.lengths(), self.source)
        return self._loaded()[region.sequence][region.start : region.end]

    def _loaded(self) -> dict[str, bytes]:
        if self._bases is None:
            records = list(self.records())
            check_unique((record.name for record in records), self.source)
            self._bases = {record.name: record.bases for record in records}
        return self._bases


def _parse(source: Source) -> Iterator[SeqRecord]:
    """Yield the records; what Biopython warns of becomes an error where bases are lost, else a log line."""
    from Bio import SeqIO

    done = 0
    with open_text(source) as lines:
        records = SeqIO.parse(lines, "genbank")
        while True:
            where = f"{source.name}: record {done + 1}"
            with warnings.catch_warnings(record=True) as caught:
                warnings.simplefilter("always")
                try:
                    record = next(records, None)
                except FormatError:
                    raise
                except (ValueError, AssertionError, TypeError, LookupError) as error:
                    raise FormatError(f"{where} is not valid GenBank: {_one_line(error)}") from error
            for warning in caught:
                message = _one_line(warning.message)
                if message.startswith(_FATAL_WARNINGS):
                    raise FormatError(f"{where} is damaged or cut short: {message}")
                _LOG.warning("%s: %s", where, message)
            if record is None:
                break
            done += 1
            yield record
    if not done:
        raise FormatError(f"{source.name}: has no GenBank record; expected a line that begins with LOCUS")


def _to_record(parsed: SeqRecord, source: str) -> Record:
    name = str(parsed.name if parsed.id in _NAMELESS else parsed.id)
    topology = "circular" if parsed.annotations.get("topology") == "circular" else "linear"
    description = "" if parsed.description in _NAMELESS else parsed.description
    return Record(name, description, topology, _bases(parsed, f"{source}: record {name!r}"))


def _one_line(message: object) -> str:
    return " ".join(str(message).split())[:200] or type(message).__name__


def _bases(record: SeqRecord, where: str) -> bytes:
    from Bio.Seq import UndefinedSequenceError

    if record.annotations.get("molecule_type") == "protein":
        raise InputError(f"{where} is a protein; expected DNA or RNA")
    try:
        return bytes(record.seq or b"")
    except UndefinedSequenceError:
        raise InputError(f"{where} has no bases; get the file with its sequence, 'GenBank (full)'") from None


def _coding_sequences(record: SeqRecord, name: str, source: str) -> Iterator[CodingSequence]:
    """Yield the CDS of a record in file order, then the pseudo genes that have none."""
    for feature in record.features:
        if feature.type in ("CDS", "gene") and not _has_location(feature):
            raise FormatError(f"{source}: record {name!r}: {feature.type} {_name(feature)!r} has no valid location")
    pseudo_genes = [feature for feature in record.features if feature.type == "gene" and _is_pseudo(feature)]
    pseudo_names = {_name(gene) for gene in pseudo_genes} - {""}
    covered = set()
    for feature in record.features:
        if feature.type == "CDS":
            covered.add(_name(feature))
            yield from _read_cds(feature, name, pseudo=_name(feature) in pseudo_names, source=source)
    for gene in pseudo_genes:
        if _name(gene) not in covered - {""}:
            for span in _spans(gene):
                if span.is_here:
                    yield CodingSequence(name, span.strand, (span[:2],), name=_name(gene), pseudo=True)


def _has_location(feature: SeqFeature) -> bool:
    return feature.location is not None and all(span.start < span.end for span in _spans(feature))


def _name(feature: SeqFeature) -> str:
    for qualifier in ("locus_tag", "gene", "protein_id"):
        if feature.qualifiers.get(qualifier, [""])[0]:
            return str(feature.qualifiers[qualifier][0])
    return ""


def _is_pseudo(feature: SeqFeature) -> bool:
    return "pseudo" in feature.qualifiers or "pseudogene" in feature.qualifiers


def _spans(feature: SeqFeature) -> list[_Span]:
    """List the parts in transcription order."""
    assert feature.location is not None
    parts = feature.location.parts
    return [_Span(int(part.start), int(part.end), part.strand or 1, part.ref is None) for part in parts]


def _is_partial(feature: SeqFeature) -> bool:
    from Bio.SeqFeature import ExactPosition

    assert feature.location is not None
    ends = [end for part in feature.location.parts for end in (part.start, part.end)]
    return "partial" in feature.qualifiers or not all(isinstance(end, ExactPosition) for end in ends)


def _read_cds(feature: SeqFeature, sequence: str, *, pseudo: bool, source: str) -> Iterator[CodingSequence]:
    """Yield one CDS; several where the parts change strand or some lie on another record."""
    name = _name(feature)
    spans = _spans(feature)
    where = f"{source}: record {sequence!r}: CDS {name!r} at {spans[0].start + 1}"
    phase = _number(feature, "codon_start", where, default=1) - 1
    if phase not in (0, 1, 2):
        raise FormatError(f"{where}: /codon_start must be 1, 2 or 3, got {phase + 1}")
    code = _number(feature, "transl_table", where, default=0)
    partial = _is_partial(feature) or not all(span.is_here for span in spans)
    is_broken = not partial and (sum(span.end - span.start for span in spans) - phase) % 3 != 0
    runs = _runs(spans)
    done = -phase
    for run in runs:
        if run[0].is_here:
            yield CodingSequence(
                sequence,
                run[0].strand,
                tuple(span[:2] for span in run),
                phase=-done % 3,
                name=name,
                pseudo=pseudo
                or _is_pseudo(feature)
                or getattr(feature.location, "operator", "join") == "order"
                or (is_broken and len(runs) > 1),
                partial=partial or len(runs) > 1,
                genetic_code=code or None,
            )
        done += sum(span.end - span.start for span in run)


def _runs(spans: list[_Span]) -> list[list[_Span]]:
    """Gather neighboring parts of one strand and record."""
    runs: list[list[_Span]] = []
    for span in spans:
        if runs and runs[-1][0][2:] == span[2:]:
            runs[-1].append(span)
        else:
            runs.append([span])
    return runs


def _number(feature: SeqFeature, qualifier: str, where: str, *, default: int) -> int:
    text = str(feature.qualifiers.get(qualifier, [default])[0])
    value = whole(text)
    if value is None:
        raise FormatError(f"{where}: /{qualifier} must be a number, got {text!r}")
    return value
