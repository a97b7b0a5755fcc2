"""A part of a window computed again after a few of its bases changed, with all around it held as it was.

Convolutions and local attention see the neighbors of the part as they were. The summaries of global attention are sums:
the old part is taken out of that of the window, the new one added. So only what changes beyond the part is neglected,
and what that would change within it; a part that is the whole window is exact.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import functional

from genoformer.attention import Attention, Hybrid, Local, Performer, Summary
from genoformer.attention.attention import Pair, Segment, Segments, Totals
from genoformer.model.encoder import Block, Place, Resident, Span, tokens_of
from genoformer.model.genoformer import Genoformer
from genoformer.model.split import reach_of

GRID = 8
"""Parts begin and end at multiples of so many tokens, or with the window."""


class Held(NamedTuple):
    """What a model makes of a window of T tokens, with zeros at its edges: R is T and these, ``_edges``."""

    bases: Tensor
    """(R stride, channels)"""
    tokens: list[Tensor]
    """before each block and after the last: (R, width)"""
    summaries: list[_Kept]
    """of each block"""
    inputs: Tensor
    """(L, channels): the bases alone"""

    @property
    def length(self) -> int:
        """Bases of the window."""
        return len(self.inputs)


class _Kept(NamedTuple):
    """A summary of one window: keys and values as they are, (H, R, D) each, or sums over features."""

    keys: Tensor
    values: Tensor
    pieces: _Kept | None = None  # sums over GRID tokens each: (n, ...)
    second: _Kept | None = None  # of a hybrid


class Part(NamedTuple):
    """A part of a window to compute again."""

    held: Held
    start: int
    """its first token, a multiple of GRID"""
    changed: int
    """first base of the window whose inputs are others"""
    inputs: Tensor
    """(bases, channels): these inputs"""


def can_crop(model: Genoformer) -> bool:
    """Tell whether all of a model's attention is of kinds of which a part can be computed: local and Performer."""
    return all(_is_known(attention) for attention in _attentions(model))


def hold(
    model: Genoformer, sequence: Resident, *, chunk_size: int | None = None
) -> tuple[list[Held], dict[str, Tensor]]:
    """Compute whole windows: what is to be held of each, and their logits (B, L, channels) by track.

    Parameters
    ----------
    sequence : of `Genoformer.sequence`, of windows of one length, without padding
    chunk_size : see `Genoformer.forward`
    """
    recorder = _Recorder()
    logits = model.logits(sequence._replace(place=recorder), chunk_size=chunk_size)
    stride = model.encoder.stem.stride
    before, behind = _edges(model)
    batch, length, _ = sequence.bases.shape
    bases = functional.pad(sequence.bases, (0, 0, before * stride, behind * stride + -length % stride))
    tokens = [functional.pad(x, (0, 0, before, behind)) for x in recorder.tokens]
    kept = [
        _kept(summary, _pieces(block, x), (before, behind))
        for block, summary, x in zip(_blocks(model), recorder.summaries, recorder.tokens, strict=False)
    ]
    rows = range(batch)
    return [
        Held(bases[row], [x[row] for x in tokens], [each[row] for each in kept], sequence.bases[row]) for row in rows
    ], logits


