"""Random features for Performers: the table of kinds, and their block-orthogonal projections, drawn from a seed."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional

EPSILON = 1e-3
"""Added to features of "relu" kinds, so that no key is without weight."""


@dataclass(frozen=True)
class Kind:
    """What a kind of features is made of: README.md, "Performer".

    Attributes
    ----------
    rows : how rows w are drawn: "gaussian" (orthogonal in blocks, norms as of Gaussian vectors), "mirrored" (half of
        them the negatives of the others), "sphere" (orthogonal, norms sqrt(dim)), "waves" (half as many, each for a
        cosine and a sine), "identity" (the dimensions themselves, none drawn)
    function : phi of the projections w.x; None for exponentials exp(w.x - |x|^2/2) and for waves
    is_tuned : rows are stretched or shrunk by the measured size of queries and keys
    is_scaled : dimensions are balanced by it, too
    """

    rows: str = "gaussian"
    function: Callable[[Tensor], Tensor] | None = None
    is_tuned: bool = False
    is_scaled: bool = False

    @property
    def is_exponential(self) -> bool:
        return self.function is None and self.rows != "waves"


def _relu(projected: Tensor) -> Tensor:
    return projected.clamp_min(0.0).add_(EPSILON)


def _elu(projected: Tensor) -> Tensor:
    return functional.elu(projected).add(1.0)


FEATURES: dict[str, Kind] = {
    "positive": Kind(),
    "hyperbolic": Kind(rows="mirrored"),
    "regularized": Kind(rows="sphere"),
    "oprf": Kind(is_tuned=True),
    "saderf": Kind(is_tuned=True, is_scaled=True),
    "trigonometric": Kind(rows="waves"),
    "relu": Kind(function=_relu),
    "elu": Kind(function=_elu),
    "relu-identity": Kind(rows="identity", function=_relu),
    "elu-identity": Kind(rows="identity", function=_elu),
}
"""Kinds of features. Sources: "positive", "hyperbolic", "regularized", "trigonometric", "relu": Choromanski et al. 2020
(arXiv 2009.14794, sections 2.2 to 3); "oprf": Likhosherstov et al. 2022 (arXiv 2205.15317); "saderf": Likhosherstov et
al. 2023 (arXiv 2302.00787); "elu-identity": Katharopoulos et al. 2020 (arXiv 2006.16236, section 3.2)."""


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
    kind : one of FEATURES
    heads, count, dim : how many heads, features a head (of no account for "identity" rows), dimensions of a head
    seed : the same seed draws the same projection everywhere

    Returns
    -------
    Tensor of float32, (heads, count, dim); (heads, count / 2, dim) for waves, (heads, dim, dim) for identity rows
    """
    if kind not in FEATURES:
        raise ValueError(f"features must be one of {', '.join(FEATURES)}, got {kind!r}")
    for name, number in (("heads", heads), ("count", count), ("dim", dim)):
        if number < 1:
            raise ValueError(f"{name} must be at least 1, got {number}")
    rows = FEATURES[kind].rows
    if rows == "identity":
        return torch.eye(dim).expand(heads, -1, -1).clone()
    is_paired = rows in ("mirrored", "waves")
    if is_paired and count % 2:
        raise ValueError(f"{kind} features come in pairs: count must be even, got {count}")
    generator = torch.Generator().manual_seed(seed)
    drawn = count // 2 if is_paired else count
    projections = []
    for _ in range(heads):
        directions = orthogonal_blocks(drawn, dim, generator=generator)
        if rows == "sphere":
            norms = torch.full((drawn,), dim**0.5, dtype=torch.float64)
        else:
            norms = torch.randn(drawn, dim, generator=generator, dtype=torch.float64).norm(dim=1)
        vectors = directions * norms[:, None]
        projections.append(torch.cat([vectors, -vectors]) if rows == "mirrored" else vectors)
    return torch.stack(projections).float()
