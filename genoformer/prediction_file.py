"""Predictions in a file, by one call."""

from __future__ import annotations

import os
from collections.abc import Collection
from pathlib import Path
from typing import TYPE_CHECKING

from genoformer.formats.given import Given, as_sequences
from genoformer.model.genoformer import Genoformer
from genoformer.plan import check_predictable, make_plan
from genoformer.predict import Settings, predict_to_store
from genoformer.regions import DEFAULT_WINDOW
from genoformer.store import Output

if TYPE_CHECKING:
    from genoformer.workers import Workers


def predict_file(  # noqa: PLR0913 - an input, an output, a model, and what users choose
    sequences: Given,
    output: str | os.PathLike[str],
    model: Genoformer,
    *,
    window: int | None = DEFAULT_WINDOW,
    overlap: int | None = None,
    circular: Collection[str] = (),
    settings: Settings | None = None,
    overwrite: bool = False,
    resume: bool = False,
    workers: Workers | None = None,
) -> Path:
    """Predict every base of some sequences into an HDF5 file, as ``genoformer predict`` does.

    Parameters
    ----------
    sequences, model, window, overlap, circular, settings, workers : see `genoformer.predict`
    output : file, which appears when it is whole; read it with `genoformer.open_store`
    overwrite : replace it
    resume : go on with what an interrupted run left in ``<output>.part``; do nothing where it has ended

    Returns
    -------
    Path of the output

    Raises
    ------
    InputError, FormatError, ConfigError : the input or the settings cannot be used, or the output exists
    ResourceError : the output cannot be written
    """
    sequences = as_sequences(sequences)
    plan = make_plan(
        sequences,
        window=DEFAULT_WINDOW if window is None else window,
        overlap=overlap,
        circular=circular,
        whole=window is None,
    )
    check_predictable(plan)
    where = Output(output, "genoformer.predict_file", overwrite=overwrite, resume=resume)
    return predict_to_store(plan, sequences, model, where, settings=settings or Settings(), workers=workers)
