"""What may be handed in: tensors laid out in any way, and what is refused, in words."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from genoformer.attention import GraphPerformer, Local, Performer, Softmax
from genoformer.attention.attention import extents
from genoformer.attention.softmax import attend_with_log_sum, rotate

from .cases import CASES, DIM, HEADS, Case, close, draw, gradients
from .faults import every_case

LAYOUTS: dict[str, Callable[[Tensor], Tensor]] = {
    "tokens first": lambda x: x.transpose(1, 2).contiguous().transpose(1, 2),
    "dimensions before tokens": lambda x: x.transpose(2, 3).contiguous().transpose(2, 3),
    "batch last": lambda x: x.permute(1, 2, 3, 0).contiguous().permute(3, 0, 1, 2),
    "every second number": lambda x: torch.stack([x, x - 1], dim=-1).flatten(3)[..., ::2],
}


@pytest.mark.parametrize("layout", LAYOUTS.values(), ids=list(LAYOUTS))
@every_case
def test_layout_in_memory_does_not_matter(case: Case, layout: Callable[[Tensor], Tensor]) -> None:
    module = case.module(dtype=torch.float64)
    inputs = [x.requires_grad_() for x in draw(2, HEADS, 19, DIM)]
    mask = torch.arange(19) < torch.tensor([[19], [12]])
    expected = module(*inputs, mask=mask)
    turned = [layout(x) for x in inputs]
    got = module(*turned, mask=mask)
    close(got, expected, 1e-12)
    for mine, theirs in zip(gradients(got, turned), gradients(expected, inputs), strict=True):
        close(mine, theirs, 1e-11)


@every_case
def test_numbers_that_lie_in_one_place_only(case: Case) -> None:
    """Expanded tensors, of stride 0 along any dimension, are what they look like."""
    module = case.module(dtype=torch.float64)
    for dimension in range(4):
        inputs = [x.narrow(dimension, 0, 1).expand(2, HEADS, 9, DIM) for x in draw(2, HEADS, 9, DIM)]
        close(module(*inputs), module(*(x.contiguous() for x in inputs)), 1e-12, f"dimension {dimension}")


def test_biases_in_any_layout() -> None:
    q, k, v = draw(2, HEADS, 19, DIM)
    (bias,) = draw(2, HEADS, 19, count=1)
    turned = bias.transpose(1, 2).contiguous().transpose(1, 2)
    got, expected = (attend_with_log_sum(q, k, v, b) for b in (turned, bias))
    close(got.mean, expected.mean, 1e-12)
    close(got.log_sum, expected.log_sum, 1e-12)


def test_a_backward_pass_is_not_recorded_without_a_word() -> None:
    """With a way around it, torch would leave attention's share out of a second derivative, and say nothing."""
    q, k, v = (x.requires_grad_() for x in draw(1, HEADS, 6, DIM))
    edges = torch.tensor([[0, 1, 2], [1, 2, 3]])
    graph = GraphPerformer(Performer(HEADS, DIM, count=8)).double()
    modules = [
        CASES[name].module(dtype=torch.float64) for name in ("softmax", "local", "performer-positive", "joint-oprf")
    ]
    for attended in (graph(q, k, v, edges), *(module(q, k, v) for module in modules)):
        loss = (attended + q**2).square().sum()
        with pytest.raises(RuntimeError, match="first derivatives only"):
            torch.autograd.grad(loss, [q, k, v], create_graph=True)
        torch.autograd.grad(loss, [q, k, v])


@pytest.mark.parametrize("case", [case for case in CASES.values() if case.features], ids=lambda case: case.name)
def test_autocast_around_either_pass_changes_nothing(case: Case) -> None:
    """Half precision is for the layers around; a piece computed again must be the piece that was computed."""
    module = case.module(dtype=torch.float32)
    inputs = [x.requires_grad_() for x in draw(1, HEADS, 12, DIM, dtype=torch.float32)]
    out = module(*inputs)
    expected = gradients(out, inputs)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        close(module(*inputs), out, 1e-6)
        for got, wanted in zip(gradients(out, inputs), expected, strict=True):
            close(got, wanted, 1e-6)


# Refusals ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dim", [1, 7])
def test_rotary_positions_of_an_odd_number_of_dimensions(dim: int) -> None:
    q, k, v = draw(1, 2, 5, dim)
    with pytest.raises(ValueError, match=f"in pairs, got heads of {dim}"):
        rotate(q, 0)
    for module in (Softmax(rotary=True), Local(radius=2)):
        with pytest.raises(ValueError, match=f"in pairs, got heads of {dim}"):
            module(q, k, v)
    assert Local(radius=2, rotary=False)(q, k, v).shape == q.shape


@every_case
def test_keys_and_values_of_two_precisions(case: Case) -> None:
    k, v = draw(2, HEADS, 9, DIM, count=2)
    with pytest.raises(ValueError, match=r"alike in precision, got torch.float64 and torch.float32"):
        case.module(dtype=torch.float64).summarize(k, v.float())


def test_a_mask_of_one_dimension() -> None:
    with pytest.raises(ValueError, match=r"\(batch, tokens\)"):
        extents(torch.ones(5, dtype=torch.bool))


@pytest.mark.parametrize("numbers", [{"heads": 0}, {"dim": 0}, {"count": 0}, {"count": -1}], ids=str)
def test_performers_of_nothing(numbers: dict[str, int]) -> None:
    (name,) = numbers
    with pytest.raises(ValueError, match=f"{name} must be at least 1"):
        Performer(**{"heads": 2, "dim": 8, "count": 4} | numbers)


@pytest.mark.parametrize("temperature", [0.0, -1.0, float("nan"), float("inf")])
def test_temperatures_that_are_none(temperature: float) -> None:
    with pytest.raises(ValueError, match="max_temperature must be a positive number"):
        Performer(2, 8, max_temperature=temperature)
