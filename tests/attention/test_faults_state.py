"""Faults 17 to 25, of state, randomness and precision: see test_faults.py."""

from __future__ import annotations

import naive
import pytest
import torch
from torch.utils.checkpoint import checkpoint

from genoformer.attention import Performer
from genoformer.attention.features import FEATURES, draw_projection
from genoformer.attention.softmax import rotate

from .cases import CASES, DIM, HEADS, Case, bounds, close, draw, error, gradients, prefix_mask, stream
from .faults import COMPRESSED, every_case, natural


@every_case
def test_fault_17_evaluation_that_is_random_or_depends_on_the_batch(case: Case) -> None:
    module = case.module(dtype=torch.float32).eval()
    q, k, v = draw(3, HEADS, 40, DIM, dtype=torch.float32)
    first = module(q, k, v)
    torch.manual_seed(77)
    assert torch.equal(module(q, k, v), first)
    order = torch.tensor([2, 0, 1])
    close(module(q[order], k[order], v[order]), first[order], 1e-6)
    close(module(q[1:2], k[1:2], v[1:2]), first[1:2], 1e-6)
    lengths = [40, 22, 31]
    mixed = module(q, k, v, mask=prefix_mask(lengths, 40))
    for i, n in enumerate(lengths):
        alone = module(*(x[i : i + 1, :, :n] for x in (q, k, v)))
        close(mixed[i : i + 1, :, :n], alone, 1e-5, f"sample {i}")


@pytest.mark.parametrize("features", [kind for kind, of in FEATURES.items() if of.rows != "identity"])
def test_fault_18_projection_not_saved_or_drawn_lazily(features: str) -> None:
    """The rows are in the state_dict before anything ran, and a strict load brings them along."""
    module = natural(features)
    state = {name: tensor.clone() for name, tensor in module.state_dict().items()}
    assert tuple(state["projection"].shape) == (HEADS, 32 if module.kind.rows == "waves" else 64, DIM)
    inputs = draw(1, HEADS, 20, DIM, dtype=torch.float32)
    other = Performer(HEADS, DIM, count=64, features=features, max_temperature=None, seed=4)
    assert error(other(*inputs), module(*inputs)) > 1e-3
    other.load_state_dict(state, strict=True)
    assert torch.equal(other(*inputs), module(*inputs))
    missing = {name: tensor for name, tensor in state.items() if name != "projection"}
    with pytest.raises(RuntimeError, match="projection"):
        other.load_state_dict(missing, strict=True)


@every_case
def test_fault_19_redrawn_inside_forward(case: Case) -> None:
    """Running does not touch the state, so that recomputation in the backward pass, or another rank, sees the same."""
    module = case.module(dtype=torch.float64).train()
    inputs = [x.requires_grad_() for x in draw(1, HEADS, 30, DIM)]
    state = {name: tensor.clone() for name, tensor in module.state_dict().items()}
    parameters = [*inputs, *module.parameters()]
    plain = gradients(module(*inputs), parameters)
    again = gradients(checkpoint(module, *inputs, use_reentrant=False, preserve_rng_state=False), parameters)
    for x, y in zip(plain, again, strict=True):
        assert torch.equal(x, y)
    for name, tensor in module.state_dict().items():
        assert torch.equal(tensor, state[name])


def test_fault_19_redrawing_is_an_explicit_step_from_a_seed() -> None:
    one, two = natural(), natural()
    before = one.projection.clone()
    one.redraw(11)
    torch.manual_seed(5)
    two.redraw(11)
    assert torch.equal(one.projection, two.projection)
    assert not torch.allclose(one.projection, before)
    assert one.projection.shape == before.shape


@pytest.mark.parametrize("name", [name for name, case in CASES.items() if case.features or "hybrid" in name])
def test_fault_20_orthogonalized_on_every_forward(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """No QR, and no random numbers, after construction."""
    module = CASES[name].module(dtype=torch.float32)
    inputs = draw(1, HEADS, 30, DIM, dtype=torch.float32)

    def refuse(*args: object, **kwargs: object) -> None:
        raise AssertionError("drawn again")

    for place, function in [(torch.linalg, "qr"), (torch, "randn"), (torch, "rand")]:
        monkeypatch.setattr(place, function, refuse)
    module(*inputs)
    with pytest.raises(AssertionError, match="drawn again"):
        draw_projection("positive", heads=1, count=4, dim=4, seed=0)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16], ids=str)
