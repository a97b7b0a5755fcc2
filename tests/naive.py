"""Plain twins of every attention mechanism: the matrix of attention weights written out, in float64.

They follow the formulas of the papers and share no code with the package. Masks are (B, T) bool, True at real tokens; a
query without any key gets zeros. Queries are (B, H, Tq, D), keys and values (B, H, T, D), T >= 1.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import Tensor


def _valid(keys: Tensor, mask: Tensor | None) -> Tensor:
    return torch.ones(keys.shape[0], keys.shape[2], dtype=torch.bool) if mask is None else mask


def _average(weights: Tensor, values: Tensor) -> Tensor:
    """Divide rows of weights (..., Tq, T) >= 0 by their sums, times the values; a row of zeros gives zeros."""
    total = weights.sum(dim=-1, keepdim=True)
    return weights / torch.where(total > 0, total, 1.0) @ values


def _exponentials(scores: Tensor, allowed: Tensor) -> Tensor:
    """exp(score) where allowed and 0 elsewhere, up to a factor a row."""
    scores = torch.where(allowed, scores, -math.inf)
    largest = scores.detach().amax(dim=-1, keepdim=True)
    return torch.exp(scores - torch.where(largest.isinf(), 0.0, largest))


def rotary(vectors: Tensor, start: int = 0) -> Tensor:
    """Dimensions j and j + D/2 are one complex number, turned by position * 10000^(-2j/D)."""
    tokens, dim = vectors.shape[-2:]
    half = dim // 2
    rates = torch.tensor([1e4 ** (-2.0 * j / dim) for j in range(half)], dtype=torch.float64)
    angles = torch.outer(torch.arange(start, start + tokens).double(), rates)
    turned = torch.complex(vectors[..., :half], vectors[..., half:]) * torch.exp(1j * angles)
    return torch.cat([turned.real, turned.imag], dim=-1)


def softmax(q: Tensor, k: Tensor, v: Tensor, *, mask: Tensor | None = None, rotate: bool = False) -> Tensor:
    """softmax(q k^T / sqrt(D)) v over the valid keys."""
    if rotate:
        q, k = rotary(q), rotary(k)
    scores = q @ k.transpose(-1, -2) / math.sqrt(q.shape[-1])
    return _average(_exponentials(scores, _valid(k, mask)[:, None, None, :]), v)


def local(q: Tensor, k: Tensor, v: Tensor, *, radius: int, mask: Tensor | None = None, rotate: bool = True) -> Tensor:
    """The same over keys at most ``radius`` tokens away."""
    if rotate:
        q, k = rotary(q), rotary(k)
    distance = (torch.arange(q.shape[2])[:, None] - torch.arange(k.shape[2])).abs()
    scores = q @ k.transpose(-1, -2) / math.sqrt(q.shape[-1])
    return _average(_exponentials(scores, _valid(k, mask)[:, None, None, :] & (distance <= radius)), v)


def random_features(x: Tensor, rows: Tensor, kind: str) -> Tensor:
    """phi(x) for rows w of (H, M, D), each kind by its formula; exponentials without damping."""
    projected = torch.einsum("bhtd,hmd->bhtm", x, rows)
    half = (x * x).sum(-1, keepdim=True) / 2
    if kind.startswith("relu"):
        return projected.clamp_min(0.0) + 1e-3
    if kind.startswith("elu"):
        return torch.where(projected > 0, projected + 1, torch.exp(projected))
    if kind == "trigonometric":
        return torch.exp(half) * torch.cat([projected.cos(), projected.sin()], dim=-1) / math.sqrt(rows.shape[1])
    return torch.exp(projected - half) / math.sqrt(rows.shape[1])


def tuned_features(x: Tensor, rows: Tensor, damping: Tensor) -> Tensor:
    """(1 - 4 A)^(D/4) exp(A |w|^2 + sqrt(1 - 4 A) w.x - |x|^2 / 2), with one A a head (H,)."""
    a = damping[:, None, None]
    stretched = (1 - 4 * a).sqrt() * torch.einsum("bhtd,hmd->bhtm", x, rows)
    exponent = a * (rows * rows).sum(-1)[:, None] + stretched - (x * x).sum(-1, keepdim=True) / 2
    return (1 - 4 * a) ** (x.shape[-1] / 4) * torch.exp(exponent) / math.sqrt(rows.shape[1])


def performer(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    *,
    rows: Tensor,
    kind: str,
    squared_norm: Tensor | None,
    mask: Tensor | None = None,
    moments: tuple[Tensor, Tensor] | None = None,
) -> Tensor:
    """phi(q) phi(k)^T, rows divided by their sums, times v; q, k get the squared norm of their head, or a d^-1/4.

    ``moments`` are means and mean squares (2, H, D) of queries and keys, for tuned kinds.
    """
    if squared_norm is None:
        q, k = q / q.shape[-1] ** 0.25, k / k.shape[-1] ** 0.25
    else:
        norm = squared_norm[:, None, None].sqrt()
        q, k = (norm * x / (x * x).sum(-1, keepdim=True).sqrt() for x in (q, k))
    if moments is None:
        phi_q, phi_k = random_features(q, rows, kind), random_features(k, rows, kind)
    else:
        means, squares = moments
        psi = (squares[1] / squares[0]) ** 0.25 if kind == "saderf" else torch.ones_like(squares[0])  # (H, D)
        size = squares[0] * psi**2 + squares[1] / psi**2 + 2 * means[0] * means[1]  # E (x + y)^2, by dimension
        p = size.sum(-1) / size.shape[-1]
        damping = (1 - 2 * p - torch.sqrt((2 * p + 1) ** 2 + 8 * p)) / 16
        phi_q = tuned_features(q * psi[:, None], rows, damping)
        phi_k = tuned_features(k / psi[:, None], rows, damping)
    kernel = phi_q @ phi_k.transpose(-1, -2)  # (B, H, Tq, T)
    if kind == "trigonometric":  # may be negative
        kernel = kernel * _valid(k, mask)[:, None, None, :]
        total = kernel.sum(-1, keepdim=True)
        return kernel / torch.where(total == 0, 1.0, total) @ v
    return _average(kernel * _valid(k, mask)[:, None, None, :], v)


def graph(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    edges: Tensor,
    *,
    twin: Callable[[Tensor, Tensor, Tensor, Tensor | None], Tensor],
    weights: Tensor | None = None,
    mask: Tensor | None = None,
) -> Tensor:
    """Answer each query from the keys of its neighbors alone, one after the other, by the twin of a mechanism.

    Weights w of edges (2, E): the mean of w v over the mean of w.
    """
    outputs = []
    for target in range(q.shape[2]):
        at = [edge for edge in range(edges.shape[1]) if edges[1, edge] == target]
        if not at:
            outputs.append(0.0 * q[:, :, target : target + 1])
            continue
        source = edges[0, at]
        factor = torch.ones(len(at), dtype=v.dtype) if weights is None else weights[at]
        factor = factor[:, None].expand(*v.shape[:2], -1, 1)
        weighed = torch.cat([v[:, :, source] * factor, factor], dim=-1)
        mean = twin(q[:, :, target : target + 1], k[:, :, source], weighed, None if mask is None else mask[:, source])
        total = mean[..., -1:]
        outputs.append(mean[..., :-1] / torch.where(total > 0, total, 1.0))
    return torch.cat(outputs, dim=2)


def joint(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    *,
    rows: Tensor,
    squared_norm: Tensor,
    radius: int,
    moments: tuple[Tensor, Tensor] | None = None,
    mask: Tensor | None = None,
    rotate: bool = False,
) -> Tensor:
    """Weights exp(x.y) of keys at most ``radius`` tokens away, phi(x).phi(y) of the others, divided by their sum.

    ``moments`` as for a performer's "oprf" features.
    """
    norm = squared_norm[:, None, None].sqrt()
    x, y = (norm * z / (z * z).sum(-1, keepdim=True).sqrt() for z in (q, k))
    if rotate:
        x, y = rotary(x), rotary(y)
    if moments is None:
        phi_x, phi_y = (random_features(z, rows, "positive") for z in (x, y))
    else:
        means, squares = moments
        p = (squares[0] + squares[1] + 2 * means[0] * means[1]).mean(-1)
        damping = (1 - 2 * p - torch.sqrt((2 * p + 1) ** 2 + 8 * p)) / 16
        phi_x, phi_y = (tuned_features(z, rows, damping) for z in (x, y))
    distance = (torch.arange(q.shape[2])[:, None] - torch.arange(k.shape[2])).abs()
    weights = torch.where(distance <= radius, torch.exp(x @ y.transpose(-1, -2)), phi_x @ phi_y.transpose(-1, -2))
    return _average(weights * _valid(k, mask)[:, None, None, :], v)


def _lengths(valid: Tensor) -> list[int]:
    """One past the last valid token of each row."""
    return [max((t + 1 for t in range(valid.shape[1]) if row[t]), default=0) for row in valid]


def pooling_rows(valid: Tensor, rank: int) -> Tensor:
    """1 where token j belongs to slot a = floor(j rank / length) and is valid (B, M, T)."""
    rows = torch.zeros(len(valid), rank, valid.shape[1], dtype=torch.float64)
    for b, length in enumerate(_lengths(valid)):
        for j in range(length):
            rows[b, j * rank // length, j] = float(valid[b, j])
    return rows


def mean_rows(valid: Tensor, rank: int) -> Tensor:
    """The matrix whose rows average the valid tokens of each slot."""
    members = pooling_rows(valid, rank)
    return members / members.sum(-1, keepdim=True).clamp_min(1.0)


def restored_rows(full: Tensor, norms: Tensor, valid: Tensor) -> Tensor:
    """Columns (M, T) with the invalid ones struck out, rows brought back to their norms; a row of zeros stays."""
    rows = full * valid[:, None, :]  # (B, M, T)
    left = (rows * rows).sum(-1, keepdim=True)
    return rows * torch.where(left > 0, norms[:, None] / torch.where(left > 0, left, 1.0).sqrt(), 0.0)


def learned_rows(matrix: Tensor, valid: Tensor) -> Tensor:
    """The first columns of a learned matrix (M, >= T)."""
    return restored_rows(matrix[:, : valid.shape[1]], (matrix * matrix).sum(-1).sqrt(), valid)


def interpolated_rows(matrix: Tensor, valid: Tensor) -> Tensor:
    """A learned matrix (M, grid), token j of n at (j + 1/2) grid / n - 1/2 between its points, edges held.

    Rows keep their L1 norm, measured by what |matrix| comes to in the same way.
    """
    grid = matrix.shape[1]
    rows = []
    for shown, length in zip(valid, _lengths(valid), strict=True):
        place = ((torch.arange(len(shown)).double() + 0.5) * grid / max(length, 1) - 0.5).clamp(0, grid - 1)
        lower = place.floor().long()
        part = place - lower
        full, size = ((1 - part) * m[:, lower] + part * m[:, (lower + 1) % grid] for m in (matrix, matrix.abs()))
        met = (size * shown).sum(-1, keepdim=True)
        norm = matrix.abs().sum(-1, keepdim=True)
        rows.append(full * shown * torch.where(met > 0, norm / torch.where(met > 0, met, 1.0), 0.0))
    return torch.stack(rows)


def seeded(shape: tuple[int, int, int, int], seed: int) -> Tensor:
    """Normal numbers (S, H, M, T) of a stated generator, which must never change: saved models depend on them."""
    blocks = []
    for index in range(-(-shape[3] // 1024)):
        generator = torch.Generator().manual_seed(1_000_003 * seed + index)
        blocks.append(torch.randn(*shape[:3], 1024, generator=generator).double())
    return torch.cat(blocks, dim=-1)[..., : shape[3]]


def seeded_rows(matrix: Tensor, valid: Tensor) -> Tensor:
    """Such numbers (M, T), rows of norm 1."""
    return restored_rows(matrix, torch.ones(len(matrix), dtype=torch.float64), valid)


def convolution_rows(taps: Tensor, valid: Tensor) -> Tensor:
    """Row a holds the taps at tokens a s .. a s + s - 1."""
    stride, tokens = len(taps), valid.shape[1]
    count = -(-tokens // stride)
    full = torch.stack([torch.nn.functional.pad(taps, (a * stride, (count - a - 1) * stride)) for a in range(count)])
    return restored_rows(full[:, :tokens], torch.linalg.vector_norm(taps).expand(count), valid)


def dynamic_rows(latents: Tensor, k: Tensor, valid: Tensor) -> Tensor:
    """softmax over the sequence of k . p, for each latent p of (H, M, D): (B, H, M, T)."""
    weights = _exponentials(torch.einsum("hmd,bhtd->bhmt", latents, k), valid[:, None, None, :])
    total = weights.sum(-1, keepdim=True)
    return weights / torch.where(total > 0, total, 1.0)


def compressed(q: Tensor, k: Tensor, v: Tensor, e: Tensor, f: Tensor) -> Tensor:
    """softmax(q (E k)^T / sqrt(D)) F v for rows (B, H or 1, M, T); a row of zeros in E is no slot."""
    scores = q @ (e @ k).transpose(-1, -2) / math.sqrt(q.shape[-1])
    return _average(_exponentials(scores, (e != 0).any(-1)[:, :, None, :]), f @ v)


def max_pooled(q: Tensor, k: Tensor, v: Tensor, *, rank: int, mask: Tensor | None = None) -> Tensor:
    """softmax(q K^T / sqrt(D)) V with K, V the largest of each slot, dimension by dimension."""
    members = pooling_rows(_valid(k, mask), rank)[:, None, :, :, None] > 0  # (B, 1, M, T, 1)
    some = members.any(dim=3)  # (B, 1, M, 1)
    pooled = []
    for x in (k, v):
        largest = torch.where(members, x[:, :, None], -math.inf).amax(dim=3)
        pooled.append(torch.where(some, largest, 0.0))
    scores = q @ pooled[0].transpose(-1, -2) / math.sqrt(q.shape[-1])
    return _average(_exponentials(scores, some[..., 0][:, :, None, :]), pooled[1])


def pooled_linformer(q: Tensor, k: Tensor, v: Tensor, *, kind: str, rank: int, mask: Tensor | None = None) -> Tensor:
    """Projections without parameters: "mean" and "max"."""
    if kind == "max":
        return max_pooled(q, k, v, rank=rank, mask=mask)
    rows = mean_rows(_valid(k, mask), rank)[:, None]
    return compressed(q, k, v, rows, rows)


def linformer(q: Tensor, k: Tensor, v: Tensor, *, kind: str, parameter: Tensor, mask: Tensor | None = None) -> Tensor:
    """Any other projection; its parameter (S, H, ...) is for keys first and values last, one head or each."""
    valid, makers = (
        _valid(k, mask),
        {
            "learned": learned_rows,
            "interpolated": interpolated_rows,
            "seeded": seeded_rows,
            "conv": convolution_rows,
        },
    )
    sides = []
    for side in (parameter[0], parameter[-1]):
        each = side.expand(k.shape[1], *side.shape[1:])
        if kind == "dynamic":
            sides.append(dynamic_rows(each, k, valid))
        else:
            sides.append(torch.stack([makers[kind](one, valid) for one in each], dim=1))
    return compressed(q, k, v, *sides)
