"""Linformer: the keys and values compressed to a fixed number of slots along the sequence."""

from __future__ import annotations

from abc import ABC, abstractmethod
from functools import reduce
from operator import add

import torch
from torch import Tensor, nn

from genoformer.attention.attention import (
    EMPTY,
    Attention,
    LogMean,
    Maxima,
    Pair,
    Summary,
    Totals,
    check_chunk,
    in_float,
    pieces,
    whole_lengths,
)
from genoformer.attention.softmax import attend_with_log_sum, key_bias


class Slots:
    """Compressed keys and values (B, H, M, D), and the bias (B or 1, 1, M) that hides empty slots."""

    def __init__(self, keys: Tensor, values: Tensor, bias: Tensor) -> None:
        self.keys, self.values, self.bias = keys, values, bias


class Projection(nn.Module, ABC):
    """How tokens are compressed: what one chunk adds, and what all of them together come down to."""

    @abstractmethod
    def compress(self, keys: Tensor, values: Tensor, start: int, lengths: Tensor, mask: Tensor | None) -> Summary:
        """Compress a chunk (B, H, T, D) that starts at ``start``; keys and values are 0 where masked."""

    @abstractmethod
    def slots(self, summary: Summary) -> Slots:
        """Return what queries attend to."""


def _empty_bias(weights: Tensor) -> Tensor:
    return torch.zeros_like(weights).masked_fill(weights <= 0, EMPTY)


class Weighted(Projection):
    """Projections that are linear: slot a holds sum_j E[a, j] k_j. Rows keep their norm where tokens are missing."""

    @abstractmethod
    def weights(self, start: int, tokens: int, like: Tensor) -> Tensor:
        """Return the columns E[:, start : start + tokens] (M, T)."""

    def norms(self, like: Tensor) -> Tensor:
        """Return the norm each row should have (M,)."""
        return like.new_ones(1)

    def compress(self, keys: Tensor, values: Tensor, start: int, lengths: Tensor, mask: Tensor | None) -> Totals:
        batch, _, tokens, _ = keys.shape
        parts = []
        for piece in pieces(tokens):
            matrix = self.weights(start + piece.start, piece.stop - piece.start, keys)  # (M, PIECE)
            valid = keys.new_ones(batch, matrix.shape[1]) if mask is None else mask[:, piece].to(keys.dtype)
            squares = valid @ matrix.square().T  # (B, M)
            parts.append(Totals(matrix @ keys[:, :, piece], matrix @ values[:, :, piece], squares[:, None]))
        return reduce(add, parts)

    def slots(self, summary: Summary) -> Slots:
        assert isinstance(summary, Totals)
        empty = summary.weights <= 0
        scale = self.norms(summary.weights) / summary.weights.masked_fill(empty, 1.0).sqrt()  # (B, 1, M)
        scale = scale[..., None]
        return Slots(summary.keys * scale, summary.values * scale, _empty_bias(summary.weights))


class Learned(Weighted):
    """A learned (rank, tokens) matrix, started as the means of equal stretches (Wang et al. 2020, arXiv 2006.04768).

    A shorter sequence uses its first columns, with each row's norm restored; a longer one is refused.
    """

    def __init__(self, rank: int, tokens: int) -> None:
        super().__init__()
        slot = torch.arange(tokens) * rank // tokens
        pooled = torch.nn.functional.one_hot(slot, rank).T.float()  # (M, T)
        self.matrix = nn.Parameter(pooled / pooled.sum(dim=1, keepdim=True).clamp_min(1.0))

    def weights(self, start: int, tokens: int, like: Tensor) -> Tensor:
        trained = self.matrix.shape[1]
        if start + tokens > trained:
            raise ValueError(
                f"this learned Linformer projection covers {trained} tokens, but the sequence reaches token "
                f"{start + tokens}; use a smaller window, or another projection (seeded, mean, max, conv, dynamic)"
            )
        return self.matrix[:, start : start + tokens].to(like.dtype)

    def norms(self, like: Tensor) -> Tensor:
        return self.matrix.to(like.dtype).norm(dim=1)


