"""The model: chunks, batches, padding and recomputation leave its outputs and gradients as they are."""

from __future__ import annotations

import itertools
from typing import Any, get_args

import naive
import numpy as np
import pytest
import torch
from tiny import CHOICES, random_codes, tiny_config, tiny_model
from torch import Tensor
from torch.nn import functional

from genoformer.attention import ATTENTION, PROJECTIONS, Local
from genoformer.attention.projections import Sharing
from genoformer.model import encoder as encoder_module
from genoformer.model import genoformer as genoformer_module
from genoformer.model.encoder import inside, spans, with_halo
from genoformer.model.genoformer import Genoformer, build
from genoformer.model.inputs import open_frames, stop_codons
from genoformer.tokens import PAD

EACH = pytest.mark.parametrize("choice", CHOICES.values(), ids=CHOICES)
# float32 sums in another order differ by some 1e-7 of the largest term; layers in a row multiply that by tens
TOLERANCE = {torch.float32: 1e-5, torch.float64: 1e-12}


def logits(model: Genoformer, codes: Tensor, **options: Any) -> Tensor:
    return model(codes, **options)["coding-frame"]


def assert_close(found: Tensor, expected: Tensor, dtype: torch.dtype = torch.float32, least: float = 1e-3) -> None:
    """Compare relative to the largest number there is, or to ``least``."""
    assert found.dtype == expected.dtype == dtype
    scale = max(float(expected.detach().abs().max()), least)
    torch.testing.assert_close(found / scale, expected / scale, rtol=0, atol=TOLERANCE[dtype])


def assert_all_close(found: dict[str, Tensor], expected: dict[str, Tensor], dtype: torch.dtype = torch.float32) -> None:
    """Compare outputs and gradients; one that nearly cancels out keeps the rounding of what it is summed from."""
    least = 0.01 * max(float(tensor.abs().max()) for tensor in expected.values())
    assert found.keys() == expected.keys()
    for name, tensor in expected.items():
        assert_close(found[name], tensor, dtype, least)


def outputs_and_gradients(model: Genoformer, codes: Tensor, chunk_size: int | None) -> dict[str, Tensor]:
    model.zero_grad(set_to_none=True)
    out = logits(model, codes, chunk_size=chunk_size)
    weights = torch.randn(out.shape, generator=torch.Generator().manual_seed(3), dtype=out.dtype)
    (out * weights)[codes != PAD].sum().backward()
    grads = {name: p.grad for name, p in model.named_parameters() if p.grad is not None}
    return {"logits": out.detach()[codes != PAD], **grads}


def test_choices_reach_every_mechanism_and_projection() -> None:
    assert {name for choice in CHOICES.values() for name in choice["attention"]} == set(ATTENTION)
    kinds = {choice.get("linformer_projection") for choice in CHOICES.values()}
    assert set(PROJECTIONS) <= kinds


@EACH
@pytest.mark.parametrize(
    ("stride", "chunk_sizes"),
    [
        (3, (7, 16)),
        *(
            pytest.param(*case, marks=pytest.mark.slow)
            for case in [(1, (11,)), (2, (4, 26)), (3, (17, 18)), (5, (1, 7))]
        ),
    ],
)
def test_chunked_equals_whole_outputs_and_gradients(
    choice: dict[str, Any], stride: int, chunk_sizes: tuple[int, ...]
) -> None:
    model = tiny_model(**choice, stem_stride=stride)
    codes = random_codes(50, 22)
    whole = outputs_and_gradients(model, codes, None)
    assert len(whole) == 1 + sum(1 for _ in model.parameters())  # no parameter is idle
    for chunk_size in chunk_sizes:
        assert_all_close(outputs_and_gradients(model, codes, chunk_size), whole)


@pytest.mark.parametrize("stride", [1, 2, 5])
def test_strides_are_chunked_alike(stride: int) -> None:
    model = tiny_model(**CHOICES["two-blocks"], stem_stride=stride, dtype=torch.float64)
    codes = random_codes(26, 11)
    whole = outputs_and_gradients(model, codes, None)
    assert_all_close(outputs_and_gradients(model, codes, 3), whole, torch.float64)


