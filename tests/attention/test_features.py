"""The statistics of random features: their distribution, and what the kernel estimate's mean and variance must be."""

from __future__ import annotations

import math
from functools import lru_cache

import pytest
import torch
from torch import Tensor

from genoformer.attention import Performer
from genoformer.attention.attention import LogMean
from genoformer.attention.features import FEATURES, draw_projection, orthogonal_blocks

DRAWS = 4000  # independent draws: one a head


def draws_of(kind: str, *, count: int, dim: int, draws: int = DRAWS, seed: int = 0) -> Tensor:
    return draw_projection(kind, heads=draws, count=count, dim=dim, seed=seed).double()


# Directions and norms -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("count", [1, 5, 8, 13, 16, 20])
def test_directions_are_orthogonal_within_blocks_of_dim(count: int) -> None:
    rows = orthogonal_blocks(count, 8, generator=torch.Generator().manual_seed(0))
    assert rows.shape == (count, 8)
    for first in range(0, count, 8):
        block = rows[first : first + 8]
        torch.testing.assert_close(block @ block.T, torch.eye(len(block)).double(), atol=1e-12, rtol=0)


def test_blocks_are_independent() -> None:
    """More rows than dimensions: other blocks are neither copies of the first nor orthogonal to it.

    Dots between unit vectors of independent blocks have mean 0 and mean square 1/dim; over 2000 draws of 64 dots the
    standard error of either is below 1%.
    """
    generator = torch.Generator().manual_seed(1)
    rows = torch.stack([orthogonal_blocks(16, 8, generator=generator) for _ in range(2000)])
    dots = rows[:, :8] @ rows[:, 8:].transpose(1, 2)
    assert abs(float(dots.mean())) < 0.005
    assert float(dots.square().mean()) == pytest.approx(1 / 8, rel=0.03)


@pytest.mark.parametrize("dim", [2, 8])
def test_directions_are_even_over_rotations(dim: int) -> None:
    """Haar measure: entries have mean 0, mean square 1/dim, and the trace has mean square 1.

    LAPACK's Q has reflections' signs: its diagonal has mean about -0.3 at dim 8. The tolerance is five standard errors.
    """
    generator = torch.Generator().manual_seed(2)
    q = torch.stack([orthogonal_blocks(dim, dim, generator=generator) for _ in range(DRAWS)])
    five = 5 / math.sqrt(DRAWS)
    assert float(q.mean(dim=0).abs().max()) < five / math.sqrt(dim)
    assert float((q.square().mean(dim=0) - 1 / dim).abs().max()) < five * math.sqrt(2) / dim
    trace = q.diagonal(dim1=1, dim2=2).sum(-1)
    assert abs(float(trace.mean())) < five
    assert float(trace.square().mean()) == pytest.approx(1.0, abs=five * math.sqrt(2))


@pytest.mark.parametrize("kind", ["positive", "hyperbolic", "relu"])
def test_norms_are_those_of_gaussian_vectors(kind: str) -> None:
    """Chi-distributed: the squared norm has mean d and variance 2d, and norms of a block are independent."""
    dim = 8
    norms = draws_of(kind, count=8, dim=dim).square().sum(-1)  # (draws, 8)
    norms = norms[:, :4]  # without the negatives of hyperbolic features
    number = norms.numel()
    assert float(norms.mean()) == pytest.approx(dim, abs=5 * math.sqrt(2 * dim / number))
    # The variance of a squared chi-square's deviation: excess kurtosis 12/d.
    assert float(norms.var()) == pytest.approx(2 * dim, rel=5 * math.sqrt((2 + 12 / dim) / number))
    centered = norms - norms.mean()
    correlation = float((centered[:, 0] * centered[:, 1]).mean() / norms.var())
    assert abs(correlation) < 5 / math.sqrt(DRAWS)


def test_regularized_norms_are_the_square_root_of_dim() -> None:
    norms = draws_of("regularized", count=20, dim=8, draws=3).norm(dim=-1)
    torch.testing.assert_close(norms, torch.full_like(norms, math.sqrt(8)), atol=1e-6, rtol=0)


def test_hyperbolic_rows_come_with_their_negatives() -> None:
    rows = draws_of("hyperbolic", count=12, dim=8, draws=3)
    assert torch.equal(rows[:, :6], -rows[:, 6:])
    with pytest.raises(ValueError, match="must be even"):
        draw_projection("hyperbolic", heads=1, count=7, dim=8, seed=0)


@pytest.mark.parametrize("kind", [kind for kind, of in FEATURES.items() if of.rows != "identity"])
def test_heads_and_seeds_differ_and_seeds_repeat(kind: str) -> None:
    one, two = (draws_of(kind, count=8, dim=4, draws=3, seed=s) for s in (0, 1))
    assert torch.equal(one, draws_of(kind, count=8, dim=4, draws=3, seed=0))
    assert not torch.allclose(one, two)
    assert not torch.allclose(one[0], one[1])


def test_unknown_features_are_refused() -> None:
    with pytest.raises(ValueError, match="features must be one of positive"):
        draw_projection("cosine", heads=1, count=8, dim=8, seed=0)


# The kernel estimate ------------------------------------------------------------------------------------------------
# SM = exp(x.y) is what is estimated, z = x + y, phi = |z|^2, s = (|x|^2 + |y|^2) / 2.

DIM, PAIRS = 8, 12


