"""What random features estimate and how far they scatter: closed forms for every kind, tested against draws."""

from __future__ import annotations

import math
from collections.abc import Callable
from itertools import pairwise
from typing import NamedTuple

import torch
from torch import Tensor

from genoformer.attention.features import FEATURES, Kind

_TERMS = 10_000
_DEGREE = 10
_RADII, _TILTS, _ANGLES = 40, 32, 12
_FARTHEST = 6.0
"""Standard deviations of a chi-distributed norm beyond which nothing is counted."""


class Law(NamedTuple):
    """Mean and variance, over draws, of the estimate phi(x).phi(y) of a kernel."""

    mean: Tensor
    variance: Tensor


class Products(NamedTuple):
    """The inner products that everything here depends on, of a query x with two keys y and z; any shapes that fit."""

    xx: Tensor
    yy: Tensor
    zz: Tensor
    xy: Tensor
    xz: Tensor
    yz: Tensor


def series(z: Tensor, b: float, a: float | None = None) -> Tensor:
    """Return 1F1(a; b; z), or 0F1(; b; z) without a: its power series, summed until it stands still, in float64.

    DLMF 13.2.2 and 16.2.1. For z << 0 the terms alternate and lose digits: good for z above about -20.
    """
    z = z.double()
    term, total = torch.ones_like(z), torch.ones_like(z)
    for k in range(_TERMS):
        term = term * z * ((1.0 if a is None else a + k) / ((b + k) * (k + 1)))
        total = total + term
        if bool((term.abs() <= 1e-17 * total.abs()).all()) or not bool(torch.isfinite(total).any()):
            break
    return total


def rows_of(kind: str, *, count: int, dim: int) -> int:
    """Return how many rows are drawn for ``count`` features: half as many where two features share one."""
    if FEATURES[kind].rows == "identity":
        return dim
    return count // 2 if FEATURES[kind].rows in ("mirrored", "waves") else count


def pairs_in_blocks(rows: int, dim: int) -> int:
    """Count the ordered pairs of different rows that lie in one orthogonal block."""
    last = rows % dim
    return rows // dim * dim * (dim - 1) + last * (last - 1)


def kernel_law(kind: str, x: Tensor, y: Tensor, *, count: int, damping: Tensor | float = 0.0) -> Law:
    """Return mean and variance of the kernel estimate of ``count`` features: README.md, "Variances".

    Parameters
    ----------
    kind : of `genoformer.attention.features.FEATURES`. Balanced kinds: give x and y as balanced
    x, y : Tensor, (pairs, dim), scaled: the exact kernel is exp(x.y)
    count : features
    damping : A of tuned kinds, <= 0 (`Moments.damping`)

    Returns
    -------
    Law : mean and variance, (pairs,) float64. Exact, by quadrature for "relu" (its covariance) and "elu"
    """
    x, y, dim = x.double(), y.double(), x.shape[-1]
    rows, features = rows_of(kind, count=count, dim=dim), FEATURES[kind]
    function = features.function
    if features.rows == "identity":
        assert function is not None
        mean = (function(x) * function(y)).mean(dim=-1)
        return Law(mean, torch.zeros_like(mean))
    if function is not None:
        found = [_function_moments(function, a, b, dim) for a, b in zip(x, y, strict=True)]
        mean, second, joint = (torch.stack(column) for column in zip(*found, strict=True))
    else:
        given = Products(*((u * v).sum(dim=-1) for u, v in ((x, x), (y, y), (y, y), (x, y), (x, y), (y, y))))
        mean = row_mean(kind, given, dim)
        second = row_product(kind, given, dim, damping=damping)
        joint = _block_product(features, given, dim)
    square = mean.square()
    variance = (second - square) / rows + pairs_in_blocks(rows, dim) / rows**2 * (joint - square)
    return Law(mean, variance.clamp_min(0.0))


def row_mean(kind: str, given: Products, dim: int) -> Tensor:
    """Return the kernel of x and y that exponentials or waves estimate: exp(x.y), or on spheres a little less."""
    if FEATURES[kind].rows != "sphere":
        return given.xy.exp()
    total = given.xx + given.yy + 2 * given.xy
    return series(dim * total / 4, dim / 2) * torch.exp(-(given.xx + given.yy) / 2)


def row_product(kind: str, given: Products, dim: int, *, damping: Tensor | float = 0.0) -> Tensor:
    """Return E[e(x, y) e(x, z)], where e is the estimate by one row: exponentials (or a mirrored pair) and waves."""
    rows = FEATURES[kind].rows
    xx, yy, zz, xy, xz, yz = given
    norms = xx + (yy + zz) / 2
    both = 4 * xx + yy + zz + 2 * yz + 4 * (xy + xz)  # |2x + y + z|^2
    apart = yy + zz - 2 * yz  # |y - z|^2
    if rows == "waves":
        waves = both - 8 * (xy + xz)  # |2x - y - z|^2
        return (torch.exp(norms - waves / 2) + torch.exp(norms - apart / 2)) / 2
    if rows == "sphere":
        return series(dim * both / 4, dim / 2) * torch.exp(-norms)
    if rows == "mirrored":
        return (torch.exp(both / 2 - norms) + torch.exp(apart / 2 - norms)) / 2
    a = torch.as_tensor(damping, dtype=torch.float64)
    stretch = dim * torch.log1p(-4 * a) - dim / 2 * torch.log1p(-8 * a)
    return torch.exp(stretch + (1 - 4 * a) / (1 - 8 * a) * both / 2 - norms)


