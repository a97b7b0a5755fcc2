"""Bytes of a file, a pipe or standard input: told apart by content, decompressed, readable again from any offset."""

from __future__ import annotations

import gzip
import io
import mmap
import os
import re
import shutil
import stat
import struct
import sys
import tempfile
import weakref
import zlib
from pathlib import Path
from typing import IO, Literal

import numpy as np

from genoformer.errors import FormatError, InputError, ResourceError

Kind = Literal["fasta", "genbank", "bam", "cram", "sam", "hdf5", "empty", "unknown"]

_HEAD = 1 << 16
_GZIP = b"\x1f\x8b"
_HDF5 = b"\x89HDF\r\n\x1a\n"
_BGZF_END = bytes.fromhex("1f8b08040000000000ff0600424302001b0003000000000000000000")
_BGZF_LEAST = 26
"""Bytes of the head and the end of a block."""
_SAM_HEADER = re.compile(rb"@(HD|SQ|RG|PG)\t[A-Za-z][A-Za-z0-9]:|@CO\t")
_SAM_LINE = re.compile(rb"[^\t\n]+\t\d+\t[^\t\n]+\t\d+\t\d+\t[^\t\n]+\t[^\t\n]+\t\d+\t-?\d+\t[^\t\n]+\t[^\t\n]+")
_LEADING_TEXT = re.compile(rb"(?:\xef\xbb\xbf)?(?:\s+|[;#][^\n]*(?:\n|$))*")
STDIN = "-"


class Source:
    """A readable input: how it is called in messages, and a regular file with its bytes.

    Standard input (``-``), pipes and file objects, from where they stand, are copied once to a private temporary file
    that lives as long as this object.

    Raises
    ------
    InputError : there is no such file, it is a folder or a device, or it may not be read
    ResourceError : no room for the copy of a pipe
    """

    def __init__(self, path: str | os.PathLike[str] | IO[bytes] | IO[str]):
        self.name = "standard input" if str(path) == STDIN else str(path)
        self.is_temporary = True
        if not isinstance(path, str | os.PathLike):
            self.name = str(getattr(path, "name", "file object"))
            self.path = self._copy(_Bytes(path))
            return
        if str(path) == STDIN:
            _refuse_endless(sys.stdin.buffer, self.name)
            self.path = self._copy(sys.stdin.buffer)
            return
        with _open_file(Path(path)) as stream:
            if stat.S_ISREG(os.fstat(stream.fileno()).st_mode):
                self.path, self.is_temporary = Path(path), False
            else:
                self.path = self._copy(stream)

    def _copy(self, stream: IO[bytes] | _Bytes) -> Path:
        try:
            spool = tempfile.NamedTemporaryFile(prefix="genoformer-")  # noqa: SIM115
            weakref.finalize(self, spool.close)  # which deletes it
            shutil.copyfileobj(stream, spool, 1 << 20)
            spool.flush()
        except OSError as error:
            raise ResourceError(
                f"{self.name}: cannot be copied to the temporary folder {tempfile.gettempdir()} ({error.strerror}); "
                "free some space, set TMPDIR to another folder, or give a file instead of a pipe"
            ) from error
        return Path(spool.name)

    def open(self) -> ByteStream:
        return ByteStream(self.path, name=self.name)


class _Bytes:
    """A file object read as bytes, be it one of text."""

    def __init__(self, stream: IO[bytes] | IO[str]):
        self._stream = stream

    def read(self, size: int = -1, /) -> bytes:
        piece = self._stream.read(size)
        return piece.encode("utf-8", "surrogateescape") if isinstance(piece, str) else piece


def _refuse_endless(stream: IO[bytes], name: str) -> None:
    """Refuse a device, as /dev/zero or a disk, but neither a terminal nor /dev/null."""
    try:
        about = os.fstat(stream.fileno())
    except (OSError, ValueError):  # no file of the system
        return
    is_device = stat.S_ISCHR(about.st_mode) or stat.S_ISBLK(about.st_mode)
    if is_device and about.st_rdev != Path(os.devnull).stat().st_rdev and not stream.isatty():
        raise InputError(f"{name}: is a device, which may never end; give a file or a pipe")


def _open_file(path: Path) -> IO[bytes]:
    try:
        if path.is_dir():
            raise InputError(f"{path}: is a folder; give a file")
        stream = path.open("rb", buffering=0)
        try:
            _refuse_endless(stream, str(path))
        except InputError:
            stream.close()
            raise
        return stream
    except FileNotFoundError:
        raise InputError(f"{path}: no such file; check the path") from None
    except (OSError, ValueError) as error:  # ValueError: a path with a NUL byte
        if isinstance(error, InputError):
            raise
        raise InputError(f"{path}: cannot be read ({getattr(error, 'strerror', None) or error})") from error


