"""Prediction: sequences in, owned values out, block by block; and the run that writes them to a store."""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import numpy as np
import torch

import genoformer
from genoformer.circles import wrapped
from genoformer.config import ModelConfig
from genoformer.errors import ConfigError, InputError, ResourceError
from genoformer.fitting import Fitting
from genoformer.formats.sequences import Sequences, open_sequences
from genoformer.model.device import default_chunk_size
from genoformer.model.genoformer import Genoformer
from genoformer.model.strands import predict_values
from genoformer.plan import Plan, make_plan, records_of
from genoformer.regions import DEFAULT_OVERLAP, DEFAULT_WINDOW, Block, Region, Window, place_in_window
from genoformer.store import Shard, TrackStore
from genoformer.store.writer import TrackWriter
from genoformer.tokens import PAD, encode

T = TypeVar("T")
PRECISIONS = ("float32", "bfloat16")


@dataclass(frozen=True)
class Settings:
    """How predictions are computed. ``chunk_size`` and ``batch_size`` leave the values as they are, up to rounding.

    Attributes
    ----------
    chunk_size : trunk tokens computed at a time; None: what suits the device; 0: the whole window
    batch_size : windows computed together; of sequences shorter than a window, as many as have its bases
    strand_average : mean of the predictions for both strands
    genetic_code : NCBI translation table
    precision : "float32", or "bfloat16" for the products of the layers
    """

    chunk_size: int | None = None
    batch_size: int = 1
    strand_average: bool = True
    genetic_code: int = 11
    precision: str = "float32"

    def __post_init__(self) -> None:
        if self.chunk_size is not None and self.chunk_size < 0:
            raise ConfigError(f"chunk size must not be negative, got {self.chunk_size}")
        if self.batch_size < 1:
            raise ConfigError(f"batch size must be at least 1, got {self.batch_size}")
        if self.precision not in PRECISIONS:
            raise ConfigError(f"precision must be one of {', '.join(PRECISIONS)}; got {self.precision!r}")


class _Item(NamedTuple):
    """A window to predict."""

    number: int  # of the window, in the order of the plan
    sequence: int  # its index
    window: Window
    codes: np.ndarray


def predict(
    sequences: Sequences | str | os.PathLike[str],
    model: Genoformer,
    *,
    window: int = DEFAULT_WINDOW,
    overlap: int = DEFAULT_OVERLAP,
    regions: Sequence[Region] | None = None,
    circular: Collection[str] = (),
    settings: Settings | None = None,
) -> Iterator[Block]:
    """Predict every base of some sequences.

    Parameters
    ----------
    sequences : a path, or what `genoformer.open_sequences` returns
    model : of `genoformer.load_model`
    window, overlap : int, bases
    regions : predict only these
    circular : names of sequences whose ends are joined, beside those of which the file says so; ``all`` for every one
    settings : how

    Returns
    -------
    iterator of Block : float16 values of what each window owns, NaN in gaps. Windows of one sequence come in order;
        short sequences may come later than longer ones behind them

    Raises
    ------
    InputError, FormatError, ConfigError : the input or the settings cannot be used
    """
    if isinstance(sequences, str | os.PathLike):
        sequences = open_sequences(sequences)
    plan = make_plan(sequences, window=window, overlap=overlap, regions=regions, circular=circular)
    yield from predict_plan(plan, sequences, model, settings=settings or Settings())


def predict_plan(
    plan: Plan,
    sequences: Sequences,
    model: Genoformer,
    *,
    settings: Settings,
    done: np.ndarray | None = None,
    fitting: Fitting | None = None,
) -> Iterator[Block]:
    """Predict what a plan says, but for the windows marked in ``done``: bool, (windows,).

    A ``fitting`` of `new_fitting` keeps what it learns about memory from one plan to the next.

    Windows are grouped in the same batches whatever is done, so that every value is the same in any shard and after any
    interruption: what shares a batch with a window to predict is computed again.
    """
    check_fits(model, plan)
    chunk_size = default_chunk_size(model.device) if settings.chunk_size is None else settings.chunk_size or None
    budget = settings.batch_size * plan.window
    if chunk_size is not None:
        budget = settings.batch_size * min(plan.window, chunk_size * model.encoder.stem.stride)
    fitting = fitting or new_fitting(model, settings)
    cut = {"budget": budget, "most": settings.batch_size, "window": plan.window}
    left_out = None if done is None else _in_done_batches(plan, done, **cut)
    items = ((len(item.codes), item) for item in _items(plan, sequences, left_out))
    for batch in _batches(items, **cut):
        for item, block in zip(batch, _predict_batch(batch, plan, model, settings, fitting), strict=True):
            if done is None or not done[item.number]:
                yield block


