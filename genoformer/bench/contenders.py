"""What `genoformer bench attention` measures: our mechanisms, exact attention, and other libraries where installed."""

from __future__ import annotations

import importlib
import importlib.util
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from types import ModuleType
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional

from genoformer.attention import PROJECTIONS, Attention, Hybrid, Joint, Linformer, Local, MultiHead, Performer, Softmax
from genoformer.attention.features import FEATURES

Operations = Callable[["Shape", int], float]
Core = Callable[["Shape", int], Attention]
CORE, LAYER = "core", "layer"
GROUPS = {
    CORE: "attention alone: queries, keys and values are given",
    LAYER: "whole layer: queries, keys, values and outputs are projected, too",
}
"""What may be compared with what."""


@dataclass(frozen=True)
class Shape:
    """The sizes of an attention layer.

    Attributes
    ----------
    heads, dim : attention heads, dimensions of each
    features : random features a head, of Performers
    rank : slots, of Linformers
    radius : tokens to each side, of local attention
    """

    heads: int = 4
    dim: int = 32
    features: int = 128
    rank: int = 256
    radius: int = 64

    @property
    def width(self) -> int:
        return self.heads * self.dim

    def inputs(self, group: str, tokens: int, *, device: torch.device | str = "cpu") -> list[Tensor]:
        """Draw what a contender of a group is called with: three (1, H, T, D) or one (1, T, W), standard normal."""
        generator = torch.Generator().manual_seed(tokens)
        size, count = ((1, self.heads, tokens, self.dim), 3) if group == CORE else ((1, tokens, self.width), 1)
        return [torch.randn(size, generator=generator).to(device) for _ in range(count)]


@dataclass(frozen=True)
class Contender:
    """One way to attend.

    Attributes
    ----------
    name, group : group is CORE or LAYER; the pair is unique
    make : the module for a shape and a number of tokens, called with `Shape.inputs`
    operations : floating-point operations of its matrix products, forward, for a shape and a number of tokens
    is_quadratic : in time
    package : the distribution it comes from; empty if it is ours
    is_usual : measured unless asked otherwise
    """

    name: str
    group: str
    make: Callable[[Shape, int], nn.Module]
    operations: Operations
    is_quadratic: bool = False
    package: str = ""
    is_usual: bool = True

    @property
    def key(self) -> str:
        return f"{self.group}/{self.name}"

    def matrix_bytes(self, shape: Shape, tokens: int) -> int:
        """Return the size of the scores and weights of all pairs, if they are formed."""
        return 2 * 4 * shape.heads * tokens**2 if self.name == MATRIX else 0

    def unavailable(self) -> str:
        """Return why it cannot be measured here; nothing if it can."""
        return why_missing(self.package) if self.package else ""


FUSED, MATRIX = "exact-fused", "exact-matrix"


