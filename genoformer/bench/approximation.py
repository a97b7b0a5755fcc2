"""How far linear attention is from exact softmax on given queries and keys, what theory says, and what size to take."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import count

import torch
from torch import Tensor

from genoformer.attention import Performer
from genoformer.attention.estimate import estimate
from genoformer.attention.features import FEATURES
from genoformer.attention.theory import rows_of
from genoformer.bench.candidates import Candidate, Sample, Stretches
from genoformer.bench.foretold import Kernel, Prediction, measure_kernel, predict_error

NOISY = 2.0
"""Mean squared norm of queries and keys above which estimates of exp(x.y) are mostly noise."""
STEP = 8
"""Sizes are multiples of it."""
_MARGIN = 0.98
_MOST_ROWS = 1 << 20


@dataclass(frozen=True)
class Settings:
    """What to measure.

    Attributes
    ----------
    size : features, slots, or tokens of a window, at which mechanisms are compared
    curve : sizes of the curves
    wanted : relative error of the outputs that a size is sought for
    limit : largest number of features tried; slots and windows are tried up to the number of tokens
    draws : seeds a measurement is repeated with
    seed : of everything
    """

    size: int = 128
    curve: tuple[int, ...] = (16, 32, 64, 128, 256, 512, 1024)
    wanted: float = 0.1
    limit: int = 4096
    draws: int = 5
    seed: int = 0


@dataclass(frozen=True)
class Matrix:
    """What the exact matrix of attention weights is like: means over heads.

    Attributes
    ----------
    effective_rank : exp of the entropy of the singular values (Roy and Vetterli 2007)
    rank_90, rank_99 : singular values that hold 90% and 99% of the squared sum
    row_entropy, most_entropy : of a row of weights, and of even weights, in nats
    """

    effective_rank: float
    rank_90: float
    rank_99: float
    row_entropy: float
    most_entropy: float


@dataclass(frozen=True)
class Point:
    """Error at a size: mean and standard deviation over draws, and the prediction."""

    size: int
    error: float
    spread: float
    predicted: float | None


@dataclass(frozen=True)
class Advice:
    """The smallest size found for a wanted error, None where none does; the error is the largest of held-out draws.

    ``work`` is how many operations it takes, as a share of exact attention's among as many tokens as a stretch has.
    ``theory`` is the size by `Prediction` (performers), or of the order 5 ln n / (e^2 - e^3) of the Linformer paper.
    """

    size: int | None
    held_out_error: float
    theory: int | None
    work: float | None
    reason: str


@dataclass(frozen=True)
class Report:
    """One mechanism on one layer."""

    name: str
    at_size: Point
    kernel: Kernel | None
    floor_theory: float | None
    curve: tuple[Point, ...]
    advice: Advice


@dataclass(frozen=True)
class LayerAudit:
    """One layer's queries and keys, and every mechanism on them."""

    name: str
    tokens: int
    heads: int
    dim: int
    squared_norm: float
    trivial_error: float
    own_error: float | None
    matrix: Matrix
    reports: tuple[Report, ...]
    notes: tuple[str, ...]


def audit(
    stretches: Stretches,
    candidates: Sequence[Candidate],
    settings: Settings,
    *,
    report: Callable[[str], None] = lambda _: None,
) -> LayerAudit:
    """Compare mechanisms with exact attention on one layer; ``report`` is told which one is being looked at."""
    fit = stretches.fit
    reports = []
    for candidate in candidates:
        report(f"{fit.name}: {candidate.name}")
        reports.append(_report(candidate, stretches, settings))
    return LayerAudit(
        fit.name, fit.tokens, fit.heads, fit.dim, fit.squared_norm, fit.trivial_error, fit.own_error,
        describe_matrix(fit.weights), tuple(reports), tuple(_notes(fit, reports, settings)),
    )  # fmt: skip


def _report(candidate: Candidate, stretches: Stretches, settings: Settings) -> Report:
    fit = stretches.fit
    is_performer = candidate.family == "performer"
    prediction = predict_error(candidate.kind, fit) if is_performer else None
    most = settings.limit if is_performer else fit.tokens
    sizes = [size for size in settings.curve if size <= most] if candidate.has_size else [fit.dim]
    size = min(settings.size, most) if candidate.has_size else fit.dim
    points = {n: _point(candidate, fit, n, settings, prediction) for n in dict.fromkeys([*sizes, size])}
    kernel = measure_kernel(candidate.kind, fit, size=size, seed=settings.seed) if is_performer else None
    return Report(
        candidate.name,
        points[size],
        kernel,
        None if prediction is None or math.isnan(prediction.floor) else prediction.floor,
        tuple(points[n] for n in sizes),
        advise(candidate, stretches, settings, most=most, theory=_size_by_theory(candidate, fit, settings, prediction)),
    )


def _notes(fit: Sample, reports: Sequence[Report], settings: Settings) -> list[str]:
    notes = []
    if fit.squared_norm > NOISY:
        notes.append(
            f"queries and keys have a mean squared norm of {fit.squared_norm:.3g}: above about {NOISY:g}, features "
            "that estimate exp(x.y) are noise, and variances measured over a few draws are far too small"
        )
    if fit.trivial_error <= settings.wanted:
        notes.append(
            f"the mean of the values alone has an error of {fit.trivial_error:.2g}, below the wanted "
            f"{settings.wanted:g}: this attention is almost even, and a small error says little"
        )
    own = fit.own[0] if fit.own is not None else None
    if isinstance(own, Performer) and fit.own_error is not None and own.kind.rows != "identity":
        fresh = next((r.at_size.error for r in reports if r.name == f"performer {own.features}"), math.inf)
        if fit.own_error > 2 * fresh:
            notes.append(
                f"the model's own {own.count} {own.features} features are off by {fit.own_error:.2g}, fresh ones by "
                f"{fresh:.2g}: trained with one draw, it has learned to use these rows rather than what they estimate"
            )
    worse = [r.name for r in reports if r.at_size.error > fit.trivial_error]
    if worse:
        notes.append(f"no better than the mean of the values at this size: {', '.join(worse)}")
    return notes


