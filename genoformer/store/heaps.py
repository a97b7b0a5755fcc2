"""Check the heaps in which HDF5 keeps strings, before HDF5 reads them: up to version 2.0 it loops for ever in some."""

from __future__ import annotations

import struct
from pathlib import Path

MOST_BYTES = 64 << 20
"""How much of a file is searched: names and attributes come first."""
_SIGNATURE = b"GCOL\1\0\0\0"
_OBJECT = struct.Struct("<HHIQ")  # index, references, nothing, size


def check_heaps(path: Path) -> None:
    """Raise ValueError if a global heap holds a free space of no size, which HDF5 would never get past.

    See "Global Heap" in the specification of the HDF5 file format. Zeros in the midst of a heap look like that.
    """
    with path.open("rb") as file:
        data = file.read(MOST_BYTES)
    found = data.find(_SIGNATURE)
    while found >= 0:
        _check_heap(data, found)
        found = data.find(_SIGNATURE, found + 1)


def _check_heap(data: bytes, start: int) -> None:
    here = start + 16
    if here > len(data):
        return
    end = min(start + int.from_bytes(data[start + 8 : here], "little"), len(data))
    while here + _OBJECT.size <= end:
        index, _, _, size = _OBJECT.unpack_from(data, here)
        if index == 0 and size == 0:
            raise ValueError(f"a heap of strings is empty from byte {here} on")
        here += size if index == 0 else _OBJECT.size + -(-size // 8) * 8
