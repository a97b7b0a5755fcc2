"""Alignments as tests of their formats write them."""

from __future__ import annotations

import pysam

LENGTHS = {"c": 400, "d:1-9": 600_000_000}
REFERENCE = "ACGTTGCAAC" * 40
PAIRED, REVERSE, FIRST, LAST, SECONDARY, QCFAIL, DUPLICATE, SUPPLEMENTARY = 1, 16, 64, 128, 256, 512, 1024, 2048


def header(order="coordinate", **line):
    return {
        "HD": {"VN": "1.6", "SO": order},
        "SQ": [{"SN": name, "LN": length, **line} for name, length in LENGTHS.items()],
    }


def write(path, reads, *, mode="wb", head=None, **options):
    """Write reads given as (name, flag, sequence or None, reference number, start, ...)."""
    with pysam.AlignmentFile(str(path), mode, header=header() if head is None else head, **options) as file:
        for name, flag, sequence, number, start, *rest in reads:
            read = pysam.AlignedSegment(file.header)
            read.query_name, read.flag, read.query_sequence = name, flag, sequence
            read.reference_id, read.reference_start = number, start
            mapped = number >= 0 and sequence
            read.mapping_quality = rest[0] if rest else 60 * bool(mapped)
            read.cigarstring = (rest[1] if len(rest) > 1 else f"{len(sequence)}M") if mapped else None
            file.write(read)
    return path


def contents(sequences, **options):
    return [(record.name, record.bases.decode()) for record in sequences.records(**options)]


def reverse_complement(text):
    return text[::-1].translate(str.maketrans("ACGTRYSWKMBDHVN", "TGCAYRSWMKVHDBN"))
