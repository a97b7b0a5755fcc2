"""What a prediction writes: how it came about, and the blocks that are not there yet."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

import genoformer
from genoformer.model.genoformer import Genoformer
from genoformer.plan import Plan
from genoformer.regions import Block
from genoformer.store import Output
from genoformer.tracks import Track

if TYPE_CHECKING:
    from genoformer.predict import Settings
    from genoformer.workers import Workers


def provenance(plan: Plan, model: Genoformer, settings: Settings, *, workers: Workers | None = None) -> dict[str, Any]:
    """Return what a store should say about how it came about."""
    checkpoint = model.checkpoint
    return {
        "identity": {
            "model": checkpoint.name,
            "model-sha256": checkpoint.sha256,
            "input-sha256": plan.input_digest(),
            "window": plan.described_window,
            "overlap": plan.overlap,
            "regions": None if plan.regions is None else [list(region) for region in plan.regions],
            "genetic-code": settings.genetic_code,
            "strand-average": settings.strand_average,
            "precision": settings.precision,
            **({} if settings.context is None else {"one-genome": settings.context.sha256}),
        },
        "alignments" if plan.made_by else "input": plan.source,
        "accounting": plan.accounting._asdict(),
        "letters": plan.letters._asdict(),
        "left-out": plan.left_out,
        **({"made-by": plan.made_by} if plan.made_by else {}),
        "versions": {
            "genoformer": genoformer.__version__,
            "torch": torch.__version__,
            "numpy": np.__version__,
            **plan.made_by.get("versions", {}),
        },
        "device": str(model.device) if workers is None else str(workers),
    }


def write_missing(
    output: Output,
    plan: Plan,
    tracks: list[Track],
    compute: Callable[[np.ndarray], Iterator[Block]],
    *,
    provenance: dict[str, Any],
    report: Callable[[int], None],
) -> Path:
    """Begin or continue the store of a plan, write the blocks that are not there yet, and finish it.

    Parameters
    ----------
    compute : from the windows not to compute, bool, (windows,), done or of other shards, to the blocks of the others
    provenance : what the store says about how it came about
    report : called with the number of bases done, those of an interrupted run first
    """
    ours = slice(None) if output.shard is None else output.shard.select(plan.blocks)
    if output.is_done(plan.sequences, tracks, provenance=provenance):
        report(_bases(plan.blocks[ours]))
        return Path(output.path)
    with output.create(plan.sequences, tracks, provenance=provenance, blocks=plan.blocks) as writer:
        done = np.ones(len(plan.owned), dtype=bool)
        done[ours] = writer.done
        report(_bases(writer.blocks[writer.done]))
        if not done.all():
            for block in compute(done):
                writer.write(block)
                report(block.end - block.start)
        return writer.finish()


def _bases(blocks: np.ndarray) -> int:
    return int((blocks[:, 1] - blocks[:, 0]).sum())
