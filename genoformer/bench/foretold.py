"""Performers against theory: single weights over draws beside the closed forms, and the error of outputs foretold."""

from __future__ import annotations

import math
from bisect import bisect_left
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from genoformer.attention.features import EPSILON, FEATURES, draw_projection
from genoformer.attention.theory import (
    Products,
    arc_cosine,
    block_covariance,
    kernel_law,
    pairs_in_blocks,
    row_mean,
    row_product,
)
from genoformer.bench.candidates import Sample, make_performer

_ENTRIES = 4 << 20
_PAIRS, _KERNEL_DRAWS = 16, 200


@dataclass(frozen=True)
class Kernel:
    """The estimate of single weights, over pairs of a query and a key: measured over draws, and by closed forms.

    Attributes
    ----------
    bias, bias_theory : root mean square of mean / exp(x.y) - 1, after the best common factor, which attention ignores
    noise : what the measured bias would be of features without any, from so many draws
    spread, spread_theory : root mean square of standard deviation / mean
    """

    bias: float
    bias_theory: float
    noise: float
    spread: float
    spread_theory: float


@dataclass(frozen=True)
class Prediction:
    """Squared relative output error by theory, to first order: floor^2 + per_row / rows + per_pair * pairs / rows^2.

    ``per_row`` None: no formula is known for it; ``floor`` NaN: nor for what an infinite number of features gives.
    """

    dim: int
    floor: float
    per_row: float | None
    per_pair: float = 0.0

    def error(self, rows: int) -> float | None:
        """Return the predicted error with so many rows drawn, orthogonal in blocks."""
        if self.per_row is None:
            return None
        scatter = self.per_row / rows + self.per_pair * pairs_in_blocks(rows, self.dim) / rows**2
        return math.sqrt(self.floor**2 + max(scatter, 0.0))

    def rows(self, wanted: float, most: int) -> int | None:
        """Return the rows needed for a wanted error, to a multiple of 4; None where ``most`` are not enough."""
        if self.per_row is None or not (self.error(most) or 0.0) <= wanted:
            return None
        return 4 * bisect_left(range(4, most + 1, 4), True, key=lambda rows: (self.error(rows) or 0.0) <= wanted) + 4


class _Tuned(NamedTuple):
    """One head's queries and keys as the features see them, float64, and the damping A of tuned ones."""

    queries: Tensor
    keys: Tensor
    damping: float


def _tuned(kind: str, fit: Sample) -> list[_Tuned]:
    """Return what each head's features see."""
    x, y, damping = fit.queries.double(), fit.keys.double(), torch.zeros(fit.heads)
    if FEATURES[kind].is_tuned:
        moments = make_performer(kind, fit, 2, 0).moments
        balance = moments.balance() if FEATURES[kind].is_scaled else torch.ones(fit.heads, fit.dim)
        damping = moments.damping(balance)
        x, y = x * balance[:, None], y / balance[:, None]
    return [_Tuned(x[h], y[h], float(damping[h])) for h in range(fit.heads)]


def kernel_estimates(kind: str, rows: Tensor, x: Tensor, y: Tensor, *, damping: float = 0.0) -> Tensor:
    """Return phi(x).phi(y) for rows as drawn: (draws, rows, dim), (pairs, dim) twice -> (draws, pairs)."""
    features = FEATURES[kind]
    a, b = rows @ x.T, rows @ y.T  # (draws, rows, pairs)
    half = (x.square() + y.square()).sum(dim=-1) / 2
    if features.function is not None:
        return (features.function(a) * features.function(b)).mean(dim=1)
    if features.rows == "waves":
        return torch.exp(half) * torch.cos(a - b).mean(dim=1)
    log_weight = 2 * damping * rows.square().sum(dim=-1, keepdim=True) + rows.shape[-1] / 2 * math.log1p(-4 * damping)
    return torch.exp(math.sqrt(1 - 4 * damping) * (a + b) + log_weight - half).mean(dim=1)


