"""Inputs that the tests of the command line share."""

from __future__ import annotations

import gzip
import random
from pathlib import Path

import pysam


def bases(count: int, seed: int = 0) -> str:
    return "".join(random.Random(seed).choices("ACGT", k=count))


def fasta(path: Path, **records: str) -> Path:
    path.write_text("".join(f">{name}\n{sequence}\n" for name, sequence in records.items()))
    return path


def bam(path: Path, count: int = 3, mode: str = "wb", **options: str) -> Path:
    """Write mapped reads of 60 bases, from a reference of 500."""
    reference = bases(500, seed=9)
    header = {"HD": {"VN": "1.6", "SO": "coordinate"}, "SQ": [{"SN": "c", "LN": 500}]}
    with pysam.AlignmentFile(str(path), mode, header=header, **options) as file:
        for number in range(count):
            read = pysam.AlignedSegment(file.header)
            read.query_name, read.query_sequence = f"r{number}", reference[number * 50 : number * 50 + 60]
            read.reference_id, read.reference_start, read.cigarstring = 0, number * 50, "60M"
            file.write(read)
    return path


def cram(path: Path) -> Path:
    """Write a CRAM whose reference is gone."""
    reference = fasta(path.with_suffix(".fa"), c=bases(500, seed=9))
    bam(path, mode="wc", reference_filename=str(reference))
    reference.unlink()
    path.with_suffix(".fa.fai").unlink(missing_ok=True)
    return path


def cut(path: Path, share: float) -> Path:
    """Cut a file short."""
    data = path.read_bytes()
    path.write_bytes(data[: int(len(data) * share)])
    return path


def gzipped(path: Path, text: str) -> Path:
    path.write_bytes(gzip.compress(text.encode()))
    return path
