"""Signals from bigWig files: the tree of names, the index of sections, and the sections, each checked as it is read.

Layout: Kent et al. 2010, Bioinformatics 26:2204, supplementary tables. Files may come from anywhere: no number in them
is followed or allocated for before it is known to fit the file.
"""

from __future__ import annotations

import os
import struct
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import IO, NamedTuple

import numpy as np

from genoformer.errors import FormatError
from genoformer.formats.bytestream import Source
from genoformer.formats.spans import Spans

_MAGIC, _NAMES_MAGIC, _INDEX_MAGIC = 0x888FFC26, 0x78CA8C91, 0x2468ACE0
_HEADER, _NAMES_HEAD, _INDEX_HEAD, _NODE = "IHHQQQHHQQIQ", "IIIIQQ", "IIQIIIIQII", "BBH"
_SECTION = "IIIIIBBH"
_RUNS, _STEPS, _EVERY = 1, 2, 3
_MOST_ITEMS = 0xFFFF
_MOST_BYTES = 24 + 12 * _MOST_ITEMS
"""of a section, decompressed"""
_DEEPEST = 30


class _Section(NamedTuple):
    chromosome: int
    start: int
    end: int
    step: int
    span: int
    kind: int
    reserved: int
    items: int


def is_bigwig(path: str | os.PathLike[str]) -> bool:
    """Tell by its first bytes whether a file is bigWig; a file that is not there, or a pipe, is not."""
    if not Path(path).is_file():
        return False
    with Path(path).open("rb") as stream:
        head = stream.read(4)
    return _MAGIC in (int.from_bytes(head, "little"), int.from_bytes(head, "big"))


