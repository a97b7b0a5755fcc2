"""What Linformers promise beyond the laws and twins that every mechanism has: test_laws.py, test_twins.py.

Tolerance 1e-12 of the largest number, in float64: the same sums in another order.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor
from torch.utils.flop_counter import FlopCounterMode

from genoformer.attention import PROJECTIONS, Linformer, MultiHead
from genoformer.attention.linear_projections import Convolution, Interpolated, Learned, Mean, Seeded
from genoformer.attention.projections import Dynamic, Max, Projection

from .cases import CASES, DIM, HEADS, RANK, bounds, close, draw, error, gradients, lengths_of, prefix_mask, total

WIDTH = HEADS * DIM
TOKENS = 300
SHARED = [name for name, case in CASES.items() if case.projection and "none" not in name]
LINEAR = [name for name in SHARED if CASES[name].projection not in ("max", "dynamic")]
STARTED: dict[str, Callable[..., Projection]] = {
    "learned": lambda **how: Learned(16, 4096, **how),
    "interpolated": lambda **how: Interpolated(16, 4096, **how),
    "conv": lambda **how: Convolution(256, **how),
}


def layer(name: str) -> MultiHead:
    torch.manual_seed(2)
    made = MultiHead(WIDTH, HEADS, CASES[name].module(dtype=torch.float64)).double()
    with torch.no_grad():
        made.project.bias.copy_(torch.randn(3 * WIDTH))
    return made


def projected_first(made: MultiHead, x: Tensor, mask: Tensor | None) -> Tensor:
    """The plain way: keys and values of every token, then compressed."""
    q, k, v = made.project(x).unflatten(-1, (3, HEADS, DIM)).permute(2, 0, 3, 1, 4)
    return made.combine(made.attention(q, k, v, mask=mask).transpose(1, 2).flatten(2))


# Compressing tokens instead of keys and values ----------------------------------------------------------------------


def test_which_projections_compress_tokens() -> None:
    """Those that are linear and shared by the heads: max and dynamic are not linear."""
    found = {name for name, case in CASES.items() if case.module(dtype=torch.float64).compresses_tokens}
    assert found == set(LINEAR)


@pytest.mark.parametrize("tokens", [1, RANK - 1, 60, TOKENS])
@pytest.mark.parametrize("name", LINEAR)
def test_compressing_tokens_equals_compressing_keys_and_values(name: str, tokens: int) -> None:
    """E (X W + 1 b) = (E X) W + (E 1) b: outputs and all gradients, whole and streamed, with padding and holes."""
    made = layer(name)
    (x,) = draw(2, tokens, WIDTH, seed=tokens, count=1)
    inputs = [x.requires_grad_(), *made.parameters()]
    holes = torch.rand(2, tokens, generator=torch.Generator().manual_seed(tokens)) < 0.6
    for mask in (None, prefix_mask([tokens, tokens // 2], tokens), holes):
        expected = projected_first(made, x, mask)
        wanted = gradients(expected, inputs)
        lengths, cut = lengths_of(mask, 2, tokens), bounds([tokens // 3, 0, tokens - tokens // 3])
        parts = [
            made.summarize(x[:, p], start=p.start, lengths=lengths, mask=None if mask is None else mask[:, p])
            for p in cut
        ]
        summary = made.finish(total(parts))
        streamed = torch.cat([made.attend(x[:, p], summary, start=p.start) for p in cut], dim=1)
        for got in (made(x, mask=mask), streamed):
            close(got, expected, 1e-12, "output")
            for i, (mine, theirs) in enumerate(zip(gradients(got, inputs), wanted, strict=True)):
                close(mine, theirs, 1e-12, f"gradient {i}")


def test_the_bias_counts_as_much_as_a_row_of_its_matrix_does() -> None:
    """Rows that do not sum to 1: leaving E 1 out, or taking 1 for it, would show."""
    made = layer("linformer-learned-headwise")
    (x,) = draw(1, 40, WIDTH, count=1)
    sums = made.attention.projection.matrix.detach()[..., :40].sum(-1)
    assert float((sums - 1).abs().max()) > 0.1
    slots = made.attention.finish(made.summarize(x))
    (keys,) = made._projected(x, 1, 2)
    expected = made.attention.finish(made.attention.summarize(keys, keys)).keys
    close(made.finish(made.summarize(x)).keys, expected, 1e-12)
    assert error(made._of_slots(slots.keys, torch.ones_like(slots.ones[:, 0]), 1), expected) > 0.01


@pytest.mark.parametrize("name", LINEAR)
def test_compressing_tokens_takes_fewer_operations(name: str) -> None:
    """Queries and outputs are projected for each token; keys and values no longer are."""
    made = layer(name).requires_grad_(False)
    tokens = TOKENS
    (x,) = draw(1, tokens, WIDTH, count=1)
    counts = []
    for way in (made, lambda x: projected_first(made, x, None)):
        with FlopCounterMode(display=False) as counter:
            way(x)
        counts.append(counter.get_total_flops())
    saved = 4 * tokens * WIDTH**2  # less what the slots take
    assert counts[1] - counts[0] > 0.8 * saved - (4 * -(-tokens // (RANK + 2)) * WIDTH**2 if "conv" in name else 0)


# Sharing and starts -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("sharing", ["none", "headwise", "key-value", "layerwise"])
@pytest.mark.parametrize("kind", ["learned", "seeded", "interpolated", "conv", "dynamic"])
def test_sharing_says_what_is_alike(kind: str, sharing: str) -> None:
    """Equal keys in every head and equal values give equal slots exactly where the matrices are shared."""
    made = {
        **STARTED,
        "learned": lambda **how: Learned(RANK, 20, **how),
        "interpolated": lambda **how: Interpolated(RANK, 12, **how),
        "conv": lambda **how: Convolution(6, **how),
        "seeded": lambda heads, sharing, start: Seeded(RANK, heads=heads, sharing=sharing),
        "dynamic": lambda heads, sharing, start: Dynamic(RANK, heads, DIM, sharing=sharing),
    }[kind](heads=HEADS, sharing=sharing, start="normal").double()
    (k,) = draw(1, 1, 20, DIM, count=1)
    k = k.expand(-1, HEADS, -1, -1)
    slots = made.slots(made.compress(k, k.clone(), 0, torch.tensor([20]), None))
    # float64, up to rounding: products need not round alike in every head
    heads_alike = torch.allclose(slots.keys[:, 1:], slots.keys[:, :-1], rtol=0, atol=1e-12)
    sides_alike = torch.allclose(slots.keys, slots.values, rtol=0, atol=1e-12)
    assert heads_alike == (sharing != "none")
    assert sides_alike == (sharing in ("key-value", "layerwise"))


def test_unknown_sharing_and_starts_are_refused() -> None:
    for make in (lambda: Learned(4, 9, sharing="some"), lambda: Dynamic(4, 2, 8, sharing="some")):
        with pytest.raises(ValueError, match="sharing must be one of none, headwise, key-value, layerwise, got 'some'"):
            make()
    with pytest.raises(ValueError, match="start must be pool or normal, got 'zero'"):
        Convolution(4, start="zero")
    with pytest.raises(ValueError, match="a grid of at least its 8 slots, got 5"):
        Interpolated(8, 5)


@pytest.mark.parametrize("kind", STARTED)
def test_starts(kind: str) -> None:
    """Pool: slots are means, so that a constant stays one. Normal: rows of about unit norm, so keys keep their size."""
    tokens = 4096
    (k,) = draw(1, 2, tokens, DIM, count=1)
    constant = torch.full_like(k, 2.5)
    pool = STARTED[kind](start="pool").double()
    assert all(parameter.is_contiguous() for parameter in pool.parameters())  # else sums over tokens are slow
    slots = pool.slots(pool.compress(constant, constant, 0, torch.tensor([tokens]), None))
    close(slots.keys, torch.full_like(slots.keys, 2.5), 1e-6)
    torch.manual_seed(1)
    normal = STARTED[kind](start="normal").double()
    (parameter,) = normal.parameters()
    assert float(parameter.detach().square().sum(-1).sqrt().mean()) == pytest.approx(1.0, abs=0.15)
    slots = normal.slots(normal.compress(k, k, 0, torch.tensor([tokens]), None))
    assert float(slots.keys.detach().std()) == pytest.approx(1.0, abs=0.25)  # 256 numbers a head


# Interpolated -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("tokens", [3, 17, 64, 100, 1000])
def test_interpolated_means_stay_means_at_any_length_and_under_masks(tokens: int) -> None:
    projection = Interpolated(8, 32).double()
    constant = torch.full((1, 2, tokens, DIM), -1.5, dtype=torch.float64)
    mask = torch.rand(1, tokens, generator=torch.Generator().manual_seed(1)) < 0.5
    mask[:, -1] = True
    hidden = constant.masked_fill(~mask[:, None, :, None], 0.0)
    slots = projection.slots(projection.compress(hidden, hidden, 0, torch.tensor([tokens]), mask))
    shown = slots.keys if slots.hidden is None else slots.keys[:, :, ~slots.hidden[0, 0]]
    close(shown, torch.full_like(shown, -1.5), 1e-12)


def test_interpolated_equals_learned_where_the_grid_is_the_sequence() -> None:
    """As many tokens as points: the matrix itself, scaled to its L1 norm, which all tokens present leave as it is."""
    tokens = 24
    torch.manual_seed(0)
    stretched, plain = Interpolated(RANK, tokens, start="normal").double(), Learned(RANK, tokens).double()
    with torch.no_grad():
        plain.matrix.copy_(stretched.matrix)
    q, k, v = draw(2, HEADS, tokens, DIM)
    close(Linformer(stretched)(q, k, v), Linformer(plain)(q, k, v), 1e-12)


def test_interpolated_weights_follow_the_relative_position() -> None:
    """A ramp over the grid is the same ramp over sequences ten times as long: slots agree as sums over finer steps."""
    projection = Interpolated(1, 50).double()
    with torch.no_grad():
        projection.matrix.copy_(torch.linspace(0.01, 1, 50))
    found = []
    for tokens in (500, 5000):
        wave = torch.sin(3 * (torch.arange(tokens).double() + 0.5) / tokens)[None, None, :, None]
        found.append(projection.slots(projection.compress(wave, wave, 0, torch.tensor([tokens]), None)).keys)
    close(found[0], found[1], 1e-3)


# State --------------------------------------------------------------------------------------------------------------


def test_the_seed_is_saved_and_a_checkpoint_reproduces_its_rows() -> None:
    one, two = Linformer(Seeded(RANK, seed=5)), Linformer(Seeded(RANK, seed=6))
    inputs = draw(1, HEADS, 30, DIM, dtype=torch.float32)
    assert error(two(*inputs), one(*inputs)) > 1e-2
    two.load_state_dict(one.state_dict(), strict=True)
    assert torch.equal(two(*inputs), one(*inputs))
    assert list(one.state_dict()) == ["projection.seed"]
    assert one.double().projection.seed.dtype == torch.int64


def test_finishing_once_is_attending_as_before() -> None:
    for name in (name for name, case in CASES.items() if case.projection):
        module = CASES[name].module(dtype=torch.float64)
        q, k, v = draw(2, HEADS, 20, DIM)
        summary = module.summarize(k, v, mask=prefix_mask([20, 7], 20), lengths=torch.tensor([20, 7]))
        assert torch.equal(module.attend(q, module.finish(summary)), module.attend(q, summary))


def test_a_bias_is_made_only_where_a_slot_is_empty() -> None:
    for projection in (Mean(RANK), Max(RANK), Learned(RANK, 20)):
        (k,) = draw(2, HEADS, 20, DIM, dtype=torch.float32, count=1)
        assert projection.slots(projection.compress(k, k, 0, torch.tensor([20, 20]), None)).hidden is None
    few = Mean(RANK)
    k = k[:, :, : RANK - 2]
    assert few.slots(few.compress(k, k, 0, torch.tensor([RANK - 2] * 2), None)).hidden is not None


def test_every_projection_has_a_name() -> None:
    assert set(PROJECTIONS) == {"learned", "seeded", "interpolated", "mean", "max", "conv", "dynamic"}
