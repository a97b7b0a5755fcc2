"""The laws of a mergeable summary, for every mechanism of the table in cases.py.

Tolerances: chunks change only the order of sums. In float64 that is 1e-16 a term and 1e-12 for thousands of terms and
an exponential; in float32 6e-8 a term, and 1e-5 likewise. Both are relative to the largest number where it exceeds 1.
"""

from __future__ import annotations

import copy
import random
from collections.abc import Iterator

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from genoformer.attention import ATTENTION, PROJECTIONS, Attention, Linformer, Performer
from genoformer.attention.features import FEATURES

from .cases import (
    CASES,
    DIM,
    HEADS,
    RADIUS,
    Case,
    bounds,
    close,
    draw,
    gradients,
    lengths_of,
    prefix_mask,
    stream,
    summaries,
    total,
)

TOLERANCE = {torch.float32: 1e-5, torch.float64: 1e-12}
every_case = pytest.mark.parametrize("case", CASES.values(), ids=list(CASES))
both_precisions = pytest.mark.parametrize("dtype", list(TOLERANCE), ids=["float32", "float64"])


def parts_of(module: Attention) -> Iterator[Attention]:
    return (part for part in module.modules() if isinstance(part, Attention))


def test_the_table_is_complete() -> None:
    """A new mechanism, feature or projection must get a case, and thereby all laws."""
    modules = {name: case.module(dtype=torch.float64) for name, case in CASES.items()}
    assert {type(module) for module in modules.values()} == set(ATTENTION.values())
    assert {module.features for module in modules.values() if isinstance(module, Performer)} == set(FEATURES)
    projections = {type(module.projection) for module in modules.values() if isinstance(module, Linformer)}
    assert projections == set(PROJECTIONS.values())
    for name, case in CASES.items():
        assert name == case.name
        assert case.features is None or modules[name].features == case.features
        assert case.projection is None or type(modules[name].projection) is PROJECTIONS[case.projection]


# Stream ------------------------------------------------------------------------------------------------------------

chunkings = st.lists(st.integers(0, 9), min_size=1, max_size=12).filter(any)
patterns = st.sampled_from(["none", "end", "holes"])


