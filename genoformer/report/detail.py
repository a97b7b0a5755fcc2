"""Values base by base, for as many bases as there is room for."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import numpy as np

from genoformer.regions import Region
from genoformer.report.embed import json_text, packed, quantized
from genoformer.report.frames import to_frames
from genoformer.report.selection import Selection, Tile
from genoformer.store import TrackStore
from genoformer.tracks import CODING_FRAME, Track

LEVELS = 50
"""Steps that a value may take: for probabilities two percent."""
BYTES_A_BASE = 0.25
"""Fewer than this are never needed for values and letters of a base."""
BATCH = 500_000
"""Bases that are read before any is packed."""


def read_tiles(
    store: TrackStore,
    track: Track,
    selection: Selection,
    wanted: Iterable[Tile],
    *,
    room: int,
    letters: Mapping[Tile, np.ndarray],
    limits: list[tuple[float, float]],
) -> list[dict[str, Any]]:
    """Return tiles, in order, until the room is used up.

    Parameters
    ----------
    store, track : of the values
    selection : what is listed
    wanted : in the order in which they deserve it
    room : characters
    letters : codes of the bases of tiles, where they are known
    limits : the lowest and the highest value of each channel that is drawn

    Returns
    -------
    list of dict : ``place`` and ``start`` of the tile, ``bases``, whether it has ``letters``, and ``data``: a row of
        steps (LEVELS) for each channel that is drawn, and one of codes where it has letters
    """
    found: list[dict[str, Any]] = []
    for batch in _batches(wanted):
        ordered = sorted(batch, key=lambda tile: (tile.place, tile.start))  # short ones share chunks of the file
        steps = {tile: _steps(store, track, selection, tile, limits) for tile in ordered}
        for tile in batch:
            rows = steps[tile]
            if not len(rows):
                continue
            if tile in letters:
                rows = np.concatenate([rows, letters[tile][None]])
            one = {"place": tile.place, "start": tile.start, "bases": tile.end - tile.start,
                   "letters": int(tile in letters), "data": packed(rows)}  # fmt: skip
            room -= len(json_text(one)) + 1
            if room < 0:
                return found
            found.append(one)
    return found


def _batches(wanted: Iterable[Tile]) -> Iterator[list[Tile]]:
    batch: list[Tile] = []
    bases = 0
    for tile in wanted:
        batch.append(tile)
        bases += tile.end - tile.start
        if bases >= BATCH:
            yield batch
            batch, bases = [], 0
    yield batch


def _steps(
    store: TrackStore, track: Track, selection: Selection, tile: Tile, limits: list[tuple[float, float]]
) -> np.ndarray:
    """Return the steps of each channel that is drawn, (channels, bases); no row where nothing was predicted."""
    region = Region(selection.names[tile.place], tile.start, tile.end)
    values = store.values(region, track.name).astype(np.float32)
    if np.isnan(values[:, 0]).all():
        return np.empty((0, 0), dtype=np.uint8)
    if track.name == CODING_FRAME.name:
        values = to_frames(values, np.arange(tile.start, tile.end))
    columns = zip(values.T, limits, strict=True)
    return np.stack([quantized(column, low=low, high=high, levels=LEVELS) for column, (low, high) in columns])