@pytest.mark.parametrize("case", COMPRESSED, ids=lambda case: case.name)
def test_fault_21_sums_that_overflow_or_stall(case: Case, dtype: torch.dtype) -> None:
    """100,000 tokens: sums are far beyond 65,504, where float16 ends, and 256, where counting in bfloat16 stops.

    Half-precision inputs are summarized in float32, so the mean of a constant is the constant, to their precision.
    There is no half-precision kernel on the CPU to test beyond that.
    """
    module = case.module(heads=2, dim=4, tokens=100_000, dtype=torch.float32).requires_grad_(False)
    _, k, _ = draw(1, 2, 100_000, 4, dtype=torch.float32)
    k = k.to(dtype)
    value = torch.full_like(k, 3.0)
    queries = k[:, :, :500]
    out = module.attend(queries, module.summarize(k, value))
    assert out.dtype == dtype
    assert bool(torch.isfinite(out).all())
    if case.averages:
        close(out, torch.full_like(out, 3.0), {torch.float32: 1e-5, torch.bfloat16: 4e-3, torch.float16: 5e-4}[dtype])
    else:
        exact = module.double().attend(queries.double(), module.summarize(k.double(), value.double()))
        close(out, exact, {torch.float32: 1e-4, torch.bfloat16: 1e-2, torch.float16: 2e-3}[dtype])


def test_fault_22_positions_in_half_precision() -> None:
    """At token 100,000 angles are right to 1e-5 in any precision of the inputs, and only differences matter."""
    q, k = draw(1, 1, 64, 16, count=2)
    far = 100_000
    close(rotate(q.float(), far), naive.rotary(q, far), 1e-5)
    wrong = torch.arange(far, far + 64).to(torch.bfloat16).double()
    assert float((wrong - torch.arange(far, far + 64).double()).abs().max()) > 50
    half = rotate(q.bfloat16(), far)
    close(half, naive.rotary(q.bfloat16().double(), far), 1e-5)
    near, away = (rotate(q.float(), s) @ rotate(k.float(), s).transpose(-1, -2) for s in (0, far))
    close(away, near, 1e-5)


@every_case
def test_fault_23_weights_that_depend_on_the_padded_length(case: Case) -> None:
    """Also when streamed: chunks of nothing but padding change nothing."""
    module = case.module(dtype=torch.float64)
    q, k, v = draw(1, HEADS, 100, DIM)
    right = module(*(x[:, :, :33] for x in (q, k, v)))
    for padded in (34, 66, 100):
        inputs = [x[:, :, :padded] for x in (q, k, v)]
        mask = prefix_mask([33], padded)
        close(module(*inputs, mask=mask)[:, :, :33], right, 1e-12)
        sizes = [10, 23, padded - 33]
        close(stream(module, *inputs, mask, bounds(sizes))[:, :, :33], right, 1e-12)


@pytest.mark.parametrize("scale", [1.0, 1e8])
@every_case
def test_fault_24_rows_without_any_key(case: Case, scale: float) -> None:
    """Output 0, finite gradients, alone or in a batch, in one chunk or many, or with no tokens whatsoever."""
    module = case.module(dtype=torch.float32)
    q, k, v = (x.requires_grad_() for x in draw(2, HEADS, 18, DIM, dtype=torch.float32))
    mask = torch.zeros(2, 18, dtype=torch.bool)
    for out in (module(q, k, v, mask=mask), stream(module, q, k, v, mask, bounds([7, 0, 11]))):
        assert bool((out == 0).all())
        for gradient in gradients(scale * out, [q, k, v, *module.parameters()]):
            assert bool(torch.isfinite(gradient).all())
    nothing = module(q[:, :, :0], k[:, :, :0], v[:, :, :0])
    assert tuple(nothing.shape) == (2, HEADS, 0, DIM)
    if case.any_queries:
        assert bool((module(q, k[:, :, :0], v[:, :, :0]) == 0).all())


@every_case
def test_fault_25_mask_read_along_the_wrong_axis(case: Case) -> None:
    """Two samples, four heads, four tokens, two dimensions: wrong broadcasts fit, and only the right one agrees."""
    heads = tokens = 4
    module = case.module(heads=heads, dim=2, dtype=torch.float64)
    q, k, v = draw(2, heads, tokens, 2)
    mask = torch.tensor([[True, True, False, True], [True, False, True, False]])
    close(module(q, k, v, mask=mask), case.twin(module, q, k, v, mask), 1e-9)
    for i in range(2):
        close(module(q, k, v, mask=mask)[i], module(q[i:][:1], k[i:][:1], v[i:][:1], mask=mask[i:][:1])[0], 1e-12)
