"""Every sequence as one attention context, however long: by this process, or by several that torchrun started together.

Sequences longer than a window are streamed, their positions shared out over the processes; shorter ones are predicted
in batches as always, each process a stretch of them. The first process writes the one store.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import torch
from torch import distributed as dist

from genoformer.errors import InputError
from genoformer.formats.sequences import Sequences
from genoformer.model.genoformer import Genoformer
from genoformer.plan import Plan
from genoformer.predict import Settings, check_fits, finished, predict_plan
from genoformer.regions import Block
from genoformer.store import Output, Shard
from genoformer.streamed import gathered, streamed_values
from genoformer.writing import provenance, write_missing


def predict_whole_to_store(
    plan: Plan,
    sequences: Sequences,
    model: Genoformer,
    output: str | Path | Output,
    *,
    settings: Settings,
    report: Callable[[int], None] = lambda _: None,
    together: bool = False,
) -> None:
    """Predict what a plan of whole sequences says into an HDF5 store; see `predict_to_store` for what is not told here.

    Parameters
    ----------
    plan : of `make_plan` with ``whole``
    report : called in the process that writes with how many bases were done, also while a sequence is computed
    together : whether all processes of torch's default group call this with the same arguments. Only the first needs
        the output, and reports

    Raises
    ------
    InputError : the input is not the one that was planned, or not the same for all processes
    ConfigError : the output exists, or an interrupted run had other settings
    ResourceError : the output cannot be written; memory, or disk for what is computed meanwhile, is lacking
    """
    check_fits(model, plan)
    if together:
        _check_same(plan, model.device)
        if dist.get_rank() > 0:
            _follow(plan, sequences, model, settings=settings)
            return
    progress = _Progress(report)
    told = False

    def compute(done: np.ndarray) -> Iterator[Block]:
        nonlocal told
        if together:
            _share(done, model.device)
            told = True
        progress.streamed = _bases(plan, plan.streamed & ~done)
        return whole_blocks(
            plan, sequences, model, settings=settings, done=done, together=together, tick=progress.computed
        )

    told_of = provenance(plan, model, settings)
    write_missing(Output.of(output), plan, model.tracks, compute, provenance=told_of, report=progress.wrote)
    if together and not told:
        _share(np.ones(len(plan.owned), dtype=bool), model.device)


def whole_blocks(
    plan: Plan,
    sequences: Sequences,
    model: Genoformer,
    *,
    settings: Settings,
    done: np.ndarray,
    together: bool,
    tick: Callable[[float], None] = lambda _: None,
) -> Iterator[Block]:
    """Predict the windows of a plan that are not marked in ``done``: long sequences first, then the others.

    The parameters are those of `streamed_values`; of several processes only the first yields anything.
    """
    if (plan.streamed & ~done).any():
        options = {"settings": settings, "done": done, "together": together, "tick": tick}
        for item, values in streamed_values(plan, sequences, model, **options):  # type: ignore[arg-type]
            yield finished(item, values, plan)
    done = done | plan.streamed
    if done.all():
        return
    if not together:
        yield from predict_plan(plan, sequences, model, settings=settings, done=done)
        return
    left = np.flatnonzero(~done)
    elsewhere = np.ones_like(done)
    elsewhere[left[Shard(dist.get_rank() + 1, dist.get_world_size()).select(plan.blocks[left])]] = False
    yield from _blocks_of_all(predict_plan(plan, sequences, model, settings=settings, done=elsewhere), plan, model)


def _blocks_of_all(blocks: Iterator[Block], plan: Plan, model: Genoformer) -> Iterator[Block]:
    """Yield the blocks of all processes in the first one."""
    names, counts = [track.name for track in model.tracks], [len(track.channels) for track in model.tracks]
    places = {int(start): number for number, start in enumerate(plan.blocks[:, 0])}
    pieces = (
        (int(plan.sequences.offsets[plan.sequences.index(block.sequence)]) + block.start,
         torch.from_numpy(np.concatenate([block.values[name] for name in names], axis=1)).float())
        for block in blocks
    )  # fmt: skip
    for start, values in gathered(pieces, sum(counts), model.device):
        index, first, _ = plan.owned[places[start]].tolist()
        parts = np.split(values.numpy().astype(np.float16), np.cumsum(counts)[:-1], axis=1)
        yield Block(plan.sequences.names[index], first, dict(zip(names, parts, strict=True)))


def _bases(plan: Plan, windows: np.ndarray) -> int:
    owned = plan.owned[windows]
    return int((owned[:, 2] - owned[:, 1]).sum())


class _Progress:
    """Reports bases when they are computed, where that takes long, and others when they are written."""

    def __init__(self, report: Callable[[int], None]) -> None:
        self._report, self._computed, self._told = report, 0.0, 0
        self.streamed = 0
        """bases that `computed` tells of; they are the first to be written"""

    def computed(self, bases: float) -> None:
        self._computed += bases
        whole = round(self._computed)
        self._report(whole - self._told)
        self._told = whole

    def wrote(self, bases: int) -> None:
        known = min(bases, self.streamed)
        self.streamed -= known
        self._report(bases - known)


# What processes tell each other --------------------------------------------------------------------------------------


def _follow(plan: Plan, sequences: Sequences, model: Genoformer, *, settings: Settings) -> None:
    """Compute this process's part of what the first one writes."""
    done = _share(np.zeros(len(plan.owned), dtype=bool), model.device)
    for _ in whole_blocks(plan, sequences, model, settings=settings, done=done, together=True):
        pass


def _share(done: np.ndarray, device: torch.device) -> np.ndarray:
    """Give every process what the first one has: bool, (windows,)."""
    told = torch.from_numpy(done.astype(np.uint8)).to(device)
    dist.broadcast(told, 0)
    return told.cpu().numpy().astype(bool)


def _check_same(plan: Plan, device: torch.device) -> None:
    """Raise InputError, in every process, unless all have planned the same."""
    digest = np.frombuffer(bytes.fromhex(plan.input_digest()), dtype=np.uint8)
    mine = torch.from_numpy(np.concatenate([digest, np.frombuffer(plan.blocks.sum().tobytes(), dtype=np.uint8)])).to(
        device
    )
    all_of_them = [torch.empty_like(mine) for _ in range(dist.get_world_size())]
    dist.all_gather(all_of_them, mine)
    if any(not torch.equal(one, mine) for one in all_of_them):
        raise InputError(f"{plan.source}: is not the same for all processes; give each the same files and options")
