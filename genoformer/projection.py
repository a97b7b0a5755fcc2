"""Predictions of reads, averaged over the reference sequences that they are aligned to.

Each read is predicted for itself, as it was sequenced; its values are put where its bases are aligned, mirrored if the
opposite strand was sequenced, and every base of the reference gets the mean over its reads.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from genoformer.errors import ConfigError, InputError
from genoformer.formats.placed import Placed, places_of
from genoformer.formats.sequences import Sequences
from genoformer.model.genoformer import Genoformer
from genoformer.pileup import Cell, Cells, Pileup
from genoformer.plan import make_plan
from genoformer.predict import Settings, check_fits, new_fitting, predict_plan
from genoformer.projection_plan import HeldReads, Projection, add_to_digest, begin_digest, placed_reads
from genoformer.regions import Block
from genoformer.store import Output
from genoformer.tracks import Track
from genoformer.writing import provenance, write_missing

if TYPE_CHECKING:
    from genoformer.workers import Workers

DEPTH = Track("depth", "signal", ("reads",), units="reads whose predictions are averaged")
MOST_DEPTH = 65504
"""The highest number of float16; greater depths are stored as this."""
_GROUP_BASES, _GROUP_SPAN = 1 << 22, 1 << 20


class _Sums(NamedTuple):
    """What is added up in a cell: values by track, (bases, channels), and the reads that have some."""

    values: dict[str, np.ndarray]
    depth: np.ndarray

    def block(self, name: str, start: int) -> Block:
        """Return the means, NaN where there is no read."""
        depth = np.where(self.depth > 0, self.depth, np.nan)
        means = {track: (sums / depth[:, None]).astype(np.float16) for track, sums in self.values.items()}
        return Block(name, start, {**means, DEPTH.name: np.minimum(depth, MOST_DEPTH).astype(np.float16)[:, None]})


def project_plan(
    plan: Projection,
    sequences: Sequences,
    model: Genoformer,
    *,
    settings: Settings,
    done: np.ndarray | None = None,
    tick: Callable[[], None] = lambda: None,
    workers: Workers | None = None,
) -> Iterator[Block]:
    """Predict the reads of a plan and yield the means over them, but for the stretches marked in ``done``.

    Reads are predicted in groups that depend on the file alone, so that values do not depend on what is done. ``tick``
    is called whenever a read is; where many lie over each other, blocks are far between. ``workers`` see `predict`.

    Returns
    -------
    iterator of Block : float16 values of the model's tracks, and of DEPTH, in order

    Raises
    ------
    InputError : the file has changed since it was planned
    ConfigError : the model cannot see windows of this size, or predicts a track of the name of DEPTH
    """
    check_fits(model, plan)
    if any(track.name == DEPTH.name for track in model.tracks):
        raise ConfigError(f"the model predicts a track {DEPTH.name!r}, which a projection makes too; rename it")
    owned = plan.owned if done is None else plan.owned[~done]
    wanted = {Cell(*row) for row in owned.tolist()}
    names, channels = plan.sequences.names, {track.name: len(track.channels) for track in model.tracks}

    def begin(cell: Cell) -> _Sums:
        size = cell.end - cell.start
        return _Sums({name: np.zeros((size, count)) for name, count in channels.items()}, np.zeros(size))

    lengths = dict(zip(names, plan.sequences.lengths.tolist(), strict=True))
    pileup = Pileup(Cells(lengths, plan.regions), begin, only=wanted)
    fitting, digest = new_fitting(model, settings), begin_digest(lengths)
    mirrors = {track.name: list(track.reverse_complement) for track in model.tracks}
    written = 0
    for group in _groups(placed_reads(sequences).read(plan.regions), digest):
        for cell, sums in pileup.before(group[0].sequence, group[0].start):
            yield sums.block(names[cell.sequence], cell.start)
            written += 1
        if not any(cell in wanted for read in group for cell, _ in pileup.cells.split(read.sequence, _reach(read))):
            continue
        reads = HeldReads(plan.source, [read.bases for read in group])
        own = make_plan(reads, window=plan.window, overlap=plan.overlap)
        for block in predict_plan(own, reads, model, settings=settings, fitting=fitting, workers=workers):
            _add(pileup, group[int(block.sequence)], block, mirrors)
            tick()
    for cell, sums in pileup.rest():
        yield sums.block(names[cell.sequence], cell.start)
        written += 1
    if written != len(wanted) or digest.hexdigest() != plan.digest:
        raise InputError(f"{plan.source}: has changed since it was planned; run again")


def _reach(read: Placed) -> np.ndarray:
    """Return every place that a read is aligned to."""
    return places_of(read.runs)[1]


def _groups(reads: Iterator[Placed], digest: hashlib._Hash) -> Iterator[list[Placed]]:
    """Yield reads that are predicted together, neighbors with a few million bases; note them in a checksum."""
    group: list[Placed] = []
    size = 0
    for read in reads:
        add_to_digest(digest, read)
        if group and (
            size + len(read.bases) > _GROUP_BASES
            or read.sequence != group[0].sequence
            or read.start - group[0].start > _GROUP_SPAN
        ):
            yield group
            group, size = [], 0
        group.append(read)
        size += len(read.bases)
    if group:
        yield group


def _add(pileup: Pileup[_Sums], read: Placed, block: Block, mirrors: dict[str, list[int]]) -> None:
    """Add predicted values of a read, or of a part of one, where it is aligned."""
    on_read, on_reference = places_of(read.runs)
    if read.is_reverse:
        on_read = len(read.bases) - 1 - on_read  # as it was sequenced
    is_here = (on_read >= block.start) & (on_read < block.end)
    rows = on_read[is_here] - block.start
    first = next(iter(block.values.values()))
    has_value = ~np.isnan(first[rows, 0])
    rows, places = rows[has_value], on_reference[is_here][has_value]
    for sums, within, chosen in pileup.at(read.sequence, places):
        sums.depth[within] += 1
        for name, values in block.values.items():
            found = values[rows[chosen]]
            sums.values[name][within] += found[:, mirrors[name]] if read.is_reverse else found


def project_to_store(
    plan: Projection,
    sequences: Sequences,
    model: Genoformer,
    output: str | Path | Output,
    *,
    settings: Settings,
    report: Callable[[int], None] = lambda _: None,
    workers: Workers | None = None,
) -> Path:
    """Write the means of a projection to an HDF5 store, with a track of their depth; see `predict_to_store`."""

    def missing(done: np.ndarray) -> Iterator[Block]:
        tick = partial(report, 0)
        return project_plan(plan, sequences, model, settings=settings, done=done, tick=tick, workers=workers)

    return write_missing(
        Output.of(output),
        plan,
        [*model.tracks, DEPTH],
        missing,
        provenance=provenance(plan, model, settings, workers=workers),
        report=report,
    )
