"""Variants scored by other processes: as this one does, in the order given."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch
from tiny import Memory, random_bases, tiny_model

from genoformer import Workers
from genoformer.errors import ConfigError, ResourceError
from genoformer.formats.vcf import Variant
from genoformer.model.genoformer import Genoformer
from genoformer.predict import Settings
from genoformer.regions import Region
from genoformer.variants.effects import Effect
from genoformer.variants.jobs import _batch, _effect, _job
from genoformer.variants.placing import Placing
from genoformer.variants.score import Score, score_variants
from genoformer.variants.scoring import METHODS, Scoring

CLOSE = 2e-5  # float32, sums in another order
BASES = random_bases(3000, seed=3)
SEQUENCES = Memory(("a", BASES[:2000]), ("b", BASES[2000:]))


@pytest.fixture(scope="module")
def model() -> Genoformer:
    torch.manual_seed(0)
    return tiny_model(attention=("local", "performer"), inputs=("open-frames",))


@pytest.fixture(scope="module")
def two(model: Genoformer) -> Iterator[Workers]:
    with Workers(model, processes=2, threads=2) as workers:
        yield workers


def made_up() -> list[Variant]:
    """Return substitutions all over, here and there a deletion, an insertion, and some that cannot be scored."""
    found = []
    for number, place in enumerate(range(0, 1990, 17)):
        base = chr(BASES[place])
        other = "ACGT"[("ACGT".index(base) + 1 + number % 3) % 4]
        found.append(Variant("a", place, base, other))
        if number % 9 == 4:
            found.append(Variant("a", place, BASES[place : place + 4].decode(), base))
            found.append(Variant("a", place, other, base))
        if number % 9 == 7:
            found.append(Variant("a", place, base, base + "ACG"))
    return [*found, Variant("nowhere", 1, "A", "C"), Variant("b", 999, chr(BASES[2999]), "A")]


def same(one: Score, other: Score) -> bool:
    """Tell whether two scores are of one variant, and as near as sums in another order are."""
    if one.effect is None or other.effect is None:
        return one == other
    numbers = [_numbers(each.effect) for each in (one, other)]
    return (one.variant, one.reason) == (other.variant, other.reason) and numbers[0] == pytest.approx(
        numbers[1], abs=CLOSE
    )


def _numbers(effect: Effect) -> list[float]:
    changes = [number for change in effect.changes.values() for number in (change.gain, change.loss)]
    shifts = [share for share, _ in effect.shifts.values()]
    return [*changes, *shifts, *effect.inserted.values(), *effect.deleted.values()]


@pytest.mark.parametrize("method", METHODS)
def test_scores_are_those_of_one_process(method, model, two):
    scoring = Scoring(300, method=method)
    alone = list(score_variants(made_up(), SEQUENCES, model, scoring=scoring))
    together = list(score_variants(made_up(), SEQUENCES, model, scoring=scoring, workers=two))
    assert len(alone) == len(together) == len(made_up())
    assert all(same(*pair) for pair in zip(alone, together, strict=True))
    assert {score.reason for score in together} == {"", "reference_mismatch", "unknown_sequence"}
    assert max(max(_numbers(score.effect)) for score in together if score.effect) > 1e-3


def test_nothing_to_score(model, two):
    assert list(score_variants([], SEQUENCES, model, workers=two)) == []
    (score,) = score_variants([Variant("nowhere", 1, "A", "C")], SEQUENCES, model, workers=two)
    assert (score.effect, score.reason) == (None, "unknown_sequence")


def test_they_predict_too(model, two):
    """One set of processes serves predictions and variants."""
    import genoformer

    before = genoformer.collect(genoformer.predict(BASES.decode(), model, workers=two))
    list(score_variants(made_up()[:5], SEQUENCES, model, workers=two))
    after = genoformer.collect(genoformer.predict(BASES.decode(), model, workers=two))
    assert repr(before) == repr(after)


def test_what_is_known_of_an_organism_is_left_out_here_too(model, two):
    import genoformer

    context = genoformer.organism_context(SEQUENCES, model)
    scoring = Scoring(300, settings=Settings(context=context))
    alone = list(score_variants(made_up()[:5], SEQUENCES, model, scoring=scoring))
    together = list(score_variants(made_up()[:5], SEQUENCES, model, scoring=scoring, workers=two))
    assert all(same(*pair) for pair in zip(alone, together, strict=True))


def test_a_batch_and_its_effects_read_back_equal(model):
    scoring = Scoring(300, method="crop")
    (batch, *_) = Placing(SEQUENCES, model, scoring, device=torch.device("cpu")).batches(made_up(), shared_out=True)
    job = _job(batch, scoring)
    assert job is not None
    again = _batch(job)
    assert [placed for placed in batch.placed if placed.region] == again.placed
    assert list(batch.windows) == list(again.windows)
    for region, window in batch.windows.items():
        assert isinstance(region, Region)
        assert all((mine == theirs).all() for mine, theirs in zip(window, again.windows[region], strict=True))


def test_batches_for_several_are_smaller(model):
    """So that all have some, however few windows there are."""
    variants = [Variant("a", 500, chr(BASES[500]), "ACGT".replace(chr(BASES[500]), "")[0])] * 1000
    placing = Placing(SEQUENCES, model, Scoring(300, method="crop"), device=torch.device("cpu"))
    assert [len(batch.placed) for batch in placing.batches(variants)] == [512, 488]
    shared = [len(batch.placed) for batch in placing.batches(variants, shared_out=True)]
    assert max(shared) <= 256
    assert sum(shared) == 1000


def test_errors_come_out_in_their_turn(model):
    with pytest.raises(ConfigError, match="method exact"):
        list(score_variants(made_up(), SEQUENCES, tiny_model(attention=("softmax",)), scoring=Scoring(method="crop")))
    with Workers(model, processes=2, threads=2) as workers:
        list(score_variants(made_up()[:3], SEQUENCES, model, workers=workers))
        workers.close()
        with pytest.raises(ResourceError, match="closed"):
            list(score_variants(made_up()[:3], SEQUENCES, model, workers=workers))


def test_an_effect_is_plain():
    told = [{"x": [0.5, 3, 0.25, 4]}, {"coding": [0.125, 9]}, {"x": 0.5}, {}]
    assert _effect(told).changes["x"].loss_at == 4
    assert _effect(told).shifts == {"coding": (0.125, 9)}
