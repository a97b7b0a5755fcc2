"""What is evaluated: the probabilities of a store, or the genes of another program's GFF3, piece by piece."""

from __future__ import annotations

import os
from collections.abc import Container, Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, Protocol

import numpy as np

from genoformer.annotation import Annotation, CodingSequence
from genoformer.errors import InputError
from genoformer.formats.annotated import check_fits, read_annotation, some_names
from genoformer.formats.sequences import open_sequences
from genoformer.store import TrackStore
from genoformer.tracks import CODING_FRAME, Track

if TYPE_CHECKING:
    from genoformer.genes.gene import Gene

PIECE = 65_536
"""Bases held at once."""


class Piece(NamedTuple):
    """Predictions for a stretch of a sequence."""

    sequence: str
    start: int
    frames: np.ndarray
    """(bases,): class called for each base, -1 where nothing was predicted"""
    probabilities: np.ndarray | None
    """float32, (classes, bases), NaN where nothing was predicted; of a signal track its values, (channels, bases)"""


class Predictions(Protocol):
    """What is evaluated."""

    source: str
    track: Track
    has_probabilities: bool
    genes: dict[str, list[CodingSequence]] | None
    """by sequence; None where there are no genes"""
    notes: list[str]

    def lengths(self) -> dict[str, int]: ...

    def is_circular(self, name: str) -> bool: ...

    def pieces(self, names: Container[str]) -> Iterator[Piece]:
        """Yield these sequences one after the other, in pieces of at most PIECE bases, in order."""
        ...


class StorePredictions:
    """The values of a track in a store: probabilities or signals; genes are called from them when asked for."""

    has_probabilities = True

    def __init__(self, store: TrackStore, track: str | None = None):
        self.source, self._store = str(store.path), store
        name = next(iter(store.tracks)) if track is None else track
        if name not in store.tracks:
            raise InputError(f"{store.path}: has no track {name!r}; it has {', '.join(store.tracks)}")
        self.track = store.tracks[name]
        if store.dtype == np.uint8:
            raise InputError(f"{store.path}: track {name!r} holds codes, not predictions; give what predict wrote")
        self.genes: dict[str, list[CodingSequence]] | None = None
        self.notes: list[str] = []

    def lengths(self) -> dict[str, int]:
        table = self._store.sequences
        table.check_unique()
        return dict(zip(table.names, table.lengths.tolist(), strict=True))

    def is_circular(self, name: str) -> bool:
        table = self._store.sequences
        return table.topology[table.index(name)] == "circular"

    def pieces(self, names: Container[str]) -> Iterator[Piece]:
        for block in self._store.blocks(self.track.name, size=PIECE):
            if block.sequence in names:
                values = np.ascontiguousarray(block.values[self.track.name].T, dtype=np.float32)
                called = values.argmax(axis=0)
                called[np.isnan(values[0])] = -1
                yield Piece(block.sequence, block.start, called, values)

    def call_genes(self, fasta: str | os.PathLike[str] | None) -> None:
        """Call the genes as `genoformer export` does, from the bases that were predicted; note it where they are gone.

        Parameters
        ----------
        fasta : what was predicted; None: where it was then

        Raises
        ------
        InputError : the bases are not those that were predicted
        """
        from genoformer.genes import CallSettings
        from genoformer.genes.stored import stored_code, stored_genes

        source = Path(str(self._store.metadata.get("input", "")) if fasta is None else fasta)
        if fasta is None and not source.is_file():
            self.notes.append(f"{self.source}: no genes, as these need the bases too; give the FASTA with --fasta")
            return
        code = stored_code(self._store)
        lengths = self.lengths()
        self.genes = {}
        for found in stored_genes(self._store, open_sequences(source), settings=CallSettings(genetic_code=code)):
            length = lengths[found.name]
            self.genes[found.name] = [as_coding_sequence(gene, found.name, length) for gene in found.genes]
        count, rings = sum(map(len, self.genes.values())), self._store.sequences.topology.count("circular")
        over = f", over the origin of {rings:,} circular sequence(s) too" if rings else ""
        self.notes.append(
            f"{self.source}: {count:,} genes were called from it as export does, genetic code {code}{over}"
        )

    def close(self) -> None:
        self._store.close()


