"""Join shards: chunks that lie in one shard are copied as they are, those that a border cuts are put together."""

from __future__ import annotations

import os
import shutil
import zlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import h5py
import numpy as np

from genoformer.errors import ConfigError, FormatError, GenoformerError, ResourceError
from genoformer.store import deflate, schema
from genoformer.store.checksums import crcs_of_fill
from genoformer.store.schema import CHUNK
from genoformer.store.sequences import SequenceTable, write_sequences
from genoformer.store.shard_checks import Merge, Part, base_at, check_shards, without_shard
from genoformer.store.store import TrackStore, open_store
from genoformer.store.transaction import TransactionalFile, resource_error, sync_folder

_THEN = "run again"
_ABSENT = "a shard was not there when the others were merged"


def merge_shards(
    shards: Merge | Sequence[str | Path],
    output: str | Path,
    *,
    allow_missing: bool = False,
    overwrite: bool = False,
    command: str = "",
    report: Callable[[int], None] = lambda _: None,
) -> Merge:
    """Join the shards of a run into the store that the whole run would have written.

    It is written as ``<output>.merging`` and renamed when whole. Memory does not depend on the size of the shards, but
    for the table of sequences.

    Parameters
    ----------
    shards : in any order; or what :func:`check_shards` made of them
    output : the store to write
    allow_missing : join what there is; bases of missing shards have no value
    overwrite : replace what is at ``output``
    command : for the provenance
    report : called with the number of bases joined since the last call

    Returns
    -------
    Merge : what was joined, and what is missing

    Raises
    ------
    ConfigError : something is at ``output``; shards are of different runs
    InputError : no such file, shards overlap, or are missing
    FormatError : a file is no shard, not finished, or damaged
    ResourceError : a file cannot be read or written
    """
    path = Path(output)
    merge = shards if isinstance(shards, Merge) else check_shards(shards, allow_missing=allow_missing)
    _check_output(path, [part.path for part in merge.parts], overwrite=overwrite)
    _check_space(path, merge)
    with _written(path, overwrite=overwrite) as (hdf5, file):
        _write_head(hdf5, merge, command)
        for _ in _copy(merge, hdf5, report):
            if file.error is not None:
                raise file.error
    return merge


def _check_output(path: Path, paths: list[Path], *, overwrite: bool) -> None:
    if path.exists() and not path.is_file():
        raise ConfigError(f"{path}: is a folder or a device; name a file")
    if path.exists() and any(path.samefile(given) for given in paths):
        raise ConfigError(f"{path}: is one of the shards, and would be lost; name another output")
    if path.exists() and not overwrite:
        raise ConfigError(f"{path}: exists already; use --overwrite to replace it, or name another output")


def _check_space(path: Path, merge: Merge) -> None:
    needed = sum(part.stored_bytes for part in merge.parts)
    try:
        free = shutil.disk_usage(path.parent).free
    except OSError as error:
        raise resource_error(path, error) from error
    if free < needed:
        raise ResourceError(f"{path}: {free:,} bytes are free there, {needed:,} are needed; free some space")


@contextmanager
def _written(path: Path, *, overwrite: bool) -> Iterator[tuple[Any, TransactionalFile]]:
    """Open a new HDF5 file that appears at ``path`` once it is whole; one that a kill left is begun anew."""
    draft = path.with_name(path.name + ".merging")
    file = TransactionalFile(draft, create=True, shown=path, then=_THEN)
    hdf5 = None
    try:
        hdf5 = h5py.File(file, "w", libver=schema.LIBVER)
        yield hdf5, file
        hdf5.close()
        file.commit()
        if path.exists() and not overwrite:
            raise ConfigError(f"{path}: has appeared since the merge began; move it away, or use --overwrite")
        draft.replace(path)
        sync_folder(path.parent)
        file.close()
    except BaseException as error:
        with suppress(Exception):
            if hdf5 is not None:
                hdf5.close()
        with suppress(OSError):
            draft.unlink(missing_ok=True)
        file.close()
        if isinstance(error, Exception) and not isinstance(error, GenoformerError) and file.error:
            raise resource_error(path, file.error, then=_THEN) from error
        if isinstance(error, OSError) and error.errno:
            raise resource_error(path, error, then=_THEN) from error
        raise


