"""Predictions that fit into memory: where it runs out, batches are halved, then chunks; the values stay the same."""

from __future__ import annotations

import logging
from collections.abc import Callable

import numpy as np
import torch

from genoformer.errors import ResourceError, is_out_of_memory

LEAST_CHUNK = 64
"""Trunk tokens of the smallest chunk that is tried; less would take for ever, and save next to nothing."""
_LOG = logging.getLogger(__name__)

Compute = Callable[[np.ndarray, int | None], dict[str, np.ndarray]]
"""From codes (rows, bases) and a chunk size to values by track, (rows, bases, channels)."""


class Fitting:
    """How much is computed at once. What turned out to be too much is halved, and stays so.

    Attributes
    ----------
    chunk_size : int, trunk tokens computed at a time; None: all
    most_bases : int, bases of a batch; None: as many as come
    """

    def __init__(self, *, chunk_size: int | None, stride: int) -> None:
        """Begin with chunks of so many tokens, each of ``stride`` bases."""
        self.chunk_size = chunk_size
        self.most_bases: int | None = None
        self._stride = stride
        self._said = ""  # by what ran out last

    def values(self, rows: np.ndarray, compute: Compute, *, where: str) -> dict[str, np.ndarray]:
        """Compute the values of some rows, as many at once as fit.

        Parameters
        ----------
        rows : uint8, (rows, bases)
        compute : what computes them
        where : the first of them, for messages

        Raises
        ------
        ResourceError : not even one row fits, in the smallest chunks
        """
        parts: list[dict[str, np.ndarray]] = []
        first, length = 0, rows.shape[1]
        while first < len(rows):
            most = len(rows) if self.most_bases is None else max(1, self.most_bases // length)
            part = rows[first : first + most]
            found = self._tried(part, compute)
            if found is None:  # nothing holds on to the failed attempt any more
                if torch.cuda.is_available():
                    torch.cuda.empty_cache()
                self._shrink(len(part), length, where)
                continue
            parts.append(found)
            first += len(part)
        return {name: np.concatenate([part[name] for part in parts]) for name in parts[0]} if parts[1:] else parts[0]

    def _tried(self, rows: np.ndarray, compute: Compute) -> dict[str, np.ndarray] | None:
        """Return the values, or None where memory ran out."""
        try:
            return compute(rows, self.chunk_size)
        except (MemoryError, RuntimeError) as error:
            if not is_out_of_memory(error):
                raise
            self._said = (str(error).strip().splitlines() or [type(error).__name__])[0]
            return None

    def _shrink(self, count: int, length: int, where: str) -> None:
        """Halve the batch, or, where it is one row, the chunk."""
        if count > 1:
            self.most_bases = count // 2 * length
            _LOG.warning("out of memory at %s: batches of %d instead of %d", where, count // 2, count)
            return
        tokens = -(-length // self._stride)
        chunk = tokens if self.chunk_size is None else min(self.chunk_size, tokens)
        if chunk <= LEAST_CHUNK:
            raise ResourceError(
                f"{where}: out of memory even with one window of {length:,} bases in chunks of {chunk} tokens "
                f"({self._said}); use a machine or --device with more memory, or start again with a smaller --window"
            )
        self.chunk_size = max(-(-chunk // 2), LEAST_CHUNK)
        _LOG.warning("out of memory at %s: chunks of %d tokens instead of %d", where, self.chunk_size, chunk)
