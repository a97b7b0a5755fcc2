"""What runs on a GPU and not on a CPU: forced onto the CPU here, and once more on a device where there is one.

A CPU has a fused kernel that returns the log-sum-exp; elsewhere, and in half precision, scores are written out piece by
piece. Pieces are larger there, too.
"""

from __future__ import annotations

import copy
import importlib.util
import sys
from pathlib import Path

import pytest
import torch
from torch import Tensor

from genoformer.attention import recompute, softmax
from genoformer.attention.attention import EMPTY
from genoformer.attention.softmax import attend_with_log_sum

from .cases import CASES, DIM, HEADS, Case, close, draw, gradients, prefix_mask
from .test_twins import compare, masks

every_case = pytest.mark.parametrize("case", CASES.values(), ids=lambda case: case.name)


@pytest.fixture
def _no_fused_kernel(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have the CPU do what a GPU does; the fused kernel is not there at all."""
    monkeypatch.setattr(softmax, "_FUSED_TYPES", ())
    monkeypatch.setattr(softmax._FusedSoftmax, "apply", lambda *_: pytest.fail("the fused kernel ran"))
    monkeypatch.setattr(recompute, "_ROOM", {})


@pytest.mark.usefixtures("_no_fused_kernel")
@pytest.mark.parametrize("mask", ["none", "holes and end"])
@every_case
def test_without_the_fused_kernel_each_equals_its_twin(case: Case, mask: str):
    compare(case, *draw(2, HEADS, 61, DIM, seed=61), masks(mask, 61))


@pytest.mark.usefixtures("_no_fused_kernel")
@every_case
def test_without_the_fused_kernel_pieces_have_no_seam(case: Case, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("genoformer.attention.attention.PIECE", 10)
    compare(case, *draw(2, HEADS, 33, DIM, seed=4), masks("holes", 33))


def scores_with_bias(dtype: torch.dtype, tokens: int = 37) -> list[Tensor]:
    q, k, v = draw(2, HEADS, tokens, DIM, dtype=dtype)
    (bias,) = draw(2, HEADS, tokens, seed=5, dtype=dtype, count=1)
    return [q[:, :, :9], k, v, bias]


@pytest.mark.parametrize("shape", [(2, HEADS), (1, HEADS), (2, 1), (1, 1)])
def test_both_paths_agree(shape: tuple[int, int], monkeypatch: pytest.MonkeyPatch):
    """In the mean, the log-sum-exp and every gradient, whatever the bias is shared by."""
    found = []
    for fused in (True, False):
        if not fused:
            monkeypatch.setattr(softmax, "_FUSED_TYPES", ())
        q, k, v, bias = scores_with_bias(torch.float64)
        inputs = [x.requires_grad_() for x in (q, k, v, bias[: shape[0], : shape[1]].clone())]
        result = attend_with_log_sum(*inputs)
        both = torch.cat([result.mean, result.log_sum[..., None]], dim=-1)
        found.append([both, *gradients(both, inputs)])
    for mine, theirs in zip(*found, strict=True):
        close(mine, theirs, 1e-12)


def test_keys_that_are_all_hidden(monkeypatch: pytest.MonkeyPatch):
    """Their values are 0, and so is the mean; gradients are finite."""
    for types in (softmax._FUSED_TYPES, ()):
        monkeypatch.setattr(softmax, "_FUSED_TYPES", types)
        q, k, v, bias = scores_with_bias(torch.float32)
        inputs = [x.requires_grad_() for x in (q, torch.zeros_like(k), torch.zeros_like(v))]
        result = attend_with_log_sum(*inputs, torch.full_like(bias, EMPTY))
        assert not result.mean.any()
        assert bool((result.log_sum <= EMPTY / 2).all())
        assert all(bool(torch.isfinite(gradient).all()) for gradient in gradients(result.mean, inputs))


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_takes_the_plain_path(dtype: torch.dtype):
    """Errors within a few roundings of the type: scores up to 10 are rounded, then exponentiated, then averaged."""
    inputs = scores_with_bias(dtype)
    got = attend_with_log_sum(*inputs)
    expected = attend_with_log_sum(*(x.double() for x in inputs))
    assert got.mean.dtype == dtype
    close(got.mean, expected.mean, 16 * torch.finfo(dtype).eps)
    close(got.log_sum, expected.log_sum, 16 * torch.finfo(dtype).eps)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@every_case
def test_half_precision_inputs_are_summed_in_float32(case: Case, dtype: torch.dtype):
    """What comes out equals the float32 result of the same inputs, rounded once."""
    module = case.module(dtype=torch.float32)
    inputs = draw(2, HEADS, 120, DIM, dtype=dtype)
    mask = prefix_mask([120, 70], 120)
    got, expected = module(*inputs, mask=mask), module(*(x.float() for x in inputs), mask=mask)
    assert got.dtype == dtype
    close(got, expected, torch.finfo(dtype).eps)


def test_pieces_on_a_device_hold_more_tokens():
    assert recompute.piece_size(1000, torch.device("cuda")) > recompute.piece_size(1000, torch.device("cpu"))


# Another device ----------------------------------------------------------------------------------------------------


def test_mixing_devices_is_noticed():
    """The device without data refuses tensors of another one, as a GPU does."""
    with pytest.raises(RuntimeError):
        torch.randn(3, device="meta") * torch.randn(3)


@pytest.mark.parametrize("masked", [False, True])
@every_case
def test_every_tensor_is_made_on_the_device_of_the_inputs(case: Case, masked: bool, monkeypatch: pytest.MonkeyPatch):
    """Forward and backward on a device that holds no data: lengths that the code asks for are given by the test."""
    tokens = 50
    tolist, is_true = torch.Tensor.tolist, torch.Tensor.__bool__
    monkeypatch.setattr(torch.Tensor, "tolist", lambda x: [tokens] * len(x) if x.is_meta else tolist(x))
    monkeypatch.setattr(torch.Tensor, "__bool__", lambda x: False if x.is_meta else is_true(x))
    monkeypatch.setattr(torch.Tensor, "__int__", lambda x: tokens if x.is_meta else int(x.item()))
    module = case.module(dtype=torch.float32).to("meta")
    inputs = [x.to("meta").requires_grad_() for x in draw(2, HEADS, tokens, DIM, dtype=torch.float32)]
    mask = torch.ones(2, tokens, dtype=torch.bool, device="meta") if masked else None
    output = module(*inputs, mask=mask)
    assert output.is_meta
    assert output.shape == inputs[0].shape
    found = torch.autograd.grad(output.sum(), inputs, allow_unused=True)
    assert all(gradient is None or gradient.is_meta for gradient in found)


@pytest.mark.gpu
@every_case
def test_a_device_agrees_with_float64_on_the_cpu(case: Case):
    module = case.module(dtype=torch.float64)
    there = copy.deepcopy(module).float().to("cuda")
    inputs = draw(2, HEADS, 257, DIM, dtype=torch.float32)
    mask = masks("holes and end", 257)
    assert mask is not None
    mine = [x.to("cuda").requires_grad_() for x in inputs]
    exact = [x.double().requires_grad_() for x in inputs]
    got, expected = there(*mine, mask=mask.to("cuda")), case.twin(module, *exact, mask)
    close(got.cpu(), expected, 1e-5)
    generator = torch.Generator().manual_seed(9)
    upstream = torch.randn(expected.shape, generator=generator, dtype=torch.float64)
    mine = torch.autograd.grad((got * upstream.float().to("cuda")).sum(), mine)
    exact = torch.autograd.grad((expected * upstream).sum(), exact)
    for a, b in zip(mine, exact, strict=True):
        close(a.cpu(), b, 1e-4)


def test_the_script_for_a_gpu_runs_on_a_cpu(capsys: pytest.CaptureFixture[str]):
    """With few tokens and two mechanisms: its checks, its measured rates, its table."""
    path = Path(__file__).resolve().parents[1] / "benchmarks" / "gpu.py"
    spec = importlib.util.spec_from_file_location("gpu_benchmark", path)
    assert spec is not None
    assert spec.loader is not None
    script = importlib.util.module_from_spec(spec)
    before = list(sys.path)
    spec.loader.exec_module(script)
    sys.path[:] = before
    given = (
        "--device cpu --only performer-positive linformer-mean --lengths 64 --dims 8 --width 16 --features 8 --rank 4"
    )
    assert script.main([*given.split(), "--parity-tokens", "40", "--many-tokens", "100", "--repeats", "1"]) == 0
    told = capsys.readouterr().out
    assert told.startswith("NO GPU")
    assert told.count("performer-positive") == told.count("linformer-mean") == 2
    assert told.endswith("parity: all hold\n")


def test_the_script_finds_a_mechanism_that_differs(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch):
    path = Path(__file__).resolve().parents[1] / "benchmarks" / "gpu.py"
    spec = importlib.util.spec_from_file_location("gpu_benchmark", path)
    assert spec is not None
    assert spec.loader is not None
    script = importlib.util.module_from_spec(spec)
    monkeypatch.setattr(sys, "path", list(sys.path))
    spec.loader.exec_module(script)
    wrong = script.CASES["local"]
    monkeypatch.setitem(script.CASES, "local", Case("local", wrong.make, lambda *given: 1.001 * wrong.twin(*given)))
    given = ["--device", "cpu", "--only", "local", "--lengths", "16", "--dims", "8", "--width", "8", "--repeats", "1"]
    assert script.main([*given, "--parity-tokens", "40", "--many-tokens", "50"]) == 1
    assert "FAILED" in capsys.readouterr().out
