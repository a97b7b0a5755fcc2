"""Heads: the loss counts what it should, and values are what they claim to be."""

from __future__ import annotations

import math

import pytest
import torch

from genoformer.model.heads import HEADS, Head
from genoformer.tracks import CODING_FRAME, IGNORED, TRACKS, Track

SIGNAL = Track("coverage", "signal", ("+", "-"), "reads", (1, 0))


def head_of(track: Track) -> Head:
    return HEADS[track.kind](5, track)


def test_every_kind_of_track_has_a_head() -> None:
    assert {track.kind for track in TRACKS.values()} <= set(HEADS)
    assert set(HEADS) == {"class", "signal"}


def test_class_loss_is_the_mean_over_what_counts() -> None:
    logits = torch.randn(2, 6, 7, dtype=torch.float64)
    target = torch.randint(0, 7, (2, 6), dtype=torch.uint8)
    target[0, 1] = target[1, 5] = IGNORED
    mask = torch.ones(2, 6, dtype=torch.bool)
    mask[0, 2] = False
    terms = [
        -math.log(float(logits[b, i].softmax(-1)[int(target[b, i])]))
        for b in range(2)
        for i in range(6)
        if target[b, i] != IGNORED and mask[b, i]
    ]
    assert len(terms) == 9
    head = head_of(CODING_FRAME)
    assert float(head.loss(logits, target, mask)) == pytest.approx(sum(terms) / 9, rel=1e-6)
    unmasked = head.loss(logits, target)
    assert float(unmasked) != pytest.approx(sum(terms) / 9, rel=1e-3)


def test_signal_loss_is_the_mean_square_over_what_counts() -> None:
    logits = torch.randn(2, 4, 2, dtype=torch.float64)
    target = torch.randn(2, 4, 2, dtype=torch.float64)
    target[0, 1, 0] = math.nan
    mask = torch.ones(2, 4, dtype=torch.bool)
    mask[1, 3] = False
    counts = torch.isfinite(target) & mask[..., None]
    expected = float((logits - target)[counts].square().mean())
    assert int(counts.sum()) == 13
    assert float(head_of(SIGNAL).loss(logits, target, mask)) == pytest.approx(expected)


@pytest.mark.parametrize("track", [CODING_FRAME, SIGNAL], ids=lambda track: track.kind)
def test_nothing_that_counts_gives_no_loss_and_no_gradient(track: Track) -> None:
    logits = torch.randn(2, 3, len(track.channels), requires_grad=True)
    if track.kind == "class":
        target = torch.full((2, 3), IGNORED, dtype=torch.uint8)
    else:
        target = torch.full((2, 3, 2), math.nan)
    loss = head_of(track).loss(logits, target)
    loss.backward()
    assert float(loss.detach()) == 0.0
    assert logits.grad is not None
    assert (logits.grad == 0).all()


@pytest.mark.parametrize("track", [CODING_FRAME, SIGNAL], ids=lambda track: track.kind)
def test_what_is_ignored_has_no_gradient(track: Track) -> None:
    logits = torch.randn(1, 4, len(track.channels), requires_grad=True)
    target = torch.ones(1, 4, dtype=torch.uint8) if track.kind == "class" else torch.ones(1, 4, 2)
    target[0, 2] = IGNORED if track.kind == "class" else math.nan
    mask = torch.tensor([[True, True, True, False]])
    head_of(track).loss(logits, target, mask).backward()
    assert logits.grad is not None
    assert (logits.grad[0, 2:] == 0).all()
    assert (logits.grad[0, :2] != 0).all()


def test_class_values_sum_to_one_and_signals_are_the_logits() -> None:
    logits = 100 * torch.randn(2, 6, 7)
    values = head_of(CODING_FRAME).predict(logits)
    torch.testing.assert_close(values.sum(dim=-1), torch.ones(2, 6))
    assert (values >= 0).all()
    assert torch.equal(values.argmax(-1), logits.argmax(-1))
    assert torch.equal(head_of(SIGNAL).predict(logits[..., :2]), logits[..., :2])


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32, torch.float64])
def test_logits_are_in_float32_at_least(dtype: torch.dtype) -> None:
    head = head_of(CODING_FRAME).to(dtype)
    assert head(torch.randn(1, 3, 5, dtype=dtype)).dtype == torch.promote_types(dtype, torch.float32)
