"""Agreement of predictions with an annotation, base by base."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from genoformer.tracks import IGNORED


class Score(NamedTuple):
    """Precision, recall and their harmonic mean, from 0 to 1; NaN where nothing was there to find."""

    precision: float
    recall: float
    f1: float


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


def pooled_score(matrix: np.ndarray) -> Score:
    """Score all classes but the first (none) together: right is a coding base called on its own strand."""
    right = float(np.trace(matrix[1:, 1:]))
    called, true = float(matrix[:, 1:].sum()), float(matrix[1:].sum())
    precision = right / called if called else float("nan")
    recall = right / true if true else float("nan")
    f1 = 2 * right / (called + true) if called + true else float("nan")
    return Score(precision, recall, f1)
