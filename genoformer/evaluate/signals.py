"""Agreement of predicted with measured signals, streamed: moments that merge (Chan, Golub and LeVeque 1983)."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np


class SignalNumbers(NamedTuple):
    """How two signals agree; NaN where undefined.

    Attributes
    ----------
    pearson : correlation
    r2 : share of the variance of the truth that is explained: 1 - mean_squared_error / variance
    mean_squared_error : in squared units of the track
    bias : mean of prediction minus truth, in units of the track
    bases : that have both
    """

    pearson: float
    r2: float
    mean_squared_error: float
    bias: float
    bases: int


@dataclass
class Moments:
    """Count, means and centered second moments of pairs of prediction and truth."""

    bases: int = 0
    mean_predicted: float = 0.0
    mean_true: float = 0.0
    square_predicted: float = 0.0
    square_true: float = 0.0
    product: float = 0.0

    @classmethod
    def of(cls, predicted: np.ndarray, true: np.ndarray) -> Moments:
        """Take the moments of two arrays, (bases,); pairs with a NaN are left out."""
        known = ~(np.isnan(predicted) | np.isnan(true))
        x, y = predicted[known].astype(np.float64), true[known].astype(np.float64)
        if not len(x):
            return cls()
        mean_x, mean_y = float(x.mean()), float(y.mean())
        x, y = x - mean_x, y - mean_y
        return cls(len(x), mean_x, mean_y, float(x @ x), float(y @ y), float(x @ y))

    def __iadd__(self, other: Moments) -> Moments:
        total = self.bases + other.bases
        if not total:
            return self
        share, weight = other.bases / total, self.bases * other.bases / total
        step_x, step_y = other.mean_predicted - self.mean_predicted, other.mean_true - self.mean_true
        self.square_predicted += other.square_predicted + step_x**2 * weight
        self.square_true += other.square_true + step_y**2 * weight
        self.product += other.product + step_x * step_y * weight
        self.mean_predicted += step_x * share
        self.mean_true += step_y * share
        self.bases = total
        return self

    def numbers(self) -> SignalNumbers:
        """Return how well the prediction agrees with the truth."""
        if not self.bases:
            return SignalNumbers(math.nan, math.nan, math.nan, math.nan, 0)
        bias = self.mean_predicted - self.mean_true
        error = (self.square_predicted - 2 * self.product + self.square_true) / self.bases + bias**2
        spread = math.sqrt(self.square_predicted * self.square_true)
        variance = self.square_true / self.bases
        return SignalNumbers(
            self.product / spread if spread else math.nan,
            1 - error / variance if variance else math.nan,
            max(error, 0.0),
            bias,
            self.bases,
        )