def crop_logits(model: Genoformer, parts: Sequence[Part], tokens: int) -> dict[str, Tensor]:
    """Predict the logits of parts of so many tokens each, a multiple of GRID; they may reach beyond their windows.

    Returns
    -------
    dict from track name to logits, (parts, tokens stride, channels); bases beyond the end of a window mean nothing
    """
    side, stride = _side(model), model.encoder.stem.stride
    width = (tokens + 2 * side) * stride
    bases = torch.stack([_inputs(part, width, side * stride, part.start * stride) for part in parts])
    starts = torch.tensor([part.start for part in parts], device=bases.device)
    lengths = torch.tensor([part.held.length for part in parts], device=bases.device)
    place = (starts[:, None] - side) * stride + torch.arange(width, device=bases.device)
    is_base = (place >= 0) & (place < lengths[:, None])
    base_mask = None if bool(is_base.all()) else is_base
    token_mask = None if base_mask is None else tokens_of(base_mask, stride)
    whole = -(-lengths // stride)
    crop = _Crop(parts, Span(side, side + tokens), reach_of(model), token_mask)
    return model.logits(Resident(bases, base_mask, token_mask, whole, crop))


def _inputs(part: Part, width: int, edge: int, first: int) -> Tensor:
    """Return the inputs of a part and its neighbors: ``width`` bases of the changed window, zeros beyond it."""
    found, origin = part.held.bases[first : first + width].clone(), first - edge
    low, high = max(origin, part.changed), min(origin + width, part.changed + len(part.inputs))
    if low < high:
        found[low - origin : high - origin] = part.inputs[low - part.changed : high - part.changed]
    return found


class _Recorder(Place):
    """A whole window, which keeps what its layers make."""

    def __init__(self) -> None:
        self.tokens: list[Tensor] = []
        self.summaries: list[Summary] = []

    def around(self, x: Tensor) -> Tensor:
        self.tokens.append(x)
        return x

    def merged(self, summary: Summary, attention: Attention) -> Summary:
        self.summaries.append(summary)
        return summary


class _Crop(Place):
    """Parts of windows between held neighbors, as many before as behind.

    Parameters
    ----------
    parts : all of one size
    own : their tokens, of those with neighbors
    reach : neighbors that convolutions look at; attention looks at all
    mask : bool (parts, T), None where all is real
    """

    def __init__(self, parts: Sequence[Part], own: Span, reach: int, mask: Tensor | None) -> None:
        self.parts, self.reach, self.mask = parts, reach, mask
        self._own = own
        self._layer = -1  # that is being computed
        edges = [row for row in range(1, len(parts)) if parts[row].held is not parts[row - 1].held]
        self._alike = [slice(*pair) for pair in pairwise([0, *edges, len(parts)])]  # parts of one window

    def own(self, tokens: int) -> Span:
        return self._own

    def around(self, x: Tensor) -> Tensor:
        self._layer += 1
        around = x.new_empty(len(x), self._own.end + self._own.start, *x.shape[2:])  # what lies further is not read
        near = slice(self._own.start - self.reach, self._own.end + self.reach)
        around[:, near] = self._between([part.held.tokens[self._layer] for part in self.parts], x, self.reach, dim=0)
        return around

    def merged(self, summary: Summary, attention: Attention) -> Summary:
        return self._merged(summary, [part.held.summaries[self._layer] for part in self.parts])

    def _merged(self, own: Summary, held: Sequence[_Kept]) -> Summary:
        if isinstance(own, Pair):
            return Pair(self._merged(own.first, held), self._merged(own.second, [x.second for x in held if x.second]))
        if isinstance(own, Totals):
            rest = [self._rest(held[rows.start], rows) for rows in self._alike]
            keys, values = (torch.cat(tensors) for tensors in zip(*rest, strict=True))
            return Totals(keys.add_(own.keys), values.add_(own.values), own.weights)
        assert isinstance(own, Segments)
        (segment,) = own.parts
        side = self._own.start
        keys = self._between([x.keys for x in held], segment.keys, side, dim=1)
        values = self._between([x.values for x in held], segment.values, side, dim=1)
        mask = None if self.mask is None else self.mask.to(keys.device)
        return Segments((Segment(0, keys, values, mask),))

    def _rest(self, held: _Kept, rows: slice) -> tuple[Tensor, Tensor]:
        """Return the sums over all tokens of a window but those of each of its parts."""
        assert held.pieces is not None
        first = torch.tensor([part.start // GRID for part in self.parts[rows]], device=held.keys.device)
        keys, values = (x.expand(len(first), *x.shape).clone() for x in (held.keys, held.values))
        for piece in range((self._own.end - self._own.start) // GRID):
            keys -= held.pieces.keys[first + piece]
            values -= held.pieces.values[first + piece]
        return keys, values

    def _between(self, held: Sequence[Tensor], own: Tensor, near: int, *, dim: int) -> Tensor:
        """Put what was computed of each part between ``near`` tokens of what is held on both sides of it."""
        first, tokens = self._own.start - near, self._own.end - self._own.start
        around = torch.stack(
            [x.narrow(dim, part.start + first, tokens + 2 * near) for x, part in zip(held, self.parts, strict=True)]
        )
        around.narrow(dim + 1, near, tokens).copy_(own)
        return around


def _kept(summary: Summary, pieces: Summary | None, edges: tuple[int, int]) -> list[_Kept]:
    """Keep what a summary holds of each window of a batch; ``pieces``: summaries of GRID tokens each."""
    if isinstance(summary, Pair):
        first, second = (pieces.first, pieces.second) if isinstance(pieces, Pair) else (None, None)
        both = zip(_kept(summary.first, first, edges), _kept(summary.second, second, edges), strict=True)
        return [one._replace(second=two) for one, two in both]
    if isinstance(summary, Totals):
        assert isinstance(pieces, Totals)
        sums = [x.unflatten(0, (len(summary.keys), -1)) for x in (pieces.keys, pieces.values)]
        rows = zip(summary.keys, summary.values, *sums, strict=True)
        return [_Kept(keys, values, _Kept(*of_pieces)) for keys, values, *of_pieces in rows]
    assert isinstance(summary, Segments)
    whole = summary.span(0, max(part.end for part in summary))
    keys, values = (functional.pad(x, (0, 0, *edges)) for x in (whole.keys, whole.values))
    return [_Kept(*row) for row in zip(keys, values, strict=True)]


def _pieces(block: Block, x: Tensor) -> Summary | None:
    """Summarize each GRID of the tokens (B, T, W) before a block, if it sums them up: a batch of B n."""
    if not any(isinstance(part, Performer) for part in block.multihead.modules()):
        return None
    mixed = block.mixed(x, Span(0, x.shape[1]), None)
    parts = functional.pad(mixed, (0, 0, 0, -x.shape[1] % GRID)).unflatten(1, (-1, GRID)).flatten(0, 1)
    mask = torch.arange(len(parts) // len(x) * GRID, device=parts.device) < x.shape[1]
    return block.multihead.summarize(parts, mask=mask.view(-1, GRID).repeat(len(x), 1))


def _blocks(model: Genoformer) -> list[Block]:
    return [block for block in model.encoder.blocks if isinstance(block, Block)]


def _attentions(model: Genoformer) -> list[Attention]:
    return [block.multihead.attention for block in _blocks(model)]


def _is_known(attention: Attention) -> bool:
    if isinstance(attention, Hybrid):
        return _is_known(attention.first) and _is_known(attention.second)
    if isinstance(attention, Performer):
        return attention.is_bounded and (attention.max_temperature is not None or attention.kind.rows != "waves")
    return isinstance(attention, Local)


def _side(model: Genoformer) -> int:
    """Return how many tokens beyond a part its layers look at."""
    return max(reach_of(model), *(_radius(attention) for attention in _attentions(model)))


def _edges(model: Genoformer) -> tuple[int, int]:
    """Return how many tokens of zeros a window gets at both edges: parts and what is around them reach so far."""
    side = _side(model)
    return side, side + GRID


def _radius(attention: Attention) -> int:
    if isinstance(attention, Hybrid):
        return max(_radius(attention.first), _radius(attention.second))
    return attention.radius if isinstance(attention, Local) else 0
