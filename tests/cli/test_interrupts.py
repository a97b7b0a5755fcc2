"""Signals: the first finishes a block and says how to go on, the second ends at once; what was done is kept."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import textwrap
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest
from samples import bases, fasta

from genoformer.cli.interrupts import finishing
from genoformer.store import open_store

SLOW = """
    import signal, sys, time
    signal.signal(signal.SIGINT, signal.default_int_handler)  # in background jobs it would be ignored
    import genoformer.cli.progress as progress
    progress.LOG_SECONDS = 0
    import genoformer.predict, genoformer.training.run
    module, name = sys.modules[{module!r}], {name!r}
    computed, calls = getattr(module, name), []

    def slow(*arguments, **options):
        calls.append(1)
        time.sleep({seconds} if len(calls) > 1 else 0)
        return computed(*arguments, **options)

    setattr(module, name, slow)
    from genoformer.cli import main
    main()
"""
PREDICT = {"module": "genoformer.predict", "name": "predict_values"}
TRAIN = {"module": "genoformer.training.run", "name": "train_step"}


@contextmanager
def started(slow: dict[str, str], seconds: float, *arguments: object) -> Iterator[subprocess.Popen]:
    """Run a command in a process of its own, whose computations but the first take longer."""
    code = textwrap.dedent(SLOW.format(**slow, seconds=seconds))
    words = [sys.executable, "-c", code, *map(str, arguments)]
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    with subprocess.Popen(words, stderr=subprocess.PIPE, text=True, env=environment) as process:
        try:
            yield process
        finally:
            process.kill()


def read_until(process: subprocess.Popen, words: str) -> list[str]:
    """Read lines of stderr up to one with these words."""
    lines: list[str] = []
    for line in process.stderr:
        lines.append(line.rstrip("\n"))
        if words in line:
            return lines
    raise AssertionError("\n".join(lines))


def values_of(path: Path) -> np.ndarray:
    with open_store(path) as store:
        return store["a"]


@pytest.fixture
def words(tmp_path: Path, tiny: Path) -> list[object]:
    path = fasta(tmp_path / "x.fa", a=bases(3000))
    return ["predict", path, "-o", tmp_path / "x.h5", "--model", tiny, "--window", 300, "--overlap", 30,
            "--genetic-code", 11, "--threads", 1]  # fmt: skip


@pytest.mark.parametrize(
    "number", [signal.SIGTERM, pytest.param(signal.SIGINT, marks=pytest.mark.slow)], ids=["SIGTERM", "SIGINT"]
)
def test_a_signal_finishes_the_block_and_says_how_to_resume(call, tmp_path, words, number):
    output, part = tmp_path / "x.h5", tmp_path / "x.h5.part"
    with started(PREDICT, 1.0, *words) as process:
        read_until(process, "b/s")
        process.send_signal(number)
        lines = process.stderr.read().splitlines()
        assert process.wait(60) == 130
    assert f"genoformer: {number.name}: stops after this block; a second signal ends it at once" in lines
    assert lines[-1].startswith("genoformer: interrupted; the same command with --resume goes on where it stopped: ")
    assert f"genoformer predict --resume {words[1]} -o {output}" in lines[-1]
    assert not output.exists()
    with open_store(part, allow_incomplete=True) as store:
        done = int(store.predicted_counts().sum())
    assert 285 <= done < 3000  # the first block, at the least, was written to the end and is there
    resumed = call(*words, "--resume")
    assert resumed.code == 0
    assert call(*words[:3], tmp_path / "whole.h5", *words[4:]).code == 0
    np.testing.assert_array_equal(values_of(output), values_of(tmp_path / "whole.h5"))


def test_a_second_signal_ends_at_once(call, tmp_path, words):
    with started(PREDICT, 600.0, *words) as process:
        read_until(process, "b/s")
        process.send_signal(signal.SIGTERM)
        read_until(process, "a second signal ends it at once")
        assert process.poll() is None
        process.send_signal(signal.SIGINT)
        assert process.wait(30) == 130
        assert process.stderr.read().splitlines()[-1] == "genoformer: SIGINT again: ended at once"
    assert (tmp_path / "x.h5.part").exists()
    assert call(*words, "--resume").code == 0
    assert np.isfinite(values_of(tmp_path / "x.h5")).all()


def test_training_finishes_the_step_and_saves_it(call, tmp_path):
    from test_train import CONFIG
    from tiny import made_up_genome, write_fasta, write_gff

    sequence, genes = made_up_genome(6)
    write_fasta(tmp_path / "x.fa", {"c": sequence})
    write_gff(tmp_path / "x.gff", {"c": genes})
    (tmp_path / "c.toml").write_text(CONFIG.format(steps=5, fasta="x.fa").replace("save_every = 2", "save_every = 100"))
    common = ["train", tmp_path / "c.toml", "--threads", 1, "--name", "m", "-o"]
    with started(TRAIN, 1.0, *common, tmp_path / "cut") as process:
        read_until(process, "train: step 1 of 5")
        process.send_signal(signal.SIGTERM)
        lines = process.stderr.read().splitlines()
        assert process.wait(60) == 130
    assert any("SIGTERM: stops after this step" in line for line in lines)
    assert f"genoformer train --resume {tmp_path / 'c.toml'}" in lines[-1]
    assert (tmp_path / "cut" / "state.safetensors").exists()
    steps = len((tmp_path / "cut" / "log.jsonl").read_text().splitlines())
    assert 1 <= steps < 5
    assert call(*common, tmp_path / "cut", "--resume").code == 0
    assert call(*common, tmp_path / "whole").code == 0
    entries = [json.loads(line) for line in (tmp_path / "cut" / "log.jsonl").read_text().splitlines()]
    assert [entry["step"] for entry in entries] == list(range(1, 6))  # none was taken twice
    weights = "model/model.safetensors"
    assert (tmp_path / "cut" / weights).read_bytes() == (tmp_path / "whole" / weights).read_bytes()


# ---- in this process


def test_handlers_are_put_back_and_what_is_ignored_stays_so():
    before = signal.getsignal(signal.SIGTERM)
    ignored = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        with finishing("block") as stop:
            assert signal.getsignal(signal.SIGINT) == signal.SIG_IGN
            assert signal.getsignal(signal.SIGTERM) == stop.catch
            signal.raise_signal(signal.SIGTERM)
            assert stop.asked
            done: list[int] = []
            with pytest.raises(KeyboardInterrupt):
                stop.after(done.append)(7)
            assert done == [7]  # it is reported first
        assert signal.getsignal(signal.SIGTERM) == before
    finally:
        signal.signal(signal.SIGINT, ignored)


def test_threads_other_than_the_main_one_have_no_handlers():
    found: list[bool] = []

    def work() -> None:
        with finishing("block") as stop:
            stop.check()
            found.append(stop.asked)

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert found == [False]
