"""Simulate reads of phage lambda, aligned by construction: `python data/simulate_reads.py data/lambda_reads.bam`.

Long reads with substitutions, insertions and deletions on both strands, some soft-clipped, and beside them what a
reader of BAM must get right: pairs, a mate that is not mapped, a chimeric read with a hard-clipped supplementary
alignment, a secondary alignment, unmapped reads, a name that comes twice, a read without sequence. The same records
come out every time.
"""

from __future__ import annotations

import gzip
import hashlib
import sys
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pysam

REFERENCE = Path(__file__).resolve().parent / "lambda.fa.gz"
SEED = 1416
LONG_READS, PAIRS, UNMAPPED = 60, 12, 3
SUBSTITUTION, INSERTION, DELETION = 0.03, 0.01, 0.02
LETTERS = np.frombuffer(b"ACGT", dtype=np.uint8)
MATCH, INSERT, DELETE, SOFT_CLIP, HARD_CLIP = 0, 1, 2, 4, 5  # operations of a CIGAR
REVERSE, SECONDARY, SUPPLEMENTARY = 0x10, 0x100, 0x800
RIGHT, WRONG = 25, 8  # qualities
Cigar = list[tuple[int, int]]


class Copy(NamedTuple):
    """A stretch of the reference, copied with errors; everything on the forward strand."""

    start: int
    bases: bytes
    qualities: np.ndarray
    cigar: Cigar
    errors: int


class Draws:
    """Random numbers, all made from uniform ones, whose stream numpy keeps from version to version."""

    def __init__(self, seed: int) -> None:
        self._generator = np.random.Generator(np.random.PCG64(seed))

    def uniform(self, *shape: int) -> np.ndarray:
        return self._generator.random(shape)

    def integer(self, low: int, high: int) -> int:
        return low + int(self._generator.random() * (high - low))

    def letters(self, count: int) -> np.ndarray:
        return LETTERS[(self.uniform(count) * 4).astype(np.int64)]


def copy_with_errors(reference: np.ndarray, start: int, length: int, draws: Draws) -> Copy:
    """Copy ``length`` bases of the reference (uint8 letters); the first and the last one are copied faithfully."""
    original = reference[start : start + length]
    chance = draws.uniform(length)
    chance[[0, -1]] = 1.0
    deleted = chance < DELETION
    substituted = ~deleted & (chance < DELETION + SUBSTITUTION)
    inserted = draws.uniform(length) < INSERTION
    inserted[-1] = False
    code = np.searchsorted(LETTERS, original)
    other = LETTERS[(code + 1 + (draws.uniform(length) * 3).astype(np.int64)) % 4]
    copied = np.where(substituted, other, original)
    # two columns: what stands for the base of the reference, and what was inserted behind it
    bases = np.stack([copied, draws.letters(length)], axis=1)
    kept = np.stack([~deleted, inserted], axis=1)
    wrong = np.stack([substituted, inserted], axis=1)
    operations = np.stack([np.where(deleted, DELETE, MATCH), np.full(length, INSERT)], axis=1)
    aligned = np.stack([np.ones(length, dtype=bool), inserted], axis=1)
    return Copy(
        start,
        bases[kept].tobytes(),
        np.where(wrong[kept], WRONG, RIGHT).astype(np.uint8),
        run_lengths(operations[aligned]),
        int(deleted.sum() + substituted.sum() + inserted.sum()),
    )


def run_lengths(operations: np.ndarray) -> Cigar:
    """Return (operation, length) of each run."""
    first = np.flatnonzero(np.diff(operations, prepend=-1))
    lengths = np.diff(first, append=len(operations))
    return list(zip(operations[first].tolist(), lengths.tolist(), strict=True))


def read_reference(path: Path = REFERENCE) -> tuple[str, np.ndarray]:
    """Return name and letters of the only record."""
    lines = gzip.decompress(path.read_bytes()).splitlines()
    return lines[0][1:].split()[0].decode(), np.frombuffer(b"".join(lines[1:]).upper(), dtype=np.uint8)


def segment(name: str, flag: int, copy: Copy | None, *, mapq: int = 60) -> pysam.AlignedSegment:
    """Make an alignment of a copy; without one, a read that is not mapped."""
    made = pysam.AlignedSegment()
    made.query_name, made.flag, made.mapping_quality = name, flag, mapq
    if copy is not None:
        made.reference_id, made.reference_start, made.cigartuples = 0, copy.start, copy.cigar
        made.query_sequence = copy.bases.decode()
        made.query_qualities = pysam.qualitystring_to_array((copy.qualities + 33).tobytes().decode())
        made.set_tag("NM", copy.errors)
    return made


