"""FASTA: read in large blocks, written, and fetched by region through an index of its own."""

from __future__ import annotations

import contextlib
import os
import threading
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import IO, NamedTuple

import numpy as np

from genoformer.errors import InputError
from genoformer.formats.bytestream import ByteStream, Source
from genoformer.formats.cache import index_path
from genoformer.formats.fasta_scan import BLOCK_SIZE, Bases, Header, Nameless, OpenRecord, begin, scan
from genoformer.formats.sequences import Record, check_region, check_unique
from genoformer.regions import Region

_INDEX_BLOCK = 1 << 18
_PIECES_KEPT = 16


class _Checkpoint(NamedTuple):
    record: int
    bases: int
    """of the record, before this one"""
    offset: int


class FastaSequences:
    """The records of a FASTA file, see `Sequences`."""

    def __init__(self, source: Source, *, block_size: int = BLOCK_SIZE):
        self.source = source.name
        self._input = source
        self._block_size = block_size
        self._index: FastaIndex | None = None
        self._stream: ByteStream | None = None
        self._pieces: dict[int, bytes] = {}
        self._lock = threading.Lock()
        self._nameless = Nameless(source.name)

    def records(self) -> Iterator[Record]:
        """Yield every record in the order of the file.

        Raises
        ------
        FormatError : this is not FASTA, or its compressed data is damaged
        InputError : no record with a name, or a protein sequence
        """
        self._nameless.begin()
        named = 0
        with self._input.open() as stream:
            opened: OpenRecord | None = None
            for event in scan(stream, self.source, block_size=self._block_size):
                if isinstance(event, Bases):
                    assert opened is not None
                    opened.add(event.bases)
                    continue
                if opened is not None and not self._nameless.leaves_out(opened):
                    named += 1
                    yield opened.close()
                opened = OpenRecord.from_header(event, self.source, 1 if opened is None else opened.number + 1)
            if opened is not None and not self._nameless.leaves_out(opened):
                named += 1
                yield opened.close()
        self._nameless.end(named)

    @property
    def counts(self) -> Counter[str]:
        """Records that were left out when they were last read, by reason."""
        return self._nameless.counts

    def lengths(self) -> dict[str, int]:
        """Return the length in bases of every sequence, from the index."""
        return self._indexed().lengths

    def fetch(self, region: Region) -> bytes:
        """Return the bases of a region, as `records` would.

        Raises
        ------
        InputError : there is no such sequence, it is shorter, or two have the same name
        """
        with self._lock:
            index = self._indexed()
            check_region(region, index.lengths, self.source)
            if region.length == 0:
                return b""
            rows = index.rows(region)
            pieces = [self._piece(index, row) for row in rows]
        first = region.start - index.checkpoint(rows[0]).bases
        bases = b"".join(pieces)[first : first + region.length]
        if len(bases) != region.length:
            raise InputError(f"{self.source}: has changed while it was read; start again")
        return bases

    def _piece(self, index: FastaIndex, row: int) -> bytes:
        """Return the bases from one checkpoint to the next; neighbors are kept, so that windows read forward only."""
        if row not in self._pieces:
            self._stream = self._stream or self._input.open()
            here, size = index.checkpoint(row), index.bytes_after(row)
            self._stream.seek(here.offset)
            events = scan(self._stream, self.source, newline=index.newline, block_size=size)
            event = next(events, None)
            while len(self._pieces) >= _PIECES_KEPT:
                del self._pieces[next(iter(self._pieces))]
            self._pieces[row] = event.bases if isinstance(event, Bases) else b""
        return self._pieces[row]

    def _indexed(self) -> FastaIndex:
        if self._index is None:
            path = None if self._input.is_temporary else index_path(self._input.path, ".fasta.npz")
            self._index = (path and FastaIndex.load(path)) or self._make_index(path)
        return self._index

    def _make_index(self, path: Path | None) -> FastaIndex:
        index = FastaIndex.build(self._input, self._nameless)
        if path is not None:
            with contextlib.suppress(OSError):  # the index in memory does as well
                index.save(path)
        return index


