"""Chunks of values as HDF5's shuffle and gzip filters store them, made and read without HDF5."""

from __future__ import annotations

import zlib

import numpy as np

try:
    from isal import isal_zlib
except ImportError:
    isal_zlib = None  # type: ignore[assignment]

LEVEL = 1
FAST_LEVEL = 1


def encode(values: np.ndarray, *, fast: bool = False) -> bytes:
    """Shuffle and deflate a chunk.

    Parameters
    ----------
    values : (bases,), the whole chunk of one channel; one-byte values are not shuffled
    fast : use isal where it is installed: several times as fast as zlib, but files are larger
    """
    values = np.ascontiguousarray(values)
    size = values.dtype.itemsize
    data = np.ascontiguousarray(values.view(np.uint8).reshape(-1, size).T).data.cast("B")
    return isal_zlib.compress(data, FAST_LEVEL) if fast and isal_zlib is not None else zlib.compress(data, LEVEL)


def decode(data: bytes, dtype: np.dtype, count: int, *, skipped: int = 0) -> np.ndarray:
    """Read what :func:`encode` or HDF5 made.

    Parameters
    ----------
    count : int, values in a chunk
    skipped : HDF5's filter mask: bits of filters that were not applied, in the order of the pipeline

    Raises
    ------
    ValueError : it is damaged
    """
    is_shuffled = dtype.itemsize > 1
    size = count * dtype.itemsize
    if not skipped >> int(is_shuffled) & 1:
        stream = zlib.decompressobj()
        try:
            data = stream.decompress(data, size + 1)
        except zlib.error as error:
            raise ValueError(f"a chunk cannot be inflated: {error}") from error
        if not stream.eof:
            raise ValueError("a chunk is cut short or too long")
    if len(data) != size:
        raise ValueError(f"a chunk holds {len(data)} bytes, expected {size}")
    values = np.frombuffer(data, np.uint8)
    if is_shuffled and not skipped & 1:
        values = np.ascontiguousarray(values.reshape(dtype.itemsize, -1).T).reshape(-1)
    return values.view(dtype)
