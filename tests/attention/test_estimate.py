"""Estimates of operations and memory against what a run really does."""

from __future__ import annotations

from dataclasses import fields, is_dataclass
from typing import Any

import pytest
import torch
from torch import Tensor
from watch import measure

from genoformer.attention import ATTENTION, PROJECTIONS, Attention, Hybrid, Joint, Linformer, Local, Performer, Softmax
from genoformer.attention.estimate import Estimate, estimate, usual
from genoformer.attention.features import FEATURES

HEADS, DIM, COUNT = 2, 16, 64


def modules(tokens: int, *, heads: int = HEADS, dim: int = DIM, count: int = COUNT) -> dict[str, Attention]:
    linear = {
        "learned": PROJECTIONS["learned"](count, tokens),
        "seeded": PROJECTIONS["seeded"](count),
        "interpolated": PROJECTIONS["interpolated"](count, 4 * count),
        "mean": PROJECTIONS["mean"](count),
        "max": PROJECTIONS["max"](count),
        "conv": PROJECTIONS["conv"](-(-tokens // count)),
        "dynamic": PROJECTIONS["dynamic"](count, heads, dim),
    }
    assert set(linear) == set(PROJECTIONS)
    return {
        "softmax": Softmax(),
        "softmax-rotary": Softmax(rotary=True),
        "local": Local(radius=32),
        "local-plain": Local(radius=32, rotary=False),
        **{f"performer-{kind}": Performer(heads, dim, count=count, features=kind) for kind in FEATURES},
        **{
            f"performer-{kind}-natural": Performer(heads, dim, count=count, features=kind, max_temperature=None)
            for kind in ("positive", "saderf", "trigonometric", "relu")
        },
        **{f"linformer-{kind}": Linformer(projection) for kind, projection in linear.items()},
        "hybrid": Hybrid(Local(radius=32), Performer(heads - 1, dim, count=count), first_heads=1),
        "joint": Joint(Performer(heads, dim, count=count), radius=32),
    }


NAMES = list(modules(64))


def stored(summary: Any) -> int:
    """Bytes of the tensors of a summary."""
    if isinstance(summary, Tensor):
        return summary.numel() * summary.element_size()
    if isinstance(summary, list | tuple):
        return sum(map(stored, summary))
    return sum(stored(getattr(summary, f.name)) for f in fields(summary)) if is_dataclass(summary) else 0


def within(got: float, expected: float, share: float, least: float = 0.0) -> bool:
    return abs(got - expected) <= max(share * expected, least)


def check(module: Attention, tokens: int, *, heads: int, dim: int) -> None:
    """Operations and exponentials within 2%, memory within 15% of the larger of it and the outputs."""
    inputs = [torch.randn(1, heads, tokens, dim) for _ in range(3)]
    module.eval()
    measured = measure(module, inputs, [*module.parameters(), *module.buffers()])
    expected = estimate(tokens, dim, heads, module)
    outputs = 4 * tokens * heads * dim
    assert within(expected.operations, measured.operations, 0.02)
    assert within(
        expected.exponentials, measured.exponentials, 0.02, least=2 * heads
    )  # for its temperature, on either side
    assert within(expected.forward_bytes, measured.forward_bytes, 0.15, 0.15 * outputs), (expected, measured)
    assert within(expected.training_bytes, measured.training_bytes, 0.15, 0.15 * outputs), (expected, measured)
    with torch.no_grad():
        state = stored(module.summarize(*inputs[1:]))
    assert within(expected.state_bytes, state, 0.02)


@pytest.mark.parametrize("name", NAMES)
def test_estimates_are_what_is_measured(name: str) -> None:
    check(modules(8192)[name], 8192, heads=HEADS, dim=DIM)


@pytest.mark.slow
@pytest.mark.parametrize("sizes", [(20_000, 4, 32, 128), (12_000, 2, 64, 256), (5_000, 3, 8, 32)])
@pytest.mark.parametrize("name", NAMES)
def test_estimates_are_what_is_measured_at_other_sizes(name: str, sizes: tuple[int, int, int, int]) -> None:
    tokens, heads, dim, count = sizes
    check(modules(tokens, heads=heads, dim=dim, count=count)[name], tokens, heads=heads, dim=dim)


@pytest.mark.parametrize("name", ATTENTION)
def test_every_mechanism_can_be_named(name: str) -> None:
    by_name = estimate(100_000, 32, 4, name)
    assert by_name == estimate(100_000, 32, 4, usual(name, 4, 32))
    assert isinstance(by_name, Estimate)
    twice = estimate(200_000, 32, 4, name)
    growth = twice.operations / by_name.operations
    assert growth == pytest.approx(4 if name == "softmax" else 2, rel=0.02)
    fixed = name in ("performer", "linformer")
    assert (twice.state_bytes == by_name.state_bytes) == fixed


def test_unknown_mechanisms_are_refused() -> None:
    with pytest.raises(ValueError, match="one of softmax, local"):
        estimate(10, 8, 2, "fourier")