def mask_of(pattern: str, tokens: int, seed: int = 0) -> Tensor | None:
    if pattern == "none":
        return None
    if pattern == "end":
        return prefix_mask([tokens, (tokens + 1) // 2], tokens)
    return torch.rand(2, tokens, generator=torch.Generator().manual_seed(seed)) < 0.5


def check_stream(case: Case, sizes: list[int], pattern: str, dtype: torch.dtype) -> None:
    tokens = sum(sizes)
    module = case.module(dtype=dtype)
    inputs = [x.requires_grad_() for x in draw(2, HEADS, tokens, DIM, seed=tokens, dtype=dtype)]
    mask = mask_of(pattern, tokens, seed=tokens)
    whole, streamed = module(*inputs, mask=mask), stream(module, *inputs, mask, bounds(sizes))
    close(streamed, whole, case.conditioning * TOLERANCE[dtype], "output")
    inputs = [*inputs, *module.parameters()]
    for i, (got, expected) in enumerate(zip(gradients(streamed, inputs), gradients(whole, inputs), strict=True)):
        close(got, expected, case.conditioning * TOLERANCE[dtype], f"gradient {i}")


@both_precisions
@every_case
@settings(max_examples=10)
@given(sizes=chunkings, pattern=patterns)
def test_stream(case: Case, dtype: torch.dtype, sizes: list[int], pattern: str) -> None:
    """Any chunking, empty chunks and single tokens included, gives the outputs and gradients of one chunk."""
    check_stream(case, sizes, pattern, dtype)


@both_precisions
@pytest.mark.parametrize("sizes", [[1] * 20, [0, 20, 0], [0, 0, 1, 0, 19], [19, 1], [7, 7, 6]], ids=str)
@every_case
def test_stream_by_example(case: Case, sizes: list[int], dtype: torch.dtype) -> None:
    for pattern in ("none", "end", "holes"):
        check_stream(case, sizes, pattern, dtype)


@every_case
def test_queries_may_come_in_other_chunks_than_keys(case: Case) -> None:
    module = case.module(dtype=torch.float64)
    q, k, v = draw(2, HEADS, 31, DIM)
    summary = total(summaries(module, k, v, None, bounds([10, 21])))
    got = torch.cat([module.attend(q[:, :, p], summary, start=p.start) for p in bounds([1, 0, 17, 13])], dim=2)
    close(got, module(q, k, v), 1e-12)


def long_stream(case: Case, dtype: torch.dtype, *, heads: int, dim: int, tokens: int) -> None:
    module = case.module(heads=heads, dim=dim, tokens=tokens, dtype=dtype)
    inputs = [x.requires_grad_() for x in draw(1, heads, tokens, dim, dtype=dtype)]
    mask = torch.ones(1, tokens, dtype=torch.bool)
    mask[0, 30_000:35_000] = False
    mask[0, tokens - 1_234 :] = False
    pieces = bounds([8192] * (tokens // 8192) + [tokens % 8192])
    everything = [*inputs, *module.parameters()]
    whole = module(*inputs, mask=mask)
    expected = gradients(whole, everything)
    streamed = stream(module, *inputs, mask, pieces)
    close(streamed, whole, case.conditioning * TOLERANCE[dtype], "output")
    for i, (got, wanted) in enumerate(zip(gradients(streamed, everything), expected, strict=True)):
        close(got, wanted, case.conditioning * TOLERANCE[dtype], f"gradient {i}")


@pytest.mark.slow
@both_precisions
@pytest.mark.parametrize("case", [c for c in CASES.values() if c.linear], ids=lambda case: case.name)
def test_stream_at_100_000_tokens(case: Case, dtype: torch.dtype) -> None:
    long_stream(case, dtype, heads=2, dim=16, tokens=100_000)


# Merge and zero ----------------------------------------------------------------------------------------------------


@every_case
@settings(max_examples=8)
@given(sizes=st.lists(st.integers(0, 6), min_size=2, max_size=8).filter(any), order=st.randoms(use_true_random=False))
def test_merge_in_any_order_and_any_tree(case: Case, sizes: list[int], order: random.Random) -> None:
    """``+`` is associative and commutative: what is attended to does not depend on how chunks were merged."""
    module = case.module(dtype=torch.float64)
    tokens = sum(sizes)
    q, k, v = draw(2, HEADS, tokens, DIM, seed=tokens)
    mask = mask_of("holes", tokens, seed=tokens)
    expected = module(q, k, v, mask=mask)
    heap = summaries(module, k, v, mask, bounds(sizes))
    while len(heap) > 1:
        order.shuffle(heap)
        heap.append(heap.pop() + heap.pop())
    close(module.attend(q, heap[0]), expected, 1e-12)


@every_case
def test_zero(case: Case) -> None:
    """A chunk in which everything is masked, or nothing is, changes nothing, on either side and however often."""
    module = case.module(dtype=torch.float64)
    q, k, v = draw(2, HEADS, 40, DIM)
    mask = torch.ones(2, 40, dtype=torch.bool)
    mask[:, 15:27] = False
    first, hidden, last = summaries(module, k, v, mask, bounds([15, 12, 13]))
    (empty,) = summaries(module, k[:, :, :0], v[:, :, :0], mask[:, :0], [slice(0, 0)])
    lengths = lengths_of(mask, 2, 40)
    empty = module.summarize(k[:, :, :0], v[:, :, :0], start=15, lengths=lengths, mask=mask[:, :0])
    expected = module.attend(q, first + last)
    for summary in (
        first + hidden + last,
        hidden + (first + last),
        (hidden + hidden) + first + last + hidden,
        empty + first + empty + last + empty,
    ):
        close(module.attend(q, summary), expected, 1e-12)


# Masks -------------------------------------------------------------------------------------------------------------


@both_precisions
@pytest.mark.parametrize("junk", [0.0, -7.0, 1e4, 1e30, -3e38, float("inf"), float("nan")])
@every_case
def test_masked_keys_have_no_influence(case: Case, junk: float, dtype: torch.dtype) -> None:
    """Whatever stands at masked positions, outputs are the same to the last bit, and no gradient flows there."""
    module = case.module(dtype=dtype)
    q, k, v = draw(2, HEADS, 23, DIM, dtype=dtype)
    mask = mask_of("holes", 23, seed=5)
    assert mask is not None
    hidden = ~mask[:, None, :, None].expand_as(k)
    expected = module(q, k, v, mask=mask)
    keys, values = (x.masked_fill(hidden, junk).requires_grad_() for x in (k, v))
    got = module(q, keys, values, mask=mask)
    assert torch.equal(got, expected)
    for gradient in gradients(got, [keys, values]):
        assert bool(torch.isfinite(gradient).all())
        assert bool((gradient[hidden] == 0).all())


@every_case
def test_masks_are_used(case: Case) -> None:
    """Hiding a key changes something, and showing it to one head or sample only is impossible."""
    module = case.module(dtype=torch.float64)
    q, k, v = draw(2, HEADS, 23, DIM)
    mask = torch.ones(2, 23, dtype=torch.bool)
    mask[0, 11] = False
    difference = (module(q, k, v, mask=mask) - module(q, k, v)).abs().amax(dim=(2, 3))  # (B, H)
    assert bool((difference[0] > 1e-6).all())
    close(difference[1], torch.zeros(HEADS, dtype=torch.float64), 1e-12)


@both_precisions
@every_case
def test_all_padding(case: Case, dtype: torch.dtype) -> None:
    """No key at all: zeros, and finite gradients even of a large loss; the other sample is as it would be alone."""
    module = case.module(dtype=dtype)
    q, k, v = (x.requires_grad_() for x in draw(2, HEADS, 21, DIM, dtype=dtype))
    mask = prefix_mask([0, 21], 21)
    for out in (module(q, k, v, mask=mask), stream(module, q, k, v, mask, bounds([5, 16]))):
        assert bool((out[0] == 0).all())
        close(out[1:], module(q[1:], k[1:], v[1:]), case.conditioning * TOLERANCE[dtype])
        for gradient in gradients(1e6 * out, [q, k, v, *module.parameters()]):
            assert bool(torch.isfinite(gradient).all())
        assert all(bool((gradient[0] == 0).all()) for gradient in gradients(out, [k, v]))


@every_case
def test_one_token(case: Case) -> None:
    """One key: a weighted mean is its value; any mechanism returns something finite."""
    module = case.module(dtype=torch.float64)
    q, k, v = draw(2, HEADS, 1, DIM)
    for out in (module(q, k, v), module(q, k, v, mask=torch.ones(2, 1, dtype=torch.bool))):
        assert bool(torch.isfinite(out).all())
        if case.averages or case.projection == "max":
            close(out, v, 1e-12)
    (many,) = draw(2, HEADS, 9, DIM, count=1)
    mask = torch.zeros(2, 9, dtype=torch.bool)
    mask[:, 4] = True
    if case.averages or case.projection == "max":
        close(module(many, many, many, mask=mask), many[:, :, 4:5].expand_as(many), 1e-12)


@pytest.mark.parametrize("tokens", [1, 4, 37])
@every_case
def test_means_of_a_constant_are_the_constant(case: Case, tokens: int) -> None:
    if not case.averages:
        pytest.skip("its outputs are not weighted means")
    module = case.module(dtype=torch.float64)
    q, k, _ = draw(2, HEADS, tokens, DIM)
    values = torch.full_like(k, 3.25)
    close(module(q, k, values, mask=prefix_mask([tokens, max(1, tokens - RADIUS)], tokens)), values, 1e-12)


# Batches -----------------------------------------------------------------------------------------------------------


@both_precisions
@every_case
def test_batch_equals_singles(case: Case, dtype: torch.dtype) -> None:
    """Two samples of four heads, of different lengths, together or one by one without padding."""
    module = case.module(dtype=dtype)
    q, k, v = draw(2, HEADS, 29, DIM, dtype=dtype)
    lengths = [29, 13]
    together = module(q, k, v, mask=prefix_mask(lengths, 29))
    for i, n in enumerate(lengths):
        alone = module(*(x[i : i + 1, :, :n] for x in (q, k, v)))
        close(together[i : i + 1, :, :n], alone, case.conditioning * TOLERANCE[dtype], f"sample {i}")


@every_case
def test_padded_length_does_not_matter(case: Case) -> None:
    module = case.module(dtype=torch.float64)
    q, k, v = draw(2, HEADS, 60, DIM)
    expected = module(*(x[:, :, :17] for x in (q, k, v)))
    for padded in (18, 32, 60):
        got = module(*(x[:, :, :padded] for x in (q, k, v)), mask=prefix_mask([17, 17], padded))
        close(got[:, :, :17], expected, 1e-12)


@every_case
def test_the_rest_of_the_batch_does_not_matter(case: Case) -> None:
    """Neither the values nor the length of another sample, however extreme."""
    module = case.module(dtype=torch.float32)
    q, k, v = draw(2, HEADS, 29, DIM, dtype=torch.float32)
    mask = prefix_mask([20, 29], 29)
    expected = module(q, k, v, mask=mask)[0]
    for scale, length in [(1e3, 29), (1.0, 3), (0.0, 0)]:
        others = [torch.stack([x[0], scale * x[1]]) for x in (q, k, v)]
        close(module(*others, mask=prefix_mask([20, length], 29))[0], expected, 1e-6)


@every_case
def test_heads_do_not_mix(case: Case) -> None:
    module = case.module(dtype=torch.float64)
    q, k, v = draw(2, HEADS, 12, DIM)
    expected = module(q, k, v)
    for x in (q, k, v):
        x[:, 1] *= -2.0
    got = module(q, k, v)
    others = [0, 2, 3]
    assert torch.equal(got[:, others], expected[:, others])
    assert not torch.allclose(got[:, 1], expected[:, 1])


# Repeatability -----------------------------------------------------------------------------------------------------


@every_case
def test_eval_is_deterministic_and_equals_training(case: Case) -> None:
    module = case.module(dtype=torch.float32)
    inputs = draw(2, HEADS, 33, DIM, dtype=torch.float32)
    trained = module.train()(*inputs)
    module.eval()
    torch.manual_seed(123)
    first = module(*inputs)
    torch.manual_seed(456)
    assert torch.equal(module(*inputs), first)
    assert torch.equal(first, trained)


@every_case
def test_state_dict_holds_everything_random_or_learned(case: Case) -> None:
    """Another module of the same configuration, made under another seed, gives equal outputs after a strict load."""
    inputs = draw(2, HEADS, 33, DIM, dtype=torch.float32)
    module = case.module(dtype=torch.float32, seed=1)
    state = copy.deepcopy(module.state_dict())
    torch.manual_seed(99)
    other = case.make(HEADS, DIM, 300, 2)
    other.load_state_dict(state, strict=True)
    assert torch.equal(other(*inputs), module(*inputs))
    module(*inputs)
    assert module.state_dict().keys() == state.keys()


@every_case
def test_float32_is_close_to_float64(case: Case) -> None:
    module = case.module(dtype=torch.float32)
    exact = copy.deepcopy(module).double()
    inputs = draw(2, HEADS, 211, DIM, dtype=torch.float32)
    mask = prefix_mask([211, 100], 211)
    close(module(*inputs, mask=mask), exact(*(x.double() for x in inputs), mask=mask), 1e-5 * case.conditioning)


@every_case
def test_inputs_are_left_as_they_were(case: Case) -> None:
    module = case.module(dtype=torch.float64)
    inputs = draw(2, HEADS, 15, DIM)
    mask = prefix_mask([15, 4], 15)
    before = [x.clone() for x in (*inputs, mask)]
    stream(module, *inputs, mask, bounds([6, 9]))
    for x, y in zip((*inputs, mask), before, strict=True):
        assert torch.equal(x, y)


# Refusals ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "mask",
    [torch.ones(2, HEADS, dtype=torch.bool), torch.ones(9, 2, dtype=torch.bool), torch.ones(2, 9), torch.ones(9) > 0],
    ids=["(B, H)", "(T, B)", "float", "(T,)"],
)
@every_case
def test_masks_of_another_shape_are_refused(case: Case, mask: Tensor) -> None:
    k, v = draw(2, HEADS, 9, DIM, count=2)
    with pytest.raises(ValueError, match="mask must be bool"):
        case.module(dtype=torch.float64).summarize(k, v, mask=mask)


@every_case
def test_keys_and_values_that_differ_are_refused(case: Case) -> None:
    module = case.module(dtype=torch.float64)
    k, v = draw(2, HEADS, 9, DIM, count=2)
    for keys, values in [(k, v[:, :, :8]), (k[:1], v), (k[0], v[0])]:
        with pytest.raises(ValueError, match="keys and values"):
            module.summarize(keys, values)
