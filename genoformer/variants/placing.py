"""Variants in windows of a sequence, gathered into batches that are scored together."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple

import numpy as np
import torch

from genoformer.errors import ConfigError
from genoformer.formats.sequences import Sequences
from genoformer.formats.vcf import Variant, reason_against_alternate, reason_against_place
from genoformer.model.device import CPU_CHUNK
from genoformer.model.genoformer import Genoformer
from genoformer.regions import Region
from genoformer.tokens import encode, gaps
from genoformer.variants.effects import trimmed
from genoformer.variants.scoring import Scoring
from genoformer.variants.windows import cell_size, shared_window, window_of

_GPU_BASES = 1 << 20
"""Bases computed together where there is no cache to fit into."""
_PASSES = 8
"""Batches of variants that are gathered, so that haplotypes of one length share a batch."""
_CROPS, _HELD_BASES = 512, 1 << 15
"""Variants, and bases of windows with all that the model makes of them, that are held together."""
_CROPS_EACH, _HELD_EACH = 256, 1 << 14
"""The same of one of several processes: fewer, so that all have some."""


class Window(NamedTuple):
    """A stretch of a sequence, as the model sees it without any variant."""

    codes: np.ndarray
    counts: np.ndarray
    """bool: where it is no gap"""


class Placed(NamedTuple):
    """A variant and its window, or why it has none."""

    variant: Variant
    region: Region | None
    why: str
    """a key of `genoformer.formats.vcf.REASONS`"""


class Batch(NamedTuple):
    """Variants that are scored together, and their windows."""

    placed: list[Placed]
    windows: dict[Region, Window]


def rows_together(model: Genoformer, scoring: Scoring, device: torch.device) -> int:
    """Return how many windows are predicted together."""
    batch = scoring.settings.batch_size
    together = CPU_CHUNK * model.encoder.stem.stride if device.type == "cpu" else _GPU_BASES
    return batch if batch > 1 else max(together // scoring.window, 1)


class Placing:
    """Finds the windows of variants.

    Parameters
    ----------
    sequences : the reference
    model, scoring : what they are scored with
    device : where that is computed

    Raises
    ------
    ConfigError : the model cannot see windows of this size
    """

    def __init__(self, sequences: Sequences, model: Genoformer, scoring: Scoring, *, device: torch.device) -> None:
        if model.most_bases is not None and scoring.window > model.most_bases:
            raise ConfigError(
                f"this model sees at most {model.most_bases} bases at once, the window is {scoring.window}; "
                f"use --window {model.most_bases}"
            )
        self.sequences, self.scoring, self._most_bases = sequences, scoring, model.most_bases
        self._lengths = sequences.lengths()
        self._cell = cell_size(scoring.window, scoring.cell)
        self._rows = rows_together(model, scoring, device)

    def batches(self, variants: Iterable[Variant], *, shared_out: bool = False) -> Iterator[Batch]:
        """Yield the variants that are scored together: many enough for speed, in windows few enough for memory.

        Parameters
        ----------
        shared_out : several processes score them
        """
        is_crop = self.scoring.method == "crop"
        crops, held = (_CROPS_EACH, _HELD_EACH) if shared_out else (_CROPS, _HELD_BASES)
        most = crops if is_crop else self._rows * _PASSES
        batch = Batch([], {})
        for variant in variants:
            why = self._reason(variant)
            region = None if why else self._region(variant)
            bases = 0 if region is None or region in batch.windows else region.length
            is_full = is_crop and bases and sum(each.length for each in batch.windows) + bases > held
            if batch.placed and (len(batch.placed) >= most or is_full):
                yield batch
                batch = Batch([], {region: batch.windows[region]} if region in batch.windows else {})
            batch.placed.append(Placed(variant, region, why))
            if region is not None and region not in batch.windows:
                batch.windows[region] = self._window(region)
        if batch.placed:
            yield batch

    def _reason(self, variant: Variant) -> str:
        """Tell why a variant cannot be scored."""
        name, start, reference, alternate = variant
        why = reason_against_place(
            name, start, reference, sequences=self.sequences, lengths=self._lengths
        ) or reason_against_alternate(reference, alternate)
        if why:
            return why
        most, longest = self._most_bases, max(len(reference), len(alternate))
        grown = self.scoring.window + max(len(alternate) - len(reference), 0)
        is_too_long = longest > max(self.scoring.window // 2, 1) or (most is not None and grown > most)
        return "too_long" if is_too_long else ""

    def _region(self, variant: Variant) -> Region:
        """Return the window of a variant, by the bases that change."""
        left, right = trimmed(variant.reference.upper(), variant.alternate.upper())
        start, end = variant.start + left, variant.start + len(variant.reference) - right
        length = self._lengths[variant.sequence]
        size, cell = self.scoring.window, self._cell
        if self.scoring.is_cropped(variant) and self.scoring.cell is None:
            size, cell = shared_window(size)
        place = window_of(start, end, length, size=size, cell=cell)
        return Region(
            variant.sequence, min(place[0], variant.start), max(place[1], variant.start + len(variant.reference))
        )

    def _window(self, region: Region) -> Window:
        bases = self.sequences.fetch(region)
        counts = np.ones(region.length, dtype=bool)
        for start, end in gaps(bases):
            counts[start:end] = False
        return Window(encode(bases), counts)