class Fused(nn.Module):
    """Exact attention by torch's fused kernel."""

    def forward(self, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        return functional.scaled_dot_product_attention(q, k, v)


class Materialized(nn.Module):
    """Exact attention that forms the weights of all pairs, as it is usually written down."""

    def forward(self, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        return torch.softmax(q @ k.transpose(-1, -2) * q.shape[-1] ** -0.5, dim=-1) @ v


class FusedLayer(nn.Module):
    """Four linear maps around the fused kernel."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.queries, self.keys, self.values, self.combine = (nn.Linear(width, width) for _ in range(4))

    def forward(self, tokens: Tensor) -> Tensor:
        q, k, v = (
            project(tokens).unflatten(-1, (self.heads, -1)).transpose(1, 2)
            for project in (self.queries, self.keys, self.values)
        )
        attended = functional.scaled_dot_product_attention(q, k, v)
        return self.combine(attended.transpose(1, 2).flatten(2))


def why_missing(package: str) -> str:
    """Say why a package cannot be used: not installed, or not importable here; nothing if it can.

    >>> why_missing("torch")
    ''
    """
    module = package.replace("-", "_")
    if importlib.util.find_spec(module) is None:
        return f"{package} is not installed; get it with: pip install 'genoformer[bench]'"
    try:
        _load(package)
    except Exception as error:  # whatever a package of others may do when imported
        return f"{package} is installed, but cannot be imported here: {type(error).__name__}: {error}"
    return ""


def _load(package: str) -> ModuleType:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return importlib.import_module(package.replace("-", "_"))


def _performer_pytorch(shape: Shape, tokens: int) -> Any:
    return _load("performer-pytorch").FastAttention(dim_heads=shape.dim, nb_features=shape.features, causal=False)


def _performer_pytorch_layer(shape: Shape, tokens: int) -> Any:
    return _load("performer-pytorch").SelfAttention(
        dim=shape.width, heads=shape.heads, dim_head=shape.dim, nb_features=shape.features, causal=False
    )


def _linformer(shape: Shape, tokens: int) -> Any:
    return _load("linformer").LinformerSelfAttention(shape.width, tokens, k=shape.rank, heads=shape.heads)


def _linformer_pytorch(shape: Shape, tokens: int) -> Any:
    package = _load("linformer-pytorch")
    shared = package.get_EF(tokens, shape.rank)  # "layerwise" sharing, its default: one projection, made outside
    return package.MHAttention(
        input_size=tokens, dim=shape.dim, channels=shape.width, dim_k=shape.rank, nhead=shape.heads, dropout=0.0,
        checkpoint_level="C0", parameter_sharing="layerwise", E_proj=shared, F_proj=shared, full_attention=False,
        causal_mask=None,
    )  # fmt: skip


def _local_attention(shape: Shape, tokens: int) -> Any:
    return _load("local-attention").LocalAttention(
        window_size=shape.radius, look_backward=1, look_forward=1, dim=shape.dim, autopad=True, exact_windowsize=True
    )


def _hybrid(shape: Shape, tokens: int) -> Attention:
    near = shape.heads // 2
    far = Performer(shape.heads - near, shape.dim, count=shape.features)
    return Hybrid(Local(radius=shape.radius), far, first_heads=near)


def _joint(shape: Shape, tokens: int) -> Attention:
    return Joint(Performer(shape.heads, shape.dim, count=shape.features), radius=shape.radius)


def _exact(shape: Shape, tokens: int) -> float:
    return 4.0 * tokens**2 * shape.width


def _near(shape: Shape, tokens: int) -> float:
    return 12.0 * tokens * shape.radius * shape.width


def _random(shape: Shape, tokens: int) -> float:
    return 8.0 * tokens * shape.features * shape.width


def _paired(shape: Shape, tokens: int) -> float:
    """Return the operations of a Performer two of whose features come from one row."""
    return 0.75 * _random(shape, tokens)


def _dimensions(shape: Shape, tokens: int) -> float:
    """Return the operations of a Performer whose features are the dimensions themselves."""
    return 8.0 * tokens * shape.dim * shape.width


def _all_near(shape: Shape, tokens: int) -> float:
    return _near(shape, tokens) + _random(shape, tokens)


def _half_near(shape: Shape, tokens: int) -> float:
    return (_near(shape, tokens) + _random(shape, tokens)) / 2


def _slots(products: int) -> Operations:
    """Return the operations of a Linformer: two products of queries with slots, and so many to make the slots."""
    return lambda shape, tokens: 2.0 * (2 + products) * tokens * shape.rank * shape.width


def _projected(core: Operations) -> Operations:
    """Add four linear maps of all tokens."""
    return lambda shape, tokens: core(shape, tokens) + 8.0 * tokens * shape.width**2


def _projected_slots(products: int) -> Operations:
    """Return the operations of a Linformer that projects its slots, not all tokens, to keys and values."""
    core = _slots(products)
    return lambda shape, tokens: core(shape, tokens) + 4.0 * (tokens + shape.rank) * shape.width**2


def _performer(kind: str) -> Core:
    return lambda shape, tokens: Performer(shape.heads, shape.dim, count=shape.features, features=kind)


def _compressed(kind: str, sharing: str = "layerwise") -> Core:
    def make(shape: Shape, tokens: int) -> Attention:
        projection = {
            "learned": lambda: PROJECTIONS["learned"](shape.rank, tokens, sharing=sharing),
            "interpolated": lambda: PROJECTIONS["interpolated"](shape.rank, 4 * shape.rank),
            "dynamic": lambda: PROJECTIONS["dynamic"](shape.rank, shape.heads, shape.dim),
        }
        return Linformer(projection[kind]() if kind in projection else PROJECTIONS[kind](shape.rank))

    return make


class Ours(NamedTuple):
    """A mechanism of ours, with operations alone and as a whole layer, and whether it is usual there."""

    make: Core
    core: Operations
    layer: Operations
    usual_core: bool = True
    usual_layer: bool = False


def _linformer_ours(kind: str, *, products: int, in_layer: int, usual: bool = True, layer: bool = False) -> Ours:
    return Ours(_compressed(kind), _slots(products), _projected_slots(in_layer), usual, layer)


def _performer_ours(kind: str) -> Ours:
    usual = kind in ("positive", "hyperbolic", "relu")
    count = {"identity": _dimensions, "waves": _paired}.get(FEATURES[kind].rows, _random)
    return Ours(_performer(kind), count, _projected(count), usual, kind == "positive")


_OURS = {
    "local": Ours(lambda shape, tokens: Local(radius=shape.radius), _near, _projected(_near), usual_layer=True),
    **{f"performer-{kind}": _performer_ours(kind) for kind in FEATURES},
    "linformer-learned": _linformer_ours("learned", products=2, in_layer=1, layer=True),
    "linformer-learned-two": Ours(
        _compressed("learned", "headwise"), _slots(2), _projected_slots(2), usual_core=False, usual_layer=True
    ),
    "linformer-seeded": _linformer_ours("seeded", products=2, in_layer=1),
    "linformer-interpolated": _linformer_ours("interpolated", products=0, in_layer=0, usual=False),
    "linformer-mean": _linformer_ours("mean", products=0, in_layer=0, layer=True),
    "linformer-max": Ours(_compressed("max"), _slots(0), _projected(_slots(0)), usual_core=False),
    "linformer-dynamic": Ours(_compressed("dynamic"), _slots(4), _projected(_slots(4))),
    "hybrid": Ours(_hybrid, _half_near, _projected(_half_near)),
    "joint": Ours(_joint, _all_near, _projected(_all_near)),
}
"""Linformers by kind of projection; "learned-two" has one for keys and another for values."""


def _layer(make: Core) -> Callable[[Shape, int], nn.Module]:
    return lambda shape, tokens: MultiHead(shape.width, shape.heads, make(shape, tokens))


_ALL = [
    Contender(FUSED, CORE, lambda shape, tokens: Fused(), _exact, is_quadratic=True),
    Contender(MATRIX, CORE, lambda shape, tokens: Materialized(), _exact, is_quadratic=True),
    Contender("softmax", CORE, lambda shape, tokens: Softmax(), _exact, is_quadratic=True),
    *(Contender(name, CORE, ours.make, ours.core, is_usual=ours.usual_core) for name, ours in _OURS.items()),
    Contender("performer-pytorch", CORE, _performer_pytorch, _random, package="performer-pytorch"),
    Contender("local-attention", CORE, _local_attention, _near, package="local-attention"),
    Contender(
        FUSED, LAYER, lambda shape, tokens: FusedLayer(shape.width, shape.heads), _projected(_exact), is_quadratic=True
    ),
    *(Contender(name, LAYER, _layer(ours.make), ours.layer, is_usual=ours.usual_layer) for name, ours in _OURS.items()),
    Contender("performer-pytorch", LAYER, _performer_pytorch_layer, _projected(_random), package="performer-pytorch"),
    Contender("linformer", LAYER, _linformer, _projected(_slots(2)), package="linformer"),
    Contender("linformer-pytorch", LAYER, _linformer_pytorch, _projected(_slots(2)), package="linformer-pytorch"),
]
CONTENDERS: dict[str, Contender] = {contender.key: contender for contender in _ALL}
"""All of them by "group/name"."""