def _write_head(hdf5: Any, merge: Merge, command: str) -> None:
    """Write everything but values."""
    metadata = without_shard(merge.parts[0].metadata)
    metadata["command"] = command or metadata.get("command", "")
    metadata["shards"] = [
        {"shard": str(part.shard), "file": os.fspath(part.path)}
        | {key: part.metadata[key] for key in ("command", "device", "versions") if key in part.metadata}
        for part in merge.parts
    ]
    if len(merge.missing):
        metadata["missing"] = {"bases": merge.missing_bases, "blocks": len(merge.missing), "shards": merge.absent}
        account = metadata.get("accounting", {})
        if {"predicted", "skipped"} <= account.keys():
            changed = {
                key: account[key] + sign * merge.missing_bases for key, sign in (("predicted", -1), ("skipped", 1))
            }
            metadata["accounting"] = account | changed
    sequences = _with_status(merge)
    schema.write_header(hdf5, provenance=metadata, status="complete")
    write_sequences(hdf5.create_group("sequences"), sequences)
    schema.write_tracks(hdf5, merge.tracks, sequences=sequences, dtype=merge.dtype)


def _with_status(merge: Merge) -> SequenceTable:
    """Say what became of each sequence, and which bases are missing."""
    table = merge.sequences
    status, reason = list(table.status), list(table.reason)
    for index in np.unique(_sequence_of(merge.blocks, table)).tolist():
        if status[index] == "pending":
            status[index] = "predicted"
    lacking = _sequence_of(merge.missing, table)
    lengths = np.bincount(lacking, merge.missing[:, 1] - merge.missing[:, 0], minlength=1).astype(np.int64)
    for index in np.unique(lacking).tolist():
        if status[index] == "predicted":
            reason[index] = f"blocks of {lengths[index]:,} bases are missing: {_ABSENT}"
        elif status[index] == "pending":
            status[index], reason[index] = "skipped", _ABSENT
    return replace(table, status=status, reason=reason)


def _sequence_of(blocks: np.ndarray, table: SequenceTable) -> np.ndarray:
    return np.searchsorted(table.offsets, blocks[:, 0], side="right") - 1


def _copy(merge: Merge, hdf5: Any, report: Callable[[int], None]) -> Iterator[None]:
    """Copy all values, with a break after each row of chunks, and then their checksums."""
    total = merge.sequences.total_bases
    covered = [_rows_of(part.blocks, total) for part in merge.parts]
    left = np.sum(covered, axis=0)  # parts that are still to come, for each row
    is_shared = left > 1
    sums = {track.name: _Sums(merge, len(track.channels)) for track in merge.tracks}
    targets = {name: hdf5["tracks"][name]["values"] for name in sums}
    halves: dict[tuple[int, str], np.ndarray] = {}  # rows of which a part is there
    for part, rows in zip(merge.parts, covered, strict=True):
        with open_store(part.path, allow_incomplete=True, was_open=True) as store:
            reader = _Reader(store, part, merge.sequences)
            for track in merge.tracks:
                sums[track.name].add(reader.sequence_crcs(track.name))
            for row in np.flatnonzero(rows).tolist():
                left[row] -= 1
                for name, found in sums.items():
                    if not is_shared[row]:
                        _copy_row(reader, targets[name], name, row, found.chunks)
                        continue
                    slab = reader.put_into(halves.pop((row, name), None), name, row)
                    if left[row]:
                        halves[row, name] = slab
                    else:
                        _write_row(slab, targets[name], row, found.chunks)
                if not left[row]:
                    report(min(total, (row + 1) * CHUNK) - row * CHUNK)
                yield
    for name, found in sums.items():
        hdf5["tracks"][name][schema.CRC][:] = found.sequences
        if total:
            hdf5["tracks"][name][schema.CHUNK_CRC][:] = found.chunks


