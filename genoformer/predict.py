"""Prediction: sequences in, owned values out, block by block; and the run that writes them to a store."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import torch

from genoformer.batches import Item, batches, gaps_of, longest, places_of, rows_of
from genoformer.config import ModelConfig
from genoformer.errors import ConfigError, ResourceError
from genoformer.fitting import Fitting
from genoformer.formats.bed import as_regions
from genoformer.formats.given import Given, as_sequences
from genoformer.formats.sequences import Sequences
from genoformer.model.device import default_chunk_size
from genoformer.model.genoformer import Genoformer
from genoformer.model.shared import Context
from genoformer.model.strands import predict_values
from genoformer.plan import Plan, make_plan
from genoformer.regions import DEFAULT_WINDOW, Block, Region
from genoformer.store import Output
from genoformer.streamed import streamed_values
from genoformer.writing import provenance, write_missing

if TYPE_CHECKING:
    from genoformer.workers import Workers

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
    offload : what is computed of a sequence that is one window, however long, lies in a temporary file, not in memory
    context : of the organism that all sequences are of, see `genoformer.organism_context`; seen beside each window, but
        not of a sequence that is one window, nor by embeddings and the scoring of variants
    """

    chunk_size: int | None = None
    batch_size: int = 1
    strand_average: bool = True
    genetic_code: int = 11
    precision: str = "float32"
    offload: bool = False
    context: Context | None = None

    def __post_init__(self) -> None:
        if self.chunk_size is not None and self.chunk_size < 0:
            raise ConfigError(f"chunk size must not be negative, got {self.chunk_size}")
        if self.batch_size < 1:
            raise ConfigError(f"batch size must be at least 1, got {self.batch_size}")
        if not isinstance(self.genetic_code, int | np.integer):
            raise ConfigError(f"genetic code must be the number of a translation table, got {self.genetic_code!r}")
        if self.precision not in PRECISIONS:
            raise ConfigError(f"precision must be one of {', '.join(PRECISIONS)}; got {self.precision!r}")


def predict(  # noqa: PLR0913 - an input, a model, and what users choose
    sequences: Given,
    model: Genoformer,
    *,
    window: int | None = DEFAULT_WINDOW,
    overlap: int | None = None,
    regions: str | Sequence[Region | str] | None = None,
    circular: Collection[str] = (),
    settings: Settings | None = None,
    workers: Workers | None = None,
) -> Iterator[Block]:
    """Predict every base of some sequences.

    Parameters
    ----------
    sequences : a path, an open file, bases, or records: see `genoformer.formats.given.as_sequences`
    model : of `genoformer.load_model`
    window, overlap : int, bases; a window of None is a whole sequence, however long, which is computed in chunks; an
        overlap of None is 5,000, at most a quarter of the window
    regions : predict only these: `Region`, or text such as ``chr1:1001-2000`` or the path of a BED file, see
        `genoformer.formats.bed.parse_regions`
    circular : names of sequences whose ends are joined, beside those of which the file says so; ``all`` for every one
    settings : how
    workers : processes that compute it, see `genoformer.Workers`; None: this one does

    Returns
    -------
    iterator of Block : float16 values of what each window owns, NaN in gaps. Windows of one sequence come in order;
        short sequences may come later than longer ones behind them

    Raises
    ------
    InputError, FormatError, ConfigError : the input or the settings cannot be used
    """
    sequences = as_sequences(sequences)
    plan = make_plan(
        sequences,
        window=DEFAULT_WINDOW if window is None else window,
        overlap=overlap,
        regions=None if regions is None else as_regions(regions, sequences),
        circular=circular,
        whole=window is None,
    )
    yield from predict_plan(plan, sequences, model, settings=settings or Settings(), workers=workers)


def predict_plan(
    plan: Plan,
    sequences: Sequences,
    model: Genoformer,
    *,
    settings: Settings,
    done: np.ndarray | None = None,
    fitting: Fitting | None = None,
    workers: Workers | None = None,
) -> Iterator[Block]:
    """Predict what a plan says, but for the windows marked in ``done``: bool, (windows,).

    A ``fitting`` of `new_fitting` keeps what it learns about memory from one plan to the next; workers have their own.

    Windows are grouped in the same batches whatever is done, so that every value is the same in any shard and after any
    interruption: what shares a batch with a window to predict is computed again.
    """
    check_fits(model, plan)
    if plan.streamed.any():
        before = np.zeros_like(plan.streamed) if done is None else done
        if (plan.streamed & ~before).any():
            for item, own in streamed_values(plan, sequences, model, settings=settings, done=before):
                yield finished(item, own, plan)
        done = before | plan.streamed
        if done.all():
            return
    chunk_size = _chunk_size(settings, model.device if workers is None else workers.devices[0])
    budget = settings.batch_size * plan.window
    if chunk_size is not None:
        budget = settings.batch_size * min(plan.window, chunk_size * model.encoder.stem.stride)
    grouped = batches(plan, sequences, budget=budget, most=settings.batch_size, done=done)
    if workers is None:
        valued = _valued(grouped, plan, model, settings=settings, fitting=fitting or new_fitting(model, settings))
    else:
        valued = workers.values(grouped, plan, settings)
    for batch, computed in valued:
        for item, block in zip(batch, _blocks(batch, computed, plan, model), strict=True):
            if done is None or not done[item.number]:
                yield block


def new_fitting(model: Genoformer, settings: Settings) -> Fitting:
    """Return how much a prediction begins to compute at once."""
    return Fitting(chunk_size=_chunk_size(settings, model.device), stride=model.encoder.stem.stride)


