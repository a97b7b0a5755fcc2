"""evaluate: the table, the files it writes, and one line for everything that is wrong."""

from __future__ import annotations

import importlib.util
import json

import numpy as np
import pytest
from evaluation_samples import GENES, gff3, one_hot, true_frames, write_store

from genoformer.tracks import Track

needs_matplotlib = pytest.mark.skipif(importlib.util.find_spec("matplotlib") is None, reason="no matplotlib")


@pytest.fixture
def files(tmp_path):
    store = write_store(tmp_path / "p.h5", {name: one_hot(frames) for name, frames in true_frames().items()})
    return store, gff3(tmp_path / "t.gff"), gff3(tmp_path / "p.gff", GENES[1:])


def test_a_store(call, files, tmp_path):
    store, truth, _ = files
    result = call("evaluate", store, "--truth", truth, "--intervals", "--json", tmp_path / "x.json")
    assert (result.code, result.err) == (0, "")
    assert max(map(len, result.out.splitlines())) <= 100
    for words in ("by base, strand: precision 1.0000 (", "AUROC", "ECE 0.0000", "sequences: 2, bases: 2,300", "4 CDS"):
        assert words in " ".join(result.out.split())
    found = json.loads((tmp_path / "x.json").read_text())
    assert found["format"] == "genoformer-evaluation"
    assert found["levels"]["frame"]["numbers"]["f1"] == 1
    assert found["levels"]["strand"]["intervals"]["f1"] == [1, 1]
    assert not (tmp_path / "x.json.part").exists()


def test_genes_of_another_program(call, files):
    result = call("evaluate", files[2], "-t", files[1])
    assert (result.code, result.err) == (0, "")
    assert max(map(len, result.out.splitlines())) <= 100
    assert "by gene, 3' end: precision 1.0000, recall 0.7500" in result.out
    assert "AUROC" not in result.out
    assert "…" not in result.out


def test_the_first_sequences_unless_all(call, tmp_path):
    lengths = {f"s[{i}]": 90 for i in range(15)}
    path = write_store(tmp_path / "p.h5", {name: one_hot(frames) for name, frames in true_frames([], lengths).items()})
    genes = [GENES[0].__class__("s[3]", 1, ((3, 33),))]
    truth = gff3(tmp_path / "t.gff", genes, lengths)
    some, every = call("evaluate", path, "-t", truth).out, call("evaluate", path, "-t", truth, "--all").out
    assert "s[9]" in some
    assert "s[10]" not in some
    assert "and 5 more" in some
    assert "s[14]" in every


@pytest.mark.parametrize("which", [0, 2])
def test_the_figure(call, files, tmp_path, which):
    pytest.importorskip("matplotlib")
    result = call("evaluate", files[which], "-t", files[1], "--plot", tmp_path / "x.png")
    assert (result.code, result.err) == (0, "")
    assert (tmp_path / "x.png").read_bytes().startswith(b"\x89PNG")


@needs_matplotlib
def test_what_is_wrong_is_one_line_with_the_file(call, files, tmp_path):
    store, truth, _ = files
    other = gff3(tmp_path / "other.gff", [], {"z": 9})
    off = gff3(tmp_path / "off.gff", [GENES[0].__class__("a", 1, ((1990, 2020),))], None)
    for arguments, code, words in (
        ((store, "-t", other), 1, "other.gff: names 'z'"),
        ((store, "-t", off), 1, "off.gff: sequence 'a': CDS"),
        ((store, "-t", tmp_path / "no.gff"), 1, "no.gff: no such file"),
        ((tmp_path / "no.h5", "-t", truth), 1, "no.h5: no such file"),
        ((store, "-t", truth, "--json", tmp_path / "no" / "x.json"), 3, "no such folder"),
        ((store, "-t", truth, "--plot", tmp_path / "x.docx"), 2, "must end in .png, .svg or .pdf"),
    ):
        result = call("evaluate", *arguments)
        assert (result.code, result.out, len(result.complaints)) == (code, "", 1)
        assert words in result.complaints[0]


@needs_matplotlib
def test_signals_of_channels(call, tmp_path):
    track = Track("both", "signal", ("+", "-"), "reads", (1, 0))
    values = np.random.default_rng(0).normal(size=(90, 2)).astype(np.float16)
    path = write_store(tmp_path / "p.h5", {"a": values, "b": values}, track)
    for name, column in zip(("plus", "minus"), values.T.tolist(), strict=True):
        lines = [f"{s}\t{i}\t{i + 1}\t{v!r}\n" for s in "ab" for i, v in enumerate(column)]
        (tmp_path / name).write_text("".join(lines))
    truths = "-t", f"+={tmp_path / 'plus'}", "-t", f"-={tmp_path / 'minus'}"
    result = call("evaluate", path, *truths, "--plot", tmp_path / "x.png")
    assert result.code == 0
    assert "no figure for signals" in result.err
    assert result.out.count("1.0000") == 4 + 4  # Pearson and R2 of two channels, and of the first one by sequence
    assert call("evaluate", path, "-t", tmp_path / "plus", "-t", tmp_path / "minus").code == 2
    assert call("evaluate", path, "-t", tmp_path / "plus").code == 1
