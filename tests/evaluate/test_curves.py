"""Average precision, AUROC and curves from histograms, against those of sorted probabilities."""

from __future__ import annotations

import math

import numpy as np
import pytest

from genoformer.evaluate.curves import BINS, Histogram


def naive_average_precision(probabilities: np.ndarray, is_class: np.ndarray) -> float:
    """Sum of precision times step in recall over distinct thresholds."""
    total, before = 0.0, 0.0
    for threshold in sorted(set(probabilities.tolist()), reverse=True):
        above = probabilities >= threshold
        recall = (above & is_class).sum() / is_class.sum()
        total += (recall - before) * (above & is_class).sum() / above.sum()
        before = recall
    return total


def naive_auroc(probabilities: np.ndarray, is_class: np.ndarray) -> float:
    pairs = probabilities[is_class][:, None] - probabilities[~is_class]
    return float((pairs > 0).mean() + (pairs == 0).mean() / 2)


def sample(seed: int, levels: int, size: int = 400) -> tuple[np.ndarray, np.ndarray]:
    """Probabilities of three classes on a grid that bins tell apart, with ties."""
    rng = np.random.default_rng(seed)
    truth = rng.integers(0, 3, size)
    values = rng.integers(0, levels, (3, size)) + levels * 0.4 * (truth == np.arange(3)[:, None])
    return (np.minimum(values // 1, levels - 1) / (levels - 1)).astype(np.float32), truth.astype(np.uint8)


@pytest.mark.parametrize("levels", [2, 5, 101, 10_001])
def test_numbers_are_those_of_sorted_probabilities(levels: int) -> None:
    probabilities, truth = sample(levels, levels)
    histogram = Histogram(3)
    histogram.add(probabilities, truth)
    for index in range(3):
        is_class = truth == index
        assert histogram.average_precision(index) == pytest.approx(
            naive_average_precision(probabilities[index], is_class), abs=1e-12
        )
        assert histogram.auroc(index) == pytest.approx(naive_auroc(probabilities[index], is_class), abs=1e-12)
        curve = histogram.curve(index)
        np.testing.assert_allclose(curve.threshold, np.unique(probabilities[index])[::-1], atol=1 / BINS)
        for place in (0, len(curve.recall) // 2, -1):
            above = probabilities[index] >= curve.threshold[place] - 1 / BINS
            assert curve.precision[place] == pytest.approx((above & is_class).sum() / above.sum())
            assert curve.recall[place] == pytest.approx((above & is_class).sum() / is_class.sum())
            assert curve.false_positive_rate[place] == pytest.approx((above & ~is_class).sum() / (~is_class).sum())


def test_any_probabilities_to_the_width_of_a_bin() -> None:
    rng = np.random.default_rng(0)
    probabilities = rng.random((1, 5000), dtype=np.float32)
    truth = np.where(rng.random(5000) < probabilities[0], 0, 1).astype(np.uint8)
    histogram = Histogram(1)
    histogram.add(probabilities, truth)
    assert histogram.auroc(0) == pytest.approx(naive_auroc(probabilities[0], truth == 0), abs=1e-4)
    wanted = naive_average_precision(probabilities[0], truth == 0)
    assert histogram.average_precision(0) == pytest.approx(wanted, abs=1e-4)


def test_parts_add_up_however_they_are_cut() -> None:
    probabilities, truth = sample(0, 1001, size=150_000)
    whole, first, second = Histogram(3), Histogram(3), Histogram(3)
    whole.add(probabilities, truth)
    first.add(probabilities[:, :70_001], truth[:70_001])
    for start in range(70_001, 150_000, 9_999):
        second.add(probabilities[:, start : start + 9_999], truth[start : start + 9_999])
    first += second
    assert np.array_equal(whole.counts, first.counts)
    assert whole.counts.sum() == 3 * 150_000


def test_perfect_constant_and_missing_classes() -> None:
    histogram = Histogram(3)
    histogram.add(np.eye(3, dtype=np.float32)[:, [0, 0, 1]], np.array([0, 0, 1], dtype=np.uint8))
    assert histogram.average_precision(0) == histogram.auroc(0) == 1
    assert math.isnan(histogram.average_precision(2))
    assert math.isnan(histogram.auroc(2))
    assert len(histogram.curve(2).recall) == 0
    constant = Histogram(2)
    constant.add(np.full((2, 10), 0.5, dtype=np.float32), np.array([0] * 3 + [1] * 7, dtype=np.uint8))
    assert constant.average_precision(0) == pytest.approx(0.3)
    assert constant.auroc(0) == 0.5
    empty = Histogram(2)
    empty.add(np.empty((2, 0), dtype=np.float32), np.empty(0, dtype=np.uint8))
    assert math.isnan(empty.average_precision(0))
