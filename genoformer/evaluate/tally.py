"""What is counted of every stretch of bases: a confusion matrix, a reliability table, a Brier sum; all add up."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from genoformer.evaluate.counts import confusion
from genoformer.tracks import IGNORED

CONFIDENCE_BINS = 15
"""Bins of equal width of the reliability curve and the ECE (Guo et al. 2017)."""


@dataclass
class Tally:
    """Counts of a stretch of bases in one classification.

    Attributes
    ----------
    matrix : int64, (classes, classes): bases by true class (rows) and called class (columns)
    bins : float64, (3, CONFIDENCE_BINS): bases, sum of the highest probability, bases whose class had it, by the
        highest probability
    brier : float, sum of squared differences between probabilities and truth, over classes and bases
    """

    matrix: np.ndarray
    bins: np.ndarray = field(default_factory=lambda: np.zeros((3, CONFIDENCE_BINS)))
    brier: float = 0.0

    @classmethod
    def empty(cls, classes: int) -> Tally:
        return cls(np.zeros((classes, classes), dtype=np.int64))

    @classmethod
    def of(cls, truth: np.ndarray, called: np.ndarray, probabilities: np.ndarray | None, *, classes: int) -> Tally:
        """Count a stretch.

        Parameters
        ----------
        truth : uint8, (bases,): classes, IGNORED where a base does not count
        called : integers, (bases,): classes
        probabilities : float32, (classes, bases), or None if the calls have none
        """
        tally = cls(confusion(truth, called, classes))
        if probabilities is None or not len(truth):
            return tally
        counted = np.flatnonzero(truth != IGNORED)
        truth, called, probabilities = truth[counted], called[counted], probabilities[:, counted]
        places = np.arange(len(counted))
        top = probabilities[called, places].clip(0, 1)
        bins = np.minimum((top * CONFIDENCE_BINS).astype(np.intp), CONFIDENCE_BINS - 1)
        for row, weights in enumerate((None, top, called == truth)):
            tally.bins[row] = np.bincount(bins, weights, minlength=CONFIDENCE_BINS)
        squares = np.einsum("cn,cn->n", probabilities, probabilities)
        tally.brier = float((squares - 2 * probabilities[truth, places] + 1).sum(dtype=np.float64))
        return tally

    def __iadd__(self, other: Tally) -> Tally:
        self.matrix += other.matrix
        self.bins += other.bins
        self.brier += other.brier
        return self

    @property
    def bases(self) -> int:
        return int(self.matrix.sum())

    @property
    def accuracy(self) -> float:
        return float(np.trace(self.matrix)) / self.bases if self.bases else float("nan")

    @property
    def has_probabilities(self) -> bool:
        return bool(self.bins[0].sum())

    @property
    def calibration_error(self) -> float:
        """Expected calibration error: mean distance of confidence from accuracy, weighted by bases; 0 to 1.

        Confidence is the highest probability of a base (Guo et al. 2017, eq. 3). NaN without probabilities.
        """
        if not self.has_probabilities:
            return float("nan")
        return float(np.abs(self.bins[1] - self.bins[2]).sum() / self.bins[0].sum())

    @property
    def brier_score(self) -> float:
        """Mean squared distance of the probabilities from truth, summed over classes (Brier 1950): 0 to 2."""
        return self.brier / self.bases if self.has_probabilities else float("nan")

    def row(self) -> np.ndarray:
        """Return all counts as one vector of float64; see :meth:`from_row`."""
        return np.concatenate([self.matrix.ravel(), self.bins.ravel(), [self.brier]]).astype(np.float64)

    @classmethod
    def from_row(cls, row: np.ndarray, *, classes: int) -> Tally:
        """Make a tally of a vector that :meth:`row` gave, or of a sum of such."""
        size = classes * classes
        return cls(row[:size].reshape(classes, classes), row[size:-1].reshape(3, CONFIDENCE_BINS), float(row[-1]))
