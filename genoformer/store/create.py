"""Begin a store, or take up one that was interrupted, after checking that it is the same one."""

from __future__ import annotations

import contextlib
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import h5py
import numpy as np

from genoformer.errors import ConfigError, FormatError, GenoformerError
from genoformer.store import schema
from genoformer.store.heaps import check_heaps
from genoformer.store.metadata import check_metadata
from genoformer.store.sequences import SequenceTable
from genoformer.store.shards import Shard
from genoformer.store.transaction import TransactionalFile, resource_error, sync_folder
from genoformer.store.writer import TrackWriter, part_path
from genoformer.tracks import Track

if TYPE_CHECKING:
    from genoformer.store.store import TrackStore

_CACHE_BYTES = 64 << 20


def create_store(  # noqa: PLR0913 - what a store is, and what to do about an older one
    path: str | Path,
    sequences: SequenceTable,
    tracks: list[Track],
    *,
    provenance: dict[str, Any],
    blocks: np.ndarray,
    overwrite: bool = False,
    resume: bool = False,
    dtype: str = "float16",
    shard: Shard | None = None,
    wait: float = 0.0,
) -> TrackWriter:
    """Begin ``<path>.part``, or continue it.

    Parameters
    ----------
    path : final name of the store
    sequences : SequenceTable
    tracks : list of Track
    provenance : dict that JSON can hold; what is under "identity" must be the same for a run to be continued. What
        FORMAT.md names in it must be of the kind that it says
    blocks : (n_blocks, 2) int64, spans on the common axis that will be written: in order, none across two sequences
    overwrite : replace what is at ``path``, and start anew where ``resume`` is not given
    resume : continue ``<path>.part`` if there is one
    dtype : "float16", or "uint8" for codes
    shard : write only this part of the blocks; the writer's blocks are those of the part
    wait : seconds to wait for another process that is writing there

    Returns
    -------
    TrackWriter

    Raises
    ------
    ConfigError : something is there already, the interrupted run was another one, or the provenance is of other kinds
    FormatError : ``<path>.part`` is damaged or none of ours
    InputError : sequence names are repeated or impossible
    ResourceError : the place cannot be written to, or another process is writing there
    """
    path, part = Path(path), part_path(path)
    blocks = _checked_blocks(blocks, sequences)
    _check_tracks(tracks, dtype)
    sequences.check_unique()
    try:
        check_metadata(provenance)
    except ValueError as error:
        raise ConfigError(f"{path}: {error}") from error
    provenance = of_shard(provenance, shard)
    if path.exists() and not path.is_file():
        raise ConfigError(f"{path}: is a folder or a device; name a file")
    if path.exists() and not overwrite:
        raise ConfigError(f"{path}: exists already; use --overwrite to replace it, or name another output")
    content = {
        "sequences": sequences,
        "tracks": tracks,
        "provenance": provenance,
        "blocks": blocks,
        "dtype": dtype,
        "shard": shard,
    }
    if resume and part.exists():
        return _resume(path, content, may_replace=overwrite, wait=wait)
    if part.exists() and not overwrite:
        raise ConfigError(f"{part}: an interrupted run; use --resume to continue it, or --overwrite to start again")
    old = TransactionalFile(part, wait=wait) if part.exists() else None  # its lock says that nobody is writing it
    try:
        return _begin(path, content, replaces_part=old is not None, may_replace=overwrite)
    finally:
        if old is not None:
            old.close()


def _begin(path: Path, content: dict[str, Any], *, replaces_part: bool, may_replace: bool) -> TrackWriter:
    part = part_path(path)
    draft = part.with_name(f".{part.name}.new")
    file = TransactionalFile(draft, create=True, shown=part)
    hdf5 = None
    try:
        if part.exists() and not replaces_part:
            raise ConfigError(f"{part}: another run has just begun it; name another output")
        hdf5 = h5py.File(file, "w", libver=schema.LIBVER, **_cache(content["tracks"]))
        schema.write_skeleton(hdf5, **content)
        hdf5.flush()
        file.commit()
        draft.replace(part)
        sync_folder(part.parent)
        return TrackWriter(path, file, hdf5, blocks=_own_blocks(content), may_replace=may_replace)
    except BaseException as error:
        if hdf5 is not None:
            hdf5.close()
        file.close()
        with contextlib.suppress(OSError):
            draft.unlink(missing_ok=True)
        reason = _reason(file, error)
        if reason is not None:
            raise resource_error(part, reason) from error
        raise


def _reason(file: TransactionalFile, error: BaseException) -> OSError | None:
    """Return what the system said, if that is what an error comes from."""
    if isinstance(error, GenoformerError) or not isinstance(error, Exception):
        return None
    return file.error or (error if isinstance(error, OSError) and error.errno else None)


def _own_blocks(content: dict[str, Any]) -> np.ndarray:
    blocks, shard = content["blocks"], content["shard"]
    return blocks if shard is None else blocks[shard.select(blocks)]