def _block_product(features: Kind, given: Products, dim: int) -> Tensor:
    """Return E[e1(x, y) e2(x, y)] for two rows of one block.

    Their sum, and their difference, points evenly and has a squared norm of 2 dim degrees of freedom (exactly 2 dim on
    spheres). Damped rows, weighted by exp(2A|w|^2), have undamped Gaussian norms again: A plays no part.
    """
    norms = given.xx + given.yy
    if features.rows == "waves":
        return torch.exp(norms) * series(-(norms - 2 * given.xy) / 2, dim / 2, dim)
    total = norms + 2 * given.xy
    if features.rows == "sphere":
        return torch.exp(-norms) * series(dim * total / 2, dim / 2)
    return torch.exp(-norms) * series(total / 2, dim / 2, dim)


def block_covariance(kind: str, given: Products, dim: int, *, degrees: int = 6) -> Tensor:
    """Return the covariance of e1(x, y) and e2(x, z) for two rows of one block, exponentials or waves.

    Averaged over its norm, exp(w.a) is a sum of harmonics of the direction of w, of degree l about that of a (DLMF
    10.35 and 10.60). Averaging over the other row, orthogonal to the first, multiplies each by a number (Funk-Hecke).
    """
    rows = FEATURES[kind].rows
    sign = -1.0 if rows == "waves" else 1.0  # waves are those of i (x - y)
    xx, yy, zz, xy, xz, yz = given
    a, b = xx + yy + 2 * sign * xy, xx + zz + 2 * sign * xz  # |x + y|^2, |x + z|^2
    cos = ((xx + sign * (xy + xz) + yz) / (a * b).clamp_min(1e-300).sqrt()).clamp(-1.0, 1.0)
    total = torch.zeros_like(cos)
    for degree in range(2, degrees + 1, 2):
        count = math.comb(dim + degree - 1, degree) - math.comb(dim + degree - 3, degree - 2)
        first, second = (_share(sign * c, degree, dim, is_sphere=rows == "sphere") for c in (a, b))
        total = total + _at_right_angle(degree, dim) * count * first * second * _gegenbauer(degree, cos, dim)
    return total * torch.exp(-sign * (xx + (yy + zz) / 2))


