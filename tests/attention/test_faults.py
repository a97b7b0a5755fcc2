"""Faults seen in other implementations of linear attention, one test each: genoformer/attention/README.md, "Faults".

Many tests first build the fault in a few lines and assert that it would be noticed (`error(...)` above a bound): a test
that cannot fail is itself a failure.
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Iterator

import naive
import pytest
import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.checkpoint import checkpoint

from genoformer.attention import Attention, Linformer, Performer, Softmax
from genoformer.attention.features import FEATURES, draw_projection, orthogonal_blocks
from genoformer.attention.linear_projections import Convolution, Learned, Mean, Seeded
from genoformer.attention.projections import Max
from genoformer.attention.softmax import rotate

from .cases import CASES, DIM, HEADS, Case, bounds, close, draw, error, gradients, prefix_mask, stream, twin_performer

every_case = pytest.mark.parametrize("case", CASES.values(), ids=list(CASES))
LINEAR = [case for case in CASES.values() if case.linear]
COMPRESSED = [case for case in CASES.values() if case.linear or case.projection == "conv"]
EXPONENTIAL = [kind for kind, of in FEATURES.items() if of.is_exponential]


def natural(features: str = "positive", *, count: int = 64, dim: int = DIM, heads: int = HEADS) -> Performer:
    """A Performer whose queries and keys keep their norms, as in the papers."""
    return Performer(heads, dim, count=count, features=features, max_temperature=None, seed=3)


def explicit(q: Tensor, k: Tensor, v: Tensor, query_features: Tensor, key_features: Tensor) -> Tensor:
    """phi(q) (phi(k)^T v) / phi(q) sum phi(k), without any safeguard."""
    state, count = key_features.transpose(-1, -2) @ v, key_features.sum(dim=-2)[..., None]
    return (query_features @ state) / (query_features @ count)


def scaled(x: Tensor, power: float = 0.25) -> Tensor:
    return x / x.shape[-1] ** power


# Numerics of the features -------------------------------------------------------------------------------------------


def test_fault_01_epsilon_inside_the_features() -> None:
    """With phi = exp(...) + 1e-4, keys of norm 12 weigh alike and the output is the mean of all values."""
    module = natural(dim=16)
    q, k, v = draw(1, HEADS, 50, 16, dtype=torch.float32)
    k = 24 * k / k.norm(dim=-1, keepdim=True)
    expected = twin_performer(module.double(), q.double(), k.double(), v.double(), None)
    rows = module.projection
    faulty = explicit(
        q.double(),
        k.double(),
        v.double(),
        naive.random_features(scaled(q).double(), rows, "positive") + 1e-4,
        naive.random_features(scaled(k).double(), rows, "positive") + 1e-4,
    )
    assert error(faulty, expected) > 0.5
    assert error(v.double().mean(dim=2, keepdim=True).expand_as(v), expected) > 0.5
    assert error(module.float()(q, k, v), expected) < 1e-4


@every_case
def test_fault_02_key_stabilizer_over_the_whole_batch(case: Case) -> None:
    """A key of another sample or head, however large, changes nothing here."""
    module = case.module(dtype=torch.float32)
    q, k, v = draw(2, HEADS, 30, DIM, dtype=torch.float32)
    expected = module(q, k, v)
    loud = k.clone()
    loud[1] *= 1000
    loud[0, 1] *= 1000
    got = module(q, loud, v)
    close(got[0, [0, 2, 3]], expected[0, [0, 2, 3]], 1e-6)


@pytest.mark.parametrize("features", EXPONENTIAL)
def test_fault_03_stabilizer_ignores_the_norm(features: str) -> None:
    """At standard deviation 3 the largest w.y is far above the largest w.y - |y|^2/2: exp underflows, 0/0 is NaN."""
    module = natural(features, dim=64, heads=2)
    q, k, v = (3 * x for x in draw(1, 2, 200, 64, dtype=torch.float32))
    x = 4 * scaled(k)
    projected = x @ module.projection.transpose(1, 2)
    faulty = torch.exp(projected - x.square().sum(-1, keepdim=True) / 2 - projected.amax())
    assert float(faulty.sum()) < 1e-30
    exact = twin_performer(module.double(), q.double(), k.double(), v.double(), None)
    module.float()
    assert error(module(q, k, v), exact) < 1e-3
    assert bool(torch.isfinite(module(4 * q, 4 * k, v)).all())
    for gradient in gradients(module(*(x.requires_grad_() for x in (q, k, v))), [q, k, v]):
        assert bool(torch.isfinite(gradient).all())


def test_fault_04_one_outlier_key_collapses_everything() -> None:
    """A key ten times as long as the others has hardly any weight, and must not take theirs."""
    module = natural(dim=32)
    q, k, v = draw(1, HEADS, 100, 32, dtype=torch.float32)
    k[:, :, 50] *= 10
    exact = twin_performer(module.double(), q.double(), k.double(), v.double(), None)
    assert error(module.float()(q, k, v), exact) < 1e-4
    mask = torch.ones(1, 100, dtype=torch.bool)
    mask[:, 50] = False
    assert error(module(q, k, v, mask=mask), exact) < 0.02


def test_fault_05_stabilizer_for_each_key() -> None:
    """Dividing phi(k) by a number of its own reweights the keys; only one constant for the sequence cancels."""
    module = natural().double()
    q, k, v = draw(1, HEADS, 60, DIM)
    features = [naive.random_features(scaled(x), module.projection, "positive") for x in (q, k)]
    right = explicit(q, k, v, *features)
    faulty = explicit(q, k, v, features[0], features[1] / features[1].amax(dim=-1, keepdim=True))
    assert error(faulty, right) > 0.1
    assert error(module(q, k, v), right) < 1e-9


def test_fault_06_missing_norm_of_the_keys() -> None:
    """Without -|k|^2/2 the features are those of another kernel, and long keys win."""
    module = natural().double()
    q, k, v = draw(1, HEADS, 60, DIM)
    k = k * torch.linspace(0.2, 2, 60).double()[:, None]
    x, y = scaled(q), scaled(k)
    phi_q, phi_k = (naive.random_features(z, module.projection, "positive") for z in (x, y))
    right = explicit(q, k, v, phi_q, phi_k)
    faulty = explicit(q, k, v, phi_q, phi_k * torch.exp(y.square().sum(-1, keepdim=True) / 2))
    assert error(faulty, right) > 0.1
    assert error(module(q, k, v), right) < 1e-9


@pytest.mark.parametrize("power", [0.0, 0.5])
def test_fault_07_scale_applied_twice_or_never(power: float) -> None:
    """Queries and keys take d^-1/4 each, so that their product has d^-1/2."""
    q, k, v = draw(1, HEADS, 60, DIM)
    module = natural().double()
    faulty = explicit(
        q, k, v, *(naive.random_features(scaled(x, power), module.projection, "positive") for x in (q, k))
    )
    right = explicit(q, k, v, *(naive.random_features(scaled(x), module.projection, "positive") for x in (q, k)))
    assert error(faulty, right) > 0.05
    assert error(module(q, k, v), right) < 1e-9
    for name in ("softmax", "local-plain", "linformer-mean", "linformer-dynamic"):
        case = CASES[name]
        module = case.module(dtype=torch.float64)
        right = case.twin(module, q, k, v, None)
        wrong = DIM ** (0.5 - 2 * power)  # what the product would have instead of d^-1/2
        assert error(case.twin(module, q * wrong, k, v, None), right) > 0.05
        assert error(module(q, k, v), right) < 1e-9


def test_fault_08_kernel_function_ignored() -> None:
    """Each kind of features gives its own attention."""
    q, k, v = draw(1, HEADS, 60, DIM)
    outputs = []
    for kind in FEATURES:
        module = natural(kind).double()
        if module.kind.is_tuned:
            module(q, k, v)
            module.moments.settle()
        outputs.append(module(q, k, v))
        assert error(outputs[-1], twin_performer(module, q, k, v, None)) < 1e-9, kind
    for i, one in enumerate(outputs):
        assert all(error(other, one) > 1e-3 for other in outputs[:i])


def test_fault_09_biased_or_wrongly_scaled_directions() -> None:
    """Signs of R moved into Q, chi norms, new blocks for m > d, no two blocks alike. More in test_features.py."""
    generator = torch.Generator().manual_seed(0)
    raw = torch.linalg.qr(torch.randn(2000, 8, 8, generator=generator, dtype=torch.float64))[0]
    ours = torch.stack([orthogonal_blocks(8, 8, generator=generator) for _ in range(2000)])
    five = 5 / math.sqrt(8 * 2000)
    assert float(raw.mean(dim=0).abs().max()) > five
    assert float(ours.mean(dim=0).abs().max()) < five
    rows = draw_projection("positive", heads=500, count=20, dim=8, seed=1).double()
    assert float(rows.square().sum(-1).mean()) == pytest.approx(8.0, abs=5 * math.sqrt(16 / (500 * 20)))
    directions = rows / rows.norm(dim=-1, keepdim=True)
    gram = directions @ directions.transpose(1, 2)
    for first, last in [(0, 8), (8, 16), (16, 20)]:
        block = gram[:, first:last, first:last]
        close(block, torch.eye(last - first).double().expand_as(block), 1e-5)
    assert float(gram[:, :8, 8:16].abs().amax(dim=(1, 2)).min()) > 0.05
    assert float(gram[:, :8, 8:16].abs().amax(dim=(1, 2)).median()) < 0.9999


# Masks and lengths --------------------------------------------------------------------------------------------------


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


# State and randomness -----------------------------------------------------------------------------------------------


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


# Precision ----------------------------------------------------------------------------------------------------------


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


# Cost ---------------------------------------------------------------------------------------------------------------


def tensors_in(result: object) -> Iterator[Tensor]:
    if isinstance(result, Tensor):
        yield result
    elif isinstance(result, tuple | list):
        for item in result:
            yield from tensors_in(item)


class Watch(TorchDispatchMode):
    """Notes the largest tensor that any operation returns, and what matrix products cost."""

    def __init__(self) -> None:
        super().__init__()
        self.largest, self.operations = 0, 0

    def __torch_dispatch__(
        self, func: Callable[..., object], types: object, args: tuple = (), kwargs: dict | None = None
    ) -> object:
        result = func(*args, **(kwargs or {}))
        for tensor in tensors_in(result):
            if tensor.untyped_storage().nbytes():  # views and expansions count as what they occupy
                occupied = tensor.untyped_storage().nbytes() // tensor.element_size()
                self.largest = max(self.largest, min(tensor.numel(), occupied))
        name = str(func)
        if "scaled_dot_product" in name and "backward" not in name:
            q, k = args[0], args[1]
            self.operations += 4 * q.shape[0] * q.shape[1] * q.shape[2] * k.shape[2] * q.shape[3]
        elif name.startswith(("aten.mm", "aten.bmm", "aten.addmm")):
            a, b = args[-2], args[-1]
            self.operations += 2 * a.numel() * b.shape[-1]
        return result


def watched(module: Attention, tokens: int, *, heads: int, dim: int, backward: bool = False) -> Watch:
    inputs = [x.requires_grad_(backward) for x in draw(1, heads, tokens, dim, dtype=torch.float32)]
    with Watch() as watch:
        output = module(*inputs)
        if backward:
            output.sum().backward()
    return watch


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
    assert costs[2] - costs[1] == pytest.approx(2 * (costs[1] - costs[0]), rel=0.05)
    exact = watched(Softmax(), 4000, heads=heads, dim=dim).operations
    assert exact == pytest.approx(4 * 4000**2 * heads * dim, rel=0.15)  # a column more carries the mask
    assert costs[2] < exact / 5


def test_fault_27_a_convolution_is_quadratic_and_says_so() -> None:
    """Its slots are as many as strides, so it costs exact attention's products divided by the stride."""
    heads, dim, stride = 2, 16, 8
    module = Linformer(Convolution(stride))
    costs = [watched(module, n, heads=heads, dim=dim).operations for n in (2000, 4000)]
    assert costs[1] == pytest.approx(4 * costs[0], rel=0.05)
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


def test_every_fault_has_a_test() -> None:
    numbers = {name[11:13] for name in globals() if name.startswith("test_fault_")}
    assert numbers == {f"{i:02}" for i in range(1, 28)}
