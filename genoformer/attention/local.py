"""Local attention: softmax over the tokens within a radius, with rotary positions."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional

from genoformer.attention.attention import EMPTY, Attention, Segment, Segments, check_chunk, in_float, pieces
from genoformer.attention.recompute import Window, over_windows
from genoformer.attention.softmax import rotate


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
        keys, values, mask = check_chunk(keys, values, mask)
        keys = rotate(keys, start) if self.rotary else keys
        return Segments((Segment(start, keys, values, mask),))

    def attend(self, queries: Tensor, summary: Segments, *, start: int = 0) -> Tensor:  # type: ignore[override]
        tokens, size = queries.shape[2], self.radius
        if tokens == 0:
            return queries
        cut = list(pieces(tokens))
        around = [slice(piece.start, piece.start + self._reach(piece.stop - piece.start)) for piece in cut]
        seen = summary.span(start - size, start - size + around[-1].stop)

        def attend(piece: slice, queries: Tensor, keys: Tensor, values: Tensor) -> tuple[Tensor]:
            queries = rotate(queries, start + piece.start) if self.rotary else queries
            mask = seen.mask[:, piece.start : piece.start + keys.shape[2]]  # type: ignore[index]
            return (self._attend(queries * queries.shape[3] ** -0.5, keys, values, mask),)

        windows = [Window(piece, (piece, keys, keys)) for piece, keys in zip(cut, around, strict=True)]
        (out,) = over_windows(attend, windows, [in_float(queries), seen.keys, seen.values])
        return out.to(queries.dtype)

    def _reach(self, tokens: int) -> int:
        """Return how many keys so many queries need, in whole blocks of ``radius`` and one to each side."""
        return (-(-tokens // self.radius) + 2) * self.radius

    def _attend(self, queries: Tensor, keys: Tensor, values: Tensor, mask: Tensor) -> Tensor:
        """Answer queries (B, H, T, D) from keys that start ``radius`` tokens earlier and are as many as `_reach`."""
        batch, heads, tokens, dim = queries.shape
        size = self.radius  # blocks of `size` queries see the three blocks of keys around them
        blocks = keys.shape[2] // size - 2
        queries = functional.pad(queries, (0, 0, 0, blocks * size - tokens))
        hidden = torch.zeros(mask.shape, dtype=queries.dtype, device=queries.device).masked_fill(~mask, EMPTY)
        # Hidden keys ride as one more dimension, so that the mask of the kernel is the same band for every block.
        keys = torch.cat([keys, hidden[:, None, :, None].expand(-1, heads, -1, -1)], dim=-1)
        queries = functional.pad(queries, (0, 1), value=1.0)
        out = functional.scaled_dot_product_attention(
            queries.view(batch, heads, blocks, size, dim + 1).transpose(1, 2).flatten(0, 1),
            _neighbourhoods(keys, size),
            _neighbourhoods(functional.pad(values, (0, 1)), size),
            attn_mask=self._band(queries),
            scale=1.0,
        )  # (B * blocks, H, size, D + 1)
        out = out.view(batch, blocks, heads, size, dim + 1).transpose(1, 2).flatten(2, 3)
        return out[:, :, :tokens, :dim]

    def _band(self, like: Tensor) -> Tensor:
        """Return 0 where key j of three blocks is within reach of query i of the middle one, -inf elsewhere."""
        offset = torch.arange(3 * self.radius) - torch.arange(self.radius)[:, None]  # (size, 3 size)
        reach = (offset >= 0) & (offset <= 2 * self.radius)
        return torch.zeros(reach.shape, dtype=like.dtype).masked_fill(~reach, float("-inf")).to(like.device)


def _neighbourhoods(tensor: Tensor, size: int) -> Tensor:
    """Lay out each block with its two neighbours: (B, H, (n + 2) size, D) -> (B n, H, 3 size, D)."""
    return tensor.unfold(2, 3 * size, size).permute(0, 2, 1, 4, 3).flatten(0, 1).contiguous()
