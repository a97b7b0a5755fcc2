"""Reading: any span of any sequence as numpy would slice it; anything but a whole store is refused in one line."""

from __future__ import annotations

import re
from pathlib import Path

import h5py
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from store_samples import LENGTHS, NAMES, SIGNAL, begin, block, expected, table, write_all

import genoformer.store
from genoformer.errors import FormatError, GenoformerError, InputError, ResourceError
from genoformer.regions import Region
from genoformer.store import TrackStore, UnknownNameError, open_store, part_path

OFFSETS = table().offsets


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_all(tmp_path_factory.mktemp("reader") / "s.h5")


@pytest.fixture(scope="module")
def store(path: Path) -> TrackStore:
    with open_store(path) as store:
        yield store


def truth(index: int) -> np.ndarray:
    return expected(int(OFFSETS[index]), int(OFFSETS[index + 1]))


@given(data=st.data(), index=st.integers(0, len(NAMES) - 1))
def test_slices_are_those_of_numpy(data: st.DataObject, index: int, store: TrackStore) -> None:
    length = LENGTHS[index]
    bound = st.none() | st.integers(-length, length)
    start, stop = data.draw(bound), data.draw(bound)
    assert np.array_equal(store[NAMES[index], start:stop], truth(index)[start:stop])
    if length:
        position = data.draw(st.integers(-length, length - 1))
        assert np.array_equal(store[NAMES[index], position], truth(index)[position])


@given(size=st.sampled_from([333, 1000, 65_536, 1 << 20]))
def test_blocks_partition_every_sequence_in_order(size: int, store: TrackStore) -> None:
    found: dict[str, list[np.ndarray]] = {}
    ends: dict[str, int] = {}
    for item in store.blocks(size=size):
        assert item.start == ends.get(item.sequence, 0)
        assert 0 < item.end - item.start <= size
        ends[item.sequence] = item.end
        found.setdefault(item.sequence, []).append(item.values["signal"])
    assert list(found) == [name for name, length in zip(NAMES, LENGTHS, strict=True) if length]
    for name, pieces in found.items():
        assert np.array_equal(np.concatenate(pieces), truth(NAMES.index(name)))


@given(data=st.data(), index=st.integers(0, len(NAMES) - 1))
def test_blocks_of_a_region(data: st.DataObject, index: int, store: TrackStore) -> None:
    start = data.draw(st.integers(0, LENGTHS[index]))
    end = data.draw(st.integers(start, LENGTHS[index]))
    region = Region(NAMES[index], start, end)
    blocks = list(store.blocks("signal", region, size=5000))
    pieces = [item.values["signal"] for item in blocks]
    assert sum(map(len, pieces)) == end - start
    assert {item.sequence for item in blocks} <= {NAMES[index]}
    if pieces:
        assert blocks[0].start == start
        assert np.array_equal(np.concatenate(pieces), truth(index)[start:end])
    assert np.array_equal(store.values(region), truth(index)[start:end])


def test_what_a_store_says_of_itself(store: TrackStore) -> None:
    assert store.tracks == {"signal": SIGNAL}
    assert store.status == "complete"
    assert store.metadata == {"identity": {"model": "m"}}
    assert store["a/b"].dtype == np.float16
    assert store.sequences.names == NAMES


@pytest.mark.parametrize("where", [slice(0, 701), slice(-701, None), slice(701, None), 700, -701])
def test_beyond_a_sequence_is_an_error(where: slice | int, store: TrackStore) -> None:
    with pytest.raises(InputError, match="700 bases"):
        store["a/b", where]


def test_names_are_iterated_and_looked_up(store: TrackStore) -> None:
    assert list(store) == list(NAMES)
    assert all(name in store for name in NAMES)
    assert "none of these" not in store
    assert 0 not in store


