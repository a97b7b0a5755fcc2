"""Work through tokens piece by piece; only the inputs are kept for the backward pass, which computes pieces again."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Literal

import torch
from torch import Tensor

from genoformer.attention import attention

Piecewise = Callable[..., tuple[Tensor, ...]]
"""Called with a slice of tokens, the pieces of the sliced tensors, and the whole ones."""

_ROOM = {"cpu": 1 << 19}
"""Numbers that stay in the caches of a core or two."""
_ROOM_ELSEWHERE = 1 << 26


def piece_size(row: int, device: torch.device) -> int:
    """Return how many tokens to take at a time if each needs ``row`` numbers in between."""
    room = _ROOM.get(device.type, _ROOM_ELSEWHERE)
    return max(256, room // max(row, 1))


def over_pieces(
    function: Piecewise,
    sliced: Sequence[Tensor],
    whole: Sequence[Tensor] = (),
    *,
    join: Literal["cat", "sum"],
    row: int,
) -> tuple[Tensor, ...]:
    """Apply a function to pieces of tokens and join what it returns.

    Neither the forward nor the backward pass forms what is in between for more tokens than a piece: memory for it is
    bounded whatever the number of tokens.

    Parameters
    ----------
    function : called as ``function(piece, *sliced tensors, *whole tensors)``, with ``piece`` a slice of tokens; returns
        a tuple of tensors. It must be deterministic, and gradients flow through these arguments only
    sliced : tensors with tokens along dimension 2
    whole : tensors that each piece sees whole
    join : "cat" for results that have the piece's tokens along dimension 2, "sum" for results to be added up
    row : numbers that a token needs in between, over batch and heads, which decides the size of the pieces
    """
    tokens = sliced[0].shape[2]
    size = min(piece_size(row, sliced[0].device), attention.PIECE)
    cut = [slice(start, min(start + size, tokens)) for start in range(0, max(tokens, 1), size)]
    return _OverPieces.apply(function, join, cut, len(sliced), *sliced, *whole)


class _OverPieces(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, function: Piecewise, join: str, cut: list[slice], count: int, *tensors: Tensor
    ) -> tuple[Tensor, ...]:
        ctx.function, ctx.join, ctx.cut, ctx.count = function, join, cut, count
        ctx.save_for_backward(*tensors)
        ctx.set_materialize_grads(True)
        joined: list[Tensor] = []
        for piece in cut:
            parts = function(piece, *(t[:, :, piece] for t in tensors[:count]), *tensors[count:])
            if len(cut) == 1:
                return parts
            if join == "sum":
                joined = (
                    [a.add_(b) for a, b in zip(joined, parts, strict=True)] if joined else [p.clone() for p in parts]
                )
                continue
            joined = joined or [p.new_empty(*p.shape[:2], cut[-1].stop, *p.shape[3:]) for p in parts]
            for whole, part in zip(joined, parts, strict=True):
                whole[:, :, piece] = part
        return tuple(joined)

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        tensors, count = ctx.saved_tensors, ctx.count
        wanted = ctx.needs_input_grad[4:]
        found = [torch.zeros_like(t) if want else None for t, want in zip(tensors, wanted, strict=True)]
        for piece in ctx.cut:
            inputs = [t[:, :, piece] if i < count else t for i, t in enumerate(tensors)]
            inputs = [t.detach().requires_grad_(want) for t, want in zip(inputs, wanted, strict=True)]
            with torch.enable_grad():
                outputs = ctx.function(piece, *inputs)
            pairs = [
                (out, grad if ctx.join == "sum" else grad[:, :, piece])
                for out, grad in zip(outputs, grads, strict=True)
                if out.requires_grad
            ]
            asked = [i for i, want in enumerate(wanted) if want]
            got = torch.autograd.grad(
                [out for out, _ in pairs], [inputs[i] for i in asked], [grad for _, grad in pairs], allow_unused=True
            )
            for i, grad in zip(asked, got, strict=True):
                own = found[i]
                if grad is None or own is None:
                    continue
                if i < count:
                    own[:, :, piece] = grad
                else:
                    own += grad
        return None, None, None, None, *found


class Workspace:
    """Memory for the features of one piece after another, made once: asking the system for it costs more than the
    products. Gives none while gradients are recorded, which need what is in it.
    """

    def __init__(self, tokens: Tensor, rows: Tensor) -> None:
        self._shape = tokens.shape[0] * tokens.shape[1], rows.shape[-2]
        self._memory: Tensor | None = None

    def of(self, piece: Tensor) -> Tensor | None:
        """Return room for (B H, M, tokens of the piece (B, H, T, D))."""
        if torch.is_grad_enabled():
            return None
        size = self._shape[0] * self._shape[1] * piece.shape[2]
        if self._memory is None or self._memory.numel() < size:
            self._memory = piece.new_empty(size)
        return self._memory[:size].view(*self._shape, piece.shape[2])
