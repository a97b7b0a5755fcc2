"""How a Linformer compresses a sequence to slots: the contract of projections, and those that are not linear."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Literal, get_args

import torch
from torch import Tensor, nn

from genoformer.attention.attention import EMPTY, LogMean, Maxima, Pair, Summary
from genoformer.attention.recompute import over_pieces
from genoformer.attention.softmax import attend_with_log_sum, key_bias

Sharing = Literal["none", "headwise", "key-value", "layerwise"]
"""What has a matrix of its own (Wang et al. 2020, arXiv 2006.04768, section 4): keys and values of every head; keys and
values, for all heads; a layer; all layers of a model. Which layers get the same projection is for their builder."""


def check_sharing(sharing: str, heads: int) -> tuple[int, int]:
    """Return how many matrices there are: sides (2 where keys and values have their own), heads.

    Raises
    ------
    ValueError : there is no such sharing
    """
    if sharing not in get_args(Sharing):
        raise ValueError(f"sharing must be one of {', '.join(get_args(Sharing))}, got {sharing!r}")
    return 2 if sharing in ("none", "headwise") else 1, heads if sharing == "none" else 1


@dataclass(frozen=True)
class Slots:
    """What queries attend to, or tokens compressed for either side before they become keys and values."""

    keys: Tensor  # (B, H, M, D)
    values: Tensor  # (B, H, M, D), zero where hidden
    hidden: Tensor | None  # (B or 1, H or 1, M) bool: slots without a token; None where each has one
    ones: Tensor | None = None  # (B, 2 or 1, 1, M): what a 1 at every token comes to, on the sides of keys and values

    @classmethod
    def of(cls, keys: Tensor, values: Tensor, empty: Tensor, ones: Tensor | None = None) -> Slots:
        """Hide the empty ones (B or 1, H or 1, M)."""
        return cls(keys, values.masked_fill(empty[..., None], 0.0), empty if bool(empty.any()) else None, ones)


class Projection(nn.Module, ABC):
    """How tokens are compressed: what one chunk adds, and what all of them together come down to."""

    compresses_tokens = False
    """compressing tokens and then making keys and values of them is the same as the reverse: it is linear, and all
    heads share it"""

    @abstractmethod
    def compress(self, keys: Tensor, values: Tensor, start: int, lengths: Tensor, mask: Tensor | None) -> Summary:
        """Compress a chunk (B, H, T, D) that starts at ``start``; keys and values are 0 where masked."""

    @abstractmethod
    def slots(self, summary: Summary) -> Slots:
        """Return what queries attend to."""


class Max(Projection):
    """The largest of each of ``rank`` equal stretches of the sequence, dimension by dimension. Nothing to share."""

    def __init__(self, rank: int) -> None:
        super().__init__()
        self.rank = rank

    def _largest(self, tensor: Tensor, slot: Tensor, mask: Tensor | None) -> Tensor:
        batch, heads, tokens, dim = tensor.shape
        tensor = tensor if mask is None else tensor.masked_fill(~mask[:, None, :, None], EMPTY)
        index = slot[:, None, :, None].expand(batch, heads, tokens, dim)
        return tensor.new_full((batch, heads, self.rank, dim), EMPTY).scatter_reduce(2, index, tensor, "amax")

    def compress(self, keys: Tensor, values: Tensor, start: int, lengths: Tensor, mask: Tensor | None) -> Maxima:
        positions = torch.arange(start, start + keys.shape[2], device=lengths.device)
        slot = (positions * self.rank // lengths.clamp_min(1)[:, None]).clamp_max(self.rank - 1)  # (B, T)
        return Maxima(self._largest(keys, slot, mask), self._largest(values, slot, mask))

    def slots(self, summary: Summary) -> Slots:
        assert isinstance(summary, Maxima)
        empty = summary.keys <= EMPTY / 2
        keys, values = summary.keys.masked_fill(empty, 0.0), summary.values.masked_fill(empty, 0.0)
        return Slots.of(keys, values, empty[:, :1, :, 0])


class Dynamic(Projection):
    """A projection computed from the keys: softmax over the sequence of k . p for each of ``rank`` learned p.

    Zhu et al. 2021, arXiv 2107.02192, section 3.1.
    """

    def __init__(self, rank: int, heads: int, dim: int, *, sharing: str = "layerwise") -> None:
        super().__init__()
        sides, own = check_sharing(sharing, heads)
        self.latents = nn.Parameter(torch.randn(sides, own, rank, dim) * dim**-0.5)

    def compress(self, keys: Tensor, values: Tensor, start: int, lengths: Tensor, mask: Tensor | None) -> Pair:
        hidden = key_bias(keys, mask)

        def compress(piece: slice, keys: Tensor, values: Tensor, latents: Tensor) -> tuple[Tensor, ...]:
            bias = None if hidden is None else hidden[:, :, piece]
            first, last = (latents[side].expand(*keys.shape[:2], -1, -1) for side in (0, -1))
            sides = attend_with_log_sum(first, keys, keys, bias), attend_with_log_sum(last, keys, values, bias)
            return tuple(tensor for side in sides for tensor in (side.log_sum, side.mean))

        found = over_pieces(compress, [keys, values], [self.latents.to(keys.dtype)], join="log", row=0)
        return Pair(LogMean(*found[:2]), LogMean(*found[2:]))

    def slots(self, summary: Summary) -> Slots:
        assert isinstance(summary, Pair)
        keys, values = summary.first, summary.second
        assert isinstance(keys, LogMean)
        assert isinstance(values, LogMean)
        return Slots.of(keys.mean, values.mean, keys.log_sum[:, :1] <= EMPTY / 2)
