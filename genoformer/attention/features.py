"""Random projections for Performers: block-orthogonal directions, drawn per head from a seed."""

from __future__ import annotations

import torch
from torch import Tensor

FEATURES = ("positive", "hyperbolic", "regularized", "relu")
"""Kinds of random features: README.md, "Performer"."""


def orthogonal_blocks(count: int, dim: int, *, generator: torch.Generator) -> Tensor:
    """Draw ``count`` unit directions in ``dim`` dimensions, orthogonal within blocks of ``dim``, in float64.

    Each block is the Q of a Gaussian matrix's QR with the signs of R's diagonal moved into it: only then it is
    distributed evenly over rotations (Mezzadri 2007, arXiv math-ph/0609050, section 5).
    """
    blocks = []
    for first in range(0, count, dim):
        gaussian = torch.randn(dim, dim, generator=generator, dtype=torch.float64)
        q, r = torch.linalg.qr(gaussian)
        q = q * torch.sign(torch.diagonal(r))
        blocks.append(q.T[: count - first])
    return torch.cat(blocks)


def draw_projection(kind: str, *, heads: int, count: int, dim: int, seed: int) -> Tensor:
    """Draw the rows w of a Performer's features, one set a head.

    Parameters
    ----------
    kind : one of FEATURES. Row norms are chi-distributed ("positive", "hyperbolic", "relu": Choromanski et al. 2020,
        arXiv 2009.14794, section 2.4) or sqrt(dim) ("regularized", same paper, section 3); "hyperbolic" is the
        rows and their negatives (same paper, Lemma 1)
    heads, count, dim : how many heads, features a head, dimensions of a head
    seed : the same seed draws the same projection everywhere

    Returns
    -------
    Tensor of float32, (heads, count, dim)
    """
    if kind not in FEATURES:
        raise ValueError(f"features must be one of {', '.join(FEATURES)}, got {kind!r}")
    if kind == "hyperbolic" and count % 2:
        raise ValueError(f"hyperbolic features come in pairs: count must be even, got {count}")
    generator = torch.Generator().manual_seed(seed)
    drawn = count // 2 if kind == "hyperbolic" else count
    projections = []
    for _ in range(heads):
        rows = orthogonal_blocks(drawn, dim, generator=generator)
        if kind == "regularized":
            norms = torch.full((drawn,), dim**0.5, dtype=torch.float64)
        else:
            norms = torch.randn(drawn, dim, generator=generator, dtype=torch.float64).norm(dim=1)
        rows = rows * norms[:, None]
        projections.append(torch.cat([rows, -rows]) if kind == "hyperbolic" else rows)
    return torch.stack(projections).float()
