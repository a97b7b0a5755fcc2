"""A damaged or foreign file is refused with a reason: HDF5 itself must neither crash nor loop, nor eat the memory."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import h5py
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from store_samples import begin, write_all

from genoformer.errors import FormatError
from genoformer.store import open_store, part_path
from genoformer.store.heaps import check_heaps

HERE = Path(__file__).parent


def damages(folder: Path, first: int, rounds: int) -> None:
    environment = os.environ | {"PYTHONPATH": os.pathsep.join([str(HERE), str(HERE.parent), *sys.path])}
    run = subprocess.run(
        [sys.executable, str(HERE / "damages.py"), str(folder), str(first), str(rounds)],
        capture_output=True, text=True, check=False, env=environment, timeout=100 + 2 * rounds,
    )  # fmt: skip
    last = run.stdout.splitlines()[-1:]
    assert (run.returncode, run.stderr) == (0, ""), f"at {last}"
    assert last == [f"{first + rounds - 1} run.h5.part"]


def test_damaged_files_of_all_kinds(tmp_path: Path) -> None:
    damages(tmp_path, 130, 20)  # 140 has a heap in which HDF5 loops


@pytest.mark.slow
def test_many_damaged_files(tmp_path: Path) -> None:
    damages(tmp_path, 0, 3000)


def heaps(data: bytes) -> list[int]:
    places, found = [], data.find(b"GCOL")
    while found >= 0:
        places.append(found)
        found = data.find(b"GCOL", found + 1)
    return places


def test_a_heap_that_hdf5_would_not_come_out_of(tmp_path: Path) -> None:
    path, whole = tmp_path / "bad.h5", write_all(tmp_path / "s.h5").read_bytes()
    places = heaps(whole)
    assert places
    for place in places:
        path.write_bytes(whole[: place + 64] + bytes(512) + whole[place + 576 :])
        with pytest.raises(FormatError, match=r"bad.h5: damaged \(a heap of strings is empty from byte \d+ on\)"):
            open_store(path)
        path.rename(part_path(path))
        with pytest.raises(
            FormatError, match=r"a heap of strings is empty from byte .*; delete it, or use --overwrite"
        ):
            begin(path, resume=True)


@given(texts=st.lists(st.text(st.characters(min_codepoint=1, max_codepoint=300), max_size=300), max_size=200))
def test_heaps_that_hdf5_writes_are_right(texts: list[str], tmp_path_factory: pytest.TempPathFactory) -> None:
    path = tmp_path_factory.mktemp("heap") / "x.h5"
    for libver in ("earliest", ("v108", "v108")):
        with h5py.File(path, "w", libver=libver) as file:
            file.create_dataset("x", data=np.array(texts, dtype=object), dtype=h5py.string_dtype())
            file.attrs["y"] = texts or ""
        check_heaps(path)


@pytest.mark.parametrize("size", [0, 15, 16, 31, 40])
def test_a_heap_at_the_end_of_a_file(size: int, tmp_path: Path) -> None:
    path = tmp_path / "x"
    data = b"xGCOL\1\0\0\0" + (4096).to_bytes(8, "little") + (1).to_bytes(16, "little") + bytes(8)
    path.write_bytes(data[: size + 1])
    check_heaps(path)


def test_structures_have_checksums(tmp_path: Path) -> None:
    data = write_all(tmp_path / "s.h5").read_bytes()
    assert data[8] == 2  # the superblock of HDF5 1.8
    assert data.count(b"OHDR") > 10  # objects with checksums
    assert b"SNOD" not in data  # none without
