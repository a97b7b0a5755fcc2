"""Alignments on the command line: reads, their consensus, their projection; what does not go together is refused."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from alignment_samples import Read, write_alignments
from conftest import Call
from samples import bases, fasta

from genoformer.store import open_store


@pytest.fixture
def reads(tmp_path: Path) -> Path:
    """Reads of 60 bases, each 10 beyond the next one's start, of a reference of 500 whose last 40 have none."""
    reference = bases(500, seed=9)
    some = [Read(f"r{number}", 0, reference[50 * number :][:60], 0, 50 * number, "60M") for number in range(9)]
    return write_alignments(tmp_path / "x.bam", {"c": 500}, some)


def test_a_consensus_is_predicted_and_inspected(reads: Path, tiny: Path, tmp_path: Path, call: Call) -> None:
    output = tmp_path / "x.h5"
    result = call("predict", reads, "--bam-as", "consensus", "--model", tiny, "-o", output)
    assert result.code == 0
    assert "consensus by samtools" in result.err
    with open_store(output) as store:
        assert store.sequences.names == ["c"]
        assert store.sequences.lengths.tolist() == [500]
        assert "samtools" in store.metadata["versions"]
    shown = call("inspect", output)
    assert "consensus by samtools" in shown.out
    assert " uncovered" in shown.out
    assert call("export", output, "--to", "gff3", "-o", tmp_path / "x.gff").code == 0
    reads.unlink()
    gone = call("export", output, "--to", "gff3", "-o", tmp_path / "y.gff")
    assert gone.code == 1
    assert "x.bam: is not there, so its consensus cannot be made again; give it as --fasta" in gone.err


def test_a_report_of_either_needs_no_more(reads: Path, tiny: Path, tmp_path: Path, call: Call) -> None:
    for name, options in (("a", ("--bam-as", "consensus")), ("b", ("--project",))):
        assert call("predict", reads, *options, "--model", tiny, "-o", tmp_path / f"{name}.h5").code == 0
        assert call("report", tmp_path / f"{name}.h5", "-o", tmp_path / f"{name}.html").code == 0


def test_a_projection_is_predicted_inspected_and_exported(reads: Path, tiny: Path, tmp_path: Path, call: Call) -> None:
    output = tmp_path / "x.h5"
    result = call("predict", reads, "--project", "--model", tiny, "-o", output, "--min-length", 10)
    assert result.code == 0
    assert "460 to predict" in result.err
    assert "40 without a read" in result.err
    shown = call("inspect", output)
    assert "mean of the predictions of 9 reads" in shown.out
    assert "540 projected" in shown.out
    values = call("inspect", output, "--region", "c:410-461", "--track", "depth").out.splitlines()
    assert [values[1], values[2], values[-1]] == ["c\t410\t2.0", "c\t411\t1.0", "c\t461\tnan"]
    assert call("export", output, "--to", "bedgraph", "--track", "depth", "-o", tmp_path / "x.bg").code == 0
    assert (tmp_path / "x.bg").read_text().splitlines()[-1].split()[:3] == ["c", "410", "460"]
    assert call("inspect", output, "--verify").code == 0
    refused = call("export", output, "--to", "gff3", "-o", tmp_path / "x.gff")
    assert refused.code == 1
    assert "alignments do not hold those of their references; give the file with --fasta" in refused.err
    genome = fasta(tmp_path / "genome.fa", c=bases(500, seed=9))
    assert call("export", output, "--to", "gff3", "-o", tmp_path / "x.gff", "--fasta", genome).code == 0


def test_shards_of_a_projection_are_merged(reads: Path, tiny: Path, tmp_path: Path, call: Call) -> None:
    parts = [tmp_path / f"{number}.h5" for number in (1, 2)]
    options = ("--project", "--model", tiny, "-r", "c:1-200", "-r", "c:301-500")  # a block each
    for number, part in enumerate(parts, 1):
        assert call("predict", reads, *options, "-o", part, "--shard", f"{number}/2").code == 0
    assert call("merge", *parts, "-o", tmp_path / "x.h5").code == 0
    for part in parts:
        half = tmp_path / f"half-{part.name}"
        assert call("merge", part, "-o", half, "--allow-missing").code == 0
        with open_store(half) as store:
            there = int(np.isfinite(store["c"][:, 0]).sum())
            assert there in (200, 160)
            assert store.metadata["accounting"]["predicted"] == there
            assert store.metadata["missing"]["bases"] == 360 - there


def test_plan_tells_what_a_projection_takes(reads: Path, tiny: Path, call: Call) -> None:
    arguments = ("plan", reads, "--project", "--model", tiny, "--speed", 100)
    found = json.loads(call(*arguments, "--json").out)
    assert found["bases"]["predicted"] < 540
    assert found["estimate"]["seconds"] == pytest.approx(
        sum(found["made_by"]["counts"]["bases of reads"].values()) / 100
    )
    assert found["estimate"]["disk_most"] == 2 * 8 * found["bases"]["predicted"]
    halves = [json.loads(call(*arguments, "--json", "--shard", f"{number}/2").out) for number in (1, 2)]
    assert sum(half["estimate"]["seconds"] for half in halves) == pytest.approx(found["estimate"]["seconds"])
    assert "540 projected" in call(*arguments).out


def test_plan_and_tokenize_take_a_consensus(reads: Path, tiny: Path, tmp_path: Path, call: Call) -> None:
    result = call("plan", reads, "--bam-as", "consensus", "--model", tiny, "--json")
    assert result.code == 0
    assert "samtools" in json.loads(result.out)["made_by"]["versions"]
    assert call("tokenize", reads, "--bam-as", "consensus", "-o", tmp_path / "t.h5").code == 0
    assert call("predict", tmp_path / "t.h5", "--model", tiny, "-o", tmp_path / "x.h5").code == 0


def test_what_does_not_go_together_is_refused(reads: Path, tiny: Path, tmp_path: Path, call: Call) -> None:
    genome = fasta(tmp_path / "x.fa", a=bases(100))
    for arguments in (
        ("predict", genome, "--project"),
        ("predict", genome, "--bam-as", "consensus"),
        ("predict", reads, "--project", "--bam-as", "consensus"),
        ("predict", reads, "--project", "--circular", "all"),
    ):
        result = call(*arguments, "--model", tiny, "-o", tmp_path / "x.h5")
        assert result.code == 2
        assert len(result.complaints) == 1
    assert not list(tmp_path.glob("x.h5*"))
