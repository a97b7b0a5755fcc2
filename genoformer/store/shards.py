"""Shards: a run in parts, each over a stretch of the common axis with as many bases to predict as the others."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

import numpy as np

from genoformer.errors import ConfigError

MOST = 1_000_000
GROUP = "shard"


@dataclass(frozen=True)
class Shard:
    """One part of a run: ``number`` (from 1) of ``count``."""

    number: int
    count: int

    def __str__(self) -> str:
        return f"{self.number}/{self.count}"

    @classmethod
    def parse(cls, text: str) -> Shard:
        """Read "2/7".

        Raises
        ------
        ConfigError : it is none
        """
        found = re.fullmatch(r"([0-9]{1,7})/([0-9]{1,7})", text)
        if not found or not 1 <= int(found[1]) <= int(found[2]) <= MOST:
            raise ConfigError(f"{text!r} is no shard; expected I/N, such as 2/7 for the second of seven")
        return cls(int(found[1]), int(found[2]))

    def select(self, blocks: np.ndarray) -> slice:
        """Choose the planned blocks of this shard: those with their middle in its share of all bases to predict.

        Shards are stretches of the axis, so that at most one row of chunks is shared by neighbors, and differ by the
        bases of one block at most.

        Parameters
        ----------
        blocks : (blocks, 2) int64, spans on the common axis, in order
        """
        lengths = blocks[:, 1] - blocks[:, 0]
        ends = np.cumsum(lengths)
        middles = 2 * ends - lengths  # doubled, to stay whole
        total = 2 * int(ends[-1]) if len(ends) else 0
        bounds = [-(-total * number // self.count) for number in (self.number - 1, self.number)]
        first, last = np.searchsorted(middles, bounds, side="left").tolist()
        return slice(first, last)


def write_shard(file: Any, shard: Shard, planned: np.ndarray) -> None:
    """Say which part of a run a file holds: ``planned`` are the blocks of the whole run."""
    group = file.create_group(GROUP)
    group.attrs["number"], group.attrs["count"] = np.int64(shard.number), np.int64(shard.count)
    write_spans(group, "planned", planned)
    write_spans(group, "blocks", planned[shard.select(planned)])


def write_spans(group: Any, name: str, spans: np.ndarray) -> None:
    """Write (n, 2) spans of the common axis."""
    packed = {"compression": "gzip", "compression_opts": 1, "shuffle": True} if len(spans) else {}
    group.create_dataset(name, data=spans, **packed)


def read_spans(file: Any, name: str, *, total: int) -> np.ndarray:
    """Read (n, 2) spans of a shard; ValueError where they cannot be."""
    spans = file[GROUP][name][:].astype(np.int64)
    if spans.ndim != 2 or spans.shape[1] != 2:
        raise ValueError(f"{GROUP}/{name} has shape {spans.shape}, expected (n, 2)")
    if (np.diff(spans.reshape(-1)) < 0).any() or (len(spans) and (spans[0, 0] < 0 or spans[-1, 1] > total)):
        raise ValueError(f"{GROUP}/{name} are no spans in order")
    return spans


def read_shard(file: Any) -> Shard | None:
    """Read which part of a run a file holds; None for a whole one."""
    if GROUP not in file:
        return None
    attrs = file[GROUP].attrs
    return Shard(int(attrs["number"]), int(attrs["count"]))