def new_fitting(model: Genoformer, settings: Settings) -> Fitting:
    """Return how much a prediction begins to compute at once."""
    chunk_size = default_chunk_size(model.device) if settings.chunk_size is None else settings.chunk_size or None
    return Fitting(chunk_size=chunk_size, stride=model.encoder.stem.stride)


def check_fits(model: Genoformer, plan: Plan) -> None:
    """Raise ConfigError if the model cannot see windows of this size."""
    _check_most(model.most_bases, plan)


def check_config_fits(config: ModelConfig, plan: Plan) -> None:
    """Raise ConfigError if a model of this shape cannot see windows of this size."""
    _check_most(config.most_bases, plan)


def _check_most(most: int | None, plan: Plan) -> None:
    if most is not None and plan.window > most:
        raise ConfigError(
            f"this model sees at most {most} bases at once, the window is {plan.window}; use --window {most}"
        )


def _items(plan: Plan, sequences: Sequences, done: np.ndarray | None) -> Iterator[_Item]:
    """Yield the windows to predict, with their codes, in the order of the input."""
    number = 0  # of the window, in the order of plan.owned
    first = np.searchsorted(plan.owned[:, 0], np.arange(len(plan.sequences) + 1))
    for index, record in enumerate(records_of(sequences, plan.chosen_by)):
        expected = plan.sequences
        if index >= len(expected) or (record.name, len(record.bases)) != (
            expected.names[index],
            expected.lengths[index],
        ):
            raise InputError(f"{plan.source}: has changed since it was planned (record {record.name!r}); run again")
        count = int(first[index + 1] - first[index])
        if count == 0 or (done is not None and done[number : number + count].all()):
            number += count
            continue
        for window in plan.windows(index):
            if done is None or not done[number]:
                codes = encode(wrapped(record.bases, window.region.start, window.region.end))
                yield _Item(number, index, window, codes)
            number += 1
    if number < len(plan.owned):
        raise InputError(f"{plan.source}: has changed since it was planned (records are missing at its end); run again")


def _in_done_batches(plan: Plan, done: np.ndarray, *, budget: int, most: int, window: int) -> np.ndarray:
    """Tell which windows are in batches of which all are done: bool, (windows,)."""
    if done.all() or not done.any():
        return done
    windows = (cut for index in range(len(plan.sequences)) for cut in plan.windows(index))
    lengths = ((cut.region.length, number) for number, cut in enumerate(windows))
    left_out = done.copy()
    for batch in _batches(lengths, budget=budget, most=most, window=window):
        if not done[batch].all():
            left_out[batch] = False
    return left_out


