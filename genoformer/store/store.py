"""Read a store: values of any span of any sequence, lazily."""

from __future__ import annotations

import contextlib
import errno
import operator
import os
from collections.abc import Iterator, Sequence
from functools import cached_property
from pathlib import Path
from types import TracebackType
from typing import Any

import h5py
import numpy as np

from genoformer.errors import FormatError, GenoformerError, InputError, ResourceError
from genoformer.regions import Block, Region
from genoformer.store import schema
from genoformer.store.create import create_store
from genoformer.store.heaps import check_heaps
from genoformer.store.sequences import SequenceTable, UnknownNameError, read_sequences, same_sequences
from genoformer.store.shards import read_shard, read_spans
from genoformer.store.transaction import TransactionalFile, resource_error
from genoformer.tracks import Track

BLOCK_BASES = 4 * schema.CHUNK
_CACHE = {"rdcc_nbytes": 16 << 20, "rdcc_nslots": 10_007}


class TrackStore:
    """Values of tracks at every base of many sequences, in one HDF5 file; made by :func:`open_store`.

    >>> with open_store("predictions.h5") as store:  # doctest: +SKIP
    ...     values = store["chr1", 1000:2000]  # (1000, channels) of the first track

    Attributes
    ----------
    path : Path
    tracks : dict of Track by name, in order
    metadata : dict, the provenance
    status : "complete"; where it was asked for, "incomplete" (a .part) or "shard" (a part of a run)
    shard : Shard, or None for a whole run
    generated_by, format_version : program and version that wrote it; version of the layout
    created : when it was begun, ISO 8601 in UTC; empty where the file does not say
    dtype : of the values as stored
    """

    create = staticmethod(create_store)

    def __init__(self, path: Path, hdf5: Any, *, file: TransactionalFile | None = None) -> None:
        self.path = path
        self._hdf5, self._file = hdf5, file
        self.tracks: dict[str, Track] = schema.read_tracks(hdf5)
        self.metadata = schema.read_metadata(hdf5)
        self.status = schema.read_status(hdf5)
        self.shard = read_shard(hdf5)
        self.generated_by, self.format_version = schema.read_version(hdf5)
        self.created = schema.read_created(hdf5)
        self._datasets = {name: hdf5["tracks"][name]["values"] for name in self.tracks}
        self.dtype: np.dtype = next(iter(self._datasets.values())).dtype

    @cached_property
    def sequences(self) -> SequenceTable:
        """Names, lengths and states of all sequences, read when first asked for."""
        self._check_open()
        try:
            return read_sequences(self._hdf5["sequences"])
        except schema.DAMAGE as error:
            raise _unreadable(self.path, error) from error

    def __getitem__(self, key: str | tuple[str, int | slice]) -> np.ndarray:
        """Return values of the first track: of a sequence, ``store[name]``, or a part of it, ``store[name, a:b]``.

        Positions are 0-based, negative ones count from the end; beyond the sequence is an error.

        Returns
        -------
        ndarray, (bases, channels) as stored, or (channels,) for a single position

        Raises
        ------
        UnknownNameError : there is no such sequence (an InputError and a KeyError)
        InputError : a position beyond the sequence
        """
        name, where = key if isinstance(key, tuple) else (key, slice(None))
        length = int(self.sequences.lengths[self.sequences.index(name)])
        if isinstance(where, slice):
            if where.step not in (None, 1):
                raise InputError(f"{self.path}: steps other than 1 are not read from a store, got {where.step}")
            start = 0 if where.start is None else _position(where.start, length)
            end = length if where.stop is None else _position(where.stop, length)
            return self.values(Region(name, start, max(start, end)))
        start = _position(where, length)
        return self.values(Region(name, start, start + 1))[0]

    def values(self, region: Region, track: str | None = None) -> np.ndarray:
        """Return the values of a region, (bases, channels) as stored; of the first track unless one is named.

        Raises
        ------
        UnknownNameError : there is no such sequence or track (an InputError and a KeyError)
        InputError : the region reaches beyond the sequence
        FormatError : the file is damaged there
        """
        first = self._first_base(region)
        return self._read(self._track_name(track), first, first + region.length)

    def axis_values(
        self, first: int, last: int, *, track: str | None = None, channels: Sequence[int] | None = None
    ) -> np.ndarray:
        """Return the values of bases first to last - 1 of the common axis, whatever sequences they belong to.

        Parameters
        ----------
        first, last : int, bases; see ``sequences.offsets``
        track : the first one if None
        channels : columns, rising; all if None. Each is read alone

        Returns
        -------
        ndarray, (bases, channels) as stored

        Raises
        ------
        InputError : the span reaches beyond the axis, or there is no such track
        """
        if not 0 <= first <= last <= self.sequences.total_bases:
            total = self.sequences.total_bases
            raise InputError(f"{self.path}: has {total} bases, the span {first}-{last} does not lie within")
        name = self._track_name(track)
        if channels is None:
            return self._read(name, first, last)
        return np.stack([self._read(name, first, last, channel=channel) for channel in channels], axis=1)

    def blocks(
        self, track: str | None = None, region: Region | None = None, *, size: int = BLOCK_BASES
    ) -> Iterator[Block]:
        """Stream all values, or those of a region, a block at a time and in order; no block spans two sequences.

        Parameters
        ----------
        track : name of the only track wanted; all of them if None
        region : where; every base of every sequence if None
        size : int, bases held in memory at once; multiples of 65,536 read fastest

        Returns
        -------
        iterator of Block; bases without a prediction are there too, as NaN (255 in a store of codes)
        """
        if size < 1:
            raise ValueError(f"size must be at least 1 base, got {size}")
        names = list(self.tracks) if track is None else [self._track_name(track)]
        first, last = (0, self.sequences.total_bases) if region is None else self._span(region)
        return self._stream(names, first, last, size)

    def predicted_counts(self, first: int = 0, last: int | None = None) -> np.ndarray:
        """Count the bases that have a value, of sequences first to last - 1: (sequences,) int64.

        Reads one channel of the first track.
        """
        offsets = self.sequences.offsets[first : (len(self.sequences) if last is None else last) + 1]
        counts = np.zeros(max(len(offsets) - 1, 0), dtype=np.int64)
        here = int(offsets[0]) if len(counts) else 0
        while len(counts) and here < offsets[-1]:
            stop = min(int(offsets[-1]), (here // BLOCK_BASES + 1) * BLOCK_BASES)
            values = self._read(next(iter(self.tracks)), here, stop, channel=0)
            has_value = values != schema.FILL["uint8"] if values.dtype == np.uint8 else ~np.isnan(values)
            running = np.concatenate([[0], np.cumsum(has_value)])
            low, high = np.searchsorted(offsets, [here, stop - 1], side="right") - 1
            bounds = offsets[low : high + 2].clip(here, stop) - here
            counts[low : high + 1] += np.diff(running[bounds])
            here = stop
        return counts

    def checksums(self, track: str, *, chunks: bool = False) -> np.ndarray | None:
        """Return the CRC-32 of the values of every sequence, as stored: (sequences,) uint32; None if there are none.

        With ``chunks`` those of the chunks as they lie in the file, 0 where there is none: (rows of chunks, channels).
        """
        self._check_open()
        with self._reading():
            return schema.read_crcs(self._hdf5, self._track_name(track), schema.CHUNK_CRC if chunks else schema.CRC)

    def table(self, name: str, columns: int) -> np.ndarray | None:
        """Return a table beside the tracks with a row for each sequence: (sequences, columns) int64; None if none is.

        FormatError if it is of another shape or kind.
        """
        self._check_open()
        with self._reading():
            if name not in self._hdf5:
                return None
            found, shape = self._hdf5[name], (len(self.sequences), columns)
            if found.shape != shape:  # before any of it is read
                raise ValueError(f"{name} has shape {found.shape}, expected {shape}")
            return found[:].astype(np.int64, casting="safe")

    def stored_chunk(self, track: str, row: int, channel: int) -> tuple[int, bytes] | None:
        """Return HDF5's filter mask and the bytes of a chunk as it lies in the file; None if there is none."""
        self._check_open()
        dataset, place = self._datasets[track].id, (row * schema.CHUNK, channel)
        with self._reading():
            if dataset.get_chunk_info_by_coord(place).byte_offset is None:
                return None
            return dataset.read_direct_chunk(place)

    def stored_bytes(self, track: str) -> int:
        """Return how many bytes the values of a track take in the file."""
        self._check_open()
        with self._reading():
            return int(self._datasets[track].id.get_storage_size())

    def shard_spans(self, name: str) -> np.ndarray:
        """Return the "blocks" of a shard, or those "planned" for the whole run: (n, 2) int64, on the common axis."""
        self._check_open()
        with self._reading():
            return read_spans(self._hdf5, name, total=self.sequences.total_bases)

    def has_sequences_of(self, other: TrackStore) -> bool:
        """Tell whether names, lengths, checksums and topology of all sequences are those of another store."""
        self._check_open()
        with self._reading():
            return same_sequences(self._hdf5["sequences"], other._hdf5["sequences"])

    def close(self) -> None:
        """Close the file."""
        self._datasets.clear()
        self._hdf5.close()
        if self._file is not None:
            self._file.close()

    def __iter__(self) -> Iterator[str]:
        """Yield the names of the sequences, in order."""
        return iter(self.sequences.names)

    def __contains__(self, name: object) -> bool:
        try:
            self.sequences.index(name)  # type: ignore[arg-type]
        except UnknownNameError:
            return False
        return True

    def __enter__(self) -> TrackStore:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    @contextlib.contextmanager
    def _reading(self) -> Iterator[None]:
        """Turn what HDF5 and numpy say of a damaged file into one of our errors."""
        try:
            yield
        except GenoformerError:
            raise
        except schema.DAMAGE as error:
            raise _unreadable(self.path, error) from error

    def _check_open(self) -> None:
        if not self._datasets:
            raise ValueError(f"{self.path}: the store is closed")

    def _stream(self, names: list[str], first: int, last: int, size: int) -> Iterator[Block]:
        offsets = self.sequences.offsets
        here = first
        while here < last:
            stop = min(last, (here // size + 1) * size)  # on the grid of the chunks
            slabs = {name: self._read(name, here, stop) for name in names}
            low, high = np.searchsorted(offsets, [here, stop - 1], side="right") - 1
            for index in range(int(low), int(high) + 1):
                offset = int(offsets[index])
                a, b = max(here, offset), min(stop, int(offsets[index + 1]))
                if a < b:
                    values = {name: slab[a - here : b - here] for name, slab in slabs.items()}
                    yield Block(self.sequences.names[index], a - offset, values)
            here = stop

    def _track_name(self, track: str | None) -> str:
        if track is None:
            return next(iter(self.tracks))
        if track not in self.tracks:
            raise UnknownNameError(f"{self.path}: there is no track {track!r}; it has {', '.join(self.tracks)}")
        return track

    def _span(self, region: Region) -> tuple[int, int]:
        first = self._first_base(region)
        return first, first + region.length

    def _first_base(self, region: Region) -> int:
        index = self.sequences.index(region.sequence)
        length = int(self.sequences.lengths[index])
        if not 0 <= region.start <= region.end <= length:
            raise InputError(
                f"{self.path}: {region.sequence!r} has {length} bases, "
                f"the span {region.start}-{region.end} (0-based) does not lie within"
            )
        return int(self.sequences.offsets[index]) + region.start

    def _read(self, track: str, first: int, last: int, *, channel: int | slice = slice(None)) -> np.ndarray:
        self._check_open()
        try:
            return self._datasets[track][first:last, channel]
        except schema.DAMAGE as error:
            raise _unreadable(self.path, error) from error


def open_store(path: str | Path, *, allow_incomplete: bool = False, was_open: bool = False) -> TrackStore:
    """Open a store for reading.

    Parameters
    ----------
    path : a complete store; with ``allow_incomplete`` a ``.part`` or a shard, too
    allow_incomplete : read a part of a run too; bases without values yet are NaN (255 in a store of codes)
    was_open : it was opened before: do not search it for what HDF5 would never get out of

    Returns
    -------
    TrackStore, to be closed or used in a ``with`` statement

    Raises
    ------
    InputError : there is no such file
    FormatError : not HDF5, not a store, damaged, incomplete, or of a newer version
    ResourceError : the file may not be read, or is being written by another process
    """
    path = Path(path)
    if not path.is_file():
        raise InputError(f"{path}: {'is a folder' if path.is_dir() else 'no such file'}; expected a store (HDF5)")
    may_be_torn = allow_incomplete or path.suffix == ".part"
    file = TransactionalFile(path, read_only=True) if may_be_torn else None
    hdf5 = None
    try:
        if not was_open:
            check_heaps(path)
        hdf5 = h5py.File(path if file is None else file, "r", **_CACHE)
        schema.check_header(hdf5, path)
        status = schema.read_status(hdf5)
        if status == "shard" and not allow_incomplete:
            raise FormatError(f"{path}: shard {read_shard(hdf5)} of a run; join the shards by genoformer merge first")
        if status != "complete" and not allow_incomplete:
            raise FormatError(f"{path}: an interrupted run, not complete; run the same command again with --resume")
        schema.check_layout(hdf5)
        return TrackStore(path, hdf5, file=file)
    except BaseException as error:
        with contextlib.suppress(Exception):
            if hdf5 is not None:
                hdf5.close()
        if file is not None:
            file.close()
        if isinstance(error, schema.DAMAGE) and not isinstance(error, GenoformerError):
            raise _unreadable(path, error) from error
        raise


def _unreadable(path: Path, error: BaseException) -> GenoformerError:
    """Tell what keeps a file from being read: the system, another process, its kind, or damage."""
    code = error.errno if isinstance(error, OSError) else None
    if code in (errno.EAGAIN, errno.EWOULDBLOCK):
        return ResourceError(f"{path}: in use by another process (locked); wait until it ends, or read a copy")
    if code:
        return resource_error(path, OSError(code, os.strerror(code)), "read")
    if not h5py.is_hdf5(path):
        return FormatError(f"{path}: not an HDF5 file; expected a store written by genoformer")
    return FormatError(f"{path}: damaged ({schema.one_line(error)}); write it again, or fetch another copy")


def _position(position: Any, length: int) -> int:
    """Resolve a position as Python does, but refuse one beyond the sequence."""
    position = operator.index(position)
    if not -length <= position <= length:
        raise InputError(f"position {position} lies beyond the sequence of {length} bases")
    return position + length if position < 0 else position
