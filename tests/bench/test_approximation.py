"""The audit: what it measures against plain computation, and advice that holds on draws it has not seen."""

from __future__ import annotations

import dataclasses
import math

import pytest
import torch
from torch import Tensor

from genoformer.attention import Performer
from genoformer.attention.features import FEATURES, draw_projection
from genoformer.bench.approximation import STEP, Advice, Settings, _search, advise, audit, describe_matrix
from genoformer.bench.candidates import CANDIDATES, Sample, Stretches, make_performer, model_stretches, random_stretches
from genoformer.bench.foretold import Prediction, kernel_estimates, measure_kernel, predict_error
from genoformer.config import ModelConfig
from genoformer.errors import InputError
from genoformer.model.genoformer import build

DRAWN = [kind for kind, features in FEATURES.items() if features.rows != "identity"]
EXPONENTIAL = [kind for kind in DRAWN if FEATURES[kind].function is None]
QUICK = Settings(size=64, curve=(16, 64), wanted=0.1, limit=2048, draws=4)


def stretches(norm: float = 0.7, *, dim: int = 16, tokens: int = 128, heads: int = 2, seed: int = 3) -> Stretches:
    return random_stretches(squared_norm=norm, dim=dim, tokens=tokens, heads=heads, seed=seed)


def advice_for(name: str, given: Stretches, settings: Settings) -> Advice:
    candidate = CANDIDATES[name]
    most = settings.limit if candidate.family == "performer" else given.fit.tokens
    return advise(candidate, given, settings, most=most, theory=None)


def test_random_queries_and_keys_have_the_norm() -> None:
    given = stretches(0.7)
    for sample in (given.fit, given.held_out):
        for side in (sample.queries, sample.keys):
            torch.testing.assert_close(side.square().sum(-1), torch.full((2, 128), 0.7))
        assert sample.squared_norm == pytest.approx(0.7)
    assert not torch.equal(given.fit.keys, given.held_out.keys)


def test_exact_outputs_and_errors_are_the_plain_ones() -> None:
    fit = stretches().fit
    weights = torch.exp(fit.queries.double() @ fit.keys.double().transpose(1, 2))
    expected = weights / weights.sum(-1, keepdim=True) @ fit.values.double()
    torch.testing.assert_close(fit.exact.double(), expected, rtol=1e-5, atol=1e-6)
    assert fit.error(fit.exact * 1.5) == pytest.approx(0.5)
    mean = fit.values.mean(dim=1, keepdim=True)
    assert fit.trivial_error == pytest.approx(float((mean - fit.exact).norm() / fit.exact.norm()), rel=1e-5)


@pytest.mark.parametrize("name", CANDIDATES)
def test_every_candidate_answers(name: str) -> None:
    fit = stretches().fit
    candidate = CANDIDATES[name]
    outputs = fit.outputs(candidate.make(fit, 16, 0))
    assert outputs.shape == fit.exact.shape
    again = [fit.outputs(candidate.make(fit, 16, seed)) for seed in (0, 1)]
    assert torch.equal(outputs, again[0])
    assert torch.equal(*again) != candidate.is_random


@pytest.mark.parametrize("name", ["linformer mean", "linformer max", "linformer learned", "local"])
def test_a_slot_or_window_a_token_is_exact(name: str) -> None:
    """The scaling of every mechanism is that of the exact outputs."""
    fit = stretches().fit
    size = 2 * fit.tokens if name == "local" else fit.tokens
    assert fit.error(fit.outputs(CANDIDATES[name].make(fit, size, 0))) < 1e-5


