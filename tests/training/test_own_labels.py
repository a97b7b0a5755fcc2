"""Labels of own tracks: they stay with their bases through every augmentation, and what teaches nothing is refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from own_track_samples import AMOUNT, LABELS, LETTER, PURINE, write_genomes
from tiny import random_bases, write_fasta

from genoformer.errors import GenoformerError, InputError
from genoformer.tokens import PAD, encode, reverse_complement
from genoformer.tracks import IGNORED, Track
from genoformer.training.augmentation import NOTHING, ErrorModel, opposite_labels
from genoformer.training.config import Sample
from genoformer.training.examples import Genome, draw_batch, load_genome
from genoformer.training.own_labels import OwnLabels, check_learnable, load_labels, signal_spread
from genoformer.training.recoding import Recoding

SIGNS = Track("signs", "class", ("none", "+", "-"), "probability", (0, 2, 1))


def labels_of(codes: np.ndarray) -> dict[str, np.ndarray]:
    """Return labels that follow from each base: its letter, and where it is A and T."""
    return {"letter": codes.copy(), "amount": np.stack([codes == 0, codes == 3], axis=1).astype(np.float32)}


# ---- laws


@given(st.binary(max_size=40).map(lambda b: np.frombuffer(b, dtype=np.uint8) % 4), st.integers(0, 99))
def test_labels_of_the_opposite_strand_are_those_of_its_bases(codes: np.ndarray, seed: int) -> None:
    turned = labels_of(reverse_complement(codes))
    for name, track in (("letter", LETTER), ("amount", AMOUNT)):
        found = opposite_labels(labels_of(codes)[name], track)
        assert np.array_equal(found, turned[name])
        assert np.array_equal(opposite_labels(found, track), labels_of(codes)[name])


@given(st.binary(max_size=40), st.integers(0, 99), st.sampled_from([0.0, 0.1, 0.3]))
def test_errors_and_strands_may_come_in_any_order(content: bytes, seed: int, rate: float) -> None:
    raw = np.frombuffer(content, dtype=np.uint8)
    codes, errors = raw % 4, ErrorModel((rate,), homopolymers=0.5).draw(raw % 4, rate, np.random.default_rng(seed))
    classes = np.where(raw > 250, IGNORED, raw % 3).astype(np.uint8)
    signal = np.stack([raw / 7, np.where(raw % 5 == 0, np.nan, raw)], axis=1).astype(np.float32)
    for labels, track in ((classes, SIGNS), (signal, AMOUNT)):
        one = opposite_labels(errors.carry_own(labels), track)
        two = errors.opposite().carry_own(opposite_labels(labels, track))
        assert np.array_equal(one, two, equal_nan=True)
        assert one.dtype == labels.dtype
        assert len(one) == len(errors.read())
    assert len(codes) == len(classes)


@given(st.binary(min_size=1, max_size=60), st.integers(0, 99))
def test_carried_labels_are_those_of_a_walk(content: bytes, seed: int) -> None:
    classes = np.frombuffer(content, dtype=np.uint8) % 3
    signal = np.stack([classes / 2, classes * 3], axis=1).astype(np.float32)
    errors = ErrorModel((0.3,)).draw(classes, 0.3, np.random.default_rng(seed))
    numbers: list[int] = []
    values: list[list[float]] = []
    for place in range(len(classes) + 1):
        if errors.inserted[place] != NOTHING:
            inner = 0 < place < len(classes) and classes[place - 1] == classes[place]
            numbers.append(int(classes[place]) if inner else IGNORED)
            values.append([np.nan, np.nan])
        if place < len(classes) and errors.kept[place]:
            numbers.append(int(classes[place]))
            values.append(signal[place].tolist())
    assert errors.carry_own(classes).tolist() == numbers
    assert np.array_equal(errors.carry_own(signal), np.array(values).reshape(-1, 2), equal_nan=True)


@pytest.mark.parametrize("rate", [0.0, 0.1])
def test_drawn_windows_have_the_labels_of_their_bases(rate: float) -> None:
    codes = encode(random_bases(900))
    own = {track.name: OwnLabels(track, labels_of(codes)[track.name], True, []) for track in (LETTER, AMOUNT)}
    blank = np.full(900, IGNORED, dtype=np.uint8)
    genome = Genome("g", codes, blank, blank, np.array([0, 70, 900]), 11, 1.0, "", "", own, recodable=False)
    batch = draw_batch(
        [genome], window=100, count=60, recoding=Recoding(1.0, 1.0), length_power=1.0, rng=np.random.default_rng(0),
        errors=ErrorModel((rate,)),
    )  # fmt: skip
    assert (batch.genetic_codes == 11).all()  # what has no genes is not rewritten
    letters, amounts, padding = batch.labels["letter"], batch.labels["amount"], batch.codes == PAD
    assert amounts.shape == (60, 100, 2)
    assert padding.any()
    assert (letters[padding] == IGNORED).all()
    assert np.isnan(amounts[padding]).all()
    known = letters != IGNORED
    differs = (letters != batch.codes)[known].mean()
    inserted = np.isnan(amounts[~padding]).any(axis=1).mean()
    if not rate:
        assert known[~padding].all()
        assert differs == inserted == 0
    else:  # substitutions keep the label of the true base; of insertions signals know nothing
        assert differs == pytest.approx(rate / 3, abs=0.02)
        assert inserted == pytest.approx(rate / 3, abs=0.02)
    there = known & ~np.isnan(amounts[..., 0])
    assert np.array_equal(amounts[there][:, 0] == 1, letters[there] == 0)
    assert np.array_equal(amounts[there][:, 1] == 1, letters[there] == 3)
    assert (there.sum(axis=1) > 0).all()


# ---- from files


def test_labels_of_a_genome(tmp_path: Path) -> None:
    write_genomes(tmp_path)
    genome = load_genome(Sample("a.fa", labels=LABELS), root=tmp_path, tracks=(PURINE, AMOUNT, LETTER))
    assert np.array_equal(genome.own["purine"].values, genome.codes % 2 == 0)
    assert np.array_equal(genome.own["amount"].values, np.stack([genome.codes == 0, genome.codes == 3], axis=1))
    assert genome.own["amount"].values.dtype == np.float32
    assert not genome.own["letter"].known
    assert (genome.own["letter"].values == IGNORED).all()
    assert genome.own["letter"].values.strides == (0,)  # of no size in memory
    assert (genome.frames == IGNORED).all()
    assert not genome.recodable
    yes = int((genome.codes % 2 == 0).sum())
    counted, left_out = genome.own["purine"].notes
    assert counted == f"bases of {genome.length - yes:,} no, {yes:,} yes"
    assert "2 of its sequences, with " in left_out  # those of the other genome
    assert genome.own["letter"].notes == ["no labels given"]
    assert genome.dropped == ""
    other = load_genome(Sample("a.fa", labels={"purine": "purine.bed"}), root=tmp_path, tracks=(PURINE,))
    assert other.digest != genome.digest


def test_sequences_without_a_line_are_counted(tmp_path: Path) -> None:
    (tmp_path / "x.bed").write_text("one\t3\t5\n")
    (tmp_path / "x.bg").write_text("one\t3\t5\t2\n")
    lengths = {"one": 9, "two": 4, "three": 0}
    own = load_labels(PURINE, "x.bed", lengths, root=tmp_path, sequences="x.fa")
    assert own.notes == ["bases of 11 no, 2 yes", "2 of 3 sequences are no throughout"]
    one = Track("one", "signal", ("x",))
    own = load_labels(one, "x.bg", lengths, root=tmp_path, sequences="x.fa")
    assert own.notes == ["bases with a value: 2 x", "2 of 3 sequences have no value"]
    assert np.array_equal(own.values[:, 0], [np.nan] * 3 + [2, 2] + [np.nan] * 8, equal_nan=True)


@pytest.mark.parametrize(
    ("labels", "content", "word"),
    [
        ({"purine": "x.bed"}, None, r"x\.bed: no such file; label paths are relative to"),
        ({"purine": "x.bed"}, "", "names no sequence, and none of these is in"),
        ({"purine": "x.bed"}, "chr9\t1\t2\n", "names 'chr9', and none of these is in"),
        ({"purine": "x.bed"}, "s\t40\t61\n", "does not lie within the 60 bases"),
        ({"purine": "x.bed"}, "s\t4\t6\tmaybe\n", "'maybe' in column 4 is no class"),
        ({"purine": {"maybe": "x.bed"}}, "s\t4\t6\n", "has no channel 'maybe'"),
        ({"amount": "x.bed"}, "s\t4\t6\t1\n", "has the channels of A, of T; give a file for each"),
        ({"amount": {"of A": "x.bed"}}, "s\t4\t6\tnan\n", "must be a finite number"),
        ({"amount": {"of A": "x.bed"}}, "s\t4\t6\t1e6\n", "values up to 1e.06, and a store holds 65504"),
    ],
)
def test_files_that_do_not_fit_are_refused(tmp_path: Path, labels: Any, content: str | None, word: str) -> None:
    write_fasta(tmp_path / "x.fa", {"s": random_bases(60)})
    if content is not None:
        (tmp_path / "x.bed").write_text(content)
    with pytest.raises(GenoformerError, match=word) as caught:
        load_genome(Sample("x.fa", labels=labels), root=tmp_path, tracks=(PURINE, AMOUNT))
    assert "\n" not in str(caught.value)
    assert "x.bed" in str(caught.value) or "maybe" in str(caught.value)


def test_names_must_tell_sequences_apart_and_bases_must_be_there(tmp_path: Path) -> None:
    (tmp_path / "x.fa").write_text(">s\nACGT\n>s\nGGCA\n")
    (tmp_path / "x.bed").write_text("s\t0\t1\n")
    with pytest.raises(InputError, match=r"x\.fa: several sequences have one name"):
        load_genome(Sample("x.fa", labels={"purine": "x.bed"}), root=tmp_path, tracks=(PURINE,))
    (tmp_path / "x.fa").write_text(">s\n")
    with pytest.raises(InputError, match=r"x\.fa: has no bases"):
        load_genome(Sample("x.fa", labels={"purine": "x.bed"}), root=tmp_path, tracks=(PURINE,))


# ---- what can be learned


def own(track: Track, *values: Any) -> list[OwnLabels]:
    kind = np.uint8 if track.kind == "class" else np.float32
    return [OwnLabels(track, np.array(array, dtype=kind), known=True, notes=[]) for array in values]


def test_what_teaches_nothing_is_refused() -> None:
    with pytest.raises(InputError, match="'purine': no sample to train on has labels of it"):
        check_learnable([OwnLabels(PURINE, np.full(3, IGNORED), known=False, notes=[])])
    with pytest.raises(InputError, match="of another class than 'no', so that there is nothing to learn"):
        check_learnable(own(PURINE, [0, 0, IGNORED], [0]))
    with pytest.raises(InputError, match="nothing to learn"):
        check_learnable(own(PURINE, [IGNORED]))
    with pytest.raises(InputError, match="channel 'of T' has one value only"):
        check_learnable(own(AMOUNT, [[1, 5], [2, 5]], [[3, np.nan]]))
    with pytest.raises(InputError, match="channel 'of A' has no value"):
        check_learnable(own(AMOUNT, [[np.nan, 5], [np.nan, 6]]))
    assert check_learnable(own(PURINE, [0], [1])) == []
    assert check_learnable(own(AMOUNT, [[1, 5]], [[2, 4]])) == []
    assert check_learnable(own(LETTER, [0, 2])) == ["track 'letter': no base to train on is C, T"]


def test_the_spread_of_a_signal_is_that_of_all_genomes(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(0)
    parts = [rng.normal(1e4, 2, (50, 2)), rng.normal(-3, 1, (70, 2))]
    parts[0][::3, 1] = np.nan
    monkeypatch.setattr("genoformer.training.own_labels._STRETCH", 9)
    mean, spread = signal_spread(own(AMOUNT, *parts))
    everything = np.concatenate(parts).astype(np.float32).astype(np.float64)
    assert mean == pytest.approx(np.nanmean(everything, axis=0))
    assert spread == pytest.approx(np.nanstd(everything, axis=0))
