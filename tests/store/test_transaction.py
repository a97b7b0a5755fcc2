"""A file changes all at once or not at all."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from genoformer.errors import ResourceError
from genoformer.store.transaction import PAGE, TransactionalFile

WRITES = st.lists(
    st.tuples(st.integers(0, 3 * PAGE), st.sampled_from([0, 1, 100, PAGE, 2 * PAGE + 1]), st.integers(1, 255)),
    max_size=4,
)
"""Where, how many bytes, and which byte."""


class Killed(BaseException):
    """Stands in for a kill: nothing in the package may catch and survive it."""


def _put(file: TransactionalFile, model: bytearray, writes: list[tuple[int, int, int]]) -> None:
    for start, size, byte in writes:
        data = bytes([byte]) * size
        file.seek(start)
        file.write(data)
        if data:
            model.extend(bytes(max(0, start - len(model))))
            model[start : start + len(data)] = data


@given(rounds=st.lists(st.tuples(WRITES, st.booleans(), st.integers(0, 4 * PAGE)), max_size=4))
def test_it_reads_as_written_and_holds_what_was_committed(
    rounds: list[tuple[list[tuple[int, int, int]], bool, int]], tmp_path_factory: pytest.TempPathFactory
) -> None:
    path = tmp_path_factory.mktemp("file") / "f"
    model, committed = bytearray(), b""
    file = TransactionalFile(path, create=True)
    for writes, is_cut, size in rounds:
        _put(file, model, writes)
        assert (file.seek(0), file.read()) == (0, bytes(model))
        if is_cut:
            file.truncate(min(size, len(model)))
            del model[size:]
        file.commit()
        committed = bytes(model)
        assert path.read_bytes() == committed
    _put(file, model, [(0, 4, 7)])
    file.close()
    assert path.read_bytes()[: len(committed)] == committed


def _kill_at(stop: int, patch: pytest.MonkeyPatch) -> None:
    """Let ``stop`` system calls that change a file pass, then be killed, half-way through a write."""
    calls = {"pwrite": os.pwrite, "ftruncate": os.ftruncate, "fsync": lambda _: None}
    left = stop

    def limited(name: str) -> Callable[..., object]:
        def call(descriptor: int, *arguments: Any) -> object:
            nonlocal left
            left -= 1
            if left >= 0:
                return calls[name](descriptor, *arguments)
            if left == -1 and name == "pwrite":
                calls[name](descriptor, bytes(arguments[0])[: len(arguments[0]) // 2], arguments[1])
            raise Killed

        return call

    for name in calls:
        patch.setattr(os, name, limited(name))


@settings(max_examples=25)
@given(first=WRITES, second=WRITES)
@example(first=[(0, 3 * PAGE, 1)], second=[(0, 4 * PAGE, 2)])
def test_a_kill_at_any_system_call_leaves_one_of_the_two_states(
    first: list[tuple[int, int, int]], second: list[tuple[int, int, int]], tmp_path_factory: pytest.TempPathFactory
) -> None:
    folder = tmp_path_factory.mktemp("file")
    for stop in range(100):
        path, model = folder / "f", bytearray()
        file = TransactionalFile(path, create=True)
        _put(file, model, first)
        file.commit()
        before, is_killed = bytes(model), False
        with pytest.MonkeyPatch.context() as patch:
            _kill_at(stop, patch)
            try:
                _put(file, model, second)
                file.commit()
            except Killed:
                is_killed = True
        file.close()
        for read_only in (True, False):
            again = TransactionalFile(path, read_only=read_only)
            found = again.read()
            again.close()
            assert found[: len(before)] == before or found == bytes(model)  # behind the old end may be new data
        if not is_killed:
            assert found == bytes(model)
            return
    pytest.fail("more system calls than expected")


def test_a_failed_write_is_kept_from_hdf5_and_fails_the_commit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = TransactionalFile(tmp_path / "f", create=True)
    file.write(b"old")
    file.commit()

    def full(*_: object) -> int:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "pwrite", full)
    file.seek(2 * PAGE)
    file.write(b"new")
    assert (file.seek(2 * PAGE), file.read()) == (2 * PAGE, b"new")
    for _ in range(2):
        with pytest.raises(ResourceError, match="f: cannot write: No space left on device; free some space"):
            file.commit()
    file.close()
    assert (tmp_path / "f").read_bytes()[:3] == b"old"


def test_two_writers_exclude_each_other(tmp_path: Path) -> None:
    file = TransactionalFile(tmp_path / "f", create=True)
    for read_only in (True, False):
        with pytest.raises(ResourceError, match=r"f: in use by another process \(locked\); wait"):
            TransactionalFile(tmp_path / "f", read_only=read_only)
    file.close()
    TransactionalFile(tmp_path / "f").close()


def test_a_journal_that_is_not_whole_is_ignored(tmp_path: Path) -> None:
    path = tmp_path / "f"
    file = TransactionalFile(path, create=True)
    file.write(b"x" * PAGE)
    file.commit()
    file.seek(0)
    file.write(b"y" * PAGE)
    file._append_journal()
    file.close()
    whole = path.read_bytes()
    damaged = bytearray(whole)
    damaged[PAGE + 100] ^= 1
    for data, expected in ((whole, b"y"), (damaged, b"x"), (whole[:-1], b"x")):
        path.write_bytes(data)
        file = TransactionalFile(path)
        assert file.read()[:PAGE] == expected * PAGE
        file.close()