def describe_matrix(weights: Tensor) -> Matrix:
    """Describe attention weights (heads, tokens, tokens)."""
    found = []
    for matrix in weights:
        values = torch.linalg.svdvals(matrix.double())
        share, energy = values / values.sum(), values.square().cumsum(0) / values.square().sum()
        entropy = -torch.special.xlogy(matrix, matrix).sum(dim=-1).double().mean()
        ranks = [int((energy < part).sum()) + 1 for part in (0.90, 0.99)]
        found.append([float(torch.exp(-torch.special.xlogy(share, share).sum())), *ranks, float(entropy)])
    rank, rank_90, rank_99, entropy = torch.tensor(found, dtype=torch.float64).mean(dim=0).tolist()
    return Matrix(rank, rank_90, rank_99, entropy, math.log(weights.shape[-1]))


def errors(candidate: Candidate, fit: Sample, sample: Sample, size: int, seeds: Sequence[int]) -> list[float]:
    """Return the error of each seed; one where seeds change nothing."""
    seeds = seeds if candidate.is_random else seeds[:1]
    return [candidate.error(fit, sample, size=size, seed=seed) for seed in seeds]


def _point(candidate: Candidate, fit: Sample, size: int, settings: Settings, prediction: Prediction | None) -> Point:
    found = torch.tensor(errors(candidate, fit, fit, size, _seeds(settings, 0)), dtype=torch.float64)
    predicted = None
    if prediction is not None:
        predicted = prediction.error(rows_of(candidate.kind, count=size, dim=fit.dim))
    return Point(size, float(found.mean()), float(found.std(correction=0)), predicted)


def _seeds(settings: Settings, group: int) -> list[int]:
    """Seeds of a group of draws; no two groups share one."""
    first = settings.seed * 1_000_003 + group * settings.draws
    return list(range(first, first + settings.draws))


# Advice --------------------------------------------------------------------------------------------------------------


def advise(candidate: Candidate, stretches: Stretches, settings: Settings, *, most: int, theory: int | None) -> Advice:
    """Search the smallest size whose error is the wanted one in every draw, then check it on held-out tokens and seeds.

    Errors fall as one over the square root of the size, so a size that fails on held-out draws is raised by what it
    lacks, and checked on new ones.
    """
    fit, held, wanted = stretches.fit, stretches.held_out, settings.wanted

    def worst(size: int) -> float:
        return max(errors(candidate, fit, fit, size, _seeds(settings, 1)))

    most = max(STEP, most // STEP * STEP)
    size = _search(worst, wanted * _MARGIN, most) if candidate.has_size else fit.dim
    if size is None:
        return Advice(
            None, max(errors(candidate, fit, held, most, _seeds(settings, 2))), theory, None, f"no size up to {most:,}"
        )
    for attempt in count():
        found = max(errors(candidate, fit, held, size, _seeds(settings, 2 + attempt)))
        if found <= wanted:
            return Advice(size, found, theory, _work(candidate, fit, size), "met")
        if size >= most or not candidate.has_size:
            break
        size = min(most, _rounded(size * min(1.25, max(1.1, (found / wanted) ** 2))))
    reason = f"no size up to {most:,}" if candidate.has_size else "not met"
    return Advice(None, found, theory, None, reason)


def _work(candidate: Candidate, fit: Sample, size: int) -> float:
    """Operations at a size over those of exact attention."""
    made = candidate.make(fit, size, 0)
    mine, exact = (estimate(fit.tokens, fit.dim, fit.heads, mechanism) for mechanism in (made, "softmax"))
    return mine.operations / exact.operations


def _search(worst: Callable[[int], float], wanted: float, most: int) -> int | None:
    """Return a size that meets the wanted error, the smallest to about a tenth; None if ``most`` does not."""
    if not worst(most) <= wanted:
        return None
    high = STEP
    while high < most and not worst(high) <= wanted:
        high = min(most, 2 * high)
    low = high // 2 // STEP * STEP
    while high - low > max(STEP, high // 10):
        middle = _rounded((low + high) / 2)
        if worst(middle) <= wanted:
            high = middle
        else:
            low = middle
    return high


def _rounded(size: float) -> int:
    return max(STEP, math.ceil(size / STEP) * STEP)


def _size_by_theory(candidate: Candidate, fit: Sample, settings: Settings, prediction: Prediction | None) -> int | None:
    if prediction is not None:
        features = 2 if FEATURES[candidate.kind].rows in ("mirrored", "waves") else 1  # of a row
        rows = prediction.rows(settings.wanted, _MOST_ROWS) if candidate.has_size else None
        return None if rows is None else rows * features
    if candidate.family == "linformer" and settings.wanted < 1:
        return math.ceil(5 * math.log(fit.tokens) / (settings.wanted**2 - settings.wanted**3))
    return None
