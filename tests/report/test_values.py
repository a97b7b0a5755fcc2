"""One pass over the values: against numpy on each sequence by itself, however slabs and sequences fall."""

from __future__ import annotations

import numpy as np
import pytest
from evaluation_samples import write_store
from report_samples import other_track

from genoformer.report import values as values_module
from genoformer.report.frames import to_frames
from genoformer.report.selection import select
from genoformer.report.values import CONFIDENCE_STEPS, ranges, read_values
from genoformer.store import open_store
from genoformer.tracks import CODING_FRAME


def random_values(seed=0, channels=7):
    rng = np.random.default_rng(seed)
    made = {}
    for name, length in {"a": 1, "b": 700, "empty": 0, "c": 33, "d": 5000, "e": 16, "f": 2}.items():
        array = rng.dirichlet(np.ones(channels), length).astype(np.float16).astype(np.float64)
        made[name] = array
    made["d"][100:900] = np.nan
    made["f"][:] = np.nan
    return made


def expected_bins(array, size):
    found = []
    for start in range(0, len(array), size):
        part = array[start : start + size]
        found.append(np.nanmean(part, axis=0) if not np.isnan(part).all() else np.full(array.shape[1], np.nan))
    return found


@pytest.mark.parametrize("slab", [1, 7, 64, 10**6])
@pytest.mark.parametrize("most", [3, 100])
def test_coding_frame(tmp_path, monkeypatch, slab, most):
    monkeypatch.setattr(values_module, "SLAB", slab)
    made = random_values()
    if slab == 1:
        made = {name: array[:300] for name, array in made.items()}
    with open_store(write_store(tmp_path / "x.h5", made)) as store:
        selection = select(store.sequences, channels=6, most=most)
        done = []
        found = read_values(store, CODING_FRAME, selection, report=done.append)
    assert sum(done) == sum(map(len, made.values()))
    bins = []
    for name in selection.names:
        bins += expected_bins(to_frames(made[name], np.arange(len(made[name]))), selection.bin_size)
    assert np.allclose(found.bins.means(), np.array(bins), atol=1e-6, equal_nan=True)
    known = {name: array[~np.isnan(array[:, 0])] for name, array in made.items()}
    assert found.predicted.tolist() == [len(array) for array in known.values()]
    coding = [int((array.argmax(axis=1) > 0).sum()) if len(array) else 0 for array in known.values()]
    assert found.coding.tolist() == coding
    together = np.concatenate(list(known.values()))
    assert found.likeliest.tolist() == np.bincount(together.argmax(axis=1), minlength=7).tolist()
    certainty = [array.max(axis=1).sum() if len(array) else 0 for array in known.values()]
    assert np.allclose(found.certainty, certainty, atol=1e-4)
    steps = np.minimum((together.max(axis=1).astype(np.float32) * CONFIDENCE_STEPS).astype(int), CONFIDENCE_STEPS - 1)
    assert found.confidence.tolist() == np.bincount(steps, minlength=CONFIDENCE_STEPS).tolist()


@pytest.mark.parametrize("slab", [13, 10**6])
def test_signals(tmp_path, monkeypatch, slab):
    monkeypatch.setattr(values_module, "SLAB", slab)
    track = other_track("signal", 2)
    made = {name: 10 * array - 3 for name, array in random_values(channels=2).items()}
    with open_store(write_store(tmp_path / "x.h5", made, track)) as store:
        selection = select(store.sequences, channels=6)
        found = read_values(store, track, selection)
        stored = {name: store[name].astype(np.float64) for name in made}
    size = selection.bin_size
    bins = [row for array in stored.values() for row in expected_bins(array, size)]
    assert np.allclose(found.bins.means(), np.array(bins), atol=1e-5, equal_nan=True)
    parts = [array[k : k + size] for array in stored.values() for k in range(0, len(array), size)]
    lows = np.array([np.where(np.isnan(part), np.inf, part).min(axis=0) for part in parts])
    highs = np.array([np.where(np.isnan(part), -np.inf, part).max(axis=0) for part in parts])
    assert np.array_equal(found.bins.low, lows.astype(np.float32))
    assert np.array_equal(found.bins.high, highs.astype(np.float32))
    together = np.concatenate([array[~np.isnan(array[:, 0])] for array in stored.values()])
    low, middle, high = found.quantiles(1, (0.0, 0.5, 1.0))
    assert (low, high) == (together[:, 1].min(), together[:, 1].max())
    assert middle == np.sort(together[:, 1])[-(-len(together) // 2) - 1]


def test_nothing_at_all(tmp_path):
    with open_store(write_store(tmp_path / "x.h5", {})) as store:
        found = read_values(store, CODING_FRAME, select(store.sequences, channels=6))
    assert found.bins.means().shape == (0, 6)
    assert not found.confidence.any()


def test_ranges():
    assert ranges(np.array([5, 1, 9]), np.array([2, 0, 3])).tolist() == [5, 6, 9, 10, 11]
    assert ranges(np.empty(0, int), np.empty(0, int)).tolist() == []
