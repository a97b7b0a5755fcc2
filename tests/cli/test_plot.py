"""plot: a figure under its name, what it leaves out and says, what it refuses."""

from __future__ import annotations

import pytest
from export_samples import coding_values, write_store
from gene_twins import genome

from genoformer.tracks import CODING_FRAME

pytest.importorskip("matplotlib")


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    folder = tmp_path_factory.mktemp("plot")
    made = genome(0)
    (folder / "x.fa").write_bytes(b">a\n" + made.bases + b"\n")
    rows = [f"a\tx\tCDS\t{a + 1}\t{b}\t.\t{'+' if s > 0 else '-'}\t0\tID=g{a}" for a, b, s in made.genes]
    (folder / "x.gff3").write_text("\n".join(["##gff-version 3", *rows, ""]))
    write_store(folder / "x.h5", {"a": made.values}, CODING_FRAME, input=str(folder / "x.fa"))
    write_store(folder / "bare.h5", {"a": coding_values(500, [])}, CODING_FRAME)
    return folder


@pytest.mark.parametrize(
    "options",
    [(), ("--genes", "x.gff3", "--truth", "x.gff3"), ("--no-genes", "--width", 4, "--dpi", 72), ("-r", "a:1-1")],
)
def test_a_figure(call, files, tmp_path, options):
    options = [files / option if option == "x.gff3" else option for option in options]
    region = () if "-r" in options else ("-r", "a")
    result = call("plot", files / "x.h5", *region, "-o", tmp_path / "x.png", *options)
    assert (result.code, result.out) == (0, ""), result.err
    assert "without genes" not in result.err
    assert (tmp_path / "x.png").read_bytes().startswith(b"\x89PNG")
    assert len(list(tmp_path.iterdir())) == 1


def test_without_the_bases(call, files, tmp_path):
    result = call("plot", files / "bare.h5", "-r", "a", "-o", tmp_path / "x.svg")
    assert (result.code, "without genes and GC content" in result.err) == (0, True), result.err


def test_what_is_refused(call, files, tmp_path):
    (tmp_path / "x.png").write_text("precious")
    for options, code, words in (
        (("-r", "a", "-o", tmp_path / "x.png"), 2, "exists already"),
        (("-r", "a", "-o", tmp_path / "x.jpg"), 2, "must end in .png, .svg or .pdf"),
        (("-r", "a", "-o", tmp_path / "no" / "x.png"), 3, "no such folder"),
        (("-r", "b", "-o", tmp_path / "y.png"), 1, "no sequence 'b'"),
        (("-r", "a:1-2", "-r", "a:9-8", "-o", tmp_path / "y.png"), 1, "ends before it starts"),
        (("-r", "a", "-o", tmp_path / "y.png", "--genes", "g", "--no-genes"), 2, "cannot go together"),
        (("-r", "a", "-o", tmp_path / "y.png", "--genes", "g"), 1, "g: no such file"),
        (("-r", "a", "-o", tmp_path / "y.png", "--track", "x"), 1, "no track 'x'"),
        (("-r", "a", "-o", tmp_path / "y.png", "--truth", "a=b", "--truth", "c"), 2, "CHANNEL=FILE"),
    ):
        result = call("plot", files / "x.h5", *options)
        assert (result.code, words in result.err) == (code, True), result.err
    assert [path.name for path in tmp_path.iterdir()] == ["x.png"]
    assert (tmp_path / "x.png").read_text() == "precious"


def test_without_matplotlib(call, files, tmp_path, monkeypatch):
    import sys

    for name in [name for name in sys.modules if name.partition(".")[0] == "matplotlib"]:
        monkeypatch.setitem(sys.modules, name, None)
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    result = call("plot", files / "x.h5", "-r", "a", "-o", tmp_path / "x.png")
    assert (result.code, "pip install 'genoformer[plots]'" in result.err) == (3, True), result.err
