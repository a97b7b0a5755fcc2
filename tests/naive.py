"""Plain twins of every attention mechanism: the matrix of attention weights written out, in float64.

They follow the formulas of the papers and share no code with the package. Masks are (B, T) bool, True at real tokens; a
query without any key gets zeros. Queries are (B, H, Tq, D), keys and values (B, H, T, D), T >= 1.
"""

from __future__ import annotations

import math

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
    """phi(x): exp(w.x - |x|^2/2) for each row w of (H, M, D), or max(w.x, 0) + 0.001."""
    projected = torch.einsum("bhtd,hmd->bhtm", x, rows)
    if kind == "relu":
        return projected.clamp_min(0.0) + 1e-3
    return torch.exp(projected - (x * x).sum(-1, keepdim=True) / 2) / math.sqrt(rows.shape[1])


def performer(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    *,
    rows: Tensor,
    kind: str,
    squared_norm: Tensor | None,
    mask: Tensor | None = None,
) -> Tensor:
    """phi(q) phi(k)^T, rows divided by their sums, times v; q, k get the squared norm of their head, or a d^-1/4."""
    if squared_norm is None:
        q, k = q / q.shape[-1] ** 0.25, k / k.shape[-1] ** 0.25
    else:
        norm = squared_norm[:, None, None].sqrt()
        q, k = (norm * x / (x * x).sum(-1, keepdim=True).sqrt() for x in (q, k))
    kernel = random_features(q, rows, kind) @ random_features(k, rows, kind).transpose(-1, -2)  # (B, H, Tq, T)
    return _average(kernel * _valid(k, mask)[:, None, None, :], v)


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


def seeded_rows(rank: int, seed: int, valid: Tensor) -> Tensor:
    """Normal numbers of a stated generator, which must never change: saved models depend on them."""
    blocks = []
    for index in range(-(-valid.shape[1] // 1024)):
        generator = torch.Generator().manual_seed(1_000_003 * seed + index)
        blocks.append(torch.randn(rank, 1024, generator=generator).double())
    full = torch.cat(blocks, dim=1)[:, : valid.shape[1]]
    return restored_rows(full, torch.ones(rank, dtype=torch.float64), valid)


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


def compressed(q: Tensor, k: Tensor, v: Tensor, rows: Tensor) -> Tensor:
    """softmax(q (E k)^T / sqrt(D)) E v for rows E (B, M, T) or (B, H, M, T); a row of zeros is no slot."""
    rows = rows if rows.ndim == 4 else rows[:, None]
    scores = q @ (rows @ k).transpose(-1, -2) / math.sqrt(q.shape[-1])
    return _average(_exponentials(scores, (rows != 0).any(-1)[:, :, None, :]), rows @ v)


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


def linformer(
    q: Tensor, k: Tensor, v: Tensor, *, kind: str, parameter: Tensor | int, seed: int = 0, mask: Tensor | None = None
) -> Tensor:
    """Any projection; ``parameter`` is its learned tensor (learned, conv, dynamic) or rank (seeded, mean, max)."""
    valid = _valid(k, mask)
    if kind == "max":
        return max_pooled(q, k, v, rank=int(parameter), mask=mask)
    if isinstance(parameter, int):
        rows = seeded_rows(parameter, seed, valid) if kind == "seeded" else mean_rows(valid, parameter)
    elif kind == "dynamic":
        rows = dynamic_rows(parameter, k, valid)
    else:
        rows = {"learned": learned_rows, "conv": convolution_rows}[kind](parameter, valid)
    return compressed(q, k, v, rows)
