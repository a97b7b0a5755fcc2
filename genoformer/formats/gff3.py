"""GFF3 annotation: coding sequences read as parts with strand, phase and genetic code.

GFF3 coordinates are 1-based with both ends included; they become 0-based half-open here.
"""

from __future__ import annotations

import io
import logging
import os
from collections.abc import Iterable, Iterator
from itertools import chain, pairwise
from typing import TYPE_CHECKING, NamedTuple, TextIO
from urllib.parse import unquote

from genoformer.annotation import Annotation, CodingSequence
from genoformer.errors import FormatError
from genoformer.formats.bytestream import ByteStream, Source
from genoformer.formats.numbers import whole

if TYPE_CHECKING:
    from _typeshed import WriteableBuffer as Buffer

_LOG = logging.getLogger(__name__)
_COLUMNS = 9
_LONGEST_LINE = 64 << 20
"""bytes; a small compressed file may hold a line of any length"""
_FALSE = ("false", "no", "0", "00", "")
"""Values that deny a flag; Prodigal writes partial=00 for a whole gene."""
_STRANDS = {"+": 1, "-": -1, ".": 0, "?": 0}
_NUMERIC_STRANDS = {"1": "+", "+1": "+", "-1": "-"}
"""Not GFF3, but some converters write them; they can only mean one thing."""
_PARTIAL = (
    *("partial", "start_range", "end_range"),
    *("5_prime_partial", "3_prime_partial", "five_prime_partial", "three_prime_partial"),
)
_PSEUDO = ("pseudo", "pseudogene")
_BIOTYPE = ("gene_biotype", "biotype")
_TAGS = {"ID", "Parent", "Is_circular", "locus_tag", "transl_table", *_PARTIAL, *_PSEUDO, *_BIOTYPE}


class _Feature(NamedTuple):
    sequence: str
    kind: str
    start: int
    end: int
    strand: int
    phase: str
    attributes: dict[str, str]
    line: int
    is_numeric: bool = False
    """whether its strand was written as a number"""


_Key = tuple[str, str, int]
"""Name of a CDS, sequence, strand."""
_Groups = dict[_Key, list[_Feature]]


def read_gff3(path: str | os.PathLike[str]) -> Annotation:
    """Read the coding sequences, topology and lengths of a GFF3 file, plain or gzip (told by content).

    CDS lines of one ID (on one sequence and strand) are parts of one CDS; so are lines of one Parent if they have no
    ID, or an ID each and phases that continue one another. Parts are put into transcription order: ascending on
    ``+``, descending on ``-``; on a circular sequence a CDS that touches both ends runs over the origin. Codon
    positions follow the phase of the first part; later parts continue from there, whatever phase they state. A CDS is
    pseudo if it, its parent or the gene of its locus_tag is. A pseudo gene without a CDS is returned as one pseudo
    CDS over its whole span. Strands written as 1 and -1 are read as + and -, with one warning that counts them. A
    file with a ``##gff-version`` line and no feature has no genes: programs that find none write so.

    Parameters
    ----------
    path : file or pipe; ``-`` is standard input

    Returns
    -------
    Annotation : with an entry for each sequence that a feature or a ``##sequence-region`` line names

    Raises
    ------
    InputError : the file cannot be read
    FormatError : a line is not GFF3, or the gzip data are damaged
    """
    annotation = Annotation()
    features = []
    opened = Source(path)
    source = opened.name
    numeric: list[int] = []
    with open_text(opened) as lines:
        first = next(lines, "")
        for feature in _read_features(chain([first], lines), source, annotation):
            _note_sequence(feature, annotation)
            if feature.is_numeric:
                numeric.append(feature.line)
            is_parent = "ID" in feature.attributes and feature.kind != "exon"
            if feature.kind == "CDS" or is_parent or _is_pseudo_gene(feature):
                features.append(feature)
    if numeric:
        count, line = len(numeric), numeric[0]
        _LOG.warning("%s: %d features, line %d first, have strand 1 or -1: read as + and -", source, count, line)
    if not annotation.topology and not features and not first.startswith("##gff-version"):
        raise FormatError(f"{source}: no GFF3 features found; expected lines of {_COLUMNS} columns divided by tabs")
    for cds in _assemble(features, source, annotation):
        annotation.coding_sequences[cds.sequence].append(cds)
    return annotation


