"""The example data: as described in data/README.md, reproducible, and predicted as before.

`python tests/test_data.py` writes data/expected.json anew.
"""

from __future__ import annotations

import gzip
import hashlib
import importlib.util
import json
import re
import tempfile
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

ROOT = Path(__file__).resolve().parents[1]
DATA = ROOT / "data"
EXPECTED = DATA / "expected.json"
MODEL = ROOT / "genoformer" / "models" / "prokaryote-genes"
FLIPPED_BASES, MEAN_ERROR = 50, 2e-3
"""Other processors round differently: a few bases near a tie change class, and a mean by less than float16 shows."""


def simulator() -> ModuleType:
    spec = importlib.util.spec_from_file_location("simulate_reads", DATA / "simulate_reads.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def summarize_reads() -> dict[str, Any]:
    """Say what the reads amount to as an input."""
    from genoformer.formats.sequences import open_sequences
    from genoformer.plan import make_plan

    plan = make_plan(open_sequences(DATA / "lambda_reads.bam"))
    return {"reads": len(plan.sequences), "accounting": plan.accounting._asdict(), "left-out": plan.left_out}


def summarize_prediction(folder: Path) -> dict[str, Any]:
    """Predict phage lambda as the README does, and say what came out: counts, and mean probabilities."""
    from genoformer.cli import run
    from genoformer.store import open_store

    output = folder / "lambda.h5"
    assert run(["predict", str(DATA / "lambda.fa.gz"), "-o", str(output)]) == 0
    with open_store(output) as store:
        values = np.concatenate([block.values["coding-frame"] for block in store.blocks()]).astype(np.float64)
        channels = store.tracks["coding-frame"].channels
        called = np.bincount(values.argmax(axis=1), minlength=len(channels))
        return {
            "model-sha256": store.metadata["identity"]["model-sha256"],
            "genetic-code": store.metadata["identity"]["genetic-code"],
            "accounting": store.metadata["accounting"],
            "called": dict(zip(channels, called.tolist(), strict=True)),
            "mean": dict(zip(channels, np.round(values.mean(axis=0), 5).tolist(), strict=True)),
        }


def expected(part: str) -> dict[str, Any]:
    if not EXPECTED.is_file():
        pytest.skip("data/expected.json is not there yet: `python tests/test_data.py` writes it")
    found = json.loads(EXPECTED.read_text(encoding="utf-8"))
    if part not in found:
        pytest.skip(f"data/expected.json has no {part!r}: `python tests/test_data.py` writes it with the bundled model")
    return found[part]


def documented_sums() -> list[tuple[str, str]]:
    return re.findall(r"^\| `(\S+)` \|.*`([0-9a-f]{64})` \|$", (DATA / "README.md").read_text("utf-8"), re.MULTILINE)


@pytest.mark.parametrize(("name", "checksum"), documented_sums())
def test_checksum(name, checksum):
    assert hashlib.sha256((DATA / name).read_bytes()).hexdigest() == checksum


def test_every_input_has_a_checksum():
    binary = {path.name for path in DATA.iterdir() if path.suffix in (".gz", ".bam")}
    assert binary == {name for name, _ in documented_sums()}


def test_every_file_is_described():
    text = (DATA / "README.md").read_text("utf-8")
    for path in DATA.iterdir():
        if path.is_file() and not path.name.startswith("."):
            assert path.name == "README.md" or f"`{path.name}`" in text, path.name


def test_data_is_small():
    assert sum(path.stat().st_size for path in DATA.iterdir() if path.is_file()) < 1_000_000


def test_lambda_is_the_whole_genome():
    header, *lines = gzip.decompress((DATA / "lambda.fa.gz").read_bytes()).splitlines()
    sequence = b"".join(lines)
    assert header.split()[0] == b">NC_001416.1"
    assert len(sequence) == 48_502
    assert set(sequence) == set(b"ACGT")
    assert hashlib.md5(sequence).hexdigest() in (DATA / "README.md").read_text("utf-8")


def test_reads_are_reproducible(tmp_path):
    import pysam

    simulator().simulate(tmp_path / "again.bam")

    def content(path: Path) -> tuple[dict[str, Any], list[str]]:
        with pysam.AlignmentFile(str(path), "rb") as file:
            return file.header.to_dict(), [read.to_string() for read in file]

    assert content(tmp_path / "again.bam") == content(DATA / "lambda_reads.bam")


def test_reads_agree_with_the_reference():
    """The CIGAR of each read is true: it aligns as many wrong bases as its NM tag says, less indels."""
    import pysam

    _, reference = simulator().read_reference()
    letters = reference.tobytes().decode()
    checked = 0
    with pysam.AlignmentFile(str(DATA / "lambda_reads.bam"), "rb") as file:
        for read in file:
            if read.is_unmapped or read.query_sequence is None:
                continue
            pairs = np.array(read.get_aligned_pairs(matches_only=True))
            wrong = sum(read.query_sequence[a] != letters[b] for a, b in pairs)
            indels = sum(length for operation, length in read.cigartuples if operation in (1, 2))
            assert wrong + indels == read.get_tag("NM"), read.query_name
            assert wrong < 0.1 * len(pairs)
            checked += 1
    assert checked == 60 + 23 + 2 + 2  # long reads, mates that are mapped, the chimera twice, the twins


def test_reads_hold_every_kind():
    import pysam

    with pysam.AlignmentFile(str(DATA / "lambda_reads.bam"), "rb") as file:
        reads = list(file)
    long = [read for read in reads if read.query_name.startswith("long") and not read.is_secondary]
    assert {read.is_reverse for read in long} == {True, False}
    assert any(read.cigartuples[0][0] == 4 for read in long)
    assert sum(read.is_secondary for read in reads) == 1
    assert sum(read.is_supplementary and read.cigartuples[0][0] == 5 for read in reads) == 1
    assert sum(read.is_unmapped for read in reads) == 4
    assert sum(read.query_name == "twin" for read in reads) == 2
    assert sum(read.query_sequence is None and not read.is_secondary for read in reads) == 1


def test_reads_as_input():
    """Every base of the file is accounted for, and as the README of the data says."""
    summary = summarize_reads()
    assert summary == expected("lambda_reads.bam")
    account = summary["accounting"]
    assert sum(account[key] for key in ("predicted", "masked", "skipped", "not_requested")) == account["total"]
    assert f"{summary['reads']} simulated reads of it, {account['total']:,} bases" in (DATA / "README.md").read_text()


@pytest.mark.skipif(not MODEL.is_dir(), reason="the bundled model prokaryote-genes is not there")
def test_prediction_is_as_before(tmp_path):
    before, now = expected("lambda.fa.gz"), summarize_prediction(tmp_path)
    for exact in ("model-sha256", "genetic-code", "accounting"):
        assert now[exact] == before[exact], f"{exact} changed; if on purpose, run `python tests/test_data.py`"
    assert list(now["called"]) == list(before["called"])
    for channel in before["called"]:
        assert abs(now["called"][channel] - before["called"][channel]) <= FLIPPED_BASES, channel
        assert abs(now["mean"][channel] - before["mean"][channel]) <= MEAN_ERROR, channel


def write_expected() -> None:
    """Write data/expected.json; the prediction only where the bundled model is there."""
    found: dict[str, Any] = {"lambda_reads.bam": summarize_reads()}
    if MODEL.is_dir():
        with tempfile.TemporaryDirectory() as folder:
            found["lambda.fa.gz"] = summarize_prediction(Path(folder))
    EXPECTED.write_text(json.dumps(found, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    write_expected()
