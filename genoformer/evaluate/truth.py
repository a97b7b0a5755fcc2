"""What predictions are held against: the labels of every base, and the genes."""

from __future__ import annotations

import os
from typing import NamedTuple, Protocol

import numpy as np

from genoformer.annotation import Annotation, CodingSequence, coding_frame_labels
from genoformer.errors import InputError
from genoformer.formats.annotated import check_fits
from genoformer.formats.spans import read_bed_strands
from genoformer.labels import Labels, check_spans
from genoformer.tracks import CODING_FRAME, IGNORED


class Level(NamedTuple):
    """One classification of the bases.

    Attributes
    ----------
    name : identifier
    classes : names
    groups : the class here of each channel of the track; None: they are the same
    """

    name: str
    classes: tuple[str, ...]
    groups: tuple[int, ...] | None = None


STRAND = Level("strand", ("none", "+", "-"), (0, 1, 1, 1, 2, 2, 2))
FRAME = Level("frame", CODING_FRAME.channels)


class Truth(Protocol):
    """What predictions are held against."""

    source: str
    levels: tuple[Level, ...]
    names: list[str]
    """sequences that it tells of"""
    notes: list[str]
    has_genes: bool

    def labels(self, name: str) -> dict[str, np.ndarray]:
        """Return the class of each base at every level: uint8 (bases,), IGNORED where it must not count."""
        ...

    def genes(self, name: str) -> list[CodingSequence] | None: ...

    def is_circular(self, name: str) -> bool: ...


class CodingTruth:
    """The coding sequences of an annotation, of the sequences that are known by their lengths.

    Raises
    ------
    InputError : it is not of these sequences, or has no CDS that can be scored
    """

    levels: tuple[Level, ...] = (STRAND, FRAME)
    has_genes = True

    def __init__(self, annotation: Annotation, lengths: dict[str, int], *, source: str, sequences: str):
        self.source, self._annotation, self._lengths = source, annotation, lengths
        self.names = check_fits(annotation, lengths, source=source, sequences=sequences)
        found = [cds for name in self.names for cds in annotation.coding_sequences[name]]
        pseudo = sum(cds.pseudo for cds in found)
        broken = sum(cds.is_broken and not cds.pseudo for cds in found)
        if len(found) == pseudo + broken:
            raise InputError(
                f"{source}: has no coding sequence (CDS) to score on the {len(self.names)} sequences that it shares "
                f"with {sequences} ({pseudo} pseudo, {broken} broken); give their annotation"
            )
        self.notes = [
            f"{source}: {len(found) - pseudo - broken:,} CDS are truth; the bases of {pseudo:,} pseudo and {broken:,} "
            "broken ones do not count, nor do those where CDS overlap in several frames (strands)"
        ]
        extra = len(annotation.coding_sequences) - len(self.names)
        if extra:
            self.notes.append(f"{source}: {extra:,} of its sequences are not in {sequences} and left out")
        if len(lengths) > len(self.names):
            self.notes.append(
                f"{sequences}: {len(lengths) - len(self.names):,} sequences are not in {source} and left out"
            )

    def labels(self, name: str) -> dict[str, np.ndarray]:
        labels = coding_frame_labels(self._lengths[name], self._annotation.coding_sequences[name])
        return {STRAND.name: labels.strands, FRAME.name: labels.frames}

    def genes(self, name: str) -> list[CodingSequence] | None:
        return self._annotation.coding_sequences[name]

    def is_circular(self, name: str) -> bool:
        return self._annotation.topology.get(name) == "circular"


class StrandTruth:
    """Stretches that code, with their strand, from BED: for sequences whose bases are known better than their genes.

    A base is of the strand of the lines that cover it, of neither where none does, and does not count where lines of
    both strands overlap or only lines without a strand (``.``) cover it.

    Raises
    ------
    InputError : it is not of these sequences, or has no line with a strand on them
    FormatError : a line has no strand in column 6
    """

    levels: tuple[Level, ...] = (STRAND,)
    has_genes = False

    def __init__(self, path: str | os.PathLike[str], lengths: dict[str, int], *, sequences: str):
        self.source, self._lengths, self._spans = str(path), lengths, read_bed_strands(path)
        self.names = list(lengths)
        self.notes = check_spans(self._spans, lengths, self.source, sequences)
        lines = sum(int((self._spans[name].values != ".").sum()) for name in lengths if name in self._spans)
        if not lines:
            raise InputError(
                f"{path}: has no line with strand + or - on the sequences of {sequences}; nothing to score"
            )
        self.notes.append(f"{path}: {lines:,} stretches are truth, by strand; bases of both strands do not count")

    def labels(self, name: str) -> dict[str, np.ndarray]:
        labels = np.zeros(self._lengths[name], dtype=np.uint8)
        unknown = np.zeros(len(labels), dtype=bool)
        starts, ends, strands = self._spans.get(name, ([], [], []))
        for start, end, strand in zip(starts, ends, strands, strict=True):
            if strand == ".":
                unknown[start:end] = True
                continue
            part, new = labels[start:end], STRAND.classes.index(strand)
            clash = (part != 0) & (part != new)
            part[:] = new
            part[clash] = IGNORED
        labels[unknown & (labels == 0)] = IGNORED
        return {STRAND.name: labels}

    def genes(self, name: str) -> list[CodingSequence] | None:
        return None

    def is_circular(self, name: str) -> bool:
        return False


class LabelTruth:
    """The classes of any other track, as `read_labels` gives them."""

    has_genes = False

    def __init__(self, labels: Labels):
        self.source, self._labels = labels.source, labels
        self.levels: tuple[Level, ...] = (Level("class", labels.track.channels),)
        self.names = list(labels)
        self.notes = labels.notes

    def labels(self, name: str) -> dict[str, np.ndarray]:
        return {"class": self._labels[name]}

    def genes(self, name: str) -> list[CodingSequence] | None:
        return None

    def is_circular(self, name: str) -> bool:
        return False