def open_text(source: Source) -> TextIO:
    """Open the decompressed text of a source; bytes that are not UTF-8 are replaced.

    Raises
    ------
    FormatError : while it is read: the compressed data are damaged or end too early
    """
    return io.TextIOWrapper(
        io.BufferedReader(_Raw(source.open(), source.name), 1 << 16), encoding="utf-8-sig", errors="replace"
    )


class _Raw(io.RawIOBase):
    """What `io` needs to buffer and decode a ByteStream; lines that no such file has are refused, not gathered."""

    def __init__(self, stream: ByteStream, name: str):
        self._stream, self._name = stream, name
        self._since_line = 0

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Buffer, /) -> int:
        view = memoryview(buffer)
        data = self._stream.read(len(view))
        last = max(data.rfind(b"\n"), data.rfind(b"\r"))
        self._since_line = len(data) - last - 1 if last >= 0 else self._since_line + len(data)
        if self._since_line > _LONGEST_LINE:
            raise FormatError(
                f"{self._name}: has a line of more than {_LONGEST_LINE >> 20} MiB, and is no text to read"
            )
        view[: len(data)] = data
        return len(data)

    def close(self) -> None:
        self._stream.close()
        super().close()


def _read_features(lines: Iterable[str], source: str, annotation: Annotation) -> Iterator[_Feature]:
    """Yield the features up to ``##FASTA``; note the ``##sequence-region`` lines on the way."""
    for number, line in enumerate(lines, 1):
        line = line.rstrip("\r\n")
        if line.startswith(("##FASTA", ">")):
            return
        if line.startswith("##sequence-region"):
            _note_region(line, source, number, annotation)
        elif line and not line.startswith("#"):
            yield _parse(line, source, number)


def _note_region(line: str, source: str, number: int, annotation: Annotation) -> None:
    fields = line.split()
    length = whole(fields[3]) if len(fields) == 4 else None
    if length is None:
        raise FormatError(f"{source}: line {number}: expected '##sequence-region NAME START END', got {line!r}")
    name = unquote(fields[1])
    if annotation.lengths.setdefault(name, length) != length:
        raise FormatError(
            f"{source}: line {number}: sequence {name!r} has two lengths, {annotation.lengths[name]} and {fields[3]}"
        )
    annotation.topology.setdefault(name, "linear")
    annotation.coding_sequences.setdefault(name, [])


def _note_sequence(feature: _Feature, annotation: Annotation) -> None:
    annotation.topology.setdefault(feature.sequence, "linear")
    annotation.coding_sequences.setdefault(feature.sequence, [])
    if feature.attributes.get("Is_circular", "").lower() == "true":
        annotation.topology[feature.sequence] = "circular"
        if feature.start == 0:
            annotation.lengths.setdefault(feature.sequence, feature.end)


