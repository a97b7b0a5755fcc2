"""Examples to learn from: annotated genomes held as codes and labels, and windows drawn from them."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np

from genoformer.annotation import Annotation, coding_frame_labels
from genoformer.augmentation import NO_ERRORS, ErrorModel, opposite, recode_to_4, spare_bases
from genoformer.config import Sample
from genoformer.errors import ConfigError, InputError
from genoformer.formats.sequences import Sequences, open_sequences, sniff
from genoformer.tokens import PAD, encode
from genoformer.tracks import IGNORED


@dataclass(frozen=True)
class Genome:
    """An annotated genome, its sequences one behind the other.

    Attributes
    ----------
    name : its file, as the configuration has it
    codes, frames, strands : uint8, (bases,): tokens, classes of CODING_FRAME, and 0 none, 1 +, 2 -; IGNORED = 255
    offsets : int64, (sequences + 1,): where each sequence begins
    genetic_code : NCBI table that most of its CDS name
    weight : how often it is drawn, relative to others of its length
    dropped : what was masked, in words
    digest : of codes and labels
    """

    name: str
    codes: np.ndarray
    frames: np.ndarray
    strands: np.ndarray
    offsets: np.ndarray
    genetic_code: int
    weight: float
    dropped: str
    digest: str

    @property
    def length(self) -> int:
        return len(self.codes)


def read_annotated(fasta: Path, annotation: Path) -> tuple[Sequences, Annotation]:
    """Open a genome and its annotation; a GenBank file can be both."""
    sequences = open_sequences(fasta)
    if sniff(annotation) == "genbank":
        from genoformer.formats.genbank import read_genbank

        return sequences, read_genbank(annotation).annotation
    from genoformer.formats.gff3 import read_gff3

    return sequences, read_gff3(annotation)


def load_genome(sample: Sample, *, root: Path = Path()) -> Genome:
    """Read one genome and label its bases; relative paths start at ``root``.

    Raises
    ------
    InputError : a file is missing, or not one sequence of the annotation is in the FASTA
    """
    fasta, annotated = root / sample.fasta, root / sample.annotation
    for path in (fasta, annotated):
        if not path.is_file():
            raise InputError(f"{path}: no such file; sample paths are relative to {root.resolve()}")
    sequences, annotation = read_annotated(fasta, annotated)
    codes, frames, strands, matched = [], [], [], set()
    pseudo = broken = 0
    for record in sequences.records():
        known = annotation.coding_sequences.get(record.name)
        labels = coding_frame_labels(len(record.bases), known or [])
        if known is None:  # not a word about this sequence: nothing can be learned from it
            labels.frames[:] = IGNORED
            labels.strands[:] = IGNORED
        else:
            matched.add(record.name)
        codes.append(encode(record.bases))
        frames.append(labels.frames)
        strands.append(labels.strands)
        pseudo, broken = pseudo + labels.pseudo, broken + labels.broken
    if not matched:
        named = ", ".join(list(annotation.coding_sequences)[:3]) or "no sequence"
        raise InputError(f"{annotated}: names {named}, and none of these is in {fasta}")
    stated = [c.genetic_code or 11 for cdss in annotation.coding_sequences.values() for c in cdss]
    digest = hashlib.sha256()
    for array in (*codes, *frames):
        digest.update(array.tobytes())
    return Genome(
        name=sample.fasta,
        codes=np.concatenate(codes),
        frames=np.concatenate(frames),
        strands=np.concatenate(strands),
        offsets=np.concatenate([[0], np.cumsum([len(c) for c in codes])]).astype(np.int64),
        genetic_code=int(np.bincount(stated).argmax()) if stated else 11,
        weight=sample.weight,
        dropped=f"{pseudo} pseudo and {broken} broken CDS masked, {len(codes) - len(matched)} sequences without "
        f"annotation ignored{_unmatched(annotation, matched)}",
        digest=digest.hexdigest(),
    )


def _unmatched(annotation: Annotation, matched: set[str]) -> str:
    """Say which sequences of an annotation are not in the FASTA, if any."""
    missing = [name for name in annotation.coding_sequences if name not in matched]
    lost = sum(len(annotation.coding_sequences[name]) for name in missing)
    if not missing:
        return ""
    named = ", ".join(missing[:3]) + (" ..." if len(missing) > 3 else "")
    return f", {lost} CDS of {len(missing)} annotated sequences that are not there dropped ({named})"


class Batch(NamedTuple):
    """Windows of one length."""

    codes: np.ndarray  # (B, L) uint8, PAD behind short ones
    labels: np.ndarray  # (B, L) uint8, IGNORED at padding
    genetic_codes: np.ndarray  # (B,) int64


def draw_batch(
    genomes: Sequence[Genome],
    *,
    window: int,
    count: int,
    recode: float,
    length_power: float,
    rng: np.random.Generator,
    errors: ErrorModel = NO_ERRORS,
) -> Batch:
    """Draw windows at random places and strands, some with errors of reading.

    A window lies within one sequence; a sequence shorter than the window is taken whole and padded. What is read with
    errors is a little longer, so that it fills the window in spite of deletions, and is cut to it at its end.
    """
    shares = np.array([genome.weight * genome.length**length_power for genome in genomes])
    codes = np.full((count, window), PAD, dtype=np.uint8)
    labels = np.full((count, window), IGNORED, dtype=np.uint8)
    genetic_codes = np.empty(count, dtype=np.int64)
    for row, choice in enumerate(rng.choice(len(genomes), size=count, p=shares / shares.sum())):
        genome, rate = genomes[choice], errors.draw_rate(rng)
        start, end = _place(genome.offsets, window + spare_bases(window, rate), rng)
        bases, frames = genome.codes[start:end], genome.frames[start:end]
        if rng.random() < 0.5:
            bases, frames = opposite(bases, frames)
        genetic_codes[row] = genome.genetic_code
        if genome.genetic_code == 11 and rng.random() < recode:
            bases, genetic_codes[row] = recode_to_4(bases, frames), 4
        if rate:
            drawn = errors.draw(bases, rate, rng)
            bases, frames = drawn.read()[:window], drawn.carry(frames)[:window]
        codes[row, : len(bases)], labels[row, : len(bases)] = bases, frames
    return Batch(codes, labels, genetic_codes)


def _place(offsets: np.ndarray, window: int, rng: np.random.Generator) -> tuple[int, int]:
    """Choose a window: a base of the genome at random, its sequence, and a place in it around that base."""
    base = rng.integers(offsets[-1])
    sequence = int(np.searchsorted(offsets, base, side="right")) - 1
    first, last = int(offsets[sequence]), int(offsets[sequence + 1])
    if last - first <= window:
        return first, last
    start = int(np.clip(base - rng.integers(window), first, last - window))
    return start, start + window


_COLUMNS = ("fasta", "annotation", "split", "weight")


def read_samples_table(path: Path) -> tuple[Sample, ...]:
    """Read a table of samples: tab-separated, with a header that names fasta and annotation, and split and weight if
    they are not the defaults; lines that are empty or begin with # are skipped.

    Raises
    ------
    InputError : there is no such file, it has no samples, or a line says something else
    """
    try:
        lines = path.read_text(encoding="utf-8-sig").splitlines()
    except OSError as error:
        raise InputError(f"{path}: cannot be read: {error.strerror}") from None
    except UnicodeDecodeError as error:
        raise InputError(
            f"{path}: not text in UTF-8: {error}; save the table of samples as tab-separated text"
        ) from None
    rows = [(number, line.split("\t")) for number, line in enumerate(lines, 1) if line.strip() and line[0] != "#"]
    header = [column.strip() for column in rows[0][1]] if rows else []
    if not {"fasta", "annotation"} <= set(header) <= set(_COLUMNS) or len(set(header)) < len(header):
        raise InputError(
            f"{path}: the first line must name, tab-separated, the columns fasta, annotation and, if wanted, split and "
            f"weight; got {', '.join(header) or 'nothing'}"
        )
    samples: list[Sample] = []
    seen: dict[tuple[str, str], int] = {}
    for number, row in rows[1:]:
        sample = _sample(f"{path}: line {number}", header, [cell.strip() for cell in row])
        first = seen.setdefault((sample.fasta, sample.split), number)
        if first != number:
            raise InputError(f"{path}: line {number}: {sample.fasta} is in {sample.split} already, by line {first}")
        samples.append(sample)
    if not samples:
        raise InputError(f"{path}: no samples below the header")
    return tuple(samples)


def _sample(where: str, header: Sequence[str], row: Sequence[str]) -> Sample:
    if len(row) != len(header) or not all(row):
        raise InputError(f"{where}: expected {len(header)} cells that are not empty ({', '.join(header)}), got {row}")
    cells = dict(zip(header, row, strict=True))
    try:
        weight = float(cells.get("weight", 1.0))
    except ValueError:
        raise InputError(f"{where}: weight must be a number, got {cells['weight']!r}") from None
    try:
        return Sample(cells["fasta"], cells["annotation"], split=cells.get("split", "train"), weight=weight)
    except ConfigError as error:
        raise InputError(f"{where}: {error}") from None


def load_split(samples: Iterable[Sample], split: str, *, root: Path = Path()) -> list[Genome]:
    """Load the genomes of one split, in the order given; relative paths start at ``root``."""
    return [load_genome(sample, root=root) for sample in samples if sample.split == split]
