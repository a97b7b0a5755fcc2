"""Scores of variants: the window of each, with the reference and with the alternate allele, predicted in batches."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
import torch

from genoformer.errors import ConfigError, ResourceError
from genoformer.formats.sequences import Sequences
from genoformer.formats.vcf import Variant, reason_against_alternate, reason_against_place
from genoformer.model.device import CPU_CHUNK, default_chunk_size
from genoformer.model.genoformer import Genoformer
from genoformer.model.strands import predict_values
from genoformer.predict import Settings
from genoformer.regions import Region
from genoformer.tokens import PAD, encode, gaps
from genoformer.variants.effects import Effect, align, effect, trimmed
from genoformer.variants.windows import DEFAULT_WINDOW, cell_size, window_of

_GPU_BASES = 1 << 20
"""Bases computed together where there is no cache to fit into."""
_PASSES = 8
"""Batches of variants that are gathered, so that haplotypes of one length share a batch."""


class Score(NamedTuple):
    """A variant and what it changes."""

    variant: Variant
    effect: Effect | None
    """None where it could not be scored"""
    reason: str
    """why not, a key of `genoformer.formats.vcf.REASONS`; else empty"""


@dataclass(frozen=True)
class Scoring:
    """How variants are scored.

    Attributes
    ----------
    window : bases the model sees around a variant
    cell : variants within so many bases share a window; None: an eighth of it; 1: each in the very middle
    settings : how predictions are computed; ``batch_size`` 1: as many windows as suit the device
    """

    window: int = DEFAULT_WINDOW
    cell: int | None = None
    settings: Settings = field(default_factory=Settings)

    def __post_init__(self) -> None:
        cell_size(self.window, self.cell)


class _Window(NamedTuple):
    """A stretch of a sequence, as the model sees it without any variant."""

    region: Region
    codes: np.ndarray
    counts: np.ndarray  # where it is no gap


Values = dict[str, np.ndarray]


def score_variants(
    variants: Iterable[Variant], sequences: Sequences, model: Genoformer, *, scoring: Scoring | None = None
) -> Iterator[Score]:
    """Predict what each variant changes, in the order given.

    Parameters
    ----------
    variants : one alternate allele each; neighbors in a row share predictions of the reference
    sequences : the reference, of `genoformer.open_sequences`
    model : of `genoformer.load_model`
    scoring : how

    Returns
    -------
    iterator of Score

    Raises
    ------
    ConfigError : the model cannot see windows of this size
    """
    scorer = _Scorer(sequences, model, scoring or Scoring())
    variants = iter(variants)
    while batch := list(itertools.islice(variants, scorer.rows * _PASSES)):
        yield from scorer.score(batch)


class _Scorer:
    def __init__(self, sequences: Sequences, model: Genoformer, scoring: Scoring) -> None:
        if model.most_bases is not None and scoring.window > model.most_bases:
            raise ConfigError(
                f"this model sees at most {model.most_bases} bases at once, the window is {scoring.window}; "
                f"use --window {model.most_bases}"
            )
        self.sequences, self.model, self.scoring = sequences, model, scoring
        self.lengths = sequences.lengths()
        self.cell = cell_size(scoring.window, scoring.cell)
        together = CPU_CHUNK * model.encoder.stem.stride if model.device.type == "cpu" else _GPU_BASES
        batch = scoring.settings.batch_size
        self.rows = batch if batch > 1 else max(together // scoring.window, 1)
        self._windows: dict[Region, _Window] = {}
        self._references: dict[Region, Values] = {}

    def score(self, variants: Sequence[Variant]) -> Iterator[Score]:
        """Score some variants together."""
        reasons = [self._reason(variant) for variant in variants]
        regions = [None if why else self._region(variant) for variant, why in zip(variants, reasons, strict=True)]
        wanted = dict.fromkeys(region for region in regions if region is not None)
        self._windows = {region: self._window(region) for region in wanted}
        known = {region: values for region, values in self._references.items() if region in wanted}
        new = [region for region in wanted if region not in known]
        haplotypes = [self._windows[region].codes for region in new]
        haplotypes += [
            self._alternate(variant, region)
            for variant, region in zip(variants, regions, strict=True)
            if region is not None
        ]
        predicted = iter(self._predict(haplotypes))
        self._references = known | {region: next(predicted) for region in new}
        for variant, region, why in zip(variants, regions, reasons, strict=True):
            yield Score(variant, None if region is None else self._effect(variant, region, next(predicted)), why)

    def _reason(self, variant: Variant) -> str:
        name, start, reference, alternate = variant
        why = reason_against_place(
            name, start, reference, sequences=self.sequences, lengths=self.lengths
        ) or reason_against_alternate(reference, alternate)
        if why:
            return why
        most, longest = self.model.most_bases, max(len(reference), len(alternate))
        grown = self.scoring.window + max(len(alternate) - len(reference), 0)
        is_too_long = longest > max(self.scoring.window // 2, 1) or (most is not None and grown > most)
        return "too_long" if is_too_long else ""

    def _region(self, variant: Variant) -> Region:
        """Return the window of a variant, by the bases that change."""
        left, right = trimmed(variant.reference.upper(), variant.alternate.upper())
        start, end = variant.start + left, variant.start + len(variant.reference) - right
        length = self.lengths[variant.sequence]
        place = window_of(start, end, length, size=self.scoring.window, cell=self.cell)
        return Region(
            variant.sequence, min(place[0], variant.start), max(place[1], variant.start + len(variant.reference))
        )

    def _window(self, region: Region) -> _Window:
        if region in self._windows:
            return self._windows[region]
        bases = self.sequences.fetch(region)
        counts = np.ones(region.length, dtype=bool)
        for start, end in gaps(bases):
            counts[start:end] = False
        return _Window(region, encode(bases), counts)

    def _alternate(self, variant: Variant, region: Region) -> np.ndarray:
        codes, first = self._windows[region].codes, variant.start - region.start
        allele = encode(variant.alternate.encode("ascii"))
        return np.concatenate([codes[:first], allele, codes[first + len(variant.reference) :]])

    def _predict(self, haplotypes: Sequence[np.ndarray]) -> list[Values]:
        """Predict the values of each haplotype; those of like lengths are computed together."""
        found: list[Values] = [{}] * len(haplotypes)
        order = sorted(range(len(haplotypes)), key=lambda index: len(haplotypes[index]))
        settings = self.scoring.settings
        chunk = default_chunk_size(self.model.device) if settings.chunk_size is None else settings.chunk_size or None
        for first in range(0, len(order), self.rows):
            batch = order[first : first + self.rows]
            rows = np.full((len(batch), len(haplotypes[batch[-1]])), PAD, dtype=np.uint8)
            for row, index in zip(rows, batch, strict=True):
                row[: len(haplotypes[index])] = haplotypes[index]
            predicted = predict_values(
                self.model,
                torch.from_numpy(rows),
                genetic_code=settings.genetic_code,
                chunk_size=chunk,
                strand_average=settings.strand_average,
                precision=settings.precision,
            )
            values = {name: tensor.float().cpu().numpy() for name, tensor in predicted.items()}
            for place, index in enumerate(batch):
                found[index] = {name: array[place, : len(haplotypes[index])] for name, array in values.items()}
        return found

    def _effect(self, variant: Variant, region: Region, alternate: Values) -> Effect:
        for name, values in (*alternate.items(), *self._references[region].items()):
            if not np.isfinite(values).all():
                raise ResourceError(f"track {name!r}: the model gave no number around {variant}")
        window = self._windows[region]
        alignment = align(
            variant.start - region.start,
            variant.reference.upper(),
            variant.alternate.upper(),
            length=region.length,
        )
        return effect(
            self.model.tracks,
            self._references[region],
            alternate,
            alignment,
            start=region.start,
            counts=window.counts,
        )
