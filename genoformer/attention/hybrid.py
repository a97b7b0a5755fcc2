"""Hybrid attention: some heads look around themselves, the others at the whole sequence."""

from __future__ import annotations

import torch
from torch import Tensor

from genoformer.attention.attention import Attention, Pair, Summary


class Hybrid(Attention):
    """Heads shared out between two mechanisms.

    Parameters
    ----------
    first : mechanism of the first ``first_heads`` heads, usually local
    second : mechanism of the rest, usually global
    first_heads : how many heads the first one has
    """

    def __init__(self, first: Attention, second: Attention, *, first_heads: int) -> None:
        super().__init__()
        if first_heads < 1:
            raise ValueError(f"the first mechanism needs at least 1 head, got {first_heads}")
        self.first, self.second, self.first_heads = first, second, first_heads

    def summarize(
        self,
        keys: Tensor,
        values: Tensor,
        *,
        start: int = 0,
        lengths: Tensor | None = None,
        mask: Tensor | None = None,
    ) -> Pair:
        if keys.shape[1] <= self.first_heads:
            raise ValueError(f"a hybrid needs more than {self.first_heads} heads, got {keys.shape[1]}")
        split = self.first_heads
        return Pair(
            self.first.summarize(keys[:, :split], values[:, :split], start=start, lengths=lengths, mask=mask),
            self.second.summarize(keys[:, split:], values[:, split:], start=start, lengths=lengths, mask=mask),
        )

    def finish(self, summary: Summary) -> Pair:
        """Finish both halves."""
        assert isinstance(summary, Pair)
        return Pair(self.first.finish(summary.first), self.second.finish(summary.second))

    def attend(self, queries: Tensor, summary: Summary, *, start: int = 0) -> Tensor:
        assert isinstance(summary, Pair)
        first = self.first.attend(queries[:, : self.first_heads], summary.first, start=start)
        second = self.second.attend(queries[:, self.first_heads :], summary.second, start=start)
        return torch.cat([first, second], dim=1)
