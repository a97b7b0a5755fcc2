"""Checksums of parts add up, and are those of zlib; damaged values are found and named."""

from __future__ import annotations

import random
import re
import zlib
from itertools import pairwise
from pathlib import Path

import h5py
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from store_samples import LENGTHS, NAMES, SIGNAL, begin, block, expected, table, write_all

import genoformer.store
from genoformer.errors import FormatError
from genoformer.store import damaged_sequences, deflate, open_store, part_path
from genoformer.store.checksums import change, crc_of_fill, crcs_of_fill
from genoformer.store.schema import CHUNK, FILL

ARCHIVE = Path(__file__).parent / "archive"


@pytest.mark.parametrize("count", [0, 1, 7, 1000, 1 << 19, (1 << 19) + 1, 3_000_001])
@pytest.mark.parametrize("dtype", ["float16", "uint8"])
def test_the_checksum_of_fill_is_that_of_zlib(count: int, dtype: str) -> None:
    fill = FILL[dtype].tobytes()
    assert crc_of_fill(fill, count) == zlib.crc32(fill * count)
    assert crcs_of_fill(fill, np.array([count, 3, count])).tolist() == [
        crc_of_fill(fill, count),
        zlib.crc32(fill * 3),
        crc_of_fill(fill, count),
    ]


@given(
    length=st.integers(1, 300),
    cuts=st.lists(st.integers(0, 300), max_size=6),
    order=st.randoms(use_true_random=False),
    left_out=st.integers(0, 7),
)
def test_parts_in_any_order_add_up(length: int, cuts: list[int], order: random.Random, left_out: int) -> None:
    fill = FILL["float16"]
    values = np.full((length, 3), fill, dtype=np.float16)
    crc = crc_of_fill(fill.tobytes(), 3 * length)
    bounds = sorted({0, length, *(cut for cut in cuts if cut < length)})
    parts = list(pairwise(bounds))
    order.shuffle(parts)
    for start, end in parts[left_out:]:
        values[start:end] = expected(start, end, 3)
        crc ^= change(values[start:end], fill.tobytes(), (length - end) * 6)
    assert crc == zlib.crc32(values.tobytes())


def stored(path: Path) -> list[int]:
    with h5py.File(path) as file:
        return file["tracks/signal/crc32"][:].tolist()


def truth(path: Path) -> list[int]:
    """Compute them from the values in the file."""
    offsets = table().offsets
    with h5py.File(path) as file:
        values = file["tracks/signal/values"][:]
    return [zlib.crc32(values[a:b].tobytes()) for a, b in pairwise(offsets)]


