"""Tiny stores that the tests of this folder share."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

from genoformer.regions import Block
from genoformer.store import SequenceTable, TrackStore, TrackWriter
from genoformer.tracks import Track

SIGNAL = Track(name="signal", kind="signal", channels=("b", "a"), units="reads", reverse_complement=(1, 0))
NAMES = ["a/b", ".", "x:1-100", "ENA|AB|AB.1", "empty", "HLA-A*01:01"]
LENGTHS = [700, 1, 90_000, 40, 0, 333]


def table(**columns: Any) -> SequenceTable:
    return SequenceTable.build(NAMES, LENGTHS, **columns)


def spans(sequences: SequenceTable, size: int) -> np.ndarray:
    """Cut every sequence into blocks of at most ``size`` bases."""
    offsets = sequences.offsets
    cut = [
        (start, min(start + size, int(end)))
        for begin, end in pairwise(offsets)
        for start in range(int(begin), int(end), size)
    ]
    return np.array(cut, dtype=np.int64).reshape(-1, 2)


def expected(start: int, end: int, channels: int = 2) -> np.ndarray:
    """Values that differ at neighbouring places of the common axis, exact in float16."""
    places = np.arange(start, end)[:, None] * channels + np.arange(channels)
    return (places % 2039).astype(np.float16)


def block(sequences: SequenceTable, span: np.ndarray) -> Block:
    start, end = map(int, span)
    index = int(np.searchsorted(sequences.offsets, start, side="right")) - 1
    return Block(sequences.names[index], start - int(sequences.offsets[index]), {"signal": expected(start, end)})


def begin(path: Path, size: int = 1000, **options: Any) -> TrackWriter:
    """Begin a store over :func:`table`, planned whole."""
    sequences = options.pop("sequences", table())
    plan = options.pop("blocks") if "blocks" in options else spans(sequences, size)
    options = {"provenance": {"identity": {"model": "m"}}, "blocks": plan} | options
    return TrackStore.create(path, sequences, [SIGNAL], **options)


def write_all(path: Path, size: int = 1000, **options: Any) -> Path:
    """Write a complete store."""
    with begin(path, size, **options) as writer:
        for span in writer.blocks:
            writer.write(block(writer.sequences, span))
        return writer.finish()
