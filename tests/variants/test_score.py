"""Scores of variants against a twin that mutates the sequence, predicts both and compares base by base."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from tiny import Memory, random_bases, tiny_model

from genoformer.formats.sequences import open_sequences
from genoformer.formats.vcf import Variant
from genoformer.model.checkpoint import bundled_models, load_model
from genoformer.model.genoformer import Genoformer
from genoformer.model.strands import predict_values
from genoformer.predict import Settings
from genoformer.tokens import decode, encode, reverse_complement
from genoformer.tracks import CODING_FRAME, Track
from genoformer.variants.effects import align, groups_of, trimmed
from genoformer.variants.score import score_variants
from genoformer.variants.scoring import Scoring
from genoformer.variants.windows import cell_size, window_of

NAME = CODING_FRAME.name
LETTERS = "ACGT"
CLOSE = 2e-5  # float32, sums in another order


@pytest.fixture(scope="module")
def model() -> Genoformer:
    torch.manual_seed(0)
    return tiny_model(attention=("local", "performer"), inputs=("open-frames",))


def predicted(model: Genoformer, bases: str) -> np.ndarray:
    return predict_values(model, torch.from_numpy(encode(bases.encode()).copy())[None])[NAME][0].numpy()


def twin(model: Genoformer, bases: str, place: int, reference: str, alternate: str) -> dict[str, float]:
    """Mutate in Python; walk along both haplotypes; compare one base with one base."""
    assert bases[place : place + len(reference)] == reference
    mutated = bases[:place] + alternate + bases[place + len(reference) :]
    ours, theirs = predicted(model, bases), predicted(model, mutated)
    pairs = []
    left, right = trimmed(reference, alternate)
    for i in range(len(bases)):
        inside = place + left <= i < place + len(reference) - right
        if not inside or len(reference) == len(alternate):
            pairs.append((i, i if i < place + left or len(reference) == len(alternate)
                          else i + len(alternate) - len(reference)))  # fmt: skip
    found: dict[str, float] = {}
    for group, channels in (("plus", (1, 2, 3)), ("minus", (4, 5, 6))):
        changes = [float(sum(theirs[j][c] - ours[i][c] for c in channels)) for i, j in pairs]
        found[f"{group} gain"], found[f"{group} loss"] = max(0.0, *changes), max(0.0, *(-c for c in changes))
    found["shift"] = max(float(np.abs(theirs[j] - ours[i]).sum()) / 2 for i, j in pairs)
    return found


def flat(effect) -> dict[str, float]:
    found = {}
    for group in ("plus", "minus"):
        change = effect.changes[f"coding_{group}"]
        found[f"{group} gain"], found[f"{group} loss"] = change.gain, change.loss
    return found | {"shift": effect.shifts["coding"][0]}


CASES = [
    (60, "N1", "A"), (0, "N1", "C"), (0, "N1", "ACG"), (149, "N1", "G"), (149, "N1", "GTT"), (70, "N4", "N1"),
    (70, "N1", "N1ACGTA"), (40, "N3", "TTT"), (40, "N3", "GGGGGG"), (30, "N5", "CC"), (148, "N2", "T"), (0, "N3", "A"),
]  # fmt: skip


def variant_of(bases: str, case: tuple[int, str, str], name: str = "s") -> Variant:
    place, reference, alternate = case
    ref = bases[place : place + int(reference[1:])]
    alt = alternate.replace("N1", ref[0])
    if alt == ref:
        alt = {"A": "C", "C": "G", "G": "T", "T": "A"}[ref[0]] + alt[1:]
    return Variant(name, place, ref, alt)


@pytest.mark.parametrize("case", CASES)
def test_equals_the_twin_on_a_whole_sequence(model, case):
    bases = random_bases(150, 3).decode()
    variant = variant_of(bases, case)
    (score,) = score_variants([variant], Memory(("s", bases.encode())), model, scoring=Scoring(window=1000))
    expected = twin(model, bases, variant.start, variant.reference, variant.alternate)
    assert score.effect is not None
    assert flat(score.effect) == pytest.approx(expected, abs=CLOSE)


def test_equals_the_twin_in_windows_whatever_shares_them(model):
    """Any order, any batch, alone or together: a score depends on its place only."""
    bases = random_bases(700, 5).decode()
    memory = Memory(("s", bases.encode()))
    rng = np.random.default_rng(0)
    places = [*rng.integers(0, 690, 6).tolist(), 0, 699]
    variants = [variant_of(bases, (place, f"N{1 if place == 699 else 1 + place % 3}", "ACGT"[: 1 + place % 4]))
                for place in places]  # fmt: skip
    for cell in (1, 30):
        scoring = Scoring(window=100, cell=cell)
        together = list(score_variants(variants, memory, model, scoring=scoring))
        many = Scoring(window=100, cell=cell, settings=Settings(batch_size=7))
        backward = list(score_variants(variants[::-1], memory, model, scoring=many))[::-1]
        for variant, score, other in zip(variants, together, backward, strict=True):
            left, right = trimmed(variant.reference, variant.alternate)
            start, end = window_of(
                variant.start + left, variant.start + len(variant.reference) - right, 700, size=100,
                cell=cell_size(100, cell),
            )  # fmt: skip
            start, end = min(start, variant.start), max(end, variant.start + len(variant.reference))
            expected = twin(model, bases[start:end], variant.start - start, variant.reference, variant.alternate)
            assert flat(score.effect) == pytest.approx(expected, abs=CLOSE)
            assert flat(other.effect) == pytest.approx(expected, abs=CLOSE)


def test_places_are_where_the_change_is(model):
    bases = random_bases(150, 3).decode()
    variant = variant_of(bases, (70, "N1", "N1ACGTA"))
    mutated = bases[:71] + "ACGTA" + bases[71:]
    ours, theirs = predicted(model, bases), predicted(model, mutated)
    change = np.concatenate([theirs[:71], theirs[76:]])[:, 1:4].sum(axis=1) - ours[:, 1:4].sum(axis=1)
    (score,) = score_variants([variant], Memory(("s", bases.encode())), model)
    found = score.effect.changes["coding_plus"]
    assert (found.gain_at, found.loss_at) == (int(change.argmax()), int(change.argmin()))
    inserted = theirs[71:76]
    assert score.effect.inserted["coding_minus"] == pytest.approx(inserted[:, 4:7].sum(axis=1).max(), abs=CLOSE)
    assert score.effect.deleted == {}


def test_deleted_bases_are_told_by_the_reference(model):
    bases = random_bases(150, 3).decode()
    (score,) = score_variants([variant_of(bases, (70, "N4", "N1"))], Memory(("s", bases.encode())), model)
    expected = predicted(model, bases)[71:74, 1:4].sum(axis=1).max()
    assert score.effect.deleted["coding_plus"] == pytest.approx(expected, abs=CLOSE)
    assert score.effect.inserted == {}


@pytest.mark.parametrize("length", [400, 401, 402])
def test_the_opposite_strand_has_the_same_scores(model, length):
    """Fault 7, 39: plus and minus change places, at mirrored bases."""
    bases = random_bases(length, 8).decode()
    other = decode(reverse_complement(encode(bases.encode()))).decode()
    turn = str.maketrans("ACGT", "TGCA")
    rng = np.random.default_rng(1)
    variants = [variant_of(bases, (int(place), "N1", "A")) for place in (0, length - 1, *rng.integers(0, length, 30))]
    mirrored = [Variant("s", length - 1 - v.start, v.reference.translate(turn), v.alternate.translate(turn))
                for v in variants]  # fmt: skip
    scoring = Scoring(window=90, cell=11)
    here = score_variants(variants, Memory(("s", bases.encode())), model, scoring=scoring)
    there = score_variants(mirrored, Memory(("s", other.encode())), model, scoring=scoring)
    for one, two in zip(here, there, strict=True):
        for name, turned in (("coding_plus", "coding_minus"), ("coding_minus", "coding_plus")):
            a, b = one.effect.changes[name], two.effect.changes[turned]
            assert (a.gain, a.loss) == pytest.approx((b.gain, b.loss), abs=CLOSE)
            if a.gain > 1e-3:
                assert a.gain_at == length - 1 - b.gain_at


def test_case_and_u_do_not_matter(model):
    """Fault 1: soft-masked reference bases are no mismatch."""
    bases = random_bases(120, 4)
    upper = variant_of(bases.decode(), (50, "N1", "N1GA"))
    lower = Variant("s", 50, upper.reference.lower(), upper.alternate.lower())
    (one,) = score_variants([upper], Memory(("s", bases)), model)
    (two,) = score_variants([lower], Memory(("s", bases.lower().replace(b"t", b"u"))), model)
    assert one.reason == two.reason == ""
    assert flat(one.effect) == flat(two.effect)


def test_nothing_is_told_of_gaps(model):
    """As predict does not: here values are wrong on purpose wherever the reference has a gap."""
    bases = random_bases(60, 1).decode() + "N" * 80 + random_bases(60, 2).decode()
    for place in (59, 140, 20):
        (score,) = score_variants([variant_of(bases, (place, "N1", "A"))], Memory(("s", bases.encode())), model)
        for change in score.effect.changes.values():
            assert not 60 <= change.gain_at < 140
            assert not 60 <= change.loss_at < 140


def test_reasons(model):
    bases = b"ACGTNACGTR" + random_bases(90, 1)
    wanted = {
        Variant("x", 0, "A", "C"): "unknown_sequence",
        Variant("s", -1, "A", "C"): "beyond_sequence",
        Variant("s", 100, "A", "C"): "beyond_sequence",
        Variant("s", 99, "AA", "C"): "beyond_sequence",
        Variant("s", 0, "", "C"): "beyond_sequence",
        Variant("s", 0, "C", "A"): "reference_mismatch",
        Variant("s", 4, "N", "A"): "ambiguous",
        Variant("s", 9, "A", "G"): "ambiguous",
        Variant("s", 0, "A", "R"): "ambiguous",
        Variant("s", 0, "A", "N"): "ambiguous",
        Variant("s", 0, "A", "."): "no_alternate",
        Variant("s", 0, "A", "a"): "same",
        Variant("s", 0, "A", "*"): "overlapping_deletion",
        Variant("s", 0, "A", "<DUP:TANDEM>"): "symbolic",
        Variant("s", 0, "A", "]x:5]A"): "breakend",
        Variant("s", 0, "A", "A" * 21): "too_long",
        Variant("s", 0, "A", "A" * 20): "",
    }
    scores = list(score_variants(wanted, Memory(("s", bases)), model, scoring=Scoring(window=40)))
    assert {score.variant: score.reason for score in scores} == wanted
    assert [score.effect is None for score in scores] == [bool(why) for why in wanted.values()]


def test_a_stop_gained_shows_at_its_gene():
    """With the bundled model: a stop early in a gene of phage lambda is a loss there."""
    if "prokaryote-genes" not in bundled_models():
        pytest.skip("the bundled model is not there")
    lambda_fa = Path(__file__).resolve().parents[2] / "data" / "lambda.fa.gz"
    sequences = open_sequences(lambda_fa)
    (record,) = sequences.records()
    start = 2835 + 3 * 60  # in gene B (2836-4437), which is long
    codon = record.bases[start : start + 3].decode()
    variant = Variant(record.name, start, codon, "TAA")
    (score,) = score_variants([variant], sequences, load_model(), scoring=Scoring(window=1500))
    change = score.effect.changes["coding_plus"]
    assert change.loss > 0.2
    assert abs(change.loss_at - start) < 200
    assert change.loss > 3 * score.effect.changes["coding_minus"].loss


@given(st.data())
def test_windows(data):
    """A window holds what changes, is as long as asked for, and lies mirrored on the opposite strand."""
    length = data.draw(st.integers(1, 300))
    size = data.draw(st.integers(1, 320))
    cell = data.draw(st.integers(1, size))
    place = data.draw(st.integers(0, length - 1))
    start, end = window_of(place, place + 1, length, size=size, cell=cell)
    assert 0 <= start <= place < end <= length
    if size >= length:
        assert (start, end) == (0, length)
        return
    assert size - 2 <= end - start <= size
    used = max(cell - (cell + 1) % 2, 1) if length % 2 else cell
    flank = (size - used) // 2
    assert place - start >= min(flank, place, length - size) or start == 0 or end == length
    other = window_of(length - 1 - place, length - place, length, size=size, cell=cell)
    assert other == (length - end, length - start)


@given(st.text("ACG", min_size=1, max_size=6), st.text("ACG", min_size=1, max_size=6), st.integers(0, 5))
def test_alignments_pair_the_same_bases(reference, alternate, place):
    length = place + len(reference) + 4
    ours = "T" * place + reference + "TTTT"
    theirs = "T" * place + alternate + "TTTT"
    found = align(place, reference, alternate, length=length)
    pairs = list(zip(found.reference.tolist(), found.alternate.tolist(), strict=True))
    assert pairs == sorted(set(pairs))
    if len(reference) == len(alternate):
        assert pairs == [(i, i) for i in range(length)]
    else:
        assert all(ours[i] == theirs[j] for i, j in pairs)
        assert len(pairs) + found.deleted.stop - found.deleted.start == length
        assert len(pairs) + found.inserted.stop - found.inserted.start == len(theirs)


def test_groups_of_other_tracks():
    track = Track("my-signal", "signal", ("a+", "b c"), "reads", (0, 1))
    assert [group.name for group in groups_of(track)] == ["my_signal_a_plus", "my_signal_b_c"]
    assert [group.channels for group in groups_of(track)] == [(0,), (1,)]
