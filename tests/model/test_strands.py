"""Averaged over both strands, a sequence and its opposite strand get mirrored values, to the last bit."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from tiny import CHOICES, random_codes, tiny_model

from genoformer.model.strands import predict_values, reverse_complement_rows, reverse_rows
from genoformer.tokens import PAD, reverse_complement
from genoformer.tracks import CODING_FRAME

MIRROR = list(CODING_FRAME.reverse_complement)


def values(*arguments: Any, **options: Any) -> torch.Tensor:
    return predict_values(*arguments, **options)["coding-frame"]


@pytest.mark.parametrize("choice", CHOICES.values(), ids=CHOICES)
def test_the_opposite_strand_gets_mirrored_values(choice: dict[str, Any]) -> None:
    model, lengths = tiny_model(**choice), (40, 39, 1, 23)
    codes = random_codes(*lengths)
    one = values(model, codes, genetic_code=4, chunk_size=5)
    two = values(model, reverse_complement_rows(codes), genetic_code=4, chunk_size=5)
    for row, length in enumerate(lengths):
        assert torch.equal(two[row, :length].flip(0)[:, MIRROR], one[row, :length])
    torch.testing.assert_close(one.sum(-1), torch.ones(4, 40))


def test_without_averaging_strands_differ_and_the_mean_is_theirs() -> None:
    model, codes = tiny_model(), random_codes(40)
    forward = values(model, codes, strand_average=False)
    opposite = values(model, reverse_complement_rows(codes), strand_average=False).flip(1)[..., MIRROR]
    assert not torch.allclose(forward, opposite)
    assert torch.equal(values(model, codes), (forward + opposite) / 2)
    assert torch.equal(forward, model(codes)["coding-frame"].softmax(-1))


@pytest.mark.parametrize("genetic_code", [11, 4])
def test_the_genetic_code_reaches_the_model(genetic_code: int) -> None:
    model, codes = tiny_model(), random_codes(300)
    expected = model(codes, genetic_code=genetic_code)["coding-frame"].softmax(-1)
    assert torch.equal(values(model, codes, genetic_code=genetic_code, strand_average=False), expected)
    other = model(codes, genetic_code=15 - genetic_code)["coding-frame"].softmax(-1)
    assert not torch.allclose(other, expected)


def test_padding_stays_behind() -> None:
    codes = random_codes(7, 3, 0)
    turned = reverse_complement_rows(codes)
    for row, length in enumerate((7, 3, 0)):
        assert turned[row, :length].tolist() == reverse_complement(codes[row, :length].numpy()).tolist()
        assert (turned[row, length:] == PAD).all()
    assert torch.equal(reverse_complement_rows(turned), codes)


def test_rows_turn_within_their_lengths() -> None:
    table = torch.arange(24.0).view(2, 4, 3)
    lengths = torch.tensor([4, 2])
    turned = reverse_rows(table, lengths)
    assert torch.equal(turned[0], table[0].flip(0))
    assert torch.equal(turned[1], table[1][[1, 0, 2, 3]])
    assert torch.equal(reverse_rows(table[..., 0], lengths), turned[..., 0])


def test_no_graph_is_built_and_the_model_is_left_as_it_was() -> None:
    model = tiny_model().train()
    assert not values(model, random_codes(9)).requires_grad
    assert model.training
    assert all(p.grad is None for p in model.parameters())


def test_bfloat16_is_close_and_not_the_same() -> None:
    model, codes = tiny_model(), random_codes(60)
    low = values(model, codes, precision="bfloat16")
    assert low.dtype == torch.float32
    assert not torch.equal(low, values(model, codes))
    torch.testing.assert_close(low, values(model, codes), rtol=0, atol=0.05)
