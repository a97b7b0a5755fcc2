"""A file for HDF5 to write into whose changes reach the disk all together or not at all.

HDF5 updates its metadata in place: a process that is killed between two writes leaves a file nobody can open. Handed
to h5py instead of a path, a :class:`TransactionalFile` lets HDF5 write what it likes, and keeps the last committed
state on disk whole:

- writes behind the committed end go to the disk at once: nothing committed refers to them;
- writes into committed pages stay in memory until :meth:`TransactionalFile.commit`, which first appends them to the
  end of the file as a journal (a checksummed redo log), syncs, then copies them to their places, syncs, and cuts the
  journal off. A kill before the journal is whole leaves the old state, a kill after it is repaired on opening.

A write that fails (no space left) is kept in memory too, and what cannot be read (the disk is gone) is read as zeros,
so that HDF5 never sees an error and can always be closed; the commit then raises, and the disk still holds the last
committed state.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import struct
import time
import zlib
from pathlib import Path
from typing import Any

import numpy as np

from genoformer.errors import ResourceError

PAGE = 4096
_FOOTER = struct.Struct("<16sQQQI")  # magic, start of the journal, size of the file without it, pages, CRC-32
_MAGIC = b"genoformer-redo1"
_POLL_SECONDS = 0.2
_NO_LOCKS = {errno.ENOSYS, errno.ENOLCK, errno.EOPNOTSUPP, errno.EINVAL}


def resource_error(
    path: str | Path, error: OSError, doing: str = "write", *, then: str = "use --resume"
) -> ResourceError:
    """Say in one line why a file cannot be read or written, and what to do."""
    gone = f"the disk or its connection fails; when it is back, {then}"
    remedy = {
        errno.ENOSPC: f"free some space or choose another folder, then {then}",
        errno.EDQUOT: f"free some of the quota or choose another folder, then {then}",
        errno.EFBIG: f"raise the limit on file sizes (ulimit -f) or choose another file system, then {then}",
        errno.EACCES: "choose a place you may use, or change the permissions",
        errno.EROFS: "choose a folder on a file system that can be written to",
        errno.ENOENT: "create the folder first",
        errno.EIO: gone,
        errno.ESTALE: gone,
        errno.ENODEV: gone,
        errno.ENOTCONN: gone,
    }.get(error.errno or 0, "check the disk and the path")
    return ResourceError(f"{path}: cannot {doing}: {error.strerror or error}; {remedy}")


def sync(descriptor: int) -> None:
    """Ask the operating system to bring a file to the disk, where the file system knows how."""
    try:
        os.fsync(descriptor)
    except OSError as error:
        if error.errno not in _NO_LOCKS:
            raise


def sync_folder(path: Path) -> None:
    """Make a rename in a folder durable."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        sync(descriptor)
    finally:
        os.close(descriptor)


def lock(descriptor: int, path: Path, *, exclusive: bool, wait: float = 0.0) -> None:
    """Lock an open file against other processes, as HDF5 does; file systems without locks are taken as they are.

    With HDF5_USE_FILE_LOCKING=FALSE in the environment nothing is locked, as in HDF5 itself.

    Parameters
    ----------
    wait : seconds to wait for whoever has it locked
    """
    if os.environ.get("HDF5_USE_FILE_LOCKING", "").upper() in ("FALSE", "0"):
        return
    ends = time.monotonic() + wait
    while True:
        try:
            fcntl.flock(descriptor, (fcntl.LOCK_EX if exclusive else fcntl.LOCK_SH) | fcntl.LOCK_NB)
            return
        except OSError as error:
            if error.errno in _NO_LOCKS:
                return
            if time.monotonic() >= ends:
                raise ResourceError(
                    f"{path}: in use by another process (locked); wait until it ends (--wait), or stop it, or name "
                    "another output"
                ) from error
        time.sleep(_POLL_SECONDS)


