"""Faults 01 to 09, of the numerics of random features: see test_faults.py."""

from __future__ import annotations

import math

import naive
import pytest
import torch

from genoformer.attention.features import FEATURES, draw_projection, orthogonal_blocks

from .cases import CASES, DIM, HEADS, Case, close, draw, error, gradients, twin_performer
from .faults import EXPONENTIAL, every_case, explicit, natural, scaled


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
