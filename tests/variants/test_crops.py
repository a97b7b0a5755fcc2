"""Scores by parts of windows: those of whole windows where nothing is global, near them elsewhere; for every place."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from tiny import Memory, random_bases, tiny_model

from genoformer.errors import ConfigError
from genoformer.formats.sequences import open_sequences
from genoformer.formats.vcf import Variant
from genoformer.model.checkpoint import bundled_models, load_model
from genoformer.model.crop import GRID
from genoformer.predict import Settings
from genoformer.regions import Region
from genoformer.tokens import decode, encode, reverse_complement
from genoformer.variants import crops, placing
from genoformer.variants.crops import Crops
from genoformer.variants.effects import Effect
from genoformer.variants.score import score_variants
from genoformer.variants.scorer import Scorer
from genoformer.variants.scoring import METHODS, Scoring

CLOSE = 2e-5  # float32, sums in another order
LENGTH = 700
BASES = random_bases(LENGTH, 11)
LAMBDA = Path(__file__).resolve().parents[2] / "data" / "lambda.fa.gz"
NEAR, FAR = 0.01, 0.04
"""what half of all effects of the bundled model, and any, may be off by; twice what was measured"""


@pytest.fixture
def small(monkeypatch) -> None:
    """Parts that are small enough for small windows, and for models that see little."""
    monkeypatch.setattr(crops, "MARGIN", 24)


def substitutions(bases: bytes, places, *, wide: bool = True) -> list[Variant]:
    """Substitutions of one base, and of two or three, at some places."""
    turn = str.maketrans("ACGT", "CGTA")
    widths = (1, 1, 2, 3) if wide else (1,)
    found = []
    for number, place in enumerate(places):
        there = bases[place : place + widths[number % len(widths)]].decode()
        found.append(Variant("s", int(place), there, there.translate(turn)))
    return found


def flat(effect: Effect) -> list[float]:
    changes = [number for change in effect.changes.values() for number in (change.gain, change.loss)]
    return [*changes, *(share for share, _ in effect.shifts.values())]


def places_of(effect: Effect) -> list[int]:
    return [place for change in effect.changes.values() for place in (change.gain_at, change.loss_at)]


@pytest.mark.usefixtures("small")
@pytest.mark.parametrize("strand_average", [True, False])
def test_equal_those_of_whole_windows_where_all_is_local(strand_average):
    model = tiny_model(attention=("local",), inputs=("open-frames",))
    variants = substitutions(BASES, [0, 1, 2, 5, 100, 347, 350, 351, 600, 690, 697, *range(200, 230)])
    memory = Memory(("s", BASES))
    settings = Settings(strand_average=strand_average)
    found = {
        method: list(score_variants(variants, memory, model, scoring=Scoring(600, 80, settings, method)))
        for method in METHODS
    }
    for one, two in zip(found["exact"], found["crop"], strict=True):
        assert one.variant == two.variant
        assert flat(one.effect) == pytest.approx(flat(two.effect), abs=CLOSE)
        largest = max(flat(one.effect)[:-1])
        assert largest > 1e-3
        index = flat(one.effect).index(largest)
        assert places_of(one.effect)[index] == places_of(two.effect)[index]


@pytest.mark.usefixtures("small")
def test_only_parts_are_computed(monkeypatch):
    """And whole windows where half of one changes, or where an allele is longer than the other."""
    model = tiny_model(attention=("local", "performer"))
    computed: list[int] = []
    original = Scorer._predict
    monkeypatch.setattr(Scorer, "_predict", lambda self, rows: computed.append(len(rows)) or original(self, rows))
    one = Variant("s", 300, BASES[300:301].decode(), "A" if BASES[300:301] != b"A" else "C")
    wide = Variant("s", 250, BASES[250:450].decode(), decode((encode(BASES[250:450]) + 1) % 4).decode())
    longer = Variant("s", 300, BASES[300:301].decode(), BASES[300:301].decode() + "ACG")
    memory, scoring = Memory(("s", BASES)), Scoring(600, 600, method="crop")
    for variants, expected in (([one] * 3, 0), ([one, wide, longer], 2)):
        computed.clear()
        assert all(each.effect for each in score_variants(variants, memory, model, scoring=scoring))
        assert sum(computed) == expected
    with pytest.raises(ConfigError, match="method exact"):
        list(score_variants([one], memory, tiny_model(attention=("softmax",)), scoring=scoring))
    with pytest.raises(ConfigError, match="exact, crop"):
        Scoring(method="quick")


@pytest.mark.usefixtures("small")
def test_a_score_does_not_depend_on_the_others(monkeypatch):
    model = tiny_model(attention=("local", "performer", "local"), inputs=("open-frames",))
    variants = substitutions(BASES, np.random.default_rng(0).integers(0, LENGTH - 3, 25))
    memory, scoring = Memory(("s", BASES)), Scoring(400, 20, method="crop")
    together = list(score_variants(variants, memory, model, scoring=scoring))
    monkeypatch.setattr(placing, "_CROPS", 3)
    monkeypatch.setattr(placing, "_HELD_BASES", 800)
    backward = list(score_variants(variants[::-1], memory, model, scoring=scoring))[::-1]
    for one, two in zip(together, backward, strict=True):
        assert one.variant == two.variant
        assert flat(one.effect) == pytest.approx(flat(two.effect), abs=CLOSE)


@pytest.mark.usefixtures("small")
@pytest.mark.parametrize("length", [700, 701, 702])
def test_the_opposite_strand_has_the_same_scores(length):
    """Of the tiny model, which is far less smooth than a trained one."""
    model = tiny_model(attention=("local", "performer"), inputs=("open-frames",))
    bases = random_bases(length, 8)
    other = decode(reverse_complement(encode(bases)))
    turn = str.maketrans("ACGT", "TGCA")
    variants = substitutions(bases, [0, length - 1, *range(300, 330)], wide=False)
    mirrored = [Variant("s", length - 1 - v.start, v.reference.translate(turn), v.alternate.translate(turn))
                for v in variants]  # fmt: skip
    scoring = Scoring(500, 60, method="crop")
    here = score_variants(variants, Memory(("s", bases)), model, scoring=scoring)
    there = score_variants(mirrored, Memory(("s", other)), model, scoring=scoring)
    for one, two in zip(here, there, strict=True):
        for name, turned in (("coding_plus", "coding_minus"), ("coding_minus", "coding_plus")):
            a, b = one.effect.changes[name], two.effect.changes[turned]
            assert (a.gain, a.loss) == pytest.approx((b.gain, b.loss), abs=1e-4)


@pytest.mark.usefixtures("small")
def test_windows_are_held_as_long_as_they_are_wanted():
    model = tiny_model(attention=("local", "performer"))
    first, second = Region("s", 0, 300), Region("s", 100, 500)
    held = Crops(model, Settings(), chunk_size=None)
    codes = {region: encode(BASES[region.start : region.end]) for region in (first, second)}
    values = held.hold({first: codes[first]})[first]
    assert held.hold(codes)[first] is values
    assert list(held.hold({second: codes[second]})) == [second]
    assert held.changed([]) == []
    (same,) = held.changed([(second, codes[second])])
    expected = held.hold({second: codes[second]})[second]
    for name, array in same.values.items():
        assert np.allclose(array, expected[name][same.start : same.start + len(array)], atol=CLOSE)


@given(st.integers(1, 400), st.data())
def test_places(whole, data):
    """A part lies on the grid, holds what changes with a margin, and is less than half of the window."""
    start = data.draw(st.integers(0, 3 * whole - 1))
    end = data.draw(st.integers(start + 1, 3 * whole))
    found = crops._place(start, end, 3, whole)
    wanted = max(start // 3 - crops.MARGIN, 0), min((end - 1) // 3 + 1 + crops.MARGIN, whole)
    if found is None:
        assert 2 * (wanted[1] - wanted[0] + 2 * GRID) > whole
        return
    assert found.start % GRID == found.tokens % GRID == 0
    assert 0 <= found.start <= wanted[0]
    assert wanted[1] <= found.start + found.tokens < whole + GRID
    assert 2 * found.tokens <= whole


@pytest.mark.skipif("prokaryote-genes" not in bundled_models(), reason="the bundled model is not there")
def test_the_bundled_model_on_lambda():
    """Effects by parts are those of whole windows, nearly; on both strands alike; a stop gained is a loss there."""
    torch.manual_seed(0)
    sequences, model = open_sequences(LAMBDA), load_model()
    (record,) = sequences.records()
    start = 2835 + 3 * 60  # in gene B (2836-4437), which is long
    stop = Variant(record.name, start, record.bases[start : start + 3].decode(), "TAA")
    places = np.random.default_rng(3).integers(2700, 3300, 40)
    variants = [stop, *(v._replace(sequence=record.name) for v in substitutions(record.bases, places, wide=False))]
    exact, near = (
        list(score_variants(variants, sequences, model, scoring=Scoring(1500, 700, method=method)))
        for method in METHODS
    )
    effects = [np.array([flat(each.effect) for each in scored]) for scored in (exact, near)]
    off = np.abs(effects[0] - effects[1]).max(axis=1)
    assert np.median(off) < NEAR
    assert off.max() < FAR
    loss = near[0].effect.changes["coding_plus"]
    assert loss.loss > 0.2
    assert abs(loss.loss_at - start) < 200
