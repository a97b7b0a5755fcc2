"""genoformer bench attention: the table, the files, and refusals before any work is done."""

from __future__ import annotations

import csv
import json
import subprocess
import sys
from pathlib import Path

import pytest

from genoformer.cli.bench import BENCHMARKS

QUICK = ("--lengths", "16,64", "--heads", 2, "--dim", 8, "--features", 8, "--rank", 4, "--radius", 4, "--repeats", 1,
         "--threads", 1, "--device", "cpu", "--only", "core/exact-fused", "--only", "core/performer-relu")  # fmt: skip


@pytest.fixture(autouse=True)
def _in_this_process(monkeypatch: pytest.MonkeyPatch) -> None:
    """Measure memory here: processes of their own, tested in test_benchmark.py, take a second or two to start."""
    from genoformer.bench.probe import probe

    monkeypatch.setattr("genoformer.bench.speed.probe_apart", probe)


@pytest.mark.parametrize("arguments", [["bench", "--help"], ["bench", "attention", "--help"]])
def test_help_is_quick(arguments):
    code = (
        f"from genoformer.cli import run; assert run({arguments}) == 0; import sys; assert 'torch' not in sys.modules"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    assert "Example:" in done.stdout


def test_every_benchmark_is_listed(call):
    assert all(f"  {name}" in call("bench", "--help").out for name in BENCHMARKS)
    assert call("bench", "nonsense").code == 2


def test_table_and_files(call, tmp_path: Path):
    result = call("bench", "attention", *QUICK, "--csv", tmp_path / "a.csv", "--json", tmp_path / "a.json")
    assert result.code == 0
    assert all(len(line) <= 100 for line in result.out.splitlines())
    for word in ("performer-relu", "exact-fused", "GFLOP/s", "Faster than exact attention", "core/performer-relu"):
        assert word in result.out
    assert "bench: time at 64 tokens" in result.err
    with (tmp_path / "a.csv").open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    assert [(row["name"], row["tokens"]) for row in rows] == [
        (name, tokens) for name in ("exact-fused", "performer-relu") for tokens in ("16", "64")
    ]
    assert all(float(row["seconds"]) > 0 for row in rows)
    told = json.loads((tmp_path / "a.json").read_text(encoding="utf-8"))
    assert told["setup"]["shape"]["features"] == 8
    assert len(told["measurements"]) == 4


def test_skipped_lengths_are_told(call):
    result = call("bench", "attention", *QUICK[2:-4], "--lengths", "16,2048", "--only", "exact-matrix",
                  "--memory-limit", 0.01)  # fmt: skip
    assert result.code == 0
    assert "not measured: core/exact-matrix at 2,048 tokens (would need about" in result.out


def test_plot(call, tmp_path: Path):
    pytest.importorskip("matplotlib")
    result = call("bench", "attention", *QUICK, "--plot", tmp_path / "a.png")
    assert result.code == 0
    assert (tmp_path / "a.png").read_bytes().startswith(b"\x89PNG")


def test_refusals_come_first(call, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("genoformer.bench.speed.measure", lambda *_, **__: pytest.fail("it measured"))
    assert call("bench", "attention", "--only", "nonsense").code == 2
    assert call("bench", "attention", "--lengths", "12,x").code == 2
    assert call("bench", "attention", "--lengths", "0").code == 2
    assert call("bench", "attention", "--csv", tmp_path / "missing" / "a.csv").code == 3


def test_a_plot_of_an_unknown_kind_is_refused(call, tmp_path: Path):
    pytest.importorskip("matplotlib")
    result = call("bench", "attention", *QUICK, "--plot", tmp_path / "a.nonsense")
    assert result.code == 2
    assert ".png" in result.complaints[0]


def test_a_plot_needs_matplotlib(call, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    result = call("bench", "attention", *QUICK, "--plot", tmp_path / "a.png")
    assert result.code == 3
    assert "genoformer[plots]" in result.complaints[0]


def test_files_are_whole_though_nobody_reads_the_table(tmp_path: Path):
    """Infinite limits are no JSON; a reader that leaves, as `head -0` does, takes nothing away and is no failure."""
    command = [
        sys.executable, "-m", "genoformer", "bench", "attention", "--lengths", "32", "--repeats", "1",
        "--group", "core", "--only", "exact-fused", "--memory-limit", "inf", "--json", "a.json", "--csv", "a.csv",
    ]  # fmt: skip
    process = subprocess.Popen(command, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert process.stdout is not None
    process.stdout.close()
    assert process.stderr is not None
    said = process.stderr.read().decode()
    process.stderr.close()
    assert process.wait() == 0, said
    assert "Traceback" not in said

    def refuse(constant: str) -> None:
        raise AssertionError(f"{constant} is no JSON")

    text = (tmp_path / "a.json").read_text("utf-8")
    assert json.loads(text, parse_constant=refuse)["setup"]["limits"]["memory"] is None
    assert len((tmp_path / "a.csv").read_text("utf-8").splitlines()) == 2
