"""Where a store goes, and what to do about what is there."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from genoformer.errors import ConfigError, FormatError
from genoformer.store.create import create_store, of_shard, run_differs
from genoformer.store.sequences import SequenceTable
from genoformer.store.shards import Shard
from genoformer.store.store import open_store
from genoformer.store.writer import TrackWriter, part_path
from genoformer.tracks import Track


@dataclass(frozen=True)
class Output:
    """Where a store goes, and what to do about what is there.

    Attributes
    ----------
    path : final name of the file, under which it appears once it is whole
    command : what the store says that it was written by
    resume : go on with what an interrupted run left in ``<path>.part``; where the run has ended, do nothing
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

    @property
    def may_be_done(self) -> bool:
        """Whether there is something to look at by `is_done`."""
        path = Path(self.path)
        return self.resume and not self.overwrite and path.is_file() and not part_path(path).exists()

    def is_done(
        self, sequences: SequenceTable, tracks: list[Track], *, provenance: dict[str, Any], dtype: str = "float16"
    ) -> bool:
        """Tell whether a run that is to be resumed has ended, so that its store lies there, whole.

        Raises
        ------
        ConfigError : what lies there is another run's, is not all of this one, or is no store
        """
        if not self.may_be_done:
            return False
        advice = "use --overwrite to replace it, or name another output"
        try:
            with open_store(os.fspath(self.path), allow_incomplete=True) as store:
                difference = run_differs(store, sequences, tracks, of_shard(provenance, self.shard), dtype)
                if store.status == "incomplete":
                    difference = f"it is not whole; call it {part_path(os.fspath(self.path)).name} to go on with it"
                elif not difference and "missing" in store.metadata:
                    difference = "it was merged without all shards"
                elif not difference and store.metadata.get("accounting") != provenance.get("accounting"):
                    difference = "it leaves out other bases"
        except FormatError as error:
            raise ConfigError(f"{error}; nothing to resume: {advice}") from error
        if difference:
            raise ConfigError(f"{self.path}: exists already, and is not what this run writes: {difference}; {advice}")
        return True

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
