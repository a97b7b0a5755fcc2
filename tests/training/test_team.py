"""Processes that train together follow the curve of one that has all their windows."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import ranks
import torch
from tiny import made_up_genome, write_fasta, write_gff

from genoformer.model.checkpoint import load_model, read_tensors

SCRIPT = Path(__file__).parents[1] / "training_checks.py"


@pytest.mark.skipif(ranks.lack() is not None, reason=str(ranks.lack()))
@pytest.mark.parametrize(
    ("size", "pattern"),
    [(2, r"plain\]$|others"), pytest.param(2, "", marks=pytest.mark.slow), pytest.param(3, "", marks=pytest.mark.slow)],
    ids=["2", "2-all", "3-all"],
)
def test_a_team_trains_as_one_process_does(size: int, pattern: str) -> None:
    found = ranks.run(SCRIPT, size, pattern)
    wrong = [f"{name}, rank {rank}: {words}" for name, said in found.items() for rank, words in enumerate(said)]
    assert set(found["all"]) == {"ok"}, "\n".join(words for words in wrong if not words.endswith(": ok"))


CONFIG = """
[model]
width = 16
heads = 2
stem_channels = 6
attention = ["local", "performer"]
performer_count = 12
[train]
windows = [60, 300]
step_bases = 600
steps = 60
warmup = 2
error_rates = [0.0, 0.05]
save_every = 1
[[samples]]
fasta = "x.fa"
annotation = "x.gff"
"""


@pytest.mark.slow
def test_killed_again_and_again_it_ends_with_the_same_weights(tmp_path: Path) -> None:
    """kill -9 at any moment; whenever there is a model, it can be loaded."""
    bases, genes = made_up_genome(6)
    write_fasta(tmp_path / "x.fa", {"c": bases})
    write_gff(tmp_path / "x.gff", {"c": genes})
    (tmp_path / "c.toml").write_text(CONFIG)

    def start(folder: Path, *options: str) -> subprocess.Popen[bytes]:
        command = [sys.executable, "-m", "genoformer", "train", str(tmp_path / "c.toml"), "-o", str(folder), *options]
        return subprocess.Popen([*command, "--name", "m", "--threads", "1"], stderr=subprocess.DEVNULL)

    assert start(tmp_path / "whole").wait() == 0
    cut, kills = tmp_path / "cut", 0
    for wait in (0.05, 0.11, 0.17, 0.23, 0.02, 0.31):
        steps = len(log.read_text().splitlines()) if (log := cut / "log.jsonl").exists() else 0
        process = start(cut, "--resume")
        until = time.monotonic() + 120
        while process.poll() is None and time.monotonic() < until:
            if log.exists() and len(log.read_text().splitlines()) > steps:  # it is under way
                break
            time.sleep(0.01)
        time.sleep(wait)
        if process.poll() is None:
            os.kill(process.pid, signal.SIGKILL)
            kills += 1
        process.wait()
        if (cut / "model" / "config.json").exists():
            load_model(cut / "model")
    assert start(cut, "--resume").wait() == 0
    assert kills >= 3
    whole = tmp_path / "whole"
    for file in ("model.safetensors", "config.json"):
        assert (cut / "model" / file).read_bytes() == (whole / "model" / file).read_bytes()
    (one, _), (two, _) = (read_tensors(folder / "state.safetensors") for folder in (whole, cut))
    assert all(torch.equal(tensor, two[name]) for name, tensor in one.items())
    steps = [json.loads(line)["step"] for line in (cut / "log.jsonl").read_text().splitlines()]
    assert steps == list(range(1, 61))
