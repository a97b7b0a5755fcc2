"""Queries, keys and values, random or of a model, and the mechanisms that could replace exact attention on them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor, nn
from torch.nn import functional

from genoformer.attention import PROJECTIONS, Attention, Hybrid, Joint, Linformer, Local, MultiHead, Performer, Softmax
from genoformer.attention.features import FEATURES
from genoformer.attention.projections import Projection
from genoformer.attention.softmax import rotate
from genoformer.errors import InputError
from genoformer.model.genoformer import Genoformer

LEAST_TOKENS, MOST_TOKENS = 16, 4096
"""Of a stretch: the matrix of attention weights is written out."""


@dataclass(frozen=True)
class Sample:
    """Queries, keys and values of one stretch of tokens, (heads, tokens, dim) each.

    Attributes
    ----------
    queries, keys : scaled, x and y: the exact weights are softmax(x.y)
    own : the mechanism of the model that they came from, with raw queries and keys; None where none did
    """

    name: str
    queries: Tensor
    keys: Tensor
    values: Tensor
    own: tuple[Attention, Tensor, Tensor] | None = None

    @property
    def heads(self) -> int:
        return self.queries.shape[0]

    @property
    def tokens(self) -> int:
        return self.queries.shape[1]

    @property
    def dim(self) -> int:
        return self.queries.shape[2]

    @property
    def squared_norm(self) -> float:
        """Mean of |x|^2 and |y|^2."""
        return float(torch.cat([self.queries, self.keys]).square().sum(dim=-1).mean())

    @cached_property
    def weights(self) -> Tensor:
        """The exact matrix (heads, tokens, tokens)."""
        return (self.queries @ self.keys.transpose(1, 2)).softmax(dim=-1)

    @cached_property
    def exact(self) -> Tensor:
        """The exact outputs (heads, tokens, dim)."""
        return self.weights @ self.values

    def outputs(self, attention: Attention) -> Tensor:
        """Return what a mechanism that scales by dim^-1/4 makes of it (heads, tokens, dim)."""
        factor = self.dim**0.25
        with torch.no_grad():
            return attention(self.queries[None] * factor, self.keys[None] * factor, self.values[None])[0]

    def error(self, outputs: Tensor) -> float:
        """Return the norm of the difference from the exact outputs, over the norm of those."""
        return float((outputs - self.exact).double().norm() / self.exact.double().norm())

    @property
    def trivial_error(self) -> float:
        """The error of the mean of the values as the answer to every query."""
        return self.error(self.values.mean(dim=1, keepdim=True).expand_as(self.values))

    @property
    def own_error(self) -> float | None:
        """The error of the mechanism of the model itself."""
        if self.own is None:
            return None
        attention, queries, keys = self.own
        with torch.no_grad():
            return self.error(attention(queries[None], keys[None], self.values[None])[0])


@dataclass(frozen=True)
class Stretches:
    """Two stretches of the same kind: one to choose sizes by, one held out to check them on."""

    fit: Sample
    held_out: Sample


def random_stretches(*, squared_norm: float, dim: int, tokens: int, heads: int, seed: int) -> Stretches:
    """Draw queries and keys of a norm, evenly over directions, and standard normal values."""
    generator = torch.Generator().manual_seed(seed)

    def draw() -> Sample:
        q, k, v = (torch.randn(heads, tokens, dim, generator=generator) for _ in range(3))
        q, k = (squared_norm**0.5 * functional.normalize(x, dim=-1) for x in (q, k))
        return Sample("random", q, k, v)

    return Stretches(draw(), draw())


def model_stretches(model: Genoformer, codes: Tensor, *, tokens: int) -> list[Stretches]:
    """Run a model over codes (bases,), and cut queries, keys and values of its global layers into two stretches.

    Parameters
    ----------
    tokens : of a stretch, at most; half of all tokens if they are fewer than two stretches

    Raises
    ------
    InputError : the sequence is too short, or the model has no global attention layer
    """
    count = -(-len(codes) // model.encoder.stem.stride)
    tokens = min(tokens, count // 2)
    if tokens < LEAST_TOKENS:
        least = 2 * LEAST_TOKENS * model.encoder.stem.stride
        raise InputError(f"the sequence has {len(codes)} bases, at least {least} are needed; give a longer one")
    codes = codes[: 2 * tokens * model.encoder.stem.stride]
    with _recorded(model) as records, torch.no_grad():
        model(codes[None])
    found = []
    for index, (layer, seen) in enumerate(records):
        for name, attention, q, k, v in _parts(f"block {index}", layer.attention, *_projected(layer, seen)):
            x, y = _scaled(attention, q), _scaled(attention, k)
            parts = (
                Sample(name, x[:, p], y[:, p], v[:, p], own=(attention, q[:, p], k[:, p]))
                for p in (slice(0, tokens), slice(tokens, 2 * tokens))
            )
            found.append(Stretches(*parts))
    if not found:
        raise InputError("this model has no global attention layer (softmax, performer or linformer) to look at")
    return found


@contextmanager
def _recorded(model: nn.Module) -> Iterator[list[tuple[MultiHead, Tensor]]]:
    """Note the tokens (B, T, W) that each attention layer is asked for, in the order of the model."""
    records: list[tuple[MultiHead, Tensor]] = []
    layers = [module for module in model.modules() if isinstance(module, MultiHead)]

    def watch(layer: MultiHead) -> None:
        attend = layer.attend

        def noted(tokens: Tensor, *given: object, **named: object) -> Tensor:
            records.append((layer, tokens.detach()))
            return attend(tokens, *given, **named)  # type: ignore[arg-type]

        layer.attend = noted  # type: ignore[method-assign]

    for layer in layers:
        watch(layer)
    try:
        yield records
    finally:
        for layer in layers:
            del layer.attend


def _projected(layer: MultiHead, tokens: Tensor) -> list[Tensor]:
    """Return queries, keys and values of a batch of one, (heads, tokens, dim) each."""
    with torch.no_grad():
        projected = layer.project(tokens[0]).float().cpu()
    return list(projected.unflatten(1, (3, layer.heads, -1)).permute(1, 2, 0, 3))


def _parts(
    name: str, attention: Attention, q: Tensor, k: Tensor, v: Tensor
) -> Iterator[tuple[str, Attention, Tensor, Tensor, Tensor]]:
    """Yield the global mechanisms of a layer, with what their heads see."""
    if isinstance(attention, Hybrid):
        first = attention.first_heads
        yield from _parts(f"{name} hybrid", attention.second, q[first:], k[first:], v[first:])
    elif isinstance(attention, Softmax | Performer | Linformer | Joint):
        yield f"{name} {type(attention).__name__.lower()}", attention.cpu(), q, k, v


def _scaled(attention: Attention, vectors: Tensor) -> Tensor:
    """Return queries or keys as exact attention of the same scaling would take them."""
    with torch.no_grad():
        if isinstance(attention, Softmax | Joint) and attention.rotary:
            vectors = rotate(vectors[None], 0)[0]
        if isinstance(attention, Performer | Joint):
            return (attention.performer if isinstance(attention, Joint) else attention).scaled(vectors[None])[0]
        return vectors * vectors.shape[-1] ** -0.25


@dataclass(frozen=True)
class Candidate:
    """A mechanism that could stand for exact attention.

    Attributes
    ----------
    family, kind : such as "performer", "positive"
    make : called with a sample to tune it by, a size (features, slots, or tokens of a window) and a seed
    is_random : other seeds give another answer
    has_size : its size can be chosen
    """

    family: str
    kind: str
    make: Callable[[Sample, int, int], Attention]
    is_random: bool = False
    has_size: bool = True

    @property
    def name(self) -> str:
        return f"{self.family} {self.kind}".strip()

    def error(self, fit: Sample, sample: Sample, *, size: int, seed: int) -> float:
        """Return the relative error of its outputs on ``sample``, tuned on ``fit``."""
        return sample.error(sample.outputs(self.make(fit, size, seed)))


def make_performer(kind: str, fit: Sample, size: int, seed: int) -> Performer:
    """Make a Performer that keeps norms; tuned features settle on what ``fit`` holds."""
    module = Performer(fit.heads, fit.dim, count=size, features=kind, max_temperature=None, seed=seed)
    if FEATURES[kind].is_tuned:
        fit.outputs(module.train())
        module.moments.settle()
    return module.eval()


def _performer(kind: str) -> Candidate:
    drawn = FEATURES[kind].rows != "identity"
    return Candidate(
        "performer", kind, lambda fit, size, seed: make_performer(kind, fit, size, seed), drawn, has_size=drawn
    )


def _linformer(kind: str) -> Candidate:
    def make(fit: Sample, size: int, seed: int) -> Attention:
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            makers: dict[str, Callable[[], Projection]] = {
                "learned": lambda: PROJECTIONS[kind](size, fit.tokens),
                "interpolated": lambda: PROJECTIONS[kind](size, max(size, min(4 * size, fit.tokens))),
                "seeded": lambda: PROJECTIONS[kind](size, seed=seed),
                "conv": lambda: PROJECTIONS[kind](-(-fit.tokens // size)),
                "dynamic": lambda: PROJECTIONS[kind](size, fit.heads, fit.dim),
            }
            return Linformer(makers.get(kind, lambda: PROJECTIONS[kind](size))())

    return Candidate("linformer", kind, make, is_random=kind in ("seeded", "dynamic"))


CANDIDATES: dict[str, Candidate] = {
    candidate.name: candidate
    for candidate in (
        *(_performer(kind) for kind in FEATURES),
        *(_linformer(kind) for kind in PROJECTIONS),
        Candidate("local", "", lambda fit, size, seed: Local(radius=max(1, size // 2), rotary=False)),
    )
}
"""Every mechanism compared, untrained: learned, interpolated, conv and dynamic projections are as they start."""
