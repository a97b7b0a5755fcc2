"""Shards: any number of them, joined in any order, are the run in one; what does not fit together is refused."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import h5py
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from store_samples import begin, block, expected, spans, table, write_all

from genoformer.errors import ConfigError, FormatError, InputError, ResourceError
from genoformer.store import SequenceTable, Shard, TrackStore, damaged_sequences, merge_shards, open_store, part_path
from genoformer.store.schema import CHUNK

LONG = SequenceTable.build(["x", "y/z", "empty", "w"], [300_000, 200_000, 0, 70_001])


def write_shard(path: Path, text: str, size: int = 9500, **options: object) -> Path:
    sequences = options.pop("sequences", LONG)
    with begin(path, size, sequences=sequences, shard=Shard.parse(text), **options) as writer:
        for span in writer.blocks:
            writer.write(block(writer.sequences, span))
        return writer.finish()


def shards(folder: Path, count: int, **options: object) -> list[Path]:
    return [write_shard(folder / f"{i}of{count}.h5", f"{i}/{count}", **options) for i in range(1, count + 1)]


def content(path: Path) -> dict[str, np.ndarray]:
    """Everything in a file but how it came about."""
    found: dict[str, np.ndarray] = {}
    with h5py.File(path) as file:
        file.visititems(lambda key, item: found.__setitem__(key, item[:]) if isinstance(item, h5py.Dataset) else None)
    return found


def assert_same(one: Path, other: Path) -> None:
    ours, theirs = content(one), content(other)
    assert ours.keys() == theirs.keys()
    for key, values in ours.items():
        if not key.endswith("chunk_crc32"):  # of compressed bytes
            assert values.dtype == theirs[key].dtype
            assert (
                values.tolist() == theirs[key].tolist()
                if values.dtype == object
                else values.tobytes() == theirs[key].tobytes()
            ), key


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_all(tmp_path_factory.mktemp("whole") / "s.h5", 9500, sequences=LONG)


@given(
    lengths=st.lists(st.integers(1, 50), max_size=30),
    gap=st.integers(0, 5),
    count=st.integers(1, 40),
)
def test_shards_partition_the_blocks_evenly(lengths: list[int], gap: int, count: int) -> None:
    ends = np.cumsum(np.array(lengths, dtype=np.int64) + gap)
    blocks = np.stack([ends - lengths, ends], axis=1) if lengths else np.empty((0, 2), dtype=np.int64)
    parts = [Shard(number, count).select(blocks) for number in range(1, count + 1)]
    assert [i for part in parts for i in range(len(blocks))[part]] == list(range(len(blocks)))
    bases = [sum(lengths[part]) for part in parts]
    assert all(abs(had - sum(lengths) / count) <= max(lengths, default=0) for had in bases)


@pytest.mark.parametrize("text", ["", "0/3", "4/3", "1", "1/0", "a/b", "-1/3", "1/3/4", "1/99999999", "١/٣"])
def test_what_is_no_shard(text: str) -> None:
    with pytest.raises(ConfigError, match="is no shard; expected I/N"):
        Shard.parse(text)


@pytest.mark.parametrize("count", [1, 2, 3, 7, 25])
def test_any_number_of_shards_is_the_run_in_one(count: int, whole: Path, tmp_path: Path) -> None:
    paths = shards(tmp_path, count, size=30_000)
    seen: list[int] = []
    merged = merge_shards([*reversed(paths[1:]), paths[0]], tmp_path / "m.h5", command="us", report=seen.append)
    assert (len(merged.missing), merged.missing_bases) == (0, 0)
    assert sum(seen) == LONG.total_bases
    assert_same(tmp_path / "m.h5", whole)
    with open_store(tmp_path / "m.h5") as store:
        assert (store.status, store.shard) == ("complete", None)
        assert damaged_sequences(store).tolist() == []
        assert store.metadata["identity"] == {"model": "m"}
        assert store.metadata["command"] == "us"
        assert [item["shard"] for item in store.metadata["shards"]].count(f"1/{count}") == 1
    assert not (tmp_path / "m.h5.merging").exists()


def test_chunks_within_a_shard_are_copied_as_they_are(whole: Path, tmp_path: Path) -> None:
    paths = shards(tmp_path, 3)
    merge_shards(paths, tmp_path / "m.h5")
    raw = {}
    for path in (*paths, tmp_path / "m.h5"):
        with open_store(path, allow_incomplete=True) as store:
            raw[path] = [store.stored_chunk("signal", row, 1) for row in range(-(-LONG.total_bases // CHUNK))]
    rows = list(zip(*(raw[path] for path in paths), strict=True))
    alone = [[chunk for chunk in row if chunk is not None] for row in rows]
    assert sum(len(chunks) > 1 for chunks in alone) == 2  # the two borders
    for chunks, merged in zip(alone, raw[tmp_path / "m.h5"], strict=True):
        assert len(chunks) > 1 or chunks == [merged]


def test_short_sequences_and_more_shards_than_blocks(tmp_path: Path) -> None:
    one = write_all(tmp_path / "one.h5")
    paths = shards(tmp_path, 30, size=5000, sequences=table())
    with open_store(paths[3], allow_incomplete=True) as store:
        assert (store.status, str(store.shard)) == ("shard", "4/30")
        assert not len(store.shard_spans("blocks"))
        assert damaged_sequences(store).tolist() == []
    merge_shards(paths, tmp_path / "m.h5")
    assert_same(tmp_path / "m.h5", one)


def test_nothing_to_predict(tmp_path: Path) -> None:
    for number, sequences in enumerate([SequenceTable.build([], []), SequenceTable.build(["e"], [0])]):
        folder = tmp_path / str(number)
        folder.mkdir()
        merge_shards(shards(folder, 2, sequences=sequences), folder / "m.h5")
        with open_store(folder / "m.h5") as store:
            assert store.sequences.names == sequences.names


def test_a_shard_is_resumed_as_itself(whole: Path, tmp_path: Path) -> None:
    path = tmp_path / "2.h5"
    with begin(path, 9500, sequences=LONG, shard=Shard(2, 3)) as writer:
        writer.write(block(LONG, writer.blocks[4]))
    for other, had in ((Shard(1, 3), "'1/3'"), (Shard(2, 4), "'2/4'"), (None, "None")):
        with pytest.raises(ConfigError, match=f"shard was '2/3', now {had}"):
            begin(path, 9500, sequences=LONG, shard=other, resume=True)
    with pytest.raises(FormatError, match=r"2.h5.part: shard 2/3 is not finished; run its command again with --resume"):
        merge_shards([part_path(path)], tmp_path / "m.h5")
    with begin(path, 9500, sequences=LONG, shard=Shard(2, 3), resume=True) as writer:
        assert np.flatnonzero(writer.done).tolist() == [4]
        for number in np.flatnonzero(~writer.done):
            writer.write(block(LONG, writer.blocks[number]))
        writer.finish()
    merge_shards(
        [path, write_shard(tmp_path / "1.h5", "1/3"), write_shard(tmp_path / "3.h5", "3/3")], tmp_path / "m.h5"
    )
    assert_same(tmp_path / "m.h5", whole)


def test_a_kill_before_the_rename_of_a_shard_is_finished_by_resume(tmp_path: Path) -> None:
    path = write_shard(tmp_path / "1.h5", "1/3")
    path.rename(part_path(path))
    with begin(path, 9500, sequences=LONG, shard=Shard(1, 3), resume=True) as writer:
        assert writer.done.all()
        writer.finish()
    assert path.exists()


def test_a_shard_is_not_taken_for_the_whole(tmp_path: Path) -> None:
    path = write_shard(tmp_path / "1.h5", "1/3")
    with pytest.raises(FormatError, match=r"1.h5: shard 1/3 of a run; join the shards by genoformer merge first"):
        open_store(path)


def test_what_is_missing_is_named_and_may_be_left_out(whole: Path, tmp_path: Path) -> None:
    paths = shards(tmp_path, 4)
    left = [paths[0], paths[3]]
    with pytest.raises(
        InputError,
        match=r"^the bases from x:142501 on and .* more blocks .*: 2 shards: 2/4, 3/4 not given; add them, or use",
    ):
        merge_shards(left, tmp_path / "m.h5")
    assert not (tmp_path / "m.h5").exists()
    merged = merge_shards(left, tmp_path / "m.h5", allow_missing=True)
    assert merged.missing_bases == 281_000 == sum(np.diff(merged.missing)[:, 0])
    with open_store(tmp_path / "m.h5") as store, open_store(whole) as full:
        assert store.metadata["missing"] == {"bases": 281_000, "blocks": 30, "shards": "2 shards: 2/4, 3/4"}
        assert damaged_sequences(store).tolist() == []
        values = np.concatenate([store[name] for name in LONG.names])
        right = np.concatenate([full[name] for name in LONG.names])
        for start, end in merged.missing:
            right[start:end] = np.nan
        assert np.array_equal(values, right, equal_nan=True)
        assert store.sequences.status == ["predicted", "predicted", "pending", "predicted"]
        assert store.sequences.reason[0].startswith("blocks of 157,500 bases are missing")
    merge_shards([paths[0]], tmp_path / "n.h5", allow_missing=True)
    with open_store(tmp_path / "n.h5") as store:
        assert store.sequences.status == ["predicted", "skipped", "pending", "skipped"]
        assert "a shard was not there" in store.sequences.reason[1]


def test_the_same_bases_twice_are_refused(tmp_path: Path) -> None:
    one, two = shards(tmp_path, 2)
    copy = tmp_path / "copy.h5"
    copy.write_bytes(one.read_bytes())
    for paths in ([one, one, two], [one, two, copy], [one, two, write_shard(tmp_path / "half.h5", "2/3")]):
        for allow in (False, True):
            with pytest.raises(InputError, match=r"\(shard ./.\) both have .*:\d+; give each part of the run once"):
                merge_shards(paths, tmp_path / "m.h5", allow_missing=allow)
    three = write_shard(tmp_path / "third.h5", "3/3")  # of another number, but nothing twice
    with pytest.raises(InputError, match="blocks are in none of the shards; add them"):
        merge_shards([one, three], tmp_path / "m.h5")


@pytest.mark.parametrize(
    ("options", "why"),
    [
        ({"provenance": {"identity": {"model": "other"}}}, "model was 'm', now 'other'"),
        ({"size": 9000}, "the planned blocks differ"),
        ({"sequences": SequenceTable.build(["x", "y", "empty", "w"], LONG.lengths)}, "sequence 2 has name"),
        ({"sequences": SequenceTable.build(LONG.names, LONG.lengths, md5=["0" * 32] * 4)}, "has md5"),
        ({"sequences": SequenceTable.build(LONG.names, LONG.lengths, topology=["circular"] * 4)}, "has topology"),
    ],
)
def test_shards_of_other_runs_are_refused(options: dict, why: str, tmp_path: Path) -> None:
    one, other = write_shard(tmp_path / "1.h5", "1/2"), write_shard(tmp_path / "2.h5", "2/2", **options)
    with pytest.raises(ConfigError, match=rf"2.h5: is of another run than .*1.h5: .*{why}"):
        merge_shards([one, other], tmp_path / "m.h5")


def test_files_that_are_no_shards(whole: Path, tmp_path: Path) -> None:
    one = write_shard(tmp_path / "1.h5", "1/2")
    (tmp_path / "text").write_text("x")
    for other, kind, why in (
        (whole, FormatError, "is no shard but a whole run"),
        (tmp_path / "text", FormatError, "not an HDF5 file"),
        (tmp_path / "none.h5", InputError, "no such file"),
        (tmp_path, InputError, "is a folder"),
    ):
        for paths in ([one, other], [other]):
            with pytest.raises(kind, match=why):
                merge_shards(paths, tmp_path / "m.h5")
    with pytest.raises(ConfigError, match="no shards to merge"):
        merge_shards([], tmp_path / "m.h5")


def test_nothing_is_overwritten_unasked(tmp_path: Path) -> None:
    paths = shards(tmp_path, 2)
    output = tmp_path / "m.h5"
    output.write_bytes(b"precious")
    with pytest.raises(ConfigError, match="exists already; use --overwrite"):
        merge_shards(paths, output)
    for overwrite in (True, False):
        with pytest.raises(ConfigError, match="is one of the shards"):
            merge_shards(paths, paths[0], overwrite=overwrite)
    with pytest.raises(ConfigError, match="is a folder"):
        merge_shards(paths, tmp_path, overwrite=True)
    with pytest.raises(ResourceError, match="No such file or directory"):
        merge_shards(paths, tmp_path / "none" / "m.h5")
    merge_shards(paths, output, overwrite=True)
    with open_store(output) as store:
        assert np.array_equal(store["w"], expected(500_000, 570_001))


def test_a_damaged_chunk_ends_the_merge_and_names_the_shard(tmp_path: Path) -> None:
    paths = shards(tmp_path, 2)
    data = paths[1].read_bytes()
    with open_store(paths[1], allow_incomplete=True) as store:
        places = [store._datasets["signal"].id.get_chunk_info_by_coord((row * CHUNK, 0)) for row in (4, 5)]
    for place in places:  # one that both shards have, one that is copied
        bad = bytearray(data)
        bad[place.byte_offset + place.size // 2] ^= 1
        paths[1].write_bytes(bad)
        with pytest.raises(FormatError, match=r"2of2.h5: damaged \(values from .*:\d+ on\); predict shard 2/2 again"):
            merge_shards(paths, tmp_path / "m.h5")
    assert sorted(item.name for item in tmp_path.iterdir()) == ["1of2.h5", "2of2.h5"]


def test_a_full_disk_ends_the_merge_and_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    paths = shards(tmp_path, 2)
    write, left = os.pwrite, [60_000]

    def full(descriptor: int, data: bytes, place: int) -> int:
        left[0] -= len(data)
        if left[0] < 0:
            raise OSError(28, "No space left on device")
        return write(descriptor, data, place)

    with monkeypatch.context() as patch:
        patch.setattr(os, "pwrite", full)
        with pytest.raises(ResourceError, match=r"m.h5: cannot write: No space left on device"):
            merge_shards(paths, tmp_path / "m.h5")
    monkeypatch.setattr("shutil.disk_usage", lambda _: type("Usage", (), {"free": 10}))
    with pytest.raises(ResourceError, match=r"m.h5: 10 bytes are free there, [\d,]+ are needed"):
        merge_shards(paths, tmp_path / "m.h5")
    assert sorted(item.name for item in tmp_path.iterdir()) == ["1of2.h5", "2of2.h5"]


KILLED = """
import os, signal, sys
from pathlib import Path
from genoformer.store import merge, merge_shards
left = int(sys.argv[1])
def killing(reader, *arguments, copy=merge._copy_row):
    global left
    left -= 1
    if left < 0:
        os.kill(os.getpid(), signal.SIGKILL)
    copy(reader, *arguments)