class TransactionalFile:
    """The file object given to h5py in place of a path.

    Parameters
    ----------
    path : file to open
    create : start with an empty file, whatever was there
    read_only : change nothing on disk; a journal left by a kill is applied in memory only
    shown : the name in messages, where it is another one
    wait : seconds to wait for another process that has it locked
    then : what to do, in messages, when what kept it from being written is mended

    Raises
    ------
    ResourceError : the file cannot be opened, another process has it locked, or finished it meanwhile
    """

    def __init__(
        self,
        path: Path,
        *,
        create: bool = False,
        read_only: bool = False,
        shown: Path | None = None,
        wait: float = 0.0,
        then: str = "use --resume",
    ) -> None:
        self.path, self._then = shown or path, then
        self._read_only = read_only
        self._pages: dict[int, bytearray] = {}
        self._position = 0
        self._error: OSError | None = None
        try:
            flags = os.O_RDONLY if read_only else os.O_RDWR
            self._descriptor = os.open(path, flags | (os.O_CREAT if create else 0), 0o666)
        except OSError as error:
            raise resource_error(self.path, error, "open") from error
        try:
            lock(self._descriptor, self.path, exclusive=not read_only, wait=wait)
            if not _is_at(self._descriptor, path):
                raise ResourceError(f"{self.path}: another process has just renamed or removed it; run again")
            if create:
                os.ftruncate(self._descriptor, 0)
            self.size = os.fstat(self._descriptor).st_size
            self._replay()
        except OSError as error:
            os.close(self._descriptor)
            raise resource_error(self.path, error, "open") from error
        except BaseException:
            os.close(self._descriptor)
            raise
        self._set_committed(self.size)

    # ---- what h5py calls: none of these may raise

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        self._position = offset + {os.SEEK_SET: 0, os.SEEK_CUR: self._position, os.SEEK_END: self.size}[whence]
        return self._position

    def tell(self) -> int:
        return self._position

    def readinto(self, buffer: Any) -> int:
        view = memoryview(buffer).cast("B")
        view[:] = self._read_at(self._position, len(view))
        self._position += len(view)
        return len(view)

    def read(self, size: int = -1) -> bytes:
        size = self.size - self._position if size < 0 else size
        data = self._read_at(self._position, size)
        self._position += size
        return data

    def write(self, data: Any) -> int:
        view = memoryview(data).cast("B")
        if not view:
            return 0
        start, inside = self._position, max(0, min(len(view), self._protected - self._position))
        self._keep(start, view[:inside])
        if inside < len(view):
            try:
                _write_all(self._descriptor, view[inside:], start + inside)
            except OSError as error:
                self._fail(error)
                self._keep(start + inside, view[inside:])
        self._position += len(view)
        self.size = max(self.size, self._position)
        return len(view)

    def truncate(self, size: int) -> int:
        self.size = size
        return size

    def flush(self) -> None:
        """Do nothing: what HDF5 flushes counts once it is committed."""

    # ---- what the store calls

    @property
    def error(self) -> OSError | None:
        """The first error of the system, of which HDF5 is not told; no commit succeeds after it."""
        return self._error

    @property
    def is_closed(self) -> bool:
        return self._descriptor < 0

    def commit(self) -> None:
        """Make everything written so far, and nothing less, the state on disk.

        Raises
        ------
        ResourceError : it could not be written; the state on disk is the one committed before
        """
        try:
            if self._error is not None:
                raise self._error
            sync(self._descriptor)
            if self._pages:
                self._append_journal()
                self._apply()
            os.ftruncate(self._descriptor, self.size)
            sync(self._descriptor)
        except OSError as error:
            self._fail(error)
            raise resource_error(self.path, error, then=self._then) from error
        self._pages.clear()
        self._set_committed(self.size)

    def close(self) -> None:
        """Close the file and forget what was not committed."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1
            self._pages.clear()

    # ---- inside

    def _set_committed(self, size: int) -> None:
        self._protected = _whole_pages(size)  # a page is either in memory or on disk, never both

    def _fail(self, error: OSError) -> None:
        self._error = self._error or error
        self._protected = 1 << 62  # from now on everything stays in memory

    def _read_at(self, start: int, size: int) -> bytes:
        try:
            data = bytearray(_read_all(self._descriptor, start, size))
        except OSError as error:
            if self._read_only:
                raise
            self._fail(error)  # what is made of nothing is never committed
            data = bytearray()
        data.extend(bytes(size - len(data)))
        if self._pages:
            for number in range(start // PAGE, -(-(start + size) // PAGE)):
                page = self._pages.get(number)
                if page is not None:
                    low, high = max(start, number * PAGE), min(start + size, (number + 1) * PAGE)
                    data[low - start : high - start] = page[low - number * PAGE : high - number * PAGE]
        return bytes(data)

    def _keep(self, start: int, data: memoryview) -> None:
        end = start + len(data)
        for number in range(start // PAGE, -(-end // PAGE)) if len(data) else ():
            low, high = max(start, number * PAGE), min(end, (number + 1) * PAGE)
            page = self._pages.get(number)
            if page is None:
                page = self._pages[number] = bytearray(self._read_at(number * PAGE, PAGE))
            page[low - number * PAGE : high - number * PAGE] = data[low - start : high - start]

    def _append_journal(self) -> None:
        numbers = sorted(self._pages)
        body = np.array(numbers, dtype="<i8").tobytes() + b"".join(self._pages[number] for number in numbers)
        start = _whole_pages(max(os.fstat(self._descriptor).st_size, self.size))  # no page reaches into the journal
        footer = _FOOTER.pack(_MAGIC, start, self.size, len(numbers), zlib.crc32(body))
        try:
            _write_all(self._descriptor, memoryview(body + footer), start)
            sync(self._descriptor)
        except OSError:
            with contextlib.suppress(OSError):
                os.ftruncate(self._descriptor, start)
            raise

    def _apply(self) -> None:
        for number, page in self._pages.items():
            _write_all(self._descriptor, memoryview(page), number * PAGE)
        sync(self._descriptor)

    def _replay(self) -> None:
        end = self.size - _FOOTER.size
        footer = _read_all(self._descriptor, end, _FOOTER.size) if end > 0 else b""
        if not footer.startswith(_MAGIC):
            return
        _, start, size, count, checksum = _FOOTER.unpack(footer)
        body = _read_all(self._descriptor, start, end - start) if start <= end else b""
        if len(body) != count * (8 + PAGE) or zlib.crc32(body) != checksum:
            return
        numbers = np.frombuffer(body, dtype="<i8", count=count).tolist()
        pages = memoryview(body)[8 * count :]
        self._pages = {number: bytearray(pages[i * PAGE : (i + 1) * PAGE]) for i, number in enumerate(numbers)}
        self.size = size
        if not self._read_only:
            self._apply()
            os.ftruncate(self._descriptor, size)
            self._pages.clear()


def _is_at(descriptor: int, path: Path) -> bool:
    """Tell whether an open file still has its name."""
    try:
        return os.path.samestat(os.fstat(descriptor), path.stat())
    except FileNotFoundError:
        return False


def _whole_pages(size: int) -> int:
    return -(-size // PAGE) * PAGE


def _read_all(descriptor: int, start: int, size: int) -> bytes:
    pieces = []
    while size > 0:
        piece = os.pread(descriptor, size, start)
        if not piece:
            break
        pieces.append(piece)
        start, size = start + len(piece), size - len(piece)
    return b"".join(pieces)


def _write_all(descriptor: int, data: memoryview, start: int) -> None:
    while data:
        written = os.pwrite(descriptor, data, start)
        data, start = data[written:], start + written
