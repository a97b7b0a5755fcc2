"""Write a store so that a kill at any moment costs seconds, not the run: ``<path>.part``, commits, rename.

What is pending is handed on in batches: compressed on worker threads (chunks.py) while the next values are computed,
then written and committed.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, NamedTuple

import numpy as np

from genoformer.errors import ConfigError, FormatError, GenoformerError, ResourceError
from genoformer.regions import Block
from genoformer.store import schema
from genoformer.store.checksums import change
from genoformer.store.chunks import ChunkWriter
from genoformer.store.sequences import STATUSES, encode_text, read_sequences
from genoformer.store.shards import read_shard
from genoformer.store.transaction import TransactionalFile, resource_error, sync_folder

COMMIT_BYTES = 8 << 20
COMMIT_SECONDS = 5.0
_FAR = 4096  # rows between changes that are not worth writing


def part_path(path: str | Path) -> Path:
    """Return the name a store has until it is complete."""
    path = Path(path)
    return path.with_name(path.name + ".part")


class TrackWriter:
    """A store being written; made by :func:`create_store`.

    Blocks come in any order and are committed in batches: one is on its way to the disk while the next is gathered. At
    every moment the ``.part`` on disk is the state of the last commit: a block marked done has its values. As a context
    manager it leaves a ``.part`` to resume from unless :meth:`finish` was called.

    Attributes
    ----------
    path : final name
    sequences : SequenceTable as on opening; what set_status changed since is not in it
    tracks : dict of Track by name
    blocks : (n_blocks, 2) int64, planned spans on the common axis, in order; of a shard, its own
    resumed : whether an earlier run is continued
    commit_bytes, commit_seconds : a batch begins beyond this many bytes; all is committed this long after the last time
    """

    def __init__(
        self,
        path: Path,
        file: TransactionalFile,
        hdf5: Any,
        *,
        blocks: np.ndarray,
        may_replace: bool = False,
        resumed: bool = False,
    ) -> None:
        self.path = path
        self.resumed = resumed
        self.commit_bytes, self.commit_seconds = COMMIT_BYTES, COMMIT_SECONDS
        self._file, self._hdf5, self._may_replace = file, hdf5, may_replace
        self._broken = False
        self._pending: list[_Pending] = []
        self._pending_bytes = 0
        self._batch: list[_Pending] = []  # on its way
        self._last_commit = time.monotonic()
        self.sequences = read_sequences(hdf5["sequences"])
        self.tracks = schema.read_tracks(hdf5)
        self.metadata = schema.read_metadata(hdf5)
        values = {name: hdf5["tracks"][name]["values"] for name in self.tracks}
        self.dtype: np.dtype = next(iter(values.values())).dtype
        self._fill: bytes = schema.FILL[self.dtype.name].tobytes()
        self._crcs = {name: schema.read_crcs(hdf5, name, schema.CRC) for name in self.tracks}
        self._chunks = ChunkWriter(
            values, crcs={name: schema.read_crcs(hdf5, name, schema.CHUNK_CRC) for name in self.tracks}
        )
        self.is_whole = schema.read_status(hdf5) != "incomplete"  # killed between the last commit and the rename
        if self.is_whole:
            self.blocks, self._done = blocks, np.ones(len(blocks), dtype=np.uint8)
        else:
            self.blocks, self._done = hdf5["progress/blocks"][:], hdf5["progress/done"][:]
        self._written = self._done.copy()  # in the file, or at least in its last batch
        self._states = list(self._arrays())
        self._status, self._reason = list(self.sequences.status), list(self.sequences.reason)
        self._changed: set[int] = set()

    # ---- progress

    @property
    def done(self) -> np.ndarray:
        """(n_blocks,) bool: blocks written so far, those not yet committed included."""
        return self._done.astype(bool)

    def is_done(self, block: int) -> bool:
        """Tell whether a planned block need not be written any more."""
        return bool(self._done[block])

    # ---- writing

    def write(self, block: Block) -> None:
        """Take the values of one planned block, and hand on what is pending if it is enough.

        Parameters
        ----------
        block : Block with an array (bases, channels), or (bases,) for one channel, for each track

        Raises
        ------
        ValueError : not a planned block, written before, or values that do not fit the tracks
        ResourceError : no space left, and the like; the ``.part`` holds what was committed before
        """
        self._check_open()
        if set(block.values) != set(self.tracks):
            raise ValueError(f"a block has the tracks {sorted(block.values)}, expected {sorted(self.tracks)}")
        number = self._number(block)
        start, end = self.blocks[number].tolist()
        values = {
            name: _as_stored(array, (end - start, len(self.tracks[name].channels)), self.dtype, name)
            for name, array in block.values.items()
        }
        self._pending.append(_Pending(start, number, values))
        self._pending_bytes += sum(array.nbytes for array in values.values())
        self._done[number] = 1
        if time.monotonic() - self._last_commit >= self.commit_seconds:
            self.commit()
        elif self._pending_bytes >= self.commit_bytes:
            with self._working():
                is_behind = bool(self._batch) and not self._chunks.is_ready()
                if self._batch:
                    self._end_batch()
                    self._save()
                self._begin_batch(fast=is_behind)
        elif self._batch and self._chunks.is_ready():
            with self._working():
                self._end_batch()
                self._save()

    def set_status(self, index: int, status: str, reason: str = "") -> None:
        """Say what became of a sequence; kept in memory until the next commit."""
        self._check_open()
        if status not in STATUSES:
            raise ValueError(f"status must be one of {', '.join(STATUSES)}, got {status!r}")
        if not 0 <= index < len(self.sequences):
            raise IndexError(f"there are {len(self.sequences)} sequences, got index {index}")
        encode_text(reason, what="reason")
        self._status[index], self._reason[index] = status, reason
        self._changed.add(index)

    def add_table(self, name: str, columns: Sequence[str], rows: np.ndarray) -> None:
        """Put a table of whole numbers (rows, columns) beside the tracks, if it is not there yet."""
        self._check_open()
        if self.is_whole or name in self._hdf5:
            return
        with self._working():
            packed = {"compression": "gzip", "compression_opts": 1, "shuffle": True} if len(rows) else {}
            table = self._hdf5.create_dataset(name, data=rows.reshape(-1, len(columns)).astype(np.int64), **packed)
            table.attrs["columns"] = list(columns)

    def commit(self) -> None:
        """Bring everything pending to the disk: values, status and done bits, all or none of them."""
        self._check_open()
        with self._working():
            self._write_all()
            self._save()

    def finish(self) -> Path:
        """Complete the store and give it its final name, which is returned.

        Sequences still "pending" that have a planned block become "predicted".

        Raises
        ------
        ConfigError : something has appeared under the final name since the store was begun; the ``.part`` is whole
        ResourceError : planned blocks are missing (the ``.part`` stays), or the disk refuses
        """
        self._check_open()
        missing = int((self._done == 0).sum())
        if missing:
            self.close()
            raise ResourceError(
                f"{part_path(self.path)}: {missing} of {len(self._done)} planned blocks were not written; "
                "run again with --resume"
            )
        with self._working():
            if not self.is_whole:
                self._mark_predicted()
                self._write_all()
                self._write_state()
                del self._hdf5["progress"]
                self._hdf5.attrs["status"] = "complete" if read_shard(self._hdf5) is None else "shard"
            self._chunks.close()
            self._hdf5.close()
            self._file.commit()
            if self.path.exists() and not self._may_replace:
                raise ConfigError(
                    f"{self.path}: has appeared since this run began, which is whole now; move it away and use --resume"
                )
            part_path(self.path).replace(self.path)
            sync_folder(self.path.parent)
        self._file.close()
        return self.path

    def close(self) -> None:
        """Commit what is pending and leave the ``.part``; nothing more once finished, closed or failed."""
        if self._file.is_closed:
            return
        try:
            if not self._broken and not self.is_whole:
                self.commit()
        finally:
            self._discard()

    def __enter__(self) -> TrackWriter:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is None:
            self.close()
        else:
            with contextlib.suppress(GenoformerError):
                self.close()

    # ---- inside

    def _check_open(self) -> None:
        if self._file.is_closed or self._broken:
            raise ValueError(f"{self.path}: the writer is closed")

    def _number(self, block: Block) -> int:
        index = self.sequences.index(block.sequence)
        offset = int(self.sequences.offsets[index])
        number = int(np.searchsorted(self.blocks[:, 0], offset + block.start))
        where = f"{block.sequence}:{block.start}-{block.end} (0-based)"
        is_inside = 0 <= block.start <= block.end <= self.sequences.lengths[index] and number < len(self.blocks)
        if not is_inside or self.blocks[number].tolist() != [offset + block.start, offset + block.end]:
            raise ValueError(f"{where} is not one of the planned blocks")
        if self._done[number]:
            raise ValueError(f"{where} was written before")
        return number

    @contextlib.contextmanager
    def _working(self) -> Iterator[None]:
        """Guard a change of the file: whatever interrupts it, what is on disk stays as last committed."""
        try:
            yield
        except BaseException as error:
            self._broken = True
            self._discard()
            part = part_path(self.path)
            if isinstance(error, Exception) and not isinstance(error, GenoformerError) and self._file.error:
                raise resource_error(part, self._file.error) from error
            if isinstance(error, OSError) and error.errno:
                raise resource_error(part, error) from error
            if isinstance(error, (OSError, RuntimeError)) and not isinstance(error, GenoformerError):
                raise FormatError(f"{part}: damaged ({schema.one_line(error)}); delete it and start again") from error
            raise

    def _discard(self) -> None:
        self._chunks.close()
        with contextlib.suppress(Exception):  # HDF5 may be half-way through something; the disk does not see it
            self._hdf5.close()
        self._file.close()

    def _begin_batch(self, *, fast: bool = False) -> None:
        """Start to compress and write what is pending; fast where the workers cannot keep up."""
        self._batch, self._pending, self._pending_bytes = sorted(self._pending, key=_start), [], 0
        self._chunks.start([(item.start, item.values) for item in self._batch], fast=fast)

    def _end_batch(self) -> None:
        """Have what was begun in the file, though not yet committed."""
        for item in self._batch:
            self._add_checksums(item)
            self._written[item.number] = 1
        self._chunks.finish()
        self._batch = []

    def _write_all(self) -> None:
        self._end_batch()
        if self._pending:
            self._begin_batch()
            self._end_batch()

    def _add_checksums(self, item: _Pending) -> None:
        index = int(np.searchsorted(self.sequences.offsets, item.start, side="right")) - 1
        for name, values in item.values.items():
            crcs = self._crcs[name]
            if crcs is not None:
                behind = int(self.sequences.offsets[index + 1]) - item.start - len(values)
                crcs[index] ^= change(values, self._fill, behind * values.shape[1] * values.itemsize)

    def _save(self) -> None:
        """Write status, checksums and done bits, and commit all of the file."""
        self._write_state()
        self._hdf5.flush()
        self._file.commit()
        self._last_commit = time.monotonic()

    def _arrays(self) -> Iterator[_Mirrored]:
        """Yield what changes with every batch beside the values: done bits and checksums."""
        if not self.is_whole:
            yield _Mirrored("progress/done", self._written)
        for name in self.tracks:
            for dataset, crcs in ((schema.CRC, self._crcs[name]), (schema.CHUNK_CRC, self._chunks.crcs[name])):
                if crcs is not None:
                    yield _Mirrored(f"tracks/{name}/{dataset}", crcs)

    def _write_state(self) -> None:
        self._write_status()
        for array in self._states:
            array.write(self._hdf5)

    def _write_status(self) -> None:
        changed = np.array(sorted(self._changed), dtype=np.int64)
        cuts = np.flatnonzero(np.diff(changed) > 1) + 1
        for run in np.split(changed, cuts) if len(changed) else ():
            low, high = int(run[0]), int(run[-1]) + 1
            self._hdf5["sequences/status"][low:high] = np.array(self._status[low:high], dtype="S9")
            reasons = np.empty(high - low, dtype=object)
            reasons[:] = [encode_text(reason, what="reason") for reason in self._reason[low:high]]
            self._hdf5["sequences/reason"][low:high] = reasons
        self._changed.clear()

    def _mark_predicted(self) -> None:
        planned = np.unique(np.searchsorted(self.sequences.offsets, self.blocks[:, 0], side="right") - 1)
        for index in planned.tolist():
            if self._status[index] == "pending":
                self.set_status(index, "predicted")


class _Pending(NamedTuple):
    """Values that wait to be written, of one planned block."""

    start: int
    number: int
    values: dict[str, np.ndarray]


def _start(item: _Pending) -> int:
    return item.start


class _Mirrored:
    """An array in memory, and the dataset that is brought to the same state by writing what has changed."""

    def __init__(self, name: str, values: np.ndarray) -> None:
        self._name, self._values, self._saved = name, values, values.copy()

    def write(self, hdf5: Any) -> None:
        changed = np.flatnonzero((self._values != self._saved).any(axis=tuple(range(1, self._values.ndim))))
        for run in np.split(changed, np.flatnonzero(np.diff(changed) > _FAR) + 1) if len(changed) else ():
            low, high = int(run[0]), int(run[-1]) + 1
            hdf5[self._name][low:high] = self._saved[low:high] = self._values[low:high]


def _as_stored(values: np.ndarray, shape: tuple[int, int], dtype: np.dtype, track: str) -> np.ndarray:
    """Return a copy in the type and shape of the store; ValueError where that would lose something."""
    values = np.asarray(values)
    if values.ndim == 1:
        values = values[:, None]
    if values.shape != shape:
        raise ValueError(f"track {track!r}: values have shape {values.shape}, expected {shape}")
    if dtype == np.uint8:
        fits = values.dtype.kind in "iu" and (not values.size or 0 <= values.min() <= values.max() <= 255)
        if not fits:
            raise ValueError(f"track {track!r}: the store holds integers from 0 to 255, got {values.dtype} beyond that")
        return values.astype(np.uint8)
    with np.errstate(over="ignore"):
        stored = values.astype(np.float16)
    if (
        values.dtype != np.float16
        and bool(np.isinf(stored).any())
        and bool((np.isinf(stored) & np.isfinite(values)).any())
    ):
        raise ValueError(f"track {track!r}: values beyond the range of float16 (65504)")
    return stored
