"""The distribution of random features' rows. What they estimate, and how well: test_theory.py."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor, nn

from genoformer.attention import Performer
from genoformer.attention.features import FEATURES, draw_projection, orthogonal_blocks
from genoformer.attention.performer import redraw_features

from .cases import draw

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


def test_redrawing_a_model_gives_each_layer_its_own_and_repeats() -> None:
    model, again = (nn.ModuleList(Performer(2, 8, count=6, seed=seed) for seed in (1, 2)) for _ in range(2))
    held = [layer.projection for layer in model]
    redraw_features(model, 7)
    redraw_features(again, 7)
    assert not torch.equal(model[0].projection, model[1].projection)
    for layer, other, tensor in zip(model, again, held, strict=True):
        assert torch.equal(layer.projection, other.projection)
        assert layer.projection is tensor  # in place: what shares or watches the buffer sees it
    first = model[0].projection.clone()
    redraw_features(model, 8)
    assert not torch.equal(model[0].projection, first)


@pytest.mark.parametrize("parameter", [-1e4, -200.0, -100.0, -20.0, 20.0, 100.0, 1e4])
@pytest.mark.parametrize("max_temperature", [2.0, 20.0])
def test_temperatures_driven_to_their_ends(parameter: float, max_temperature: float) -> None:
    """Outputs and gradients stay finite; in between, the square of the norm is max_temperature sigmoid(parameter)."""
    module = Performer(2, 8, count=6, max_temperature=max_temperature)
    with torch.no_grad():
        module.temperature.fill_(parameter)
    q, k, v = (x.requires_grad_() for x in draw(1, 2, 9, 8, dtype=torch.float32))
    out = module(q, k, v)
    for tensor in (out, *torch.autograd.grad(out.square().sum(), [q, k, v, module.temperature])):
        assert bool(torch.isfinite(tensor).all())
    with torch.no_grad():
        module.temperature.fill_(0.7)
    expected = torch.full((2,), max_temperature / (1 + math.exp(-0.7)))
    torch.testing.assert_close(module.norm.square(), expected, rtol=1e-6, atol=0.0)
