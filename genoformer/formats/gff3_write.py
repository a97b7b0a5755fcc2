"""GFF3 written: regions and coding sequences, 1-based with both ends included, names escaped as the specification says.

https://github.com/The-Sequence-Ontology/Specifications/blob/master/gff3.md
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple
from urllib.parse import quote

SOURCE = "genoformer"
_IN_SEQID = ".:^*$@!+_?-|"  # and letters and digits: the set of the specification
_IN_VALUE = "".join(map(chr, range(0x20, 0x7F))).translate({ord(c): None for c in "%;=&,"})


class CodingFeature(NamedTuple):
    """A coding sequence to write."""

    identifier: str
    strand: int
    """+1 or -1"""
    parts: Sequence[tuple[int, int]]
    """0-based half-open on the forward strand, in reading direction; over the origin of a circular sequence an end
    exceeds its length"""
    score: float | None
    attributes: Mapping[str, str]
    """tag and value, in order; names of tags are plain"""
    phase: int = 0
    """bases before the first whole codon"""


def escape_name(name: str) -> str:
    """Escape the name of a sequence for column 1.

    >>> escape_name("gi|1/2 x>y%")
    'gi|1%2F2%20x%3Ey%25'
    """
    return quote(name, safe=_IN_SEQID, errors="surrogateescape").replace("~", "%7E")


def escape_value(value: str) -> str:
    """Escape the value of an attribute.

    >>> escape_value("50%; a,b")
    '50%25%3B a%2Cb'
    """
    return quote(value, safe=_IN_VALUE, errors="surrogateescape")


def header(comments: Iterable[str] = ()) -> str:
    """Return the first lines of a file: the version, and comments on how it came about."""
    lines = ["##gff-version 3", *(f"# {' '.join(comment.split())}" for comment in comments)]
    return "\n".join(lines) + "\n"


def sequence_lines(name: str, length: int, *, circular: bool = False) -> str:
    """Return what begins a sequence: its ``##sequence-region``, and a region feature where it is circular.

    Parameters
    ----------
    name : of the sequence
    length : int, bases; nothing is written for an empty sequence, which GFF3 cannot name
    """
    if length < 1:
        return ""
    escaped = escape_name(name)
    lines = f"##sequence-region {escaped} 1 {length}\n"
    if circular:
        attributes = f"ID={escape_value(name)}:1..{length};Is_circular=true"
        lines += f"{escaped}\t{SOURCE}\tregion\t1\t{length}\t.\t+\t.\t{attributes}\n"
    return lines


def coding_lines(name: str, feature: CodingFeature) -> str:
    """Return the lines of a coding sequence, one for each part, in order of position.

    Parameters
    ----------
    name : of the sequence it lies on
    feature : what to write
    """
    attributes = ";".join([f"ID={escape_value(feature.identifier)}"] + [
        f"{tag}={escape_value(value)}" for tag, value in feature.attributes.items()
    ])  # fmt: skip
    strand = "+" if feature.strand > 0 else "-"
    score = "." if feature.score is None else f"{feature.score:.2f}"
    lines = []
    done = -feature.phase
    for start, end in feature.parts:
        phase = -done % 3
        lines.append((start, f"{escape_name(name)}\t{SOURCE}\tCDS\t{start + 1}\t{end}\t{score}\t{strand}\t"
                             f"{phase}\t{attributes}\n"))  # fmt: skip
        done += end - start
    return "".join(line for _, line in sorted(lines))
