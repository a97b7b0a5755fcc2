"""Substitutions predicted by the bases around what they change, in windows that were predicted once without them.

What they change of the model's inputs may reach far: a stop codon shortens the open frame all along. It is covered.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from genoformer.model.crop import GRID, Held, Part, crop_logits, hold
from genoformer.model.genoformer import Genoformer
from genoformer.model.strands import reverse_complement_rows
from genoformer.predict import Settings
from genoformer.regions import Region
from genoformer.variants.changes import changes

MARGIN = 8
"""Tokens to each side of the changed inputs that are computed again, at least."""
_TOKENS = 1 << 16
"""Computed together where there is no cache to fit into."""

Values = dict[str, np.ndarray]


class Stretch(NamedTuple):
    """What a changed window has in a part of it; beyond it is as if unchanged."""

    start: int
    """first base, in the window"""
    values: Values
    """(bases, channels) by track"""


class _Known(NamedTuple):
    codes: Tensor  # (L,)
    held: Held


class _Place(NamedTuple):
    start: int  # first token
    tokens: int


class _Asked(NamedTuple):
    """A part to compute."""

    number: int  # of the haplotype
    strand: int  # 0 as given, 1 the opposite one
    part: Part
    tokens: int


class Crops:
    """Predicts windows in which a few bases are others.

    Parameters
    ----------
    model : of which `can_crop` is true
    settings : how
    chunk_size : tokens computed at a time, None for all
    """

    def __init__(self, model: Genoformer, settings: Settings, *, chunk_size: int | None) -> None:
        self.model, self.settings, self.chunk_size = model, settings, chunk_size
        self._held: dict[Region, list[_Known]] = {}  # one a strand
        self._values: dict[Region, Values] = {}

    @torch.inference_mode()
    def hold(self, windows: Mapping[Region, np.ndarray]) -> dict[Region, Values]:
        """Return the values of windows, from their codes; these are held, others no longer."""
        self._held = {region: held for region, held in self._held.items() if region in windows}
        self._values = {region: values for region, values in self._values.items() if region in windows}
        for region, codes in windows.items():
            if region not in self._held:
                self._held[region], self._values[region] = self._predicted(codes)
        return self._values

    @torch.inference_mode()
    def changed(self, haplotypes: Sequence[tuple[Region, np.ndarray]]) -> list[Stretch | None]:
        """Predict held windows with other bases, as codes of their length; None where half of one or more changes."""
        found: list[dict[int, Stretch]] = [{} for _ in haplotypes]
        asked = [part for region in self._held for part in self._asked(region, haplotypes)]
        for batch in self._batches(asked):
            with self._precision():
                logits = crop_logits(self.model, [each.part for each in batch], batch[0].tokens)
            values = self._of_logits(logits)
            for row, (number, strand, part, tokens) in enumerate(batch):
                start = part.start * self._stride
                count = min(tokens * self._stride, part.held.length - start)
                found[number][strand] = Stretch(start, {name: array[row, :count] for name, array in values.items()})
        return [self._joined(strands, region.length) for strands, (region, _) in zip(found, haplotypes, strict=True)]

    def _asked(self, region: Region, haplotypes: Sequence[tuple[Region, np.ndarray]]) -> Iterator[_Asked]:
        """Yield what is to be computed of the haplotypes of a window."""
        numbers = [number for number, (where, _) in enumerate(haplotypes) if where == region]
        if not numbers:
            return
        rows = torch.from_numpy(np.stack([haplotypes[number][1] for number in numbers])).to(self.model.device)
        code = self.settings.genetic_code
        for strand, (codes, known) in enumerate(zip(self._strands(rows), self._held[region], strict=True)):
            held, tokens = known.held, -(-known.held.length // self._stride)
            found = changes(self.model, codes, known.codes, held.inputs, genetic_code=code)
            for number, (start, inputs) in zip(numbers, found, strict=True):
                place = _place(start, start + len(inputs), self._stride, tokens)
                if place is not None:
                    yield _Asked(number, strand, Part(held, place.start, start, inputs), place.tokens)

    @property
    def _stride(self) -> int:
        return self.model.encoder.stem.stride

    def _strands(self, rows: Tensor) -> Iterator[Tensor]:
        yield rows
        if self.settings.strand_average:
            yield reverse_complement_rows(rows)

    def _predicted(self, codes: np.ndarray) -> tuple[list[_Known], Values]:
        kept, found = [], []
        for rows in self._strands(torch.from_numpy(codes.copy())[None].to(self.model.device)):
            with self._precision():
                sequence = self.model.sequence(rows, genetic_code=self.settings.genetic_code)
                (held,), logits = hold(self.model, sequence, chunk_size=self.chunk_size)
            kept.append(_Known(rows[0], held))
            found.append(self._of_logits(logits))
        values = {name: [array[0] for array in arrays] for name, arrays in _by_name(found).items()}
        return kept, self._averaged(values)

    def _batches(self, asked: Sequence[_Asked]) -> Iterator[list[_Asked]]:
        """Yield parts of the same number of tokens, as many as are computed together."""
        sizes: dict[int, list[_Asked]] = {}
        for each in asked:
            sizes.setdefault(each.tokens, []).append(each)
        for tokens, alike in sizes.items():
            # of half a chunk: a part also has the neighbors that it looks at
            together = max((self.chunk_size // 2 if self.chunk_size else _TOKENS) // tokens, 1)
            for first in range(0, len(alike), together):
                yield alike[first : first + together]

    def _joined(self, strands: Mapping[int, Stretch], length: int) -> Stretch | None:
        """Bring the strands together, on the bases that both have: the mean where there are two."""
        if len(strands) < 1 + self.settings.strand_average:
            return None
        starts = [strands[0].start]
        ends = [starts[0] + len(next(iter(strands[0].values.values())))]
        if 1 in strands:
            ends.append(length - strands[1].start)
            starts.append(ends[1] - len(next(iter(strands[1].values.values()))))
        start, end = max(starts), min(ends)
        cut = {
            track.name: [strands[0].values[track.name][start - starts[0] : end - starts[0]]]
            for track in self.model.tracks
        }
        if 1 in strands:
            for name, arrays in cut.items():
                arrays.append(strands[1].values[name][ends[1] - end : ends[1] - start])
        return Stretch(start, self._averaged(cut))

    def _averaged(self, values: Mapping[str, Sequence[np.ndarray]]) -> Values:
        """Return the mean of the values of both strands, each as it is read."""
        found: Values = {}
        for track in self.model.tracks:
            forward, *backward = values[track.name]
            found[track.name] = forward
            for other in backward:
                found[track.name] = (forward + other[::-1, list(track.reverse_complement)]) / 2
        return found

    def _of_logits(self, logits: Mapping[str, Tensor]) -> Values:
        heads = self.model.heads
        return {name: heads[name].predict(logits[name]).float().cpu().numpy() for name in heads}  # type: ignore[operator]

    def _precision(self) -> torch.autocast:
        is_lower = self.settings.precision == "bfloat16"
        return torch.autocast(self.model.device.type, torch.bfloat16, enabled=is_lower)


def _by_name(values: Sequence[Values]) -> dict[str, list[np.ndarray]]:
    return {name: [each[name] for each in values] for name in values[0]}


def _place(start: int, end: int, stride: int, whole: int) -> _Place | None:
    """Return the part around changed bases [start, end), or None if it would be half of the window or more."""
    first = max(start // stride - MARGIN, 0) // GRID * GRID
    last = -(-min((end - 1) // stride + 1 + MARGIN, whole) // GRID) * GRID
    return None if 2 * (last - first) > whole else _Place(first, last - first)
