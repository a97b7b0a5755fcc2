"""The layer on tokens: for every mechanism, what its parts give when put together by hand, and the same laws.

Tolerance 1e-12 of the largest number, in float64: another order of sums of at most a few hundred terms.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from genoformer.attention import Attention, MultiHead, Softmax, Summary

from .cases import (
    CASES,
    COVERED,
    DIM,
    HEADS,
    Case,
    bounds,
    close,
    draw,
    error,
    gradients,
    lengths_of,
    prefix_mask,
    total,
)

WIDTH = HEADS * DIM
every_case = pytest.mark.parametrize("case", CASES.values(), ids=list(CASES))


def layer(case: Case, dtype: torch.dtype = torch.float64, tokens: int = COVERED) -> MultiHead:
    """A layer whose biases are not zero, around a mechanism whose parameters are not special."""
    torch.manual_seed(3)
    made = MultiHead(WIDTH, HEADS, case.module(dtype=dtype, tokens=tokens)).to(dtype)
    with torch.no_grad():
        made.project.bias.copy_(torch.randn(3 * WIDTH))
    return made


def by_hand(made: MultiHead, x: Tensor, mask: Tensor | None) -> Tensor:
    """Project, attend, combine: one linear layer each, heads side by side."""
    q, k, v = made.project(x).unflatten(-1, (3, HEADS, DIM)).permute(2, 0, 3, 1, 4)
    return made.combine(made.attention(q, k, v, mask=mask).transpose(1, 2).flatten(2))


def streamed(made: MultiHead, x: Tensor, mask: Tensor | None, sizes: list[int]) -> Tensor:
    lengths, pieces = lengths_of(mask, len(x), x.shape[1]), bounds(sizes)
    parts = [
        made.summarize(x[:, p], start=p.start, lengths=lengths, mask=None if mask is None else mask[:, p])
        for p in pieces
    ]
    summary = made.finish(total(parts))
    return torch.cat([made.attend(x[:, p], summary, start=p.start) for p in pieces], dim=1)


def masks(tokens: int) -> list[Tensor | None]:
    holes = torch.rand(2, tokens, generator=torch.Generator().manual_seed(tokens)) < 0.6
    return [None, prefix_mask([tokens, tokens // 2], tokens), holes, torch.zeros(2, tokens, dtype=torch.bool)]


@pytest.mark.parametrize("tokens", [1, 6, 37])
@every_case
def test_equals_its_parts_whole_and_streamed(case: Case, tokens: int) -> None:
    """Outputs and gradients, of tokens and of every parameter."""
    made = layer(case)
    (x,) = draw(2, tokens, WIDTH, seed=tokens, count=1)
    inputs = [x.requires_grad_(), *made.parameters()]
    for mask in masks(tokens):
        expected = by_hand(made, x, mask)
        wanted = gradients(expected, inputs)
        for got in (made(x, mask=mask), streamed(made, x, mask, [0, tokens // 3, tokens - tokens // 3, 0])):
            close(got, expected, 1e-12, "output")
            for i, (mine, theirs) in enumerate(zip(gradients(got, inputs), wanted, strict=True)):
                close(mine, theirs, 1e-12, f"gradient {i}")


@every_case
def test_merges_in_any_order(case: Case) -> None:
    made = layer(case)
    (x,) = draw(2, 30, WIDTH, count=1)
    lengths = lengths_of(None, 2, 30)
    first, second, third = (made.summarize(x[:, p], start=p.start, lengths=lengths) for p in bounds([7, 11, 12]))
    expected = made.attend(x, made.finish((first + second) + third))
    close(made.attend(x, made.finish(third + (first + second))), expected, 1e-12)
    close(made.attend(x, made.finish(first + (third + second))), expected, 1e-12)


class Noting(Attention):
    """Plain attention that notes in what precision it is called, and asserts that autocast is off."""

    def __init__(self) -> None:
        super().__init__()
        self.inner, self.seen = Softmax(), set()

    def summarize(self, keys: Tensor, values: Tensor, **where: object) -> Summary:
        return self.noted(self.inner.summarize, keys, values, **where)

    def attend(self, queries: Tensor, summary: Summary, **where: object) -> Tensor:
        return self.noted(self.inner.attend, queries, summary, **where)

    def noted(self, function: Callable, *inputs: object, **where: object) -> object:
        self.seen |= {x.dtype for x in inputs if isinstance(x, Tensor)}
        assert not torch.is_autocast_enabled("cpu")
        return function(*inputs, **where)


def test_autocast_stays_outside_of_the_core() -> None:
    """The linear layers work in half precision, and the core gets float32."""
    made = MultiHead(WIDTH, HEADS, Noting())
    (x,) = draw(2, 40, WIDTH, dtype=torch.float32, count=1)
    with torch.autocast("cpu", torch.bfloat16):
        low = made(x)
    assert low.dtype == torch.bfloat16
    assert made.attention.seen == {torch.float32}
    assert 1e-4 < error(low, made(x)) < 0.05


def test_heads_must_divide_the_width() -> None:
    with pytest.raises(ValueError, match="heads = 3 must divide width = 32"):
        MultiHead(WIDTH, 3, CASES["softmax"].module(dtype=torch.float64))


def test_linear_layers_are_the_layers_parameters() -> None:
    made = layer(CASES["softmax"])
    assert {name: tuple(p.shape) for name, p in made.named_parameters()} == {
        "project.weight": (3 * WIDTH, WIDTH),
        "project.bias": (3 * WIDTH,),
        "combine.weight": (WIDTH, WIDTH),
        "combine.bias": (WIDTH,),
    }
