"""Exports of a store, each read back: every base, every name, regions, strands, ends; files whole or not at all."""

from __future__ import annotations

import io

import numpy as np
import pysam
import pytest
from export_samples import HOSTILE, SIGNAL, coding_values, random_values, write_store

from genoformer.errors import ConfigError, InputError, ResourceError
from genoformer.export import TRACK_FORMATS, Calling, Selection, choose_channels, export_track
from genoformer.export.channels import calling_channels, strand_channels
from genoformer.export.files import channel_path
from genoformer.formats.arrays import read_npz
from genoformer.formats.bigwig import BigWig
from genoformer.formats.spans import Spans, read_bed_spans, read_bedgraph
from genoformer.formats.table import read_table
from genoformer.regions import Region
from genoformer.store import open_store
from genoformer.tracks import CODING_FRAME, Track

LENGTHS = [2000, 1, 0, 333, 40, 7, 30_000, *([11] * 8)]


@pytest.fixture(scope="module")
def values():
    return {name: random_values(length, seed) for seed, (name, length) in enumerate(zip(HOSTILE, LENGTHS, strict=True))}


@pytest.fixture(scope="module")
def store(tmp_path_factory, values):
    with open_store(write_store(tmp_path_factory.mktemp("store") / "x.h5", values)) as opened:
        yield opened


def painted(spans: dict[str, Spans], lengths: dict[str, int]) -> dict[str, np.ndarray]:
    found = {name: np.full(length, np.nan, dtype=np.float16) for name, length in lengths.items()}
    for name, (starts, ends, numbers) in spans.items():
        for start, end, value in zip(starts.tolist(), ends.tolist(), numbers, strict=True):
            assert np.isnan(found[name][start:end]).all()
            found[name][start:end] = value
    return found


def read_back(to: str, path, lengths: dict[str, int]) -> dict[str, np.ndarray]:
    """Read the only channel of an export: of each sequence a value a base, NaN where there is none."""
    if to == "bigwig":
        pytest.importorskip("pybigtools")
        wig = BigWig(path)
        assert wig.lengths == {name: length for name, length in lengths.items() if length}
        return painted({name: wig.spans(name) for name in wig.lengths}, lengths)
    if to == "bedgraph":
        return painted(read_bedgraph(path), lengths)
    found = {name: np.full(length, np.nan, dtype=np.float16) for name, length in lengths.items()}
    if to == "tsv":
        for rows in read_table(path)[1]:
            found[rows.sequence][rows.positions] = rows.values[:, 0]
    else:
        for block in read_npz(path).blocks():
            found[block.sequence][block.start : block.end] = block.values["signal"][:, 0]
    return found


VALUES = [name for name in TRACK_FORMATS if name != "bed"]


@pytest.mark.parametrize("to", VALUES)
@pytest.mark.parametrize("size", [65_536 * 4, 1000])
def test_every_base_is_read_back(store, values, tmp_path, to, size):
    if to == "npz":
        assert "s-" in read_npz(_all(store, to, tmp_path)).channels
    path = tmp_path / "x"
    (file,) = export_track(Selection(store, "signal", size=size), to, path, channels=["s-"])
    lengths = {name: len(array) for name, array in values.items()}
    found = read_back(to, path, lengths)
    assert list(found) == HOSTILE
    for name, array in values.items():
        assert np.array_equal(found[name], array[:, 1], equal_nan=True), name
    assert file.written.bases == sum(int((~np.isnan(array[:, 1])).sum()) for array in values.values())
    assert sorted(p.name for p in tmp_path.iterdir()) in (["x"], ["all", "x"])


def _all(store, to, folder):
    (file,) = export_track(Selection(store, "signal"), to, folder / "all")
    return file.path


REGIONS = [
    Region("chr1", 0, 10),
    Region("chr1", 1990, 2000),
    Region("a/b", 0, 1),
    Region("HLA-A*01:01", 25_000, 26_000),
]


@pytest.mark.parametrize("to", VALUES)
def test_regions(store, values, tmp_path, to):
    path = tmp_path / "x"
    selection = Selection(store, "signal", REGIONS, size=1000)
    done: list[int] = []
    export_track(selection, to, path, channels=["s+"], report=done.append)
    assert sum(done) == selection.bases() == 1021
    found = read_back(to, path, {name: len(array) for name, array in values.items()})
    for name, array in values.items():
        expected = np.full(len(array), np.nan, dtype=np.float16)
        for region in REGIONS:
            if region.sequence == name:
                expected[region.start : region.end] = array[region.start : region.end, 0]
        assert np.array_equal(found[name], expected, equal_nan=True), name