@pytest.mark.parametrize("kind", FEATURES)
def test_kernel_estimates_are_those_of_the_module(kind: str) -> None:
    """Attention by the explicit estimates equals the Performer's outputs: same rows, same scaling, same tuning."""
    fit = stretches(dim=16, heads=1).fit
    module = make_performer(kind, fit, 32, 5)
    x, y, damping = fit.queries[0].double(), fit.keys[0].double(), 0.0
    if FEATURES[kind].is_tuned:
        balance = module.moments.balance() if FEATURES[kind].is_scaled else torch.ones(1, 16)
        damping = float(module.moments.damping(balance))
        x, y = x * balance, y / balance
        assert damping < 0
    rows = draw_projection(kind, heads=1, count=32, dim=16, seed=5).double()
    kernel = torch.stack([kernel_estimates(kind, rows, x[i].expand_as(y), y, damping=damping)[0] for i in range(8)])
    expected = kernel / kernel.sum(dim=-1, keepdim=True) @ fit.values[0].double()
    torch.testing.assert_close(fit.outputs(module)[0, :8].double(), expected, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("kind", FEATURES)
def test_measured_kernels_lie_at_the_closed_forms(kind: str) -> None:
    """Within 10% with 200 draws of 32 pairs; tests/attention/test_theory.py is the sharp one."""
    kernel = measure_kernel(kind, stretches(0.4).fit, size=64, seed=2)
    assert kernel.spread == pytest.approx(kernel.spread_theory, rel=0.1, abs=1e-9)
    assert kernel.bias == pytest.approx(kernel.bias_theory, rel=0.1, abs=2 * kernel.noise + 1e-9)
    if kind in EXPONENTIAL and kind != "regularized":
        assert kernel.bias_theory < 1e-9
    if FEATURES[kind].rows == "identity":
        assert kernel.spread == 0
        assert kernel.bias > 0.1


@pytest.mark.parametrize("kind", EXPONENTIAL)
def test_output_errors_are_as_predicted(kind: str) -> None:
    """Within 10% (the first order, and ten draws), orthogonality included: without it, this fails."""
    fit = stretches(0.5, dim=32, tokens=256, heads=1).fit
    prediction = predict_error(kind, fit)
    rows = 128
    count = 2 * rows if FEATURES[kind].rows in ("mirrored", "waves") else rows
    found = [CANDIDATES[f"performer {kind}"].error(fit, fit, size=count, seed=seed) for seed in range(10)]
    measured = math.sqrt(sum(error**2 for error in found) / len(found))
    predicted = prediction.error(rows)
    assert predicted is not None
    assert measured == pytest.approx(predicted, rel=0.1)
    alone = dataclasses.replace(prediction, per_pair=0.0).error(rows)
    assert alone is not None
    assert alone > 1.1 * predicted


def test_the_limit_of_relu_features_is_predicted() -> None:
    fit = stretches(1.0, dim=16, heads=1).fit
    prediction = predict_error("relu", fit)
    found = CANDIDATES["performer relu"].error(fit, fit, size=16384, seed=0)
    assert prediction.per_row is None
    assert prediction.error(100) is None
    assert found == pytest.approx(prediction.floor, rel=0.1)
    assert math.isnan(predict_error("elu", fit).floor)


def test_rows_for_a_wanted_error() -> None:
    prediction = Prediction(16, floor=0.03, per_row=4.0, per_pair=-0.1)
    rows = prediction.rows(0.1, 1 << 20)
    assert rows is not None
    assert rows % 4 == 0
    error, before = prediction.error(rows), prediction.error(rows - 4)
    assert error is not None
    assert before is not None
    assert error <= 0.1 < before
    assert prediction.rows(0.03, 1 << 20) is None
    assert prediction.rows(0.1, 100) is None
    assert Prediction(16, floor=0.0, per_row=None).rows(0.1, 100) is None


def test_the_matrix_is_described() -> None:
    even = describe_matrix(torch.full((1, 8, 8), 1 / 8))
    assert even.effective_rank == pytest.approx(1, abs=1e-4)
    assert (even.rank_90, even.rank_99) == (1, 1)
    assert even.row_entropy == pytest.approx(even.most_entropy) == math.log(8)
    one_each = describe_matrix(torch.eye(8)[None])
    assert one_each.effective_rank == pytest.approx(8)
    assert (one_each.rank_90, one_each.rank_99) == (8, 8)
    assert one_each.row_entropy == 0
    both = describe_matrix(torch.stack([torch.eye(8), torch.full((8, 8), 1 / 8)]))
    assert both.rank_90 == 4.5


@pytest.mark.parametrize("seed", [3, 4])
@pytest.mark.parametrize("kind", ["positive", "hyperbolic", "regularized", "oprf", "trigonometric"])
def test_advised_features_meet_the_wanted_error_on_other_draws(kind: str, seed: int) -> None:
    """New queries, keys, values and rows, none of which the advice has seen; not far more features than needed."""
    given = stretches(0.5, seed=seed)
    advice = advice_for(f"performer {kind}", given, QUICK)
    assert advice.size is not None
    assert advice.size % 8 == 0
    assert advice.work == pytest.approx(2 * advice.size / 128, rel=0.3)
    assert advice.held_out_error <= QUICK.wanted
    fresh = stretches(0.5, seed=100 + seed).fit
    candidate = CANDIDATES[f"performer {kind}"]
    mean, less = (
        sum(candidate.error(given.fit, fresh, size=size, seed=900 + i) for i in range(8)) / 8
        for size in (advice.size, max(8, advice.size // 4))
    )
    assert mean <= QUICK.wanted
    assert less > QUICK.wanted


@pytest.mark.parametrize("name", ["linformer mean", "linformer conv", "local"])
def test_advised_slots_meet_the_wanted_error_on_other_tokens(name: str) -> None:
    def smooth(sample: Sample) -> Sample:
        """Neighboring keys and values are alike, as a sequence's are; queries see near tokens best."""
        kernel = torch.hann_window(33)[None, None] / 16

        def run(x: Tensor) -> Tensor:
            flat = x.transpose(1, 2).reshape(-1, 1, sample.tokens)
            return torch.nn.functional.conv1d(flat, kernel, padding=16).view(x.shape[0], -1, sample.tokens).mT

        return Sample("smooth", 2 * sample.queries, 3 * run(sample.keys), 3 * run(sample.values))

    first, second = (smooth(stretches(1.0, seed=seed).fit) for seed in (1, 2))
    settings = dataclasses.replace(QUICK, wanted=0.15)
    advice = advice_for(name, Stretches(first, second), settings)
    if name == "local":  # a window answers a global question only as a whole
        assert advice.size is None or advice.size > 96
        return
    assert advice.size is not None
    assert advice.size < 128
    assert advice.held_out_error <= 0.15
    fresh = smooth(stretches(1.0, seed=9).fit)
    assert CANDIDATES[name].error(first, fresh, size=advice.size, seed=5) <= 0.15
    assert CANDIDATES[name].error(first, first, size=max(1, advice.size - 24), seed=5) > 0.1


def test_no_size_is_advised_where_none_is_enough() -> None:
    given = stretches(0.7)
    for name in ("performer relu", "performer elu-identity", "linformer seeded"):
        advice = advice_for(name, given, dataclasses.replace(QUICK, limit=256, wanted=0.02))
        assert advice.size is None
        assert advice.held_out_error > 0.02
        assert advice.reason.startswith("no")


def test_advice_that_fits_only_what_it_was_fitted_to_is_not_given() -> None:
    """Held-out tokens of a larger norm need more features than those that sizes were chosen by."""
    easy, hard = stretches(0.2), stretches(0.8)
    alone = advice_for("performer positive", easy, QUICK)
    mixed = advice_for("performer positive", Stretches(easy.fit, hard.held_out), QUICK)
    assert alone.size is not None
    assert mixed.size is not None
    assert mixed.size > 2 * alone.size
    assert mixed.held_out_error <= QUICK.wanted
    limited = dataclasses.replace(QUICK, limit=2 * alone.size)
    assert advice_for("performer positive", Stretches(easy.fit, hard.held_out), limited).size is None


def test_an_audit_says_what_does_not_help() -> None:
    chosen = [CANDIDATES[name] for name in ("performer positive", "performer elu-identity", "linformer mean")]
    small = audit(stretches(0.01), chosen, dataclasses.replace(QUICK, limit=64))
    assert any("almost even" in note for note in small.notes)
    assert not any("noise" in note for note in small.notes)
    large = audit(stretches(6.0), chosen, dataclasses.replace(QUICK, limit=64))
    assert any("are noise" in note for note in large.notes)
    assert any("no better than the mean" in note and "performer positive" in note for note in large.notes)
    assert [r.name for r in large.reports] == [c.name for c in chosen]
    assert large.reports[0].advice.size is None
    assert [p.size for p in large.reports[0].curve] == [16, 64]
    assert [p.size for p in large.reports[1].curve] == [16]  # its own


# Of models ----------------------------------------------------------------------------------------------------------


def tiny(**settings: object) -> torch.nn.Module:
    names = ("performer", "softmax", "local", "linformer", "hybrid", "joint")
    config = ModelConfig(width=32, heads=4, stem_channels=8, performer_count=16, linformer_rank=8, attention=names)
    return build(dataclasses.replace(config, **settings)).eval()  # type: ignore[arg-type]


def codes(bases: int) -> Tensor:
    return torch.randint(4, (bases,), generator=torch.Generator().manual_seed(0)).to(torch.uint8)


def test_stretches_of_a_model_are_those_of_its_global_layers() -> None:
    model = tiny()
    before = model(codes(300)[None])["coding-frame"]
    found = model_stretches(model, codes(700), tokens=40)  # type: ignore[arg-type]
    names = ["block 0 performer", "block 1 softmax", "block 3 linformer", "block 4 hybrid performer", "block 5 joint"]
    assert [s.fit.name for s in found] == names
    assert [s.fit.heads for s in found] == [4, 4, 4, 2, 4]
    for stretch in found:
        assert stretch.fit.tokens == stretch.held_out.tokens == 40
        assert not torch.equal(stretch.fit.keys, stretch.held_out.keys)
    assert found[1].fit.own_error == pytest.approx(0, abs=1e-5)  # softmax is exact, positions included
    assert found[1].held_out.own_error == pytest.approx(0, abs=1e-5)
    joint = found[4].fit  # whose window of 64 tokens to each side sees all 40
    assert joint.own_error == pytest.approx(0, abs=1e-5)
    performer = found[0].fit
    torch.testing.assert_close(performer.queries.square().sum(-1), torch.full((4, 40), 1.0))
    own = performer.own
    assert own is not None
    module = make_performer("positive", performer, 16, 0)
    assert isinstance(own[0], Performer)
    module.projection.copy_(own[0].projection)
    assert performer.own_error == pytest.approx(performer.error(performer.outputs(module)), rel=1e-4)
    assert torch.equal(before, model(codes(300)[None])["coding-frame"])  # left as it was


def test_the_layers_are_seen_as_they_are_computed() -> None:
    """The own outputs of a whole sequence are what the model's layer computes from it."""
    model = tiny(attention=("performer",))
    seen: list[Tensor] = []
    layer = model.encoder.blocks[0].multihead  # type: ignore[index,union-attr]
    layer.combine.register_forward_hook(lambda module, inputs, output: seen.append(inputs[0]))  # type: ignore[operator,union-attr]
    (found,) = model_stretches(model, codes(240), tokens=40)  # type: ignore[arg-type]
    whole = [torch.cat([s.own[i] for s in (found.fit, found.held_out)], dim=1) for i in (1, 2)]  # type: ignore[index]
    values = torch.cat([found.fit.values, found.held_out.values], dim=1)
    with torch.no_grad():
        outputs = found.fit.own[0](whole[0][None], whole[1][None], values[None])  # type: ignore[index]
    torch.testing.assert_close(seen[0], outputs.transpose(1, 2).flatten(2))


def test_too_short_a_sequence_or_no_global_layer() -> None:
    with pytest.raises(InputError, match="at least 96 are needed"):
        model_stretches(tiny(), codes(90), tokens=40)  # type: ignore[arg-type]
    with pytest.raises(InputError, match="no global attention layer"):
        model_stretches(tiny(attention=("local",)), codes(300), tokens=40)  # type: ignore[arg-type]
    (found,) = model_stretches(tiny(attention=("softmax",)), codes(150), tokens=40)  # type: ignore[arg-type]
    assert found.fit.tokens == 25


@pytest.mark.parametrize("most", [8, 24, 40, 1000])
def test_the_search_ends_at_the_smallest_size(most: int) -> None:
    for needed in (1, 8, 9, 24, 33, 500, 999):
        found = _search(lambda size, needed=needed: 0.0 if size >= needed else 1.0, 0.5, most)  # type: ignore[misc]
        if needed > most:
            assert found is None
        else:
            assert found is not None
            assert needed <= found <= max(needed + STEP, 1.2 * needed)
