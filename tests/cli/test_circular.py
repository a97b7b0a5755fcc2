"""Circular sequences from predict to export: rotated by half, the same genes, to the last digit (fault 41)."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from samples import bases, fasta
from tiny import made_up_genome

from genoformer.store import open_store

MODEL = Path(__file__).resolve().parents[2] / "genoformer" / "models" / "prokaryote-genes"


@pytest.fixture
def plasmid() -> str:
    """A made-up plasmid, cut within its third gene."""
    letters, genes = made_up_genome(6, seed=3, codons=150)
    cut = (genes[2][0] + genes[2][1]) // 2
    return (letters[cut:] + letters[:cut]).decode()


def rows_of(text: str) -> list[list[str]]:
    return [line.split("\t") for line in text.splitlines() if "\tCDS\t" in line]


@pytest.mark.skipif(not MODEL.is_dir(), reason="the bundled model prokaryote-genes is not there")
def test_a_rotated_plasmid_has_the_same_genes(call, tmp_path, plasmid):
    half, found = len(plasmid) // 2, []
    for number, text in enumerate((plasmid, plasmid[half:] + plasmid[:half])):
        path, output = fasta(tmp_path / f"{number}.fa", p=text), tmp_path / f"{number}.h5"
        assert call("predict", path, "-o", output, "--circular", "p", "--threads", 1).code == 0
        gff = call("export", output, "--to", "gff3", "-o", "-")
        assert gff.code == 0
        assert "\tregion\t1\t4120\t.\t+\t.\tID=p:1..4120;Is_circular=true" in gff.out
        rows = rows_of(gff.out)
        shift = half * number
        said = {((int(r[3]) - 1 + shift) % 4120, int(r[4]) - int(r[3]), *r[5:8], r[8].partition(";")[2]) for r in rows}
        found.append((said, max(int(r[4]) for r in rows)))
    assert len(found[0][0]) == 6
    assert found[0][0] == found[1][0]  # scores and probabilities too
    assert found[0][1] > 4120  # a gene runs over the origin
    linear = tmp_path / "linear.h5"
    assert call("predict", tmp_path / "0.fa", "-o", linear, "--threads", 1).code == 0
    text = call("export", linear, "--to", "gff3", "-o", "-").out
    assert "Is_circular" not in text
    assert max(int(row[4]) for row in rows_of(text)) <= 4120


def test_plan_inspect_and_evaluate_tell_of_circles(call, tiny, tmp_path):
    path = fasta(tmp_path / "x.fa", a=bases(300), b=bases(200, 1), **{f"s{i}": "ACGT" * 5 for i in range(6)})
    common = ["--model", tiny, "--window", 100, "--overlap", 20]
    shown = call("plan", path, *common, "--circular", "b", "--circular", "a")
    assert "circular, windows reach over the origin: a, b" in shown.out
    assert json.loads(call("plan", path, *common, "--circular", "a", "--json").out)["circular"] == ["a"]
    assert "circular" not in call("plan", path, *common).out
    result = call("predict", path, "-o", tmp_path / "x.h5", *common, "--circular", "all")
    assert result.code == 0
    assert "circular, windows reach over the origin: a, b, s0, s1, s2, ... and 3 more" in result.err
    lines = [line.split() for line in call("inspect", tmp_path / "x.h5").out.splitlines()]
    assert ["a", "300", "circular", "predicted", "100.0%"] in lines
    (tmp_path / "x.gff").write_text("##gff-version 3\n##sequence-region a 1 300\na\t.\tCDS\t4\t63\t.\t+\t0\tID=c\n")
    evaluated = call("evaluate", tmp_path / "x.h5", "--truth", tmp_path / "x.gff")
    assert evaluated.code == 0
    assert "over the origin of 8 circular sequence(s) too" in evaluated.out


def test_the_time_reckons_with_what_is_seen_twice(call, tiny, tmp_path):
    path = fasta(tmp_path / "x.fa", a=bases(300), b=bases(200, 1))
    arguments = ["plan", path, "--model", tiny, "--speed", 100, "--json"]
    linear = json.loads(call(*arguments).out)["estimate"]
    circular = json.loads(call(*arguments, "--circular", "all").out)["estimate"]
    assert circular["seconds"] == pytest.approx(linear["seconds"] + 100)
    assert circular["memory"] > linear["memory"]


def test_names_that_are_not_there(call, tiny, tmp_path):
    path = fasta(tmp_path / "x.fa", a=bases(300))
    for command in ("predict", "plan"):
        result = call(command, path, "-o", tmp_path / "x.h5", "--model", tiny, "--circular", "b")
        assert result.code == 1
        assert "has no sequence 'b' to be circular; it has 'a'" in result.complaints[0]
    assert not list(tmp_path.glob("x.h5*"))


def test_tokens_and_resumed_runs_keep_the_circle(call, tiny, tmp_path):
    path = fasta(tmp_path / "x.fa", a=bases(900))
    cut, common = ["--window", 200, "--overlap", 40], ["--model", tiny]
    assert call("predict", path, "-o", tmp_path / "x.h5", *cut, *common, "--circular", "a").code == 0
    assert call("tokenize", path, "-o", tmp_path / "t.h5", *cut, "--circular", "a").code == 0
    assert call("predict", tmp_path / "t.h5", "-o", tmp_path / "y.h5", *common).code == 0
    with open_store(tmp_path / "x.h5") as one, open_store(tmp_path / "y.h5") as two:
        assert one.sequences.topology == two.sequences.topology == ["circular"]
        np.testing.assert_array_equal(one["a"], two["a"])
