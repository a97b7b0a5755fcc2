"""Scores that follow from counts: how many bases of each true class were called as which."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from genoformer.tracks import IGNORED

_NAN = float("nan")


class Score(NamedTuple):
    """Precision, recall and their harmonic mean, from 0 to 1; NaN where nothing was there to find."""

    precision: float
    recall: float
    f1: float


class ClassScore(NamedTuple):
    """Score of one class against all others; NaN where undefined: precision of nothing called, recall of nothing true.

    Attributes
    ----------
    mcc : Matthews correlation, -1 to 1; 0 where all or nothing was called, NaN where all or nothing is true
    true, called : int, bases
    """

    precision: float
    recall: float
    f1: float
    mcc: float
    true: int
    called: int


def strand_probabilities(frames: np.ndarray) -> np.ndarray:
    """Sum the classes of CODING_FRAME by strand: (bases, 7) -> (bases, 3): none, +, -."""
    frames = frames.astype(np.float32, copy=False)
    return np.stack([frames[:, 0], frames[:, 1:4].sum(axis=1), frames[:, 4:7].sum(axis=1)], axis=1)


def confusion(truth: np.ndarray, called: np.ndarray, classes: int) -> np.ndarray:
    """Count bases by true class (rows) and called class (columns); bases that are IGNORED in truth are left out.

    Parameters
    ----------
    truth, called : integer arrays, (bases,)

    Returns
    -------
    ndarray of int64, (classes, classes)
    """
    counted = truth != IGNORED
    index = truth[counted].astype(np.int64) * classes + called[counted]
    return np.bincount(index, minlength=classes * classes).reshape(classes, classes)


def score_of(right: float, called: float, true: float) -> Score:
    """Return precision, recall and F1 of so many right ones among those called and those true."""
    return Score(
        right / called if called else _NAN,
        right / true if true else _NAN,
        2 * right / (called + true) if called + true else _NAN,
    )


def pooled_score(matrix: np.ndarray) -> Score:
    """Score all classes but the first (none) together: right is a coding base called on its own strand."""
    right = float(np.trace(matrix[1:, 1:]))
    return score_of(right, float(matrix[:, 1:].sum()), float(matrix[1:].sum()))


def class_scores(matrix: np.ndarray) -> list[ClassScore]:
    """Score each class of a confusion matrix against the rest."""
    total = int(matrix.sum())
    scores = []
    for index in range(len(matrix)):
        right, true, called = int(matrix[index, index]), int(matrix[index].sum()), int(matrix[:, index].sum())
        two = np.array([[right, true - right], [called - right, total - true - called + right]], dtype=np.float64)
        scores.append(ClassScore(*score_of(right, called, true), matthews(two), true, called))
    return scores


def matthews(matrix: np.ndarray) -> float:
    """Return the Matthews correlation of a confusion matrix of two or more classes: R_K (Gorodkin 2004, eq. 8).

    0 where all was called one class, NaN where all is of one class in truth.
    """
    matrix = matrix.astype(np.float64)
    total, right = matrix.sum(), np.trace(matrix)
    true, called = matrix.sum(axis=1), matrix.sum(axis=0)
    spread_true, spread_called = total**2 - true @ true, total**2 - called @ called
    if spread_true <= 0:
        return _NAN
    if spread_called <= 0:
        return 0.0
    return float((right * total - true @ called) / np.sqrt(spread_true * spread_called))