def _chunk_size(settings: Settings, device: torch.device) -> int | None:
    return default_chunk_size(device) if settings.chunk_size is None else settings.chunk_size or None


def _valued(
    grouped: Iterator[list[Item]], plan: Plan, model: Genoformer, *, settings: Settings, fitting: Fitting
) -> Iterator[tuple[list[Item], dict[str, np.ndarray] | None]]:
    """Yield each batch with its values, None for one that is all in gaps."""
    for batch in grouped:
        rows = rows_of(batch, plan)
        yield (
            batch,
            None if rows is None else compute(rows, model, settings, fitting, where=place_of(batch, plan)),
        )


def check_fits(model: Genoformer, plan: Plan) -> None:
    """Raise ConfigError if the model cannot see windows of this size, TypeError if it is none."""
    if not isinstance(model, Genoformer):
        raise TypeError(f"expected a model, as genoformer.load_model returns it, got {type(model).__name__}")
    _check_most(model.most_bases, plan)


def check_config_fits(config: ModelConfig, plan: Plan) -> None:
    """Raise ConfigError if a model of this shape cannot see windows of this size."""
    _check_most(config.most_bases, plan)


def _check_most(most: int | None, plan: Plan) -> None:
    if most is not None and plan.whole:
        if plan.longest > most:
            raise ConfigError(
                f"this model sees at most {most} bases at once, the longest sequence has {plan.longest}; leave out "
                f"--whole-sequence, and use --window {most}"
            )
    elif most is not None and plan.window > most:
        raise ConfigError(
            f"this model sees at most {most} bases at once, the window is {plan.window}; use --window {most}"
        )


def compute(
    rows: np.ndarray, model: Genoformer, settings: Settings, fitting: Fitting, *, where: str
) -> dict[str, np.ndarray]:
    """Compute the values of the rows of a batch: by track, float16 (rows, bases, channels).

    Parameters
    ----------
    rows : uint8 (rows, bases), of `rows_of`
    where : the first of them, for messages
    """

    def computed(part: np.ndarray, chunk_size: int | None) -> dict[str, np.ndarray]:
        predicted = predict_values(
            model,
            torch.from_numpy(part),
            genetic_code=settings.genetic_code,
            chunk_size=chunk_size,
            strand_average=settings.strand_average,
            precision=settings.precision,
            context=settings.context,
        )
        return {name: tensor.to(torch.float16).cpu().numpy() for name, tensor in predicted.items()}

    return fitting.values(rows, computed, where=where)


def place_of(batch: list[Item], plan: Plan) -> str:
    """Say where a batch begins, for messages."""
    return f"{plan.source}: {batch[0].window.owned}"


def _blocks(batch: list[Item], values: dict[str, np.ndarray] | None, plan: Plan, model: Genoformer) -> Iterator[Block]:
    """Cut the values of a batch, None where it is all in gaps, into blocks."""
    if values is None:
        shape = (len(batch), longest(batch))
        values = {
            track.name: np.full((*shape, len(track.channels)), np.nan, dtype=np.float16) for track in model.tracks
        }
    for row, item in enumerate(batch):
        yield _owned_block(item, {name: array[row] for name, array in values.items()}, plan)


def _owned_block(item: Item, values: dict[str, np.ndarray], plan: Plan) -> Block:
    """Cut out what the window owns."""
    places = places_of(item, plan)
    kept = {name: np.concatenate([array[start:end] for start, end in places]) for name, array in values.items()}
    return finished(item, kept, plan)


def finished(item: Item, values: dict[str, np.ndarray], plan: Plan) -> Block:
    """Return the block of what a window owns: float16 (bases, channels) by track, in which gaps become NaN.

    Raises
    ------
    ResourceError : a value of a base that is in no gap is not a number
    """
    owned, in_gap = item.window.owned, gaps_of(item, plan)
    for name, array in values.items():
        wrong = ~in_gap & ~np.isfinite(array).all(axis=1)
        if wrong.any():
            raise ResourceError(f"{plan.source}: {owned}: track {name!r}: {_no_number(owned.start, array, wrong)}")
        array[in_gap] = np.nan
    return Block(owned.sequence, owned.start, values)


def _no_number(start: int, values: np.ndarray, wrong: np.ndarray) -> str:
    """Say where in a window, and what, a model gave instead of numbers."""
    places = np.flatnonzero(wrong)
    what = "NaN" if np.isnan(values[places[0]]).any() else "infinity, or more than the 65504 that float16 holds,"
    return (
        f"the model gave {what} at {len(places):,} of these bases, from position {start + places[0] + 1} to "
        f"{start + places[-1] + 1}; try --precision float32 or another --device, and see genoformer doctor"
    )


def predict_to_store(
    plan: Plan,
    sequences: Sequences,
    model: Genoformer,
    output: str | Path | Output,
    *,
    settings: Settings,
    report: Callable[[int], None] = lambda _: None,
    workers: Workers | None = None,
) -> Path:
    """Predict what a plan says into an HDF5 store, which appears under its name once it is whole.

    Parameters
    ----------
    output : its path; or an `Output`, which also says what to do about an interrupted run, and which shard to predict
    report : called with the number of bases done, those of an interrupted run first
    workers : see `predict`

    Raises
    ------
    InputError : the input is not the one that was planned
    ConfigError : the output exists, or an interrupted run had other settings
    ResourceError : the output cannot be written
    """
    return write_missing(
        Output.of(output),
        plan,
        model.tracks,
        lambda done: predict_plan(plan, sequences, model, settings=settings, done=done, workers=workers),
        provenance=provenance(plan, model, settings, workers=workers),
        report=report,
    )
