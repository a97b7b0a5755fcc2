"""Every mechanism equals its naive twin, in outputs and in gradients.

Tolerance 1e-9 of the largest number, in float64: sums of at most 1,300 terms round at 1,300 * 1e-16; exponentials of
scores up to ~10 and divisions by norms and sums of features cost two or three digits more, gradients again two. That
leaves room for rounding and none for a wrong formula, which shows in the first digits.
"""

from __future__ import annotations

import naive
import pytest
import torch
from torch import Tensor

from genoformer.attention import Local

from .cases import CASES, COVERED, DIM, HEADS, RADIUS, RANK, Case, bounds, close, draw, gradients, prefix_mask, stream

TOLERANCE = 1e-9
SIZES = [1, 2, 3, RANK, RANK + 1, RADIUS - 1, RADIUS, RADIUS + 1, 2 * RADIUS, 2 * RADIUS + 1, 3 * RADIUS + 2, 64, 257]


def masks(kind: str, tokens: int) -> Tensor | None:
    """Padding at the end, holes in the middle, or both, for a batch of two."""
    if kind == "none":
        return None
    if kind == "end":
        return prefix_mask([tokens, max(1, tokens // 3)], tokens)
    holes = torch.rand(2, tokens, generator=torch.Generator().manual_seed(tokens)) < 0.6
    holes[0, tokens // 2] = True  # the first row has a key at least
    if kind == "holes and end":
        holes &= prefix_mask([tokens, (2 * tokens) // 3], tokens)
    return holes


def compare(case: Case, q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, tokens: int = COVERED) -> None:
    module = case.module(dtype=torch.float64, tokens=tokens)
    inputs = [x.requires_grad_() for x in (q, k, v)]
    parameters = list(module.parameters())
    got, expected = module(q, k, v, mask=mask), case.twin(module, q, k, v, mask)
    close(got, expected, TOLERANCE, "output")
    names = ["queries", "keys", "values", *(name for name, _ in module.named_parameters())]
    pairs = zip(gradients(got, [*inputs, *parameters]), gradients(expected, [*inputs, *parameters]), strict=True)
    for name, (mine, theirs) in zip(names, pairs, strict=True):
        close(mine, theirs, TOLERANCE, f"gradient of {name}")


ALIKE = [(tokens, mask) for tokens in SIZES for mask in ("none", "holes and end")]


@pytest.mark.parametrize(("tokens", "mask"), [*ALIKE, (3, "end"), (64, "end"), (3, "holes"), (64, "holes")])
@pytest.mark.parametrize("name", CASES)
def test_equals_its_twin(name: str, tokens: int, mask: str) -> None:
    compare(CASES[name], *draw(2, HEADS, tokens, DIM, seed=tokens), masks(mask, tokens))


@pytest.mark.parametrize("n_queries", [1, 7, 40])
@pytest.mark.parametrize("name", [case.name for case in CASES.values() if case.any_queries])
def test_other_numbers_of_queries(name: str, n_queries: int) -> None:
    (q,) = draw(2, HEADS, n_queries, DIM, seed=1, count=1)
    k, v = draw(2, HEADS, 19, DIM, seed=2, count=2)
    compare(CASES[name], q, k, v, masks("holes", 19))


@pytest.mark.parametrize("name", CASES)
def test_sharp_scores(name: str) -> None:
    """Queries and keys of standard deviation 3: the softmax is close to one-hot, features span many decades."""
    q, k, v = draw(2, HEADS, 33, DIM, seed=3)
    compare(CASES[name], 3 * q, 3 * k, v, masks("end", 33))


@pytest.mark.parametrize("tokens", [599, 601, 1300])
def test_wide_windows(tokens: int) -> None:
    """A radius past the block size of the fused kernel, where whole blocks of keys are out of reach."""
    radius = 600
    case = Case(
        "wide",
        lambda heads, dim, covered, seed: Local(radius=radius),
        lambda module, q, k, v, mask: naive.local(q, k, v, radius=radius, mask=mask),
    )
    compare(case, *draw(1, 1, tokens, DIM, seed=tokens), prefix_mask([tokens - 5], tokens))


def test_random_rows_over_several_blocks_of_their_generator() -> None:
    """The numbers come in blocks of 1,024 tokens: no block repeats another, and chunks may start anywhere."""
    module = CASES["linformer-seeded"].module(dtype=torch.float64)
    q, k, v = draw(1, HEADS, 2100, DIM)
    expected = CASES["linformer-seeded"].twin(module, q, k, v, None)
    close(module(q, k, v), expected, TOLERANCE)
    close(stream(module, q, k, v, None, bounds([1000, 24, 1, 1023, 52])), expected, TOLERANCE)


def test_pieces_of_long_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Mechanisms that work through a chunk in pieces do so without a seam."""
    monkeypatch.setattr("genoformer.attention.attention.PIECE", 10)
    for case in CASES.values():
        compare(case, *draw(2, HEADS, 57, DIM, seed=4), masks("holes and end", 57))
