"""Examples to learn from: annotated genomes held as codes and labels, and windows drawn from them."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

import numpy as np

from genoformer.annotation import Annotation, coding_frame_labels
from genoformer.errors import InputError
from genoformer.formats.sequences import Sequences, open_sequences, sniff
from genoformer.tokens import PAD, encode
from genoformer.tracks import CODING_FRAME, IGNORED, TRACKS, Track
from genoformer.training.augmentation import NO_ERRORS, ErrorModel, opposite, opposite_labels, spare_bases
from genoformer.training.config import Sample
from genoformer.training.own_labels import OwnLabels, load_labels
from genoformer.training.recoding import NO_RECODING, Recoding


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
    dropped : what was masked of the annotation, in words
    digest : of codes and labels
    own : labels of the user's own tracks, by name
    recodable : whether its genes are known, so that it can be rewritten to another genetic code
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
    own: Mapping[str, OwnLabels] = field(default_factory=dict)
    recodable: bool = True

    @property
    def length(self) -> int:
        return len(self.codes)

    def classes(self, track: str) -> np.ndarray:
        """Return the classes of a class track: uint8, (bases,), IGNORED where unknown."""
        return self.frames if track == CODING_FRAME.name else self.own[track].values


def read_annotated(fasta: Path, annotation: Path) -> tuple[Sequences, Annotation]:
    """Open a genome and its annotation; a GenBank file can be both."""
    sequences = open_sequences(fasta)
    if sniff(annotation) == "genbank":
        from genoformer.formats.genbank import read_genbank

        return sequences, read_genbank(annotation).annotation
    from genoformer.formats.gff3 import read_gff3

    return sequences, read_gff3(annotation)


def load_genome(sample: Sample, *, root: Path = Path(), tracks: Sequence[Track] = (CODING_FRAME,)) -> Genome:
    """Read one genome and label its bases; relative paths start at ``root``.

    Parameters
    ----------
    tracks : that are learned; only these are labeled

    Raises
    ------
    InputError : a file is missing, there are no bases, or labels are not of these sequences, see `read_labels`
    FormatError : a file is damaged, or in another format
    """
    fasta = _file(root, sample.fasta)
    sequences, annotation = open_sequences(fasta), Annotation()
    if sample.annotation:
        sequences, annotation = read_annotated(fasta, _file(root, sample.annotation))
    names, codes = [], []
    for record in sequences.records():
        names.append(record.name)
        codes.append(encode(record.bases))
    if not sum(map(len, codes)):
        raise InputError(f"{fasta}: has no bases, so that nothing can be learned from it")
    lengths = [len(array) for array in codes]
    uses_genes = bool(sample.annotation) and any(track.name in TRACKS for track in tracks)
    coding = _coding(annotation, names, lengths, source=root / sample.annotation, fasta=fasta) if uses_genes else None
    own = _own_labels(sample, tracks, dict(zip(names, lengths, strict=True)), root=root, count=len(names))
    nothing = np.broadcast_to(np.uint8(IGNORED), (sum(lengths),))  # of no size in memory
    frames, strands, notes = coding or (nothing, nothing, [])
    stated = [c.genetic_code or 11 for cdss in annotation.coding_sequences.values() for c in cdss]
    digest = hashlib.sha256()
    for array in (*codes, frames, *(labels.values for labels in own.values() if labels.known)):
        digest.update(np.ascontiguousarray(array).data)
    return Genome(
        name=sample.fasta,
        codes=np.concatenate(codes),
        frames=frames,
        strands=strands,
        offsets=np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64),
        genetic_code=int(np.bincount(stated).argmax()) if stated else 11,
        weight=sample.weight,
        dropped=", ".join(notes),
        digest=digest.hexdigest(),
        own=own,
        recodable=uses_genes,
    )


def _file(root: Path, name: str) -> Path:
    path = root / name
    if not path.is_file():
        raise InputError(f"{path}: no such file; sample paths are relative to {root.resolve()}")
    return path


def _coding(
    annotation: Annotation, names: Sequence[str], lengths: Sequence[int], *, source: Path, fasta: Path
) -> tuple[np.ndarray, np.ndarray, list[str]]:
    """Return classes of CODING_FRAME and strands of all bases, and what was left out."""
    frames, strands, matched = [], [], set()
    pseudo = broken = 0
    for name, length in zip(names, lengths, strict=True):
        known = annotation.coding_sequences.get(name)
        labels = coding_frame_labels(length, known or [])
        if known is None:  # not a word about this sequence: nothing can be learned from it
            labels.frames[:] = IGNORED
            labels.strands[:] = IGNORED
        else:
            matched.add(name)
        frames.append(labels.frames)
        strands.append(labels.strands)
        pseudo, broken = pseudo + labels.pseudo, broken + labels.broken
    if not matched:
        named = ", ".join(list(annotation.coding_sequences)[:3]) or "no sequence"
        raise InputError(f"{source}: names {named}, and none of these is in {fasta}")
    dropped = f"{pseudo} pseudo and {broken} broken CDS masked, {len(names) - len(matched)} sequences without "
    dropped += f"annotation ignored{_unmatched(annotation, matched)}"
    return np.concatenate(frames), np.concatenate(strands), [dropped]


def _own_labels(
    sample: Sample, tracks: Sequence[Track], lengths: Mapping[str, int], *, root: Path, count: int
) -> dict[str, OwnLabels]:
    """Read the labels of the user's own tracks; names of sequences must tell them apart."""
    own = [track for track in tracks if track.name not in TRACKS]
    if own and len(lengths) < count:
        raise InputError(f"{root / sample.fasta}: several sequences have one name; labels need names that differ")
    fasta = str(root / sample.fasta)
    return {
        track.name: load_labels(track, sample.labels.get(track.name), lengths, root=root, sequences=fasta)
        for track in own
    }