def test_smoothing_is_the_same_through_any_window(store, tmp_path):
    for number, size in enumerate((1000, 65_536 * 4)):
        export_track(
            Selection(store, "signal", smooth=301, size=size), "bedgraph", tmp_path / str(number), channels=["s+"]
        )
    export_track(Selection(store, "signal", REGIONS, smooth=301), "bedgraph", tmp_path / "r", channels=["s+"])
    assert (tmp_path / "0").read_bytes() == (tmp_path / "1").read_bytes()
    whole = (tmp_path / "0").read_text().splitlines()
    assert set((tmp_path / "r").read_text().splitlines()[1:9]) <= set(whole)


GENES = [(0, 90, 1), (150, 240, -1), (250, 400, -1), (700, 730, 1)]


@pytest.fixture(scope="module")
def coding(tmp_path_factory):
    values = {
        "a": coding_values(1000, GENES),
        "b": coding_values(60, [(0, 60, 1)]),
        "c": coding_values(60, [(0, 60, 1)]),
    }
    values["a"][100:120] = np.nan
    with open_store(write_store(tmp_path_factory.mktemp("store") / "c.h5", values, CODING_FRAME)) as opened:
        yield opened


def rows_of(path) -> list[list[str]]:
    return [line.split("\t") for line in path.read_text().splitlines()]


@pytest.mark.parametrize("size", [7, 64, 65_536])
def test_bed_of_strands(coding, tmp_path, size):
    path = tmp_path / "x.bed"
    export_track(Selection(coding, CODING_FRAME.name, size=size), "bed", path, calling=Calling(merge=20, min_length=50))
    assert rows_of(path) == [
        ["a", "0", "90", "+", "960", "+"],
        ["a", "150", "400", "-", "923", "-"],
        ["b", "0", "60", "+", "960", "+"],
        ["c", "0", "60", "+", "960", "+"],
    ]
    assert list(read_bed_spans(path)) == ["a", "b", "c"]


def test_a_value_at_the_threshold_is_within(tmp_path):
    """0.1 as float16 is less than 0.1 as float64."""
    with open_store(write_store(tmp_path / "x.h5", {"a": np.full((5, 2), 0.1)})) as store:
        (file,) = export_track(Selection(store, "signal"), "bed", tmp_path / "x", calling=Calling(threshold=0.1))
        assert file.written.count == 2
    with pytest.raises(ConfigError, match="got nan"):
        Calling(threshold=float("nan"))


def test_bed_of_channels_is_sorted(coding, tmp_path):
    path = tmp_path / "x.bed"
    names = ["none", "+0", "+1", "+2", "-0"]
    export_track(Selection(coding, CODING_FRAME.name, size=50), "bed", path, channels=names)
    rows = rows_of(path)
    assert {row[3] for row in rows} == set(names)
    keys = [("abc".index(row[0]), int(row[1]), int(row[2])) for row in rows]
    assert keys == sorted(keys)
    assert [row[:3] for row in rows if row[3] == "+0"][:2] == [["a", "0", "1"], ["a", "3", "4"]]
    assert {row[5] for row in rows if row[3] == "none"} == {"."}


def test_strands():
    assert [(c.name, c.columns, c.strand) for c in strand_channels(CODING_FRAME)] == [
        ("+", (1, 2, 3), "+"),
        ("-", (4, 5, 6), "-"),
    ]
    plain = Track("t", "class", ("no", "yes", "+odd"), "probability", (0, 1, 2))
    assert [c.name for c in calling_channels(plain)] == ["yes", "+odd"]
    assert [c.strand for c in calling_channels(plain)] == [".", "."]
    assert [c.strand for c in calling_channels(SIGNAL)] == ["+", "-"]
    with pytest.raises(ConfigError, match="no channel 'x'; it has none, "):
        choose_channels(CODING_FRAME, ["x"])


@pytest.mark.parametrize("to", ["bed", "bedgraph", "tsv"])
def test_compressed_and_indexed(store, tmp_path, to):
    channel = ["s+"]
    calling = Calling(threshold=-1e9)
    export_track(Selection(store, "signal"), to, tmp_path / "x", channels=channel, calling=calling)
    (file,) = export_track(Selection(store, "signal"), to, tmp_path / "x.gz", channels=channel, calling=calling)
    assert str(file.index).endswith("x.gz.tbi")
    with pysam.BGZFile(str(tmp_path / "x.gz")) as stream:
        assert stream.read() == (tmp_path / "x").read_bytes()
    with pysam.TabixFile(str(tmp_path / "x.gz")) as tabix:
        assert tabix.contigs == [name for name, length in zip(HOSTILE, LENGTHS, strict=True) if length]
        rows = [line.split("\t") for line in tabix.fetch("HLA-A*01:01", 29_999, 30_000)]
        assert len(rows) == 1
        assert rows[0][0] == "HLA-A*01:01"
        first = [line.split("\t") for line in tabix.fetch("chr1", 0, 1)]
        assert [row[:2] for row in first] == [["chr1", "1" if to == "tsv" else "0"]]


