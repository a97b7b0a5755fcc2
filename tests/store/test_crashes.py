"""What survives a kill, a full disk, a disk that goes away, a folder that cannot be written to, and a second writer."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest
from store_samples import begin, block, expected, spans, write_all

from genoformer.errors import ResourceError
from genoformer.store import SequenceTable, TrackWriter, deflate, merge_shards, open_store, part_path

HERE = Path(__file__).parent


def crashes(kind: str, folder: Path, rounds: int) -> list[int]:
    """Let crashes.py do some rounds, each checked there, and return the outcome of each."""
    environment = os.environ | {"PYTHONPATH": os.pathsep.join([str(HERE), str(HERE.parent), *sys.path])}
    run = subprocess.run(
        [sys.executable, str(HERE / "crashes.py"), kind, str(folder), "0", str(rounds)],
        capture_output=True, text=True, check=False, env=environment, timeout=100 + 20 * rounds,
    )  # fmt: skip
    assert (run.returncode, run.stderr) == (0, "")
    said = [line for line in run.stdout.splitlines() if not line.startswith(f"{kind} ")]
    assert all("s.h5.part: cannot " in line for line in said)
    return [int(line.split()[2]) for line in run.stdout.splitlines() if line.startswith(f"{kind} ")]


def test_killed_anywhere_and_resumed(tmp_path: Path) -> None:
    kills = crashes("killed", tmp_path, 8)
    assert len(kills) == 8
    assert sum(kills) > 8


def test_full_disks(tmp_path: Path) -> None:
    assert crashes("filled", tmp_path, 5).count(3) > 2


def test_disks_that_go_away(tmp_path: Path) -> None:
    assert crashes("lost", tmp_path, 6).count(3) > 3


@pytest.mark.slow
@pytest.mark.parametrize(("kind", "rounds"), [("killed", 300), ("filled", 100), ("lost", 300)])
def test_many_of_them(kind: str, rounds: int, tmp_path: Path) -> None:
    assert len(crashes(kind, tmp_path, rounds)) == rounds


# Real file systems


@contextmanager
def mounted(folder: Path, options: str) -> Iterator[Path]:
    """Mount a small file system in memory; skip where that is not allowed."""
    folder.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", options, "tmpfs", str(folder)]
    try:
        done = subprocess.run(command, capture_output=True, check=False).returncode == 0
    except FileNotFoundError:
        done = False
    if not done:
        pytest.skip("no file system can be mounted here")
    try:
        yield folder
    finally:
        subprocess.run(["umount", str(folder)], check=True)


def test_a_disk_that_is_really_full(tmp_path: Path) -> None:
    sequences = SequenceTable.build(["s"], [400_000])
    with mounted(tmp_path / "disk", "size=80k") as disk:
        path = disk / "s.h5"
        full = pytest.raises(ResourceError, match="No space left on device; free some space or choose another folder")
        with full, begin(path, 10_000, sequences=sequences) as writer:
            writer.commit_bytes = 100_000
            for span in writer.blocks:
                writer.write(block(sequences, span))
            writer.finish()
        assert not path.exists()
        with begin(path, 10_000, sequences=sequences, resume=True) as writer:
            assert 0 < writer.done.sum() < len(writer.blocks)
            done = writer.blocks[writer.done]
        with open_store(part_path(path), allow_incomplete=True) as store:
            for start, end in done.tolist():
                assert np.array_equal(store["s", start:end], expected(start, end))
        subprocess.run(["mount", "-o", "remount,size=20m", str(disk)], check=True)
        with begin(path, 10_000, sequences=sequences, resume=True) as writer:
            for number in np.flatnonzero(~writer.done):
                writer.write(block(sequences, writer.blocks[number]))
            writer.finish()
        with open_store(path) as store:
            assert np.array_equal(store["s"], expected(0, 400_000))


def test_a_folder_that_cannot_be_written_to(tmp_path: Path) -> None:
    with mounted(tmp_path / "disk", "ro") as disk:
        with pytest.raises(ResourceError, match=r"s.h5.part: cannot open: Read-only file system; choose a folder"):
            begin(disk / "s.h5")
        with pytest.raises(ResourceError, match=r"m.h5: cannot open: Read-only file system"):
            merge_shards([_shard(tmp_path / "1.h5")], disk / "m.h5")


def test_a_file_that_cannot_be_written_to_is_read(tmp_path: Path) -> None:
    with mounted(tmp_path / "disk", "size=5m") as disk:
        with begin(disk / "p.h5") as writer:
            writer.write(block(writer.sequences, writer.blocks[0]))
        write_all(disk / "s.h5")
        subprocess.run(["mount", "-o", "remount,ro", str(disk)], check=True)
        for path in (disk / "s.h5", disk / "p.h5.part"):
            with open_store(path, allow_incomplete=True) as store:
                assert np.array_equal(store["a/b"], expected(0, 700))


def _shard(path: Path) -> Path:
    from genoformer.store import Shard

    return write_all(path, shard=Shard(1, 1))


# Two at once

HOLD = """
import fcntl, os, sys, time
file = open(sys.argv[1], "r+b")
fcntl.flock(file, fcntl.LOCK_EX)
print("locked", flush=True)
input()
if sys.argv[2] == "finish":
    os.rename(sys.argv[1], sys.argv[1].removesuffix(".part"))