def _parse(line: str, source: str, number: int) -> _Feature:
    where = f"{source}: line {number}"
    columns = line.split("\t")
    if len(columns) != _COLUMNS:
        raise FormatError(f"{where}: expected {_COLUMNS} columns divided by tabs, got {len(columns)}: {line[:60]!r}")
    name, _, kind, first, last, _, strand, phase, attributes = columns
    start, end = whole(first), whole(last)
    if start is None or end is None:
        raise FormatError(f"{where}: start and end must be whole numbers, got {first!r} and {last!r}")
    if not 1 <= start <= end:
        raise FormatError(f"{where}: expected 1 <= start <= end, got {start} and {end}")
    is_numeric = strand in _NUMERIC_STRANDS
    strand = _NUMERIC_STRANDS.get(strand, strand)
    if strand not in _STRANDS or (kind == "CDS" and not _STRANDS[strand]):
        expected = "'+' or '-'" if kind == "CDS" else "'+', '-', '.' or '?'"
        raise FormatError(f"{where}: strand (column 7) of a {kind} must be {expected}, got {strand!r}")
    if kind == "CDS" and phase not in ("0", "1", "2"):
        raise FormatError(f"{where}: phase (column 8) of a CDS must be 0, 1 or 2, got {phase!r}")
    parsed = _parse_attributes(attributes, where)
    return _Feature(unquote(name), kind, start - 1, end, _STRANDS[strand], phase, parsed, number, is_numeric)


def _parse_attributes(text: str, where: str) -> dict[str, str]:
    if "=" not in text and text.strip() not in ("", "."):
        raise FormatError(f"{where}: attributes must be written as tag=value;..., as in GFF3, got {text[:40]!r}")
    attributes = {}
    for item in text.split(";"):
        tag, equals, value = item.strip().partition("=")
        if tag in _TAGS:
            attributes[tag] = value if equals else "true"
    return attributes


def _is_set(attributes: dict[str, str], tag: str) -> bool:
    return attributes.get(tag, "").lower() not in _FALSE


def _is_pseudo(feature: _Feature) -> bool:
    return (
        feature.kind == "pseudogene"
        or any(_is_set(feature.attributes, tag) for tag in _PSEUDO)
        or any("pseudogene" in feature.attributes.get(tag, "") for tag in _BIOTYPE)
    )


def _is_pseudo_gene(feature: _Feature) -> bool:
    return feature.kind in ("gene", "pseudogene") and _is_pseudo(feature)


def _is_partial(feature: _Feature) -> bool:
    return any(_is_set(feature.attributes, tag) for tag in _PARTIAL)


def _assemble(features: list[_Feature], source: str, annotation: Annotation) -> Iterator[CodingSequence]:
    """Join CDS lines into coding sequences, in file order; then the pseudo genes that have none."""
    by_id = {f.attributes["ID"]: f for f in features if "ID" in f.attributes and f.kind != "CDS"}
    pseudo_genes = [f for f in features if _is_pseudo_gene(f)]
    pseudo_tags = {f.attributes["locus_tag"] for f in pseudo_genes if f.attributes.get("locus_tag")}
    covered: set[str] = set()
    seen = set()
    for key, lines in _rejoin(_group(features), annotation).items():
        relatives = [*lines, *_ancestors(lines[0], by_id)]
        covered |= {f.attributes[tag] for f in relatives for tag in ("ID", "locus_tag") if f.attributes.get(tag)}
        pseudo = any(_is_pseudo(f) or f.attributes.get("locus_tag") in pseudo_tags for f in relatives)
        cds = _join(key, lines, pseudo, source, annotation)
        content = (cds.sequence, cds.strand, cds.parts, cds.phase, cds.pseudo)
        if "ID" in lines[0].attributes or content not in seen:
            yield cds
        seen.add(content)
    for gene in pseudo_genes:
        if not covered & {gene.attributes.get("ID"), gene.attributes.get("locus_tag")}:
            name = unquote(gene.attributes.get("ID", f"line {gene.line}"))
            parts = _unroll([gene], annotation)
            yield CodingSequence(gene.sequence, gene.strand or 1, tuple(parts), name=name, pseudo=True)


def _group(features: list[_Feature]) -> _Groups:
    groups: _Groups = {}
    for feature in features:
        if feature.kind != "CDS":
            continue
        if "ID" in feature.attributes:
            names = [feature.attributes["ID"]]
        else:
            names = feature.attributes.get("Parent", f"line {feature.line}").split(",")
        for name in names:
            groups.setdefault((unquote(name), feature.sequence, feature.strand), []).append(feature)
    return groups


