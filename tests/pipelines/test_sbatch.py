"""The array script for Slurm, run without Slurm: which shards a job does, and what the job after them does."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

SCRIPT = Path(__file__).resolve().parents[2] / "pipelines" / "slurm" / "annotate.sbatch"
STUB = """#!/usr/bin/env bash
echo "$@" >> calls
while [ $# -gt 0 ]; do [ "$1" = -o ] && echo made > "$2"; shift; done
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "bin").mkdir()
    for name, text in (("genoformer", STUB), ("srun", '#!/bin/sh\nexec "$@"\n')):
        (tmp_path / "bin" / name).write_text(text)
        (tmp_path / "bin" / name).chmod(0o755)
    return tmp_path


def submit(folder: Path, *words: str, expected: int = 0, **variables: object) -> list[str]:
    """Run the script as a job would be; return the commands of genoformer."""
    path = f"{folder / 'bin'}{os.pathsep}{os.environ['PATH']}"
    environment = {"PATH": path, **{name: str(value) for name, value in variables.items()}}
    done = subprocess.run(
        ["bash", SCRIPT, *words], cwd=folder, env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == expected, done.stderr
    assert bool(done.stderr) == bool(expected), done.stderr
    calls = folder / "calls"
    return calls.read_text().splitlines() if calls.exists() else []


def test_a_job_does_its_shard_and_goes_on(folder: Path) -> None:
    task = {"SLURM_ARRAY_TASK_ID": 2, "SLURM_ARRAY_TASK_MAX": 3, "SLURM_CPUS_PER_TASK": 4}
    (call,) = submit(folder, "a genome.fa", "out dir", **task, PREDICT="--window 5000")
    assert call == "predict a genome.fa -o out dir.shards/2-of-3.h5 --shard 2/3 --resume --threads 4 --window 5000"
    assert submit(folder, "a genome.fa", "out dir", **task) == [call], "what is there is not done again"


def test_shards_are_dealt_to_fewer_jobs_each_once(folder: Path) -> None:
    for task in (1, 2):
        submit(folder, "g.fa", "out", SLURM_ARRAY_TASK_ID=task, SLURM_ARRAY_TASK_MAX=2, SHARDS=5, JOBS=2)
    calls = (folder / "calls").read_text().splitlines()
    assert [call.split()[5] for call in calls] == ["1/5", "3/5", "5/5", "2/5", "4/5"]


def test_a_part_of_an_array_does_nothing_else(folder: Path) -> None:
    (call,) = submit(folder, "g.fa", "out", SLURM_ARRAY_TASK_ID=7, SLURM_ARRAY_TASK_MAX=12, SHARDS=40)
    assert "--shard 7/40" in call


def test_the_last_job_merges_exports_and_cleans_up(folder: Path) -> None:
    for task in (1, 2):
        submit(folder, "g.fa", "out", SLURM_ARRAY_TASK_ID=task, SLURM_ARRAY_TASK_MAX=2)
    (folder / "out.shards" / "1-of-3.h5").touch()
    calls = submit(folder, "g.fa", "out", SHARDS=2)[2:]
    assert calls[0] == "merge out.shards/1-of-2.h5 out.shards/2-of-2.h5 -o out.h5"
    assert [call.split()[3] for call in calls[1:]] == ["gff3", "faa"]
    assert not (folder / "out.shards").exists()
    assert {path.name for path in folder.glob("out*")} == {"out.h5", "out.gff.gz", "out.faa.gz"}


@pytest.mark.parametrize(
    ("words", "variables"),
    [
        ((), {"SHARDS": 2}),
        (("g.fa",), {"SHARDS": 2}),
        (("g.fa", "out"), {}),
        (("g.fa", "out"), {"SHARDS": "many"}),
        (("g.fa", "out"), {"SHARDS": 0}),
        (("g.fa", "out"), {"SLURM_ARRAY_TASK_ID": 0, "SLURM_ARRAY_TASK_MAX": 3}),
    ],
)
def test_wrong_use_is_said(folder: Path, words: tuple[str, ...], variables: dict[str, object]) -> None:
    assert submit(folder, *words, expected=2, **variables) == []
