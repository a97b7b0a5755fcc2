"""Faults 26 and 27, of cost: see test_faults.py."""

from __future__ import annotations

import pytest
import torch

from genoformer.attention import Linformer, Performer, Softmax
from genoformer.attention.features import draw_projection
from genoformer.attention.linear_projections import Convolution

from .cases import Case
from .faults import COMPRESSED, LINEAR, Watch, natural, watched


@pytest.mark.parametrize("case", COMPRESSED, ids=lambda case: case.name)
def test_fault_26_a_feature_or_score_matrix_of_all_tokens(case: Case) -> None:
    """Nothing of size tokens x features x dim, nor tokens x tokens, is ever made, forward or backward.

    What grows with tokens are the inputs with a few more columns, three copies of them for local windows, and one
    piece of 4,096 tokens x features.
    """
    tokens, heads, dim, count = 10_000, 2, 16, 48
    module = case.make(heads, dim, tokens, 1)
    for part in module.modules():
        if isinstance(part, Performer):
            part.projection = draw_projection(
                part.features, heads=part.projection.shape[0], count=count, dim=dim, seed=1
            )
    watch = watched(module, tokens, heads=heads, dim=dim, backward=True)
    inputs = heads * tokens * (dim + 2)
    piece = heads * 4096 * count
    assert watch.largest <= max(3.1 * inputs, piece)
    assert watch.largest < heads * tokens * count * dim / 4
    assert watch.largest < heads * tokens * tokens / 100


def test_fault_26_would_notice_one() -> None:
    with Watch() as watch:
        x = torch.randn(100, 1, 16) * torch.randn(1, 48, 16)
        x.sum()
    assert watch.largest == 100 * 48 * 16


@pytest.mark.parametrize("case", LINEAR, ids=lambda case: case.name)
def test_fault_27_cost_grows_faster_than_the_sequence(case: Case) -> None:
    """Matrix products grow as tokens, and from some length on, by formula, are fewer than exact attention's.

    Time is for benchmarks: `genoformer bench attention`. README.md tells when to use which.
    """
    heads, dim = 2, 16
    costs = [watched(case.make(heads, dim, 4000, 1), n, heads=heads, dim=dim).operations for n in (1000, 2000, 4000)]
    assert costs[0] > 0
    assert costs[2] - costs[1] <= 2.1 * (costs[1] - costs[0])  # less where longer sequences have narrower bands
    exact = watched(Softmax(), 4000, heads=heads, dim=dim).operations
    assert exact == pytest.approx(4 * 4000**2 * heads * dim, rel=0.15)  # a column more carries the mask
    assert costs[2] < exact / 5


def test_fault_27_a_convolution_is_quadratic_and_says_so() -> None:
    """Its slots are as many as strides, so it costs exact attention's products divided by the stride."""
    heads, dim, stride = 2, 16, 8
    module = Linformer(Convolution(stride))
    costs = [watched(module, n, heads=heads, dim=dim).operations for n in (2000, 4000)]
    quadratic = costs[1] - 2 * costs[0]  # what is linear cancels
    assert quadratic == pytest.approx(2 * 4000**2 * heads * dim / stride, rel=0.05)
    assert costs[1] == pytest.approx(4 * 4000**2 * heads * dim / stride, rel=0.15)


def test_fault_27_crossover_with_exact_attention() -> None:
    """Exact attention takes 4 n^2 d products a head, a Performer 8 n m d: they meet at n = 2m."""
    heads, dim, count = 2, 16, 64
    linear = {
        n: watched(natural(count=count, dim=dim, heads=heads), n, heads=heads, dim=dim).operations for n in (64, 256)
    }
    exact = {n: watched(Softmax(), n, heads=heads, dim=dim).operations for n in (64, 256)}
    assert linear[64] > exact[64]
    assert linear[256] < exact[256]
