"""report: a page about a store; what cannot be, in one line, and nothing half written."""

from __future__ import annotations

import os

import pytest
from report_samples import coding_sample

from genoformer.report import build


@pytest.fixture(scope="module")
def sample(tmp_path_factory):
    return coding_sample(tmp_path_factory.mktemp("report"))


def test_a_page_is_written(call, tmp_path, sample):
    out = tmp_path / "report.html"
    result = call("report", sample.store, "-o", out, "--truth", sample.truth, "--detail", "none:1-20", "--size", 1)
    assert result.code == 0, result.err
    assert result.out == ""
    assert f"{out}: " in result.err
    assert "open it in any browser" in result.err
    page = out.read_bytes()
    assert page.startswith(b"<!DOCTYPE html>")
    assert page.endswith(b"</html>\n")
    assert list(tmp_path.iterdir()) == [out]
    assert call("report", sample.store, "-o", out).code == 2
    assert out.read_bytes() == page
    assert call("report", sample.store, "-o", out, "--overwrite", "--genes", sample.truth).code == 0
    assert b'id="accuracy"' not in out.read_bytes()


@pytest.mark.parametrize(
    ("options", "code", "words"),
    [
        (["--track", "x"], 1, "no track 'x'"),
        (["--truth", "none.gff"], 1, "no such file"),
        (["--fasta", "none.fa"], 1, "none.fa: no such file"),
        (["--genes", "none.gff"], 1, "none.gff: no such file"),
        (["--detail", "nowhere:1-5"], 1, "nowhere"),
        (["--circular", "nobody"], 1, "nobody"),
        (["--genetic-code", "99"], 2, "genetic code 99"),
    ],
)
def test_what_cannot_be(call, tmp_path, sample, options, code, words):
    result = call("report", sample.store, "-o", tmp_path / "x.html", *options)
    assert result.code == code
    assert len(result.complaints) == 1
    assert words in result.complaints[0]
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("output", "code", "words"), [("no/x.html", 3, "no such folder"), (".", 2, "is a folder"), ("genome.h5", 2, "lost")]
)
def test_where_it_cannot_go(call, sample, monkeypatch, output, code, words):
    monkeypatch.chdir(sample.store.parent)
    before = sample.store.read_bytes()
    result = call("report", sample.store, "-o", output, "--overwrite")
    assert (result.code, words in result.err) == (code, True)
    assert sample.store.read_bytes() == before


def test_an_interrupt_leaves_nothing(call, tmp_path, sample, monkeypatch):
    def stop(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(build, "render", stop)
    assert call("report", sample.store, "-o", tmp_path / "x.html").code == 130
    assert os.listdir(tmp_path) == []  # noqa: PTH208
