"""Where a store goes, and what to do about what is there."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Any

import numpy as np

from genoformer.store.create import create_store
from genoformer.store.sequences import SequenceTable
from genoformer.store.shards import Shard
from genoformer.store.writer import TrackWriter
from genoformer.tracks import Track


@dataclass(frozen=True)
class Output:
    """Where a store goes, and what to do about what is there.

    Attributes
    ----------
    path : final name of the file, under which it appears once it is whole
    command : what the store says that it was written by
    resume : go on with what an interrupted run left in ``<path>.part``
    overwrite : replace what is at ``path``
    shard : write only this part, to be joined with the others by `merge_shards`
    wait : seconds to wait for another process that is writing there
    """

    path: str | os.PathLike[str]
    command: str = ""
    resume: bool = False
    overwrite: bool = False
    shard: Shard | None = None
    wait: float = 0.0

    @classmethod
    def of(cls, given: str | os.PathLike[str] | Output) -> Output:
        """Return an output that is given as one, or by its path alone."""
        return given if isinstance(given, cls) else cls(given)  # type: ignore[arg-type]

    def create(
        self,
        sequences: SequenceTable,
        tracks: list[Track],
        *,
        provenance: dict[str, Any],
        blocks: np.ndarray,
        dtype: str = "float16",
    ) -> TrackWriter:
        """Begin the store, or continue it; see `create_store` for the parameters, and for what it raises."""
        return create_store(
            os.fspath(self.path),
            sequences,
            tracks,
            provenance={**provenance, "command": self.command},
            blocks=blocks,
            overwrite=self.overwrite,
            resume=self.resume,
            dtype=dtype,
            shard=self.shard,
            wait=self.wait,
        )
