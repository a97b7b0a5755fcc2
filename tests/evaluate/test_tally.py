"""Calibration and Brier score against loops over bases; intervals of what is known."""

from __future__ import annotations

import math

import numpy as np
import pytest

from genoformer.evaluate.intervals import Units, bootstrap, bootstrap_f1
from genoformer.evaluate.tally import CONFIDENCE_BINS, Tally
from genoformer.tracks import IGNORED


def sample(size: int = 3000) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    probabilities = rng.dirichlet(np.full(4, 0.3), size=size).T.astype(np.float32)
    truth = np.array([rng.choice(4, p=p / p.sum()) for p in probabilities.T.astype(float) ** 0.7], dtype=np.uint8)
    truth[rng.random(size) < 0.1] = IGNORED
    return truth, probabilities.argmax(axis=0), probabilities


def test_calibration_is_that_of_a_loop() -> None:
    truth, called, probabilities = sample()
    tally = Tally.of(truth, called, probabilities, classes=4)
    bins = [[] for _ in range(CONFIDENCE_BINS)]
    brier, bases = 0.0, 0
    for true, call, values in zip(truth, called, probabilities.T.astype(np.float64), strict=True):
        if true != IGNORED:
            bins[min(int(np.float32(values[call]) * CONFIDENCE_BINS), CONFIDENCE_BINS - 1)].append(
                (values[call], call == true)
            )
            brier += ((values - np.eye(4)[true]) ** 2).sum()
            bases += 1
    gaps = [len(b) / bases * abs(np.mean([c for c, _ in b]) - np.mean([r for _, r in b])) for b in bins if b]
    assert tally.bases == bases
    assert tally.calibration_error == pytest.approx(sum(gaps), abs=1e-6)
    assert tally.calibration_error > 0.02
    assert tally.brier_score == pytest.approx(brier / bases, abs=1e-6)
    assert tally.accuracy == pytest.approx(np.mean([r for b in bins for _, r in b]))


def test_sure_and_right_or_wrong() -> None:
    truth = np.array([0, 1, 2, 3], dtype=np.uint8)
    right, wrong = np.eye(4, dtype=np.float32), np.eye(4, dtype=np.float32)[:, [1, 2, 3, 0]]
    good = Tally.of(truth, right.argmax(axis=0), right, classes=4)
    bad = Tally.of(truth, wrong.argmax(axis=0), wrong, classes=4)
    assert (good.calibration_error, good.brier_score, good.accuracy) == (0, 0, 1)
    assert (bad.calibration_error, bad.brier_score, bad.accuracy) == (1, 2, 0)


@pytest.mark.parametrize("truth", [[], [IGNORED, IGNORED]])
def test_nothing_to_count(truth: list[int]) -> None:
    called = np.zeros(len(truth), dtype=np.int64)
    tally = Tally.of(np.array(truth, dtype=np.uint8), called, np.full((3, len(truth)), np.nan, np.float32), classes=3)
    assert tally.bases == 0
    assert all(math.isnan(value) for value in (tally.accuracy, tally.calibration_error, tally.brier_score))


def test_tallies_add_up_and_return_from_rows() -> None:
    truth, called, probabilities = sample()
    whole = Tally.of(truth, called, probabilities, classes=4)
    parts = Tally.empty(4)
    for start in range(0, len(truth), 701):
        part = slice(start, start + 701)
        parts += Tally.of(truth[part], called[part], probabilities[:, part], classes=4)
    assert np.array_equal(whole.matrix, parts.matrix)
    assert parts.brier == pytest.approx(whole.brier, rel=1e-6)
    back = Tally.from_row(whole.row(), classes=4)
    assert np.array_equal(back.matrix, whole.matrix)
    assert back.calibration_error == whole.calibration_error


def test_no_probabilities_no_calibration() -> None:
    tally = Tally.of(np.array([0, 1], dtype=np.uint8), np.array([0, 1]), None, classes=2)
    assert tally.accuracy == 1
    assert math.isnan(tally.calibration_error)


def test_intervals_of_a_mean_are_those_of_theory() -> None:
    rows = np.random.default_rng(0).normal(3, 1, size=(400, 1))
    (interval,) = bootstrap(np.hstack([rows, np.ones_like(rows)]), lambda row: [row[0] / row[1]])
    middle, error = rows.mean(), rows.std() / 20
    assert interval.low == pytest.approx(middle - 1.96 * error, abs=0.25 * error)
    assert interval.high == pytest.approx(middle + 1.96 * error, abs=0.25 * error)


def test_intervals_of_genes_hold_the_number_and_shrink() -> None:
    few, many = bootstrap_f1(90, 100, 110), bootstrap_f1(9000, 10_000, 11_000)
    for interval, value in zip(many, (0.9, 9 / 11, 2 * 0.9 * (9 / 11) / (0.9 + 9 / 11)), strict=True):
        assert interval.low < value < interval.high
    assert all(m.high - m.low < (f.high - f.low) / 5 for f, m in zip(few, many, strict=True))


def test_too_little_to_draw_from() -> None:
    assert all(math.isnan(value) for value in bootstrap(np.ones((1, 2)), lambda row: [row[0]])[0])
    assert all(math.isnan(value) for value in bootstrap_f1(0, 0, 1)[0])


def test_units_are_bounded_and_lose_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("genoformer.evaluate.intervals.MOST_UNITS", 8)
    units = Units()
    for value in range(101):
        units.add(np.array([float(value), 1.0]))
        assert len(units.rows) <= 8
    assert units.rows.sum(axis=0).tolist() == [5050, 101]
