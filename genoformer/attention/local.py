"""Local attention: softmax over the tokens within a radius, with rotary positions."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor
from torch.nn import functional

from genoformer.attention.attention import EMPTY, Attention, Segment, Segments, check_chunk, in_float
from genoformer.attention.recompute import Window, over_windows, piece_size
from genoformer.attention.softmax import rotate

_BLOCK, _BLOCK_IN_TRAINING = 32, 64
"""The fewer queries share their keys, the fewer of these are out of reach of some, and the more gradients add up."""


class Local(Attention):
    """Softmax attention of each token to those at most ``radius`` tokens away: O(T radius) time.

    A chunk needs its neighbours' keys; the summary keeps them and `attend` takes the halo it wants.

    Parameters
    ----------
    radius : tokens to each side
    rotary : turn queries and keys by their positions
    """

    def __init__(self, *, radius: int = 64, rotary: bool = True) -> None:
        super().__init__()
        if radius < 1:
            raise ValueError(f"radius must be at least 1 token, got {radius}")
        self.radius, self.rotary = radius, rotary

    def summarize(
        self,
        keys: Tensor,
        values: Tensor,
        *,
        start: int = 0,
        lengths: Tensor | None = None,
        mask: Tensor | None = None,
    ) -> Segments:
        return Segments((Segment(start, *check_chunk(keys, values, mask)),))

    def attend(self, queries: Tensor, summary: Segments, *, start: int = 0) -> Tensor:  # type: ignore[override]
        if queries.shape[2] == 0:
            return queries
        size = min(self.block, queries.shape[2])
        cut = self.pieces(queries.shape[2], queries[:, :, :1].numel(), queries.device)
        wanted = {piece.start: self._around(start, piece, size) for piece in cut}
        near = Surroundings(summary, list(wanted.values()))

        def attend(piece: slice, queries: Tensor, keys: Tensor, values: Tensor) -> tuple[Tensor]:
            around = wanted[piece.start]
            if self.rotary:
                queries, keys = rotate(queries, start + piece.start), rotate(keys, near.start + near.held(around).start)
            keys, values = near.padded(keys, around), near.padded(values, around)
            return (self._attend(queries * queries.shape[3] ** -0.5, keys, values, near.hidden(around), size),)

        windows = [
            Window(piece, (piece, near.held(around), near.held(around)))
            for piece, around in zip(cut, wanted.values(), strict=True)
        ]
        (out,) = over_windows(attend, windows, [in_float(queries), near.keys, near.values])
        return out.to(queries.dtype)

    def pieces(self, tokens: int, row: int, device: torch.device) -> list[slice]:
        """Cut queries of ``row`` numbers a token, over batch and heads, into pieces to be worked on at a time."""
        size = max(2, piece_size(2 * row, device) // self.radius) * self.radius
        return [slice(first, min(first + size, tokens)) for first in range(0, tokens, size)]

    @property
    def block(self) -> int:
        """Queries that share their keys, at most: those within reach of any of them."""
        return min(self.radius, _BLOCK_IN_TRAINING if torch.is_grad_enabled() else _BLOCK)

    def _around(self, start: int, piece: slice, size: int) -> range:
        """Return the positions of the keys that a piece of queries needs: those within reach of whole blocks."""
        first = start + piece.start - self.radius
        return range(first, first + -(-(piece.stop - piece.start) // size) * size + 2 * self.radius)

    def _attend(self, queries: Tensor, keys: Tensor, values: Tensor, hidden: Tensor | None, size: int) -> Tensor:
        """Answer queries (B, H, T, D), ``size`` a block, from the keys and values around; hidden (B, 1, keys)."""
        batch, heads, tokens, dim = queries.shape
        queries = functional.pad(queries, (0, 0, 0, keys.shape[2] - 2 * self.radius - tokens))
        if hidden is not None:
            # They ride as one more dimension, so that the mask of the kernel is the same band for every block.
            keys = torch.cat([keys, hidden[..., None].expand(-1, heads, -1, -1)], dim=-1)
            queries = functional.pad(queries, (0, 1), value=1.0)
            values = functional.pad(values, (0, 1))
        out = functional.scaled_dot_product_attention(
            in_blocks(queries, size),
            neighborhoods(keys, size, self.radius),
            neighborhoods(values, size, self.radius),
            attn_mask=band(size, self.radius, queries),
            scale=1.0,
        )  # (B H, blocks, size, D or D + 1)
        return from_blocks(out, batch)[:, :, :tokens, :dim]


def covered_by(segments: Segments) -> range:
    """Return the positions from the first to the last token of a summary."""
    held = [part for part in segments if part.start < part.end]
    return range(min(part.start for part in held), max(part.end for part in held)) if held else range(0)


class Surroundings:
    """Keys and values around queries, of those that a summary holds: views, unless they come from several segments.

    Parameters
    ----------
    segments : the summary
    wanted : positions of all that will be asked for, a range for each piece of queries
    """

    def __init__(self, segments: Segments, wanted: Sequence[range]) -> None:
        self._covered = covered_by(segments)
        inner = [self._inner(around) for around in wanted]
        self.start = min(own.start for own in inner)
        tokens = segments.span(self.start, max(own.stop for own in inner))
        assert tokens.mask is not None
        self.keys, self.values, self.mask = tokens.keys, tokens.values, tokens.mask
        self._is_whole = bool(tokens.mask.all())

    def _inner(self, wanted: range) -> range:
        first = min(max(wanted.start, self._covered.start), self._covered.stop)
        return range(first, max(first, min(wanted.stop, self._covered.stop)))

    def held(self, wanted: range) -> slice:
        """Return which of the keys at hand lie in a range of positions."""
        inner = self._inner(wanted)
        return slice(inner.start - self.start, inner.stop - self.start)

    def padded(self, tokens: Tensor, wanted: range) -> Tensor:
        """Add zeros to what is held of a range (B, H, held, C), where nothing is: (B, H, range, C)."""
        if tokens.shape[2] == len(wanted):
            return tokens
        lead = self._lead(wanted)
        return functional.pad(tokens, (0, 0, lead, len(wanted) - lead - tokens.shape[2]))

    def hidden(self, wanted: range) -> Tensor | None:
        """Return EMPTY where a range has no key, 0 elsewhere (B, 1, range); None where each has one."""
        mask = self.mask[:, self.held(wanted)]
        if self._is_whole and mask.shape[1] == len(wanted):
            return None
        lead = self._lead(wanted)
        mask = functional.pad(mask, (lead, len(wanted) - lead - mask.shape[1]))
        return torch.zeros(mask.shape, dtype=self.keys.dtype, device=mask.device).masked_fill(~mask, EMPTY)[:, None]

    def _lead(self, wanted: range) -> int:
        return min(max(0, self._inner(wanted).start - wanted.start), len(wanted))


def in_blocks(tensor: Tensor, size: int) -> Tensor:
    """Cut tokens into blocks: (B, H, n size, D) -> (B H, n, size, D)."""
    return tensor.unflatten(2, (-1, size)).flatten(0, 1)


def from_blocks(tensor: Tensor, batch: int) -> Tensor:
    """Undo `in_blocks`: (B H, n, size, D) -> (B, H, n size, D)."""
    return tensor.unflatten(0, (batch, -1)).flatten(2, 3)


def neighborhoods(tensor: Tensor, size: int, radius: int) -> Tensor:
    """Lay out each block with those within reach: (B, H, n size + 2 radius, D) -> (B H, n, size + 2 radius, D).

    It is a view if B is 1, or the tensor contiguous.
    """
    return tensor.unfold(2, size + 2 * radius, size).transpose(-1, -2).flatten(0, 1)


def band(size: int, radius: int, like: Tensor) -> Tensor:
    """Return 0 where a key around a block is within reach of a query of it, -inf elsewhere: (size, size + 2 radius)."""
    offset = torch.arange(size + 2 * radius) - torch.arange(size)[:, None]
    reach = (offset >= 0) & (offset <= 2 * radius)
    return torch.zeros(reach.shape, dtype=like.dtype).masked_fill(~reach, float("-inf")).to(like.device)
