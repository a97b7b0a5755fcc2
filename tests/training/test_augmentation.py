"""Errors of reading: what is left keeps its label, both strands see the same, and there are as many as was asked."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tiny import made_up_genome, random_bases

from genoformer.tokens import PAD, encode, reverse_complement
from genoformer.tracks import CODING_FRAME, IGNORED
from genoformer.training.augmentation import (
    FRAME_SIDES,
    MIRRORED_STRANDS,
    NOTHING,
    STRAND_SIDES,
    ErrorModel,
    Errors,
    opposite,
    run_lengths,
    spare_bases,
)
from genoformer.training.examples import Genome, draw_batch


def genome(genes: int = 10, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    bases, places = made_up_genome(genes, seed=seed)
    frames = np.zeros(len(bases), dtype=np.uint8)
    for start, end, strand in places:
        codon = np.resize(np.array([1, 2, 3], dtype=np.uint8), end - start)
        frames[start:end] = codon if strand == 1 else codon[::-1] + 3
    return encode(bases), frames


def label_between(left: int, right: int, *, plus: set[int], minus: set[int]) -> int:
    """Say in words what `Errors.carry` says in arrays."""
    if left in plus and right in minus:
        return IGNORED
    if left in plus:
        return left
    if right in minus:
        return right
    return IGNORED if IGNORED in (left, right) else 0


def walked(errors: Errors, labels: np.ndarray, plus: set[int], minus: set[int]) -> tuple[list[int], list[int]]:
    """Read base by base."""
    codes, carried = [], []
    around = [IGNORED, *labels.tolist(), IGNORED]
    for place in range(len(labels) + 1):
        if errors.inserted[place] != NOTHING:
            codes.append(int(errors.inserted[place]))
            carried.append(label_between(around[place], around[place + 1], plus=plus, minus=minus))
        if place < len(labels) and errors.kept[place]:
            codes.append(int(errors.letters[place]))
            carried.append(around[place + 1])
    return codes, carried


@st.composite
def labeled(draw: st.DrawFn) -> tuple[np.ndarray, np.ndarray, Errors]:
    length = draw(st.integers(0, 30))
    rng = np.random.default_rng(draw(st.integers(0, 10_000)))
    codes = rng.integers(0, 5, length).astype(np.uint8)
    labels = rng.choice(np.array([0, 1, 2, 3, 4, 5, 6, IGNORED], dtype=np.uint8), length)
    rate = draw(st.sampled_from([0.0, 0.1, 0.6, 1.0]))
    inserted = np.where(rng.random(length + 1) < rate, rng.integers(0, 4, length + 1), NOTHING).astype(np.uint8)
    return codes, labels, Errors(rng.integers(0, 5, length).astype(np.uint8), rng.random(length) >= rate, inserted)


@given(labeled())
def test_reading_is_that_of_a_walk(case: tuple[np.ndarray, np.ndarray, Errors]) -> None:
    _, labels, errors = case
    codes, carried = walked(errors, labels, {1, 2, 3}, {4, 5, 6})
    assert errors.read().tolist() == codes
    assert errors.carry(labels).tolist() == carried
    strands = np.array([0, 1, 1, 1, 2, 2, 2, *[IGNORED] * 249], dtype=np.uint8)[labels]
    assert errors.carry(strands, STRAND_SIDES).tolist() == walked(errors, strands, {1}, {2})[1]
    assert errors.read().dtype == errors.carry(labels).dtype == np.uint8


@given(labeled())
def test_lengths_add_up(case: tuple[np.ndarray, np.ndarray, Errors]) -> None:
    codes, labels, errors = case
    expected = len(codes) - int((~errors.kept).sum()) + int((errors.inserted != NOTHING).sum())
    assert len(errors.read()) == len(errors.carry(labels)) == expected


@given(labeled())
def test_the_opposite_strand_is_read_alike(case: tuple[np.ndarray, np.ndarray, Errors]) -> None:
    _, labels, errors = case
    there = errors.opposite()
    _, mirrored = opposite(errors.letters, labels)
    codes, carried = opposite(errors.read(), errors.carry(labels))
    assert np.array_equal(there.read(), codes)
    assert np.array_equal(there.carry(mirrored), carried)
    strands = np.where(labels < 3, labels, IGNORED).astype(np.uint8)
    turned = there.carry(MIRRORED_STRANDS[strands[::-1]], STRAND_SIDES)
    assert np.array_equal(turned, MIRRORED_STRANDS[errors.carry(strands, STRAND_SIDES)[::-1]])


@pytest.mark.parametrize("homopolymers", [0.0, 1.0])
def test_no_errors_change_nothing(homopolymers: float) -> None:
    codes, frames = genome()
    errors = ErrorModel((0.0,), homopolymers=homopolymers).draw(codes, 0.0, np.random.default_rng(0))
    assert np.array_equal(errors.read(), codes)
    assert np.array_equal(errors.carry(frames), frames)


@pytest.mark.parametrize("homopolymers", [0.0, 0.7])
@pytest.mark.parametrize("rate", [0.01, 0.05, 0.15])
def test_there_are_as_many_errors_as_asked_for(rate: float, homopolymers: float) -> None:
    """Each kind a third; within five standard errors of 300,000 bases."""
    codes = encode(random_bases(300_000))
    errors = ErrorModel((rate,), homopolymers=homopolymers).draw(codes, rate, np.random.default_rng(1))
    counts = {
        "deleted": int((~errors.kept).sum()),
        "inserted": int((errors.inserted != NOTHING).sum()),
        "substituted": int((errors.letters != codes).sum()),
    }
    for count in counts.values():
        assert abs(count - len(codes) * rate / 3) < 5 * math.sqrt(len(codes) * rate / 3)
    assert abs(sum(counts.values()) - len(codes) * rate) < 5 * math.sqrt(len(codes) * rate)
    other = (errors.letters - codes.astype(int))[errors.letters != codes] % 4
    assert np.bincount(other, minlength=4)[1:].min() > 0.3 * counts["substituted"]
    assert set(errors.inserted.tolist()) == {0, 1, 2, 3, NOTHING}


def test_indels_prefer_homopolymers_when_told() -> None:
    codes = encode(b"ACGTACGTAAAAAAAA" * 5_000)
    runs = run_lengths(codes)
    assert set(runs[4:16]) == {1, 9}  # the last base before a unit is an A, as is the first of the next
    model = ErrorModel((0.06,), homopolymers=1.0)
    errors = model.draw(codes, 0.06, np.random.default_rng(2))
    gone = ~errors.kept
    assert gone[runs > 1].mean() > 5 * gone[runs == 1].mean()
    added = errors.inserted[1:]
    in_runs = (added != NOTHING) & (runs > 1)
    assert (added[in_runs] == codes[in_runs]).mean() > 0.8
    substituted = errors.letters != codes
    assert substituted[runs > 1].mean() == pytest.approx(0.02, rel=0.15)


def test_unknown_bases_stay_unknown() -> None:
    codes = np.full(5_000, 4, dtype=np.uint8)
    errors = ErrorModel((0.3,)).draw(codes, 0.3, np.random.default_rng(0))
    assert (errors.letters == 4).all()


@pytest.mark.parametrize("codes", [b"", b"A", b"AACCCG"])
def test_runs(codes: bytes) -> None:
    expected = {b"": [], b"A": [1], b"AACCCG": [2, 2, 3, 3, 3, 1]}[codes]
    assert run_lengths(encode(codes)).tolist() == expected


@pytest.mark.parametrize("rate", [0.02, 0.1])
def test_a_surviving_base_keeps_its_codon_position_in_the_true_gene(rate: float) -> None:
    codes, frames = genome(30)
    errors = ErrorModel((rate,)).draw(codes, rate, np.random.default_rng(3))
    places = errors.carry(np.arange(len(codes)) % 200, np.zeros(256, dtype=np.int8))  # a label that tells the place
    carried = errors.carry(frames)
    is_insertion = np.zeros(2 * len(codes) + 1, dtype=bool)
    is_insertion[0::2] = errors.inserted != NOTHING
    present = is_insertion.copy()
    present[1::2] = errors.kept
    true = np.flatnonzero(~is_insertion[present])
    assert np.array_equal(places[true], (np.arange(len(codes)) % 200)[errors.kept])
    assert np.array_equal(carried[true], frames[errors.kept])
    inner = np.isin(frames, [1, 2, 3])
    steps = np.diff(carried.astype(int))[np.isin(carried[:-1], [1, 2, 3]) & np.isin(carried[1:], [1, 2, 3])] % 3
    assert inner.any()
    assert (steps == 0).any()  # an insertion repeats the position of the base before it
    assert (steps == 2).any()  # a deletion skips one
    assert (steps == 1).mean() > 1 - 2 * rate


def test_rates_come_in_their_shares() -> None:
    rng = np.random.default_rng(0)
    drawn = [ErrorModel((0.0, 0.01, 0.05), (2, 1, 1)).draw_rate(rng) for _ in range(4_000)]
    assert np.mean(np.array(drawn) == 0.0) == pytest.approx(0.5, abs=0.04)
    assert np.mean(np.array(drawn) == 0.05) == pytest.approx(0.25, abs=0.04)
    evenly = [ErrorModel((0.0, 0.01)).draw_rate(rng) for _ in range(2_000)]
    assert np.mean(evenly) == pytest.approx(0.005, abs=6e-4)


# ---- windows


def made_up(genes: int = 40) -> Genome:
    codes, frames = genome(genes)
    return Genome("g", codes, frames, frames, np.array([0, len(codes)]), 11, 1.0, "", "")


def draw(seed: int = 0, **options: object) -> tuple[np.ndarray, ...]:
    given: dict[str, object] = {"window": 600, "count": 12, "length_power": 1.0, **options}
    batch = draw_batch([made_up()], rng=np.random.default_rng(seed), **given)  # type: ignore[arg-type]
    return batch.codes, batch.labels[CODING_FRAME.name], batch.genetic_codes


def test_windows_of_noisy_reads_are_full_and_come_from_the_seed() -> None:
    noisy = ErrorModel((0.0, 0.05, 0.1), homopolymers=0.5)
    one, two, other = draw(4, errors=noisy), draw(4, errors=noisy), draw(5, errors=noisy)
    assert all(np.array_equal(a, b) for a, b in zip(one, two, strict=True))
    assert not np.array_equal(one[0], other[0])
    assert (one[0] != PAD).all()
    clean, silent = draw(4), draw(4, errors=ErrorModel((0.0,)))
    assert all(np.array_equal(a, b) for a, b in zip(clean, silent, strict=True))


def test_reads_of_short_sequences_are_padded_or_cut() -> None:
    noisy, window = ErrorModel((0.2,)), len(made_up().codes)
    codes, labels, _ = draw(window=window, count=8, errors=noisy)
    lengths = (codes != PAD).sum(axis=1)
    assert lengths.min() < window  # more deletions than insertions
    assert lengths.max() == window
    assert (labels[codes == PAD] == IGNORED).all()


def test_both_strands_are_read_with_their_own_classes() -> None:
    """Codons in a row of class 1, 2, 3 translate without stops on either strand, errors aside."""
    codes, labels, _ = draw(count=40, errors=ErrorModel((0.03,)))
    for bases, frames in ((codes, labels), opposite(codes.ravel(), labels.ravel())):
        bases, frames = bases.ravel(), frames.ravel()
        codon = (frames[:-2] == 1) & (frames[1:-1] == 2) & (frames[2:] == 3)
        first, second, third = (bases[i : len(bases) - 2 + i][codon] for i in range(3))
        taa, tag, tga = ((first == 3) & (second == b) & (third == c) for b, c in ((0, 0), (0, 2), (2, 0)))
        stops = (taa | tag | tga).mean()
        assert codon.sum() > 1_000
        assert stops < 0.03  # a gene has one in about 70 codons, at its end; of random codons it is one in 21


def test_frames_have_a_side() -> None:
    assert FRAME_SIDES[:8].tolist() == [0, 1, 1, 1, -1, -1, -1, 0]
    assert [FRAME_SIDES[c] for c in CODING_FRAME.reverse_complement] == (-FRAME_SIDES[:7]).tolist()
    assert spare_bases(5_000, 0.0) == 0
    codes, frames = genome(1)
    assert np.array_equal(opposite(codes, frames)[0], reverse_complement(codes))
