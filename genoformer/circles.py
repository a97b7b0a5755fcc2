"""Circular sequences: what lies around their origin, and where they begin, wherever a file cuts them."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

_PIECE = 1 << 20
_HASHED, _TIES = 20, 100
_STEP, _SPREAD = np.uint64(7), np.uint64(0x9E3779B97F4A7C15)


def wrapped(bases: bytes, start: int, end: int) -> bytes:
    """Return ``[start, end)`` of a circle: before 0 and behind its end it goes on, as often as need be.

    >>> wrapped(b"ACGTT", -2, 6)
    b'TTACGTTA'
    """
    length = len(bases)
    if 0 <= start <= end <= length:
        return bases[start:end]
    first = start % length
    missing = end - start - (length - first)
    if missing <= 0:
        return bases[first : first + end - start]
    turns, rest = divmod(missing, length)
    return bytes(bases[first:]) + bytes(bases) * turns + bytes(bases[:rest])


def own_origin(codes: np.ndarray) -> int:
    """Return a place to cut a circle that belongs to the circle itself: the same base wherever a file cut it.

    It is where its 20 letters with the highest hash begin; among equals, that from which the circle reads last in
    order.

    Parameters
    ----------
    codes : uint8, (bases,)

    Returns
    -------
    int, 0 for an empty sequence
    """
    if len(codes) == 0:
        return 0
    highest, places = np.uint64(0), np.empty(0, dtype=np.int64)
    for start, values in _hashes(codes):
        top = values.max()
        if top < highest:
            continue
        found = np.flatnonzero(values == top) + start
        places = found if top > highest else np.concatenate([places, found])
        highest = top
    few = places[:_TIES].tolist()
    return max(few, key=lambda place: np.roll(codes, -place).tobytes()) if len(few) > 1 else few[0]


def _hashes(codes: np.ndarray) -> Iterator[tuple[int, np.ndarray]]:
    """Yield the hash of the letters from each place on, in pieces: the first place and uint64 (places,)."""
    for start in range(0, len(codes), _PIECE):
        end = min(start + _PIECE, len(codes))
        around = np.take(codes, np.arange(start, end + _HASHED), mode="wrap")
        value = np.zeros(end - start, dtype=np.uint64)
        for k in range(_HASHED):
            value = value * _STEP + around[k : k + end - start]
        yield start, value * _SPREAD