def test_a_file_for_each_channel(store, tmp_path):
    found = export_track(Selection(store, "signal"), "bedgraph", tmp_path / "x.bedgraph.gz")
    assert [file.path for file in found] == [str(tmp_path / f"x.{name}.bedgraph.gz") for name in ("s+", "s-")]
    assert channel_path("d.e/x.bw", "a b/c") == "d.e/x.a%20b%2Fc.bw"
    assert channel_path("x", "+") == "x.+"
    with pytest.raises(ConfigError, match="exists already"):
        export_track(Selection(store, "signal"), "bedgraph", tmp_path / "x.bedgraph.gz")
    export_track(Selection(store, "signal"), "bedgraph", tmp_path / "x.bedgraph.gz", overwrite=True)
    with pytest.raises(ConfigError, match="holds one channel; choose one with --channel: s\\+, s-"):
        export_track(Selection(store, "signal"), "bedgraph", "-", stdout=io.BytesIO())


def test_what_cannot_be_leaves_nothing(store, tmp_path):
    selection = Selection(store, "signal")
    for to, output, error, words in (
        ("bigwig", "-", ConfigError, "standard output"),
        ("npz", tmp_path / "x.npz.gz", ConfigError, "compressed in itself"),
        ("bed", tmp_path / "no" / "x", ResourceError, "no such folder"),
        ("tsv", store.path, ConfigError, "is what is to be read"),
        ("parquet", tmp_path / "x", ConfigError, "no format 'parquet'; expected one of bigwig"),
        ("tsv", tmp_path / ("x" * 300), ResourceError, "name another output"),
    ):
        with pytest.raises(error, match=words):
            export_track(selection, to, output, channels=["s+"], overwrite=True)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("to", TRACK_FORMATS)
def test_an_interruption_leaves_nothing(store, tmp_path, to):
    def stop(_):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        export_track(Selection(store, "signal", size=1000), to, tmp_path / "x", channels=["s+"], report=stop)
    assert list(tmp_path.iterdir()) == []


def test_names_that_a_format_cannot_hold(tmp_path):
    path = write_store(tmp_path / "x.h5", {"fine": np.ones((5, 2)), "not fine": np.ones((5, 2))})
    with open_store(path) as store:
        for to, kind in TRACK_FORMATS.items():
            if to.startswith("bed"):
                with pytest.raises(InputError, match="'not fine'"):
                    export_track(Selection(store, "signal"), to, tmp_path / to, channels=["s+"])
                assert not (tmp_path / to).exists()
                export_track(Selection(store, "signal", [Region("fine", 0, 5)]), to, tmp_path / to, channels=["s+"])
            else:
                export_track(Selection(store, "signal"), to, tmp_path / to, channels=["s+"])
            assert kind.write


@pytest.mark.parametrize("to", TRACK_FORMATS)
def test_without_a_sequence_or_a_value(tmp_path, to):
    with open_store(write_store(tmp_path / "n.h5", {"a": np.full((9, 2), np.nan), "b": np.empty((0, 2))})) as store:
        (file,) = export_track(Selection(store, "signal"), to, tmp_path / "n", channels=["s+"])
        assert file.written.bases == 0
    with open_store(write_store(tmp_path / "e.h5", {})) as store:
        if to == "bigwig":
            with pytest.raises(InputError, match="no sequence has a base"):
                export_track(Selection(store, "signal"), to, tmp_path / "e", channels=["s+"])
            assert not (tmp_path / "e").exists()
        else:
            (file,) = export_track(Selection(store, "signal"), to, tmp_path / "e", channels=["s+"])
            assert file.written.count == 0


def test_infinite_values(tmp_path):
    values = np.array([[np.inf, 1.0], [0.0, 1.0]])
    with open_store(write_store(tmp_path / "x.h5", {"a": values})) as store:
        for to in ("bigwig", "bedgraph"):
            with pytest.raises(InputError, match="infinite"):
                export_track(Selection(store, "signal"), to, tmp_path / to, channels=["s+"])
        for to in ("tsv", "npz"):
            export_track(Selection(store, "signal"), to, tmp_path / to)
        assert "inf" in (tmp_path / "tsv").read_text()
