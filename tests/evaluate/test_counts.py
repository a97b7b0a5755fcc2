"""Scores against counts made base by base."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from genoformer.evaluate import confusion, pooled_score, strand_probabilities
from genoformer.evaluate.counts import class_scores, matthews
from genoformer.tracks import CODING_FRAME, IGNORED

PAIRS = st.lists(st.tuples(st.sampled_from([0, 1, 2, IGNORED]), st.integers(0, 2)), max_size=60)


@given(PAIRS)
def test_confusion_and_score_are_those_of_a_count(pairs: list[tuple[int, int]]) -> None:
    truth = np.array([t for t, _ in pairs], dtype=np.uint8)
    called = np.array([c for _, c in pairs], dtype=np.int64)
    matrix = confusion(truth, called, 3)
    assert matrix.shape == (3, 3)
    for t in range(3):
        for c in range(3):
            assert matrix[t, c] == pairs.count((t, c))
    counted = [(t, c) for t, c in pairs if t != IGNORED]
    right = sum(t == c != 0 for t, c in counted)
    calls, genes = sum(c != 0 for _, c in counted), sum(t != 0 for t, _ in counted)
    score = pooled_score(matrix)
    assert score.precision == (pytest.approx(right / calls) if calls else pytest.approx(math.nan, nan_ok=True))
    assert score.recall == (pytest.approx(right / genes) if genes else pytest.approx(math.nan, nan_ok=True))
    if right:
        harmonic = 2 / (1 / score.precision + 1 / score.recall)
        assert score.f1 == pytest.approx(harmonic)
    elif calls + genes:
        assert score.f1 == 0
    else:
        assert math.isnan(score.f1)


def test_the_wrong_strand_is_wrong() -> None:
    truth = np.array([1, 1, 2, 2, 0, IGNORED])
    assert pooled_score(confusion(truth, np.array([1, 1, 2, 2, 0, 1]), 3)) == (1, 1, 1)
    assert pooled_score(confusion(truth, np.array([2, 2, 1, 1, 0, 1]), 3)) == (0, 0, 0)
    assert pooled_score(confusion(truth, np.array([1, 0, 0, 0, 1, 1]), 3)) == (0.5, 0.25, pytest.approx(1 / 3))


def test_matrices_of_parts_add_up() -> None:
    rng = np.random.default_rng(0)
    truth, called = rng.integers(0, 3, 100).astype(np.uint8), rng.integers(0, 3, 100)
    parts = confusion(truth[:37], called[:37], 3) + confusion(truth[37:], called[37:], 3)
    assert np.array_equal(parts, confusion(truth, called, 3))


@pytest.mark.parametrize("dtype", [np.float16, np.float32])
def test_strands_are_sums_of_their_channels(dtype: type) -> None:
    values = np.random.default_rng(0).dirichlet(np.ones(7), size=20).astype(dtype)
    found = strand_probabilities(values)
    for column, sign in enumerate(["n", "+", "-"]):
        wanted = [i for i, name in enumerate(CODING_FRAME.channels) if name[0] == sign]
        np.testing.assert_allclose(found[:, column], values[:, wanted].astype(np.float32).sum(axis=1), rtol=1e-6)
    assert found.dtype == np.float32


def naive_matthews(truth: np.ndarray, called: np.ndarray, classes: int) -> float:
    """Correlation of the indicator matrices, summed over classes (Gorodkin 2004, eq. 3-6)."""
    x, y = np.eye(classes)[called], np.eye(classes)[truth]
    x, y = x - x.mean(axis=0), y - y.mean(axis=0)
    return float((x * y).sum() / np.sqrt((x * x).sum() * (y * y).sum()))


@pytest.mark.parametrize("classes", [2, 3, 7])
def test_matthews_is_a_correlation_of_indicators(classes: int) -> None:
    rng = np.random.default_rng(classes)
    truth = rng.integers(0, classes, 500)
    called = np.where(rng.random(500) < 0.6, truth, rng.integers(0, classes, 500))
    matrix = confusion(truth.astype(np.uint8), called, classes)
    assert matthews(matrix) == pytest.approx(naive_matthews(truth, called, classes), abs=1e-12)
    for index, score in enumerate(class_scores(matrix)):
        true, hit = truth == index, called == index
        assert (score.true, score.called) == (true.sum(), hit.sum())
        assert score.precision == pytest.approx((true & hit).sum() / hit.sum())
        assert score.recall == pytest.approx((true & hit).sum() / true.sum())
        assert score.mcc == pytest.approx(np.corrcoef(true, hit)[0, 1], abs=1e-12)


def test_scores_where_nothing_is_called_or_true() -> None:
    nothing_called = class_scores(np.array([[5, 0], [5, 0]]))[1]
    assert math.isnan(nothing_called.precision)
    assert nothing_called[1:4] == (0, 0, 0)
    nothing_true = class_scores(np.array([[5, 5], [0, 0]]))[1]
    assert nothing_true.precision == 0
    assert math.isnan(nothing_true.recall)
    assert math.isnan(nothing_true.mcc)
    assert matthews(np.diag([3, 4, 5])) == 1
