"""Work through tokens piece by piece; only the inputs are kept for the backward pass, which computes pieces again."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from typing import Any, Literal, NamedTuple

import torch
from torch import Tensor

from genoformer.attention import attention
from genoformer.attention.attention import LogMean
from genoformer.attention.backward import differentiable_once

Piecewise = Callable[..., tuple[Tensor, ...]]
"""Called with a slice of tokens, the pieces of the sliced tensors, and the whole ones."""

_ROOM = {"cpu": 1 << 19}
"""Numbers that stay in the caches of a core or two."""
_ROOM_ELSEWHERE = 1 << 26


def piece_size(row: int, device: torch.device) -> int:
    """Return how many tokens to take at a time if each needs ``row`` numbers in between."""
    if device.type in _ROOM:
        return min(max(256, _ROOM[device.type] // max(row, 1)), attention.PIECE)
    return max(attention.PIECE, _ROOM_ELSEWHERE // max(row, 1))


def at_once(row: int, device: torch.device) -> int:
    """Return how many of something to work on at a time if each needs ``row`` numbers in between."""
    return max(1, _ROOM.get(device.type, _ROOM_ELSEWHERE) // max(row, 1))


def over_pieces(
    function: Piecewise,
    sliced: Sequence[Tensor],
    whole: Sequence[Tensor] = (),
    *,
    join: Literal["cat", "sum", "log"],
    row: int,
    width: int | None = None,
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
    join : "cat" for results that have the piece's tokens along dimension 2, "sum" for results to be added up, "log" for
        pairs of a log_sum (B, H, M) and a mean (B, H, M, D) to be merged as those of a LogMean
    row : numbers that a token needs in between, over batch and heads, which decides the size of the pieces
    width : for a function with one result (B, H, T, width), joined by "cat". It is called with ``out`` too: the piece
        of the whole result to write to and return, or None to return a tensor of its own
    """
    tokens = sliced[0].shape[2]
    size = piece_size(row, sliced[0].device)
    cut = [slice(start, min(start + size, tokens)) for start in range(0, max(tokens, 1), size)]
    windows = [Window(piece, (piece,) * len(sliced)) for piece in cut]
    return _OverPieces.apply(function, join, windows, width, *sliced, *whole)


def over_windows(
    function: Piecewise, windows: Sequence[Window], sliced: Sequence[Tensor], whole: Sequence[Tensor] = ()
) -> tuple[Tensor, ...]:
    """Do what `over_pieces` does with "cat", each piece seeing slices of its own of each tensor, which may overlap."""
    return _OverPieces.apply(function, "cat", list(windows), None, *sliced, *whole)


class Window(NamedTuple):
    """What one piece is about: the tokens that it gives, and those that it takes of each sliced tensor."""

    out: slice
    of: tuple[slice, ...]

    def views(self, tensors: Sequence[Tensor]) -> list[Tensor]:
        """Return the pieces of the sliced tensors, and the others whole."""
        return [t[:, :, self.of[i]] if i < len(self.of) else t for i, t in enumerate(tensors)]


class _OverPieces(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, function: Piecewise, join: str, windows: list[Window], width: int | None, *tensors: Tensor
    ) -> tuple[Tensor, ...]:
        ctx.function = function if width is None else partial(function, out=None)
        ctx.join, ctx.windows = join, windows
        joined: list[Tensor] = []
        with full_precision(tensors[0].device):
            if width is not None:
                joined = [tensors[0].new_empty(*tensors[0].shape[:3], width)]
            for window in windows:
                if width is not None:
                    function(window.out, *window.views(tensors), out=joined[0][:, :, window.out])
                else:
                    parts = function(window.out, *window.views(tensors))
                    joined = _joined(joined, parts, join, window.out, windows[-1].out.stop)
        ctx.save_for_backward(*tensors, *(joined if join == "log" else []))
        return tuple(joined)

    @staticmethod
    @differentiable_once
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        wanted = ctx.needs_input_grad[4:]
        saved = ctx.saved_tensors  # to be asked for once only
        tensors, whole = saved[: len(wanted)], saved[len(wanted) :]
        none = tensors[0].new_empty(0, 0, 0)
        found = [torch.zeros_like(t) if want else none for t, want in zip(tensors, wanted, strict=True)]
        for window in ctx.windows:
            inputs = [t.detach().requires_grad_(want) for t, want in zip(window.views(tensors), wanted, strict=True)]
            with torch.enable_grad(), full_precision(inputs[0].device):
                outputs = ctx.function(window.out, *inputs)
            if ctx.join == "cat":
                shares = tuple(grad[:, :, window.out] for grad in grads)
            else:
                shares = _shares_of_means(outputs, whole, grads) if whole else grads
            pairs = [(out, share) for out, share in zip(outputs, shares, strict=True) if out.requires_grad]
            asked = [x for x in inputs if x.requires_grad]
            with full_precision(inputs[0].device):
                got = iter(_grads(pairs, asked))
            for own, want in zip(window.views(found), wanted, strict=True):
                grad = next(got) if want else None
                if grad is not None:
                    own += grad
        return None, None, None, None, *(own if want else None for own, want in zip(found, wanted, strict=True))


