"""The contract of attention on tokens: a layer that projects them, attends, and combines the heads."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from genoformer.attention.attention import PIECE, Attention, Summary, extents, in_float, pieces


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
        with_tokens = self.attention.compresses_tokens
        keys, values = [in_float(tokens)[:, None]] * 2 if with_tokens else self._projected(tokens, 1, 3)
        with torch.autocast(tokens.device.type, enabled=False):
            return self.attention.summarize(keys, values, start=start, lengths=lengths, mask=mask)

    def finish(self, summary: Summary) -> Any:
        """Turn the merged summary of all chunks into what `attend` takes.

        Where tokens were compressed, it is here that the slots become keys and values: E (X W + 1 b) is (E X) W +
        (E 1) b, README.md, "Linformer".
        """
        slots = self.attention.finish(summary)
        if not self.attention.compresses_tokens:
            return slots
        with torch.autocast(slots.keys.device.type, enabled=False):
            sides = [
                self._of_slots(slots.keys, slots.ones[:, 0], 1),
                self._of_slots(slots.values, slots.ones[:, -1], 2),
            ]
        return replace(slots, keys=sides[0], values=sides[1], ones=None)

    def _of_slots(self, tokens: Tensor, ones: Tensor, which: int) -> Tensor:
        """Make keys (1) or values (2) (B, H, M, D) of compressed tokens (B, 1, M, W) and what a 1 came to (B, 1, M)."""
        width = tokens.shape[-1]
        rows = slice(which * width, (which + 1) * width)
        weight, bias = (x[rows].to(tokens.dtype) for x in (self.project.weight, self.project.bias))
        projected = functional.linear(tokens[:, 0], weight) + ones[:, 0, :, None] * bias  # (B, M, W)
        return projected.unflatten(2, (self.heads, width // self.heads)).transpose(1, 2).contiguous()

    def attend(self, tokens: Tensor, summary: Any, *, start: int = 0) -> Tensor:
        """Answer tokens (B, T, W), the first of which stands at ``start``, from a finished summary -> (B, T, W)."""
        if torch.is_grad_enabled() or tokens.shape[1] <= PIECE:
            return self._attend(tokens, summary, start)
        # In pieces, queries and what heads return stay in the caches and need no fresh memory.
        first, *rest = pieces(tokens.shape[1])
        answer = self._attend(tokens[:, first], summary, start)
        answers = answer.new_empty(*tokens.shape[:2], answer.shape[2])
        answers[:, first] = answer
        for piece in rest:
            answers[:, piece] = self._attend(tokens[:, piece], summary, start + piece.start)
        return answers

    def _attend(self, tokens: Tensor, summary: Any, start: int) -> Tensor:
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