class FastaIndex:
    """Where the bases of each record are: checkpoints, at least one a record and one every 256 KiB.

    Unlike an index of line lengths it holds for ragged lines and comments, and points into the decompressed bytes.
    """

    def __init__(self, lengths: dict[str, int], checkpoints: np.ndarray, newline: bytes):
        self.lengths = lengths
        self.newline = newline
        self._numbers = {name: number for number, name in enumerate(lengths)}
        self._checkpoints = checkpoints  # (n, 3): number of the record, bases of it before, offset in bytes

    @classmethod
    def build(cls, source: Source, nameless: Nameless) -> FastaIndex:
        """Read the whole file once; records without a name are left out."""
        names: list[str] = []
        lengths: list[int] = []
        checkpoints: list[tuple[int, int, int]] = []
        nameless.begin()
        with source.open() as stream:
            newline, _ = begin(stream)
            stream.seek(0)
            opened: OpenRecord | None = None
            for event in scan(stream, source.name, block_size=_INDEX_BLOCK):
                if isinstance(event, Header):
                    if opened is not None and opened.name:
                        lengths.append(opened.check())
                    opened = OpenRecord.from_header(event, source.name, len(names) + 1)
                    if not nameless.leaves_out(opened):
                        names.append(opened.name)
                elif opened is not None and opened.name:
                    checkpoints.append((len(names) - 1, opened.length, event.offset))
                    opened.count(event.bases)
        nameless.end(len(names))
        if opened is not None and opened.name:
            lengths.append(opened.check())
        check_unique(names, source.name)
        table = np.array(checkpoints, np.int64).reshape(-1, 3)
        return cls(dict(zip(names, lengths, strict=True)), table, newline)

    def rows(self, region: Region) -> range:
        """Return the numbers of the checkpoints that a region, not empty, needs."""
        number = self._numbers[region.sequence]
        first, last = np.searchsorted(self._checkpoints[:, 0], [number, number + 1])
        starts = self._checkpoints[first:last, 1]
        begin = np.searchsorted(starts, region.start, side="right")
        end = np.searchsorted(starts, region.end, side="left")
        return range(int(first + begin - 1), int(first + end))

    def checkpoint(self, row: int) -> _Checkpoint:
        return _Checkpoint(*self._checkpoints[row].tolist())

    def bytes_after(self, row: int) -> int:
        """Return how many bytes lie between a checkpoint and the next."""
        if row + 1 == len(self._checkpoints):
            return _INDEX_BLOCK
        return min(self.checkpoint(row + 1).offset - self.checkpoint(row).offset, _INDEX_BLOCK)

    def save(self, path: Path) -> None:
        part = path.with_name(f"{path.name}.{os.getpid()}.part")
        try:
            with part.open("wb") as stream:
                np.savez(
                    stream,
                    names=np.frombuffer("\n".join(self.lengths).encode(), np.uint8),
                    lengths=np.array(list(self.lengths.values()), np.int64),
                    checkpoints=self._checkpoints,
                    newline=np.frombuffer(self.newline, np.uint8),
                )
            part.replace(path)
        finally:
            part.unlink(missing_ok=True)

    @classmethod
    def load(cls, path: Path) -> FastaIndex | None:
        """Read an index; None if there is none or it is damaged."""
        try:
            with path.open("rb") as stream, np.load(stream, allow_pickle=False) as stored:
                names = stored["names"].tobytes().decode().split("\n")
                lengths = dict(zip(names, stored["lengths"].tolist(), strict=True))
                return cls(lengths, stored["checkpoints"].reshape(-1, 3), stored["newline"].tobytes())
        except Exception:  # whatever is wrong with it: it is built again
            return None


def write_fasta(records: Iterable[Record], stream: IO[bytes], *, width: int = 60) -> None:
    """Write records as FASTA, ``width`` bases a line."""
    for record in records:
        stream.write(f">{record.name} {record.description}".rstrip().encode() + b"\n")
        for start in range(0, len(record.bases), width):
            stream.write(record.bases[start : start + width] + b"\n")
