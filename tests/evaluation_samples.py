"""Small stores and annotations to be evaluated."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from genoformer.annotation import CodingSequence, coding_frame_labels
from genoformer.regions import Block
from genoformer.store import SequenceTable, TrackStore
from genoformer.tracks import CODING_FRAME, Track

GENES = [
    CodingSequence("a", 1, ((99, 399),), name="a1"),
    CodingSequence("a", -1, ((500, 1100),), name="a2"),
    CodingSequence("a", 1, ((1200, 1300), (1299, 1400)), name="slips"),
    CodingSequence("b", 1, ((0, 150),), name="cut", partial=True),
]
LENGTHS = {"a": 2000, "b": 300}


def write_store(path: Path, values: dict[str, np.ndarray], track: Track = CODING_FRAME, **metadata: object) -> Path:
    """Write a store of (bases, channels) arrays; rows of NaN are left out."""
    table = SequenceTable.build(values, [len(array) for array in values.values()], status=["predicted"] * len(values))
    spans, blocks = [], []
    for (name, array), offset in zip(values.items(), table.offsets, strict=False):
        known = np.flatnonzero(~np.isnan(array[:, 0]))
        for run in np.split(known, np.flatnonzero(np.diff(known) > 1) + 1):
            if len(run):
                start, end = int(run[0]), int(run[-1]) + 1
                spans.append((offset + start, offset + end))
                blocks.append(Block(name, start, {track.name: array[start:end].astype(np.float16)}))
    with TrackStore.create(path, table, [track], provenance=dict(metadata), blocks=np.array(spans)) as writer:
        for block in blocks:
            writer.write(block)
        return writer.finish()


def one_hot(labels: np.ndarray, classes: int = 7) -> np.ndarray:
    """Return probabilities that are sure of the labels, ignored ones taken for the second class."""
    return np.eye(classes)[np.where(labels == 255, 1, labels)]


def true_frames(genes: list[CodingSequence] | None = None, lengths: dict[str, int] | None = None) -> dict:
    genes, lengths = GENES if genes is None else genes, lengths or LENGTHS
    return {n: coding_frame_labels(size, [g for g in genes if g.sequence == n]).frames for n, size in lengths.items()}


def gff3(path: Path, genes: list[CodingSequence] | None = None, lengths: dict[str, int] | None = LENGTHS) -> Path:
    """Write an annotation."""
    lines = ["##gff-version 3", *(f"##sequence-region {name} 1 {size}" for name, size in (lengths or {}).items())]
    for number, cds in enumerate(GENES if genes is None else genes):
        flags = (";partial=true" if cds.partial else "") + (";pseudo=true" if cds.pseudo else "")
        for index, (start, end) in enumerate(cds.parts):
            columns = [
                cds.sequence,
                "x",
                "CDS",
                start + 1,
                end,
                ".",
                "+-"[cds.strand < 0],
                cds.phase if not index else 0,
            ]
            lines.append("\t".join(map(str, columns)) + f"\tID=cds{number}{flags}")
    path.write_text("\n".join(lines) + "\n")
    return path
