"""Recompute the checksums of a store, and tell which sequences are damaged."""

from __future__ import annotations

import zlib
from collections.abc import Callable
from itertools import pairwise

import numpy as np

from genoformer.errors import FormatError
from genoformer.store.schema import CHUNK
from genoformer.store.store import BLOCK_BASES, TrackStore


def damaged_sequences(store: TrackStore, *, report: Callable[[int], None] = lambda _: None) -> np.ndarray:
    """Find the sequences whose values are not what was written, by the CRC-32 that was stored with them.

    Parameters
    ----------
    report : called with the number of bases checked since the last call

    Returns
    -------
    ndarray of int64, indices of damaged sequences, in order; one that cannot be read at all is damaged too

    Raises
    ------
    FormatError : the file has no checksums, or its tables are damaged
    """
    wrong = np.zeros(len(store.sequences), dtype=bool)
    for track in store.tracks:
        stored = store.checksums(track)
        if stored is None:
            raise FormatError(
                f"{store.path}: has no checksums of its values, as it was written by an earlier version; "
                "there is nothing to verify them by"
            )
        found = _checksums(store, track, wrong, report)
        wrong |= found != stored
    return np.flatnonzero(wrong)


def _checksums(store: TrackStore, track: str, wrong: np.ndarray, report: Callable[[int], None]) -> np.ndarray:
    """Return the CRC-32 of every sequence, and mark those that cannot be read."""
    offsets = store.sequences.offsets
    crcs = np.zeros(len(offsets) - 1, dtype=np.uint32)
    here, step = 0, BLOCK_BASES
    while here < offsets[-1]:
        stop = min(int(offsets[-1]), (here // step + 1) * step)
        low, high = (np.searchsorted(offsets, [here, stop - 1], side="right") - 1).tolist()
        try:
            slab = store.axis_values(here, stop, track=track)
        except FormatError:
            if stop - here > CHUNK or step > CHUNK:
                step = CHUNK  # find out which rows of chunks it is
                continue
            wrong[low : high + 1] |= np.diff(offsets[low : high + 2]) > 0
        else:
            bounds = (offsets[low : high + 2].clip(here, stop) - here).tolist()
            data = np.ascontiguousarray(slab).data.cast("B")
            size = slab.shape[1] * slab.itemsize
            for index, (a, b) in enumerate(pairwise(bounds), start=low):
                crcs[index] = zlib.crc32(data[a * size : b * size], int(crcs[index]))
        report(stop - here)
        here = stop
    return crcs
