"""The door that opens any annotation file: GFF3 or GenBank, told by content."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping

from genoformer.annotation import Annotation
from genoformer.errors import FormatError, InputError
from genoformer.formats.bytestream import sniff

_NAMES_SHOWN = 3


def read_annotation(path: str | os.PathLike[str]) -> Annotation:
    """Read the coding sequences of a GFF3 or GenBank file, plain or gzip.

    Raises
    ------
    InputError : the file cannot be read, or is empty
    FormatError : it is neither, or is damaged
    """
    kind = sniff(path)
    if kind == "empty":
        raise InputError(f"{path}: is empty; expected an annotation, GFF3 or GenBank")
    if kind not in ("unknown", "genbank"):
        raise FormatError(f"{path}: is {kind.upper()}, not an annotation; expected GFF3 or GenBank")
    if kind == "genbank":
        from genoformer.formats.genbank import read_genbank

        return read_genbank(path).annotation
    from genoformer.formats.gff3 import read_gff3

    return read_gff3(path)


def check_fits(annotation: Annotation, lengths: Mapping[str, int], *, source: str, sequences: str) -> list[str]:
    """Check that an annotation is of these sequences, and return the names of those it is of, in their order.

    Parameters
    ----------
    annotation : with or without a length for each of its sequences
    lengths : bases of every sequence
    source, sequences : what the annotation, and the file with the sequences, are called in messages

    Raises
    ------
    InputError : no name in common, two lengths for one sequence, or a CDS off the end
    """
    shared = [name for name in lengths if name in annotation.coding_sequences]
    if not shared:
        raise InputError(
            f"{source}: names {some_names(annotation.coding_sequences)}, and none of these is in {sequences}, "
            f"which has {some_names(lengths)}; give the annotation of these sequences, or rename"
        )
    for name in shared:
        stated = annotation.lengths.get(name, lengths[name])
        if stated != lengths[name]:
            raise InputError(
                f"{source}: sequence {name!r} has {stated} bases, but {lengths[name]} in {sequences}; "
                "give the annotation of this very sequence"
            )
        for cds in annotation.coding_sequences[name]:
            if any(start < 0 or end > lengths[name] for start, end in cds.parts):
                raise InputError(
                    f"{source}: {cds} does not lie within the {lengths[name]} bases it has in {sequences}; "
                    "give the annotation of this very sequence"
                )
    return shared


def some_names(names: Iterable[str]) -> str:
    """Write the first few names for a message."""
    names = list(names)
    more = f" and {len(names) - _NAMES_SHOWN:,} more" if len(names) > _NAMES_SHOWN else ""
    return (", ".join(map(repr, names[:_NAMES_SHOWN])) or "no sequence") + more
