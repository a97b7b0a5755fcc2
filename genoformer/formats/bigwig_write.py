"""BigWig written: values of single bases, streamed, with an index and zoom levels.

Layout: Kent et al. 2010, Bioinformatics 26:2204, supplementary tables; numbers are little-endian. Chromosomes are
numbered in the order given, while the tree of their names is sorted, as its readers expect.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Callable, Sequence
from typing import IO

import numpy as np

from genoformer.errors import InputError
from genoformer.formats.bigwig_zoom import RECORD, ZoomLevel, summarize, zoom_sizes

_MAGIC, _NAMES_MAGIC, _INDEX_MAGIC = 0x888FFC26, 0x78CA8C91, 0x2468ACE0
_VERSION = 4
_HEADER = struct.Struct("<IHHQQQHHQQIQ")
_ZOOM_HEADER = struct.Struct("<IIQQ")
_SUMMARY = struct.Struct("<Qdddd")
_SECTION_HEAD = struct.Struct("<IIIIIBBH")
_RUNS, _EVERY_BASE = 1, 3  # types of sections: start, end and value of each run; a value for each base
_RUN = np.dtype([("start", "<u4"), ("end", "<u4"), ("value", "<f4")])
_LEAF = np.dtype([("box", "<u4", 4), ("offset", "<u8"), ("size", "<u8")])
_BRANCH = np.dtype([("box", "<u4", 4), ("offset", "<u8")])
SECTION = 4096
"""Bases of a section, the piece that is compressed and read at once."""
_NODE = 256
_LEVEL = 1  # of compression: values of models are hardly smaller at higher ones
_LONGEST = (1 << 32) - 1


class BigWigWriter:
    """Writes one bigWig file, a stretch of bases after the other.

    Parameters
    ----------
    stream : binary, seekable, empty
    names, lengths : of the sequences, in the order in which their values come; those without a base are left out

    Raises
    ------
    InputError : no sequence has a base, one is longer than the format can count, or a name cannot be written
    """

    def __init__(self, stream: IO[bytes], names: Sequence[str], lengths: np.ndarray):
        self._stream = stream
        kept = np.flatnonzero(lengths)
        encoded = [names[index].encode("utf-8", "surrogateescape") for index in kept.tolist()]
        if not encoded:
            raise InputError("no sequence has a base, and bigWig cannot hold none")
        if int(lengths.max()) > _LONGEST:
            raise InputError(f"sequence {names[int(lengths.argmax())]!r} has {int(lengths.max()):,} bases, and bigWig "
                             f"counts to {_LONGEST:,}; write bedGraph")  # fmt: skip
        self._numbers = np.cumsum(lengths > 0) - 1  # of the sequences among those that are kept
        self._zooms = [ZoomLevel(size) for size in zoom_sizes(int(lengths.max()))]
        self._sections: list[tuple[int, int, int, int, int]] = []  # chromosome, start, end, offset, size
        self._bases, self._low, self._high, self._sum, self._squares = 0, np.inf, -np.inf, 0.0, 0.0
        stream.write(bytes(_HEADER.size + len(self._zooms) * _ZOOM_HEADER.size + _SUMMARY.size))
        self._names_at = stream.tell()
        stream.write(_name_tree(encoded, lengths[kept], self._names_at))
        self._data_at = stream.tell()
        stream.write(bytes(8))

    def add(self, sequences: np.ndarray, positions: np.ndarray, values: np.ndarray) -> None:
        """Write values of bases, all behind those written before.

        Parameters
        ----------
        sequences : int64, (bases,): number of the sequence, in the order of ``names``; must not decrease
        positions : int64, (bases,): 0-based, rising within a sequence
        values : float32, (bases,): finite
        """
        if not len(values):
            return
        chromosomes = self._numbers[sequences]
        self._summarize(values)
        self._zoom(chromosomes, positions, values)
        is_new_tile = (np.diff(chromosomes) != 0) | (np.diff(positions // SECTION) != 0)
        is_new_run = is_new_tile | (np.diff(positions) != 1) | (np.diff(values) != 0)
        tiles = np.concatenate([[0], np.flatnonzero(is_new_tile) + 1, [len(values)]])
        firsts = np.concatenate([[0], np.flatnonzero(is_new_run) + 1])
        lasts = np.append(firsts[1:], len(values)) - 1
        runs = np.empty(len(firsts), dtype=_RUN)
        runs["start"], runs["end"], runs["value"] = positions[firsts], positions[lasts] + 1, values[firsts]
        bounds = np.searchsorted(firsts, tiles)
        dense = values.astype("<f4", copy=False)
        spans = np.column_stack([tiles[:-1], tiles[1:], bounds[:-1], bounds[1:], chromosomes[tiles[:-1]],
                                 positions[tiles[:-1]], positions[tiles[1:] - 1] + 1])  # fmt: skip
        for a, b, first, last, chromosome, start, end in spans.tolist():
            if end - start == b - a and (last - first) * _RUN.itemsize > 4 * (b - a):
                head = _SECTION_HEAD.pack(chromosome, start, end, 1, 1, _EVERY_BASE, 0, b - a)
                data = head + dense[a:b].tobytes()
            else:
                head = _SECTION_HEAD.pack(chromosome, start, end, 0, 0, _RUNS, 0, last - first)
                data = head + runs[first:last].tobytes()
            self._write_section(chromosome, start, end, zlib.compress(data, _LEVEL))

    def finish(self) -> None:
        """Write the index, the zoom levels and the header."""
        stream = self._stream
        index_at = stream.tell()
        boxes = np.array(self._sections, dtype=np.int64).reshape(-1, 5)
        leaves = np.empty(len(boxes), dtype=_LEAF)
        leaves["box"] = boxes[:, [0, 1, 0, 2]]
        leaves["offset"], leaves["size"] = boxes[:, 3], boxes[:, 4]
        stream.write(_index(leaves, index_at, end=index_at, in_leaf=1))
        largest = _SECTION_HEAD.size + SECTION * _RUN.itemsize
        headers = []
        for number, level in enumerate(self._zooms, 1):
            records = level.close()
            for above in self._zooms[number:]:
                records = above.add(records)
            headers.append(self._write_zoom(level))
            largest = max(largest, level.records_in_block * RECORD.itemsize)
        stream.write(struct.pack("<I", _MAGIC))
        low, high = (self._low, self._high) if self._bases else (0.0, 0.0)
        summary_at = _HEADER.size + len(headers) * _ZOOM_HEADER.size
        stream.seek(0)
        stream.write(_HEADER.pack(_MAGIC, _VERSION, len(headers), self._names_at, self._data_at, index_at, 0, 0, 0,
                                  summary_at, largest, 0))  # fmt: skip
        stream.write(b"".join(headers))
        stream.write(_SUMMARY.pack(self._bases, low, high, self._sum, self._squares))
        stream.seek(self._data_at)
        stream.write(struct.pack("<Q", len(leaves)))
        stream.seek(0, 2)

    def close(self) -> None:
        """Let go of temporary files; a file that was not finished stays useless."""
        for level in self._zooms:
            level.discard()

    def _summarize(self, values: np.ndarray) -> None:
        exact = values.astype(np.float64)
        self._bases += len(values)
        self._low, self._high = min(self._low, float(exact.min())), max(self._high, float(exact.max()))
        self._sum += float(exact.sum())
        self._squares += float((exact * exact).sum())

    def _zoom(self, chromosomes: np.ndarray, positions: np.ndarray, values: np.ndarray) -> None:
        records = summarize(chromosomes, positions, values, self._zooms[0].size)
        for level in self._zooms:
            records = level.add(records)

    def _write_section(self, chromosome: int, start: int, end: int, data: bytes) -> None:
        self._sections.append((chromosome, start, end, self._stream.tell(), len(data)))
        self._stream.write(data)

    def _write_zoom(self, level: ZoomLevel) -> bytes:
        """Copy a finished zoom level into the file, with its index; return its header."""
        stream = self._stream
        data_at = stream.tell()
        stream.write(struct.pack("<I", level.count))
        blocks = level.blocks()
        leaves = np.empty(len(blocks), dtype=_LEAF)
        leaves["box"], leaves["size"] = blocks["box"], blocks["size"]
        leaves["offset"] = data_at + 4 + np.cumsum(blocks["size"]) - blocks["size"]
        level.copy_to(stream)
        index_at = stream.tell()
        stream.write(_index(leaves, index_at, end=index_at, in_leaf=level.records_in_block))
        return _ZOOM_HEADER.pack(level.size, 0, data_at, index_at)


def _name_tree(names: list[bytes], lengths: np.ndarray, at: int) -> bytes:
    """Return the B+ tree that leads from names to numbers and lengths."""
    width = max(1, *map(len, names))
    order = sorted(range(len(names)), key=names.__getitem__)
    leaves = np.zeros(len(names), dtype=[("key", f"S{width}"), ("number", "<u4"), ("length", "<u4")])
    leaves["key"] = [names[index] for index in order]
    leaves["number"], leaves["length"] = order, lengths[order]
    size = min(_NODE, len(leaves))
    head = struct.pack("<IIIIQQ", _NAMES_MAGIC, size, width, 8, len(leaves), 0)
    branch = np.dtype([("key", f"S{width}"), ("offset", "<u8")])

    def above(nodes: np.ndarray) -> np.ndarray:
        parents = np.zeros(-(-len(nodes) // size), dtype=branch)
        parents["key"] = nodes["key"][::size]
        return parents

    return head + _tree(leaves, above, size, at + len(head))


def _index(leaves: np.ndarray, at: int, *, end: int, in_leaf: int) -> bytes:
    """Return the R tree over boxes: (chromosome, start, chromosome, end) of each section and where it lies."""
    boxes = leaves["box"]
    box = [0, 0, 0, 0] if not len(boxes) else _bounds(boxes, np.zeros(1, dtype=np.int64))[0].tolist()
    size = max(1, min(_NODE, len(leaves)))
    head = struct.pack("<IIQIIIIQII", _INDEX_MAGIC, size, len(leaves), *box, end, in_leaf, 0)

    def above(nodes: np.ndarray) -> np.ndarray:
        starts = np.arange(0, len(nodes), size)
        parents = np.zeros(len(starts), dtype=_BRANCH)
        parents["box"] = _bounds(nodes["box"], starts)
        return parents

    return head + _tree(leaves, above, size, at + len(head))


def _bounds(boxes: np.ndarray, starts: np.ndarray) -> np.ndarray:
    """Return the box around each group of boxes, which are in order."""
    lasts = np.append(starts[1:], len(boxes)) - 1
    keys = (boxes[:, 2].astype(np.uint64) << np.uint64(32)) | boxes[:, 3]
    ends = np.maximum.reduceat(keys, starts)
    found = np.empty((len(starts), 4), dtype=np.uint32)
    found[:, :2] = boxes[starts, :2]
    found[:, 2], found[:, 3] = boxes[lasts, 2], (ends & np.uint64(_LONGEST)).astype(np.uint32)
    return found


def _tree(leaves: np.ndarray, above: Callable[[np.ndarray], np.ndarray], size: int, at: int) -> bytes:
    """Lay out a tree of nodes of ``size`` items, the root first: levels one behind the other, nodes filled up."""
    levels = [leaves]
    while len(levels[0]) > size:
        levels.insert(0, above(levels[0]))
    texts: list[bytes] = []
    for depth, items in enumerate(levels):
        is_leaf = depth == len(levels) - 1
        count = max(1, -(-len(items) // size))
        node = np.dtype([("leaf", "u1"), ("reserved", "u1"), ("count", "<u2"), ("items", items.dtype, (size,))])
        nodes = np.zeros(count, dtype=node)
        nodes["leaf"] = is_leaf
        nodes["count"] = np.minimum(size, len(items) - size * np.arange(count))
        at += count * node.itemsize
        if not is_leaf:
            below = levels[depth + 1]
            bytes_below = 4 + size * below.dtype.itemsize
            items["offset"] = at + np.arange(len(items)) * bytes_below
        padded = np.zeros(count * size, dtype=items.dtype)
        padded[: len(items)] = items
        nodes["items"] = padded.reshape(count, size)
        texts.append(nodes.tobytes())
    return b"".join(texts)
