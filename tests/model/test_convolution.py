"""Convolutions against torch's own, outputs and gradients."""

from __future__ import annotations

import itertools

import pytest
import torch
from torch.nn import functional

from genoformer.model.convolution import Convolution, DepthwiseConvolution

SHAPES = [
    (batch, length, channels, out, kernel, stride)
    for (batch, channels, out), kernel, stride in itertools.product([(2, 3, 4), (1, 1, 2)], [1, 2, 5], [1, 2, 3, 7])
    for length in (kernel, kernel + 1, 11)
]


@pytest.mark.parametrize(("batch", "length", "channels", "out", "kernel", "stride"), SHAPES)
def test_convolution_is_torchs(batch: int, length: int, channels: int, out: int, kernel: int, stride: int) -> None:
    layer = Convolution(channels, out, kernel=kernel, stride=stride).double()
    with torch.no_grad():
        layer.bias.normal_()
    x = torch.randn(batch, length, channels, dtype=torch.float64, requires_grad=True)
    weight = layer.weight.view(kernel, channels, out).permute(2, 1, 0)
    expected = functional.conv1d(x.transpose(1, 2), weight, layer.bias, stride=stride).transpose(1, 2)
    found = layer(x)
    torch.testing.assert_close(found, expected, rtol=1e-12, atol=1e-12)
    upstream = torch.randn_like(expected)
    wanted = (x, layer.weight, layer.bias)
    for ours, theirs in zip(
        torch.autograd.grad(found, wanted, upstream), torch.autograd.grad(expected, wanted, upstream), strict=True
    ):
        torch.testing.assert_close(ours, theirs, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("stride", [1, 2, 3])
def test_gradients_of_convolution_are_numerically_right(stride: int) -> None:
    layer = Convolution(2, 3, kernel=3, stride=stride).double()
    x = torch.randn(2, 8, 2, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(lambda x, w, b: _with(layer, x, w, b), (x, layer.weight, layer.bias))


def _with(layer: torch.nn.Module, x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor) -> torch.Tensor:
    result = torch.func.functional_call(layer, {"weight": weight, "bias": bias}, x)
    assert isinstance(result, torch.Tensor)
    return result


@pytest.mark.parametrize("kernel", [1, 3, 5])
def test_depthwise_convolution_is_torchs(kernel: int) -> None:
    layer = DepthwiseConvolution(4, kernel=kernel).double()
    x = torch.randn(2, 9, 4, dtype=torch.float64, requires_grad=True)
    expected = functional.conv1d(x.transpose(1, 2), layer.weight.T[:, None], groups=4).transpose(1, 2)
    torch.testing.assert_close(layer(x), expected, rtol=1e-12, atol=1e-12)
    assert torch.autograd.gradcheck(layer, x)
    (ours,) = torch.autograd.grad(layer(x).square().sum(), layer.weight)
    (theirs,) = torch.autograd.grad(expected.square().sum(), layer.weight)
    torch.testing.assert_close(ours, theirs, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("view", ["slice", "transpose", "expand", "offset"])
def test_any_view_is_taken(view: str) -> None:
    layer = Convolution(4, 3, kernel=3)
    x = {
        "slice": torch.randn(2, 20, 4)[:, 3:17:2],
        "transpose": torch.randn(2, 4, 9).transpose(1, 2),
        "expand": torch.randn(1, 9, 4).expand(3, -1, -1),
        "offset": torch.randn(5, 9, 4)[2:4],
    }[view]
    torch.testing.assert_close(layer(x), layer(x.clone(memory_format=torch.contiguous_format)))


def test_under_autocast_products_are_in_bfloat16_and_close() -> None:
    layer = Convolution(8, 4, kernel=5)
    x = torch.randn(2, 30, 8)
    with torch.autocast("cpu", torch.bfloat16):
        found = layer(x)
    torch.testing.assert_close(found.float(), layer(x), rtol=0.05, atol=0.05)
    assert not torch.equal(found.float(), layer(x))
    found.float().sum().backward()
    assert layer.weight.grad is not None
    assert layer.weight.grad.dtype == torch.float32


def test_gradient_of_a_constant_input_is_not_computed() -> None:
    layer = Convolution(2, 2, kernel=3)
    layer(torch.randn(1, 5, 2)).sum().backward()
    assert layer.weight.grad is not None