def _batches(items: Iterable[tuple[int, T]], *, budget: int, most: int, window: int) -> Iterator[list[T]]:
    """Group windows of like lengths: whole ones by ``most``, shorter ones until they have ``budget`` bases."""
    waiting: dict[int, list[T]] = {}
    for length, item in items:
        bucket = window if length == window else _bucket(length)
        group = waiting.setdefault(bucket, [])
        group.append(item)
        if len(group) >= (most if bucket == window else max(1, budget // bucket)):
            yield waiting.pop(bucket)
    yield from waiting.values()


def _bucket(length: int) -> int:
    """Round up to three significant bits, so that padding is at most a quarter."""
    step = 1 << max(length.bit_length() - 3, 0)
    return -(-length // step) * step


def _predict_batch(
    batch: list[_Item], plan: Plan, model: Genoformer, settings: Settings, fitting: Fitting
) -> Iterator[Block]:
    if all(_gaps_of(item, plan).all() for item in batch):
        channels = {track.name: len(track.channels) for track in model.tracks}
        values = {
            name: np.full((len(batch), max(len(item.codes) for item in batch), count), np.nan, dtype=np.float16)
            for name, count in channels.items()
        }
    else:
        rows = np.full((len(batch), max(len(item.codes) for item in batch)), PAD, dtype=np.uint8)
        for row, item in enumerate(batch):
            rows[row, : len(item.codes)] = item.codes

        def compute(part: np.ndarray, chunk_size: int | None) -> dict[str, np.ndarray]:
            predicted = predict_values(
                model,
                torch.from_numpy(part),
                genetic_code=settings.genetic_code,
                chunk_size=chunk_size,
                strand_average=settings.strand_average,
                precision=settings.precision,
            )
            return {name: tensor.to(torch.float16).cpu().numpy() for name, tensor in predicted.items()}

        values = fitting.values(rows, compute, where=f"{plan.source}: {batch[0].window.owned}")
    for row, item in enumerate(batch):
        yield _owned_block(item, {name: array[row] for name, array in values.items()}, plan)


def _gaps_of(item: _Item, plan: Plan) -> np.ndarray:
    """Tell which of the owned bases are in gaps: bool (bases,)."""
    owned = item.window.owned
    in_gap = np.zeros(owned.length, dtype=bool)
    runs = plan.gaps.get(item.sequence)
    if runs is not None:
        for start, end in runs[(runs[:, 0] < owned.end) & (runs[:, 1] > owned.start)].clip(owned.start, owned.end):
            in_gap[start - owned.start : end - owned.start] = True
    return in_gap


def _places(item: _Item, plan: Plan) -> list[tuple[int, int]]:
    """Return where the owned bases lie in the window, in order."""
    region, owned = item.window
    if item.sequence in plan.origins:
        length = int(plan.sequences.lengths[item.sequence])
        return place_in_window(item.window, length=length, overlap=plan.overlap)
    return [(owned.start - region.start, owned.end - region.start)]


def _owned_block(item: _Item, values: dict[str, np.ndarray], plan: Plan) -> Block:
    """Cut out what the window owns; put NaN into gaps."""
    owned, places = item.window.owned, _places(item, plan)
    kept = {name: np.concatenate([array[start:end] for start, end in places]) for name, array in values.items()}
    in_gap = _gaps_of(item, plan)
    for name, array in kept.items():
        wrong = ~in_gap & ~np.isfinite(array).all(axis=1)
        if wrong.any():
            raise ResourceError(f"{plan.source}: {owned}: track {name!r}: {_no_number(owned.start, array, wrong)}")
        array[in_gap] = np.nan
    return Block(owned.sequence, owned.start, kept)


def _no_number(start: int, values: np.ndarray, wrong: np.ndarray) -> str:
    """Say where in a window, and what, a model gave instead of numbers."""
    places = np.flatnonzero(wrong)
    what = "NaN" if np.isnan(values[places[0]]).any() else "infinity, or more than the 65504 that float16 holds,"
    return (
        f"the model gave {what} at {len(places):,} of these bases, from position {start + places[0] + 1} to "
        f"{start + places[-1] + 1}; try --precision float32 or another --device, and see genoformer doctor"
    )


def provenance(plan: Plan, model: Genoformer, settings: Settings, *, command: str) -> dict[str, Any]:
    """Return what a store should say about how it came about."""
    checkpoint = model.checkpoint
    return {
        "identity": {
            "model": checkpoint.name,
            "model-sha256": checkpoint.sha256,
            "input-sha256": plan.input_digest(),
            "window": plan.window,
            "overlap": plan.overlap,
            "regions": None if plan.regions is None else [list(region) for region in plan.regions],
            "genetic-code": settings.genetic_code,
            "strand-average": settings.strand_average,
            "precision": settings.precision,
        },
        "command": command,
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
        "device": str(model.device),
    }


def predict_to_store(  # noqa: PLR0913 - a run is a plan, a model and what to do about an older one
    plan: Plan,
    sequences: Sequences,
    model: Genoformer,
    output: str | Path,
    *,
    settings: Settings,
    command: str = "",
    resume: bool = False,
    overwrite: bool = False,
    shard: Shard | None = None,
    wait: float = 0.0,
    report: Callable[[int], None] = lambda _: None,
) -> Path:
    """Predict what a plan says into an HDF5 store, which appears at ``output`` once it is whole.

    Parameters
    ----------
    resume : go on with what an interrupted run left in ``<output>.part``
    overwrite : replace what is at ``output``
    shard : predict only this part, to be joined with the others by `genoformer.store.merge_shards`
    wait : seconds to wait for another process that is writing there
    report : called with the number of bases done, those of an interrupted run first

    Raises
    ------
    InputError : the input is not the one that was planned
    ConfigError : the output exists, or an interrupted run had other settings
    ResourceError : the output cannot be written
    """
    writer = TrackStore.create(
        output,
        plan.sequences,
        model.tracks,
        provenance=provenance(plan, model, settings, command=command),
        blocks=plan.blocks,
        overwrite=overwrite,
        resume=resume,
        shard=shard,
        wait=wait,
    )
    return write_missing(
        writer,
        plan,
        lambda done: predict_plan(plan, sequences, model, settings=settings, done=done),
        shard=shard,
        report=report,
    )


def write_missing(
    writer: TrackWriter,
    plan: Plan,
    compute: Callable[[np.ndarray], Iterator[Block]],
    *,
    shard: Shard | None,
    report: Callable[[int], None],
) -> Path:
    """Write the blocks of a plan that are not there yet, and finish the store; see `predict_to_store`.

    Parameters
    ----------
    compute : from the windows not to compute, bool, (windows,), done or of other shards, to the blocks of the others
    """
    with writer:
        done = np.ones(len(plan.owned), dtype=bool)
        done[slice(None) if shard is None else shard.select(plan.blocks)] = writer.done
        before = writer.blocks[writer.done]
        report(int((before[:, 1] - before[:, 0]).sum()))
        if not done.all():
            for block in compute(done):
                writer.write(block)
                report(block.end - block.start)
        return writer.finish()