def _rejoin(groups: _Groups, annotation: Annotation) -> _Groups:
    """Join the parts of one transcript that a file gives an ID each, where their phases continue one another.

    Several sources write CDS so. Should the CDS be separate after all, the codon positions are the same either way.
    """
    siblings: dict[_Key, list[_Key]] = {}
    for key, lines in groups.items():
        parent = lines[0].attributes.get("Parent")
        if parent and "ID" in lines[0].attributes and len(lines) == 1:
            siblings.setdefault((unquote(parent), *key[1:]), []).append(key)
    joined = dict(groups)
    for parent_key, keys in siblings.items():
        lines = [groups[key][0] for key in keys]
        if len(keys) > 1 and parent_key not in groups and _phases_continue(lines, annotation):
            for key in keys:
                del joined[key]
            joined[parent_key] = lines
    return joined


def _phases_continue(lines: list[_Feature], annotation: Annotation) -> bool:
    spans = _unroll(lines, annotation)
    by_span = {(f.start, f.end): f for f in lines}
    if set(by_span) != set(spans) or len(by_span) != len(lines):
        return False
    done = -int(by_span[spans[0]].phase)
    for start, end in spans:
        if int(by_span[start, end].phase) != -done % 3:
            return False
        done += end - start
    return all(not (a[0] < b[1] and b[0] < a[1]) for a, b in pairwise(spans))


def _ancestors(feature: _Feature, by_id: dict[str, _Feature]) -> list[_Feature]:
    found: dict[str, _Feature] = {}
    waiting = feature.attributes.get("Parent", "").split(",")
    while waiting:
        name = waiting.pop()
        if name in by_id and name not in found:
            found[name] = by_id[name]
            waiting += by_id[name].attributes.get("Parent", "").split(",")
    return list(found.values())


def _join(key: _Key, lines: list[_Feature], pseudo: bool, source: str, annotation: Annotation) -> CodingSequence:
    name, sequence, strand = key
    parts = _unroll(lines, annotation)
    first = next(f for f in lines if parts[0] in _unroll([f], annotation))
    code = next((f.attributes["transl_table"] for f in lines if f.attributes.get("transl_table")), None)
    if code is not None and whole(code) is None:
        raise FormatError(f"{source}: line {lines[0].line}: transl_table must be a number, got {code!r}")
    return CodingSequence(
        sequence,
        strand,
        tuple(parts),
        phase=int(first.phase),
        name=name,
        pseudo=pseudo,
        partial=any(_is_partial(f) for f in lines),
        genetic_code=None if code is None else whole(code),
    )


def _unroll(lines: list[_Feature], annotation: Annotation) -> list[tuple[int, int]]:
    """Put the parts of a feature into transcription order, over the origin of a circular sequence where need be."""
    sequence, strand = lines[0].sequence, lines[0].strand
    length = annotation.lengths.get(sequence)
    spans = [(f.start, f.end) for f in lines]
    if annotation.topology[sequence] == "circular" and length:
        spans = [piece for span in spans for piece in _wrap(span, length)]
        spans.sort()
        if len(spans) > 1 and spans[0][0] == 0 and max(end for _, end in spans) == length:
            gaps = [after[0] - before[1] for before, after in pairwise(spans)]
            cut = gaps.index(max(gaps)) + 1
            spans = spans[cut:] + spans[:cut]
            return spans if strand != -1 else spans[::-1]
    return sorted(spans) if strand != -1 else sorted(spans, key=lambda span: (span[1], span[0]), reverse=True)


def _wrap(span: tuple[int, int], length: int) -> list[tuple[int, int]]:
    """Cut a span that runs past the origin: GFF3 then lets its end exceed the length of the sequence."""
    start, end = span
    if start < length < end <= 2 * length:
        return [(start, length), (0, end - length)]
    return [span]
