"""genoformer explain: effects of every base of a region, and pictures of them."""

from __future__ import annotations

import numpy as np
import pytest
from samples import bases, fasta

from genoformer.regions import Region
from genoformer.store import open_store
from genoformer.workers import Workers


@pytest.mark.parametrize("by", ["saturation", "gradient"])
def test_explains_and_draws(by, call, tiny, tmp_path):
    pytest.importorskip("matplotlib")
    path, output = fasta(tmp_path / "x.fa", **{"a:1-9": bases(300)}), tmp_path / "o.h5"
    options = ["-r", "a:1-9:101-130", "-o", output, "--by", by, "--model", tiny, "--window", 60]
    result = call("explain", path, *options, "--plot", tmp_path / "o.svg")
    assert result.code == 0, result.err
    assert ("held fixed" in result.err) == (by == "gradient")
    assert "<svg" in (tmp_path / "o.svg").read_text()
    shown = call("inspect", output)
    assert shown.code == 0
    assert ("gain" if by == "saturation" else "attribution") in shown.out
    assert sorted(file.name for file in tmp_path.iterdir()) == ["o.h5", "o.svg", "x.fa"]


def test_several_processes_explain_as_one_does(call, tiny, tmp_path, monkeypatch):
    asked, original = [], Workers.map
    monkeypatch.setattr(Workers, "map", lambda self, jobs: asked.append(self) or original(self, jobs))
    path = fasta(tmp_path / "x.fa", a=bases(300))
    for name, more in (("one", []), ("two", ["--processes", 2])):
        options = ["-r", "a:101-150", "-o", tmp_path / f"{name}.h5", "--model", tiny, "--window", 60, "-t", 2]
        assert call("explain", path, *options, *more).code == 0
    assert len(asked) == 1
    with open_store(tmp_path / "one.h5") as one, open_store(tmp_path / "two.h5") as two:
        for track in ("gain", "loss", "shift"):
            ours, theirs = (store.values(Region("a", 100, 150), track) for store in (one, two))
            assert np.isfinite(ours).all()
            assert np.allclose(ours, theirs, atol=1e-4)


@pytest.mark.parametrize(
    ("options", "code", "word"),
    [
        (["-r", "zz"], 1, "zz"), (["-r", "a:1-999"], 1, "300"), (["-r", "a:1-9", "--plot", "x.txt"], 2, ".png"),
        (["-r", "a:1-99", "--by", "gradient", "--window", 60], 2, "window"),
        (["-r", "a:1-9", "--by", "gradient", "--processes", 2], 2, "one process"),
    ],
)  # fmt: skip
def test_what_cannot_be(options, code, word, call, tiny, tmp_path):
    path = fasta(tmp_path / "x.fa", a=bases(300))
    result = call("explain", path, "-o", tmp_path / "o.h5", "--model", tiny, *options)
    assert result.code == code, result.err
    assert word in result.complaints[0]
    assert list(tmp_path.iterdir()) == [path]