def words(codes: Tensor, table: Tensor, k: int) -> Tensor:
    """Look up the word around each base of one sequence, one by one."""
    letters = "".join("ACGTN"[code] for code in codes[0].tolist())
    around = "N" * ((k - 1) // 2) + letters + "N" * (k // 2)
    every = ["".join(word) for word in itertools.product("ACGT", repeat=k)]
    found = [around[place : place + k] for place in range(len(letters))]
    return table[[every.index(word) if "N" not in word else len(every) for word in found]][None]


def twin(model: Genoformer, codes: Tensor) -> Tensor:
    """Compute a softmax or local model of one sequence plainly: whole, with torch's own layers."""
    weights = dict(model.named_parameters())
    length, stride = codes.shape[1], model.encoder.stem.stride
    tokens = -(-length // stride)

    def convolve(x: Tensor, name: str, kernel: int, step: int = 1, sides: tuple[int, int] | None = None) -> Tensor:
        kernels = weights[f"{name}.weight"].view(kernel, x.shape[-1], -1).permute(2, 1, 0)
        around = functional.pad(x, (0, 0, *(sides or (kernel // 2, kernel // 2)))).transpose(1, 2)
        return functional.conv1d(around, kernels, weights[f"{name}.bias"], stride=step).transpose(1, 2)

    def linear(x: Tensor, name: str) -> Tensor:
        return functional.linear(x, weights[f"{name}.weight"], weights[f"{name}.bias"])

    def norm(x: Tensor, name: str) -> Tensor:
        return functional.layer_norm(x, x.shape[-1:], weights[f"{name}.weight"], weights[f"{name}.bias"])

    letters = functional.one_hot(codes.long(), 5)[..., :4].double()
    bases = torch.cat([letters, open_frames(codes, stop_codons(11)).double()], dim=-1)
    before = convolve(bases, "encoder.stem.first", 5)
    if model.encoder.stem.words is not None:
        before = before + words(codes, weights["encoder.stem.words.weight"], model.encoder.stem.words.k)
    skip = functional.gelu(before)
    spare = tokens * stride - length
    x = convolve(skip, "encoder.stem.down", 3 * stride, stride, sides=(stride, stride + spare))
    for number, block in enumerate(model.encoder.blocks):
        name, heads = f"encoder.blocks.{number}", block.multihead.heads
        h = norm(x, f"{name}.norm")
        taps = weights[f"{name}.mix.weight"].T[:, None]
        h = h + functional.conv1d(h.transpose(1, 2), taps, padding=1, groups=h.shape[-1]).transpose(1, 2)
        q, k, v = linear(h, f"{name}.multihead.project").view(1, tokens, 3, heads, -1).permute(2, 0, 3, 1, 4)
        if isinstance(block.multihead.attention, Local):
            attended = naive.local(q, k, v, radius=block.multihead.attention.radius)
        else:
            attended = naive.softmax(q, k, v, rotate=True)
        x = x + linear(attended.transpose(1, 2).flatten(2), f"{name}.multihead.combine")
        h = functional.gelu(linear(norm(x, f"{name}.feed_forward.0"), f"{name}.feed_forward.1"))
        x = x + linear(h, f"{name}.feed_forward.3")
    up = linear(norm(x, "decoder.norm"), "decoder.up").view(1, tokens * stride, -1)[:, :length]
    features = functional.gelu(up + skip)
    features = features + functional.gelu(convolve(features, "decoder.smooth", 5))
    return linear(features, "heads.coding-frame.output")


@pytest.mark.parametrize(("stride", "kmer"), [(1, 0), (2, 0), (3, 0), (5, 0), (3, 1), (3, 2), (3, 5)])
@pytest.mark.parametrize("length", [1, 5, 30, 31])
def test_the_model_is_what_its_plain_twin_computes(stride: int, kmer: int, length: int) -> None:
    model = tiny_model(attention=("local", "softmax"), stem_stride=stride, stem_kmer=kmer, dtype=torch.float64)
    padded = random_codes(length, length + 9)
    with torch.no_grad():
        expected = twin(model, padded[:1, :length])
        assert_close(logits(model, padded, chunk_size=4)[:1, :length], expected, torch.float64)


@EACH
def test_a_float64_model_is_exact_to_1e_12(choice: dict[str, Any]) -> None:
    model = tiny_model(**choice, dtype=torch.float64)
    codes = random_codes(26, 14)
    whole = outputs_and_gradients(model, codes, None)
    for chunk_size in (1, 5):
        assert_all_close(outputs_and_gradients(model, codes, chunk_size), whole, torch.float64)
    assert_close(logits(tiny_model(**choice), codes), logits(model, codes).float())


@EACH
@pytest.mark.parametrize("length", [1, 2, 4, 7])
def test_odd_lengths_and_chunk_sizes(choice: dict[str, Any], length: int) -> None:
    model = tiny_model(**choice)
    codes = random_codes(length, unknown=0.3)
    with torch.no_grad():
        whole = logits(model, codes)
        assert whole.shape == (1, length, 7)
        assert torch.isfinite(whole).all()
        for chunk_size in (1, 2):
            assert_close(logits(model, codes, chunk_size=chunk_size), whole)


@EACH
@pytest.mark.parametrize("stride", [pytest.param(1, marks=pytest.mark.slow), 3])
def test_a_row_alone_equals_itself_in_a_padded_batch(choice: dict[str, Any], stride: int) -> None:
    model = tiny_model(**choice, stem_stride=stride)
    lengths = (50, 1, 31, 30, 2, 49)
    codes = random_codes(*lengths)
    tables = torch.tensor([11, 4, 11, 4, 4, 11])
    with torch.no_grad():
        together = logits(model, codes, genetic_code=tables, chunk_size=6)
        for row, length in enumerate(lengths):
            alone = logits(model, codes[row : row + 1, :length], genetic_code=int(tables[row]))
            assert_close(together[row, :length], alone[0])


@EACH
def test_rows_of_padding_only_are_finite_and_disturb_nobody(choice: dict[str, Any]) -> None:
    model = tiny_model(**choice)
    codes = torch.cat([random_codes(20), torch.full((1, 20), PAD, dtype=torch.uint8)])
    together = outputs_and_gradients(model, codes, 3)
    alone = outputs_and_gradients(model, codes[:1], 3)
    assert torch.isfinite(logits(model, codes)).all()
    assert_close(together["logits"], alone["logits"])
    assert all(torch.isfinite(tensor).all() for tensor in together.values())


@EACH
def test_a_mask_hides_as_padding_does(choice: dict[str, Any]) -> None:
    model = tiny_model(**choice)
    padded, mask = random_codes(40, 17), torch.ones(2, 40, dtype=torch.bool)
    mask[1, 17:] = False
    filled = padded.clone()
    filled[1, 17:] = random_codes(23, seed=9)[0]
    with torch.no_grad():
        expected = logits(model, padded)
        assert_close(logits(model, filled, mask=mask, chunk_size=5)[mask], expected[mask])
        assert_close(logits(model, padded[:1], mask=mask[:1]), logits(model, padded[:1]))


def test_hidden_bases_within_a_sequence_have_no_influence() -> None:
    model = tiny_model()
    one, two = random_codes(60), random_codes(60)
    mask = torch.ones(1, 60, dtype=torch.bool)
    mask[:, 20:35] = False
    two[:, 20:35] = (two[:, 20:35] + 1) % 4
    assert torch.equal(logits(model, one, mask=mask)[mask], logits(model, two, mask=mask)[mask])
    assert not torch.equal(logits(model, one)[mask], logits(model, two)[mask])


def test_the_genetic_code_of_each_row_counts() -> None:
    model, codes = tiny_model(), random_codes(300).expand(2, -1)
    mixed = logits(model, codes, genetic_code=torch.tensor([11, 4]))
    assert_close(mixed[:1], logits(model, codes[:1], genetic_code=11))
    assert_close(mixed[1:], logits(model, codes[:1], genetic_code=4))
    assert not torch.allclose(mixed[0], mixed[1])
    without = tiny_model(inputs=())
    assert torch.equal(logits(without, codes, genetic_code=4), logits(without, codes))


@pytest.mark.parametrize("name", ["local", "performer", "hybrid"])
def test_far_bases_matter_to_global_mechanisms_only(name: str) -> None:
    model = tiny_model(attention=(name,), inputs=())
    one = random_codes(150, unknown=0)
    two = one.clone()
    two[0, 0] = (two[0, 0] + 1) % 4
    changed = (logits(model, one) != logits(model, two)).any(dim=-1)[0].nonzero()
    assert int(changed.max()) < 40 if name == "local" else int(changed.max()) == 149


def saved_bytes(model: Genoformer, codes: Tensor, chunk_size: int | None) -> int:
    sizes: dict[int, int] = {}

    def pack(tensor: Tensor) -> Tensor:
        sizes[tensor.untyped_storage().data_ptr()] = tensor.untyped_storage().nbytes()
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        out = logits(model, codes, chunk_size=chunk_size)
    out.sum().backward()
    return sum(sizes.values())


def test_chunks_keep_less_for_the_backward_pass_and_are_computed_again(monkeypatch: pytest.MonkeyPatch) -> None:
    model, codes = tiny_model(), random_codes(3000)
    whole, chunked = saved_bytes(model, codes, None), saved_bytes(model, codes, 100)
    assert chunked < whole / 2
    calls = []
    features = encoder_module.Stem.features
    monkeypatch.setattr(encoder_module.Stem, "features", lambda *a: calls.append(1) or features(*a))
    out = logits(model, codes, chunk_size=100)
    before = len(calls)
    out.sum().backward()
    assert before == 20  # ten chunks, seen by the encoder and by the decoder
    assert len(calls) == 2 * before
    with torch.no_grad():
        logits(model, codes, chunk_size=100)
    assert len(calls) == 3 * before


def test_one_chunk_is_not_computed_again(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise AssertionError("recomputed")

    monkeypatch.setattr(encoder_module, "recomputed", refuse)
    monkeypatch.setattr(genoformer_module, "recomputed", refuse)
    logits(tiny_model(), random_codes(30)).sum().backward()


def test_fresh_weights_come_from_the_seed_and_torchs_generator_is_left_alone() -> None:
    torch.manual_seed(5)
    expected = torch.rand(3)
    torch.manual_seed(5)
    one, two, other = (build(tiny_config(seed=seed)) for seed in (1, 1, 2))
    assert torch.equal(torch.rand(3), expected)
    for a, b in zip(one.state_dict().values(), two.state_dict().values(), strict=True):
        assert torch.equal(a, b)
    assert not torch.equal(one.encoder.stem.first.weight, other.encoder.stem.first.weight)
    blocks = build(tiny_config(attention=("performer",) * 2)).encoder.blocks
    projections = [block.multihead.attention.projection for block in blocks]
    assert not torch.equal(*projections)


def test_linformer_layers_share_one_projection_if_their_heads_are_as_many() -> None:
    model = build(tiny_config(attention=("linformer", "hybrid", "linformer"), hybrid_global="linformer"))
    first, hybrid, last = (block.multihead.attention for block in model.encoder.blocks)
    assert first.projection is last.projection
    assert hybrid.second.projection is not first.projection


@pytest.mark.parametrize("sharing", get_args(Sharing))
@pytest.mark.parametrize("kind", ["learned", "seeded", "interpolated", "conv", "dynamic"])
def test_linformer_sharing_is_how_many_matrices_there_are(kind: str, sharing: str) -> None:
    config = tiny_config(attention=("linformer",) * 3, linformer_projection=kind, linformer_sharing=sharing)
    found = [block.multihead.attention.projection for block in build(config).encoder.blocks]
    assert len({id(projection) for projection in found}) == (1 if sharing == "layerwise" else 3)
    shapes = {"none": (2, 2), "headwise": (2, 1), "key-value": (1, 1), "layerwise": (1, 1)}
    if kind == "seeded":
        assert {(one.sides, one.heads) for one in found} == {shapes[sharing]}
        assert [int(one.seed) for one in found] == ([0, 0, 0] if sharing == "layerwise" else [0, 1, 2])
        return
    (parameter,) = found[0].parameters()
    assert tuple(parameter.shape[:2]) == shapes[sharing]


def test_linformer_ranks_are_of_the_blocks_and_equal_ones_share() -> None:
    choice = {"linformer_projection": "learned", "linformer_ranks": (3, 7, 3)}
    model = build(tiny_config(attention=("linformer",) * 3, **choice))
    first, second, third = (block.multihead.attention.projection for block in model.encoder.blocks)
    assert first is third
    assert [len(one.matrix[0, 0]) for one in (first, second)] == [3, 7]


def test_the_linformer_start_reaches_the_projection() -> None:
    choice = {"attention": ("linformer",), "linformer_projection": "learned"}
    pool, normal = (
        build(tiny_config(**choice, linformer_start=start)).encoder.blocks[0].multihead.attention.projection.matrix
        for start in ("pool", "normal")
    )
    assert bool((pool >= 0).all())
    assert bool((normal < 0).any())


def test_codes_and_precision_leave_the_logits_in_float32() -> None:
    model, codes = tiny_model(), random_codes(90)
    with torch.autocast("cpu", torch.bfloat16):
        low = logits(model, codes, chunk_size=7)
    assert low.dtype == torch.float32
    assert not torch.equal(low, logits(model, codes))
    torch.testing.assert_close(low.softmax(-1), logits(model, codes).softmax(-1), rtol=0, atol=0.1)


@pytest.mark.parametrize("tokens", [0, 1, 2, 9, 10, 11])
@pytest.mark.parametrize("chunk_size", [1, 2, 10, None])
def test_spans_partition(tokens: int, chunk_size: int | None) -> None:
    cut = spans(tokens, chunk_size)
    assert [position for span in cut for position in range(*span)] == list(range(tokens))
    assert all(span.end - span.start <= (chunk_size or tokens) for span in cut)
    assert len(cut) == max(1, -(-tokens // (chunk_size or max(tokens, 1))))


def test_a_chunk_of_no_tokens_is_refused() -> None:
    with pytest.raises(ValueError, match="at least 1 token, got 0"):
        tiny_model()(random_codes(9), chunk_size=0)


def test_halos_are_zeros_and_not_real_beyond_the_ends() -> None:
    x = torch.arange(1.0, 6.0).view(1, 5, 1)
    around = np.pad(np.arange(1.0, 6.0), 3)
    for start in range(-3, 5):
        for end in range(max(start, 0) + 1, 9):
            expected = around[start + 3 : end + 3]
            assert with_halo(x, start, end)[0, :, 0].tolist() == expected.tolist()
            for mask in (None, torch.ones(1, 5, dtype=torch.bool)):
                real = inside(5, mask, start, end, x.device)
                found = [True] * (end - start) if real is None else real[0, :, 0].tolist()
                assert found == (expected > 0).tolist()


@pytest.mark.gpu
@EACH
def test_a_resident_sequence_may_stay_on_the_cpu(choice: dict[str, Any]) -> None:
    model, codes = tiny_model(**choice, dtype=torch.float64), random_codes(101, 44)
    expected = outputs_and_gradients(model, codes, None)
    found = outputs_and_gradients(model.cuda(), codes, 7)
    assert found["logits"].device.type == "cpu"
    for name, tensor in expected.items():
        assert_close(found[name].cpu(), tensor.cpu(), torch.float64)


def test_what_has_no_gradient_is_told() -> None:
    assert tiny_model(inputs=()).held_fixed == ()
    assert tiny_model(stem_kmer=4).held_fixed == ("open-frames", "words of 4 letters")
