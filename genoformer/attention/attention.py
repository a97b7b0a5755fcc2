"""The contract of every attention mechanism: its key/value side is a summary, and summaries merge.

``summarize(keys, values) -> Summary``, ``Summary + Summary -> Summary``, ``attend(queries, summary) -> output``.
Streaming is ``sum(summarize(chunk) for chunk in chunks)``, then ``attend`` chunk by chunk. B batch, H heads, T tokens,
D head dim, M features or slots. Positions are counted in tokens from the start of the sequence.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Protocol, Self

import torch
from torch import Tensor, nn

EMPTY = -1e30
"""Stands for the logarithm of zero. Finite, so that a sum or a difference of two of them is never NaN."""

PIECE = 4096
"""Tokens worked on at a time: what is computed for them stays in the caches, and no (tokens, features) matrix of a
whole sequence is formed."""


class Summary(Protocol):
    """What the keys and values of some tokens come down to. ``+`` is associative and commutative."""

    def __add__(self, other: Self, /) -> Self: ...


class Attention(nn.Module, ABC):
    """Base of all mechanisms. Masks are (B, T) bool, True at real tokens; a masked key has no influence at all."""

    compresses_tokens = False
    """`summarize` is linear and alike for all heads: it may take tokens instead of keys and values, which are then made
    of what `finish` returns"""

    @abstractmethod
    def summarize(
        self,
        keys: Tensor,
        values: Tensor,
        *,
        start: int = 0,
        lengths: Tensor | None = None,
        mask: Tensor | None = None,
    ) -> Summary:
        """Summarize a chunk of keys and values.

        Parameters
        ----------
        keys, values : Tensor, (B, H, T, D)
        start : position of the chunk's first token in the sequence
        lengths : Tensor of int64, (B,); tokens of each whole sequence, padding not counted.
            Default: the sequence ends where this chunk does
        mask : Tensor of bool, (B, T); default all True
        """

    @abstractmethod
    def attend(self, queries: Tensor, summary: Summary, *, start: int = 0) -> Tensor:
        """Answer queries (B, H, T, D), the first of which stands at ``start``, from a summary -> (B, H, T, D).

        A query with no key to attend to gets zeros.
        """

    def finish(self, summary: Summary) -> Any:
        """Do once, when all chunks are merged, what `attend` would do for each: it takes the result as well."""
        return summary

    def forward(self, queries: Tensor, keys: Tensor, values: Tensor, *, mask: Tensor | None = None) -> Tensor:
        """Attend in one go: (B, H, Tq, D), (B, H, T, D), (B, H, T, D) -> (B, H, Tq, D)."""
        lengths = None if mask is None else extents(mask)
        return self.attend(queries, self.summarize(keys, values, lengths=lengths, mask=mask))


def pieces(tokens: int) -> Iterator[slice]:
    """Cut so many tokens into slices of at most PIECE, at least one."""
    for start in range(0, max(tokens, 1), PIECE):
        yield slice(start, min(start + PIECE, tokens))


def extents(mask: Tensor) -> Tensor:
    """Return how far each row of a mask reaches: one past its last True (B, T) -> (B,)."""
    if mask.ndim != 2:
        raise ValueError(f"mask must be bool (batch, tokens), got {mask.dtype} {tuple(mask.shape)}")
    positions = torch.arange(1, mask.shape[1] + 1, device=mask.device)
    return (mask * positions).amax(dim=1) if mask.shape[1] else mask.new_zeros(len(mask), dtype=torch.int64)


def check_chunk(keys: Tensor, values: Tensor, mask: Tensor | None) -> tuple[Tensor, Tensor, Tensor | None]:
    """Return keys, values and mask ready to be summarized: in float32 at least, zeros where masked.

    Keys are hidden too: one of 1e30, infinity or NaN would outweigh its EMPTY. A mask that hides nothing becomes None.

    Raises
    ------
    ValueError : the shapes do not go together
    """
    if keys.ndim != 4 or values.ndim != 4 or keys.shape[:3] != values.shape[:3]:
        raise ValueError(
            "keys and values must be (batch, heads, tokens, head dim) alike, "
            f"got {tuple(keys.shape)} and {tuple(values.shape)}"
        )
    if mask is not None:
        expected = (keys.shape[0], keys.shape[2])
        if tuple(mask.shape) != expected or mask.dtype != torch.bool:
            raise ValueError(f"mask must be bool {expected} (batch, tokens), got {mask.dtype} {tuple(mask.shape)}")
        mask = None if bool(mask.all()) else mask
    keys, values = in_float(keys), in_float(values)
    if keys.dtype != values.dtype:
        raise ValueError(f"keys and values must be alike in precision, got {keys.dtype} and {values.dtype}")
    return hide(keys, mask), hide(values, mask), mask


def in_float(tensor: Tensor) -> Tensor:
    """Return a tensor in float32 at least: a sum in bfloat16 stops growing at 256 terms, one in float16 overflows."""
    return tensor.to(torch.promote_types(tensor.dtype, torch.float32))


def hide(values: Tensor, mask: Tensor | None) -> Tensor:
    """Put zeros where the mask is False: (B, H, T, D), (B, T)."""
    return values if mask is None else values.masked_fill(~mask[:, None, :, None], 0.0)


def whole_lengths(keys: Tensor, start: int, lengths: Tensor | None) -> Tensor:
    """Return the lengths given, or where the chunk ends for each sequence of the batch (B,)."""
    if lengths is not None:
        return lengths.to(keys.device)
    return torch.full((keys.shape[0],), start + keys.shape[2], dtype=torch.int64, device=keys.device)


@dataclass(frozen=True)
class LogMean:
    """A softmax-weighted mean that can go on: logarithm of the summed weights, and the mean under them.

    ``+`` is the log-sum-exp merge; the identity is (EMPTY, 0). See README.md, "Two monoids".
    """

    log_sum: Tensor  # (B, H, M) float32 or float64
    mean: Tensor  # (B, H, M, D)

    def __add__(self, other: LogMean) -> LogMean:
        log_sum = torch.logaddexp(self.log_sum, other.log_sum)
        mine = torch.exp(self.log_sum - log_sum)[..., None]
        theirs = torch.exp(other.log_sum - log_sum)[..., None]
        return LogMean(log_sum, self.mean * mine + other.mean * theirs)


@dataclass(frozen=True)
class Totals:
    """Sums over tokens; ``+`` adds them up."""

    keys: Tensor  # (B, H, M, D), or (B, H, M) where features stand for keys
    values: Tensor  # (B, H, M, D)
    weights: Tensor  # (B or 1, 1, M): what the weights of each slot amount to; 0 marks an empty slot

    def __add__(self, other: Totals) -> Totals:
        return Totals(self.keys + other.keys, self.values + other.values, self.weights + other.weights)


@dataclass(frozen=True)
class ScaledTotals:
    """Totals over exp(log_scale), for weights that have no bound; ``+`` brings both to the larger scale."""

    totals: Totals
    log_scale: Tensor  # (B, H, 1); EMPTY where there is no key

    def __add__(self, other: ScaledTotals) -> ScaledTotals:
        scale = torch.maximum(self.log_scale, other.log_scale)
        return ScaledTotals(self.rescaled(scale) + other.rescaled(scale), scale)

    def rescaled(self, log_scale: Tensor) -> Totals:
        """Return the totals over exp of another scale, at least as large as its own."""
        factor = torch.exp(self.log_scale - log_scale)  # (B, H, 1)
        return Totals(self.totals.keys * factor, self.totals.values * factor[..., None], self.totals.weights)


@dataclass(frozen=True)
class Maxima:
    """Largest keys and values of each slot; ``+`` takes the larger; an empty slot holds EMPTY."""

    keys: Tensor  # (B, H, M, D)
    values: Tensor  # (B, H, M, D)

    def __add__(self, other: Maxima) -> Maxima:
        return Maxima(torch.maximum(self.keys, other.keys), torch.maximum(self.values, other.values))


@dataclass(frozen=True)
class Segment:
    """Keys and values of consecutive tokens, kept as they are."""

    start: int
    keys: Tensor  # (B, H, T, D)
    values: Tensor  # (B, H, T, D), zero where masked
    mask: Tensor | None  # (B, T)

    @property
    def end(self) -> int:
        return self.start + self.keys.shape[2]


@dataclass(frozen=True)
class Segments:
    """Tokens kept as they are, in order of position; ``+`` collects."""

    parts: tuple[Segment, ...]

    def __add__(self, other: Segments) -> Segments:
        return Segments(tuple(sorted(self.parts + other.parts, key=lambda part: part.start)))

    def __iter__(self) -> Iterator[Segment]:
        return iter(self.parts)

    def span(self, start: int, end: int) -> Segment:
        """Return the tokens of [start, end), as views where one segment holds them all.

        Positions that no segment holds are masked zeros.
        """
        keys, values, masks, here = [], [], [], start
        like = self.parts[0].keys
        batch, heads, _, dim = like.shape

        def blank(count: int) -> None:
            keys.append(like.new_zeros(batch, heads, count, dim))
            values.append(like.new_zeros(batch, heads, count, self.parts[0].values.shape[3]))
            masks.append(torch.zeros(batch, count, dtype=torch.bool, device=like.device))

        for part in self.parts:
            first, last = max(here, part.start), min(end, part.end)
            if first >= last:
                continue
            if first > here:
                blank(first - here)
            inner = slice(first - part.start, last - part.start)
            keys.append(part.keys[:, :, inner])
            values.append(part.values[:, :, inner])
            shape = (batch, last - first)
            whole = part.mask is None
            masks.append(like.new_ones(shape, dtype=torch.bool) if whole else part.mask[:, inner])  # type: ignore[index]
            here = last
        if here < end or not keys:
            blank(end - here)
        if len(keys) == 1:
            return Segment(start, keys[0], values[0], masks[0])
        return Segment(start, torch.cat(keys, dim=2), torch.cat(values, dim=2), torch.cat(masks, dim=1))


@dataclass(frozen=True)
class Pair:
    """Summaries of two mechanisms, merged side by side."""

    first: Summary
    second: Summary

    def __add__(self, other: Pair) -> Pair:
        return Pair(self.first + other.first, self.second + other.second)


def unit_norm(vectors: Tensor) -> Tensor:
    """Give vectors (..., D) the norm 1; a zero vector stays zero."""
    return vectors / torch.linalg.vector_norm(vectors, dim=-1, keepdim=True).clamp_min(1e-6)
