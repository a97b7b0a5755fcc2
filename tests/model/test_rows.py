"""Rows in memory and in a file: the same numbers, nothing left behind, and a full disk is told."""

from __future__ import annotations

import errno
import os
import shutil
from collections import namedtuple
from pathlib import Path

import pytest
import torch

from genoformer.errors import ResourceError
from genoformer.model import rows
from genoformer.model.rows import Scratch

CPU = torch.device("cpu")


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    return tmp_path


@pytest.mark.parametrize("offload", [False, True])
def test_what_is_written_is_read(offload: bool, folder: Path) -> None:
    whole = torch.randn(50, 3)
    with Scratch(offload=offload, device=CPU) as scratch:
        held = scratch.rows(50, 3)
        for start, end in [(20, 50), (0, 7), (7, 20), (20, 20)]:
            held.write(start, whole[start:end])
        assert torch.equal(held.read(0, 50), whole)
        assert torch.equal(held.read(13, 31), whole[13:31])
        assert held.read(9, 9).shape == (0, 3)
        held.write(10, torch.ones(2, 3).bfloat16())
        assert torch.equal(held.read(9, 13), torch.cat([whole[9:10], torch.ones(2, 3), whole[12:13]]))
        assert list(folder.iterdir()) == []  # no name, so that no kill leaves it behind
        assert scratch.rows(0, 3).read(0, 0).shape == (0, 3)


def test_files_are_private_and_end_with_the_scratch(folder: Path) -> None:
    with Scratch(offload=True, device=CPU) as scratch:
        file = scratch.rows(5, 2)._file
        assert os.fstat(file.fileno()).st_mode & 0o077 == 0
    assert file.closed


def test_a_disk_without_room_is_told_before_and_when_it_happens(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    usage = namedtuple("usage", "free")
    with Scratch(offload=True, device=CPU) as scratch:
        held = scratch.rows(10, 2)
        with monkeypatch.context() as patch:
            patch.setattr(shutil, "disk_usage", lambda _: usage(79))
            with pytest.raises(ResourceError, match=r"79 bytes are free, a temporary file needs 80; .* TMPDIR"):
                scratch.rows(10, 2)

        def full(*_: object) -> int:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

        monkeypatch.setattr(rows.os, "pwritev", full)
        with pytest.raises(ResourceError, match=r"a temporary file of 80 bytes: No space left on device; .* TMPDIR"):
            held.write(0, torch.ones(10, 2))


def test_a_folder_that_is_not_there_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TMPDIR", "/nowhere")
    said = r"/nowhere: .* No such file or directory; .* TMPDIR"
    with pytest.raises(ResourceError, match=said), Scratch(offload=True, device=CPU) as scratch:
        scratch.rows(10, 2)


@pytest.mark.parametrize("count", [1 << 48, 1 << 61])
def test_memory_without_room_is_told(count: int) -> None:
    with (
        pytest.raises(ResourceError, match=rf"{8 * count:,} bytes of memory .* use --offload"),
        Scratch(offload=False, device=CPU) as scratch,
    ):
        scratch.rows(count, 2)


def test_pinned_memory_without_room_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    def none_left(*_: object, **__: object) -> torch.Tensor:
        raise RuntimeError("DefaultCPUAllocator: can't allocate memory")

    monkeypatch.setattr(torch, "empty", none_left)
    with (
        pytest.raises(ResourceError, match=r"80 bytes of memory .* use --offload"),
        Scratch(offload=False, device=torch.device("cuda")) as scratch,
    ):
        scratch.rows(10, 2)


@pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="needs /proc")
def test_memory_goes_back_at_once() -> None:
    def resident() -> int:
        return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")

    before, peak = resident(), 0
    for _ in range(4):
        with Scratch(offload=False, device=CPU) as scratch:
            held = scratch.rows(1 << 20, 16)
            held.write(0, torch.ones(1, 1).expand(1 << 20, 16))  # 64 MiB, and no copy beside them
            peak = max(peak, resident())
            del held
    assert resident() - before < 32 << 20
    assert peak - before < 100 << 20
