"""Tables, BED, bedGraph and npz written are read back, names and numbers alike; bgzip is what others read."""

from __future__ import annotations

import gzip
import io
from contextlib import closing

import numpy as np
import pysam
import pytest
from export_samples import HOSTILE
from hypothesis import given
from hypothesis import strategies as st

from genoformer.errors import FormatError, InputError
from genoformer.formats import spans_write, table
from genoformer.formats.arrays import NpzWriter, read_npz
from genoformer.formats.bgzip import BED_COLUMNS, LONGEST_TBI, BgzipWriter, write_index
from genoformer.formats.bytestream import is_bgzf
from genoformer.formats.spans import read_bed_spans, read_bedgraph
from genoformer.regions import Region

ALL = np.arange(1 << 16, dtype=np.uint16).view(np.float16)
FINITE = ALL[np.isfinite(ALL)]


def test_every_float16_survives_bedgraph(tmp_path):
    path = tmp_path / "x.bedgraph"
    starts = np.arange(len(FINITE))
    lines = spans_write.bedgraph_lines(["c"], np.zeros(len(FINITE), np.int64), starts, starts + 1, FINITE)
    path.write_bytes(b"".join(lines))
    found = read_bedgraph(path)["c"]
    assert np.array_equal(found.starts, starts)
    assert np.array_equal(found.values.astype(np.float16), FINITE)


def test_every_float16_survives_a_table(tmp_path):
    path = tmp_path / "x.tsv"
    values = np.stack([FINITE, FINITE[::-1]], axis=1)
    places = np.arange(len(values))
    lines = table.table_lines(["c"], np.zeros(len(values), np.int64), places, values)
    path.write_bytes(table.table_header(["+0", "é x"]) + b"".join(lines))
    channels, rows = table.read_table(path)
    found = list(rows)
    assert channels == ["+0", "é x"]
    assert np.array_equal(np.concatenate([r.positions for r in found]), places)
    assert np.array_equal(np.concatenate([r.values for r in found]).astype(np.float16), values)


def test_hostile_names(tmp_path):
    spans_write.check_names(HOSTILE)
    table.check_names([*HOSTILE, "#x", "a b", "track"])
    numbers = np.arange(len(HOSTILE))
    ones = np.ones(len(HOSTILE), dtype=np.float16)
    path = tmp_path / "x"
    path.write_bytes(b"".join(spans_write.bedgraph_lines(HOSTILE, numbers, numbers, numbers + 1, ones)))
    assert list(read_bedgraph(path)) == HOSTILE
    spans = np.column_stack([numbers, numbers + 5])
    words, strands = np.array([b"+"] * len(HOSTILE)), np.array([b"-"] * len(HOSTILE))
    lines = spans_write.bed_lines(HOSTILE, numbers, spans, words=words, scores=numbers, strands=strands)
    path.write_bytes(b"".join(lines))
    assert {name: found.ends.tolist() for name, found in read_bed_spans(path).items()} == {
        name: [number + 5] for number, name in enumerate(HOSTILE)
    }
    path.write_bytes(table.table_header(["v"]) + b"".join(table.table_lines(HOSTILE, numbers, numbers, ones[:, None])))
    assert [(row.sequence, row.positions.tolist()) for row in table.read_table(path)[1]] == [
        (name, [number]) for number, name in enumerate(HOSTILE)
    ]


@pytest.mark.parametrize("name", ["a b", "#a", "track", "browser", "a\tb", "a\nb", "", "a\u2028b", "\x01"])
def test_names_that_bed_cannot_hold(name):
    with pytest.raises(InputError, match="rename it in the input"):
        spans_write.check_names(["ok", name])


@pytest.mark.parametrize("name", ["a\tb", "a\nb", "a\rb", ""])
def test_names_that_a_table_cannot_hold(name):
    with pytest.raises(InputError, match="rename it in the input"):
        table.check_names(["ok", name])


def test_a_very_long_name_takes_bounded_memory():
    names = ["x" * 100_000, "y"]
    many, places = np.zeros(200, np.int64), np.arange(200)
    pieces = list(spans_write.bedgraph_lines(names, many, places, places + 1, np.ones(200, np.float16)))
    assert len(pieces) > 1
    assert sum(piece.count(b"\n") for piece in pieces) == 200


@pytest.mark.parametrize(
    ("text", "words"),
    [("", "line 1"), ("a\tb\tc\n", "line 1"), ("sequence\tposition\tv\nc\t1\n", "lines 2-2"),
     ("sequence\tposition\tv\nc\tx\t1\n", "lines 2-2"), ("sequence\tposition\tv\nc\t1\t1\t9\n", "lines 2-2")],
)  # fmt: skip
def test_no_table(tmp_path, text, words):
    (tmp_path / "x").write_text(text)
    with pytest.raises(FormatError, match=words):
        list(table.read_table(tmp_path / "x")[1])


