"""What the tests of faults share: plain formulas, and a watch on what is made and what it costs."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor
from watch import Watch

from genoformer.attention import Attention, Performer
from genoformer.attention.features import FEATURES

from .cases import CASES, DIM, HEADS, draw

every_case = pytest.mark.parametrize("case", CASES.values(), ids=list(CASES))
LINEAR = [case for case in CASES.values() if case.linear]
COMPRESSED = [case for case in CASES.values() if case.linear or case.projection == "conv"]
EXPONENTIAL = [kind for kind, of in FEATURES.items() if of.is_exponential]


def natural(features: str = "positive", *, count: int = 64, dim: int = DIM, heads: int = HEADS) -> Performer:
    """A Performer whose queries and keys keep their norms, as in the papers."""
    return Performer(heads, dim, count=count, features=features, max_temperature=None, seed=3)


def explicit(q: Tensor, k: Tensor, v: Tensor, query_features: Tensor, key_features: Tensor) -> Tensor:
    """phi(q) (phi(k)^T v) / phi(q) sum phi(k), without any safeguard."""
    state, count = key_features.transpose(-1, -2) @ v, key_features.sum(dim=-2)[..., None]
    return (query_features @ state) / (query_features @ count)


def scaled(x: Tensor, power: float = 0.25) -> Tensor:
    return x / x.shape[-1] ** power


def watched(module: Attention, tokens: int, *, heads: int, dim: int, backward: bool = False) -> Watch:
    inputs = [x.requires_grad_(backward) for x in draw(1, heads, tokens, dim, dtype=torch.float32)]
    with Watch() as watch:
        output = module(*inputs)
        if backward:
            output.sum().backward()
    return watch
