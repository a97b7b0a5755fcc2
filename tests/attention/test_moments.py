"""Moments that tune features: gathered in training, in force from `settle` on, and what they do to the estimate."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

from genoformer.attention import Performer
from genoformer.attention.moments import KEYS, QUERIES, Moments
from genoformer.attention.performer import redraw_features, settle_moments

from .cases import bounds, draw, error, prefix_mask, stream

DIM, HEADS = 8, 2


def performer(features: str, *, max_temperature: float | None = None, count: int = 64) -> Performer:
    return Performer(HEADS, DIM, count=count, features=features, max_temperature=max_temperature, seed=1).double()


def lopsided(tokens: int = 300) -> tuple[Tensor, Tensor, Tensor]:
    """Queries large where keys are small, and both away from zero."""
    q, k, v = draw(1, HEADS, tokens, DIM, seed=4, scale=0.8)
    tilt = torch.linspace(0.4, 2.0, DIM, dtype=torch.float64)
    return q * tilt + 0.1, k / tilt - 0.1, v


@pytest.mark.parametrize("features", ["oprf", "saderf"])
@pytest.mark.parametrize("max_temperature", [None, 2.0])
def test_nothing_changes_before_they_are_settled(features: str, max_temperature: float | None) -> None:
    q, k, v = lopsided()
    module = performer(features, max_temperature=max_temperature)
    before = module.eval()(q, k, v)
    assert torch.equal(module.train()(q, k, v), before)
    assert torch.equal(module(q, k, v), before)
    module.moments.settle()
    assert error(module(q, k, v), before) > 1e-6


def test_they_are_those_of_what_the_features_saw() -> None:
    """Chunks and masks included; evaluation counts for nothing."""
    q, k, v = (torch.cat([x, 2 * x]) for x in lopsided(40))
    mask = prefix_mask([40, 25], 40)
    module = performer("saderf")
    module.eval()(q * 100, k, v)
    stream(module.train(), q, k, v, mask, bounds([7, 0, 20, 13]))
    module.moments.settle()
    seen_keys = torch.cat([k[0], k[1, :, :25]], dim=1) * DIM**-0.25  # (H, T, D)
    seen_queries = torch.cat([q[0], q[1]], dim=1) * DIM**-0.25
    for side, seen in ((QUERIES, seen_queries), (KEYS, seen_keys)):
        torch.testing.assert_close(module.moments.mean[side], seen.mean(dim=1))
        torch.testing.assert_close(module.moments.square[side], seen.square().mean(dim=1))


def test_momentum_keeps_some_of_the_old() -> None:
    moments = Moments(1, 2, squared_norm=2.0)
    for value in (3.0, 5.0):
        for side in (QUERIES, KEYS):
            moments.gather(torch.full((1, 1, 4, 2), value), side)
        moments.settle(momentum=0.75)
    torch.testing.assert_close(moments.mean, torch.full((2, 1, 2), 0.75 * 0.25 * 3 + 0.25 * 5))
    torch.testing.assert_close(moments.square, torch.full((2, 1, 2), 0.75 * (0.75 + 0.25 * 9) + 0.25 * 25))


def test_settling_on_nothing_changes_nothing() -> None:
    moments = Moments(1, 2, squared_norm=2.0)
    moments.gather(torch.ones(1, 1, 4, 2), KEYS)  # and no queries
    moments.settle()
    assert torch.equal(moments.mean, torch.zeros(2, 1, 2))
    assert torch.equal(moments.square, torch.ones(2, 1, 2))


def test_damping_is_the_least_variance_of_a_single_row() -> None:
    """The closed form is where the second moment of the estimate, known for Gaussian rows, has its minimum.

    One row estimates exp(x.y) with second moment (1 - 4A)^D (1 - 8A)^(-D/2) exp(2 (1 - 4A)/(1 - 8A) |z|^2 - |x|^2 -
    |y|^2), z = x + y: both features share the row, so that exponents add up to 2A|w|^2 + sqrt(1 - 4A) w.z.
    """
    moments = Moments(1, DIM, squared_norm=1.0)
    moments.square.fill_(0.2)
    damping = float(moments.damping(torch.ones(1, DIM)))
    size = 2 * 0.2 * DIM  # |z|^2

    def log_second_moment(a: float) -> float:
        return DIM * math.log(1 - 4 * a) - DIM / 2 * math.log(1 - 8 * a) + 2 * (1 - 4 * a) / (1 - 8 * a) * size

    assert damping < 0
    assert log_second_moment(damping) <= min(log_second_moment(damping + step) for step in (-1e-3, 1e-3))


def test_balanced_features_estimate_better() -> None:
    """Mean error against exact softmax over some draws, at the size where plain positive features are poor."""
    q, k, v = lopsided()
    exact = torch.softmax(q @ k.transpose(-1, -2) / math.sqrt(DIM), dim=-1) @ v

    def mean_error(kind: str) -> float:
        found = []
        for seed in range(12):
            module = performer(kind)
            module.redraw(seed)
            if kind != "positive":
                module.train()(q, k, v)
                module.moments.settle()
            found.append(error(module(q, k, v), exact))
        return sum(found) / len(found)

    assert mean_error("saderf") < 0.9 * mean_error("positive")


def test_a_checkpoint_holds_them() -> None:
    q, k, v = lopsided()
    module = performer("saderf").train()
    module(q, k, v)
    module.moments.settle()
    other = performer("saderf")
    other.load_state_dict(module.state_dict(), strict=True)
    assert torch.equal(other(q, k, v), module(q, k, v))


def test_every_performer_inside_a_module_is_reached() -> None:
    parts = [performer("oprf"), performer("positive")]
    module = torch.nn.ModuleList(parts)
    before = [part.projection.clone() for part in parts]
    redraw_features(module, 3)
    again = [part.projection.clone() for part in parts]
    assert not any(torch.equal(a, b) for a, b in zip(before, again, strict=True))
    assert not torch.equal(again[0], again[1])
    redraw_features(module, 3)
    assert all(torch.equal(part.projection, rows) for part, rows in zip(parts, again, strict=True))
    module.train()
    parts[0](*lopsided())
    square = parts[0].moments.square.clone()
    settle_moments(module, momentum=0.0)
    assert not torch.equal(parts[0].moments.square, square)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
def test_sums_do_not_overflow_or_stall_in_half_precision(dtype: torch.dtype) -> None:
    """80,000 vectors: more than float16 can count to, and than bfloat16 can add up one by one."""
    (x,) = draw(1, HEADS, 40_000, DIM, count=1)
    module = Performer(HEADS, DIM, count=8, features="oprf", max_temperature=None).train()
    module(x.float()[:, :, :100], x.float()[:, :, :100], x.float()[:, :, :100])
    counted = module.moments.counted.clone()
    module = module.to(dtype)
    assert torch.equal(module.moments.counted, counted)
    for _ in range(2):
        module(x.to(dtype), x.to(dtype), x.to(dtype))
    assert module.moments.counted.tolist() == [80_100.0, 80_100.0]
    module.moments.settle()
    expected = (x * DIM**-0.25).square().mean(dim=(0, 2)).expand(2, -1, -1)
    torch.testing.assert_close(module.moments.square.double(), expected, rtol=0.02, atol=0.0)


def test_sums_move_with_their_module() -> None:
    moments = Moments(1, 2, squared_norm=2.0).to("meta")
    assert moments.gathered.is_meta
    moments = moments.to_empty(device="cpu")
    assert moments.counted.tolist() == [0.0, 0.0]
    assert moments.counted.dtype == torch.float64


def test_one_bad_step_does_not_spoil_all_later_ones() -> None:
    q, k, v = lopsided()
    module = performer("oprf").train()
    module(q * math.nan, k, v)
    before = module.moments.square.clone()
    module.moments.settle()
    assert torch.equal(module.moments.square, before)
    module(q, k, v)
    module.moments.settle()
    assert bool(torch.isfinite(module.moments.square).all())
    assert not torch.equal(module.moments.square, before)
