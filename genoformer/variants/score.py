"""Scores of variants: what each changes in the predictions around it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from genoformer.formats.given import Given, as_sequences
from genoformer.formats.vcf import Variant
from genoformer.model.genoformer import Genoformer
from genoformer.variants.effects import Effect
from genoformer.variants.jobs import effects_by
from genoformer.variants.placing import Placing
from genoformer.variants.scorer import Scorer
from genoformer.variants.scoring import Scoring
from genoformer.workers import Workers


class Score(NamedTuple):
    """A variant and what it changes."""

    variant: Variant
    effect: Effect | None
    """None where it could not be scored"""
    reason: str
    """why not, a key of `genoformer.formats.vcf.REASONS`; else empty"""


def score_variants(
    variants: Iterable[Variant],
    sequences: Given,
    model: Genoformer,
    *,
    scoring: Scoring | None = None,
    workers: Workers | None = None,
) -> Iterator[Score]:
    """Predict what each variant changes, in the order given.

    Parameters
    ----------
    variants : one alternate allele each; neighbors in a row share predictions of the reference
    sequences : the reference: a path, an open file, bases, or records, see `genoformer.formats.given.as_sequences`
    model : of `genoformer.load_model`
    scoring : how
    workers : processes that compute, with this model; None: this one does

    Returns
    -------
    iterator of Score

    Raises
    ------
    ConfigError : the model cannot see windows of this size, or be asked by this method
    """
    scoring = scoring or Scoring()
    scorer = Scorer(model, scoring)
    placing = Placing(
        as_sequences(sequences), model, scoring, device=model.device if workers is None else workers.devices[0]
    )
    batches = placing.batches(variants, shared_out=workers is not None)
    here = ((batch, scorer.effects(batch)) for batch in batches)
    for batch, effects in here if workers is None else effects_by(workers, batches, scoring):
        for placed, found in zip(batch.placed, effects, strict=True):
            yield Score(placed.variant, found, placed.why)
