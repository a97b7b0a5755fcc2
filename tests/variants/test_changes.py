"""What other bases change of a model's inputs is all that it changes, whether or not it is computed anew."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from tiny import tiny_model

from genoformer.model.inputs import INPUTS
from genoformer.variants import changes as module
from genoformer.variants.changes import changes


def assert_changes_are_those_of_the_model(model, codes, haplotypes):
    held = model.sequence(codes[None]).bases[0]
    expected = model.sequence(haplotypes).bases
    for change, theirs in zip(changes(model, haplotypes, codes, held), expected, strict=True):
        found = held.clone()
        found[change.start : change.end] = change.inputs
        assert torch.equal(found, theirs)


@pytest.mark.parametrize("inputs", [(), *((name,) for name in INPUTS), tuple(INPUTS)])
@pytest.mark.parametrize(
    ("length", "flank"),
    [(1, 500), (3, 500), (23, 500), (24, 500), (25, 500), (150, 500), (150, 20), (400, 40), (900, 300)],
)
def test_the_changed_inputs_are_all_that_change(inputs, length, flank, monkeypatch):
    """Laid over those of the window they are those of the haplotype, for any input there is."""
    monkeypatch.setattr(module, "_FLANK", flank)
    rng = np.random.default_rng(length)
    model = tiny_model(inputs=inputs)
    codes = torch.from_numpy(np.where(rng.random(length) < 0.05, 4, rng.integers(0, 4, length)).astype(np.uint8))
    haplotypes = codes.repeat(120, 1)
    for row, haplotype in enumerate(haplotypes[1:], 1):
        place, width = int(rng.integers(length)), 1 + row % 7 * (row % 3 == 0)
        haplotype[place : place + width] = (haplotype[place : place + width] + int(rng.integers(1, 4))) % 4
    assert_changes_are_those_of_the_model(model, codes, haplotypes)


@pytest.mark.parametrize("inputs", [*((name,) for name in INPUTS), tuple(INPUTS)])
@pytest.mark.parametrize("length", [1001, 1500, 4000])
def test_frames_that_are_open_for_long(inputs, length):
    """Where stops are rare, ends of pieces and the farthest that distances tell of come before the next one."""
    rng = np.random.default_rng(length)
    model = tiny_model(inputs=inputs)
    codes = rng.choice(4, length, p=[0.06, 0.44, 0.44, 0.06]).astype(np.uint8)
    for place in rng.choice(length - 3, 4):
        codes[place : place + 3] = (3, 0, 0)  # TAA
    codes = torch.from_numpy(codes)
    haplotypes = codes.repeat(150, 1)
    for row, haplotype in enumerate(haplotypes):
        place = int(rng.choice([rng.integers(length), row % 12, length - 1 - row % 12]))
        haplotype[place : place + 3] = torch.tensor((3, 0, 2) if row % 2 else (1, 1, 1))[: length - place]  # TAG or CCC
    assert_changes_are_those_of_the_model(model, codes, haplotypes)


def test_most_are_not_computed_anew(monkeypatch):
    model = tiny_model(inputs=tuple(INPUTS))
    codes = torch.from_numpy(np.random.default_rng(0).integers(0, 4, 600).astype(np.uint8))
    haplotypes = codes.repeat(200, 1)
    haplotypes[torch.arange(200), torch.arange(200) * 3] += 1
    haplotypes %= 4
    held, computed = model.sequence(codes[None]).bases[0], []
    original = model.sequence
    monkeypatch.setattr(
        model, "sequence", lambda rows, **options: computed.append(len(rows)) or original(rows, **options)
    )
    changes(model, haplotypes, codes, held)
    assert 0 < sum(computed) < 120
    monkeypatch.setattr(module, "_FLANK", 60)
    computed.clear()
    changes(model, haplotypes, codes, held)
    assert len(computed) == 2
    assert computed[1] < computed[0] / 4
    monkeypatch.setattr(module, "_WIDEST", 0)
    monkeypatch.setattr(module, "_FLANK", 500)
    computed.clear()
    changes(model, haplotypes, codes, held)
    assert computed == [200]
