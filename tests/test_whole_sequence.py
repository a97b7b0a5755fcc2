"""Whole sequences: one context, the same values however it is computed, written and taken up again."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import ranks
import torch
from prediction_samples import FINE, MIXED, NAME, assert_same, joined
from tiny import Memory, random_bases, tiny_config, tiny_model, write_fasta

from genoformer.errors import ConfigError, InputError, ResourceError
from genoformer.model.checkpoint import load_model, save_model
from genoformer.model.genoformer import Genoformer
from genoformer.plan import make_plan
from genoformer.predict import Settings, predict, predict_plan, predict_to_store
from genoformer.regions import Region
from genoformer.store import Output, Shard, merge_shards, open_store, part_path
from genoformer.whole_sequence import predict_whole_to_store

SCRIPT = Path(__file__).with_name("whole_checks.py")
CUT = {"window": 100, "overlap": 24}


@pytest.fixture(scope="module")
def model() -> Genoformer:
    return tiny_model(attention=("local", "performer", "hybrid"), inputs=("open-frames",))


def run(sequences: Memory, model: Genoformer, *, settings: dict[str, Any] | None = None, **cut: Any) -> dict:
    """Predict whole sequences, streamed from 100 bases on."""
    plan = make_plan(sequences, whole=True, **{**CUT, **cut})
    return joined(list(predict_plan(plan, sequences, model, settings=Settings(**settings or {}))), sequences)


def at_once(sequences: Memory, model: Genoformer, **cut: Any) -> dict:
    """Predict with a window that holds any sequence."""
    return joined(list(predict(sequences, model, window=5000, overlap=24, settings=Settings(**cut))), sequences)


PENDING = Memory(*(record for record in MIXED.held if record[0] not in ("unknown", "empty")))


@pytest.mark.parametrize("settings", [{}, {"chunk_size": 7}, {"chunk_size": 13, "offload": True}, {"chunk_size": 0}])
def test_streamed_sequences_are_as_in_one_window(model: Genoformer, settings: dict[str, Any]) -> None:
    """Long and short ones, a gap, single N, lower case."""
    assert_same(run(PENDING, model, settings=settings), at_once(PENDING, model))


def test_one_strand_only(model: Genoformer) -> None:
    found = run(PENDING, model, settings={"strand_average": False, "chunk_size": 9})
    assert_same(found, at_once(PENDING, model, strand_average=False))


def test_other_windows_see_less(model: Genoformer) -> None:
    """What is compared above is not the same anyway."""
    whole = run(PENDING, model)["long"].astype(float)
    windows = joined(list(predict(PENDING, model, window=100, overlap=24)), PENDING)["long"].astype(float)
    assert np.abs(whole - windows).max() > 5 * FINE


@pytest.mark.parametrize("length", [101, 103, 260])
def test_circles_are_as_in_one_window(model: Genoformer, length: int) -> None:
    """Seen once, with half an overlap of them again on both sides; blocks may lie over their origin."""
    circle = Memory(("a", random_bases(length, 5)), ("b", b"ACGTTGCA" * 30))
    plan = make_plan(circle, window=5000, overlap=24, circular=("all",))
    expected = joined(list(predict_plan(plan, circle, model, settings=Settings())), circle)
    assert_same(run(circle, model, circular=("all",), settings={"chunk_size": 11}), expected)


def test_regions_have_the_values_of_the_whole(model: Genoformer) -> None:
    regions = [Region("long", 250, 300), Region("long", 20, 160), Region("short", 3, 9)]
    plan = make_plan(PENDING, whole=True, regions=regions, **CUT)
    whole = run(PENDING, model)
    found = list(predict_plan(plan, PENDING, model, settings=Settings(chunk_size=10)))
    assert sum(block.end - block.start for block in found) == 196
    for block in found:
        expected = whole[block.sequence][block.start : block.end].astype(float)
        np.testing.assert_allclose(block.values[NAME].astype(float), expected, rtol=0, atol=FINE)


def test_in_python_a_window_of_none_is_the_whole(model: Genoformer) -> None:
    sequences = Memory(("x", random_bases(120_000, 3)))
    blocks = list(predict(sequences, tiny_model(attention=("performer",)), window=None))
    assert [(block.start, block.end) for block in blocks] == [(0, 100_000), (100_000, 120_000)]


def test_a_model_that_sees_so_much_says_so() -> None:
    limited = tiny_model(attention=("linformer",), linformer_projection="learned", linformer_tokens=50)
    said = r"this model sees at most 150 bases at once, the longest sequence has 300; .* --whole-sequence"
    with pytest.raises(ConfigError, match=said):
        run(PENDING, limited)
    assert run(Memory(("x", random_bases(150))), limited)["x"].shape == (150, 7)


def test_numbers_that_are_none_and_changed_inputs_are_told(model: Genoformer) -> None:
    broken = tiny_model()
    with torch.no_grad():
        broken.heads[NAME].output.bias[2] = float("nan")
    with pytest.raises(ResourceError, match=r"memory: x:1-100: .* the model gave NaN at 100 of these bases"):
        run(Memory(("x", random_bases(250))), broken)
    plan = make_plan(PENDING, whole=True, **CUT)
    for other in (Memory(*PENDING.held[:2]), Memory(("long", random_bases(299)), *PENDING.held[1:])):
        with pytest.raises(InputError, match="has changed since it was planned"):
            list(predict_plan(plan, other, model, settings=Settings()))


# ---- stores


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory, model: Genoformer) -> Genoformer:
    folder = tmp_path_factory.mktemp("model")
    config = tiny_config(attention=("local", "performer", "hybrid"), inputs=("open-frames",))
    save_model(folder, model, config, name="tiny")
    return load_model(folder)


def write(
    path: Path,
    model: Genoformer,
    *,
    sequences: Memory = PENDING,
    report: Callable[[int], None] = lambda _: None,
    **options: Any,
) -> Path:
    plan = make_plan(sequences, whole=True, **CUT)
    settings = Settings(chunk_size=16)
    predict_whole_to_store(plan, sequences, model, Output(path, **options), settings=settings, report=report)
    return path


def values_of(path: Path) -> np.ndarray:
    with open_store(path) as store:
        return np.concatenate([store[name, 0 : len(bases)] for name, bases in PENDING.held])


def test_the_store_says_so_and_progress_adds_up(saved: Genoformer, tmp_path: Path) -> None:
    told: list[int] = []
    path = write(tmp_path / "x.h5", saved, report=told.append)
    with open_store(path) as store:
        assert store.metadata["identity"]["window"] == "whole sequence"
    bases = sum(len(bases) for _, bases in PENDING.held)
    assert sum(told) == bases
    assert len([count for count in told if count]) > 30  # also while a sequence is computed
    expected = at_once(PENDING, saved)
    found = values_of(path)
    np.testing.assert_allclose(found, np.concatenate([expected[name] for name, _ in PENDING.held]), rtol=0, atol=FINE)


def test_an_interrupted_run_goes_on(saved: Genoformer, tmp_path: Path) -> None:
    whole = values_of(write(tmp_path / "whole.h5", saved))
    path = tmp_path / "x.h5"
    for most in (60, 330, 420):
        seen = 0

        def stop(count: int, most: int = most) -> None:
            nonlocal seen
            seen += count
            if seen >= most:
                raise KeyboardInterrupt

        with pytest.raises(KeyboardInterrupt):
            write(path, saved, report=stop, resume=True)
    assert part_path(path).exists()
    told: list[int] = []
    write(path, saved, report=told.append, resume=True)
    assert told[0] > 0  # what is done is not done again
    assert sum(told) == len(whole)
    assert np.array_equal(values_of(path), whole, equal_nan=True)
    path.rename(part_path(path))
    with pytest.raises(ConfigError, match="window was 'whole sequence', now 100"):
        predict_to_store(make_plan(PENDING, **CUT), PENDING, saved, Output(path, resume=True), settings=Settings())


def test_shards_make_the_whole(saved: Genoformer, tmp_path: Path) -> None:
    """A sequence that a border cuts is computed for both shards."""
    whole = write(tmp_path / "whole.h5", saved)
    shards = [write(tmp_path / f"{n}.h5", saved, shard=Shard(n, 3)) for n in (1, 2, 3)]
    merge_shards(shards, tmp_path / "merged.h5")
    assert np.array_equal(values_of(tmp_path / "merged.h5"), values_of(whole), equal_nan=True)


# ---- processes


@pytest.mark.skipif(ranks.lack() is not None, reason=str(ranks.lack()))
@pytest.mark.parametrize(
    ("size", "pattern"),
    [(3, "blocks|inputs"), pytest.param(2, "", marks=pytest.mark.slow), pytest.param(3, "", marks=pytest.mark.slow)],
    ids=["3", "2-all", "3-all"],
)
def test_processes_write_what_one_does(size: int, pattern: str) -> None:
    """The checks of the script beside this one, in one group of processes."""
    ranks.check(SCRIPT, size, pattern)


# ---- memory

PEAK = """
import resource, sys
from genoformer.formats.sequences import open_sequences
from genoformer.plan import make_plan
from genoformer.predict import Settings, predict_plan
from tiny import tiny_model
import torch
torch.set_num_threads(1)
model = tiny_model(attention=("performer",), inputs=("open-frames",), width=64)
sequences = open_sequences(sys.argv[1])
plan = make_plan(sequences, whole=True)
for _ in predict_plan(plan, sequences, model, settings=Settings(offload=True, strand_average=False)):
    pass
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)
"""


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="ru_maxrss is in other units elsewhere")
def test_memory_does_not_follow_the_sequence(tmp_path: Path) -> None:
    """But for the sequence itself, a few bytes a base: tokens alone would be 85 bytes a base here."""
    peaks = []
    for length in (1_000_000, 4_000_000):
        path = write_fasta(tmp_path / f"{length}.fa", {"x": random_bases(length)})
        words = [sys.executable, "-c", PEAK, str(path)]
        environment = {"PYTHONPATH": str(Path(__file__).parent), "OMP_NUM_THREADS": "1", "PATH": ""}
        found = subprocess.run(words, capture_output=True, text=True, check=True, env=environment)
        peaks.append(1024 * json.loads(found.stdout))
    assert peaks[1] - peaks[0] < 10 * 3_000_000
