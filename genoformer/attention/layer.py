"""The contract of attention on tokens: a layer that projects them, attends, and combines the heads."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional

from genoformer.attention.attention import Attention, Summary, extents, in_float


class MultiHead(nn.Module):
    """Multi-head attention on tokens (B, T, W), streamed as `Attention` is.

    Keys and values are projected together in `summarize`, queries in `attend`; the core sees float32 at least.

    Parameters
    ----------
    width, heads : features of a token; heads, a divisor of width
    attention : the mechanism
    """

    def __init__(self, width: int, heads: int, attention: Attention) -> None:
        super().__init__()
        if width % heads:
            raise ValueError(f"heads = {heads} must divide width = {width}")
        self.heads = heads
        self.project = nn.Linear(width, 3 * width)
        self.combine = nn.Linear(width, width)
        self.attention = attention

    def summarize(
        self,
        tokens: Tensor,
        *,
        start: int = 0,
        lengths: Tensor | None = None,
        mask: Tensor | None = None,
    ) -> Summary:
        """Summarize a chunk of tokens (B, T, W); the other parameters are those of `Attention.summarize`."""
        keys, values = self._projected(tokens, 1, 3)
        with torch.autocast(tokens.device.type, enabled=False):
            return self.attention.summarize(keys, values, start=start, lengths=lengths, mask=mask)

    def finish(self, summary: Summary) -> Summary:
        """Turn the merged summary of all chunks into what `attend` takes."""
        return summary

    def attend(self, tokens: Tensor, summary: Summary, *, start: int = 0) -> Tensor:
        """Answer tokens (B, T, W), the first of which stands at ``start``, from a finished summary -> (B, T, W)."""
        (queries,) = self._projected(tokens, 0, 1)
        with torch.autocast(tokens.device.type, enabled=False):
            attended = self.attention.attend(queries, summary, start=start)
        return self.combine(attended.transpose(1, 2).flatten(2))

    def forward(self, tokens: Tensor, *, mask: Tensor | None = None) -> Tensor:
        """Attend in one go: (B, T, W) -> (B, T, W)."""
        lengths = None if mask is None else extents(mask)
        return self.attend(tokens, self.finish(self.summarize(tokens, lengths=lengths, mask=mask)))

    def _projected(self, tokens: Tensor, first: int, last: int) -> list[Tensor]:
        """Return some of queries (0), keys (1) and values (2), each (B, H, T, D)."""
        batch, count, width = tokens.shape
        rows = slice(first * width, last * width)
        projected = functional.linear(tokens, self.project.weight[rows], self.project.bias[rows])
        parts = projected.view(batch, count, last - first, self.heads, width // self.heads).permute(2, 0, 3, 1, 4)
        return [in_float(part) for part in parts]
