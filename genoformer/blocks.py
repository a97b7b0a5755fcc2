"""Blocks of predictions joined in memory: all values of each sequence."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from genoformer.regions import Block


def collect(blocks: Iterable[Block]) -> dict[str, dict[str, np.ndarray]]:
    """Return the values of whole sequences from their blocks, such as `genoformer.predict` yields.

    For what fits into memory: 14 bytes a base of the bundled model. Larger predictions belong in a file.

    Parameters
    ----------
    blocks : in any order

    Returns
    -------
    dict from sequence to dict from track to ndarray, (bases, channels), as far as the last block reaches; NaN, or 0
    where values are whole numbers, where there is no block. Sequences without any, such as empty ones, are not in it

    >>> found = collect([Block("a", 2, {"t": np.ones((1, 1))}), Block("a", 0, {"t": np.zeros((1, 1))})])
    >>> found["a"]["t"][:, 0].tolist()
    [0.0, nan, 1.0]
    """
    parts: dict[str, list[Block]] = {}
    for block in blocks:
        parts.setdefault(block.sequence, []).append(block)
    return {name: _joined(some) for name, some in parts.items()}


def _joined(blocks: list[Block]) -> dict[str, np.ndarray]:
    length = max(block.end for block in blocks)
    found = {
        track: np.full((length, *values.shape[1:]), np.nan if values.dtype.kind == "f" else 0, dtype=values.dtype)
        for track, values in blocks[0].values.items()
    }
    for block in blocks:
        for track, values in block.values.items():
            found[track][block.start : block.end] = values
    return found
