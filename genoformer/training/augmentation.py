"""Augmentation: sequences as a sequencer would read them, errors and either strand, labels carried along."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from genoformer.tokens import COMPLEMENT, MASK, N, reverse_complement
from genoformer.tracks import CODING_FRAME, IGNORED, Track

NOTHING = 255
"""In `Errors.inserted`: no base is inserted there."""

MIRRORED_FRAMES = np.arange(256, dtype=np.uint8)
"""Class of CODING_FRAME on the opposite strand, by class; IGNORED stays."""
MIRRORED_FRAMES[: len(CODING_FRAME.channels)] = CODING_FRAME.reverse_complement

MIRRORED_STRANDS = np.array([0, 2, 1, *range(3, 256)], dtype=np.uint8)
"""Strand label (0 none, 1 +, 2 -) on the opposite strand."""


def _sides(channels: tuple[str, ...]) -> np.ndarray:
    sides = np.zeros(256, dtype=np.int8)
    sides[: len(channels)] = [{"+": 1, "-": -1}.get(channel[0], 0) for channel in channels]
    return sides


FRAME_SIDES = _sides(CODING_FRAME.channels)
"""Strand that a class of CODING_FRAME is read on: +1, -1, or 0 for neither."""
STRAND_SIDES = _sides(("none", "+", "-"))
"""The same for strands: 0 none, 1 +, 2 -."""

_LONGEST_RUN = 12


class Errors(NamedTuple):
    """What became of each base of a stretch of n bases when it was read."""

    letters: np.ndarray
    """uint8, (n,): the base as it was read, another one where it was substituted"""
    kept: np.ndarray
    """bool, (n,): False where the base was deleted"""
    inserted: np.ndarray
    """uint8, (n + 1,): the base read in addition before base i (the last: behind all), NOTHING where there is none"""

    def read(self) -> np.ndarray:
        """Return the codes that were read."""
        return _between(self.inserted, self.letters)[self._present()]

    def carry(self, labels: np.ndarray, sides: np.ndarray = FRAME_SIDES) -> np.ndarray:
        """Return the label of each base that was read, from those of the true bases.

        A base keeps its label: the codon position that it has in the true gene. A deleted base's label is gone. An
        inserted base takes the label of the true base before it as the gene is read: on ``-`` the one to its right.
        So the labels of the opposite strand are the mirrored ones. Between a gene's start and what lies before it,
        that is none.

        Parameters
        ----------
        labels : uint8, (n,)
        sides : int8, (256,): strand that each label is read on, see `FRAME_SIDES` and `STRAND_SIDES`
        """
        left = np.concatenate([[IGNORED], labels]).astype(np.uint8)
        right = np.concatenate([labels, [IGNORED]]).astype(np.uint8)
        follows, precedes = sides[left] > 0, sides[right] < 0
        unknown = (follows & precedes) | (left == IGNORED) | (right == IGNORED)
        between = np.where(unknown, np.uint8(IGNORED), np.uint8(0))
        between = np.where(follows & ~precedes, left, np.where(precedes & ~follows, right, between))
        return _between(between, labels)[self._present()]

    def carry_own(self, labels: np.ndarray) -> np.ndarray:
        """Return the labels of an own track of each base that was read, from those of the true bases.

        A base keeps its label. An inserted base has that of its two neighbors where it is the same class, else none:
        IGNORED, or NaN of a signal. So the labels of the opposite strand are the mirrored ones.

        Parameters
        ----------
        labels : uint8 classes, (n,), or float32 values, (n, channels)
        """
        gaps = np.full((len(labels) + 1, *labels.shape[1:]), IGNORED if labels.ndim == 1 else np.nan, labels.dtype)
        if labels.ndim == 1:
            gaps[1:-1] = np.where(labels[1:] == labels[:-1], labels[1:], np.uint8(IGNORED))
        return _between(gaps, labels)[self._present()]

    def opposite(self) -> Errors:
        """Return the same errors as they are on the opposite strand."""
        inserted = np.where(self.inserted == NOTHING, np.uint8(NOTHING), COMPLEMENT[np.minimum(self.inserted, MASK)])
        return Errors(reverse_complement(self.letters), self.kept[::-1], inserted[::-1])

    def _present(self) -> np.ndarray:
        return _between(self.inserted != NOTHING, self.kept)


def _between(gaps: np.ndarray, bases: np.ndarray) -> np.ndarray:
    """Lay n + 1 values of gaps and n of bases out in reading order: gap, base, gap, ..., base, gap."""
    laid = np.empty((2 * len(bases) + 1, *bases.shape[1:]), dtype=bases.dtype)
    laid[0::2], laid[1::2] = gaps, bases
    return laid


@dataclass(frozen=True)
class ErrorModel:
    """How reads err: substitutions, insertions and deletions in equal parts.

    Attributes
    ----------
    rates : errors per true base; each read has one of these
    shares : how often each rate is drawn, relative to the others; none: all alike
    homopolymers : from 0, insertions and deletions are spread evenly, to 1, they are in proportion to the length of
        the run of equal bases (12 at most) that a base lies in, and an insertion lengthens its run
    """

    rates: tuple[float, ...] = (0.0,)
    shares: tuple[float, ...] = ()
    homopolymers: float = 0.0

    @property
    def is_silent(self) -> bool:
        """Whether there are never errors."""
        return not any(self.rates)

    def draw_rate(self, rng: np.random.Generator) -> float:
        """Draw the rate of a read; nothing is drawn where there is nothing to choose."""
        if len(self.rates) == 1:
            return self.rates[0]
        shares = np.array(self.shares or [1.0] * len(self.rates))
        return self.rates[int(rng.choice(len(self.rates), p=shares / shares.sum()))]

    def draw(self, codes: np.ndarray, rate: float, rng: np.random.Generator) -> Errors:
        """Draw what happens to each base; an unknown base is never substituted."""
        length = len(codes)
        chance, runs = np.full(length, rate / 3), None
        indel = chance
        if self.homopolymers and length:
            runs = np.minimum(run_lengths(codes), _LONGEST_RUN)
            weight = 1 + self.homopolymers * (runs - 1)
            indel = np.minimum(chance * weight / max(weight.mean(), 1.0), 0.3)
        happens = rng.random(length)
        other = rng.integers(1, 4, size=length, dtype=np.uint8)
        added = rng.integers(0, 4, size=length, dtype=np.uint8)
        if runs is not None:
            lengthens = (rng.random(length) < self.homopolymers * (1 - 1 / runs)) & (codes < N)
            added = np.where(lengthens, codes, added)
        kept = happens >= indel
        inserts = kept & (happens < 2 * indel)
        substitutes = kept & ~inserts & (happens < 2 * indel + chance) & (codes < N)
        inserted = np.full(length + 1, NOTHING, dtype=np.uint8)
        inserted[1:][inserts] = added[inserts]
        return Errors(np.where(substitutes, (codes + other) % 4, codes), kept, inserted)


NO_ERRORS = ErrorModel()


def spare_bases(length: int, rate: float) -> int:
    """Return how many bases more a stretch must have so that a read of it has ``length`` in all but rare cases."""
    return math.ceil(4 * math.sqrt(length * rate * 2 / 3)) + 2 if rate else 0


def run_lengths(codes: np.ndarray) -> np.ndarray:
    """Return the length of the run of equal codes that each base lies in: int64, (n,)."""
    changes = np.flatnonzero(np.diff(codes)) + 1
    lengths = np.diff(np.concatenate([[0], changes, [len(codes)]]))
    return np.repeat(lengths, lengths)


def opposite(codes: np.ndarray, frames: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return codes and classes of CODING_FRAME of the opposite strand."""
    return reverse_complement(codes), MIRRORED_FRAMES[frames[::-1]]


def opposite_labels(labels: np.ndarray, track: Track) -> np.ndarray:
    """Return the labels that an own track has on the opposite strand.

    Parameters
    ----------
    labels : uint8 classes, (n,), or float32 values, (n, channels)
    track : whose `reverse_complement` tells which channel becomes which
    """
    turned = np.array(track.reverse_complement)
    if track.kind == "signal":
        return labels[::-1, turned]
    mirrored = np.arange(256, dtype=np.uint8)
    mirrored[: len(turned)] = turned
    return mirrored[labels[::-1]]
