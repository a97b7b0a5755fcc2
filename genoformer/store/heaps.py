"""Check the heaps in which HDF5 keeps strings, before HDF5 reads them: up to version 2.0 it loops for ever in some."""

from __future__ import annotations

import struct
from io import RawIOBase
from pathlib import Path

MOST_BYTES = 64 << 20
"""How much of a file is searched: names and attributes come first."""
_SIGNATURE = b"GCOL\1\0\0\0"
_HEAD = 16  # signature, version, size
_PIECE = 256 << 10
_OBJECT = struct.Struct("<HHIQ")  # index, references, nothing, size


def check_heaps(path: Path) -> None:
    """Raise ValueError if a global heap holds a free space of no size, which HDF5 would never get past.

    See "Global Heap" in the specification of the HDF5 file format. Zeros in the midst of a heap look like that.
    """
    with path.open("rb", buffering=0) as file:
        for start in _heaps(file):
            file.seek(start)
            head = file.read(_HEAD)
            size = min(int.from_bytes(head[8:], "little"), MOST_BYTES - start)
            _check_heap(head + file.read(max(size - _HEAD, 0)), start)


def _heaps(file: RawIOBase) -> list[int]:
    """Return where heaps begin, as far as the file is searched: piece by piece, so that no copy is made."""
    found, piece, carried = [], memoryview(bytearray(_PIECE)), b""
    for first in range(0, MOST_BYTES, _PIECE):
        count = file.readinto(piece[: min(_PIECE, MOST_BYTES - first)]) or 0
        data = carried + piece[:count]
        place = data.find(_SIGNATURE)
        while place >= 0:
            found.append(first - len(carried) + place)
            place = data.find(_SIGNATURE, place + 1)
        carried = data[-len(_SIGNATURE) + 1 :]
        if count < _PIECE:
            break
    return found


def _check_heap(heap: bytes, start: int) -> None:
    here = _HEAD
    while here + _OBJECT.size <= len(heap):
        index, _, _, size = _OBJECT.unpack_from(heap, here)
        if index == 0 and size == 0:
            raise ValueError(f"a heap of strings is empty from byte {start + here} on")
        here += size if index == 0 else _OBJECT.size + -(-size // 8) * 8
