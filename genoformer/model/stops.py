"""Where the stop codons around any piece of a sequence are, found by one pass and kept for every few thousand bases."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch

from genoformer.model.inputs import FAR, MARGIN, NONE, Around, stop_codons
from genoformer.tokens import COMPLEMENT, N

Codes = Callable[[int, int], np.ndarray]
"""From a span of a sequence to its codes, uint8; PAD before and behind it."""

GRID = 4096
"""Bases between places for which the stop codons around are kept."""
_STRANDS, _FRAMES = 2, 3


class StopTable:
    """The nearest stop codons before and behind any place of a sequence.

    Parameters
    ----------
    codes : gives the codes of any span
    length : bases of the sequence
    genetic_code : NCBI translation table
    """

    def __init__(self, codes: Codes, length: int, *, genetic_code: int) -> None:
        self._codes, self._length = codes, length
        self._is_stop = stop_codons(genetic_code).numpy()
        cells = -(-length // GRID)
        first = np.full((cells + 1, _STRANDS, _FRAMES), FAR, dtype=np.int64)
        last = np.full((cells + 1, _STRANDS, _FRAMES), NONE, dtype=np.int64)
        for cell in range(cells):
            first[cell], last[cell + 1] = self._ends(cell * GRID, min((cell + 1) * GRID, length))
        self._from = np.minimum.accumulate(first[::-1])[::-1]  # first stop in a cell or behind it
        self._before = np.maximum.accumulate(last)  # last one before a cell

    def around(self, start: int, end: int) -> Around:
        """Return what the inputs of a piece depend on beyond it."""
        place = max(start - MARGIN, 0)
        cell = min(place // GRID, len(self._before) - 1)
        before = np.maximum(self._before[cell], self._ends(cell * GRID, place)[1])
        cell = -(-end // GRID)
        after = np.minimum(
            self._from[min(cell, len(self._from) - 1)], self._ends(end, min(cell * GRID, self._length))[0]
        )
        return Around(start, self._length, torch.from_numpy(before), torch.from_numpy(after))

    def _ends(self, start: int, end: int) -> tuple[np.ndarray, np.ndarray]:
        """Return the first and the last stop codon that begins in a span: int64 (strands, frames), FAR and NONE."""
        first = np.full((_STRANDS, _FRAMES), FAR, dtype=np.int64)
        last = np.full((_STRANDS, _FRAMES), NONE, dtype=np.int64)
        if start < end:
            codes = self._codes(start, end + MARGIN)
            for strand, letters in enumerate((codes, COMPLEMENT[codes])):
                stops = self._stops(letters, from_right=strand == 1)
                for frame in range(_FRAMES):
                    lead = (frame - start) % _FRAMES
                    found = np.flatnonzero(stops[lead::_FRAMES])
                    if len(found):
                        first[strand, frame], last[strand, frame] = start + lead + _FRAMES * found[[0, -1]]
        return first, last

    def _stops(self, codes: np.ndarray, *, from_right: bool) -> np.ndarray:
        """Tell at which places a stop codon has its left end, of codes and MARGIN more: bool."""
        wide = codes.astype(np.int64)
        a, b, c = wide[:-2], wide[1:-1], wide[2:]
        known = (a < N) & (b < N) & (c < N)
        index = 16 * c + 4 * b + a if from_right else 16 * a + 4 * b + c
        return self._is_stop[np.where(known, index, 0)] & known
