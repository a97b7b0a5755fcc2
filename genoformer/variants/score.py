"""Scores of variants: the window of each, with the reference and with the alternate allele, predicted in batches.

Of substitutions only the part of the window is predicted again that they change, where this is asked for: see `crops`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
import torch

from genoformer.errors import ConfigError, ResourceError
from genoformer.formats.given import Given, as_sequences
from genoformer.formats.sequences import Sequences
from genoformer.formats.vcf import Variant, reason_against_alternate, reason_against_place
from genoformer.model.crop import can_crop
from genoformer.model.device import CPU_CHUNK, default_chunk_size
from genoformer.model.genoformer import Genoformer
from genoformer.model.strands import predict_values
from genoformer.predict import Settings
from genoformer.regions import Region
from genoformer.tokens import PAD, encode, gaps
from genoformer.variants.crops import Crops, Stretch
from genoformer.variants.effects import Effect, align, base_by_base, effect, trimmed
from genoformer.variants.windows import DEFAULT_WINDOW, cell_size, shared_window, window_of

METHODS = ("exact", "crop")
_GPU_BASES = 1 << 20
"""Bases computed together where there is no cache to fit into."""
_PASSES = 8
"""Batches of variants that are gathered, so that haplotypes of one length share a batch."""
_CROPS, _HELD_BASES = 512, 1 << 15
"""Variants, and bases of windows with all that the model makes of them, that are held together."""


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
    cell : variants within so many bases share a window; None: an eighth of it; 1: each in the very middle. With "crop"
        and None, substitutions within three windows share one of four, so that each has half a window to each side
    settings : how predictions are computed; ``batch_size`` 1: as many windows as suit the device
    method : "exact": predict the whole window with every allele; "crop": of substitutions only the bases around what
        they change of the model's inputs, with all else held as it is without them; see `genoformer.variants.crops`
    """

    window: int = DEFAULT_WINDOW
    cell: int | None = None
    settings: Settings = field(default_factory=Settings)
    method: str = "exact"

    def __post_init__(self) -> None:
        cell_size(self.window, self.cell)
        if self.method not in METHODS:
            raise ConfigError(f"method must be one of {', '.join(METHODS)}; got {self.method!r}")


class _Window(NamedTuple):
    """A stretch of a sequence, as the model sees it without any variant."""

    region: Region
    codes: np.ndarray
    counts: np.ndarray  # where it is no gap


class _Placed(NamedTuple):
    """A variant and its window, or why it has none."""

    variant: Variant
    region: Region | None
    why: str


Values = dict[str, np.ndarray]


