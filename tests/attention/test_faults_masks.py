"""Faults 10 to 16, of masks, lengths and sharing: see test_faults.py."""

from __future__ import annotations

import inspect
import math

import pytest
import torch
from torch import nn

from genoformer.attention.features import FEATURES
from genoformer.attention.linear_projections import Convolution, Learned, Mean, Seeded
from genoformer.attention.projections import Max

from .cases import CASES, DIM, HEADS, Case, close, draw, error, gradients, prefix_mask
from .faults import every_case


@every_case
def test_fault_10_masks_that_hide_only_values_or_are_swallowed(case: Case) -> None:
    """Hidden tokens count in no sum, no maximum and no length: as if they had been cut off."""
    module = case.module(dtype=torch.float64)
    q, k, v = draw(2, HEADS, 40, DIM)
    n = 21
    right = module(*(x[:, :, :n] for x in (q, k, v)))
    mask = prefix_mask([n, n], 40)
    close(module(q, k, v, mask=mask)[:, :, :n], right, 1e-12)
    hidden = ~mask[:, None, :, None]
    only_values = module(q, k, v.masked_fill(hidden, 0.0))[:, :, :n]
    zero_keys = module(q, k.masked_fill(hidden, 0.0), v.masked_fill(hidden, 0.0))[:, :, :n]
    assert error(only_values, right) > 1e-3
    assert error(zero_keys, right) > 1e-3
    for method in (module.forward, module.summarize, module.attend):
        kinds = {parameter.kind for parameter in inspect.signature(method).parameters.values()}
        assert inspect.Parameter.VAR_KEYWORD not in kinds
    with pytest.raises(TypeError):
        module(q, k, v, attention_mask=mask)
    assert bool(mask[:, :n].all())
    assert not bool(mask[:, n:].any())


@every_case
def test_fault_11_bias_leaks_from_padding(case: Case) -> None:
    """A linear layer with a bias turns padding zeros into keys and values of its bias: they count for nothing."""
    module = case.module(dtype=torch.float64)
    to_keys, to_values = (nn.Linear(DIM, DIM).double() for _ in range(2))
    (x,) = draw(2, HEADS, 20, DIM, count=1)
    padded = nn.functional.pad(x, (0, 0, 0, 30))
    mask = prefix_mask([20, 20], 50)
    got = module(padded, to_keys(padded), to_values(padded), mask=mask)[:, :, :20]
    close(got, module(x, to_keys(x), to_values(x)), 1e-12)


@pytest.mark.parametrize("case", [c for c in CASES.values() if c.projection], ids=lambda case: case.name)
def test_fault_12_another_length_than_trained(case: Case) -> None:
    """n in {1, k-1, k, n/2, n} and n_q != n_k work by their twins; beyond the trained length, work or say why not."""
    trained = 24
    module = case.module(dtype=torch.float64, tokens=trained)
    (q,) = draw(2, HEADS, 11, DIM, count=1)
    for n in (1, 4, 5, trained // 2, trained - 1, trained):
        k, v = draw(2, HEADS, n, DIM, seed=n, count=2)
        close(module(q, k, v), case.twin(module, q, k, v, None), 1e-9, f"{n} tokens")
    k, v = draw(2, HEADS, trained + 1, DIM, count=2)
    if case.projection == "learned":
        with pytest.raises(ValueError, match="covers 24 tokens, but the sequence reaches token 25; use"):
            module(q, k, v)
    else:
        close(module(q, k, v), case.twin(module, q, k, v, None), 1e-9)


def test_fault_13_rows_too_large_or_too_small() -> None:
    """Compressed keys have the scale of keys: unit norm for random rows, a mean for pooled starts, at any length."""
    tokens, rank = 4096, 16
    (k,) = draw(1, 2, tokens, DIM, count=1)
    projection = Seeded(rank)
    slots = projection.slots(projection.compress(k, k, 0, torch.tensor([tokens]), None))
    assert float(slots.keys.std()) == pytest.approx(1.0, abs=0.2)  # 256 numbers: standard error 0.045
    assert 0.8 < math.sqrt(tokens / rank) / 16 < 1.2  # entries of 1/sqrt(rank) would give 16 instead
    constant = torch.full_like(k, 2.5)
    for start in (Learned(rank, tokens), Convolution(tokens // rank), Mean(rank), Max(rank)):
        slots = start.double().slots(start.compress(constant, constant, 0, torch.tensor([tokens]), None))
        close(slots.keys, torch.full_like(slots.keys, 2.5), 1e-5)


@every_case
def test_fault_14_parameters_shared_by_every_model_of_the_process(case: Case) -> None:
    """Two modules share no memory, and changing one leaves the other alone."""
    one, two = (case.module(dtype=torch.float64, seed=seed) for seed in (1, 2))
    inputs = draw(2, HEADS, 20, DIM)
    before = two(*inputs)
    with torch.no_grad():
        for tensor in (*one.parameters(), *one.buffers()):
            tensor.add_(1)  # a seed is a whole number
    assert torch.equal(two(*inputs), before)
    memory = [{t.data_ptr() for t in (*m.parameters(), *m.buffers())} for m in (one, two)]
    assert not memory[0] & memory[1]
    if case.features and FEATURES[case.features].rows != "identity":
        assert error(CASES[case.name].module(dtype=torch.float64, seed=1)(*inputs), before) > 1e-3


@pytest.mark.parametrize("tokens", range(1, 16))
@pytest.mark.parametrize("name", ["linformer-conv", "linformer-mean", "linformer-max", "linformer-learned"])
def test_fault_15_last_tokens_dropped_when_the_stride_does_not_divide(name: str, tokens: int) -> None:
    """Every token matters, the last one too."""
    module = CASES[name].module(dtype=torch.float64)
    q, k, v = draw(1, HEADS, tokens, DIM)
    v[:, :, -1] += 10  # the maximum of its slot
    (gradient,) = gradients(module(q, k, v.requires_grad_()), [v])
    assert float(gradient[:, :, -1].abs().max()) > 1e-6
    if name != "linformer-max":
        assert bool((gradient.abs().amax(dim=(0, 1, 3)) > 1e-9).all())


@every_case
def test_fault_16_values_tied_to_keys(case: Case) -> None:
    """Sharing a projection between keys and values shares its matrix, never its input: outputs are linear in values."""
    module = case.module(dtype=torch.float64)
    q, k, v = draw(2, HEADS, 25, DIM)
    (w,) = draw(2, HEADS, 25, DIM, seed=1, count=1)
    assert bool((module(q, k, torch.zeros_like(v)) == 0).all())
    close(module(q, k, 3 * v), 3 * module(q, k, v), 1e-11)
    if case.projection != "max":
        close(module(q, k, v - 2 * w), module(q, k, v) - 2 * module(q, k, w), 1e-11)