class ByteStream:
    """The decompressed bytes of a plain, gzip or bgzip file, with `read` and `seek`.

    Seeking is direct in plain and bgzip files; in an ordinary gzip file it reads forward, from the start if it must.

    Raises
    ------
    FormatError : the compressed data is damaged or ends too early
    """

    def __init__(self, path: Path, *, name: str):
        self._path, self._name = path, name
        self._raw = _open_file(path)
        self._close_raw = weakref.finalize(self, self._raw.close)
        self._blocks: tuple[np.ndarray, np.ndarray] | None = None
        head = self._raw.read(18)
        self._raw.seek(0)
        self.is_gzip = head.startswith(_GZIP)
        if is_bgzf(head) and not _ends_with_marker(path):
            self._refuse_truncated_bgzf()
        self._stream: IO[bytes] | gzip.GzipFile = gzip.GzipFile(fileobj=self._raw) if self.is_gzip else self._raw

    def read(self, size: int) -> bytes:
        try:
            return self._stream.read(size)
        except EOFError as error:
            raise FormatError(f"{self._name}: the gzip data ends too early; copy or download the file again") from error
        except (zlib.error, gzip.BadGzipFile) as error:
            raise FormatError(f"{self._name}: damaged gzip data ({error}); copy or download the file again") from error
        except OSError as error:
            raise InputError(f"{self._name}: cannot be read ({error.strerror or error})") from error

    def seek(self, offset: int) -> None:
        """Go to an offset of the decompressed bytes."""
        if not self.is_gzip:
            self._raw.seek(offset)
            return
        if offset == 0:
            self._restart(0)
            return
        self._blocks = self._blocks or _bgzf_blocks(self._path) or (np.zeros(1, np.int64), np.zeros(1, np.int64))
        compressed, starts = self._blocks
        if len(starts) > 1:
            block = int(np.searchsorted(starts, offset, side="right")) - 1
            self._restart(int(compressed[block]))
            self.read(offset - int(starts[block]))
            return
        try:
            self._stream.seek(offset)
        except (EOFError, zlib.error, gzip.BadGzipFile) as error:
            raise FormatError(f"{self._name}: damaged gzip data ({error}); copy or download the file again") from error

    def _restart(self, compressed: int) -> None:
        self._raw.seek(compressed)
        self._stream = gzip.GzipFile(fileobj=self._raw)

    def _refuse_truncated_bgzf(self) -> None:
        blocks = _bgzf_blocks(self._path)
        if blocks is not None:  # else ordinary gzip data follows, which tells its own end
            raise FormatError(
                f"{self._name}: the bgzip end-of-file block is missing, so the file is cut short; "
                "copy or download it again"
            )

    def close(self) -> None:
        self._stream.close()
        self._close_raw()

    def __enter__(self) -> ByteStream:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()


def is_bgzf(head: bytes) -> bool:
    """Tell whether the first 18 bytes of a file begin a block of the blocked gzip format."""
    return len(head) >= 18 and head.startswith(_GZIP + b"\x08\x04") and head[12:16] == b"BC\x02\x00"


def _ends_with_marker(path: Path) -> bool:
    with path.open("rb") as stream:
        stream.seek(max(0, path.stat().st_size - len(_BGZF_END)))
        return stream.read() == _BGZF_END


def _bgzf_blocks(path: Path) -> tuple[np.ndarray, np.ndarray] | None:
    """Return where each block starts, in the file and in the decompressed bytes; None if some member is no block."""
    compressed, starts = [], []
    here = start = 0
    with path.open("rb") as stream, mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_READ) as data:
        while here < len(data):
            size = struct.unpack_from("<H", data, here + 16)[0] + 1 if is_bgzf(data[here : here + 18]) else 0
            if size < _BGZF_LEAST:
                return None
            compressed.append(here)
            starts.append(start)
            here += size
            if here <= len(data):
                start += struct.unpack_from("<I", data, here - 4)[0]
    return np.array(compressed, np.int64), np.array(starts, np.int64)


def sniff(path: str | os.PathLike[str]) -> Kind:
    """Tell what a file holds from its first bytes, whatever its name; gzip and bgzip are looked into.

    Standard input (``-``) is looked at without taking anything from it. A named pipe cannot be: it is "unknown"
    here, and told once `open_sequences` has copied it.

    Raises
    ------
    InputError : there is no such file, it is a folder or a device, or it may not be read
    """
    if str(path) == STDIN:
        return kind_of(_peek(sys.stdin.buffer))
    with _open_file(Path(path)) as stream:
        return kind_of(stream.read(_HEAD)) if stat.S_ISREG(os.fstat(stream.fileno()).st_mode) else "unknown"


def _peek(stream: IO[bytes]) -> bytes:
    if isinstance(stream, io.BufferedReader):
        return stream.peek(_HEAD)
    if not stream.seekable():
        return b"?"
    here = stream.tell()
    head = stream.read(_HEAD)
    stream.seek(here)
    return head


def kind_of(head: bytes) -> Kind:
    """Tell what a file holds from its first bytes."""
    if any(head[userblock : userblock + 8] == _HDF5 for userblock in (0, 512, 1024, 2048, 4096)):
        return "hdf5"
    if head.startswith(b"CRAM"):
        return "cram"
    text = inflate(head)
    if text.startswith(b"BAM\x01"):
        return "bam"
    if not text:
        return "empty"
    return _kind_of_text(text)


def _kind_of_text(text: bytes) -> Kind:
    if _SAM_HEADER.match(text) or _SAM_LINE.match(text):
        return "sam"
    match = _LEADING_TEXT.match(text)
    body = text[match.end() if match else 0 :]
    if body.startswith(b">"):
        return "fasta"
    return "genbank" if re.match(rb"LOCUS\s", body) else "unknown"


def inflate(head: bytes) -> bytes:
    """Return the text that the first bytes of a gzip file hold; other bytes are returned as they are."""
    if not head.startswith(_GZIP):
        return head
    text = b""
    while head.startswith(_GZIP) and len(text) < _HEAD:
        member = zlib.decompressobj(31)
        try:
            text += member.decompress(head, _HEAD)
        except zlib.error:
            return text or b"?"
        if not member.eof:
            return text or b"?"
        head = member.unused_data
    return text