def set_bases(made: pysam.AlignedSegment, bases: bytes) -> None:
    """Give a read its bases, all of the same quality."""
    made.query_sequence = bases.decode()
    made.query_qualities = pysam.qualitystring_to_array(chr(RIGHT + 33) * len(bases))


def long_reads(reference: np.ndarray, draws: Draws) -> list[pysam.AlignedSegment]:
    """Make reads of 300 to 3,000 bases, half of them of the reverse strand; every tenth begins with an adapter."""
    made = []
    for number in range(LONG_READS):
        length = draws.integer(300, 3001)
        copy = copy_with_errors(reference, draws.integer(0, len(reference) - length), length, draws)
        if number % 10 == 0:
            adapter = draws.letters(20).tobytes()
            qualities = np.concatenate([np.full(20, RIGHT, dtype=np.uint8), copy.qualities])
            copy = copy._replace(bases=adapter + copy.bases, qualities=qualities, cigar=[(SOFT_CLIP, 20), *copy.cigar])
        flag = REVERSE if draws.integer(0, 2) else 0
        made.append(segment(f"long{number + 1:03}", flag, copy, mapq=draws.integer(20, 61)))
    return made


def pairs(reference: np.ndarray, draws: Draws) -> list[pysam.AlignedSegment]:
    """Make pairs of 150 bases from both ends of fragments; of the last one, the second mate is not mapped."""
    made = []
    for number in range(PAIRS):
        fragment = draws.integer(300, 600)
        start = draws.integer(0, len(reference) - fragment)
        left = copy_with_errors(reference, start, 150, draws)
        right = copy_with_errors(reference, start + fragment - 150, 150, draws)
        name = f"pair{number + 1:02}"
        first, second = (99, 147) if number % 2 == 0 else (163, 83)
        mates = [segment(name, first, left), segment(name, second, right)]
        if number == PAIRS - 1:
            mates = [segment(name, 73, left), segment(name, 133, None, mapq=0)]
            set_bases(mates[1], draws.letters(150).tobytes())
            mates[1].reference_id, mates[1].reference_start = 0, left.start
            fragment = 0
        for one, other, sign in ((mates[0], mates[1], 1), (mates[1], mates[0], -1)):
            one.next_reference_id, one.next_reference_start = 0, other.reference_start
            one.template_length = sign * fragment
        made += mates
    return made


def special_reads(reference: np.ndarray, draws: Draws) -> list[pysam.AlignedSegment]:
    """Make one of each kind that a reader can get wrong."""
    left = copy_with_errors(reference, 5_000, 600, draws)
    right = copy_with_errors(reference, 30_000, 400, draws)
    whole = Copy(
        left.start,
        left.bases + right.bases,
        np.concatenate([left.qualities, right.qualities]),
        [*left.cigar, (SOFT_CLIP, len(right.bases))],
        left.errors,
    )
    clipped = right._replace(cigar=[(HARD_CLIP, len(left.bases)), *right.cigar])
    secondary = segment("long001", SECONDARY, None, mapq=0)
    secondary.reference_id, secondary.reference_start, secondary.cigartuples = 0, 12_345, [(MATCH, 300)]
    bare = segment("bare", 0, None)  # mapped, but its sequence was not kept
    bare.reference_id, bare.reference_start, bare.cigartuples = 0, 20_000, [(MATCH, 500)]
    twins = [segment("twin", flag, copy_with_errors(reference, 40_000, 350, draws)) for flag in (0, REVERSE)]
    unmapped = []
    for number in range(UNMAPPED):
        unmapped.append(segment(f"unmapped{number + 1}", 4, None, mapq=0))
        set_bases(unmapped[-1], draws.letters(200 + 100 * number).tobytes())
    return [
        segment("chimera", 0, whole),
        segment("chimera", SUPPLEMENTARY, clipped),
        secondary,
        bare,
        *twins,
        *unmapped,
    ]


def simulate(output: str | Path) -> None:
    """Write the reads, sorted by coordinate."""
    name, reference = read_reference()
    draws = Draws(SEED)
    reads = [*long_reads(reference, draws), *pairs(reference, draws), *special_reads(reference, draws)]
    reads.sort(key=lambda read: (read.reference_id < 0, read.reference_start))
    header = {
        "HD": {"VN": "1.6", "SO": "coordinate"},
        "SQ": [{"SN": name, "LN": len(reference), "M5": hashlib.md5(reference.tobytes()).hexdigest()}],
        "CO": [f"simulated reads of {name}, seed {SEED}, made by data/simulate_reads.py"],
    }
    with pysam.AlignmentFile(str(output), "wb", header=header) as file:
        for read in reads:
            file.write(read)


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit("usage: python data/simulate_reads.py OUT.bam")
    simulate(sys.argv[1])