class Seeded(Weighted):
    """Random normal rows of unit norm, made again for each position from a seed and never stored."""

    _BLOCK = 1024

    def __init__(self, rank: int, *, seed: int = 0) -> None:
        super().__init__()
        self.rank, self.seed = rank, seed

    def _block(self, index: int) -> Tensor:
        generator = torch.Generator().manual_seed(self.seed * 1_000_003 + index)
        return torch.randn(self.rank, self._BLOCK, generator=generator)

    def weights(self, start: int, tokens: int, like: Tensor) -> Tensor:
        if tokens == 0:
            return like.new_zeros(self.rank, 0)
        first, last = start // self._BLOCK, (start + tokens - 1) // self._BLOCK
        columns = torch.cat([self._block(index) for index in range(first, last + 1)], dim=1)
        offset = start - first * self._BLOCK
        return columns[:, offset : offset + tokens].to(like)


class Convolution(Projection):
    """A strided convolution, kernel equal to stride: a slot a stride, so attending costs O(T^2 / stride) time."""

    def __init__(self, stride: int) -> None:
        super().__init__()
        self.taps = nn.Parameter(torch.full((stride,), 1.0 / stride))

    def compress(self, keys: Tensor, values: Tensor, start: int, lengths: Tensor, mask: Tensor | None) -> Totals:
        stride, count = len(self.taps), -(-int(lengths.max()) // len(self.taps)) if len(lengths) else 0
        positions = torch.arange(start, start + keys.shape[2], device=keys.device)
        taps = self.taps.to(keys.dtype)[positions % stride]  # (T,)
        slot = (positions // stride).clamp_max(max(count - 1, 0)).expand(len(keys), -1)
        valid = keys.new_ones(keys.shape[0], keys.shape[2]) if mask is None else mask.to(keys.dtype)
        return Totals(
            _add_up(keys * taps[:, None], slot, max(count, 1)),
            _add_up(values * taps[:, None], slot, max(count, 1)),
            _add_up((valid * taps.square())[:, None, :, None], slot, max(count, 1))[..., 0],
        )

    def slots(self, summary: Summary) -> Slots:
        assert isinstance(summary, Totals)
        empty = summary.weights <= 0
        full = self.taps.to(summary.weights.dtype).norm()
        scale = (full / summary.weights.masked_fill(empty, 1.0).sqrt())[..., None]
        return Slots(summary.keys * scale, summary.values * scale, _empty_bias(summary.weights))


def _slot_of(start: int, tokens: int, lengths: Tensor, rank: int) -> Tensor:
    """Return the slot of each position, from its share of the sequence, whatever the chunks (B, T)."""
    positions = torch.arange(start, start + tokens, device=lengths.device)
    return (positions * rank // lengths.clamp_min(1)[:, None]).clamp_max(rank - 1)


def _add_up(tensor: Tensor, slot: Tensor, count: int) -> Tensor:
    """Sum the tokens of each slot: (B, H, T, D), (B, T) -> (B, H, count, D)."""
    batch, heads, tokens, dim = tensor.shape
    index = slot[:, None, :, None].expand(batch, heads, tokens, dim)
    return tensor.new_zeros(batch, heads, count, dim).scatter_add(2, index, tensor)


class Mean(Projection):
    """The mean of each of ``rank`` equal stretches of the sequence."""

    def __init__(self, rank: int) -> None:
        super().__init__()
        self.rank = rank

    def compress(self, keys: Tensor, values: Tensor, start: int, lengths: Tensor, mask: Tensor | None) -> Totals:
        slot = _slot_of(start, keys.shape[2], lengths, self.rank)
        valid = keys.new_ones(keys.shape[0], keys.shape[2]) if mask is None else mask.to(keys.dtype)
        counts = _add_up(valid[:, None, :, None], slot, self.rank)[..., 0]  # (B, 1, M)
        return Totals(_add_up(keys, slot, self.rank), _add_up(values, slot, self.rank), counts)

    def slots(self, summary: Summary) -> Slots:
        assert isinstance(summary, Totals)
        counts = summary.weights.clamp_min(1.0)[..., None]
        return Slots(summary.keys / counts, summary.values / counts, _empty_bias(summary.weights))


class Max(Projection):
    """The largest of each of ``rank`` equal stretches of the sequence, dimension by dimension."""

    def __init__(self, rank: int) -> None:
        super().__init__()
        self.rank = rank

    def _largest(self, tensor: Tensor, slot: Tensor, mask: Tensor | None) -> Tensor:
        batch, heads, tokens, dim = tensor.shape
        tensor = tensor if mask is None else tensor.masked_fill(~mask[:, None, :, None], EMPTY)
        index = slot[:, None, :, None].expand(batch, heads, tokens, dim)
        return tensor.new_full((batch, heads, self.rank, dim), EMPTY).scatter_reduce(2, index, tensor, "amax")

    def compress(self, keys: Tensor, values: Tensor, start: int, lengths: Tensor, mask: Tensor | None) -> Maxima:
        slot = _slot_of(start, keys.shape[2], lengths, self.rank)
        return Maxima(self._largest(keys, slot, mask), self._largest(values, slot, mask))

    def slots(self, summary: Summary) -> Slots:
        assert isinstance(summary, Maxima)
        empty = summary.keys <= EMPTY / 2
        bias = torch.zeros_like(summary.keys[:, :1, :, 0]).masked_fill(empty[:, :1, :, 0], EMPTY)
        return Slots(summary.keys.masked_fill(empty, 0.0), summary.values.masked_fill(empty, 0.0), bias)


class Dynamic(Projection):
    """A projection computed from the keys: softmax over the sequence of k . p for each of ``rank`` learned p.

    Zhu et al. 2021, arXiv 2107.02192, section 3.1.
    """

    def __init__(self, rank: int, heads: int, dim: int) -> None:
        super().__init__()
        self.latents = nn.Parameter(torch.randn(heads, rank, dim) * dim**-0.5)

    def compress(self, keys: Tensor, values: Tensor, start: int, lengths: Tensor, mask: Tensor | None) -> Pair:
        latents = self.latents.to(keys.dtype).expand(keys.shape[0], -1, -1, -1)
        bias = key_bias(keys, mask)
        return Pair(
            attend_with_log_sum(latents, keys, keys, bias),
            attend_with_log_sum(latents, keys, values, bias),
        )

    def slots(self, summary: Summary) -> Slots:
        assert isinstance(summary, Pair)
        keys, values = summary.first, summary.second
        assert isinstance(keys, LogMean)
        assert isinstance(values, LogMean)
        empty = keys.log_sum[:, :1] <= EMPTY / 2
        return Slots(keys.mean, values.mean, torch.zeros_like(keys.log_sum[:, :1]).masked_fill(empty, EMPTY))


PROJECTIONS = {
    "learned": Learned,
    "seeded": Seeded,
    "mean": Mean,
    "max": Max,
    "conv": Convolution,
    "dynamic": Dynamic,
}
"""How a Linformer may compress a sequence."""


class Linformer(Attention):
    """Attention to a compressed sequence (Wang et al. 2020, arXiv 2006.04768, section 4): O(T rank) time,
    but for a convolution, whose slots grow with T.

    Parameters
    ----------
    projection : how tokens are compressed; one may be shared by several layers
    """

    def __init__(self, projection: Projection) -> None:
        super().__init__()
        self.projection = projection

    def summarize(
        self,
        keys: Tensor,
        values: Tensor,
        *,
        start: int = 0,
        lengths: Tensor | None = None,
        mask: Tensor | None = None,
    ) -> Summary:
        keys, values, mask = check_chunk(keys, values, mask)
        lengths = whole_lengths(keys, start, lengths)
        return self.projection.compress(keys, values, start, lengths, mask)

    def attend(self, queries: Tensor, summary: Summary, *, start: int = 0) -> Tensor:
        slots = self.projection.slots(summary)
        kind, queries = queries.dtype, in_float(queries) * queries.shape[-1] ** -0.5
        # A sequence without any token leaves every slot empty, and their values are zeros.
        return attend_with_log_sum(queries, slots.keys, slots.values, slots.bias).mean.to(kind)