def test_unknown_names_and_steps(store: TrackStore) -> None:
    for wrong in (lambda: store["chr9"], lambda: store["chr9", 1:2], lambda: store.values(Region("chr9", 0, 1))):
        with pytest.raises(KeyError, match="no sequence 'chr9'") as caught:
            wrong()
        assert isinstance(caught.value, InputError)
    with pytest.raises(UnknownNameError, match="no track 'x'; it has signal"):
        store.blocks("x")
    with pytest.raises(InputError, match="steps"):
        store["a/b", ::2]
    with pytest.raises(ValueError, match="size"):
        store.blocks(size=0)


def test_a_closed_store_says_so(path: Path) -> None:
    with open_store(path) as store:
        store.close()
    with pytest.raises(ValueError, match="closed"):
        store["a/b"]


def copy(path: Path, to: Path) -> h5py.File:
    to.write_bytes(path.read_bytes())
    return h5py.File(to, "r+")


def test_other_files_are_refused(path: Path, tmp_path: Path) -> None:
    bad = tmp_path / "bad.h5"
    with pytest.raises(InputError, match=r"bad.h5: no such file"):
        open_store(bad)
    with pytest.raises(InputError, match="is a folder"):
        open_store(tmp_path)
    for content in (b"", b">chr1\nACGT\n"):
        bad.write_bytes(content)
        with pytest.raises(FormatError, match=r"bad.h5: not an HDF5 file; expected a store"):
            open_store(bad)
    with h5py.File(bad, "w"):
        pass
    with pytest.raises(FormatError, match=r"bad.h5: an HDF5 file, but not written by genoformer"):
        open_store(bad)
    with copy(path, bad) as file:
        file.attrs["format-version"] = 2
    with pytest.raises(FormatError, match=r"bad.h5: layout version 2 is newer .* update genoformer"):
        open_store(bad)


@pytest.mark.parametrize(
    "key", ["sequences", "sequences/name", "sequences/offset", "sequences/reason", "tracks", "tracks/signal/values"]
)
def test_a_store_with_something_missing_is_damaged(key: str, path: Path, tmp_path: Path) -> None:
    with copy(path, tmp_path / "bad.h5") as file:
        del file[key]
    with pytest.raises(FormatError, match=r"bad.h5: damaged"):
        open_store(tmp_path / "bad.h5")


def test_wrong_offsets_are_damage(path: Path, tmp_path: Path) -> None:
    with copy(path, tmp_path / "bad.h5") as file:
        file["sequences/offset"][1] += 1
    with open_store(tmp_path / "bad.h5") as store, pytest.raises(FormatError, match="running sum"):
        _ = store.sequences


def test_damage_is_a_format_error_and_nothing_else(path: Path, tmp_path: Path) -> None:
    whole, bad = path.read_bytes(), tmp_path / "bad.h5"
    found: list[str] = []
    for size in range(0, len(whole) - 1, 1777):
        bad.write_bytes(whole[:size])
        with pytest.raises(FormatError, match=r"bad.h5: (damaged|not an HDF5)") as caught:
            open_store(bad)
        assert "\n" not in str(caught.value)
    for start in range(0, len(whole), 977):
        bad.write_bytes(whole[:start] + bytes(b ^ 0xA5 for b in whole[start : start + 64]) + whole[start + 64 :])
        try:
            with open_store(bad) as store:
                for _ in store.blocks():
                    pass
        except GenoformerError as error:
            found.append(str(error))
    assert len(found) > 10
    assert not any("\n" in message for message in found)


def test_an_interrupted_run_is_read_only_when_asked(tmp_path: Path) -> None:
    with begin(tmp_path / "s.h5") as writer:
        writer.write(block(writer.sequences, writer.blocks[0]))
    part = part_path(tmp_path / "s.h5")
    with pytest.raises(FormatError, match=r"s.h5.part: an interrupted run.*--resume"):
        open_store(part)
    before = part.read_bytes()
    with open_store(part, allow_incomplete=True) as store:
        assert store.status == "incomplete"
        assert np.array_equal(store["a/b"], truth(0))
        assert np.isnan(store["x:1-100"]).all()
    assert part.read_bytes() == before


