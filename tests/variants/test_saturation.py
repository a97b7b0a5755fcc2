"""Saturation is the scores of all substitutions; gradients are those of finite differences, on both strands."""

from __future__ import annotations

import h5py
import numpy as np
import pytest
import torch
from tiny import Memory, random_bases, tiny_model

from genoformer.errors import ConfigError, InputError
from genoformer.formats.vcf import Variant
from genoformer.model.genoformer import Genoformer
from genoformer.predict import Settings
from genoformer.regions import Region
from genoformer.store import open_store
from genoformer.tokens import decode, encode, reverse_complement
from genoformer.tracks import CODING_FRAME
from genoformer.variants.attribution import attribute, attribute_to_store
from genoformer.variants.saturation import effect_tracks, saturate_to_store
from genoformer.variants.score import score_variants
from genoformer.variants.scoring import Scoring

BASES = random_bases(60, 1) + b"NR" + random_bases(60, 2)
MEMORY = Memory(("a/b", BASES), ("other", b"ACGT"))
SCORING = Scoring(window=50, cell=5)


@pytest.fixture(scope="module")
def model() -> Genoformer:
    torch.manual_seed(0)
    return tiny_model(attention=("local", "performer"), inputs=("open-frames",))


def test_is_the_scores_of_all_substitutions(model, tmp_path):
    region = Region("a/b", 55, 65)
    path = saturate_to_store(region, MEMORY, model, tmp_path / "x.h5", scoring=SCORING)
    with open_store(path) as store:
        gain, loss, shift = (store.values(region, name) for name in ("gain", "loss", "shift"))
        channels = {name: track.channels for name, track in store.tracks.items()}
        assert np.isnan(store.values(Region("a/b", 0, 55))).all()
        assert np.isnan(gain[5:7]).all()
    assert channels["gain"][5] == "coding_minus:C"
    for place in (55, 59, 62, 64):
        for letter in "ACGT":
            columns = [channels["gain"].index(f"coding_{strand}:{letter}") for strand in ("plus", "minus")]
            found = [*gain[place - 55, columns], *loss[place - 55, columns], shift[place - 55, "ACGT".index(letter)]]
            reference = chr(BASES[place])
            if letter == reference:
                assert found == [0] * 5
                continue
            (score,) = score_variants([Variant("a/b", place, reference, letter)], MEMORY, model, scoring=SCORING)
            plus, minus = score.effect.changes["coding_plus"], score.effect.changes["coding_minus"]
            expected = [plus.gain, minus.gain, plus.loss, minus.loss, score.effect.shifts["coding"][0]]
            assert found == pytest.approx(expected, abs=1e-3)
    with h5py.File(path) as file:
        assert file["reference"][:, 0].tolist() == list(range(55, 65))
        assert file["reference"][:, 1].tolist() == encode(BASES[55:65]).tolist()


def test_channels_on_the_opposite_strand():
    for track in effect_tracks([CODING_FRAME]):
        turned = [track.channels[index] for index in track.reverse_complement]
        assert [track.channels[track.reverse_complement[index]] for index in track.reverse_complement] == list(
            track.channels
        )
        for one, two in zip(track.channels, turned, strict=True):
            (group, letter), (other, opposite) = one.split(":"), two.split(":")
            assert "ACGT".index(letter) + "ACGT".index(opposite) == 3
            assert other == {"coding_plus": "coding_minus", "coding_minus": "coding_plus"}.get(group, group)


def test_what_has_no_base(model, tmp_path):
    with pytest.raises(InputError, match="no known base"):
        saturate_to_store(Region("a/b", 60, 62), MEMORY, model, tmp_path / "x.h5")
    with pytest.raises(InputError, match="123"):
        saturate_to_store(Region("a/b", 60, 123), MEMORY, model, tmp_path / "x.h5")
    assert list(tmp_path.iterdir()) == []


def target(model: Genoformer, bases: torch.Tensor, resident, span: slice, channels: list[int]) -> float:
    with torch.no_grad():
        values = model.logits(resident._replace(bases=bases))[CODING_FRAME.name][0, span].softmax(dim=1)
    chosen = values[:, channels].sum(dim=1)
    return float((chosen / (1 - chosen)).log().sum())


@pytest.mark.parametrize("chunk_size", [None, 5])
def test_gradients_are_those_of_finite_differences(chunk_size):
    model = tiny_model(attention=("local", "performer"), dtype=torch.float64, inputs=("open-frames",))
    bases = random_bases(40, 3)
    settings = Settings(strand_average=False, chunk_size=chunk_size)
    region = Region("s", 10, 17)
    found = attribute(region, Memory(("s", bases)), model, scoring=Scoring(window=100, settings=settings))
    codes = torch.from_numpy(encode(bases).copy())[None]
    resident = model.sequence(codes)
    step = 1e-5
    for place in (0, 11, 25, 39):
        for letter in range(4):
            for row, channels in enumerate(([1, 2, 3], [4, 5, 6])):
                sides = []
                for sign in (1, -1):
                    changed = resident.bases.double().clone()
                    changed[0, place, letter] += sign * step
                    sides.append(target(model, changed, resident, slice(10, 17), channels))
                expected = (sides[0] - sides[1]) / (2 * step)
                assert found.gradients[place, row, letter] == pytest.approx(expected, rel=1e-3, abs=1e-4)
    there = codes[0].numpy().astype(int)
    assert np.array_equal(found.values, found.gradients[np.arange(40), :, there])


def test_gradients_of_the_opposite_strand_are_mirrored(model):
    other = decode(reverse_complement(encode(BASES)))
    scoring = Scoring(window=60)
    here = attribute(Region("s", 30, 41), Memory(("s", BASES)), model, scoring=scoring)
    there = attribute(Region("s", 122 - 41, 122 - 30), Memory(("s", other)), model, scoring=scoring)
    np.testing.assert_allclose(here.gradients, there.gradients[::-1, ::-1, ::-1], atol=1e-4, rtol=1e-3)
    assert (here.window.start, here.window.end) == (122 - there.window.end, 122 - there.window.start)


def test_the_model_is_left_as_found(model):
    before = {name: value.clone() for name, value in model.named_parameters()}
    with torch.inference_mode():
        attribute(Region("a/b", 3, 9), MEMORY, model, scoring=SCORING)
    assert all(torch.equal(before[name], value) and value.grad is None for name, value in model.named_parameters())


def test_attribution_in_a_store(model, tmp_path):
    region = Region("a/b", 50, 70)
    path = attribute_to_store(region, MEMORY, model, tmp_path / "x.h5", scoring=SCORING)
    found = attribute(region, MEMORY, model, scoring=SCORING)
    assert found.window.length == 50
    assert (found.values[found.codes == 4] == 0).all()
    with open_store(path) as store:
        np.testing.assert_allclose(store.values(found.window, "attribution"), found.values, rtol=1e-3, atol=1e-6)
        assert store.tracks["attribution"].reverse_complement == (1, 0)
        assert store.tracks["gradient"].channels[:2] == ("coding_plus:A", "coding_plus:C")
        assert store.metadata["held-fixed"] == ["open-frames"]
    with pytest.raises(ConfigError, match="window"):
        attribute(Region("a/b", 0, 51), MEMORY, model, scoring=SCORING)
