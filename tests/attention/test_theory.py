"""Closed forms of what random features estimate, against draws and against plain integration."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

from genoformer.attention.features import EPSILON, FEATURES, draw_projection
from genoformer.attention.theory import (
    Products,
    arc_cosine,
    arc_cosine_square,
    block_covariance,
    kernel_law,
    pairs_in_blocks,
    row_mean,
    row_product,
    rows_of,
    series,
)

DIM = 16
DRAWN = [kind for kind, features in FEATURES.items() if features.rows != "identity"]
EXPONENTIAL = [kind for kind in DRAWN if FEATURES[kind].function is None]
DAMPING = -0.02


def damping_of(kind: str) -> float:
    return DAMPING if FEATURES[kind].is_tuned else 0.0


def turned(angles: Tensor, *, x_square: float, y_square: float, copies: int, dim: int = DIM) -> tuple[Tensor, Tensor]:
    """Pairs of given norms and angles, each in ``copies`` random planes: (angles, copies, dim) twice."""
    generator = torch.Generator().manual_seed(7)
    gaussian = torch.randn(len(angles), copies, dim, 2, generator=generator, dtype=torch.float64)
    plane = torch.linalg.qr(gaussian)[0]
    cos, sin = angles.cos()[:, None, None], angles.sin()[:, None, None]
    return x_square**0.5 * plane[..., 0], y_square**0.5 * (cos * plane[..., 0] + sin * plane[..., 1])


def one_row(kind: str, rows: Tensor, x: Tensor, y: Tensor) -> Tensor:
    """Estimates by each row, from the definition: (rows, dim), (pairs, dim) twice -> (rows, pairs)."""
    a, b = rows @ x.T, rows @ y.T
    half = (x * x + y * y).sum(dim=-1) / 2
    damping = damping_of(kind)
    if kind == "trigonometric":
        return torch.exp(half) * (a.cos() * b.cos() + a.sin() * b.sin())
    if kind == "relu":
        return (a.clamp_min(0) + EPSILON) * (b.clamp_min(0) + EPSILON)
    if kind == "elu":
        return torch.where(a > 0, a + 1, a.exp()) * torch.where(b > 0, b + 1, b.exp())
    squares = (rows * rows).sum(dim=-1, keepdim=True)
    stretched = (1 - 4 * damping) ** 0.5
    query, key = (torch.exp(damping * squares + stretched * side) for side in (a, b))
    return (1 - 4 * damping) ** (rows.shape[-1] / 2) * query * key * torch.exp(-half)


def measured(kind: str, *, count: int, draws: int, x: Tensor, y: Tensor, seed: int = 1) -> tuple[Tensor, Tensor]:
    """Mean and variance of the kernel estimate over draws and planes: (angles, copies, dim) -> (angles,)."""
    flat_x, flat_y = x.flatten(0, 1), y.flatten(0, 1)
    total, squares = torch.zeros(len(flat_x)).double(), torch.zeros(len(flat_x)).double()
    batch = 250
    for first in range(0, draws, batch):
        rows = draw_projection(kind, heads=batch, count=count, dim=DIM, seed=seed + first).double()
        found = one_row(kind, rows.flatten(0, 1), flat_x, flat_y).unflatten(0, (batch, -1)).mean(dim=1)
        total, squares = total + found.sum(dim=0), squares + found.square().sum(dim=0)
    mean = total.view(x.shape[:2]).mean(dim=1) / draws
    return mean, squares.view(x.shape[:2]).mean(dim=1) / draws - mean.square()


def check_law(kind: str, *, count: int, draws: int, copies: int, tolerance: float) -> None:
    """Mean within a fifth of the tolerance, variance within the tolerance.

    Norms and angles keep |x + y|^2 <= 1.5 (|x - y|^2 for waves), beyond which variances have no usable variance.
    """
    angles = torch.tensor([1.05, 1.6, 2.2, 2.9], dtype=torch.float64)
    if kind == "trigonometric":
        angles = math.pi - angles
    x, y = turned(angles, x_square=0.5, y_square=0.5, copies=copies)
    mean, variance = measured(kind, count=count, draws=draws, x=x, y=y)
    law = kernel_law(kind, x[:, 0], y[:, 0], count=count, damping=damping_of(kind))
    assert float((mean / law.mean - 1).abs().max()) < tolerance / 5
    assert float((variance / law.variance - 1).abs().max()) < tolerance, variance / law.variance


@pytest.mark.parametrize("kind", DRAWN)
def test_variance_is_the_closed_form(kind: str) -> None:
    """Within 5%: 500 draws of a block and a half in 256 planes each; standard errors are about 1%."""
    check_law(kind, count=24, draws=500, copies=256, tolerance=0.05)


@pytest.mark.slow
@pytest.mark.parametrize("count", [2, 16, 24, 40])
@pytest.mark.parametrize("kind", DRAWN)
def test_variance_is_the_closed_form_for_any_count(kind: str, count: int) -> None:
    """Within 2.5%, less than a block, whole blocks, and more."""
    check_law(kind, count=count, draws=5000, copies=256, tolerance=0.025)


@pytest.mark.parametrize("kind", DRAWN)
def test_orthogonality_is_told_apart(kind: str) -> None:
    """The closed form without the covariance of a block would fail the tests above."""
    x, y = turned(torch.tensor([1.05]).double(), x_square=0.5, y_square=0.5, copies=1)
    one, many = (kernel_law(kind, x[0], y[0], count=n, damping=damping_of(kind)) for n in (2, 32))
    rows = [rows_of(kind, count=n, dim=DIM) for n in (2, 32)]
    assert rows[0] == 1 or kind not in ("hyperbolic", "trigonometric")
    assert float(many.variance * rows[1]) < 0.94 * float(one.variance * rows[0])


@pytest.mark.parametrize("kind", ["relu-identity", "elu-identity"])
def test_identity_features_are_what_they_are(kind: str) -> None:
    x, y = torch.randn(2, 5, DIM, dtype=torch.float64)
    law = kernel_law(kind, x, y, count=8)
    assert not law.variance.any()
    expected = one_row(kind.removesuffix("-identity"), torch.eye(DIM).double(), x, y).mean(dim=0)
    torch.testing.assert_close(law.mean, expected)


@pytest.mark.parametrize("dim", [3, 4, 16, 64])
@pytest.mark.parametrize("norms", [(0.5, 0.5), (2.0, 0.3)])
def test_quadrature_gives_the_arc_cosine_forms(dim: int, norms: tuple[float, float]) -> None:
    angles = torch.linspace(0, math.pi, 7, dtype=torch.float64)
    x, y = (side[:, 0] for side in turned(angles, x_square=norms[0], y_square=norms[1], copies=1, dim=dim))
    law = kernel_law("relu", x, y, count=1)
    torch.testing.assert_close(law.mean, arc_cosine(x, y, epsilon=EPSILON), rtol=1e-7, atol=1e-9)
    second = law.variance + law.mean.square()
    torch.testing.assert_close(second, arc_cosine_square(x, y, epsilon=EPSILON), rtol=1e-7, atol=1e-9)


def test_regularized_features_estimate_a_little_less() -> None:
    x, y = turned(torch.tensor([0.5, 2.0]).double(), x_square=0.2, y_square=0.15, copies=1)
    ratio = kernel_law("regularized", x[:, 0], y[:, 0], count=8).mean / torch.exp((x * y).sum(-1)[:, 0])
    assert bool((ratio < 1).all())
    phi = (x + y).square().sum(dim=-1)[:, 0]
    torch.testing.assert_close(ratio, 1 - phi.square() / (4 * (DIM + 2)), rtol=1e-3, atol=0)  # its first term


@pytest.mark.parametrize("kind", EXPONENTIAL)
def test_products_of_two_keys(kind: str) -> None:
    """E[e(x, y) e(x, z)] of a row, and of two rows of a block, against draws: within 2% of the largest."""
    generator = torch.Generator().manual_seed(2)
    x, y, z = (0.6 * torch.nn.functional.normalize(torch.randn(6, DIM, generator=generator).double()) for _ in range(3))
    y[0], z[1] = x[0], -y[1]
    given = Products(*((a * b).sum(-1) for a, b in ((x, x), (y, y), (z, z), (x, y), (x, z), (y, z))))
    rows = draw_projection(kind, heads=4000, count=2 * DIM, dim=DIM, seed=3).double()  # of pairs: one block
    rows = rows[:, :DIM]
    first, second = (one_row(kind, rows.flatten(0, 1), x, side).unflatten(0, (-1, DIM)) for side in (y, z))
    if kind == "hyperbolic":
        first, second = (
            (one + one_row(kind, -rows.flatten(0, 1), x, side).unflatten(0, (-1, DIM))) / 2
            for one, side in ((first, y), (second, z))
        )
    same = (first * second).mean(dim=(0, 1))
    expected = row_product(kind, given, DIM, damping=damping_of(kind))
    torch.testing.assert_close(same, expected, rtol=0.02, atol=0.02 * float(expected.max()))
    both = (first.sum(dim=1) * second.sum(dim=1) - (first * second).sum(dim=1)).mean(dim=0) / (DIM * (DIM - 1))
    covariance = both - first.mean(dim=(0, 1)) * second.mean(dim=(0, 1))
    closed = block_covariance(kind, given, DIM)
    assert float((covariance - closed).abs().max()) < 0.1 * float(closed.abs().max())


@pytest.mark.parametrize("dim", [4, 16, 64])
@pytest.mark.parametrize("kind", EXPONENTIAL)
def test_the_two_forms_of_a_block_agree(kind: str, dim: int) -> None:
    """The sum over harmonics, for one key, is what the hypergeometric functions give."""
    angles = torch.linspace(0, math.pi, 6, dtype=torch.float64)
    x, y = (side[:, 0] for side in turned(angles, x_square=1.2, y_square=0.7, copies=1, dim=dim))
    given = Products(*((a * b).sum(-1) for a, b in ((x, x), (y, y), (y, y), (x, y), (x, y), (y, y))))
    rows = 2
    count = 2 * rows if FEATURES[kind].rows in ("mirrored", "waves") else rows
    law = kernel_law(kind, x, y, count=count, damping=damping_of(kind))
    alone = row_product(kind, given, dim, damping=damping_of(kind)) - row_mean(kind, given, dim).square()
    covariance = 2 * law.variance - alone
    tolerance = 1e-6 * float(alone.max())
    torch.testing.assert_close(block_covariance(kind, given, dim, degrees=16), covariance, rtol=1e-4, atol=tolerance)


def test_pairs_in_blocks() -> None:
    for rows, dim in ((1, 4), (4, 4), (7, 4), (12, 4), (13, 4)):
        brute = sum(i != j and i // dim == j // dim for i in range(rows) for j in range(rows))
        assert pairs_in_blocks(rows, dim) == brute


def test_series_are_the_functions_they_stand_for() -> None:
    z = torch.tensor([-8.0, -1.0, 0.0, 0.5, 30.0]).double()
    torch.testing.assert_close(series(z, 2.5, 2.5), z.exp(), rtol=1e-9, atol=0)
    roots = torch.tensor([0.5, 3.0]).double()
    torch.testing.assert_close(series(roots.square() / 4, 0.5), roots.cosh(), rtol=1e-12, atol=0)
    torch.testing.assert_close(series(-roots.square() / 4, 1.5), roots.sin() / roots, rtol=1e-9, atol=0)


def test_two_dimensions_are_refused() -> None:
    with pytest.raises(ValueError, match="at least 3 dimensions"):
        kernel_law("relu", torch.ones(1, 2), torch.ones(1, 2), count=4)
