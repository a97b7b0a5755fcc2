"""Damaged files of every kind that is read: errors of ours come of them, in a line, in time, and nothing else.

`run.py` does the same for as long as one likes, and keeps what hurts in `corpus`, which is read here.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from loop import attack, corpus, fault, guarded
from mutations import shrink
from targets import NATIVE, TARGETS, Target

HERE = Path(__file__).parent

FILES = 150
FEWER = {"weights": 60, "config-json": 60, "state": 25}


@pytest.mark.parametrize("name", [name for name in TARGETS if name not in NATIVE])
def test_damaged_files(name, tmp_path, monkeypatch):
    monkeypatch.setenv("GENOFORMER_CACHE", str(tmp_path / "cache"))
    assert attack(name, tmp_path, first=0, last=FEWER.get(name, FILES)) is None


def test_damaged_files_for_c_libraries(tmp_path):
    environment = os.environ | {"GENOFORMER_CACHE": str(tmp_path / "cache"), "OMP_NUM_THREADS": "1"}
    command = [sys.executable, str(HERE / "run.py"), "--parser", ",".join(NATIVE), "--range", "0", "30"]
    run = subprocess.run(
        [*command, "--folder", str(tmp_path)], capture_output=True, text=True, check=False, env=environment, timeout=120
    )
    assert (run.returncode, run.stdout, run.stderr) == (0, "", "")


def test_what_once_hurt_is_kept():
    assert len([path for name in TARGETS for path in corpus(name)]) > 10


def endless(path):
    while True:
        pass


def hungry(path):
    return bytes(2 << 30)


@pytest.mark.parametrize(("read", "wrong"), [(endless, "TooSlowError"), (hungry, "MemoryError")])
def test_what_takes_too_long_or_too_much_is_told(read, wrong, tmp_path):
    with guarded():
        assert wrong in fault(Target("x", lambda _: [b""], read), tmp_path / "x")
        assert fault(Target("x", lambda _: [b""], lambda _: None), tmp_path / "x") is None


def test_shrinking():
    assert shrink(b"x" * 1000 + b"bad" + b"y" * 777, lambda data: b"bad" in data) == b"bad"
    assert shrink(b"abc", lambda data: False) == b"abc"