def test_a_locked_or_unreadable_file_is_a_resource_error(
    path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(number: int):
        def raises(*_: object, **__: object) -> None:
            raise OSError(number, "from the system")

        return raises

    for number, why in (
        (11, r"in use by another process \(locked\)"),
        (13, "cannot read: Permission denied"),
        (5, "cannot read"),
    ):
        monkeypatch.setattr(h5py, "File", refuse(number))
        with pytest.raises(ResourceError, match=f"s.h5: {why}"):
            open_store(path)


def test_a_file_open_for_writing_elsewhere_is_in_use(path: Path, tmp_path: Path) -> None:
    import subprocess
    import sys

    to = tmp_path / "s.h5"
    copy(path, to).close()
    script = "import h5py, sys; f = h5py.File(sys.argv[1], 'r+'); print('open', flush=True); input()"
    with subprocess.Popen(
        [sys.executable, "-c", script, str(to)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as other:
        assert other.stdout is not None
        other.stdout.readline()
        with pytest.raises(ResourceError, match=r"s.h5: in use by another process \(locked\); wait"):
            open_store(to)
        other.communicate("\n")


def test_the_example_in_the_specification_reads_the_same(path: Path, tmp_path: Path, store: TrackStore) -> None:
    text = (Path(genoformer.store.__file__).parent / "FORMAT.md").read_text()
    (code,) = re.findall(r"```python\n(import h5py\n.*?)```", text, re.DOTALL)
    assert "genoformer" not in code
    code = code.replace("predictions.h5", str(path)).replace("chr1", "x:1-100")
    names: dict = {}
    exec(compile(code, "FORMAT.md", "exec"), names)
    assert np.array_equal(names["values"], store["x:1-100", 1000:2000])
    assert names["channels"] == ["b", "a"]


def test_the_layout_is_that_of_the_specification(path: Path) -> None:
    found: dict[str, tuple] = {}
    with h5py.File(path) as file:
        file.visititems(
            lambda key, item: (
                found.__setitem__(key, (item.shape, item.dtype.str, item.chunks))
                if isinstance(item, h5py.Dataset)
                else None
            )
        )
        assert file.attrs["format"] == "genoformer"
        assert (file.attrs["format-version"], file.attrs["format-version"].dtype) == (1, np.int64)
        assert file.attrs["status"] == "complete"
        assert set(file.attrs) == {"format", "format-version", "generated-by", "creation-date", "status", "metadata"}
        values = file["tracks/signal/values"]
        assert (values.compression, values.compression_opts, values.shuffle) == ("gzip", 1, True)
        assert np.isnan(values.fillvalue)
        attrs = file["tracks/signal"].attrs
        assert attrs["channels"].tolist() == ["b", "a"]
        assert attrs["reverse_complement"].tolist() == [1, 0]
        assert file["sequences/name"].asstr()[:].tolist() == NAMES
        assert file["sequences/status"].asstr()[:].tolist()[0] == "predicted"
        superblock_version = path.read_bytes()[8]
    n = len(NAMES)
    assert {key: shape for key, (shape, _, _) in found.items()} == {
        "sequences/length": (n,),
        "sequences/md5": (n,),
        "sequences/name": (n,),
        "sequences/offset": (n + 1,),
        "sequences/reason": (n,),
        "sequences/status": (n,),
        "sequences/topology": (n,),
        "tracks/signal/chunk_crc32": (-(-sum(LENGTHS) // 65_536), 2),
        "tracks/signal/crc32": (n,),
        "tracks/signal/values": (sum(LENGTHS), 2),
    }
    assert found["tracks/signal/values"][1:] == ("<f2", (65_536, 1))
    assert found["sequences/length"][1] == found["sequences/offset"][1] == "<i8"
    assert superblock_version <= 2  # HDF5 1.8 reads it
