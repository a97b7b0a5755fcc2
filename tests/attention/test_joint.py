"""Joint attention: one denominator, each key counted once, nothing that cancels.

Tolerances in float64: 1e-12 where only the order of sums differs, 1e-9 against a twin (see test_twins.py).
"""

from __future__ import annotations

import naive
import pytest
import torch
from torch import Tensor

from genoformer.attention import Joint, Local, Performer
from genoformer.attention.attention import EMPTY
from genoformer.attention.joint import FEATURES, Strips, most_temperature
from genoformer.attention.local import Surroundings, band
from genoformer.attention.softmax import attend_with_log_sum
from genoformer.config import ModelConfig
from genoformer.errors import ConfigError
from genoformer.model.genoformer import build

from .cases import DIM, HEADS, RADIUS, bounds, close, draw, error, gradients, prefix_mask, stream, twin_joint


def joint(
    *, radius: int = RADIUS, count: int = 12, dim: int = DIM, features: str = "positive", temperature: float = 2.0
) -> Joint:
    performer = Performer(HEADS, dim, count=count, features=features, max_temperature=temperature, seed=3)
    with torch.no_grad():
        performer.temperature += torch.linspace(-0.5, 3.0, HEADS)
    return Joint(performer, radius=radius).double()


def scaled(module: Joint, q: Tensor, k: Tensor) -> tuple[Tensor, Tensor]:
    """Queries and keys of the norm of their head, written out."""
    performer = module.performer
    assert performer.max_temperature is not None
    norm = (performer.max_temperature / (1 + torch.exp(-performer.temperature))).sqrt()[:, None, None]
    return norm * q / q.norm(dim=-1, keepdim=True), norm * k / k.norm(dim=-1, keepdim=True)


def mean_of(weights: Tensor, v: Tensor) -> Tensor:
    return weights @ v / weights.sum(dim=-1, keepdim=True)


# Limits ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("features", FEATURES)
def test_a_radius_of_the_whole_sequence_is_exact_attention(features: str) -> None:
    q, k, v = draw(2, HEADS, 37, DIM)
    mask = prefix_mask([37, 20], 37)
    module = joint(radius=37, features=features)
    x, y = scaled(module, q, k)
    close(module(q, k, v, mask=mask), naive.softmax(x * DIM**0.25, y * DIM**0.25, v, mask=mask), 1e-12)


def test_keys_out_of_reach_have_the_weights_of_a_performer() -> None:
    """Masking all that a query sees exactly leaves what a Performer with these features makes of the rest."""
    q, k, v = draw(1, HEADS, 200, DIM)
    module = joint()
    for query in (0, 77, 199):
        mask = ((torch.arange(200) - query).abs() > RADIUS)[None]
        got, expected = module(q, k, v, mask=mask), module.performer(q, k, v, mask=mask)
        close(got[:, :, query], expected[:, :, query], 1e-12)


def test_reach_ends_at_the_radius() -> None:
    """A key at the radius has its exact weight, the next one does not: seen in the ratio to a key near by."""
    module = joint()
    q, k, v = draw(1, HEADS, 60, DIM)
    x, y = scaled(module, q, k)
    exact = torch.exp(x @ y.transpose(-1, -2))
    for distance, is_exact in [(-RADIUS - 1, False), (-RADIUS, True), (RADIUS, True), (RADIUS + 1, False)]:
        for query in (20, 24, 29):
            mask = torch.zeros(1, 60, dtype=torch.bool)
            mask[:, [query, query + distance]] = True
            pair = exact * mask[:, None, None, :]
            same = error(module(q, k, v, mask=mask)[:, :, query], mean_of(pair, v)[:, :, query]) < 1e-12
            assert same == is_exact


# Counted once ------------------------------------------------------------------------------------------------------