def points() -> tuple[Tensor, Tensor]:
    """PAIRS of x and y with |x|^2 = |y|^2 = 1/4 and angles from equal to opposite, one pair a row: phi from 1 to 0."""
    generator = torch.Generator().manual_seed(3)
    basis = torch.linalg.qr(torch.randn(PAIRS, DIM, 2, generator=generator, dtype=torch.float64))[0]
    angle = torch.linspace(0, math.pi, PAIRS, dtype=torch.float64)[:, None]
    x = basis[..., 0]
    y = angle.cos() * basis[..., 0] + angle.sin() * basis[..., 1]
    return x / 2, y / 2


@lru_cache(maxsize=4)
def estimates(kind: str, *, count: int, draws: int, seed: int = 5) -> Tensor:
    """Kernel estimates (draws, PAIRS) that come out of the module: its rows and one-key summaries, one draw a head."""
    x, y = points()
    module = Performer(draws, DIM, count=count, features=kind, max_temperature=None, seed=seed).double()
    keys = (y * DIM**0.25)[:, None, None].expand(-1, draws, -1, -1)  # (PAIRS, draws, 1, DIM)
    summary = module.summarize(keys, torch.ones_like(keys))
    assert isinstance(summary, LogMean)
    queries = torch.einsum("hmd,pd->phm", module.projection, x) - x.square().sum(-1)[:, None, None] / 2
    return torch.exp(queries + summary.log_sum).mean(dim=-1).T


def hypergeometric(a: float, b: float, z: Tensor) -> Tensor:
    """The confluent hypergeometric function 1F1(a; b; z), by its series, or 0F1(; b; z) where a is infinite."""
    term, result = torch.ones_like(z), torch.ones_like(z)
    for k in range(200):
        term = term * z / ((b + k) * (k + 1)) * (1.0 if math.isinf(a) else a + k)
        result = result + term
    return result


def closed_form(kind: str, count: int) -> tuple[Tensor, Tensor]:
    """Mean and variance of the estimate with ``count`` <= dim rows (pairs of them for hyperbolic features).

    One row's second moment gives the variance of independent rows: e^phi SM^2 (1 - e^-phi), for a pair half of
    (1 - e^-phi) times that. Two orthogonal rows of independent norms sum to a vector of uniform direction and squared
    norm chi^2 with 2d degrees of freedom, so E[exp((w1 + w2).z)] = 1F1(d; d/2; phi/2), where independent rows have
    e^phi: the covariance is the difference, times e^-2s. It is negative.
    """
    x, y = points()
    phi = (x + y).square().sum(-1)
    s = (x.square() + y.square()).sum(-1) / 2
    kernel = torch.exp((x * y).sum(-1))
    if kind == "regularized":  # rows of fixed norm: E exp(w.z) = 0F1(; d/2; d phi / 4)
        return torch.exp(-s) * hypergeometric(math.inf, DIM / 2, DIM * phi / 4), torch.full_like(phi, math.nan)
    one = kernel.square() * phi.exp() * (1 - torch.exp(-phi))
    if kind == "hyperbolic":
        one = one * (1 - torch.exp(-phi)) / 2
    covariance = torch.exp(-2 * s) * (hypergeometric(DIM, DIM / 2, phi / 2) - phi.exp())
    return kernel, one / count + (1 - 1 / count) * covariance


@pytest.mark.parametrize("kind", ["positive", "hyperbolic", "regularized"])
def test_kernel_estimate_is_unbiased(kind: str) -> None:
    """Within five standard errors, which are below 1% of the kernel; for regularized rows, of its known mean."""
    found = estimates(kind, count=16 if kind == "hyperbolic" else 8, draws=20_000)
    mean, _ = closed_form(kind, 8)
    five = 5 * found.std(dim=0) / math.sqrt(len(found))
    assert float(five.max()) < 0.05
    assert bool(((found.mean(dim=0) - mean).abs() <= five + 1e-6).all())  # rows are stored in float32


@pytest.mark.parametrize("kind", ["positive", "hyperbolic"])
def test_variance_is_the_closed_form(kind: str) -> None:
    """Within 10%, orthogonality included.

    Exponentials have heavy tails: at phi = 1 the standard error of the variance of 40,000 draws is 3 to 5%, at phi = 2
    it would be 30%. That is why points() stays at phi <= 1.
    """
    found = estimates(kind, count=16 if kind == "hyperbolic" else 8, draws=40_000).var(dim=0)
    _, variance = closed_form(kind, 8)
    large = variance > 1e-3  # where x = -y, every row gives exactly SM
    assert int(large.sum()) > PAIRS // 2
    ratio = found[large] / variance[large]
    assert float((ratio - 1).abs().max()) < 0.10, ratio


def test_orthogonality_lowers_the_variance() -> None:
    x, y = points()
    found = estimates("positive", count=8, draws=40_000).var(dim=0)
    phi, kernel = (x + y).square().sum(-1), torch.exp((x * y).sum(-1))
    independent = kernel.square() * phi.exp() * (1 - torch.exp(-phi)) / 8
    assert float((found / independent)[:4].mean()) < 0.85


def test_variance_falls_with_the_number_of_features() -> None:
    """Errors fall as one over the square root of the number of features: 8 blocks vary 8 times less than one."""
    one, eight = (estimates("positive", count=count, draws=6000, seed=7).var(dim=0)[:4] for count in (8, 64))
    assert float((one / eight).mean()) == pytest.approx(8.0, rel=0.2)
