"""Blocked gzip written, and the index beside it by which tabix and htslib find a region."""

from __future__ import annotations

import os
import struct
import tempfile
import zlib
from pathlib import Path
from typing import IO, NamedTuple

from genoformer.errors import FormatError, ResourceError
from genoformer.formats.htslib import quiet_and_offline

_BLOCK = 0xFF00
_HEAD = b"\x1f\x8b\x08\x04" + bytes(5) + b"\xff\x06\x00BC\x02\x00"
_END = bytes.fromhex("1f8b08040000000000ff0600424302001b0003000000000000000000")
LONGEST_TBI = 1 << 29
"""Bases of a sequence up to which a .tbi reaches; beyond it takes a .csi."""


class Columns(NamedTuple):
    """Where a table of regions has what, for an index: columns count from 0."""

    sequence: int
    start: int
    end: int
    zero_based: bool
    """start counts from 0, the end is not included"""
    skipped: int = 0
    """lines at the top that are no data"""


BED_COLUMNS = Columns(0, 1, 2, zero_based=True)
GFF_COLUMNS = Columns(0, 3, 4, zero_based=False)


class BgzipWriter:
    """Compresses what is written into blocks of gzip, as bgzip does; the stream below stays open."""

    def __init__(self, stream: IO[bytes]):
        self._stream, self._waiting = stream, bytearray()

    def write(self, data: bytes) -> int:
        self._waiting += data
        whole = len(self._waiting) - len(self._waiting) % _BLOCK
        for start in range(0, whole, _BLOCK):
            self._write_block(bytes(self._waiting[start : start + _BLOCK]))
        del self._waiting[:whole]
        return len(data)

    def finish(self) -> None:
        """Write what waits, and the block that marks the end."""
        if self._waiting:
            self._write_block(bytes(self._waiting))
            self._waiting.clear()
        self._stream.write(_END)

    def _write_block(self, data: bytes) -> None:
        packer = zlib.compressobj(6, zlib.DEFLATED, -15)
        packed = packer.compress(data) + packer.flush()
        size = len(_HEAD) + 2 + len(packed) + 8
        self._stream.write(
            _HEAD + struct.pack("<H", size - 1) + packed + struct.pack("<II", zlib.crc32(data), len(data))
        )


def write_index(path: Path, columns: Columns, *, longest: int) -> Path:
    """Index a bgzip file for tabix; the index appears when whole, and an older one of any kind is gone.

    Parameters
    ----------
    path : bgzip file, sorted by position within each sequence, sequences one after the other
    columns : where it has what
    longest : int, bases of the longest sequence; beyond 512 Mb a .csi is written, not a .tbi

    Returns
    -------
    Path of the index
    """
    import pysam

    suffix = ".csi" if longest > LONGEST_TBI else ".tbi"
    index = path.with_name(path.name + suffix)
    for other in (".tbi", ".csi"):
        path.with_name(path.name + other).unlink(missing_ok=True)
    with tempfile.TemporaryDirectory(prefix=f".{path.name[:60]}.", dir=path.parent) as folder, quiet_and_offline():
        link, part = Path(folder, "data.gz"), Path(folder, f"data.gz{suffix}")
        link.symlink_to(path.resolve())
        try:
            pysam.tabix_index(str(link), seq_col=columns.sequence, start_col=columns.start, end_col=columns.end,
                              zerobased=columns.zero_based, line_skip=columns.skipped, csi=suffix == ".csi",
                              min_shift=14 if suffix == ".csi" else -1, index=str(part), force=True)  # fmt: skip
        except OSError as error:
            if error.errno:
                raise ResourceError(f"{index}: cannot be written ({os.strerror(error.errno)})") from error
            raise FormatError(f"{path}: cannot be indexed ({error}); it is there, without an index") from error
        part.replace(index)
    return index