def npz(path, regions, arrays, channels=("a", "b")):
    kind = np.dtype(np.float16)
    with (
        path.open("wb") as stream,
        closing(NpzWriter(stream, track="t", channels=channels, regions=regions, dtype=kind)) as writer,
    ):
        joined = np.concatenate(arrays) if arrays else np.empty((0, 2))
        for start in range(0, len(joined), 7):
            writer.add(joined[start : start + 7])
        writer.finish()
    return path


def test_npz(tmp_path):
    regions = [Region(name, 3, 3 + index % 5 * 4) for index, name in enumerate(HOSTILE)]
    arrays = [np.random.default_rng(index).normal(size=(region.length, 2)).astype(np.float16)
              for index, region in enumerate(regions)]  # fmt: skip
    found = read_npz(npz(tmp_path / "x.npz", regions, arrays))
    assert (found.track, found.channels, found.regions) == ("t", ["a", "b"], regions)
    blocks = list(found.blocks())
    assert [(block.sequence, block.start) for block in blocks] == [(r.sequence, r.start) for r in regions]
    for block, array in zip(blocks, arrays, strict=True):
        assert np.array_equal(block.values["t"], array)
        assert block.values["t"].dtype == np.float16
    with np.load(tmp_path / "x.npz") as file:
        assert np.array_equal(file["values_1"], arrays[1])


def test_npz_with_nothing_and_too_little(tmp_path):
    assert read_npz(npz(tmp_path / "x.npz", [], [])).regions == []
    with pytest.raises(ValueError, match="fewer"):
        npz(tmp_path / "y.npz", [Region("a", 0, 3)], [])
    with pytest.raises(ValueError, match="more"):
        npz(tmp_path / "z.npz", [Region("a", 0, 1)], [np.zeros((2, 2))])
    (tmp_path / "no.npz").write_bytes(b"PK\x03\x04 not really")
    np.savez(tmp_path / "other.npz", x=1)
    np.save(tmp_path / "array.npy", np.zeros(3))
    for name in ("no.npz", "other.npz", "array.npy"):
        with pytest.raises(FormatError, match="no npz of values"):
            read_npz(tmp_path / name)


@given(st.lists(st.binary(max_size=50)), st.integers(0, 3))
def test_bgzip(pieces, large):
    stream = io.BytesIO()
    writer = BgzipWriter(stream)
    for piece in [*pieces, bytes(70_000) * large, b"x" * (0xFF00 * (large % 2))]:
        writer.write(piece)
    writer.finish()
    data = stream.getvalue()
    assert gzip.decompress(data) == b"".join(pieces) + bytes(70_000) * large + b"x" * (0xFF00 * (large % 2))
    assert is_bgzf(data)
    assert data.endswith(bytes.fromhex("1f8b08040000000000ff0600424302001b0003000000000000000000"))


@pytest.mark.parametrize(("longest", "suffix"), [(LONGEST_TBI, ".tbi"), (LONGEST_TBI + 1, ".csi")])
def test_index(tmp_path, longest, suffix):
    path = tmp_path / "x y.bed.gz"
    with path.open("wb") as stream:
        writer = BgzipWriter(stream)
        for name in ("b", "a|1"):
            writer.write(b"".join(f"{name}\t{start}\t{start + 10}\n".encode() for start in range(0, 200_000, 10)))
        writer.write(f"z\t{longest - 5}\t{longest}\n".encode())
        writer.finish()
    for stale in (".tbi", ".csi"):
        (tmp_path / f"x y.bed.gz{stale}").write_text("stale")
    assert write_index(path, BED_COLUMNS, longest=longest) == tmp_path / f"x y.bed.gz{suffix}"
    assert sorted(p.name for p in tmp_path.iterdir()) == ["x y.bed.gz", f"x y.bed.gz{suffix}"]
    with pysam.TabixFile(str(path), index=f"{path}{suffix}") as file:
        assert file.contigs == ["b", "a|1", "z"]
        assert list(file.fetch("a|1", 100_000, 100_001)) == ["a|1\t100000\t100010"]
        assert len(list(file.fetch("z", longest - 1, longest))) == 1


def test_what_is_not_sorted_is_not_indexed(tmp_path):
    path = tmp_path / "x.bed.gz"
    with path.open("wb") as stream:
        writer = BgzipWriter(stream)
        writer.write(b"a\t50\t60\na\t10\t20\n")
        writer.finish()
    with pytest.raises(FormatError, match="cannot be indexed"):
        write_index(path, BED_COLUMNS, longest=100)
    assert [p.name for p in tmp_path.iterdir()] == ["x.bed.gz"]
