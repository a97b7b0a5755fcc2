"""inspect: what is in a store, and its values as text."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import h5py
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from samples import bases, fasta

from genoformer.formats.columns import joined, number_texts
from genoformer.regions import Block
from genoformer.store import SequenceTable, TrackStore
from genoformer.tracks import TOKENS, Track

SIGNAL = Track(name="signal", kind="signal", channels=("one", "two"), units="reads", reverse_complement=(0, 1))
OTHER = Track(name="other", kind="signal", channels=("x",), units="reads", reverse_complement=(0,))
WRITTEN = number_texts(np.dtype("float16"))
rng = np.random.default_rng(0)


def store(path, *, names=("a", "x:1-100", "t\tb", "empty"), lengths=(70_000, 300, 20, 0), missing=()):
    """Write a store of random values, some spans of 100 bases missing."""
    table = SequenceTable.build(names, lengths, status=["pending"] * len(names), reason=["", "", "", "no bases"])
    offsets = table.offsets
    spans = [(offsets[i] + s, min(offsets[i] + s + 100, offsets[i + 1]))
             for i, n in enumerate(lengths) for s in range(0, n, 100)]  # fmt: skip
    spans = [span for number, span in enumerate(spans) if number not in missing]
    values = {}
    with TrackStore.create(path, table, [SIGNAL, OTHER], provenance={}, blocks=np.array(spans)) as writer:
        for start, end in spans:
            index = int(np.searchsorted(offsets, start, side="right")) - 1
            made = rng.normal(size=(end - start, 2)).astype(np.float16)
            block = Block(names[index], int(start - offsets[index]), {"signal": made, "other": made[:, :1]})
            writer.write(block)
            values[names[index], block.start] = made
        writer.finish()
    return values


def parsed(text):
    rows = [line.split("\t") for line in text.splitlines()]
    return rows[0], [(row[0], int(row[1]), [float(cell) for cell in row[2:]]) for row in rows[1:]]


def test_as_json(call, tmp_path):
    store(tmp_path / "x.h5", missing=(1,))
    result = call("inspect", tmp_path / "x.h5", "--json")
    assert (result.code, result.err) == (0, "")
    found = json.loads(result.out)
    rows = [(row["name"], row["length"], row["predicted"], row["reason"]) for row in found["sequences"]]
    assert rows == [
        ("a", 70_000, 69_900, ""), ("x:1-100", 300, 300, ""), ("t\tb", 20, 20, ""), ("empty", 0, 0, "no bases")
    ]  # fmt: skip
    assert [track["channels"] for track in found["tracks"]] == [["one", "two"], ["x"]]
    assert found["status"] == "complete"


def test_values_of_regions(call, tmp_path):
    values = store(tmp_path / "x.h5", missing=(1,))
    result = call("inspect", tmp_path / "x.h5", "-r", "a:51-220", "--region", "x:1-100:11-30")
    head, rows = parsed(result.out)
    assert result.err == ""
    assert head == ["sequence", "position", "one", "two"]
    assert [row[:2] for row in rows] == [("a", p) for p in range(51, 221)] + [("x:1-100", p) for p in range(11, 31)]
    got = np.array([row[2] for row in rows]).astype(np.float16)  # written so that nothing is lost
    assert np.array_equal(got[:50], values["a", 0][50:])
    assert np.isnan(got[50:150]).all()
    assert np.array_equal(got[150:170], values["a", 200][:20])
    assert np.array_equal(got[170:], values["x:1-100", 0][10:30])


def test_a_region_larger_than_a_block(call, tmp_path):
    values = store(tmp_path / "x.h5")
    _, rows = parsed(call("inspect", tmp_path / "x.h5", "-r", "a").out)
    assert [row[1] for row in rows] == list(range(1, 70_001))
    whole = np.concatenate([values["a", start] for start in range(0, 70_000, 100)])
    assert np.array_equal(np.array([row[2] for row in rows]).astype(np.float16), whole)


def test_another_track_and_a_bed_file(call, tmp_path):
    store(tmp_path / "x.h5")
    (tmp_path / "r.bed").write_text("a\t3\t5\n")
    head, rows = parsed(call("inspect", tmp_path / "x.h5", "-r", tmp_path / "r.bed", "--track", "other").out)
    assert head[2:] == ["x"]
    assert [row[1] for row in rows] == [4, 5]
    result = call("inspect", tmp_path / "x.h5", "-r", "a:1-2", "--track", "nope")
    assert (result.code, result.out) == (1, "")
    assert "'nope'" in result.complaints[0]


@pytest.mark.parametrize(("region", "word"), [("zz", "zz"), ("a:1-70001", "70000"), ("a:9-3", "before it starts")])
def test_bad_regions(region, word, call, tmp_path):
    store(tmp_path / "x.h5")
    result = call("inspect", tmp_path / "x.h5", "-r", region)
    assert (result.code, result.out) == (1, "")
    assert len(result.complaints) == 1
    assert word in result.complaints[0]


@given(st.lists(st.tuples(st.integers(0, 2**16 - 1), st.integers(0, 10**12)), max_size=20))
def test_text_of_any_number(rows):
    bits = np.array([row[0] for row in rows], dtype=np.uint16)
    places = np.array([row[1] for row in rows], dtype=np.int64)
    text = joined([places.astype("S20"), WRITTEN[bits]])
    expected = bits.view(np.float16)
    assert text.count(b"\n") == len(rows)
    for line, place, value in zip(text.decode().splitlines(), places, expected, strict=True):
        first, second = line.split("\t")
        assert int(first) == place
        assert np.array_equal(np.float16(second), value, equal_nan=True)


def test_codes_as_text():
    assert number_texts(np.dtype("uint8"))[[0, 4, 254, 255]].tolist() == [b"0", b"4", b"254", b"nan"]


def test_what_is_in_it(call, tmp_path):
    store(tmp_path / "x.h5", missing=(1,))
    result = call("inspect", tmp_path / "x.h5")
    assert (result.code, result.err) == (0, "")
    for words in ("layout 1, complete", "signal, signal (reads), channels one two", "sequences: 4", "x:1-100", "t\\tb"):
        assert words in result.out
    shares = [line.split()[4] for line in result.out.splitlines() if " linear " in line]
    assert shares == ["99.9%", "100.0%", "100.0%", "-"]


def test_the_first_sequences_unless_all(call, tmp_path):
    path = fasta(tmp_path / "x.fa", **{f"s{i}": bases(5 + i) for i in range(30)})
    assert call("tokenize", path, "-o", tmp_path / "t.h5").code == 0
    some, every = call("inspect", tmp_path / "t.h5").out, call("inspect", tmp_path / "t.h5", "--all").out
    assert "  s19 " in some
    assert "  s20 " not in some
    assert "and 10 more" in some
    assert "  s29 " in every
    assert "more" not in every
    _, rows = parsed(call("inspect", tmp_path / "t.h5", "-r", "s3").out)
    assert [int(row[2][0]) for row in rows] == ["ACGT".index(base) for base in bases(8)]
    assert TOKENS.name in some


@pytest.mark.parametrize(
    ("damage", "word"),
    [
        (lambda path: path.unlink(), "no such file"),
        (lambda path: path.write_text("text"), "not an HDF5 file"),
        (lambda path: path.write_bytes(path.read_bytes()[:9000]), "damaged"),
    ],
)
def test_files_that_are_no_store(damage, word, call, tmp_path):
    store(tmp_path / "x.h5")
    damage(tmp_path / "x.h5")
    result = call("inspect", tmp_path / "x.h5")
    assert (result.code, result.out) == (1, "")
    assert word in result.complaints[0]
    assert str(tmp_path / "x.h5") in result.complaints[0]


def test_a_reader_that_stops_early(tmp_path):
    store(tmp_path / "x.h5")
    with subprocess.Popen(
        [sys.executable, "-m", "genoformer", "inspect", str(tmp_path / "x.h5"), "-r", "a"],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    ) as process:  # fmt: skip
        assert process.stdout.readline().startswith(b"sequence\t")
        process.stdout.close()
        assert process.wait(60) == 0
        assert process.stderr.read() == b""


def test_values_are_verified(call, tmp_path):
    path = tmp_path / "x.h5"
    store(path, missing=(1,))
    result = call("inspect", path, "--verify")
    assert (result.code, result.out) == (0, f"{path}: 4 sequences, 70,320 bases: all values are as they were written\n")
    with h5py.File(path, "r+") as file:
        file["tracks/other/values"][70_310, 0] = 7
        file["tracks/signal/values"][3, 1] = 7
    result = call("inspect", path, "--verify")
    assert (result.code, result.out) == (1, "")
    assert result.complaints[0].endswith(
        "x.h5: 2 of 4 sequences, 70,320 bases are damaged: a, t\\tb; predict them again, or fetch another copy"
    )
    result = call("inspect", Path(__file__).parents[1] / "store" / "archive" / "v1" / "store.h5", "--verify")
    assert (result.code, result.out) == (1, "")
    assert "has no checksums" in result.complaints[0]
