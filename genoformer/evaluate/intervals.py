"""Confidence intervals: the stretches that were measured are drawn anew, with replacement (Efron 1979)."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from genoformer.evaluate.counts import score_of

DRAWS = 1000
MOST_UNITS = 16_384
LEVEL = 0.95


class Interval(NamedTuple):
    """The middle 95% of what redrawn data gave; NaN where there was too little to draw from."""

    low: float
    high: float


class Units:
    """Counts of stretches, one row each; when there are too many, neighbors are joined, so memory is bounded."""

    def __init__(self) -> None:
        self._rows: list[np.ndarray] = []
        self._joined = 1
        self._pending: list[np.ndarray] = []

    def add(self, row: np.ndarray) -> None:
        """Append the counts of a stretch."""
        self._pending.append(row)
        if len(self._pending) == self._joined:
            self._rows.append(np.sum(self._pending, axis=0))
            self._pending = []
        if len(self._rows) >= MOST_UNITS:
            self._rows = [first + second for first, second in zip(self._rows[::2], self._rows[1::2], strict=True)]
            self._joined *= 2

    @property
    def rows(self) -> np.ndarray:
        """float64, (units, counts)."""
        return np.array([*self._rows, *([np.sum(self._pending, axis=0)] if self._pending else [])])


def bootstrap(
    rows: np.ndarray, measure: Callable[[np.ndarray], list[float]], *, draws: int = DRAWS, seed: int = 0
) -> list[Interval]:
    """Return an interval for each number that ``measure`` makes of summed counts.

    Parameters
    ----------
    rows : float64, (units, counts)
    measure : takes (counts,), returns numbers
    draws : int, times that as many units as there are get drawn with replacement
    seed : int

    Returns
    -------
    list of Interval : NaN with fewer than two units
    """
    if len(rows) < 2:
        numbers = len(measure(rows.sum(axis=0))) if len(rows) else 0
        return [Interval(float("nan"), float("nan"))] * numbers
    rng = np.random.default_rng(seed)
    found = []
    for _ in range(draws):
        weights = np.bincount(rng.integers(len(rows), size=len(rows)), minlength=len(rows))
        found.append(measure(weights @ rows))
    return [_middle(column) for column in np.array(found).T]


def bootstrap_f1(right: int, called: int, true: int, *, draws: int = DRAWS, seed: int = 0) -> list[Interval]:
    """Return intervals of precision, recall and F1 of genes: each gene that is true, called or both is drawn alike."""
    kinds = np.array([right, called - right, true - right])
    if kinds.sum() < 2:
        return [Interval(float("nan"), float("nan"))] * 3
    drawn = np.random.default_rng(seed).multinomial(kinds.sum(), kinds / kinds.sum(), size=draws)
    return [_middle(column) for column in np.array([score_of(r, r + c, r + t) for r, c, t in drawn.tolist()]).T]


def _middle(values: np.ndarray) -> Interval:
    values = values[~np.isnan(values)]
    if not len(values):
        return Interval(float("nan"), float("nan"))
    low, high = np.quantile(values, [(1 - LEVEL) / 2, (1 + LEVEL) / 2])
    return Interval(float(low), float(high))