merge._copy_row = killing
merge_shards([Path(path) for path in sys.argv[3:]], Path(sys.argv[2]))
"""


def test_a_killed_merge_leaves_nothing_under_the_final_name(whole: Path, tmp_path: Path) -> None:
    paths, output = shards(tmp_path, 2), tmp_path / "m.h5"
    run = [sys.executable, "-c", KILLED, "4", str(output), *map(str, paths)]
    assert subprocess.run(run, check=False, timeout=100).returncode == -signal.SIGKILL
    assert not output.exists()
    assert (tmp_path / "m.h5.merging").exists()
    merge_shards(paths, output)
    assert_same(output, whole)
    assert not (tmp_path / "m.h5.merging").exists()


def test_two_tracks_of_bytes(tmp_path: Path) -> None:
    from genoformer.tracks import TOKENS

    plan = spans(LONG, 9500)
    values = (np.arange(LONG.total_bases) % 251).astype(np.uint8)
    paths = []
    for number in (1, 2):
        path = tmp_path / f"{number}.h5"
        create = {"provenance": {}, "blocks": plan, "dtype": "uint8", "shard": Shard(number, 2)}
        with TrackStore.create(path, LONG, [TOKENS], **create) as writer:
            for start, end in writer.blocks.tolist():
                piece = block(LONG, np.array([start, end]))
                writer.write(piece._replace(values={"tokens": values[start:end]}))
            paths.append(writer.finish())
    merge_shards(paths, tmp_path / "m.h5")
    with open_store(tmp_path / "m.h5") as store:
        assert np.array_equal(np.concatenate([store[name] for name in LONG.names])[:, 0], values)
        assert damaged_sequences(store).tolist() == []
