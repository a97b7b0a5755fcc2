"""genoformer bench approximation: tables that fit, numbers as JSON, a plot, and clear refusals."""

from __future__ import annotations

import json
import sys

import pytest
import torch

COMMAND = ("bench", "approximation")
RANDOM = (*COMMAND, "--random", "--dim", 8, "--tokens", 48, "--size", 16, "--limit", 64, "--threads", 1)


def sequence(tmp_path, bases=400):
    letters = torch.randint(4, (bases,), generator=torch.Generator().manual_seed(1)).tolist()
    path = tmp_path / "x.fa"
    path.write_text(">chr1\n" + "".join("ACGT"[i] for i in letters) + "\n>chr2\nACGT\n")
    return path


def test_random_ones(call, tmp_path):
    result = call(*RANDOM, "--norm", 0.5, "--heads", 2, "--json", tmp_path / "a.json")
    assert result.code == 0
    lines = result.out.splitlines()
    assert max(map(len, lines)) <= 100
    assert "48 tokens, 2 heads x 8, mean squared norm of queries and keys 0.5" in lines[0]
    for word in ("performer regularized", "linformer dynamic", "local", "mean(V)", "effective rank"):
        assert word in result.out
    assert "…" not in result.out
    assert "random: performer positive" in result.err
    written = json.loads((tmp_path / "a.json").read_text())
    assert (written["format"], written["format-version"]) == ("genoformer-approximation", 1)
    (layer,) = written["layers"]
    assert (layer["tokens"], layer["heads"], layer["dim"]) == (48, 2, 8)
    reports = {report["name"]: report for report in layer["reports"]}
    positive = reports["performer positive"]
    assert positive["at_size"]["size"] == 16
    assert positive["kernel"]["spread"] == pytest.approx(positive["kernel"]["spread_theory"], rel=0.2)
    assert reports["performer elu"]["floor_theory"] is None
    shown = next(line for line in lines if line.startswith(" performer positive")).split()
    assert float(shown[3]) == pytest.approx(positive["at_size"]["error"], abs=5e-4)


def test_the_same_seed_gives_the_same_numbers(call):
    once, again, other = (call(*RANDOM, "-m", "positive", "--seed", seed).out for seed in (1, 1, 2))
    assert once == again != other


def test_only_some_mechanisms_and_what_is_noise(call):
    result = call(*RANDOM, "--norm", 5, "-m", "oprf", "-m", "linformer mean")
    assert result.code == 0
    assert "performer oprf" in result.out
    assert "linformer mean" in result.out
    assert "positive" not in result.out
    assert "are noise" in result.out.replace("\n", " ")
    assert "no size up to 64" in result.out


def test_of_a_model(call, tiny, tmp_path):
    path = sequence(tmp_path)
    given = ("--model", tiny, "--tokens", 32, "--limit", 32, "-m", "positive", "--threads", 1)
    result = call(*COMMAND, "--input", path, *given)
    assert result.code == 0, result.err
    assert "block 1 performer: 32 tokens, 2 heads x 16" in result.out
    assert "of the model's own mechanism" in result.out
    assert "first 192 bases of chr1" in result.err
    part = call(*COMMAND, "--input", path, "--region", "chr1:101-340", *given)
    assert part.code == 0
    assert "of chr1:101-340" in part.err
    assert part.out != result.out


@pytest.mark.parametrize(
    ("arguments", "code", "word"),
    [
        ((), 2, "give either --input FILE"),
        (("--random", "--input", "x.fa"), 2, "give either --input FILE"),
        (("--input", "x.fa", "--norm", 2), 2, "--norm belongs to --random"),
        (("--random", "--region", "chr1:1-9"), 2, "--region belongs to --input"),
        (("--random", "-m", "nonsense"), 2, "no mechanism is called 'nonsense'"),
        (("--random", "--plot", "x.txt"), 2, "must end in .png, .svg or .pdf"),
        (("--random", "--json", "missing/x.json"), 3, "no such folder"),
        (("--random", "--wanted", 0), 2, "--wanted"),
        (("--random", "--tokens", 5000), 2, "--tokens"),
        (("--input", "missing.fa"), 1, "missing.fa"),
    ],
)
def test_refusals(arguments, code, word, call, tiny):
    given = ("--model", tiny) if "missing.fa" in arguments else ()
    result = call(*COMMAND, *arguments, *given)
    assert result.code == code
    assert word in result.err
    assert result.out == ""


def test_too_short_a_sequence(call, tiny, tmp_path):
    path = sequence(tmp_path)
    result = call(*COMMAND, "--input", path, "--region", "chr2:1-4", "--model", tiny)
    assert result.code == 1
    assert "has 4 bases, at least 96 are needed" in result.complaints[0]


def test_without_matplotlib_it_says_what_to_install(call, monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    result = call(*RANDOM, "--plot", "x.png")
    assert result.code == 3
    assert "pip install 'genoformer[plots]'" in result.complaints[0]


@pytest.mark.parametrize("suffix", [".png", ".svg"])
def test_a_plot_is_drawn(suffix, call, tmp_path):
    pytest.importorskip("matplotlib")
    path = tmp_path / f"error{suffix}"
    result = call(*RANDOM, "-m", "positive", "-m", "linformer mean", "--plot", path)
    assert result.code == 0
    assert path.read_bytes().startswith(b"\x89PNG" if suffix == ".png" else b"<?xml")
    assert path.stat().st_size > 10_000


def test_help_has_examples(call):
    result = call(*COMMAND, "--help")
    assert result.code == 0
    assert "genoformer bench approximation --random" in result.out
    assert max(map(len, result.out.splitlines())) <= 100
