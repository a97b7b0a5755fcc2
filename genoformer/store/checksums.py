"""CRC-32 of values that are written in any order: checksums of parts add up to that of the whole.

CRC-32 is linear over the polynomials modulo 2. So a block changes the checksum of its sequence by that of the bytes it
changes, moved by the bytes behind it, and neither order nor interruptions nor shards matter. What comes out is the
plain CRC-32 of zlib and gzip.
"""

from __future__ import annotations

import zlib
from functools import cache, lru_cache

import numpy as np

_POLYNOMIAL = 0xEDB88320  # of CRC-32; the highest bit is the coefficient of x^0
_ONE = 1 << 31
_DIRECT = 1 << 20


def _times(a: int, b: int) -> int:
    """Multiply two polynomials modulo that of CRC-32."""
    product = 0
    while a:
        if a & _ONE:
            product ^= b
        a = a << 1 & 0xFFFFFFFF
        b = b >> 1 ^ (_POLYNOMIAL if b & 1 else 0)
    return product


@cache
def _power(exponent: int) -> int:
    """Return x to the power of 8 * 2^exponent."""
    return _times(_power(exponent - 1), _power(exponent - 1)) if exponent else _ONE >> 8


def moved(crc: int, count: int) -> int:
    """Return what a checksum of changed bytes becomes with ``count`` unchanged bytes behind them."""
    exponent = 0
    while count and crc:
        if count & 1:
            crc = _times(crc, _power(exponent))
        count, exponent = count >> 1, exponent + 1
    return crc


@lru_cache(maxsize=1 << 14)
def crc_of_fill(fill: bytes, count: int) -> int:
    """Return the CRC-32 of a value, as bytes, repeated ``count`` times."""
    size = len(fill) * count
    if size <= _DIRECT:
        return zlib.crc32(_filled(fill)[:size])
    half = crc_of_fill(fill, count // 2)
    both = moved(half, len(fill) * (count // 2)) ^ half
    return moved(both, len(fill)) ^ zlib.crc32(fill) if count % 2 else both


@cache
def _filled(fill: bytes) -> memoryview:
    return memoryview(fill * (_DIRECT // len(fill)))


def crcs_of_fill(fill: bytes, counts: np.ndarray) -> np.ndarray:
    """Return :func:`crc_of_fill` of each of many counts: (n,) uint32."""
    different, which = np.unique(counts, return_inverse=True)
    crcs = np.fromiter((crc_of_fill(fill, count) for count in different.tolist()), np.uint32, len(different))
    return crcs[which]


def change(values: np.ndarray, fill: bytes, behind: int) -> int:
    """Return by what a checksum changes (exclusive or) when values take the place of the fill value.

    Parameters
    ----------
    values : C-contiguous array
    fill : the fill value as bytes
    behind : int, bytes that follow in what the checksum is of
    """
    return moved(zlib.crc32(values.data.cast("B")) ^ crc_of_fill(fill, values.size), behind) if values.size else 0