def score_variants(
    variants: Iterable[Variant], sequences: Given, model: Genoformer, *, scoring: Scoring | None = None
) -> Iterator[Score]:
    """Predict what each variant changes, in the order given.

    Parameters
    ----------
    variants : one alternate allele each; neighbors in a row share predictions of the reference
    sequences : the reference: a path, an open file, bases, or records, see `genoformer.formats.given.as_sequences`
    model : of `genoformer.load_model`
    scoring : how

    Returns
    -------
    iterator of Score

    Raises
    ------
    ConfigError : the model cannot see windows of this size
    """
    scorer = _Scorer(as_sequences(sequences), model, scoring or Scoring())
    for batch in scorer.batches(variants):
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
        chunk = scoring.settings.chunk_size
        self.chunk_size = default_chunk_size(model.device) if chunk is None else chunk or None
        if scoring.method == "crop" and not can_crop(model):
            raise ConfigError("parts of windows are for models of local and Performer attention; use the method exact")
        is_cropped = scoring.method == "crop"
        self.crops = Crops(model, scoring.settings, chunk_size=self.chunk_size) if is_cropped else None
        self._windows: dict[Region, _Window] = {}
        self._references: dict[Region, Values] = {}

    def _is_cropped(self, variant: Variant) -> bool:
        return self.crops is not None and len(variant.reference) == len(variant.alternate)

    def batches(self, variants: Iterable[Variant]) -> Iterator[list[_Placed]]:
        """Yield the variants that are scored together: many enough for speed, in windows few enough for memory."""
        most = self.rows * _PASSES if self.crops is None else _CROPS
        batch: list[_Placed] = []
        windows: set[Region] = set()
        for variant in variants:
            why = self._reason(variant)
            region = None if why else self._region(variant)
            wanted = windows if region is None else windows | {region}
            is_full = self.crops is not None and sum(each.length for each in wanted) > _HELD_BASES
            if batch and (len(batch) >= most or is_full):
                yield batch
                batch, wanted = [], wanted - windows
            batch.append(_Placed(variant, region, why))
            windows = wanted
        if batch:
            yield batch

    def score(self, batch: Sequence[_Placed]) -> Iterator[Score]:
        """Score some variants together."""
        wanted = dict.fromkeys(region for _, region, _ in batch if region is not None)
        self._windows = {region: self._window(region) for region in wanted}
        found = {} if self.crops is None else self._cropped(batch, self.crops)
        new = [region for region in wanted if region not in self._references]
        whole = [index for index, (_, region, _) in enumerate(batch) if region is not None and index not in found]
        haplotypes = [self._windows[region].codes for region in new]
        haplotypes += [self._alternate(batch[index].variant, batch[index].region) for index in whole]
        predicted = iter(self._predict(haplotypes))
        known = self._references | {region: next(predicted) for region in new}
        self._references = {region: known[region] for region in wanted}
        found |= {index: Stretch(0, next(predicted)) for index in whole}
        for index, (variant, region, why) in enumerate(batch):
            yield Score(variant, None if region is None else self._effect(variant, region, found[index]), why)

    def _cropped(self, batch: Sequence[_Placed], crops: Crops) -> dict[int, Stretch]:
        """Predict the variants of which only a part needs to be, by their index, and the references of all."""
        chosen = [
            (index, placed.region, self._alternate(placed.variant, placed.region))
            for index, placed in enumerate(batch)
            if placed.region is not None and self._is_cropped(placed.variant)
        ]
        held = dict.fromkeys(region for _, region, _ in chosen)
        self._references = self._references | crops.hold({region: self._windows[region].codes for region in held})
        found = crops.changed([(region, codes) for _, region, codes in chosen])
        return {index: part for (index, _, _), part in zip(chosen, found, strict=True) if part is not None}

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
        size, cell = self.scoring.window, self.cell
        if self._is_cropped(variant) and self.scoring.cell is None:
            size, cell = shared_window(size)
        place = window_of(start, end, length, size=size, cell=cell)
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

    def _alternate(self, variant: Variant, region: Region | None) -> np.ndarray:
        assert region is not None
        codes, first = self._windows[region].codes, variant.start - region.start
        allele = encode(variant.alternate.encode("ascii"))
        return np.concatenate([codes[:first], allele, codes[first + len(variant.reference) :]])

    def _predict(self, haplotypes: Sequence[np.ndarray]) -> list[Values]:
        """Predict the values of each haplotype; those of like lengths are computed together."""
        found: list[Values] = [{}] * len(haplotypes)
        order = sorted(range(len(haplotypes)), key=lambda index: len(haplotypes[index]))
        settings = self.scoring.settings
        for first in range(0, len(order), self.rows):
            batch = order[first : first + self.rows]
            rows = np.full((len(batch), len(haplotypes[batch[-1]])), PAD, dtype=np.uint8)
            for row, index in zip(rows, batch, strict=True):
                row[: len(haplotypes[index])] = haplotypes[index]
            predicted = predict_values(
                self.model,
                torch.from_numpy(rows),
                genetic_code=settings.genetic_code,
                chunk_size=self.chunk_size,
                strand_average=settings.strand_average,
                precision=settings.precision,
            )
            values = {name: tensor.float().cpu().numpy() for name, tensor in predicted.items()}
            for place, index in enumerate(batch):
                found[index] = {name: array[place, : len(haplotypes[index])] for name, array in values.items()}
        return found

    def _effect(self, variant: Variant, region: Region, alternate: Stretch) -> Effect:
        reference, window = self._references[region], self._windows[region]
        for name, values in (*alternate.values.items(), *reference.items()):
            if not np.isfinite(values).all():
                raise ResourceError(f"track {name!r}: the model gave no number around {variant}")
        place, bases, first = variant.start - region.start, region.length, alternate.start
        if len(variant.reference) == len(variant.alternate):
            bases = len(next(iter(alternate.values.values())))
            alignment = base_by_base(bases)
        else:
            alignment = align(place, variant.reference.upper(), variant.alternate.upper(), length=bases)
        return effect(
            self.model.tracks,
            {name: values[first : first + bases] for name, values in reference.items()},
            alternate.values,
            alignment,
            start=region.start + first,
            counts=window.counts[first : first + bases],
        )
