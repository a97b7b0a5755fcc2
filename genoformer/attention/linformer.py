"""Linformer: the keys and values compressed to a fixed number of slots along the sequence."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional

from genoformer.attention.attention import EMPTY, Attention, Summary, check_chunk, in_float, whole_lengths
from genoformer.attention.linear_projections import Convolution, Interpolated, Learned, Mean, Seeded
from genoformer.attention.projections import Dynamic, Max, Projection, Slots

PROJECTIONS: dict[str, type[Projection]] = {
    "learned": Learned,
    "seeded": Seeded,
    "interpolated": Interpolated,
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

    @property
    def compresses_tokens(self) -> bool:  # type: ignore[override]
        return self.projection.compresses_tokens

    def summarize(
        self,
        keys: Tensor,
        values: Tensor,
        *,
        start: int = 0,
        lengths: Tensor | None = None,
        mask: Tensor | None = None,
    ) -> Summary:
        is_one = values is keys
        keys, values, mask = check_chunk(keys, values, mask)
        lengths = whole_lengths(keys, start, lengths)
        return self.projection.compress(keys, keys if is_one else values, start, lengths, mask)

    def finish(self, summary: Summary) -> Slots:
        """Return the slots that the merged summary of all chunks comes down to."""
        return self.projection.slots(summary)

    def attend(self, queries: Tensor, summary: Summary | Slots, *, start: int = 0) -> Tensor:
        slots = summary if isinstance(summary, Slots) else self.finish(summary)
        kind, queries = queries.dtype, in_float(queries).contiguous()  # the kernel is faster on heads that lie apart
        if queries.shape[2] == 0:
            return queries.to(kind)
        bias = None
        if slots.hidden is not None:
            bias = torch.zeros_like(slots.hidden, dtype=queries.dtype).masked_fill(slots.hidden, EMPTY)
            bias = bias[:, :, None].expand(*queries.shape[:3], -1)  # one row of strides 0 for all queries
        # A sequence without any token leaves every slot hidden, and their values are zeros.
        return functional.scaled_dot_product_attention(queries, slots.keys, slots.values, attn_mask=bias).to(kind)