"""


@contextmanager
def held(path: Path, then: str = "") -> Iterator[subprocess.Popen]:
    """Have another process lock a file, until a line is sent to it."""
    with subprocess.Popen(
        [sys.executable, "-c", HOLD, str(path), then], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "locked\n"
        try:
            yield process
        finally:
            process.kill()


def release(process: subprocess.Popen, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let go of the lock when somebody begins to wait for it."""
    sleep = time.sleep

    def slept(seconds: float) -> None:
        if process.poll() is None:
            process.communicate("\n")
        sleep(0)

    monkeypatch.setattr("genoformer.store.transaction.time.sleep", slept)


def test_another_writer_is_waited_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "s.h5"
    begin(path).close()
    for options in ({"resume": True}, {"overwrite": True}):
        with held(part_path(path)) as process:
            with pytest.raises(ResourceError, match=r"s.h5.part: in use by another process \(locked\); wait .*--wait"):
                begin(path, **options)
            with monkeypatch.context() as patch:
                release(process, patch)
                begin(path, wait=60, **options).close()


def test_a_run_that_another_one_finished_meanwhile_is_left_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "s.h5"
    begin(path).close()
    before = part_path(path).read_bytes()
    with held(part_path(path), "finish") as process:
        release(process, monkeypatch)
        with pytest.raises(ResourceError, match="another process has just renamed or removed it; run again"):
            begin(path, wait=60, resume=True)
    assert path.read_bytes() == before


@pytest.mark.parametrize("value", ["FALSE", "0", "false"])
def test_locks_can_be_switched_off_for_network_file_systems(
    value: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "s.h5"
    begin(path).close()
    monkeypatch.setenv("HDF5_USE_FILE_LOCKING", value)
    with held(part_path(path)):
        begin(path, resume=True).close()


def test_nothing_that_appeared_meanwhile_is_replaced(tmp_path: Path) -> None:
    from genoformer.errors import ConfigError

    path = tmp_path / "s.h5"
    with begin(path) as writer:
        for span in writer.blocks:
            writer.write(block(writer.sequences, span))
        path.write_bytes(b"precious")
        with pytest.raises(ConfigError, match="has appeared since this run began, which is whole now; move it away"):
            writer.finish()
    assert path.read_bytes() == b"precious"
    path.unlink()
    with begin(path, resume=True) as writer:
        assert writer.done.all()
        writer.finish()
    with open_store(path) as store:
        assert np.array_equal(store["a/b"], expected(0, 700))


# Workers


@pytest.mark.parametrize("kind", [MemoryError, ValueError, KeyboardInterrupt])
@pytest.mark.parametrize("late", [0, 7])
def test_an_error_in_a_worker_ends_the_write(
    kind: type[BaseException], late: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, encode, left = tmp_path / "s.h5", deflate.encode, late

    def failing(values: np.ndarray, *, fast: bool) -> bytes:
        nonlocal left
        left -= 1
        if left < 0:
            raise kind("in a worker")
        return encode(values, fast=fast)

    def write(writer: TrackWriter) -> None:
        writer.commit_bytes = 50_000
        for number in np.flatnonzero(~writer.done):
            writer.write(block(writer.sequences, writer.blocks[number]))
        writer.finish()

    with monkeypatch.context() as patch:
        patch.setattr(deflate, "encode", failing)
        with pytest.raises(kind, match="in a worker"), begin(path) as writer:
            write(writer)
    with begin(path, resume=True) as writer:
        assert not writer.done.all()
        write(writer)
    with open_store(path) as store:
        assert np.array_equal(store["x:1-100"], expected(701, 90_701))


def test_workers_hurry_only_where_they_are_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from genoformer.store import chunks

    seen: list[bool] = []

    def noted(self: chunks.ChunkWriter, spans: list, *, fast: bool = False) -> None:
        seen.append(fast)
        start(self, spans, fast=fast)

    start = chunks.ChunkWriter.start
    monkeypatch.setattr(chunks.ChunkWriter, "start", noted)
    for behind in (False, True):
        monkeypatch.setattr(chunks.ChunkWriter, "is_ready", lambda _, behind=behind: not behind)
        with begin(tmp_path / f"{behind}.h5", 9_000) as writer:
            writer.commit_bytes, writer.commit_seconds = 30_000, 1e9
            for span in writer.blocks:
                writer.write(block(writer.sequences, span))
            writer.finish()
        assert any(seen) == behind
        with open_store(tmp_path / f"{behind}.h5") as store:
            assert np.array_equal(store["x:1-100"], expected(701, 90_701))


def test_sparse_blocks_are_compressed_a_few_at_a_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from genoformer.store import chunks

    monkeypatch.setattr(chunks, "MOST_WAITING", 4)
    most, top_up = 0, chunks.ChunkWriter._top_up

    def watched(self: chunks.ChunkWriter) -> None:
        nonlocal most
        top_up(self)
        most = max(most, len(self._waiting))

    monkeypatch.setattr(chunks.ChunkWriter, "_top_up", watched)
    sequences = SequenceTable.build(["s"], [3_000_000])
    plan = spans(sequences, 100)[::700]
    with begin(tmp_path / "s.h5", sequences=sequences, blocks=plan) as writer:
        for span in plan:
            writer.write(block(sequences, span))
        writer.finish()
    assert 0 < most <= 5
    with open_store(tmp_path / "s.h5") as store:
        for start, end in plan.tolist():
            assert np.array_equal(store["s", start:end], expected(start, end))