def chunk_crcs(path: Path) -> np.ndarray:
    with h5py.File(path) as file:
        dataset = file["tracks/signal/values"]
        found = np.zeros((-(-len(dataset) // CHUNK), dataset.shape[1]), dtype=np.uint32)
        for row, channel in np.ndindex(found.shape):
            if dataset.id.get_chunk_info_by_coord((row * CHUNK, channel)).byte_offset is not None:
                found[row, channel] = zlib.crc32(dataset.id.read_direct_chunk((row * CHUNK, channel))[1])
        assert np.array_equal(file["tracks/signal/chunk_crc32"][:], found)
    return found


def test_a_store_has_right_checksums_after_every_commit(tmp_path: Path) -> None:
    path, part = tmp_path / "s.h5", part_path(tmp_path / "s.h5")
    done = 0
    for seed in range(4):
        with begin(path, resume=True) as writer:
            writer.commit_bytes = 30_000
            left = np.flatnonzero(~writer.done).tolist()
            random.Random(seed).shuffle(left)
            for number in left[:20]:
                writer.write(block(writer.sequences, writer.blocks[number]))
        assert stored(part) == truth(part)
        assert (chunk_crcs(part) > 0).sum() > 0
        done += 20
    with begin(path, resume=True) as writer:
        for number in np.flatnonzero(~writer.done):
            writer.write(block(writer.sequences, writer.blocks[number]))
        writer.finish()
    assert stored(path) == truth(path)
    assert (chunk_crcs(path) > 0).all()
    with open_store(path) as store:
        assert damaged_sequences(store).tolist() == []
        assert store.checksums("signal").tolist() == stored(path)


def test_the_example_in_the_specification_verifies(tmp_path: Path) -> None:
    text = (Path(genoformer.store.__file__).parent / "FORMAT.md").read_text()
    (code,) = re.findall(r"```python\n(import zlib\n.*?)```", text, re.DOTALL)
    path = write_all(tmp_path / "s.h5")
    for crc, damaged in ((stored(path)[2], []), (0, ["x:1-100"])):
        with h5py.File(path, "r+") as file:
            file["tracks/signal/crc32"][2] = crc
        names: dict = {}
        exec(compile(code.replace("predictions.h5", str(path)), "FORMAT.md", "exec"), names)
        assert names["damaged"] == damaged


@pytest.mark.parametrize("index", [0, 1, 2, 5])
def test_one_changed_bit_is_found_in_any_sequence(index: int, tmp_path: Path) -> None:
    path = write_all(tmp_path / "s.h5")
    place = int(table().offsets[index]) + (LENGTHS[index] - 1)
    with h5py.File(path, "r+") as file:
        values = file["tracks/signal/values"]
        bits = values[place, 1].view(np.uint16) ^ np.uint16(1)
        values[place, 1] = bits.view(np.float16)
    with open_store(path) as store:
        assert damaged_sequences(store).tolist() == [index]


def test_a_chunk_that_cannot_be_inflated_damages_what_lies_in_it(tmp_path: Path) -> None:
    path = write_all(tmp_path / "s.h5")
    with h5py.File(path) as file:
        info = file["tracks/signal/values"].id.get_chunk_info_by_coord((CHUNK, 0))
    data = bytearray(path.read_bytes())
    data[info.byte_offset + 10 : info.byte_offset + 14] = b"\xff\xff\xff\xff"
    path.write_bytes(data)
    seen: list[int] = []
    with open_store(path) as store:
        assert damaged_sequences(store, report=seen.append).tolist() == [2, 3, 5]  # 4 has no bases
    assert sum(seen) == sum(LENGTHS)


def test_files_of_earlier_versions_have_no_checksums() -> None:
    with open_store(ARCHIVE / "v1" / "store.h5") as store:
        assert store.checksums("coding-frame") is None
        with pytest.raises(FormatError, match="has no checksums of its values, as it was written by an earlier"):
            damaged_sequences(store)


def test_a_part_of_an_earlier_version_is_finished_without_checksums(tmp_path: Path) -> None:
    path = tmp_path / "s.h5"
    with begin(path) as writer:
        writer.write(block(writer.sequences, writer.blocks[3]))
    with h5py.File(part_path(path), "r+") as file:
        del file["tracks/signal/crc32"], file["tracks/signal/chunk_crc32"]
    with begin(path, resume=True) as writer:
        for number in np.flatnonzero(~writer.done):
            writer.write(block(writer.sequences, writer.blocks[number]))
        writer.finish()
    with open_store(path) as store:
        assert store.checksums(SIGNAL.name) is None
        assert np.array_equal(np.concatenate([store[name] for name in NAMES]), expected(0, sum(LENGTHS)))


@pytest.mark.parametrize("fast", [True, False])
@given(values=st.lists(st.integers(0, 65_535), max_size=50))
def test_a_chunk_comes_back_and_hdf5_reads_it(fast: bool, values: list[int]) -> None:
    for dtype, whole in (("float16", np.array(values, np.uint16)), ("uint8", np.array(values, np.uint16) >> 8)):
        column = np.zeros(CHUNK, np.uint16)
        column[: len(whole)] = whole
        chunk = column.view(np.float16) if dtype == "float16" else column.astype(np.uint8)
        data = deflate.encode(chunk, fast=fast)
        back = deflate.decode(data, chunk.dtype, CHUNK)
        assert np.array_equal(back.view(np.uint8), chunk.view(np.uint8))
        with h5py.File("x", "w", driver="core", backing_store=False) as file:
            options = {"compression": "gzip", "shuffle": dtype == "float16", "chunks": (CHUNK, 1)}
            dataset = file.create_dataset("v", shape=(CHUNK, 1), dtype=dtype, **options)
            dataset.id.write_direct_chunk((0, 0), data)
            assert np.array_equal(dataset[:, 0].view(np.uint8), chunk.view(np.uint8))
            dataset[:, 0] = chunk  # and what HDF5's own filters made is read
            mask, data = dataset.id.read_direct_chunk((0, 0))
            back = deflate.decode(data, chunk.dtype, CHUNK, skipped=mask)
            assert np.array_equal(back.view(np.uint8), chunk.view(np.uint8))


@pytest.mark.parametrize("damage", [b"", b"x\x01", None, -1])
def test_a_damaged_chunk_is_refused(damage: bytes | int | None) -> None:
    data = deflate.encode(np.zeros(CHUNK, np.float16))
    bad = data + b"" if damage is None else data[:damage] if isinstance(damage, int) else damage
    with pytest.raises(ValueError, match="chunk"):
        deflate.decode(bad, np.dtype("float16"), CHUNK if damage is not None else CHUNK - 1)
