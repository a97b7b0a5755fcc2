"""The model's part in scoring variants: the windows of a batch, with the reference and with every alternate allele."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch

from genoformer.errors import ConfigError, ResourceError
from genoformer.formats.vcf import Variant
from genoformer.model.crop import can_crop
from genoformer.model.device import default_chunk_size
from genoformer.model.genoformer import Genoformer
from genoformer.model.strands import predict_values
from genoformer.regions import Region
from genoformer.tokens import PAD, encode
from genoformer.variants.crops import Crops, Stretch
from genoformer.variants.effects import Effect, align, base_by_base, effect
from genoformer.variants.placing import Batch, Window, rows_together
from genoformer.variants.scoring import Scoring

Values = dict[str, np.ndarray]


class Scorer:
    """Scores batches; those of neighbors, one behind the other, share predictions of the reference.

    Raises
    ------
    ConfigError : the model is none of which parts can be predicted, as the method has it
    """

    def __init__(self, model: Genoformer, scoring: Scoring) -> None:
        check_method(model, scoring)
        self.model, self.scoring = model, scoring
        self.rows = rows_together(model, scoring, model.device)
        chunk = scoring.settings.chunk_size
        self.chunk_size = default_chunk_size(model.device) if chunk is None else chunk or None
        is_cropped = scoring.method == "crop"
        self.crops = Crops(model, scoring.settings, chunk_size=self.chunk_size) if is_cropped else None
        self._references: dict[Region, Values] = {}

    def effects(self, batch: Batch) -> list[Effect | None]:
        """Return what each variant of a batch changes; None of one without a window."""
        placed = batch.placed
        found = {} if self.crops is None else self._cropped(batch, self.crops)
        new = [region for region in batch.windows if region not in self._references]
        whole = [index for index, (_, region, _) in enumerate(placed) if region is not None and index not in found]
        haplotypes = [batch.windows[region].codes for region in new]
        haplotypes += [_alternate(placed[index].variant, placed[index].region, batch) for index in whole]
        predicted = iter(self._predict(haplotypes))
        known = self._references | {region: next(predicted) for region in new}
        self._references = {region: known[region] for region in batch.windows}
        found |= {index: Stretch(0, next(predicted)) for index in whole}
        return [
            None if region is None else self._effect(variant, region, batch.windows[region], found[index])
            for index, (variant, region, _) in enumerate(placed)
        ]

    def _cropped(self, batch: Batch, crops: Crops) -> dict[int, Stretch]:
        """Predict the variants of which only a part needs to be, by their index, and the references of all."""
        chosen = [
            (index, placed.region, _alternate(placed.variant, placed.region, batch))
            for index, placed in enumerate(batch.placed)
            if placed.region is not None and self.scoring.is_cropped(placed.variant)
        ]
        held = dict.fromkeys(region for _, region, _ in chosen)
        self._references = self._references | crops.hold({region: batch.windows[region].codes for region in held})
        found = crops.changed([(region, codes) for _, region, codes in chosen])
        return {index: part for (index, _, _), part in zip(chosen, found, strict=True) if part is not None}

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

    def _effect(self, variant: Variant, region: Region, window: Window, alternate: Stretch) -> Effect:
        reference = self._references[region]
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


def check_method(model: Genoformer, scoring: Scoring) -> None:
    """Raise ConfigError if a model cannot be asked by this method."""
    if scoring.method == "crop" and not can_crop(model):
        raise ConfigError("parts of windows are for models of local and Performer attention; use the method exact")


def _alternate(variant: Variant, region: Region | None, batch: Batch) -> np.ndarray:
    """Return the codes of a window with the alternate allele."""
    assert region is not None
    codes, first = batch.windows[region].codes, variant.start - region.start
    allele = encode(variant.alternate.encode("ascii"))
    return np.concatenate([codes[:first], allele, codes[first + len(variant.reference) :]])
