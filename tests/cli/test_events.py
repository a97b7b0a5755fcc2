"""--log-json: every line on standard error is one JSON object, with keys that stay."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest
from samples import bases, fasta
from test_train import CONFIG
from tiny import made_up_genome, write_fasta, write_gff

from genoformer.cli import events, progress

PROGRESS = {
    "time",
    "command",
    "event",
    "done",
    "total",
    "unit",
    "per_second",
    "bases_per_second",
    "seconds",
    "seconds_left",
}


@pytest.fixture(autouse=True)
def _often(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(progress, "LOG_SECONDS", 0)


def parsed(text: str, command: str) -> list[dict]:
    lines = [json.loads(line) for line in text.splitlines()]
    for line in lines:
        assert list(line)[:3] == ["time", "command", "event"]
        assert line["command"] == command
    assert lines[-1]["event"] == "end"
    assert sum(line["event"] == "end" for line in lines) == 1
    return lines


def of(lines: list[dict], event: str) -> list[dict]:
    return [line for line in lines if line["event"] == event]


@pytest.mark.parametrize("command", ["predict", "tokenize"])
def test_progress_of_bases(command, call, tiny, tmp_path):
    path = fasta(tmp_path / "x.fa", a=bases(900), b="", c="ACGT" * 30)
    options = ["--window", 300, "--overlap", 30, *(["--model", tiny] if command == "predict" else [])]
    result = call(command, path, "-o", tmp_path / "x.h5", *options, "--log-json")
    assert (result.code, result.out) == (0, "")
    lines = parsed(result.err, command)
    said = of(lines, "progress")
    assert all(set(line) == PROGRESS for line in said)
    assert [said[0]["done"], said[-1]["done"]] == [0, 1020] if command == "predict" else said[-1]["done"] == 1020
    assert {(line["total"], line["unit"]) for line in said} == {(1020, "bases")}
    assert said[-1]["seconds_left"] == 0
    assert said[-1]["bases_per_second"] > 0
    assert [line["done"] for line in said] == sorted(line["done"] for line in said)
    texts = [line["text"] for line in of(lines, "message")]
    assert f"{path}: 3 sequences, 1,020 bases" in texts
    assert "b: no bases" in texts
    assert lines[-1]["exit_code"] == 0
    again = call(command, path, "-o", tmp_path / "y.h5", *options)
    assert again.err.startswith(f"{path}: 3 sequences")  # and people get words again


def test_progress_of_training(call, tmp_path):
    sequence, genes = made_up_genome(6)
    write_fasta(tmp_path / "x.fa", {"c": sequence})
    write_gff(tmp_path / "x.gff", {"c": genes})
    (tmp_path / "c.toml").write_text(CONFIG.format(steps=4, fasta="x.fa"))
    result = call("train", tmp_path / "c.toml", "-o", tmp_path / "run", "--log-json")
    assert result.code == 0
    lines = parsed(result.err, "train")
    said = of(lines, "progress")
    assert [line["done"] for line in said] == [1, 2, 3, 4]
    assert all(set(line) == PROGRESS | {"loss", "validation", "measure"} for line in said)
    assert {(line["total"], line["unit"]) for line in said} == {(4, "steps")}
    assert [line["validation"] is None for line in said] == [True, False, True, False]
    assert said[-1]["measure"] == "F1"
    assert said[-1]["seconds_left"] == 0
    assert all(line["loss"] > 0 and line["bases_per_second"] > 0 for line in said)
    assert said[0]["per_second"] is None


def test_errors_are_lines_too(call, tiny, tmp_path):
    path = fasta(tmp_path / "x.fa", a="")
    result = call("predict", path, "-o", tmp_path / "x.h5", "--model", tiny, "--log-json")
    lines = parsed(result.err, "predict")
    assert result.code == 1
    assert [(line["kind"], "no bases" in line["text"]) for line in of(lines, "error")] == [("InputError", True)]
    assert lines[-1]["exit_code"] == 1
    result = call("predict", "--log-json", path, "--windows", 3)
    assert result.code == 2
    (error,) = of(parsed(result.err, "predict"), "error")
    assert "--window" in error["text"]


def test_warnings_of_the_library_are_said_as_all_else(call, tiny, tmp_path, monkeypatch):
    path = fasta(tmp_path / "x.fa", a=bases(900))
    common = ["predict", path, "--model", tiny, "--window", 300, "--batch-size", 2, "--genetic-code", 11]
    module = sys.modules["genoformer.predict"]
    compute = module.predict_values

    def lacking(model, codes, **options):
        if len(codes) > 1:
            raise MemoryError
        return compute(model, codes, **options)

    monkeypatch.setattr(module, "predict_values", lacking)
    result = call(*common, "-o", tmp_path / "x.h5", "--log-json")
    texts = [line["text"] for line in of(parsed(result.err, "predict"), "message")]
    assert f"out of memory at {path}: a:1-262: batches of 1 instead of 2" in texts
    assert call(*common, "-o", tmp_path / "y.h5").err.count("out of memory at") == 1


@pytest.mark.slow
def test_a_process_writes_nothing_but_json(tiny, tmp_path):
    path = fasta(tmp_path / "x.fa", a=bases(500))
    words = [
        sys.executable,
        "-m",
        "genoformer",
        "predict",
        path,
        "-o",
        tmp_path / "x.h5",
        "--model",
        tiny,
        "--log-json",
    ]
    done = subprocess.run([*map(str, words)], capture_output=True, text=True, check=False)
    assert done.returncode == 0
    assert done.stdout == ""
    lines = parsed(done.stderr, "predict")
    assert of(lines, "progress")[-1]["done"] == 500


def test_numbers_that_are_none_are_null():
    assert events._finite(float("nan")) is None
    rate = events.Rate(10)
    assert rate.fields()["seconds_left"] is None
    rate.reach(4)
    assert (rate.fields()["per_second"], rate.fields()["done"]) == (None, 4)