def _rows_of(blocks: np.ndarray, total: int) -> np.ndarray:
    """Tell which rows of chunks blocks lie in: (rows,) bool."""
    steps = np.zeros(-(-total // CHUNK) + 1, dtype=np.int64)
    np.add.at(steps, blocks[:, 0] // CHUNK, 1)
    np.add.at(steps, (blocks[:, 1] - 1) // CHUNK + 1, -1)
    return np.cumsum(steps)[:-1] > 0


class _Sums:
    """Checksums of a track, as they come together; of sequences, those of shards add up."""

    def __init__(self, merge: Merge, channels: int) -> None:
        fill = schema.FILL[merge.dtype].tobytes()
        self._nothing = crcs_of_fill(fill, merge.sequences.lengths * channels)
        self.sequences = self._nothing.copy()
        self.chunks = np.zeros((-(-merge.sequences.total_bases // CHUNK), channels), dtype=np.uint32)

    def add(self, crcs: np.ndarray) -> None:
        self.sequences ^= crcs ^ self._nothing


class _Reader:
    """Chunks of a shard, each checked before it is used."""

    def __init__(self, store: TrackStore, part: Part, sequences: SequenceTable) -> None:
        self._store, self._part, self._sequences = store, part, sequences
        self.crcs = {track: _there(store.checksums(track, chunks=True), part) for track in store.tracks}

    def sequence_crcs(self, track: str) -> np.ndarray:
        return _there(self._store.checksums(track), self._part)

    def chunk(self, track: str, row: int, channel: int) -> tuple[int, bytes] | None:
        """Return a chunk as stored, with HDF5's filter mask; None where there is none."""
        found = self._store.stored_chunk(track, row, channel)
        expected = int(self.crcs[track][row, channel])
        if (0 if found is None else zlib.crc32(found[1])) != expected:
            raise self._damaged(row)
        return found

    def put_into(self, slab: np.ndarray | None, track: str, row: int) -> np.ndarray:
        """Put what the shard has of a row over a slab (bases, channels), or over nothing."""
        dtype, channels = self._store.dtype, len(self._store.tracks[track].channels)
        if slab is None:
            slab = np.full((CHUNK, channels), schema.FILL[dtype.name], dtype=dtype)
        first, blocks = row * CHUNK, self._part.blocks
        within = slice(np.searchsorted(blocks[:, 1], first, side="right"), np.searchsorted(blocks[:, 0], first + CHUNK))
        spans = (blocks[within] - first).clip(0, CHUNK).tolist()
        for channel in range(channels):
            found = self.chunk(track, row, channel)
            if found is None:
                continue
            try:
                column = deflate.decode(found[1], dtype, CHUNK, skipped=found[0])
            except ValueError as error:
                raise self._damaged(row) from error
            for start, end in spans:
                slab[start:end, channel] = column[start:end]
        return slab

    def _damaged(self, row: int) -> FormatError:
        where = base_at(row * CHUNK, self._sequences)
        return FormatError(
            f"{self._part.path}: damaged (values from {where} on); predict shard {self._part.shard} again, or fetch "
            "another copy"
        )


def _there(crcs: np.ndarray | None, part: Part) -> np.ndarray:
    if crcs is None:
        raise FormatError(f"{part.path}: has changed since the merge began; run again")
    return crcs


def _copy_row(reader: _Reader, values: Any, track: str, row: int, crcs: np.ndarray) -> None:
    for channel in range(crcs.shape[1]):
        found = reader.chunk(track, row, channel)
        if found is not None:
            values.id.write_direct_chunk((row * CHUNK, channel), found[1], filter_mask=found[0])
            crcs[row, channel] = reader.crcs[track][row, channel]


def _write_row(slab: np.ndarray, values: Any, row: int, crcs: np.ndarray) -> None:
    for channel in range(slab.shape[1]):
        data = deflate.encode(slab[:, channel])
        values.id.write_direct_chunk((row * CHUNK, channel), data)
        crcs[row, channel] = zlib.crc32(data)