def full_precision(device: torch.device) -> AbstractContextManager[Any]:
    """Turn autocast off, which a backward pass may meet although its forward pass did not, or the reverse."""
    is_possible = torch.amp.is_autocast_available(device.type)
    return torch.autocast(device.type, enabled=False) if is_possible else nullcontext()


def _grads(pairs: Sequence[tuple[Tensor, Tensor]], inputs: Sequence[Tensor]) -> tuple[Tensor | None, ...]:
    return torch.autograd.grad([out for out, _ in pairs], inputs, [grad for _, grad in pairs], allow_unused=True)


def _joined(joined: list[Tensor], parts: Sequence[Tensor], join: str, piece: slice, tokens: int) -> list[Tensor]:
    """Join one more piece to what there is."""
    if piece == slice(0, tokens):
        return list(parts)
    if join == "sum":
        return [a.add_(b) for a, b in zip(joined, parts, strict=True)] if joined else [p.clone() for p in parts]
    if join == "log":
        if not joined:
            return list(parts)
        merged = [LogMean(*a) + LogMean(*b) for a, b in zip(_in_pairs(joined), _in_pairs(parts), strict=True)]
        return [tensor for mean in merged for tensor in (mean.log_sum, mean.mean)]
    joined = joined or [part.new_empty(*part.shape[:2], tokens, *part.shape[3:]) for part in parts]
    for whole, part in zip(joined, parts, strict=True):
        whole[:, :, piece] = part
    return joined


def _in_pairs(tensors: Sequence[Tensor]) -> list[tuple[Tensor, Tensor]]:
    return list(zip(tensors[::2], tensors[1::2], strict=True))


@torch.no_grad()
def _shares_of_means(part: Sequence[Tensor], whole: Sequence[Tensor], grads: Sequence[Tensor]) -> tuple[Tensor, ...]:
    """Return the gradients of one part's log_sums and means from those of the merged ones."""
    shares: list[Tensor] = []
    for mine, merged, upstream in zip(_in_pairs(part), _in_pairs(whole), _in_pairs(grads), strict=True):
        (log_sum, mean), (all_log_sum, all_mean), (d_log_sum, d_mean) = mine, merged, upstream
        weight = torch.exp(log_sum - all_log_sum)
        pull = (d_mean * (mean - all_mean)).sum(dim=-1)
        shares += [weight * (d_log_sum + pull), weight[..., None] * d_mean]
    return tuple(shares)


class Workspace:
    """Memory for the features of one piece after another, made once: asking the system for it costs more than the
    products. Gives none while gradients are recorded, which need what is in it.
    """

    def __init__(self, tokens: Tensor, rows: Tensor) -> None:
        self._shape = tokens.shape[0] * tokens.shape[1], rows.shape[-2]
        self._memory: Tensor | None = None

    def of(self, piece: Tensor) -> Tensor | None:
        """Return room for (B H, tokens of the piece (B, H, T, D), M)."""
        if torch.is_grad_enabled():
            return None
        size = self._shape[0] * self._shape[1] * piece.shape[2]
        if self._memory is None or self._memory.numel() < size:
            self._memory = piece.new_empty(size)
        return self._memory[:size].view(self._shape[0], piece.shape[2], self._shape[1])
