"""BigWig written is what another library reads, and has the zoom levels that browsers ask for."""

from __future__ import annotations

import struct
import zlib
from contextlib import closing

import numpy as np
import pytest

from genoformer.errors import InputError
from genoformer.formats.bigwig import BigWig
from genoformer.formats.bigwig_write import BigWigWriter
from genoformer.formats.bigwig_zoom import RECORD, zoom_sizes

LENGTHS = [20_000, 1, 0, 4096, 40, *([7] * 300)]
NAMES = ["chrB", "a|b/c:1-2", "none", "é", "A", *(f"contig{number:03}" for number in range(300))]


def made(seed: int = 0) -> list[np.ndarray]:
    rng = np.random.default_rng(seed)
    arrays = [rng.normal(size=length).astype(np.float16).astype(np.float32) for length in LENGTHS]
    arrays[0][5000:14_000] = 0.5
    arrays[0][15_000:16_001] = np.nan
    arrays[0][17_000:17_500:7] = np.nan
    return arrays


def write(path, arrays, *, names=NAMES, piece=3000):
    with path.open("wb") as stream, closing(BigWigWriter(stream, names, np.array([len(a) for a in arrays]))) as writer:
        numbers = np.repeat(np.arange(len(arrays)), [len(a) for a in arrays])
        positions = np.concatenate([np.arange(len(a)) for a in arrays])
        values = np.concatenate(arrays)
        kept = np.flatnonzero(~np.isnan(values))
        for start in range(0, len(kept), piece):
            some = kept[start : start + piece]
            writer.add(numbers[some], positions[some], values[some])
        writer.finish()
    return path


@pytest.mark.parametrize("piece", [1000, 4096, 10**6])
def test_every_base_is_read_back(tmp_path, piece):
    arrays = made()
    wig = BigWig(write(tmp_path / "x.bw", arrays, piece=piece))
    known = {name: len(array) for name, array in zip(NAMES, arrays, strict=True) if len(array)}
    assert wig.lengths == known
    for name, array in zip(NAMES, arrays, strict=True):
        if len(array):
            spans = wig.spans(name)
            found = np.full(len(array), np.nan, dtype=np.float32)
            for start, end, value in zip(*map(np.ndarray.tolist, spans), strict=True):
                found[start:end] = value
            assert np.array_equal(found, array, equal_nan=True), name


def test_another_reader_agrees(tmp_path):
    pybigtools = pytest.importorskip("pybigtools")
    path = write(tmp_path / "x.bw", made(), piece=4096)
    wig, other = BigWig(path), pybigtools.open(str(path))
    assert wig.lengths == dict(other.chroms())
    for name in wig.lengths:
        assert list(zip(*map(np.ndarray.tolist, wig.spans(name)), strict=True)) == list(other.records(name))
    other.close()


def test_equal_values_are_one_run(tmp_path):
    arrays = [np.concatenate([np.zeros(3000, np.float32), np.ones(5000, np.float32)])]
    path = write(tmp_path / "x.bw", arrays, names=["c"])
    assert path.stat().st_size < 3000
    assert BigWig(path).spans("c").ends.tolist()[-1] == 8000


class Header:
    """The head of a file, read byte by byte as the specification says."""

    def __init__(self, data: bytes):
        (self.magic, self.version, levels, self.names_at, self.data_at, self.index_at, _, _, _, self.summary_at,
         self.largest, _) = struct.unpack_from("<IHHQQQHHQQIQ", data)  # fmt: skip
        self.zooms = [struct.unpack_from("<IIQQ", data, 64 + 24 * level) for level in range(levels)]
        self.summary = struct.unpack_from("<Qdddd", data, self.summary_at)


def zoom_records(data: bytes, at: int, index_at: int) -> np.ndarray:
    """Read the records of a zoom level through its index, of a single node."""
    size, count = struct.unpack_from("<IQ", data, index_at + 4)
    assert struct.unpack_from("<I", data, index_at) == (0x2468ACE0,)
    assert count <= size
    leaves = index_at + 48 + 4
    blocks = [struct.unpack_from("<IIIIQQ", data, leaves + 32 * number) for number in range(count)]
    assert not blocks or blocks[0][4] == at + 4
    found = [np.frombuffer(zlib.decompress(data[offset : offset + length]), RECORD) for *_, offset, length in blocks]
    for (chromosome, start, last, end, *_), records in zip(blocks, found, strict=True):
        assert (chromosome, start) == (records["chromosome"][0], records["start"][0])
        assert (last, end) == (records["chromosome"][-1], records["end"][-1])
    return np.concatenate(found)


@pytest.mark.parametrize("piece", [777, 10**6])
def test_zoom_levels_sum_up_what_is_there(tmp_path, piece):
    arrays = made(1)
    data = write(tmp_path / "x.bw", arrays, piece=piece).read_bytes()
    header = Header(data)
    assert (header.magic, header.version) == (0x888FFC26, 4)
    assert data[-4:] == data[:4]
    values = np.concatenate(arrays).astype(np.float64)
    known = values[~np.isnan(values)]
    bases, low, high, total, squares = header.summary
    assert (bases, low, high) == (len(known), known.min(), known.max())
    assert np.allclose([total, squares], [known.sum(), (known**2).sum()])
    assert [zoom[0] for zoom in header.zooms] == zoom_sizes(20_000) == [32, 128, 512, 2048, 8192]
    kept = [array for array in arrays if len(array)]
    for size, _, at, index_at in header.zooms:
        records = zoom_records(data, at, index_at)
        assert struct.unpack_from("<I", data, at) == (len(records),)
        expected = [(number, start) for number, array in enumerate(kept) for start in range(0, len(array), size)
                    if not np.isnan(array[start : start + size]).all()]  # fmt: skip
        assert (
            list(zip(records["chromosome"].tolist(), (records["start"] // size * size).tolist(), strict=True))
            == expected
        )
        for record, (number, start) in list(zip(records, expected, strict=True))[:: max(1, len(expected) // 50)]:
            here = kept[number][start : start + size].astype(np.float64)
            places = np.flatnonzero(~np.isnan(here))
            assert (record["start"], record["end"]) == (start + places[0], start + places[-1] + 1)
            assert record["count"] == len(places)
            assert (record["low"], record["high"]) == (np.nanmin(here), np.nanmax(here))
            assert np.allclose([record["sum"], record["squares"]], [np.nansum(here), np.nansum(here**2)], rtol=1e-6)


def test_without_a_value(tmp_path):
    path = write(tmp_path / "x.bw", [np.full(50, np.nan, dtype=np.float32)], names=["c"])
    assert Header(path.read_bytes()).summary[:3] == (0, 0.0, 0.0)
    assert len(BigWig(path).spans("c").starts) == 0


def test_what_cannot_be(tmp_path):
    with (tmp_path / "x").open("wb") as stream:
        with pytest.raises(InputError, match="no sequence has a base"):
            BigWigWriter(stream, ["a"], np.array([0]))
        with pytest.raises(InputError, match=r"'b' has 4,294,967,296 bases.*bedGraph"):
            BigWigWriter(stream, ["a", "b"], np.array([1, 1 << 32]))


def test_the_same_bytes_again(tmp_path):
    """A file is the same however its values come in, but for where sections are cut."""
    assert write(tmp_path / "a.bw", made()).read_bytes() == write(tmp_path / "b.bw", made()).read_bytes()
