"""Numbers by position, more than a device holds: in memory, or in a private temporary file that no kill leaves behind.

The file is read and written piece by piece and not mapped: so nothing of it counts as memory of the process, and a full
disk is an error that can be told, where a mapping would end the process.
"""

from __future__ import annotations

import mmap
import os
import shutil
import tempfile
from collections.abc import Callable
from contextlib import ExitStack
from types import TracebackType
from typing import IO, Protocol

import numpy as np
import torch
from torch import Tensor

from genoformer.errors import ResourceError, is_out_of_memory

_SIZE = 4
"""Bytes of a float32."""


class Rows(Protocol):
    """Rows of float32, (rows, width), on the CPU."""

    def read(self, start: int, end: int) -> Tensor:
        """Return rows [start, end), not to be written to."""
        ...

    def write(self, start: int, values: Tensor) -> None:
        """Put rows (n, width) at ``start``, from any device."""
        ...


class MemoryRows:
    """Rows in memory, which a GPU reads at once where it is pinned."""

    def __init__(self, rows: int, width: int, *, pinned: bool = False) -> None:
        """Take the memory.

        From the system itself where it can be, to which it goes back at once: what `malloc` keeps for later is not
        always found large enough by the next one.
        """
        size = rows * width * _SIZE
        if pinned or not size:
            self._held = torch.empty(rows, width, dtype=torch.float32, pin_memory=pinned)
            return
        self._held = torch.frombuffer(mmap.mmap(-1, size), dtype=torch.float32).view(rows, width)

    def read(self, start: int, end: int) -> Tensor:
        return self._held[start:end]

    def write(self, start: int, values: Tensor) -> None:
        self._held[start : start + len(values)] = values


class FileRows:
    """Rows in an open file."""

    def __init__(self, file: IO[bytes], width: int, *, failed: Callable[[OSError], ResourceError]) -> None:
        self._file, self._width, self._failed = file, width, failed

    def read(self, start: int, end: int) -> Tensor:
        held = np.empty((end - start, self._width), dtype=np.float32)
        self._through(os.preadv, held, start)
        return torch.from_numpy(held)

    def write(self, start: int, values: Tensor) -> None:
        self._through(os.pwritev, np.ascontiguousarray(values.to("cpu", torch.float32).numpy()), start)

    def _through(self, move: Callable[[int, list[memoryview], int], int], held: np.ndarray, start: int) -> None:
        """Read or write all of an array: the system may do a part at a time."""
        rest, place = held.reshape(-1).view(np.uint8).data, start * self._width * _SIZE
        while rest:
            try:
                done = move(self._file.fileno(), [rest], place)
            except OSError as error:
                raise self._failed(error) from error
            if done == 0:
                raise self._failed(OSError(0, "is shorter than what was written to it"))
            rest, place = rest[done:], place + done


class Scratch:
    """Makes rows, and gives back what they take when it is left.

    Parameters
    ----------
    offload : in files of the temporary folder ($TMPDIR) instead of memory
    device : where rows are computed
    """

    def __init__(self, *, offload: bool, device: torch.device) -> None:
        self.offload, self._pinned = offload, device.type == "cuda"
        self._open = ExitStack()

    def rows(self, count: int, width: int) -> Rows:
        """Return so many rows, with no values yet.

        Raises
        ------
        ResourceError : neither memory nor disk has room for them
        """
        size = count * width * _SIZE
        if not self.offload:
            try:
                return MemoryRows(count, width, pinned=self._pinned)
            except (OSError, OverflowError, MemoryError, RuntimeError) as error:
                if isinstance(error, RuntimeError) and not is_out_of_memory(error):
                    raise
                raise ResourceError(
                    f"{size:,} bytes of memory are needed for what is computed of a sequence; use --offload to keep "
                    "them in a temporary file, a machine with more memory, or windows instead of --whole-sequence"
                ) from error
        folder = os.environ.get("TMPDIR") or tempfile.gettempdir()  # which goes elsewhere where it cannot write

        def failed(error: OSError) -> ResourceError:
            return ResourceError(
                f"{folder}: a temporary file of {size:,} bytes: {error.strerror}; free some space there, or name "
                "another folder by TMPDIR"
            )

        try:
            free = shutil.disk_usage(folder).free
            if free < size:
                raise ResourceError(
                    f"{folder}: {free:,} bytes are free, a temporary file needs {size:,}; free some space there, or "
                    "name another folder by TMPDIR"
                )
            file = self._open.enter_context(tempfile.TemporaryFile(buffering=0, dir=folder))  # noqa: SIM115
        except OSError as error:
            raise failed(error) from error
        return FileRows(file, width, failed=failed)

    def __enter__(self) -> Scratch:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._open.close()
