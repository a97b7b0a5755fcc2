"""Annotation: coding sequences on their sequences, and the label of every base that follows from them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from genoformer.errors import InputError
from genoformer.tracks import IGNORED


@dataclass(frozen=True)
class CodingSequence:
    """One coding sequence (CDS): its parts in the order in which they are read, the stop codon included.

    Attributes
    ----------
    sequence : name of the sequence it lies on
    strand : +1 or -1
    parts : (start, end) of each part, 0-based half-open on the forward strand, in transcription order: on ``-`` the
        first part is the one read first, usually the one with the highest coordinates
    phase : bases to skip at its 5' end before the first whole codon: 0, 1 or 2
    name : its ID, for messages
    pseudo : it is not (or no longer) translated
    partial : its start or its stop is not on the sequence
    genetic_code : number of the NCBI translation table, None where not stated

    Raises
    ------
    InputError : strand, phase or parts are not as said above
    """

    sequence: str
    strand: int
    parts: tuple[tuple[int, int], ...]
    phase: int = 0
    name: str = ""
    pseudo: bool = False
    partial: bool = False
    genetic_code: int | None = None

    def __post_init__(self) -> None:
        if self.strand not in (1, -1):
            raise InputError(f"{self}: strand must be +1 or -1, got {self.strand!r}")
        if self.phase not in (0, 1, 2):
            raise InputError(f"{self}: phase must be 0, 1 or 2, got {self.phase!r}")
        if not self.parts or any(start >= end for start, end in self.parts):
            raise InputError(f"{self}: every part must have start < end, and there must be one, got {self.parts}")

    def __str__(self) -> str:
        """Name the CDS and where it lies, 1-based, both ends included."""
        spans = ",".join(f"{start + 1}-{end}" for start, end in self.parts)
        return f"sequence {self.sequence!r}: CDS {self.name!r} at {spans} ({'-' if self.strand == -1 else '+'})"

    @property
    def length(self) -> int:
        """Bases of all parts together."""
        return sum(end - start for start, end in self.parts)

    @property
    def is_broken(self) -> bool:
        """Whether it claims to be whole but is not made of whole codons."""
        return not self.partial and (self.length - self.phase) % 3 != 0


@dataclass(frozen=True)
class Annotation:
    """What an annotation file says about its sequences.

    Attributes
    ----------
    coding_sequences : for each sequence that the file names, its CDS in file order (an empty list where it has none)
    topology : "circular" or "linear", for each sequence
    lengths : bases, for the sequences whose length the file states
    """

    coding_sequences: dict[str, list[CodingSequence]] = field(default_factory=dict)
    topology: dict[str, str] = field(default_factory=dict)
    lengths: dict[str, int] = field(default_factory=dict)


class CodingLabels(NamedTuple):
    """Label of every base of one sequence, and what became of its CDS."""

    frames: np.ndarray
    """uint8, (bases,): class of CODING_FRAME (0 none, 1-3 codon position 0-2 on +, 4-6 on -), 255 ignored"""
    strands: np.ndarray
    """uint8, (bases,): 0 none, 1 +, 2 -, 255 ignored"""
    used: int
    """CDS whose bases are labeled"""
    pseudo: int
    """CDS masked because they are marked as pseudo"""
    broken: int
    """CDS masked because they are neither partial nor made of whole codons"""


def coding_frame_labels(length: int, coding_sequences: Iterable[CodingSequence]) -> CodingLabels:
    """Label each base of a sequence with the codon position and the strand of the CDS it lies in.

    - The codon position follows the coding position counted across the parts in transcription order, ``phase``
      honored; so parts may overlap or skip a base (ribosomal slippage). The stop codon is part of the CDS.
    - On ``-`` codon position 0 is the base read first: the one at the highest coordinate of the codon.
    - Where CDS, or parts of one, overlap: in one frame, the label is kept; in several, the frame is IGNORED. The
      strand is kept where they agree on it, else IGNORED.
    - Bases of a pseudo CDS are IGNORED in both, unless a proper CDS covers them: the proper one wins. A CDS that is
      not partial and not made of whole codons is taken for pseudo, and counted as broken.

    Parameters
    ----------
    length : int, bases of the sequence
    coding_sequences : the CDS on it, in any order; the order does not matter

    Returns
    -------
    CodingLabels

    Raises
    ------
    InputError : a CDS reaches beyond an end of the sequence, so the annotation is not of this sequence
    """
    frames = np.zeros(length, dtype=np.uint8)
    strands = np.zeros(length, dtype=np.uint8)
    masked = np.zeros(length, dtype=bool)
    positions = np.tile(np.arange(3, dtype=np.uint8), length // 3 + 2)
    used = pseudo = broken = 0
    for cds in coding_sequences:
        _check_fits(cds, length)
        if cds.pseudo or cds.is_broken:
            pseudo += cds.pseudo
            broken += not cds.pseudo
            for start, end in cds.parts:
                masked[start:end] = True
            continue
        used += 1
        done = -cds.phase
        for start, end in cds.parts:
            codon = positions[done % 3 :][: end - start]
            _merge(frames[start:end], codon + 1 if cds.strand == 1 else codon[::-1] + 4)
            _merge(strands[start:end], 1 if cds.strand == 1 else 2)
            done += end - start
    frames[masked & (frames == 0)] = IGNORED
    strands[masked & (strands == 0)] = IGNORED
    return CodingLabels(frames, strands, used, pseudo, broken)


def _check_fits(cds: CodingSequence, length: int) -> None:
    for start, end in cds.parts:
        if start < 0 or end > length:
            raise InputError(
                f"{cds} does not lie within the {length} bases of the sequence: "
                "use the annotation that belongs to this sequence"
            )


def _merge(labels: np.ndarray, new: np.ndarray | int) -> None:
    """Write labels in place; where others were there before, IGNORED."""
    taken = (labels != 0) & (labels != new)
    labels[:] = new
    labels[taken] = IGNORED
