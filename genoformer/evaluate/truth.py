"""What predictions are held against: the labels of every base, and the genes."""

from __future__ import annotations

from typing import NamedTuple, Protocol

import numpy as np

from genoformer.annotation import Annotation, CodingSequence, coding_frame_labels
from genoformer.errors import InputError
from genoformer.formats.annotated import check_fits
from genoformer.labels import Labels
from genoformer.tracks import CODING_FRAME


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


class LabelTruth:
    """The classes of any other track, as `read_labels` gives them."""

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
