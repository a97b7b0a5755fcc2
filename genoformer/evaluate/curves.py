"""Precision-recall and ROC curves from histograms of probabilities, which add up over any number of bases."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

BINS = 65_536
"""Probabilities that differ by less than 1 / 65,535 may share a bin, and count as equal."""


class Curve(NamedTuple):
    """One point a threshold, from the highest to the lowest."""

    threshold: np.ndarray
    precision: np.ndarray
    recall: np.ndarray
    false_positive_rate: np.ndarray


class Histogram:
    """Counts of probabilities of each class, apart for bases that are of it and bases that are not.

    Parameters
    ----------
    classes : int

    Attributes
    ----------
    counts : int64, (classes, 2, BINS): not of the class, of the class
    """

    def __init__(self, classes: int):
        self._counts = np.zeros((classes, 2, BINS), dtype=np.int64)
        self._waiting: list[np.ndarray] = []
        self._bases = 0

    def add(self, probabilities: np.ndarray, truth: np.ndarray) -> None:
        """Count bases: probabilities, float32 (classes, bases) from 0 to 1, and the true class of each, (bases,)."""
        bins = (probabilities * (BINS - 1) + 0.5).astype(np.int32)
        np.clip(bins, 0, BINS - 1, out=bins)
        bins += BINS * (truth == np.arange(len(bins))[:, None])
        self._waiting.append(bins)
        self._bases += len(truth)
        if self._bases >= BINS:  # a histogram is not worth making of every short sequence
            self._flush()

    @property
    def counts(self) -> np.ndarray:
        self._flush()
        return self._counts

    def _flush(self) -> None:
        if self._waiting:
            for index, bins in enumerate(np.concatenate(self._waiting, axis=1)):
                self._counts[index] += np.bincount(bins, minlength=2 * BINS).reshape(2, BINS)
        self._waiting, self._bases = [], 0

    def __iadd__(self, other: Histogram) -> Histogram:
        self._flush()
        self._counts += other.counts
        return self

    def average_precision(self, index: int) -> float:
        """Return the sum of precision times the step in recall, over all thresholds; NaN if no base is of the class."""
        found, others = self._running(index)
        if not found[-1]:
            return float("nan")
        steps = np.diff(found, prepend=0)
        return float((steps * found / np.maximum(found + others, 1)).sum() / found[-1])

    def auroc(self, index: int) -> float:
        """Return the chance that a base of the class has a higher probability than another, ties counted half."""
        found, others = self._running(index)
        if not found[-1] or not others[-1]:
            return float("nan")
        steps = np.diff(others, prepend=0)
        middle = found - np.diff(found, prepend=0) / 2
        return float((steps * middle).sum() / (found[-1] * others[-1]))

    def curve(self, index: int) -> Curve:
        """Return the curve at every threshold that a base has; empty if no base, or each, is of the class."""
        found, others = self._running(index)
        used = np.flatnonzero(self.counts[index].sum(axis=0)[::-1])
        if not found[-1] or not others[-1]:
            used = used[:0]
        found, others = found[used], others[used]
        total = np.maximum(found + others, 1)
        last_found, last_others = (found[-1], others[-1]) if len(used) else (1.0, 1.0)
        return Curve((BINS - 1 - used) / (BINS - 1), found / total, found / last_found, others / last_others)

    def _running(self, index: int) -> tuple[np.ndarray, np.ndarray]:
        """Count bases of the class, and others, at each threshold or above it, from the highest one on."""
        others, found = self.counts[index, :, ::-1].cumsum(axis=1).astype(np.float64)
        return found, others
