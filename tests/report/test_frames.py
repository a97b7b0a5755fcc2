"""Reading frames: base by base as the definition says, and constant within a gene."""

from __future__ import annotations

import numpy as np
import pytest

from genoformer.annotation import CodingSequence, coding_frame_labels
from genoformer.report.frames import FRAMES, to_frames


def naive(values, places):
    found = np.zeros((len(values), 6))
    for k, place in enumerate(places):
        for c in range(3):
            found[k, (place - c) % 3] = values[k, 1 + c]
            found[k, 3 + (place + c) % 3] = values[k, 4 + c]
    return found


@pytest.mark.parametrize("first", [0, 1, 5])
def test_as_defined(first):
    values = np.random.default_rng(0).random((20, 7))
    places = np.arange(first, first + 20)
    assert np.array_equal(to_frames(values, places), naive(values, places))
    assert to_frames(values[:0], places[:0]).shape == (0, len(FRAMES))


@pytest.mark.parametrize(("start", "strand"), [(0, 1), (1, 1), (2, -1), (7, -1)])
def test_a_gene_stays_in_one_frame(start, strand):
    labels = coding_frame_labels(60, [CodingSequence("x", strand, ((start, start + 30),))]).frames
    frames = to_frames(np.eye(7)[labels], np.arange(60))[start : start + 30]
    expected = start % 3 if strand > 0 else 3 + (start + 2) % 3
    assert (frames.argmax(axis=1) == expected).all()
    assert (frames.max(axis=1) == 1).all()