def double_counting(module: Joint, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """The fault: features summed over all keys, and exact weights of those nearby added on top."""
    x, y = scaled(module, q, k)
    phi_x, phi_y = (naive.random_features(z, module.performer.projection.double(), "positive") for z in (x, y))
    distance = (torch.arange(q.shape[2])[:, None] - torch.arange(k.shape[2])).abs()
    near = torch.where(distance <= module.radius, torch.exp(x @ y.transpose(-1, -2)), 0.0)
    return mean_of(near + phi_x @ phi_y.transpose(-1, -2), v)


@pytest.mark.parametrize("tokens", [RADIUS, 40, 300])
def test_no_key_is_counted_twice(tokens: int) -> None:
    module = joint()
    q, k, v = draw(2, HEADS, tokens, DIM)
    expected = twin_joint(module, q, k, v, None)
    assert error(double_counting(module, q, k, v), expected) > 1e-2
    assert error(module(q, k, v), expected) < 1e-12


def test_each_key_is_counted_once_whatever_its_place() -> None:
    """With features of no length all weights are 1, and values 1, 2, 4... of a few keys show in the mean.

    The marked keys lie on both sides of edges of blocks, cells and reach.
    """
    module = joint(temperature=1e-12)
    cell = module.cell
    tokens = 3 * cell + 5
    q, k, v = draw(1, HEADS, tokens, DIM)
    for marked in (0, RADIUS - 1, RADIUS, cell - RADIUS - 1, cell - RADIUS, cell - 1, cell, 2 * cell, 3 * cell + 4):
        values = torch.zeros_like(v)
        values[:, :, marked] = 1.0
        close(tokens * module(q, k, values), torch.ones_like(v), 1e-4)  # exp(1e-6) is 1 up to that


# Cells and chunks --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("features", FEATURES)
def test_several_cells_equal_the_twin(features: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("genoformer.attention.attention.PIECE", 2048)
    module = joint(features=features)
    tokens = 2 * module.cell + 3 * RADIUS + 1
    mask = torch.rand(1, tokens, generator=torch.Generator().manual_seed(0)) < 0.7
    inputs = [x.requires_grad_() for x in draw(1, HEADS, tokens, DIM)]
    parameters = [*inputs, *module.parameters()]
    expected = twin_joint(module, *inputs, mask)
    wanted = gradients(expected, parameters)
    for got in (module(*inputs, mask=mask), stream(module, *inputs, mask, bounds([module.cell + 1, 0, 5, 700, 333]))):
        close(got[:, :, : module.cell + 900], expected[:, :, : module.cell + 900], 1e-9)
    for mine, theirs in zip(gradients(module(*inputs, mask=mask), parameters), wanted, strict=True):
        close(mine, theirs, 1e-9)


def test_chunks_far_apart_merge_in_any_order() -> None:
    """Chunks whose cells do not touch leave strips of zeros between them until those come, too."""
    module = joint()
    tokens = 4 * module.cell
    q, k, v = draw(1, HEADS, tokens, DIM)
    pieces = bounds([module.cell] * 4)
    parts = [module.summarize(k[:, :, p], v[:, :, p], start=p.start) for p in pieces]
    expected = module(q, k, v)
    for order in ([0, 3, 1, 2], [3, 0, 2, 1], [2, 1, 0, 3]):
        merged = parts[order[0]]
        for i in order[1:]:
            merged = merged + parts[i]
        close(module.attend(q, merged), expected, 1e-12)


def test_one_chunk_is_read_where_it_lies() -> None:
    """Keys and values of a summary are not copied, unless they come from several chunks."""
    k, v = draw(1, HEADS, 40, DIM, count=2)
    parts = [Local(radius=RADIUS).summarize(k[:, :, p], v[:, :, p], start=p.start) for p in bounds([25, 15])]
    wanted = [range(-RADIUS, 12), range(6, 30), range(34, 52), range(60, 70)]
    lone, both = Surroundings(parts[0], wanted[:1]), Surroundings(parts[0] + parts[1], wanted)
    assert lone.keys.data_ptr() == k.data_ptr()
    assert lone.values.data_ptr() == v.data_ptr()
    for around in wanted:
        held = [i for i in around if 0 <= i < 40]
        expected = torch.zeros(1, HEADS, len(around), DIM, dtype=k.dtype)
        places = [i - around.start for i in held]
        expected[:, :, places] = k[:, :, held]
        assert torch.equal(both.padded(both.keys[:, :, both.held(around)], around), expected)
        hidden = both.hidden(around)
        if len(held) == len(around):
            assert hidden is None
        else:
            assert hidden is not None
            assert (hidden[0, 0] == 0).nonzero()[:, 0].tolist() == places


@pytest.mark.parametrize("radius", [RADIUS, 700])
def test_a_band_is_what_the_kernel_is_told(radius: int) -> None:
    """Means and log-sums over a band, wider than the kernel's own blocks or not, and gradients of both."""
    q, (k, v) = draw(1, 2, radius, DIM, count=1)[0], draw(1, 2, 3 * radius, DIM, seed=2, count=2)
    bias = torch.zeros(1, 1, 3 * radius, dtype=q.dtype)
    bias[..., : radius // 2] = EMPTY
    edge = band(radius, radius, q)
    inputs = [x.requires_grad_() for x in (q, k, v)]
    for hidden in (None, bias):
        got = attend_with_log_sum(*inputs, hidden, band=edge)
        scores = q @ k.transpose(-1, -2) + edge + (0 if hidden is None else hidden[:, :, None])
        both = torch.cat([got.mean, got.log_sum[..., None]], dim=-1)
        expected = torch.cat([scores.softmax(dim=-1) @ v, scores.logsumexp(dim=-1)[..., None]], dim=-1)
        close(both, expected, 1e-12)
        for mine, theirs in zip(gradients(both, inputs), gradients(expected, inputs), strict=True):
            close(mine, theirs, 1e-11)


def test_strips_know_their_place() -> None:
    """Strips 0, 1, 2 are those of cell 0: far from cell 1 are all but 2, its own 3, 4, 5, and 6."""
    sums = 2.0 ** torch.arange(9).double()  # a sum tells which
    strips = Strips(0, sums.view(1, 1, 9, 1, 1))
    far = strips.beyond(range(-1, 4))[0, 0, :, 0, 0].tolist()
    whole = 2**9 - 1
    assert far == [whole - 1, whole - (1 + 2 + 4 + 8), 1 + 2 + 128 + 256, whole - (32 + 64 + 128 + 256), whole - 256]


# Numbers -----------------------------------------------------------------------------------------------------------


def adverse(module: Joint, tokens: int) -> tuple[Tensor, Tensor, Tensor]:
    """Queries and near keys along a long row, where features overestimate exp(x.y) a thousandfold; far keys against it.

    Subtracting the near keys' features from a sum over all keys would lose all digits of what the far keys weigh.
    """
    rows = module.performer.projection.double()
    longest = rows[torch.arange(HEADS), rows.norm(dim=-1).argmax(dim=-1)]  # (H, D)
    k = longest[None, :, None].repeat(1, 1, tokens, 1)
    q = k.clone()
    far = (torch.arange(tokens) - tokens // 2).abs() > RADIUS
    k[:, :, far] *= -1
    (v,) = draw(1, HEADS, tokens, module.performer.dim, count=1)
    return q, k + 0.01 * draw(1, HEADS, tokens, module.performer.dim, count=1)[0], v


def test_nothing_cancels_in_float32() -> None:
    module = joint(dim=64, count=32)
    q, k, v = adverse(module, 101)
    middle = slice(50, 51)
    expected = twin_joint(module, q, k, v, None)[:, :, middle]
    module.float()
    q, k, v = (z.float() for z in (q, k, v))
    x, y = scaled(module, q, k)
    phi_x, phi_y = (naive.random_features(z, module.performer.projection, "positive") for z in (x, y))
    near = (torch.arange(101)[:, None] - torch.arange(101)).abs() <= RADIUS
    kernel = phi_x @ phi_y.transpose(-1, -2)
    one = torch.cat([v, torch.ones_like(v[..., :1])], dim=-1)
    state = phi_y.transpose(-1, -2) @ one
    total = phi_x @ state - torch.where(near, kernel, 0.0) @ one
    total = total + torch.where(near, torch.exp(x @ y.transpose(-1, -2)), 0.0) @ one
    subtracting = (total[..., :-1] / total[..., -1:])[:, :, middle]
    assert error(subtracting, expected) > 1e-2
    assert error(module(q, k, v)[:, :, middle], expected) < 1e-5


@pytest.mark.parametrize("dim", [8, 32, 64, 128])
def test_largest_temperature_stays_finite_in_float32(dim: int) -> None:
    module = joint(dim=dim, count=64, temperature=most_temperature(dim)).float()
    with torch.no_grad():
        module.performer.temperature.fill_(20.0)
    q, k, v = (z.float().requires_grad_() for z in adverse(module, 300))
    out = module(q, k, v)
    for tensor in (out, *gradients(out, [q, k, v, module.performer.temperature])):
        assert bool(torch.isfinite(tensor).all())
    assert float(out.detach().abs().max()) <= float(v.detach().abs().max()) * 1.001


def test_features_estimate_the_exact_weight_itself() -> None:
    """Not up to a factor: else near and far keys would not be on one scale. Tuned features included."""
    for features in ("positive", "hyperbolic", "oprf"):
        module = joint(features=features, count=20_000, temperature=1.0)
        x, y = scaled(module, *draw(1, HEADS, 6, DIM, count=2))
        phi_x, phi_y = (module._log2_features(z, module._rows(z)).exp2() for z in (x, y))
        kernel = phi_x @ phi_y.transpose(-1, -2)
        assert error(kernel, torch.exp(x @ y.transpose(-1, -2))) < 0.03


def test_rotary_positions_reach_both_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Weights, near and far, depend on the difference of positions only up to the features' own randomness."""
    monkeypatch.setattr("genoformer.attention.attention.PIECE", 10)
    performer = Performer(HEADS, DIM, count=4096, features="oprf", seed=3)
    module = Joint(performer, radius=RADIUS, rotary=True).double()
    q, k, v = draw(1, HEADS, 50, DIM)
    here = module(q, k, v)
    there = module.attend(q, module.summarize(k, v, start=5_000), start=5_000)
    assert error(there, here) < 0.05
    assert error(Joint(performer, radius=RADIUS).double()(q, k, v), here) > 0.1


# Refusals ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("features", ["relu", "elu", "trigonometric", "saderf", "elu-identity"])
def test_features_that_do_not_fit_are_refused(features: str) -> None:
    with pytest.raises(ValueError, match="joint attention needs features of positive, hyperbolic"):
        Joint(Performer(HEADS, DIM, count=12, features=features))


@pytest.mark.parametrize("temperature", [None, 1.01 * most_temperature(DIM), 1e6])
def test_unbounded_exponents_are_refused(temperature: float | None) -> None:
    with pytest.raises(ValueError, match="max_temperature of at most"):
        Joint(Performer(HEADS, DIM, count=12, max_temperature=temperature))


def test_a_radius_of_nothing_is_refused() -> None:
    with pytest.raises(ValueError, match="radius must be at least 1"):
        Joint(Performer(HEADS, DIM, count=12), radius=0)


# Configuration -----------------------------------------------------------------------------------------------------


def small(**changes: object) -> ModelConfig:
    values = {"attention": ("joint",), "width": 32, "heads": 2, "local_radius": 5, "performer_count": 8}
    return ModelConfig(**{**values, **changes})  # type: ignore[arg-type]


def test_the_builder_makes_it_from_the_configuration() -> None:
    for features in FEATURES:
        (block,) = build(small(performer_features=features, performer_max_temperature=3.0)).encoder.blocks
        (made,) = (part for part in block.modules() if isinstance(part, Joint))
        performer = made.performer
        assert (made.radius, performer.count, performer.features) == (5, 8, features)
        assert performer.max_temperature == 3.0


def test_configurations_that_do_not_fit_are_refused() -> None:
    with pytest.raises(ConfigError, match=r"performer_features must be one of positive, .* for joint attention"):
        small(performer_features="relu")
    small(performer_features="relu", attention=("performer",))
    most = most_temperature(16)
    small(performer_max_temperature=0.999 * most)
    with pytest.raises(ConfigError, match=r"performer_max_temperature must be .*at most"):
        small(performer_max_temperature=1.001 * most)
