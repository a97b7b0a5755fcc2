"""Exports of 10,000 contigs, read by other programs: every value, at first and last bases, in the order of the file."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import numpy as np
import pysam
import pytest
from export_samples import write_store

from genoformer.export import Calling, Selection, export_track
from genoformer.store import TrackStore, open_store

COUNT = 10_000
LENGTHS = np.random.default_rng(1).integers(1, 40, COUNT)
NAMES = [f"contig_{number * 7919 % COUNT}" for number in range(COUNT)]  # in no order of letters
SOME = [0, 1, 4999, COUNT - 1]


@pytest.fixture(scope="module")
def values() -> np.ndarray:
    """Of all bases, (bases, 2): multiples of 1/64, which every format holds as they are."""
    found = np.random.default_rng(2).integers(0, 64, (int(LENGTHS.sum()), 2)) / 64
    found[:, 1] = np.repeat(np.arange(COUNT) % 2, LENGTHS)  # of the second channel contigs are whole intervals
    return found.astype(np.float16)


@pytest.fixture(scope="module")
def store(tmp_path_factory, values) -> TrackStore:
    parts = dict(zip(NAMES, np.split(values, np.cumsum(LENGTHS)[:-1]), strict=True))
    with open_store(write_store(tmp_path_factory.mktemp("many") / "x.h5", parts)) as opened:
        yield opened


def of_contig(values: np.ndarray, number: int) -> np.ndarray:
    end = int(LENGTHS[: number + 1].sum())
    return values[end - int(LENGTHS[number]) : end]


def test_bigwig(store, values, tmp_path):
    pybigtools = pytest.importorskip("pybigtools")
    export_track(Selection(store, "signal"), "bigwig", tmp_path / "x.bw", channels=["s+"])
    wig = pybigtools.open(str(tmp_path / "x.bw"))
    assert dict(wig.chroms()) == dict(zip(NAMES, LENGTHS.tolist(), strict=True))
    for number in SOME:
        expected = of_contig(values, number)[:, 0]
        found = [np.full(end - start, value) for start, end, value in wig.records(NAMES[number])]
        assert np.array_equal(np.concatenate(found), expected)
    wig.close()


@pytest.mark.parametrize("to", ["bedgraph", "tsv"])
def test_tabix(store, values, tmp_path, to):
    (file,) = export_track(Selection(store, "signal"), to, tmp_path / "x.gz", channels=["s+"])
    assert file.index is not None
    with pysam.TabixFile(str(tmp_path / "x.gz")) as tabix:
        assert tabix.contigs == NAMES
        for number in SOME:
            for place in (0, int(LENGTHS[number]) - 1):
                (row,) = tabix.fetch(NAMES[number], place, place + 1)
                assert float(row.split("\t")[-1]) == of_contig(values, number)[place, 0]


def test_bed(store, tmp_path):
    """Every second contig is an interval from its first base to its last."""
    path = tmp_path / "x.bed"
    export_track(Selection(store, "signal"), "bed", path, channels=["s-"], calling=Calling(threshold=0.5))
    rows = [line.split("\t")[:3] for line in path.read_text().splitlines()]
    chosen = range(1, COUNT, 2)
    assert rows == [[NAMES[number], "0", str(LENGTHS[number])] for number in chosen]


@pytest.mark.skipif(not shutil.which("bedtools"), reason="no bedtools")
def test_bedtools(store, tmp_path):
    """It takes the intervals as they are, and complements them to the other contigs."""
    path, sizes = tmp_path / "x.bed", tmp_path / "sizes"
    export_track(Selection(store, "signal"), "bed", path, channels=["s-"], calling=Calling(threshold=0.5))
    sizes.write_text("".join(f"{name}\t{length}\n" for name, length in zip(NAMES, LENGTHS.tolist(), strict=True)))
    rest = bedtools("complement", "-i", path, "-g", sizes)
    assert [row.split("\t")[0] for row in rest] == NAMES[0::2]
    assert bedtools("merge", "-i", path) == ["\t".join(row.split("\t")[:3]) for row in path.read_text().splitlines()]


def bedtools(*words: str | Path) -> list[str]:
    done = subprocess.run(["bedtools", *map(str, words)], capture_output=True, text=True, check=True)
    assert done.stderr == ""
    return done.stdout.splitlines()
