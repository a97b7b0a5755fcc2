"""The table of attention mechanisms under test, each with its naive twin; and ways to run and compare them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import naive
import torch
from torch import Tensor

from genoformer.attention import PROJECTIONS, Attention, Hybrid, Joint, Linformer, Local, Performer, Softmax, Summary
from genoformer.attention.features import FEATURES
from genoformer.attention.linear_projections import Convolution, Interpolated, Learned, Mean, Seeded
from genoformer.attention.projections import Dynamic, Max

HEADS, DIM, RANK, RADIUS = 4, 8, 5, 6
COVERED = 300
"""Tokens that a learned projection is made for, unless a test says otherwise."""

Twin = Callable[[Attention, Tensor, Tensor, Tensor, Tensor | None], Tensor]


@dataclass(frozen=True)
class Case:
    """A mechanism: how to make it (heads, dim, tokens, seed) and its twin (module, q, k, v, mask)."""

    name: str
    make: Callable[[int, int, int, int], Attention]
    twin: Twin
    linear: bool = True  # in the number of tokens
    averages: bool = True  # outputs are weighted means of values
    any_queries: bool = True  # queries need not be the tokens themselves
    conditioning: float = 1.0  # how much larger rounding errors may come out
    features: str | None = None
    projection: str | None = None

    def module(
        self, *, heads: int = HEADS, dim: int = DIM, tokens: int = COVERED, seed: int = 1, dtype: torch.dtype
    ) -> Attention:
        """Make the module, with every parameter moved off the special values it starts at."""
        module = self.make(heads, dim, tokens, seed).to(dtype)
        generator = torch.Generator().manual_seed(seed)
        with torch.no_grad():
            for parameter in module.parameters():
                noise = torch.randn(parameter.shape, generator=generator, dtype=torch.float64)
                spread = parameter.double().square().mean().sqrt().clamp_min(0.1)
                parameter += 0.3 * (spread * noise).to(dtype)
        return module


def _performer(features: str, max_temperature: float | None = 2.0) -> Case:
    def make(heads: int, dim: int, tokens: int, seed: int) -> Attention:
        count = 512 if features == "trigonometric" else 12  # signed: sums of few may come out near zero
        module = Performer(heads, dim, count=count, features=features, max_temperature=max_temperature, seed=seed)
        if module.kind.is_tuned:
            generator = torch.Generator().manual_seed(seed)
            module.moments.mean.copy_(0.2 * torch.randn(2, heads, dim, generator=generator))
            module.moments.square.copy_(torch.rand(2, heads, dim, generator=generator) + 0.3)
        return module

    return Case(
        f"performer-{features}" + ("" if max_temperature else "-natural"),
        make,
        twin_performer,
        averages=features != "trigonometric",
        # Estimates of exp(x.y) with both signs, far from accurate at natural norm: their sums nearly cancel.
        conditioning=1000.0 if features == "trigonometric" and not max_temperature else 1.0,
        features=features,
    )


def twin_performer(module: Attention, q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None) -> Tensor:
    assert isinstance(module, Performer)
    norm = None if module.max_temperature is None else module.max_temperature / (1 + torch.exp(-module.temperature))
    moments = (module.moments.mean, module.moments.square) if module.kind.is_tuned else None
    return naive.performer(
        q, k, v, rows=module.projection, kind=module.features, squared_norm=norm, mask=mask, moments=moments
    )


def _linformer(kind: str, sharing: str = "layerwise", start: str = "pool") -> Case:
    def make(heads: int, dim: int, tokens: int, seed: int) -> Attention:
        torch.manual_seed(seed)
        shared, begun = {"heads": heads, "sharing": sharing}, {"start": start}
        projections = {
            "learned": lambda: Learned(RANK, tokens, **shared, **begun),
            "seeded": lambda: Seeded(RANK, seed=seed, **shared),
            "interpolated": lambda: Interpolated(RANK, 2 * RANK + 1, **shared, **begun),
            "mean": lambda: Mean(RANK),
            "max": lambda: Max(RANK),
            "conv": lambda: Convolution(RANK + 2, **shared, **begun),
            "dynamic": lambda: Dynamic(RANK, heads, dim, sharing=sharing),
        }
        return Linformer(projections[kind]())

    averages, linear = kind in ("mean", "dynamic"), kind != "conv"  # its slots are as many as strides
    changed = [word for word in (sharing, start) if word not in ("layerwise", "pool")]
    name = "-".join(["linformer", kind, *changed])
    return Case(name, make, twin_linformer, linear=linear, averages=averages, projection=kind)


def twin_linformer(module: Attention, q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None) -> Tensor:
    assert isinstance(module, Linformer)
    kind = next(name for name, of in PROJECTIONS.items() if type(module.projection) is of)
    projection = module.projection
    if isinstance(projection, Mean | Max):
        return naive.pooled_linformer(q, k, v, kind=kind, rank=projection.rank, mask=mask)
    if isinstance(projection, Seeded):
        shape = (projection.sides, projection.heads, projection.rank, k.shape[2])
        return naive.linformer(q, k, v, kind=kind, parameter=naive.seeded(shape, int(projection.seed)), mask=mask)
    (parameter,) = projection.parameters()
    return naive.linformer(q, k, v, kind=kind, parameter=parameter, mask=mask)


def _hybrid(name: str, second: Case) -> Case:
    def make(heads: int, dim: int, tokens: int, seed: int) -> Attention:
        return Hybrid(Local(radius=RADIUS), second.make(heads - 1, dim, tokens, seed), first_heads=1)

    def twin(module: Attention, q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None) -> Tensor:
        assert isinstance(module, Hybrid)
        first = naive.local(q[:, :1], k[:, :1], v[:, :1], radius=RADIUS, mask=mask)
        return torch.cat([first, second.twin(module.second, q[:, 1:], k[:, 1:], v[:, 1:], mask)], dim=1)

    return Case(name, make, twin, averages=second.averages, any_queries=False)


def _joint(name: str, features: str, *, rotate: bool) -> Case:
    def make(heads: int, dim: int, tokens: int, seed: int) -> Attention:
        performer = _performer(features).make(heads, dim, tokens, seed)
        assert isinstance(performer, Performer)
        return Joint(performer, radius=RADIUS, rotary=rotate)

    return Case(name, make, twin_joint, any_queries=False)


def twin_joint(module: Attention, q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None) -> Tensor:
    assert isinstance(module, Joint)
    performer = module.performer
    assert performer.max_temperature is not None
    norm = performer.max_temperature / (1 + torch.exp(-performer.temperature))
    moments = (performer.moments.mean, performer.moments.square) if performer.kind.is_tuned else None
    return naive.joint(
        q, k, v, rows=performer.projection, squared_norm=norm, radius=module.radius, moments=moments, mask=mask,
        rotate=module.rotary,
    )  # fmt: skip


def _softmax(name: str, rotate: bool) -> Case:
    return Case(
        name,
        lambda heads, dim, tokens, seed: Softmax(rotary=rotate),
        lambda module, q, k, v, mask: naive.softmax(q, k, v, mask=mask, rotate=rotate),
        linear=False,
    )


def _local(name: str, rotate: bool) -> Case:
    return Case(
        name,
        lambda heads, dim, tokens, seed: Local(radius=RADIUS, rotary=rotate),
        lambda module, q, k, v, mask: naive.local(q, k, v, radius=RADIUS, mask=mask, rotate=rotate),
        any_queries=False,
    )


_ALL = [
    _softmax("softmax", False),
    _softmax("softmax-rotary", True),
    _local("local", True),
    _local("local-plain", False),
    *(_performer(kind) for kind in FEATURES),
    *(_performer(kind, None) for kind in ("positive", "oprf", "saderf", "trigonometric", "relu")),
    *(_linformer(kind) for kind in PROJECTIONS),
    _linformer("learned", "none", "normal"),
    _linformer("learned", "headwise"),
    _linformer("seeded", "none"),
    _linformer("interpolated", "headwise", "normal"),
    _linformer("conv", "none"),
    _linformer("dynamic", "none"),
    _hybrid("hybrid-performer", _performer("positive")),
    _hybrid("hybrid-linformer", _linformer("dynamic")),
    *(_joint(f"joint-{kind}", kind, rotate=False) for kind in ("positive", "hyperbolic", "regularized", "oprf")),
    _joint("joint-rotary", "positive", rotate=True),
]
CASES: dict[str, Case] = {case.name: case for case in _ALL}


def draw(
    *shape: int, seed: int = 0, dtype: torch.dtype = torch.float64, count: int = 3, scale: float = 1.0
) -> list[Tensor]:
    """Draw tensors of standard normal numbers, the same in every precision."""
    generator = torch.Generator().manual_seed(seed)
    return [(scale * torch.randn(shape, generator=generator, dtype=torch.float64)).to(dtype) for _ in range(count)]


def prefix_mask(lengths: Sequence[int], tokens: int) -> Tensor:
    """Valid up to each length."""
    return torch.arange(tokens) < torch.tensor(list(lengths))[:, None]


def lengths_of(mask: Tensor | None, batch: int, tokens: int) -> Tensor:
    """One past the last valid token of each row, found by counting backwards."""
    if mask is None:
        return torch.full((batch,), tokens)
    return torch.tensor([max((t + 1 for t, yes in enumerate(row) if yes), default=0) for row in mask.tolist()])


def bounds(sizes: Sequence[int]) -> list[slice]:
    """Turn chunk sizes into slices, one after the other."""
    ends = [sum(sizes[: i + 1]) for i in range(len(sizes))]
    return [slice(end - size, end) for end, size in zip(ends, sizes, strict=True)]


def summaries(module: Attention, k: Tensor, v: Tensor, mask: Tensor | None, pieces: Sequence[slice]) -> list[Summary]:
    """Summarize chunk by chunk."""
    lengths = lengths_of(mask, k.shape[0], k.shape[2])
    return [
        module.summarize(
            k[:, :, p],
            v[:, :, p],
            start=p.start,
            lengths=lengths,
            mask=None if mask is None else mask[:, p],
        )
        for p in pieces
    ]


def total(parts: Sequence[Summary]) -> Summary:
    """Merge from left to right."""
    summary = parts[0]
    for part in parts[1:]:
        summary = summary + part
    return summary


def stream(module: Attention, q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, pieces: Sequence[slice]) -> Tensor:
    """Summarize chunk by chunk, then attend chunk by chunk."""
    summary = total(summaries(module, k, v, mask, pieces))
    return torch.cat([module.attend(q[:, :, p], summary, start=p.start) for p in pieces], dim=2)


def gradients(output: Tensor, inputs: Sequence[Tensor], *, seed: int = 9) -> list[Tensor]:
    """Gradients of a random linear function of the output; zeros where it does not depend on an input."""
    if not output.requires_grad:
        return [torch.zeros_like(x) for x in inputs]
    generator = torch.Generator().manual_seed(seed)
    weights = torch.randn(output.shape, generator=generator, dtype=torch.float64).to(output.dtype)
    found = torch.autograd.grad((output * weights).sum(), list(inputs), allow_unused=True, retain_graph=True)
    return [torch.zeros_like(x) if g is None else g for g, x in zip(found, inputs, strict=True)]


def close(got: Tensor, expected: Tensor, tolerance: float, what: str = "") -> None:
    """Largest difference at most ``tolerance`` times the largest number expected, or times 1 if that is smaller."""
    assert got.shape == expected.shape, f"{what}: shape {tuple(got.shape)}, expected {tuple(expected.shape)}"
    if expected.numel() == 0:
        return
    got, expected = got.detach().double(), expected.detach().double()
    assert bool(torch.isfinite(got).all()), f"{what}: not finite"
    difference = float((got - expected).abs().max())
    scale = max(1.0, float(expected.abs().max()))
    assert difference <= tolerance * scale, f"{what}: differs by {difference:.3g}, scale {scale:.3g}"


def error(got: Tensor, expected: Tensor) -> float:
    """Norm of the difference over the norm of what was expected."""
    got, expected = got.detach().double(), expected.detach().double()
    return float((got - expected).norm() / expected.norm())
