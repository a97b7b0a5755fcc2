"""--whole-sequence on the command line: plan, predict, interruptions, and processes that torchrun started."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from samples import bases, fasta

from genoformer.errors import InputError
from genoformer.store import open_store, part_path

COMMON = ["--genetic-code", 11, "--threads", 1]


@pytest.fixture
def genome(tmp_path: Path) -> Path:
    return fasta(tmp_path / "x.fa", a=bases(130_000), b=bases(700, 1) + "N" * 80, c=bases(90, 2))


def test_predict_inspect_and_plan_say_so(call, tiny, tmp_path, genome):
    output, model = tmp_path / "x.h5", ["--model", tiny]
    result = call("predict", genome, "-o", output, *model, *COMMON, "--whole-sequence", "--no-strand-average")
    assert result.code == 0, result.err
    assert "130,790 to predict in 3 whole sequences, 80 masked (gaps)" in result.err
    assert "window whole sequence, overlap 5000" in call("inspect", output).out
    with open_store(output) as store:
        assert np.isfinite(store["a", 0:130_000]).all()
        whole = store["b", 0:700]
    windows = tmp_path / "windows.h5"
    assert call("predict", genome, "-o", windows, *model, *COMMON, "--no-strand-average", "-r", "b").code == 0
    with open_store(windows) as store:
        np.testing.assert_allclose(whole, store["b", 0:700], atol=2e-3)
    assert call("report", output, "-o", tmp_path / "x.html").code == 0
    told = [call("plan", genome, *model, "--whole-sequence", "--json", *more) for more in ([], ["--offload"])]
    memory, offloaded = (json.loads(one.out) for one in told)
    assert memory["window"] == "whole sequence"
    kept = 4 * (-(-130_000 // 3) * 32 + 130_000 * 7)
    assert memory["estimate"]["memory"] - offloaded["estimate"]["memory"] == kept == offloaded["estimate"]["temporary"]
    assert "temporary file (TMPDIR): 9.19 MB" in call("plan", genome, *model, "--whole-sequence", "--offload").out


def test_what_grows_faster_than_a_sequence_is_said():
    from tiny import Memory, tiny_config

    from genoformer.cli.estimates import kept_by_attention, whole_notes
    from genoformer.plan import make_plan

    sequences = Memory(("x", bases(200_000).encode()))
    whole, windows = (make_plan(sequences, whole=is_whole) for is_whole in (True, False))
    exact = tiny_config(attention=("local", "hybrid"), hybrid_global="softmax")
    assert ["square" in note for note in whole_notes(whole, exact)] == [True]
    assert kept_by_attention(whole, exact) == 2 * 4 * 16 * 66_667
    linear = tiny_config()
    assert not list(whole_notes(whole, linear))
    assert kept_by_attention(whole, linear) == 0 < kept_by_attention(whole, tiny_config(attention=("joint",)))
    assert not list(whole_notes(windows, exact))


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--offload"], "--offload is for --whole-sequence"),
        (["--whole-sequence", "--window", 100], "leave out --window"),
        (["--whole-sequence", "--project"], "leave out --whole-sequence"),
        (["--whole-sequence", "--processes", 2], "leave out --processes"),
        (["--whole-sequence", "--device", "all"], "leave out --processes"),
    ],
)
def test_what_does_not_go_together(call, tiny, tmp_path, genome, options, said):
    result = call("predict", genome, "-o", tmp_path / "x.h5", "--model", tiny, *options)
    assert result.code == 2
    assert len(result.complaints) == 1
    assert said in result.complaints[0]


def test_processes_of_torchrun_need_whole_sequences_and_a_file(call, tiny, tmp_path, genome, monkeypatch):
    monkeypatch.setenv("WORLD_SIZE", "2")
    result = call("predict", genome, "-o", tmp_path / "x.h5", "--model", tiny)
    assert (result.code, len(result.complaints)) == (2, 1)
    assert "torchrun started 2 processes" in result.complaints[0]
    result = call("predict", "-", "-o", tmp_path / "x.h5", "--model", tiny, "--whole-sequence")
    assert (result.code, len(result.complaints)) == (2, 1)
    assert "-: cannot be read by 2 processes; name a file" in result.complaints[0]


def test_an_interrupted_run_says_how_to_go_on(call, tiny, tmp_path, genome, monkeypatch):
    from genoformer import streamed

    add = streamed._Assembly.add

    def interrupt(*arguments):
        for found in add(*arguments):
            yield found
            os.kill(os.getpid(), signal.SIGTERM)

    words = ["predict", genome, "-o", tmp_path / "x.h5", "--model", tiny, *COMMON, "--whole-sequence"]
    with monkeypatch.context() as patch:
        patch.setattr(streamed._Assembly, "add", interrupt)
        result = call(*words)
    assert result.code == 130
    assert "--resume" in result.complaints[-1]
    again = call(*words, "--resume")
    assert again.code == 0
    with open_store(tmp_path / "x.h5") as store:
        assert np.isfinite(store["a", 0:130_000]).all()


# ---- torchrun


def torchrun(*arguments: object, count: int = 2, **environment: str) -> subprocess.Popen:
    words = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(count)]
    words += ["-m", "genoformer", *map(str, arguments)]
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": "lo", **environment}
    return subprocess.Popen(words, stderr=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment)


@pytest.mark.slow
def test_two_processes_write_one_store_and_only_one_speaks(call, tiny, tmp_path, genome):
    output, alone = tmp_path / "x.h5", tmp_path / "alone.h5"
    options = ["--model", tiny, *COMMON, "--whole-sequence", "--circular", "b"]
    with torchrun("predict", genome, "-o", output, *options) as process:
        _, said = process.communicate(timeout=240)
    assert process.returncode == 0, said
    ours = [line for line in said.splitlines() if str(tmp_path) in line or line.startswith("model")]
    assert len(ours) == 3, said
    assert ours[1] == "model tiny on cpu in 2 processes, genetic code 11 (as asked)"
    assert call("predict", genome, "-o", alone, *options).code == 0
    with open_store(output) as one, open_store(alone) as other:
        for name, length in (("a", 130_000), ("b", 780), ("c", 90)):
            np.testing.assert_allclose(one[name, 0:length], other[name, 0:length], atol=2e-3)


@pytest.mark.slow
def test_an_error_of_all_is_told_once(tiny, tmp_path):
    words = ["predict", tmp_path / "none.fa", "-o", tmp_path / "x.h5", "--model", tiny, "--whole-sequence"]
    with torchrun(*words) as process:
        _, said = process.communicate(timeout=240)
    assert process.returncode != 0
    assert said.count("genoformer: InputError: ") == 1, said


def process_of_rank(rank: int, parent: int) -> int:
    """Return the process that torchrun started as this rank."""
    for child in Path(f"/proc/{parent}/task/{parent}/children").read_text().split():
        if f"RANK={rank}" in Path(f"/proc/{child}/environ").read_text().split("\0"):
            return int(child)
    raise AssertionError("there is no such process")


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="looks at /proc")
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_the_end_of_one_is_told_and_ends_all(number, tiny, tmp_path):
    path, output = fasta(tmp_path / "x.fa", a=bases(130_000), b=bases(900_000)), tmp_path / "x.h5"
    with torchrun("predict", path, "-o", output, "--model", tiny, *COMMON, "--whole-sequence") as process:
        for line in process.stderr:
            if line.startswith("model"):
                break
        time.sleep(1)
        os.kill(process_of_rank(1, process.pid), number)
        began = time.monotonic()
        said = process.stderr.read()
        process.wait(60)
    assert process.returncode != 0
    assert time.monotonic() - began < 60
    told = [line for line in said.splitlines() if line.startswith("genoformer: ")]
    assert any("is gone" in line or "interrupted" in line for line in told), said
    assert not output.exists()
    assert part_path(output).exists()


def test_only_the_first_process_raises_what_any_found(monkeypatch):
    """What the processes tell each other is made up here; that they do is seen above."""
    from genoformer.cli import together
    from genoformer.training.team import Team

    def left() -> None:
        raise SystemExit("left")

    def broken() -> None:
        raise InputError("mine")

    monkeypatch.setattr(together, "_leave", left)
    for rank, told, expected in [
        (0, [("InputError", "mine"), ("InputError", "mine")], "^mine$"),
        (0, [None, ("ResourceError", "theirs")], "^process 1 of 2: theirs$"),
        (1, [("InputError", "theirs"), None], "^left$"),
        (1, [None, ("InputError", "mine")], "^left$"),
    ]:
        crew = together.Crew(Team(rank, 2), None)
        monkeypatch.setattr(together, "_told_to_all", lambda error, size, told=told: told)
        step = broken if told[rank] else lambda: 3
        with pytest.raises(BaseException, match=expected):
            crew.agreed(step)
        monkeypatch.setattr(together, "_told_to_all", lambda error, size: [None, None])
        assert crew.agreed(lambda: 3) == 3
