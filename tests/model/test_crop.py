"""Parts of windows computed again: what was there comes out again, and what changed within reach is exact."""

from __future__ import annotations

import pytest
import torch
from tiny import random_codes, tiny_model

from genoformer.model.crop import GRID, Part, can_crop, crop_logits, hold
from genoformer.model.genoformer import Genoformer
from genoformer.tracks import CODING_FRAME

CLOSE = 2e-5  # float32, sums in another order
STRIDE = 3
KNOWN = {
    "local": {"attention": ("local", "local"), "inputs": ()},
    "performer": {"attention": ("performer",), "inputs": ()},
    "both": {"attention": ("local", "performer", "local"), "inputs": ("open-frames", "stop-distances")},
    "hybrid": {"attention": ("hybrid", "hybrid")},
    "words": {"attention": ("local",), "stem_kmer": 4, "inputs": ()},
}


@pytest.fixture(params=KNOWN)
def model(request) -> Genoformer:
    return tiny_model(**KNOWN[request.param])


@pytest.mark.parametrize("length", [150, 151, 152])
@torch.inference_mode()
def test_unchanged_parts_are_as_they_were(model, length):
    """At both ends, in the middle, whole; of windows of any length, several in a batch."""
    codes = random_codes(length, length, seed=length)
    sequence = model.sequence(codes)
    held, logits = hold(model, sequence)
    whole = -(-length // STRIDE)
    for tokens in (GRID, 2 * GRID, -(-whole // GRID) * GRID):
        starts = range(0, -(-whole // GRID) * GRID - tokens + 1, GRID)
        parts = [Part(held[row], start, 0, sequence.bases[row]) for start in starts for row in (0, 1)]
        found = crop_logits(model, parts, tokens)[CODING_FRAME.name]
        for number, (values, part) in enumerate(zip(found, parts, strict=True)):
            expected = logits[CODING_FRAME.name][number % 2, part.start * STRIDE :][: tokens * STRIDE]
            assert torch.allclose(values[: len(expected)], expected, atol=CLOSE)


@pytest.mark.parametrize("place", [0, 70, 151])
@torch.inference_mode()
def test_a_part_that_is_the_window_is_exact(model, place):
    """Also global attention sees what changed, and what was there no longer."""
    codes = random_codes(152)
    changed = codes.clone()
    changed[0, place : place + 5] = (changed[0, place : place + 5] + 1) % 4
    (held,), _ = hold(model, model.sequence(codes))
    expected = model(changed)[CODING_FRAME.name][0]
    whole = -(-152 // (STRIDE * GRID)) * GRID
    (found,) = crop_logits(model, [Part(held, 0, 0, model.sequence(changed).bases[0])], whole)[CODING_FRAME.name]
    assert torch.allclose(found[: len(expected)], expected, atol=CLOSE)
    assert not torch.allclose(expected, model(codes)[CODING_FRAME.name][0], atol=0.01)


@pytest.mark.parametrize("name", ["local", "words"])
@pytest.mark.parametrize("place", [0, 1, 119, 120, 121, 299, 300])
@torch.inference_mode()
def test_what_is_within_reach_is_exact(name, place):
    """Where no attention is global, a part that reaches as far as the change does, is that of the changed window."""
    model = tiny_model(**KNOWN[name])
    codes = random_codes(301, unknown=0.0)
    changed = codes.clone()
    changed[0, place] = (changed[0, place] + 1) % 4
    (held,), _ = hold(model, model.sequence(codes))
    expected = model(changed)[CODING_FRAME.name][0]
    reach = 2 * GRID
    tokens, whole = 2 * reach + GRID, -(-301 // (STRIDE * GRID)) * GRID
    start = min(max(place // STRIDE - reach, 0) // GRID * GRID, whole - tokens)
    (found,) = crop_logits(model, [Part(held, start, 0, model.sequence(changed).bases[0])], tokens)[CODING_FRAME.name]
    part = expected[start * STRIDE : (start + tokens) * STRIDE]
    assert torch.allclose(found[: len(part)], part, atol=CLOSE)
    assert not torch.allclose(part, model(codes)[CODING_FRAME.name][0, start * STRIDE :][: len(part)], atol=0.01)


def test_which_models():
    assert all(can_crop(tiny_model(**changes)) for changes in KNOWN.values())
    for attention in ("softmax", "joint", "linformer"):
        assert not can_crop(tiny_model(attention=("local", attention)))
