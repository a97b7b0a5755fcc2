"""NumPy's npz: an array of values for each span, with names as data and never as keys.

Arrays of a file: ``track`` (text), ``channels`` (channels,), ``sequence``, ``start`` and ``end`` (spans,), and
``values_0``, ``values_1``, ... of shape (bases, channels), one for each span: values_3 belongs to sequence[3]. Nothing
is pickled.
"""

from __future__ import annotations

import os
import zipfile
import zlib
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import IO, NamedTuple

import numpy as np

from genoformer.errors import FormatError
from genoformer.formats.bytestream import Source
from genoformer.regions import Block, Region


class NpzWriter:
    """Writes an npz file, the values a piece at a time.

    Parameters
    ----------
    stream : binary, seekable, empty
    track, channels : of the values
    regions : the spans, in order
    dtype : of the values
    """

    def __init__(
        self, stream: IO[bytes], *, track: str, channels: Sequence[str], regions: Sequence[Region], dtype: np.dtype
    ):
        self._zip = zipfile.ZipFile(stream, "w", zipfile.ZIP_DEFLATED, compresslevel=1)
        self._regions, self._dtype, self._channels = list(regions), dtype, len(channels)
        self._number, self._member, self._missing = -1, None, 0  # type: int, IO[bytes] | None, int
        for name, array in (
            ("track", np.array(track)),
            ("channels", np.array(channels, dtype=str)),
            ("sequence", np.array([region.sequence for region in regions], dtype=str)),
            ("start", np.array([region.start for region in regions], dtype=np.int64)),
            ("end", np.array([region.end for region in regions], dtype=np.int64)),
        ):
            with self._open(name) as member:
                np.lib.format.write_array(member, array, allow_pickle=False)
        self._next()

    def add(self, values: np.ndarray) -> None:
        """Write values, (bases, channels): those of the spans, one behind the other."""
        while len(values):
            if self._member is None:
                raise ValueError("more values than the spans have bases")
            taken = values[: self._missing]
            self._member.write(np.ascontiguousarray(taken, dtype=self._dtype).data)
            values = values[len(taken) :]
            self._missing -= len(taken)
            self._next()

    def finish(self) -> None:
        """Write the list of what the file holds."""
        if self._member is not None:
            raise ValueError("fewer values than the spans have bases")
        self._zip.close()

    def close(self) -> None:
        """Let go of the stream, which must still be open; a file that was not finished stays useless."""
        with suppress(OSError):
            if self._member is not None:
                self._member.close()
            self._zip.close()

    def _next(self) -> None:
        """Close arrays that are whole, and begin the next."""
        while not self._missing:
            if self._member is not None:
                self._member.close()
                self._member = None
            self._number += 1
            if self._number == len(self._regions):
                return
            self._missing = self._regions[self._number].length
            self._member = self._open(f"values_{self._number}")
            header = {"descr": np.lib.format.dtype_to_descr(self._dtype), "fortran_order": False,
                      "shape": (self._missing, self._channels)}  # fmt: skip
            np.lib.format.write_array_header_1_0(self._member, header)

    def _open(self, name: str) -> IO[bytes]:
        info = zipfile.ZipInfo(f"{name}.npy")
        info.compress_type = zipfile.ZIP_DEFLATED
        return self._zip.open(info, "w", force_zip64=True)


_DAMAGE = (
    *(ValueError, LookupError, OSError, EOFError, AttributeError, TypeError, ArithmeticError, NotImplementedError),
    *(zipfile.BadZipFile, zlib.error, MemoryError, RuntimeError, SyntaxError),
)
"""What numpy and zipfile raise where a file is damaged; memory runs out where it lies about a size."""


class Arrays(NamedTuple):
    """What an npz file holds."""

    track: str
    channels: list[str]
    regions: list[Region]
    path: Path

    def blocks(self) -> Iterator[Block]:
        """Yield the values of each span, one in memory at a time; FormatError where they are damaged."""
        try:
            with np.load(self.path, allow_pickle=False) as file:
                for number, region in enumerate(self.regions):
                    values = file[f"values_{number}"]
                    if values.shape != (region.length, len(self.channels)):
                        raise ValueError(f"values of {region} have the shape {values.shape}")
                    yield Block(region.sequence, region.start, {self.track: values})
        except _DAMAGE as error:
            raise _damaged(str(self.path), error) from error


def read_npz(path: str | os.PathLike[str]) -> Arrays:
    """Open a file that `NpzWriter` wrote.

    Raises
    ------
    InputError : there is no such file, or it cannot be read
    FormatError : it is another kind of file, or damaged
    """
    source = Source(path)
    try:
        with source.path.open("rb") as stream, np.load(stream, allow_pickle=False) as file:
            columns = zip(file["sequence"].tolist(), file["start"].tolist(), file["end"].tolist(), strict=True)
            return Arrays(str(file["track"]), file["channels"].tolist(), [Region(*row) for row in columns], source.path)
    except _DAMAGE as error:
        raise _damaged(source.name, error) from error


def _damaged(name: str, error: Exception) -> FormatError:
    return FormatError(
        f"{name}: is no npz of values ({' '.join(str(error).split())[:100]}); expected one that genoformer export "
        "--to npz wrote"
    )