def _resume(path: Path, content: dict[str, Any], *, may_replace: bool, wait: float) -> TrackWriter:
    part, tracks, blocks = part_path(path), content["tracks"], _own_blocks(content)
    file = TransactionalFile(part, wait=wait)
    hdf5 = None
    try:
        try:
            check_heaps(part)
            hdf5 = h5py.File(file, "r+", **_cache(tracks))
            schema.check_header(hdf5, part)
            schema.check_layout(hdf5)
            writer = TrackWriter(path, file, hdf5, blocks=blocks, may_replace=may_replace, resumed=True)
        except schema.DAMAGE as error:
            if isinstance(error, FormatError):
                raise FormatError(f"{error}; delete it, or use --overwrite to start again") from error
            if isinstance(error, GenoformerError):
                raise
            reason = _reason(file, error)
            if reason is not None:
                raise resource_error(part, reason, "read") from error
            raise FormatError(
                f"{part}: not a store, or damaged ({schema.one_line(error)}); "
                "delete it, or use --overwrite to start again"
            ) from error
        difference = run_differs(writer, content["sequences"], tracks, content["provenance"], content["dtype"]) or (
            "" if np.array_equal(writer.blocks, blocks) else "the planned blocks differ"
        )
        if difference:
            raise ConfigError(
                f"{part}: was begun by another run: {difference}; "
                "give the same input and options, or use --overwrite to start again"
            )
        return writer
    except BaseException:
        if hdf5 is not None:
            hdf5.close()
        file.close()
        raise


def _cache(tracks: list[Track]) -> dict[str, int]:
    row = schema.CHUNK * 2 * max(len(track.channels) for track in tracks)
    return {"rdcc_nbytes": min(max(2 * row, 8 << 20), _CACHE_BYTES), "rdcc_nslots": 10_007}


def _checked_blocks(blocks: np.ndarray, sequences: SequenceTable) -> np.ndarray:
    blocks = np.ascontiguousarray(blocks, dtype=np.int64).reshape(-1, 2)
    starts, ends = blocks[:, 0], blocks[:, 1]
    if (starts >= ends).any():
        raise ValueError("a planned block has no bases")
    if (starts[1:] < ends[:-1]).any():
        raise ValueError("planned blocks must be in order and must not overlap")
    if len(blocks) and (starts[0] < 0 or ends[-1] > sequences.total_bases):
        raise ValueError(f"planned blocks reach beyond the {sequences.total_bases} bases of the sequences")
    if (np.searchsorted(sequences.offsets, starts, "right") != np.searchsorted(sequences.offsets, ends, "left")).any():
        raise ValueError("a planned block lies on more than one sequence")
    return blocks


def _check_tracks(tracks: list[Track], dtype: str) -> None:
    if dtype not in schema.DTYPES:
        raise ConfigError(f"values are stored as {' or '.join(schema.DTYPES)}, got {dtype!r}")
    if not tracks or len({track.name for track in tracks}) != len(tracks):
        raise ConfigError("a store needs tracks, each with its own name")
    for track in tracks:
        if track.name in ("", ".", "..") or "/" in track.name or not track.name.isprintable():
            raise ConfigError(f"track {track.name!r}: the name must be a printable word without '/'")


def of_shard(provenance: dict[str, Any], shard: Shard | None) -> dict[str, Any]:
    """Return the provenance of a shard of a run, or that of the run where it is not in shards."""
    if shard is None:
        return provenance
    return {**provenance, "identity": {**provenance.get("identity", {}), "shard": str(shard)}}


def run_differs(
    old: TrackWriter | TrackStore, sequences: SequenceTable, tracks: list[Track], provenance: dict[str, Any], dtype: str
) -> str:
    """Say how a store, whole or not, is another run's than the one described; nothing if it is this one's."""
    return (
        sequences_differ(old.sequences, sequences)
        or _tracks_differ(old, tracks, dtype)
        or identity_differs(old.metadata, provenance)
    )


def sequences_differ(ours: SequenceTable, theirs: SequenceTable) -> str:
    """Say how two tables differ in names, checksums or lengths; nothing if they do not."""
    if len(ours) != len(theirs):
        return f"it has {len(ours)} sequences, the input {len(theirs)}"
    for what, old, new in (
        ("name", ours.names, theirs.names),
        ("md5", ours.md5, theirs.md5),
        ("topology", ours.topology, theirs.topology),
    ):
        if old != new:
            i = next(i for i, (a, b) in enumerate(zip(old, new, strict=True)) if a != b)
            return f"sequence {i + 1} has {what} {old[i]!r}, in the input {new[i]!r}"
    unequal = np.flatnonzero(ours.lengths != theirs.lengths)
    if len(unequal):
        i = int(unequal[0])
        return f"sequence {ours.names[i]!r} has {ours.lengths[i]} bases, in the input {theirs.lengths[i]}"
    return ""


def _tracks_differ(old: TrackWriter | TrackStore, tracks: list[Track], dtype: str) -> str:
    if list(old.tracks.values()) != tracks:
        names = ", ".join(track.name for track in tracks)
        return f"its tracks are {', '.join(old.tracks)}, now {names}, or their channels differ"
    if old.dtype != schema.DTYPES[dtype]:
        return f"its values are {old.dtype}, now {dtype}"
    return ""


def identity_differs(old: dict[str, Any], new: dict[str, Any]) -> str:
    """Say how the identity of two runs differs, by their metadata; nothing if it does not."""
    ours = old.get("identity", {})
    theirs = json.loads(json.dumps(new.get("identity", {})))
    for key in sorted({*ours, *theirs}):
        if ours.get(key) != theirs.get(key):
            return f"{key} was {ours.get(key)!r}, now {theirs.get(key)!r}"
    return ""
