"""Stores with chosen values, for tests of exports and figures."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from genoformer.regions import Block
from genoformer.store import SequenceTable, TrackStore
from genoformer.tracks import CODING_FRAME, Track

SIGNAL = Track("signal", "signal", ("s+", "s-"), "reads", (1, 0))
HOSTILE = ["chr1", "a/b", ".", "..", "x:1-100", "gi|12|ref|NC_1.1|", "HLA-A*01:01", "a;b=c,d&e%41", "é\u00fc", "=1+1",
           '"q"', "{b}", "nan", "-", "a" * 300]  # fmt: skip


def write_store(path: Path, values: Mapping[str, np.ndarray], track: Track = SIGNAL, **provenance: Any) -> Path:
    """Write a store with these values, (bases, channels), of each sequence."""
    table = SequenceTable.build(list(values), [len(array) for array in values.values()])
    spans = np.column_stack([table.offsets[:-1], table.offsets[1:]])
    spans = spans[spans[:, 0] < spans[:, 1]]
    with TrackStore.create(path, table, [track], provenance=provenance, blocks=spans) as writer:
        for name, array in values.items():
            if len(array):
                writer.write(Block(name, 0, {track.name: array.astype(np.float16)}))
        return writer.finish()


def random_values(length: int, seed: int, channels: int = 2) -> np.ndarray:
    """Values with runs, gaps, negative and tiny numbers; the first and the last base have one."""
    rng = np.random.default_rng(seed)
    values = rng.normal(size=(length, channels)).astype(np.float16)
    if length > 20:
        values[length // 4 : length // 3] = values[length // 4]
        values[length // 2 : length // 2 + length // 10] = np.nan
        values[3] = np.float16(6e-8)
    return values


def coding_values(length: int, genes: list[tuple[int, int, int]]) -> np.ndarray:
    """Probabilities that say where genes (start, end, strand) are, quite sure of it."""
    values = np.full((length, len(CODING_FRAME.channels)), 0.01, dtype=np.float16)
    classes = np.zeros(length, dtype=np.int64)
    for start, end, strand in genes:
        codon = np.arange(end - start) % 3
        classes[start:end] = codon + 1 if strand > 0 else codon[::-1] + 4
    values[np.arange(length), classes] = 0.94
    return values
