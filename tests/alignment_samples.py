"""Files of alignments made of tuples, and random alignments to a reference, for the tests that need them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pysam

REVERSE, SECONDARY, QCFAIL, DUPLICATE, SUPPLEMENTARY = 16, 256, 512, 1024, 2048


class Read(NamedTuple):
    """An alignment as it is in the file."""

    name: str
    flag: int
    bases: str | None
    sequence: int
    start: int
    cigar: str | None
    quality: int = 60
    mapq: int = 60


def write_alignments(
    path: Path,
    references: dict[str, int],
    reads: Iterable[Read],
    *,
    mode: str = "wb",
    order: str = "coordinate",
    lines: dict[str, str] | None = None,
    **options: Any,
) -> Path:
    """Write a BAM, or another kind by ``mode``; ``lines`` goes into each @SQ."""
    header = {
        "HD": {"VN": "1.6", "SO": order},
        "SQ": [{"SN": name, "LN": length, **(lines or {})} for name, length in references.items()],
    }
    with pysam.AlignmentFile(str(path), mode, header=header, **options) as file:
        for one in reads:
            read = pysam.AlignedSegment(file.header)
            read.query_name, read.flag, read.query_sequence = one.name, one.flag, one.bases
            read.reference_id, read.reference_start, read.mapping_quality = one.sequence, one.start, one.mapq
            read.cigarstring = one.cigar
            if one.bases:
                read.query_qualities = pysam.qualitystring_to_array(chr(33 + one.quality) * len(one.bases))
            file.write(read)
    return path


def aligned_pairs(read: pysam.AlignedSegment) -> list[tuple[int | None, int | None]]:
    """Walk along a CIGAR, a base at a time: place on the read, or None, and on the reference, or None."""
    on_read, on_reference, pairs = 0, read.reference_start, []
    for operation, length in read.cigartuples:
        for _ in range(length if operation not in (5, 6) else 0):  # hard clips and padding have no base
            in_read, in_reference = operation in (0, 1, 4, 7, 8), operation in (0, 2, 3, 7, 8)
            pairs.append((on_read if in_read else None, on_reference if in_reference else None))
            on_read, on_reference = on_read + in_read, on_reference + in_reference
    if "P" not in read.cigarstring:  # which pysam takes for an insertion
        assert pairs == read.get_aligned_pairs()
    return pairs


def random_reads(
    rng: np.random.Generator,
    references: Sequence[str],
    count: int,
    *,
    flags: Sequence[int] = (0, REVERSE),
    longest: int = 60,
) -> list[Read]:
    """Draw sorted reads of the references, with every operation of a CIGAR but B; aligned bases match."""
    reads = []
    for number in range(count):
        which = int(rng.integers(len(references)))
        start = here = int(rng.integers(len(references[which]) - 10))
        bases, cigar = [], []
        clips = rng.integers(0, 4, 4)
        if clips[0] == 1:
            cigar.append(f"{clips[1] + 1}H")
        if clips[2] == 1:
            bases.append("".join(rng.choice(list("ACGT"), clips[3] + 1)))
            cigar.append(f"{clips[3] + 1}S")
        for place in range(int(rng.integers(1, 6))):
            length = min(int(rng.integers(1, longest)), len(references[which]) - here)
            if place:
                size, kind = int(rng.integers(1, 6)), "IDNP"[rng.integers(4)]
                if kind in "DN" and here + size >= len(references[which]):
                    break
                cigar.append(f"{size}{kind}")
                bases.append("".join(rng.choice(list("ACGT"), size)) if kind == "I" else "")
                here += size * (kind in "DN")
                length = min(length, len(references[which]) - here)
            if length <= 0:
                length = 1 if here < len(references[which]) else 0
            if not length:
                break
            bases.append(references[which][here : here + length])
            cigar.append(f"{length}{'M=X'[rng.integers(3)]}")
            here += length
        if rng.integers(4) == 0:
            bases.append("AC")
            cigar.append("2S")
        flag = int(rng.choice(flags))
        reads.append(Read(f"r{number}", flag, "".join(bases), which, start, "".join(cigar)))
    return sorted(reads, key=lambda read: (read.sequence, read.start))