def _unmatched(annotation: Annotation, matched: set[str]) -> str:
    """Say which sequences of an annotation are not in the FASTA, if any."""
    missing = [name for name in annotation.coding_sequences if name not in matched]
    lost = sum(len(annotation.coding_sequences[name]) for name in missing)
    if not missing:
        return ""
    named = ", ".join(missing[:3]) + (" ..." if len(missing) > 3 else "")
    return f", {lost} CDS of {len(missing)} annotated sequences that are not there dropped ({named})"


class Batch(NamedTuple):
    """Windows of one length.

    Attributes
    ----------
    codes : uint8, (B, L), PAD behind short ones
    labels : by track: uint8 classes (B, L), IGNORED at padding, or float32 signals (B, L, channels), NaN at padding
    genetic_codes : int64, (B,)
    one_genome : whether all are of one organism, and share what global attention sums up
    """

    codes: np.ndarray
    labels: dict[str, np.ndarray]
    genetic_codes: np.ndarray
    one_genome: bool = False

    def rows(self, first: int, end: int) -> Batch:
        """Return some of the windows."""
        labels = {name: array[first:end] for name, array in self.labels.items()}
        return self._replace(codes=self.codes[first:end], labels=labels, genetic_codes=self.genetic_codes[first:end])


def draw_batch(  # noqa: PLR0913 - which windows, and how they are changed
    genomes: Sequence[Genome],
    *,
    window: int,
    count: int,
    length_power: float,
    rng: np.random.Generator,
    errors: ErrorModel = NO_ERRORS,
    recoding: Recoding = NO_RECODING,
    one_genome: bool = False,
) -> Batch:
    """Draw windows at random places and strands, some with genes rewritten or with errors of reading.

    A window lies within one sequence; a sequence shorter than the window is taken whole and padded. What is read with
    errors is a little longer, so that it fills the window in spite of deletions, and is cut to it at its end. Windows
    of ``one_genome`` also have their genetic code, their codon usage and their rate of errors in common.
    """
    shares = np.array([genome.weight * genome.length**length_power for genome in genomes])
    batch = _blank(genomes[0].own.values(), window=window, count=count)
    choices = rng.choice(len(genomes), size=count, p=shares / shares.sum())
    seed = int(rng.integers(1 << 62)) if one_genome else None
    for row, choice in enumerate(choices):
        organism = rng if seed is None else np.random.default_rng(seed)
        genome, rate = genomes[choice if seed is None else choices[0]], errors.draw_rate(organism)
        start, end = _place(genome.offsets, window + spare_bases(window, rate), rng)
        bases, frames = genome.codes[start:end], genome.frames[start:end]
        own = {name: labels.values[start:end] for name, labels in genome.own.items()}
        if rng.random() < 0.5:
            bases, frames = opposite(bases, frames)
            own = {name: opposite_labels(values, genome.own[name].track) for name, values in own.items()}
        batch.genetic_codes[row] = genome.genetic_code
        if genome.recodable:
            bases, batch.genetic_codes[row] = recoding.rewrite(
                bases, frames, genome.genetic_code, rng, organism=organism
            )
        if rate:
            drawn = errors.draw(bases, rate, rng)
            bases, frames = drawn.read()[:window], drawn.carry(frames)[:window]
            own = {name: drawn.carry_own(values)[:window] for name, values in own.items()}
        batch.codes[row, : len(bases)] = bases
        for name, values in {CODING_FRAME.name: frames, **own}.items():
            batch.labels[name][row, : len(bases)] = values
    return batch._replace(one_genome=one_genome)


def _blank(own: Iterable[OwnLabels], *, window: int, count: int) -> Batch:
    """Return windows of padding."""
    labels = {CODING_FRAME.name: np.full((count, window), IGNORED, dtype=np.uint8)}
    for track, *_ in own:
        is_class, channels = track.kind == "class", len(track.channels)
        labels[track.name] = (
            np.full((count, window), IGNORED, dtype=np.uint8)
            if is_class
            else np.full((count, window, channels), np.nan, dtype=np.float32)
        )
    return Batch(np.full((count, window), PAD, dtype=np.uint8), labels, np.empty(count, dtype=np.int64))


def pieces(genome: Genome, bases: int, size: int) -> Iterator[tuple[int, int]]:
    """Yield the windows of the first bases of a genome, within its sequences."""
    for first, last in zip(genome.offsets[:-1], genome.offsets[1:], strict=True):
        for start in range(first, min(last, bases), size):
            yield start, min(start + size, last, bases)


def _place(offsets: np.ndarray, window: int, rng: np.random.Generator) -> tuple[int, int]:
    """Choose a window: a base of the genome at random, its sequence, and a place in it around that base."""
    base = rng.integers(offsets[-1])
    sequence = int(np.searchsorted(offsets, base, side="right")) - 1
    first, last = int(offsets[sequence]), int(offsets[sequence + 1])
    if last - first <= window:
        return first, last
    start = int(np.clip(base - rng.integers(window), first, last - window))
    return start, start + window


def load_split(
    samples: Iterable[Sample], split: str, *, root: Path = Path(), tracks: Sequence[Track] = (CODING_FRAME,)
) -> list[Genome]:
    """Load the genomes of one split, in the order given; see `load_genome`."""
    return [load_genome(sample, root=root, tracks=tracks) for sample in samples if sample.split == split]