def as_coding_sequence(gene: Gene, name: str, length: int) -> CodingSequence:
    """Return a called gene as CDS; over the origin of a circular sequence it has a part at either end."""
    parts: list[tuple[int, int]] = []
    for start, end in gene.parts:
        pieces = [(start, end)]
        if end > length:
            pieces = [(start, length), (0, end - length)] if start < length else [(start - length, end - length)]
        parts += pieces if gene.strand == 1 else reversed(pieces)
    return CodingSequence(name, gene.strand, tuple(parts), partial=gene.open_left or gene.open_right)


class GenePredictions:
    """The genes of a GFF3 or GenBank file; each base is of the longest gene there, or of none."""

    has_probabilities = False

    def __init__(self, annotation: Annotation, lengths: dict[str, int], *, source: str, sequences: str):
        if annotation.coding_sequences:
            check_fits(annotation, lengths, source=source, sequences=sequences)
        self.source, self.track, self._lengths = source, CODING_FRAME, lengths
        self._topology = annotation.topology
        self.genes: dict[str, list[CodingSequence]] | None = {
            name: [cds for cds in annotation.coding_sequences.get(name, []) if not cds.pseudo] for name in lengths
        }
        called = sum(map(len, self.genes.values()))
        pseudo = sum(cds.pseudo for name in lengths for cds in annotation.coding_sequences.get(name, []))
        self.notes = [f"{source}: {called:,} genes, each base counted for the longest that covers it"]
        if pseudo:
            self.notes.append(f"{source}: {pseudo:,} genes that it calls pseudo are not counted as calls")
        unknown = [name for name in annotation.coding_sequences if name not in lengths]
        if unknown:
            self.notes.append(f"{source}: {len(unknown):,} sequences are not in {sequences} and left out")

    def lengths(self) -> dict[str, int]:
        return self._lengths

    def is_circular(self, name: str) -> bool:
        return self._topology.get(name) == "circular"

    def pieces(self, names: Container[str]) -> Iterator[Piece]:
        assert self.genes is not None
        for name in self.genes:
            if name in names:
                called = painted_frames(self._lengths[name], self.genes[name])
                for start in range(0, len(called), PIECE):
                    yield Piece(name, start, called[start : start + PIECE], None)


def painted_frames(length: int, genes: Iterable[CodingSequence]) -> np.ndarray:
    """Return the class of CODING_FRAME of each base, int8 (bases,): where genes overlap, that of the longest."""
    frames = np.zeros(length, dtype=np.int8)
    positions = np.tile(np.arange(3, dtype=np.int8), length // 3 + 2)
    for cds in sorted(genes, key=lambda cds: cds.length):
        done = -cds.phase
        for start, end in cds.parts:
            codon = positions[done % 3 :][: end - start]
            frames[start:end] = codon + 1 if cds.strand == 1 else codon[::-1] + 4
            done += end - start
    return frames


def read_genes(
    path: str | os.PathLike[str], *, fasta: str | os.PathLike[str] | None = None, truth: Annotation | None = None
) -> GenePredictions:
    """Read genes that were called, GFF3 or GenBank.

    Parameters
    ----------
    path : file
    fasta : file whose sequences the genes were called in; it gives their lengths
    truth : gives the lengths that neither ``fasta`` nor the file itself has

    Raises
    ------
    InputError : the file cannot be read, does not fit the sequences, or their lengths are not known
    FormatError : it is neither, or is damaged
    """
    annotation = read_annotation(path)
    if fasta is not None:
        return GenePredictions(annotation, open_sequences(fasta).lengths(), source=str(path), sequences=str(fasta))
    lengths = {**({} if truth is None else truth.lengths), **annotation.lengths}
    known = annotation.coding_sequences if truth is None else truth.coding_sequences
    if annotation.coding_sequences and not any(name in known for name in annotation.coding_sequences):
        raise InputError(
            f"{path}: has genes of {some_names(annotation.coding_sequences)}, and none of these is in the truth, which "
            f"has {some_names(known)}; give genes and truth of the same sequences"
        )
    unknown = [name for name in (*annotation.coding_sequences, *known) if name not in lengths]
    if unknown:
        raise InputError(
            f"{path}: no annotation states the length of sequence {unknown[0]!r}; give the sequences with --fasta"
        )
    return GenePredictions(annotation, lengths, source=str(path), sequences="the annotations")
