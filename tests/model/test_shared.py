"""Sequences that share summaries see each other's tokens in global attention, and nothing else of each other."""

from __future__ import annotations

from functools import reduce
from operator import add

import numpy as np
import pytest
import torch
from tiny import tiny_model

from genoformer.attention import Attention, Summary
from genoformer.errors import ConfigError
from genoformer.model.encoder import Place
from genoformer.model.genoformer import Genoformer
from genoformer.model.shared import Context, can_share, context_of, in_context, shared_logits
from genoformer.model.strands import predict_values
from genoformer.tokens import PAD, reverse_complement
from genoformer.tracks import CODING_FRAME

NAME = CODING_FRAME.name
KINDS = ["positive", "hyperbolic", "regularized", "trigonometric", "relu"]


def model_of(kind: str, *attention: str, cap: float = 2.0) -> Genoformer:
    return tiny_model(attention=attention, performer_features=kind, performer_max_temperature=cap).double()


def some_rows(*lengths: int) -> torch.Tensor:
    rng, rows = np.random.default_rng(0), np.full((len(lengths), max(lengths)), PAD, dtype=np.uint8)
    for row, length in zip(rows, lengths, strict=True):
        row[:length] = rng.integers(0, 4, length)
    return torch.from_numpy(rows)


@pytest.mark.parametrize("cap", [2.0, 0.0])
@pytest.mark.parametrize("kind", KINDS)
def test_copies_tell_a_sequence_nothing_new(kind: str, cap: float) -> None:
    model, codes = model_of(kind, "local", "performer", "hybrid", "performer", cap=cap), some_rows(100)
    alone = model(codes)[NAME]
    torch.testing.assert_close(shared_logits(model, codes.expand(3, -1))[NAME], alone.expand(3, -1, -1))


@pytest.mark.parametrize("kind", KINDS)
def test_the_order_and_the_chunks_do_not_matter(kind: str) -> None:
    model, codes = model_of(kind, "performer", "hybrid"), some_rows(100, 40, 77)
    expected, order = shared_logits(model, codes)[NAME], [2, 0, 1]
    torch.testing.assert_close(shared_logits(model, codes[order])[NAME], expected[order])
    torch.testing.assert_close(shared_logits(model, codes, chunk_size=7)[NAME], expected)


class Given(Place):
    """Records the summary of the only block, or gives it another one."""

    def __init__(self, summary: Summary | None = None) -> None:
        self.summary = summary

    def merged(self, summary: Summary, attention: Attention) -> Summary:
        self.summary = summary if self.summary is None else self.summary
        return self.summary


@pytest.mark.parametrize("cap", [2.0, 0.0])
@pytest.mark.parametrize("kind", KINDS)
def test_the_summary_is_the_sum_of_those_of_the_sequences(kind: str, cap: float) -> None:
    model, lengths = model_of(kind, "performer", cap=cap), (100, 40, 77)
    codes = some_rows(*lengths)
    places = [Given() for _ in lengths]
    for row, (length, place) in enumerate(zip(lengths, places, strict=True)):
        model.logits(model.sequence(codes[row : row + 1, :length])._replace(place=place))
    total = reduce(add, (place.summary for place in places))  # type: ignore[type-var]
    found = shared_logits(model, codes)[NAME]
    for row, length in enumerate(lengths):
        sequence = model.sequence(codes[row : row + 1, :length])
        expected = model.logits(sequence._replace(place=Given(total)))[NAME]
        torch.testing.assert_close(found[row : row + 1, :length], expected)
        assert not torch.allclose(found[row : row + 1, :length], model.logits(sequence)[NAME])


def test_only_global_attention_sees_the_others() -> None:
    flat = model_of("positive", "local", "local")
    assert not can_share(flat)
    with pytest.raises(ConfigError, match="of which this model has none"):
        shared_logits(flat, some_rows(30, 30))
    assert can_share(model_of("positive", "local", "hybrid"))


def test_gradients_reach_the_others() -> None:
    model, codes = model_of("positive", "performer"), some_rows(60, 50)
    loss = shared_logits(model, codes)[NAME][0].sum()
    loss.backward()
    whole = [p.grad.clone() for p in model.parameters() if p.grad is not None]
    assert all(torch.isfinite(grad).all() for grad in whole)
    model.zero_grad()
    shared_logits(model, codes, chunk_size=4)[NAME][0].sum().backward()
    for one, two in zip(whole, (p.grad for p in model.parameters() if p.grad is not None), strict=True):
        torch.testing.assert_close(one, two)


# ---- a context


def others(*lengths: int) -> list[np.ndarray]:
    rng = np.random.default_rng(1)
    return [rng.integers(0, 4, length).astype(np.uint8) for length in lengths]


@pytest.mark.parametrize("attention", ["performer", "hybrid"])
def test_a_context_is_as_if_its_sequences_were_there_on_both_strands(attention: str) -> None:
    model, (one, two), codes = model_of("positive", attention), others(100, 40), some_rows(77)
    rows = np.full((5, 100), PAD, dtype=np.uint8)
    for row, held in zip(
        rows, [codes[0].numpy(), one, reverse_complement(one), two, reverse_complement(two)], strict=True
    ):
        row[: len(held)] = held
    found = model(codes, place=in_context(context_of(model, [one, two])))[NAME]
    torch.testing.assert_close(found, shared_logits(model, torch.from_numpy(rows))[NAME][:1, :77])


def test_a_context_is_that_of_each_layer() -> None:
    """What is the same on both strands learns nothing of itself."""
    model, half = model_of("positive", "local", "performer", "hybrid", "performer"), others(60)[0]
    codes = np.concatenate([half, reverse_complement(half)])
    rows = torch.from_numpy(codes)[None]
    found = model(rows, place=in_context(context_of(model, [codes, codes])))[NAME]
    torch.testing.assert_close(found, model(rows)[NAME])


def test_a_sequence_and_its_reverse_complement_see_the_same() -> None:
    model, codes = model_of("positive", "local", "performer", "hybrid"), some_rows(100)
    context = context_of(model, others(60, 80))
    opposite = torch.from_numpy(reverse_complement(codes[0].numpy()))[None]
    forward, backward = (predict_values(model, x, context=context)[NAME][0] for x in (codes, opposite))
    torch.testing.assert_close(backward.flip(0)[:, list(CODING_FRAME.reverse_complement)], forward)
    assert not torch.allclose(predict_values(model, codes)[NAME][0], forward)


def test_a_context_goes_through_a_pipe_and_in_chunks() -> None:
    model, codes = model_of("positive", "local", "performer", "hybrid"), some_rows(70, 50)
    context = context_of(model, others(400, 150))
    chunked = context_of(model, others(400, 150), chunk_size=70)
    sent = Context.of_arrays(context.arrays, torch.device("cpu"))
    expected = predict_values(model, codes, context=context)[NAME]
    assert context.sha256 == chunked.sha256 == sent.sha256 != context_of(model, others(150, 400)).sha256
    for other in (chunked, sent):
        torch.testing.assert_close(predict_values(model, codes, context=other, chunk_size=9)[NAME], expected)


@pytest.mark.parametrize(("kind", "attention", "cap"), [("positive", "local", 2.0), ("regularized", "performer", 0.0)])
def test_models_that_cannot_see_a_context(kind: str, attention: str, cap: float) -> None:
    with pytest.raises(ConfigError, match="a context needs Performer attention"):
        context_of(model_of(kind, attention, cap=cap), others(10))
