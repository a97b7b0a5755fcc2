"""Check that shards are parts of one run that fit together, none twice and none missing."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from genoformer.errors import ConfigError, FormatError, InputError
from genoformer.store.create import identity_differs, sequences_differ
from genoformer.store.sequences import SequenceTable
from genoformer.store.shards import Shard
from genoformer.store.store import TrackStore, open_store
from genoformer.tracks import Track


@dataclass(frozen=True)
class Part:
    """What one shard says of itself."""

    path: Path
    shard: Shard
    blocks: np.ndarray
    metadata: dict[str, Any]
    stored_bytes: int


@dataclass(frozen=True)
class Merge:
    """Shards of one run that fit together, ready to be joined; made by :func:`check_shards`.

    Attributes
    ----------
    parts : in the order of the common axis
    sequences : of the run
    tracks, dtype : of the values
    planned : (k, 2) int64, spans of the common axis that the whole run was to predict
    missing : (m, 2) int64, those of them that no shard has
    missing_bases : bases that would have values if these were there
    absent : numbers of the shards that are not there, in words
    """

    parts: list[Part]
    sequences: SequenceTable
    tracks: list[Track]
    dtype: str
    planned: np.ndarray
    missing: np.ndarray
    missing_bases: int
    absent: str

    @property
    def planned_bases(self) -> int:
        """Bases that the whole run gives values to: those of its blocks, less those in gaps."""
        return _planned_bases(self.parts[0].metadata, self.planned)

    @property
    def notes(self) -> list[str]:
        """What differs between shards of one run without keeping them from being joined."""
        made_by: dict[str, str] = {}
        for part in self.parts:
            versions = part.metadata.get("versions", {})
            words = ", ".join([*(f"{name} {version}" for name, version in versions.items()), *_device(part)])
            made_by.setdefault(words, str(part.shard))
        if len(made_by) < 2:
            return []
        listed = "; ".join(f"{words} (first in shard {shard})" for words, shard in made_by.items())
        return [f"shards were predicted by different programs or devices, so values may differ by rounding: {listed}"]

    @property
    def blocks(self) -> np.ndarray:
        """What there is: (k - m, 2) int64."""
        return np.concatenate([part.blocks for part in self.parts])


def check_shards(paths: Sequence[str | Path], *, allow_missing: bool = False) -> Merge:
    """Check that files are shards of one run, none twice, and that none is missing.

    Parameters
    ----------
    paths : in any order
    allow_missing : take what there is

    Raises
    ------
    InputError : no such file; shards overlap, or are missing
    ConfigError : they are of different runs
    FormatError : a file is no shard, not finished, damaged, or of another layout
    ResourceError : a file cannot be read
    """
    if not paths:
        raise ConfigError("no shards to merge; name them")
    first: TrackStore | None = None
    planned = np.empty((0, 2), dtype=np.int64)
    parts: list[Part] = []
    with contextlib.ExitStack() as stack:
        for path in map(Path, paths):
            store = stack.enter_context(_open_shard(path)) if first is None else _open_shard(path)
            try:
                if first is None:
                    first, planned = store, store.shard_spans("planned")
                else:
                    _check_same(first, store, planned)
                assert store.shard is not None
                stored = sum(store.stored_bytes(track) for track in store.tracks)
                parts.append(Part(path, store.shard, store.shard_spans("blocks"), store.metadata, stored))
            finally:
                if store is not first:
                    store.close()
        assert first is not None
        parts.sort(key=lambda part: (len(part.blocks) == 0, part.blocks[0, 0] if len(part.blocks) else 0))
        sequences, tracks, dtype = first.sequences, list(first.tracks.values()), first.dtype.name
    missing = _missing(planned, parts, sequences)
    absent = _absent(parts)
    if len(missing) and not allow_missing:
        more = f" and those of {len(missing) - 1:,} more blocks" if len(missing) > 1 else ""
        raise InputError(
            f"the bases from {base_at(int(missing[0, 0]), sequences)} on{more} are in none of the shards"
            f"{f': {absent} not given' if absent else ''}; add them, or use --allow-missing"
        )
    lacking = _planned_bases(parts[0].metadata, planned) - _predicted_bases(parts) if len(missing) else 0
    return Merge(parts, sequences, tracks, dtype, planned, missing, lacking, absent)


def _device(part: Part) -> list[str]:
    return [f"on {part.metadata['device']}"] if "device" in part.metadata else []


def _open_shard(path: Path) -> TrackStore:
    store = open_store(path, allow_incomplete=True)
    try:
        if store.shard is None:
            raise FormatError(f"{path}: is no shard but a whole run; expected what predict --shard I/N wrote")
        if store.status == "incomplete":
            raise FormatError(f"{path}: shard {store.shard} is not finished; run its command again with --resume")
        if any(store.checksums(track, chunks=True) is None for track in store.tracks):
            raise FormatError(f"{path}: has no checksums of its chunks, which a shard needs; predict it again")
    except BaseException:
        store.close()
        raise
    return store


def _check_same(first: TrackStore, other: TrackStore, planned: np.ndarray) -> None:
    """Raise ConfigError unless two shards are of one run."""
    difference = (
        identity_differs(without_shard(first.metadata), without_shard(other.metadata))
        or ("" if first.has_sequences_of(other) else sequences_differ(first.sequences, other.sequences))
        or ("" if list(first.tracks.values()) == list(other.tracks.values()) else "their tracks differ")
        or ("" if first.dtype == other.dtype else f"values are {first.dtype}, or {other.dtype}")
        or ("" if np.array_equal(planned, other.shard_spans("planned")) else "the planned blocks differ")
    )
    if first.format_version != other.format_version:
        difference = f"layout {first.format_version}, or {other.format_version}"
    if difference:
        raise ConfigError(f"{other.path}: is of another run than {first.path}: {difference}")


def without_shard(metadata: dict[str, Any]) -> dict[str, Any]:
    """Return the metadata that the whole run would have."""
    identity = metadata.get("identity", {})
    return {**metadata, "identity": {key: value for key, value in identity.items() if key != "shard"}}


def _missing(planned: np.ndarray, parts: list[Part], sequences: SequenceTable) -> np.ndarray:
    """Return the planned blocks that no part has; refuse parts that have the same, or what was not planned."""
    owner = np.full(len(planned), -1)
    for number, part in enumerate(parts):
        places = np.searchsorted(planned[:, 0], part.blocks[:, 0])
        fits = places < len(planned)
        fits[fits] &= (planned[places[fits]] == part.blocks[fits]).all(axis=1)
        if not fits.all() or (np.diff(places) <= 0).any():
            raise FormatError(f"{part.path}: damaged: it has blocks that were not planned; predict it again")
        twice = places[owner[places] >= 0]
        if len(twice):
            other = parts[owner[twice[0]]]
            where = base_at(int(planned[twice[0], 0]), sequences)
            raise InputError(
                f"{part.path} (shard {part.shard}) and {other.path} (shard {other.shard}) both have {where}; "
                "give each part of the run once"
            )
        owner[places] = number
    return planned[owner < 0]


def _absent(parts: list[Part]) -> str:
    """Name the shards that are not there, where all are of the same number."""
    counts = {part.shard.count for part in parts}
    absent = sorted(set(range(1, max(counts) + 1)) - {part.shard.number for part in parts})
    if len(counts) > 1 or not absent:
        return ""
    listed = ", ".join(f"{number}/{max(counts)}" for number in absent[:10]) + (", ..." if len(absent) > 10 else "")
    return f"{'shard' if len(absent) == 1 else f'{len(absent):,} shards:'} {listed}"


def _planned_bases(metadata: dict[str, Any], planned: np.ndarray) -> int:
    spanned = int((planned[:, 1] - planned[:, 0]).sum())
    return int(metadata.get("accounting", {}).get("predicted", spanned))


def _predicted_bases(parts: Sequence[Part]) -> int:
    found = 0
    for part in parts:
        with open_store(part.path, allow_incomplete=True, was_open=True) as store:
            found += int(store.predicted_counts().sum())
    return found


def base_at(place: int, sequences: SequenceTable) -> str:
    """Name a base of the common axis: sequence and position, from 1."""
    index = int(np.searchsorted(sequences.offsets, place, side="right")) - 1
    return f"{sequences.names[index]}:{place - int(sequences.offsets[index]) + 1}"
