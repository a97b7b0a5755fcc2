"""What the tests of faults share: plain formulas, and a watch on what is made and what it costs."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

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


def tensors_in(result: object) -> Iterator[Tensor]:
    if isinstance(result, Tensor):
        yield result
    elif isinstance(result, tuple | list):
        for item in result:
            yield from tensors_in(item)


class Watch(TorchDispatchMode):
    """Notes the largest tensor that any operation returns, and what matrix products cost."""

    def __init__(self) -> None:
        super().__init__()
        self.largest, self.operations = 0, 0

    def __torch_dispatch__(
        self, func: Callable[..., object], types: object, args: tuple = (), kwargs: dict | None = None
    ) -> object:
        result = func(*args, **(kwargs or {}))
        for tensor in tensors_in(result):
            if tensor.untyped_storage().nbytes():  # views and expansions count as what they occupy
                occupied = tensor.untyped_storage().nbytes() // tensor.element_size()
                self.largest = max(self.largest, min(tensor.numel(), occupied))
        name = str(func)
        if "scaled_dot_product" in name and "backward" not in name:
            q, k = args[0], args[1]
            self.operations += 4 * q.shape[0] * q.shape[1] * q.shape[2] * k.shape[2] * q.shape[3]
        elif name.startswith(("aten.mm", "aten.bmm", "aten.addmm")):
            a, b = args[-2], args[-1]
            self.operations += 2 * a.numel() * b.shape[-1]
        return result


def watched(module: Attention, tokens: int, *, heads: int, dim: int, backward: bool = False) -> Watch:
    inputs = [x.requires_grad_(backward) for x in draw(1, heads, tokens, dim, dtype=torch.float32)]
    with Watch() as watch:
        output = module(*inputs)
        if backward:
            output.sum().backward()
    return watch