class BigWig:
    """The numbers of a bigWig file, read a sequence at a time.

    Attributes
    ----------
    lengths : bases of every sequence, by name

    Raises
    ------
    InputError : the file cannot be read
    FormatError : it is not bigWig, or is damaged
    """

    def __init__(self, path: str | os.PathLike[str]):
        self._source = Source(path)
        if not is_bigwig(self._source.path):
            raise FormatError(f"{self._source.name}: is not bigWig")
        with self._source.path.open("rb") as stream:
            self._order = "<" if int.from_bytes(stream.read(4), "little") == _MAGIC else ">"
            self._size = stream.seek(0, os.SEEK_END)
            header = self._unpack(_HEADER, self._bytes(stream, 0, struct.calcsize("<" + _HEADER)))
            self._is_compressed = header[10] > 0
            chromosomes = list(self._chromosomes(stream, header[3]))
            self._sections = self._index(stream, header[5])
        self.lengths: dict[str, int] = {name: length for name, _, length in chromosomes}
        self._numbers = {name: number for name, number, _ in chromosomes}
        if len(set(self._numbers.values())) != len(chromosomes) or len(self.lengths) != len(chromosomes):
            raise self._damaged("a sequence is there twice")

    def spans(self, name: str) -> Spans:
        """Return the spans of a sequence that have a value.

        Raises
        ------
        FormatError : the file is damaged there
        """
        number = self._numbers[name]
        mine = self._sections[(self._sections["first"] <= number) & (self._sections["last"] >= number)]
        parts = [Spans(np.empty(0, np.int64), np.empty(0, np.int64), np.empty(0, np.float32))]
        with self._source.path.open("rb") as stream:
            for offset, size in zip(mine["offset"].tolist(), mine["size"].tolist(), strict=True):
                chromosome, part = self._section(self._bytes(stream, offset, size))
                if chromosome == number:
                    parts.append(part)
        spans = Spans(*(np.concatenate(columns) for columns in zip(*parts, strict=True)))
        if np.isinf(spans.values).any():
            raise self._damaged(f"a value of {name!r} is infinite")
        if len(spans.starts) and not (spans.starts < spans.ends).all():
            raise self._damaged(f"a span of {name!r} ends before it starts")
        if len(spans.ends) and int(spans.ends.max()) > self.lengths[name]:
            raise self._damaged(f"a span lies beyond the {self.lengths[name]:,} bases of {name!r}")
        return spans

    def _damaged(self, what: str) -> FormatError:
        return FormatError(f"{self._source.name}: cannot be read as bigWig ({what}); write or fetch it again")

    def _bytes(self, stream: IO[bytes], offset: int, size: int) -> bytes:
        """Return bytes of the file, all of them or an error."""
        if not 0 <= offset <= offset + size <= self._size:
            raise self._damaged(f"it points to byte {offset + size:,} of {self._size:,}")
        stream.seek(offset)
        data = stream.read(size)
        if len(data) != size:
            raise self._damaged("it has become shorter")
        return data

    def _unpack(self, layout: str, data: bytes) -> tuple[int, ...]:
        return struct.unpack_from(self._order + layout, data)

    def _chromosomes(self, stream: IO[bytes], offset: int) -> Iterator[tuple[str, int, int]]:
        """Yield name, number and length of every sequence."""
        head = self._bytes(stream, offset, 32)
        magic, _, key, value, *_ = self._unpack(_NAMES_HEAD, head)
        if magic != _NAMES_MAGIC or value != 8 or not 0 < key <= self._size:
            raise self._damaged("it has no tree of names")
        leaf = np.dtype([("key", f"S{key}"), ("number", self._order + "u4"), ("length", self._order + "u4")])
        inner = np.dtype([("key", f"S{key}"), ("child", self._order + "u8")])
        for rows in self._nodes(stream, offset + 32, leaf, inner):
            for raw, number, length in rows.tolist():
                yield raw.decode("utf-8", "surrogateescape"), number, length

    def _index(self, stream: IO[bytes], offset: int) -> np.ndarray:
        """Return where the sections lie, and of which sequences they are."""
        if self._unpack("I", self._bytes(stream, offset, 48))[0] != _INDEX_MAGIC:
            raise self._damaged("it has no index")
        box = [(name, self._order + "u4") for name in ("first", "start", "last", "end")]
        leaf = np.dtype([*box, ("offset", self._order + "u8"), ("size", self._order + "u8")])
        inner = np.dtype([*box, ("child", self._order + "u8")])
        found = list(self._nodes(stream, offset + 48, leaf, inner))
        sections = np.concatenate([np.empty(0, leaf), *found])
        if len(np.unique(sections["offset"])) != len(sections):
            raise self._damaged("its index names a section twice")
        return sections

    def _nodes(self, stream: IO[bytes], root: int, leaf: np.dtype, inner: np.dtype) -> Iterator[np.ndarray]:
        """Yield the rows of the leaves of a tree, in order."""
        waiting, seen = [(root, 0)], set()
        while waiting:
            here, depth = waiting.pop()
            if here in seen or depth > _DEEPEST:
                raise self._damaged("a tree in it goes round in circles")
            seen.add(here)
            is_leaf, _, count = self._unpack(_NODE, self._bytes(stream, here, 4))
            kind = leaf if is_leaf else inner
            rows = np.frombuffer(self._bytes(stream, here + 4, count * kind.itemsize), dtype=kind)
            if is_leaf:
                yield rows
            else:
                waiting += [(child, depth + 1) for child in reversed(rows["child"].tolist())]

    def _section(self, data: bytes) -> tuple[int, Spans]:
        """Return the number of a sequence, and spans of it."""
        if self._is_compressed:
            try:
                data = zlib.decompressobj().decompress(data, _MOST_BYTES)
            except zlib.error as error:
                raise self._damaged(f"a section cannot be decompressed: {error}") from None
        if len(data) < 24:
            raise self._damaged("a section is cut short")
        head = _Section(*self._unpack(_SECTION, data))
        value = ("value", self._order + "f4")
        fields = {
            _RUNS: [("start", self._order + "u4"), ("end", self._order + "u4"), value],
            _STEPS: [("start", self._order + "u4"), value],
            _EVERY: [value],
        }.get(head.kind)
        if fields is None:
            raise self._damaged(f"a section is of the unknown kind {head.kind}")
        dtype = np.dtype(fields)
        if len(data) < 24 + head.items * dtype.itemsize:
            raise self._damaged("a section is cut short")
        rows = np.frombuffer(data, dtype=dtype, count=head.items, offset=24)
        if head.kind == _EVERY:
            starts = head.start + head.step * np.arange(head.items, dtype=np.int64)
        else:
            starts = rows["start"].astype(np.int64)
        ends = rows["end"].astype(np.int64) if head.kind == _RUNS else starts + head.span
        return head.chromosome, Spans(starts, ends, rows["value"].astype(np.float32))