def measure_kernel(kind: str, fit: Sample, *, size: int, seed: int) -> Kernel:
    """Measure bias and spread of the kernel estimate for random pairs of each head, beside the closed forms."""
    generator = torch.Generator().manual_seed(seed)
    columns: list[list[Tensor]] = [[], [], []]
    for head, (queries, keys, damping) in enumerate(_tuned(kind, fit)):
        x, y = (side[torch.randint(fit.tokens, (_PAIRS,), generator=generator)] for side in (queries, keys))
        law = kernel_law(kind, x, y, count=size, damping=damping)
        rows = draw_projection(kind, heads=_KERNEL_DRAWS, count=size, dim=fit.dim, seed=seed + head).double()
        found = kernel_estimates(kind, rows, x, y, damping=damping)
        exact = torch.exp((x * y).sum(dim=-1))
        for column, values in zip(columns, (exact, torch.stack([*law]), torch.stack([*_moments(found)])), strict=True):
            column.append(values)
    exact, theory, measured = (torch.cat(column, dim=-1) for column in columns)
    return Kernel(
        _bias(measured[0] / exact), _bias(theory[0] / exact), _spread(measured) / math.sqrt(_KERNEL_DRAWS),
        _spread(measured), _spread(theory),
    )  # fmt: skip


def _moments(found: Tensor) -> tuple[Tensor, Tensor]:
    return found.mean(dim=0), found.var(dim=0)


def _bias(ratio: Tensor) -> float:
    common = ratio.sum() / ratio.square().sum()
    return float((common * ratio - 1).square().mean().sqrt())


def _spread(moments: Tensor) -> float:
    return float((moments[1] / moments[0].square()).mean().sqrt())


def predict_error(kind: str, fit: Sample) -> Prediction:
    """Predict the output error of a Performer from inner products alone: README.md, "Variances".

    The output is a ratio of two means over rows. To first order it scatters as the mean of sum_j p_j e(x, y_j) / E e
    (v_j - o) does, p and o being the weights and the output of an infinite number of rows.
    """
    features = FEATURES[kind]
    step = max(1, fit.tokens // max(4, min(fit.tokens, _ENTRIES // fit.tokens**2)))
    bias, size, scatter, common = 0.0, 0.0, 0.0, 0.0
    for head, (x, y, damping) in enumerate(_tuned(kind, fit)):
        values, exact = fit.values[head].double(), fit.exact[head].double()
        for i in range(0, fit.tokens, step):
            kernel = _limit_kernel(kind, x[i], y)
            weights = kernel / kernel.sum()
            output = weights @ values
            bias += float((output - exact[i]).square().sum())
            size += float(exact[i].square().sum())
            if features.function is None:
                given, squares = _products(x[i], y), kernel[:, None] * kernel
                centered = weights[:, None] * (values - output)
                for_row = row_product(kind, given, fit.dim, damping=damping) / squares - 1
                for_pair = block_covariance(kind, given, fit.dim) / squares
                scatter += float((centered * (for_row @ centered)).sum())
                common += float((centered * (for_pair @ centered)).sum())
    floor = math.sqrt(bias / size)
    if features.function is not None:
        return Prediction(fit.dim, floor, 0.0 if features.rows == "identity" else None)
    return Prediction(fit.dim, floor, scatter / size, common / size)


def _limit_kernel(kind: str, x: Tensor, y: Tensor) -> Tensor:
    """Return what an infinite number of features makes of one query and all keys (tokens,); NaN if no formula does."""
    features = FEATURES[kind]
    if features.function is not None:
        if features.rows == "identity":
            return features.function(y.clone()) @ features.function(x.clone())
        known = kind == "relu"
        return arc_cosine(x, y, epsilon=EPSILON) if known else y.new_full((len(y),), math.nan)
    xx, yy, xy = x.square().sum(), y.square().sum(dim=-1), y @ x
    return row_mean(kind, Products(xx, yy, yy, xy, xy, yy), x.shape[-1])


def _products(x: Tensor, y: Tensor) -> Products:
    """Return the inner products of one query and all pairs of keys (tokens, tokens)."""
    xy, yy = y @ x, y.square().sum(dim=-1)
    return Products(x.square().sum(), yy[:, None], yy, xy[:, None], xy, y @ y.T)