def _share(square: Tensor, degree: int, dim: int, *, is_sphere: bool) -> Tensor:
    """Return how much harmonics of an even degree take part in exp(w.a), given |a|^2, or minus it for cos(w.a)."""
    half = dim / 2
    rising = math.prod(half + k for k in range(degree))
    if is_sphere:
        return (dim * square / 4) ** (degree // 2) / rising * series(dim * square / 4, half + degree)
    middle = math.prod(half + k for k in range(degree // 2))
    return (square / 2) ** (degree // 2) * middle / rising * series(square / 2, half + degree, half + degree // 2)


def _gegenbauer(degree: int, t: Tensor, dim: int) -> Tensor:
    """Return the Gegenbauer polynomial of a degree, 1 at 1, for directions in ``dim`` dimensions (DLMF 18.9.1)."""
    before, here = torch.ones_like(t), t
    for k in range(1, degree):
        before, here = here, ((2 * k + dim - 2) * t * here - k * before) / (k + dim - 2)
    return here


def arc_cosine(x: Tensor, y: Tensor, *, epsilon: float = 0.0) -> Tensor:
    """Return E[(max(w.x, 0) + eps)(max(w.y, 0) + eps)]: what "relu" features estimate, (..., dim) -> (...).

    Cho and Saul 2009, "Kernel methods for deep learning", section 2.1 (order 1), and the terms of eps.
    """
    x, y = x.double(), y.double()
    sizes, angle = _angle(x, y)
    kernel = sizes[0] * sizes[1] * (angle.sin() + (math.pi - angle) * angle.cos()) / (2 * math.pi)
    return kernel + epsilon * (sizes[0] + sizes[1]) / math.sqrt(2 * math.pi) + epsilon**2


def arc_cosine_square(x: Tensor, y: Tensor, *, epsilon: float = 0.0) -> Tensor:
    """Return E[(max(w.x, 0) + eps)^2 (max(w.y, 0) + eps)^2], the second moment of one "relu" row.

    Its terms: the arc-cosine kernel of order 2, and E[a+^2 b+] = (1 + cos)^2 / (2 sqrt(2 pi)) at unit norms.
    """
    x, y, e = x.double(), y.double(), epsilon
    (p, q), angle = _angle(x, y)
    cos = angle.cos()
    fourth = (p * q).square() * (3 * angle.sin() * cos + (math.pi - angle) * (1 + 2 * cos.square())) / (2 * math.pi)
    third = p * q * (p + q) * (1 + cos).square() / (2 * math.sqrt(2 * math.pi))
    second = (p.square() + q.square()) / 2 + 4 * arc_cosine(x, y)
    return fourth + 2 * e * third + e**2 * second + 2 * e**3 * (p + q) / math.sqrt(2 * math.pi) + e**4


def _angle(x: Tensor, y: Tensor) -> tuple[tuple[Tensor, Tensor], Tensor]:
    """Return the norms of x and y and the angle between them."""
    p, q = x.norm(dim=-1), y.norm(dim=-1)
    cos = (x * y).sum(dim=-1) / (p * q).clamp_min(1e-300)
    return (p, q), torch.acos(cos.clamp(-1.0, 1.0))


def _function_moments(
    function: Callable[[Tensor], Tensor], x: Tensor, y: Tensor, dim: int
) -> tuple[Tensor, Tensor, Tensor]:
    """Return E e, E e^2 and E[e1 e2] in a block, for e = f(w.x) f(w.y), by quadrature over what w shows to x and y.

    w is r (sin b cos a, sin b sin a) in their plane: r chi-distributed, b of density sin b cos^(dim - 3) b, a even.
    A function of a direction is a sum of harmonics; averaging one of degree l over the directions orthogonal to a
    given one multiplies it by the Gegenbauer polynomial at 0 (Funk-Hecke). So E[e1 e2] is a sum over degrees of that
    times the squared norm of each part. Harmonics that depend on the plane only are the polynomials in (sin b cos a,
    sin b sin a) of that degree, orthogonal to all lower ones: a QR decomposition finds them.
    """
    (p, q), angle = _angle(x, y)
    radii, r_weights = _chi(dim)
    points, weights = _disc(float(angle), dim)  # (N, 2), (N,)
    first = p * points[:, 0]
    other = q * (angle.cos() * points[:, 0] + angle.sin() * points[:, 1])
    product = function(radii[:, None] * first) * function(radii[:, None] * other)  # (R, N)
    by_direction = r_weights @ product  # (N,)
    powers = [(degree, i) for degree in range(_DEGREE + 1) for i in range(degree + 1)]
    basis = torch.stack([points[:, 0] ** (degree - i) * points[:, 1] ** i for degree, i in powers], dim=1)
    harmonics = torch.linalg.qr(basis * weights.sqrt()[:, None])[0]
    parts = (harmonics.T @ (by_direction * weights.sqrt())).square()
    factors = torch.tensor([_at_right_angle(degree, dim) for degree, _ in powers], dtype=torch.float64)
    return weights @ by_direction, r_weights @ product.square() @ weights, factors @ parts


def _at_right_angle(degree: int, dim: int) -> float:
    """Return the Gegenbauer polynomial of a degree at 0, over its value at 1."""
    if degree % 2:
        return 0.0
    return math.prod(-(2 * k + 1) / (dim - 1 + 2 * k) for k in range(degree // 2))


def _gauss(count: int, start: float, end: float) -> tuple[Tensor, Tensor]:
    """Return nodes and weights of Gauss-Legendre quadrature (Golub and Welsch 1969)."""
    k = torch.arange(1, count, dtype=torch.float64)
    side = k / (4 * k.square() - 1).sqrt()
    nodes, vectors = torch.linalg.eigh(torch.diag(side, 1) + torch.diag(side, -1))
    return start + (end - start) * (nodes + 1) / 2, (end - start) * vectors[0].square()


def _chi(dim: int) -> tuple[Tensor, Tensor]:
    """Return radii and weights of the norm of a Gaussian vector."""
    middle = math.sqrt(dim)
    radii, weights = _gauss(_RADII, max(0.0, middle - _FARTHEST), middle + _FARTHEST)
    density = torch.exp((dim - 1) * (radii / middle).log() - (radii.square() - dim) / 2) * weights
    return radii, density / density.sum()


def _disc(angle: float, dim: int) -> tuple[Tensor, Tensor]:
    """Return points and weights of an even direction's shadow on a plane, with no kink of max(w.x, 0), max(w.y, 0)
    inside any of the arcs that are summed over.
    """
    if dim < 3:
        raise ValueError(f"these formulas need at least 3 dimensions, got {dim}")
    tilts, t_weights = _gauss(_TILTS, 0.0, math.pi / 2)
    t_weights = t_weights * tilts.sin() * tilts.cos() ** (dim - 3)
    quarter = math.pi / 2
    edges = sorted({-quarter, quarter, angle - quarter, angle + quarter, 1.5 * math.pi})
    arcs = [_gauss(_ANGLES, start, end) for start, end in pairwise(edges) if end - start > 1e-9]
    turns, a_weights = torch.cat([nodes for nodes, _ in arcs]), torch.cat([weights for _, weights in arcs])
    sines = tilts.sin()[:, None]
    points = torch.stack([sines * turns.cos(), sines * turns.sin()], dim=-1).flatten(0, 1)
    weights = (t_weights[:, None] * a_weights).flatten()
    return points, weights / weights.sum()
