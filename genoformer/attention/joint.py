"""Joint attention: exact weights nearby, random features for the rest of the sequence, under one denominator."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn import functional
from torch.utils.checkpoint import checkpoint

from genoformer.attention import attention as contract
from genoformer.attention.attention import Attention, Segment, Segments, check_chunk, in_float
from genoformer.attention.moments import KEYS, QUERIES
from genoformer.attention.performer import Performer
from genoformer.attention.softmax import rotate

FEATURES = ("positive", "hyperbolic", "regularized", "oprf")
"""Kinds that fit beside exact weights: positive, and estimates of exp(x.y) itself."""

_LARGEST_EXPONENT = 40.0
"""exp of it, or of its negative, leaves float32 room for sums over any sequence and for another such factor."""


@dataclass(frozen=True)
class Strips:
    """Sums of features times values over stretches of tokens, three to a cell: its first block, middle, last block."""

    first: int
    sums: Tensor  # (B, H, S, M, D + 1) of strips first, first + 1, ...; the last column sums the features alone

    def __add__(self, other: Strips) -> Strips:
        if not self.sums.shape[2] or not other.sums.shape[2]:
            return self if self.sums.shape[2] else other
        first = min(self.first, other.first)
        last = max(self.first + self.sums.shape[2], other.first + other.sums.shape[2])
        mine, theirs = (
            functional.pad(s.sums, (0, 0, 0, 0, s.first - first, last - s.first - s.sums.shape[2]))
            for s in (self, other)
        )
        return Strips(first, mine + theirs)

    def beyond(self, cells: range) -> Tensor:
        """Add up, for each cell, all strips but its own and one to each side: (B, H, cells, M, D + 1)."""
        count = self.sums.shape[2]
        forth = functional.pad(self.sums.cumsum(dim=2), (0, 0, 0, 0, 1, 0))  # forth[s]: those before strip s
        back = functional.pad(self.sums.flip(2).cumsum(dim=2), (0, 0, 0, 0, 1, 0)).flip(2)  # back[s]: s and those after
        before = [min(max(3 * cell - 1 - self.first, 0), count) for cell in cells]
        after = [min(max(3 * cell + 4 - self.first, 0), count) for cell in cells]
        return forth[:, :, before] + back[:, :, after]


@dataclass(frozen=True)
class Joined:
    """Keys and values as they are for those nearby, sums of features for those far away."""

    near: Segments
    far: Strips

    def __add__(self, other: Joined) -> Joined:
        return Joined(self.near + other.near, self.far + other.far)


class Window(NamedTuple):
    """One cell's work, as slices of what is at hand: its queries, and keys in whole blocks around them."""

    queries: slice
    keys: slice
    skipped: int  # tokens from the second block of keys to the first query


class Joint(Attention):
    """One mean over the whole sequence, of weights exp(x.y) up to ``radius`` tokens away and phi(x).phi(y) beyond.

    O(T (radius + count)) time. Each key is counted once, and only positive terms are ever added up: nothing is taken
    away again, so nothing cancels (README.md, "Joint"). Scatterbrain (Chen et al. 2021, arXiv 2110.15343)
    also corrects a kernel's estimate where exact weights are had, by subtraction; Long-Short Transformers (Zhu et al.
    2021, arXiv 2107.02192) put a window and a global summary under one softmax, near tokens in both.

    Parameters
    ----------
    performer : gives queries and keys their norms and their features, of kind FEATURES
    radius : tokens to each side that are seen exactly
    rotary : turn queries and keys by their positions
    """

    def __init__(self, performer: Performer, *, radius: int = 64, rotary: bool = False) -> None:
        super().__init__()
        if radius < 1:
            raise ValueError(f"radius must be at least 1 token, got {radius}")
        if performer.features not in FEATURES:
            raise ValueError(f"joint attention needs features of {', '.join(FEATURES)}; got {performer.features!r}")
        most = most_temperature(performer.dim)
        if performer.max_temperature is None or performer.max_temperature > most:
            raise ValueError(
                f"joint attention of {performer.dim} dimensions needs a max_temperature of at most {most:.3g}, "
                f"got {performer.max_temperature}"
            )
        self.performer, self.radius, self.rotary = performer, radius, rotary

    @property
    def cell(self) -> int:
        """Tokens worked on at a time: some blocks of ``radius``. Cells lie on one grid, whatever the chunks."""
        return max(2, contract.PIECE // (4 * self.radius)) * self.radius

    def summarize(
        self,
        keys: Tensor,
        values: Tensor,
        *,
        start: int = 0,
        lengths: Tensor | None = None,
        mask: Tensor | None = None,
    ) -> Joined:
        keys, values, mask = check_chunk(keys, values, mask)
        keys = self._scaled(keys, start)
        self._gather(keys, KEYS, mask)
        first, sizes = self._strips(start, start + keys.shape[2])
        parts = zip(keys.split(sizes, dim=2), counted(values, mask).split(sizes, dim=2), strict=True)
        sums = [recomputed(self._sums, *part) for part in parts]
        empty = keys.new_zeros(*keys.shape[:2], 0, self.performer.count, values.shape[3] + 1)
        far = Strips(first, torch.stack(sums, dim=2) if sums else empty)
        return Joined(Segments((Segment(start, keys, values, mask),)), far)

    def attend(self, queries: Tensor, summary: Joined, *, start: int = 0) -> Tensor:  # type: ignore[override]
        if queries.shape[2] == 0:
            return queries
        x = self._scaled(in_float(queries), start)
        self._gather(x, QUERIES, None)
        cells = range(start // self.cell, -(-(start + x.shape[2]) // self.cell))
        covered = range(min(s.start for s in summary.near), max(s.end for s in summary.near))
        asked = range(start, start + x.shape[2])
        spans = [self._spans(cell, asked, covered) for cell in cells]
        first = spans[0][1].start
        windows = [
            Window(
                slice(own.start - start, own.stop - start),
                slice(around.start - first, around.stop - first),
                own.start - around.start - self.radius,
            )
            for own, around in spans
        ]
        near = summary.near.span(first, spans[-1][1].stop)
        values = counted(near.values, near.mask)
        out = _OverWindows.apply(self._attend, windows, x, near.keys, values, summary.far.beyond(cells))
        return out.to(queries.dtype)

    def _spans(self, cell: int, asked: range, covered: range) -> tuple[range, range]:
        """Return a cell's positions among those asked for, and those of the keys to work with, in whole blocks.

        These are the cell's own and a block to each side, without what is neither near the former nor covered by keys.
        """
        size, blocks = self.radius, self.cell // self.radius
        own = range(max(cell * self.cell, asked.start), min((cell + 1) * self.cell, asked.stop))
        first = max(cell * blocks - 1, min(own[0] // size - 1, covered.start // size))
        last = min((cell + 1) * blocks, max(own[-1] // size + 1, (covered.stop - 1) // size))
        return own, range(first * size, (last + 1) * size)

    def _scaled(self, vectors: Tensor, start: int) -> Tensor:
        scaled = self.performer.scaled(vectors)
        return rotate(scaled, start) if self.rotary else scaled

    def _gather(self, scaled: Tensor, side: int, mask: Tensor | None) -> None:
        if self.performer.kind.is_tuned:
            self.performer.moments.gather(scaled, side, mask)

    def _strips(self, start: int, end: int) -> tuple[int, list[int]]:
        """Cut [start, end) into strips: the number of the first, and how many tokens of each and the next are there."""
        if start == end:
            return 0, []
        cells = range(start // self.cell, -(-end // self.cell))
        starts = (0, self.radius, self.cell - self.radius)
        edges = [cell * self.cell + offset for cell in cells for offset in starts] + [cells.stop * self.cell]
        inside = [min(max(edge, start), end) for edge in edges]
        return 3 * cells.start, [b - a for a, b in pairwise(inside)]

    def _sums(self, keys: Tensor, values: Tensor) -> Tensor:
        return self._log_features(keys).exp().transpose(-1, -2) @ values  # (..., M, D + 1)

    def _attend(self, skipped: int, queries: Tensor, keys: Tensor, values: Tensor, far: Tensor) -> Tensor:
        """Answer queries of one cell, the first of them ``skipped`` tokens behind the start of the second block.

        Parameters
        ----------
        keys, values : of the cell and a block to each side, (B, H, blocks size, D) and (..., D + 1), see `counted`
        far : sums over all other tokens, (B, H, M, D + 1)
        """
        size, tokens, dim = self.radius, queries.shape[2], values.shape[3] - 1
        begin, until = skipped // size, -(-(skipped + tokens) // size)  # blocks with queries
        lead = skipped - begin * size
        x = in_blocks(functional.pad(queries, (0, 0, lead, (until - begin) * size - lead - tokens)), size)
        y, v = in_blocks(keys, size), in_blocks(values, size)  # (B, H, blocks, size, ...)
        z = self._log_features(y).exp()
        far = far[:, :, None] + others(z.transpose(-1, -2) @ v)[:, :, begin:until]  # (B, H, n, M, D + 1)
        left, middle, right = (slice(begin + i, until + i) for i in range(3))
        y, v = (torch.cat([t[:, :, left], t[:, :, middle], t[:, :, right]], dim=3) for t in (y, v))
        # One factor a query, taken from all of its weights alike, keeps them in range.
        log = self._log_features(x)
        scale = log.detach().amax(dim=-1, keepdim=True)
        phi = torch.exp(log - scale)
        near = torch.exp(x @ y.transpose(-1, -2) - scale)  # (B, H, n, size, 3 size)
        before = torch.where(_triangle(near, size), near[..., :size], phi @ z[:, :, left].transpose(-1, -2))
        after = torch.where(_triangle(near, size).T, near[..., 2 * size :], phi @ z[:, :, right].transpose(-1, -2))
        total = torch.cat([before, near[..., size : 2 * size], after], dim=-1) @ v + phi @ far
        total = total.flatten(2, 3)[:, :, lead : lead + tokens]
        mass = total[..., dim:]
        return total[..., :dim] / mass.masked_fill(mass <= 0, 1.0)  # without any key: 0 / 1

    def _log_features(self, scaled: Tensor) -> Tensor:
        """Return log phi, (B, H, ..., D) -> (B, H, ..., M), of which phi(x).phi(y) estimates exp(x.y) itself."""
        performer = self.performer
        rows = performer.projection.to(scaled.dtype)  # (H, M, D)
        log_factor = rows.new_full(rows.shape[:2], -0.5 * math.log(performer.count))
        if performer.kind.is_tuned:
            moments = performer.moments
            damping = moments.damping(torch.ones_like(moments.square[0])).to(rows.dtype)[:, None]  # (H, 1)
            log_factor = (
                log_factor + damping * rows.square().sum(dim=-1) + torch.log1p(-4 * damping) * performer.dim / 4
            )
            rows = rows * (1 - 4 * damping[..., None]).sqrt()
        shape = (len(rows), *(1,) * (scaled.ndim - 4))
        half_square = scaled.square().sum(dim=-1, keepdim=True) / 2
        rows, log_factor = rows.transpose(1, 2).unflatten(0, shape), log_factor[:, None].unflatten(0, shape)
        return scaled @ rows + log_factor - half_square


def most_temperature(dim: int) -> float:
    """Return the largest max_temperature at which exponents of features stay in range."""
    largest_row = math.sqrt(dim) + 4.0  # no norm of Gaussian numbers is larger in practice
    return (_LARGEST_EXPONENT / largest_row) ** 2


def recomputed(function: Callable[..., Tensor], *tensors: Tensor) -> Tensor:
    """Call a function, keeping only its arguments for the backward pass."""
    if not torch.is_grad_enabled():
        return function(*tensors)
    return checkpoint(function, *tensors, use_reentrant=False, preserve_rng_state=False)


def counted(values: Tensor, mask: Tensor | None) -> Tensor:
    """Append a column of ones to values, zeros where masked: whatever weighs values weighs and counts them at once."""
    ones = values.new_ones(1, 1, 1, 1) if mask is None else mask[:, None, :, None].to(values.dtype)
    return torch.cat([values, ones.expand(*values.shape[:3], 1)], dim=-1)


def in_blocks(tensor: Tensor, size: int) -> Tensor:
    """Cut tokens into blocks: (B, H, n size, C) -> (B, H, n, size, C)."""
    return tensor.unflatten(2, (-1, size))


def others(sums: Tensor) -> Tensor:
    """Add up, for each inner block, all blocks but it and its neighbors: (B, H, n + 2, ...) -> (B, H, n, ...)."""
    inner = sums.shape[2] - 2
    forth = functional.pad(sums[:, :, : inner - 1].cumsum(dim=2), (0, 0, 0, 0, 1, 0))
    back = functional.pad(sums[:, :, 3:].flip(2).cumsum(dim=2).flip(2), (0, 0, 0, 0, 0, 1))
    return forth + back


def _triangle(like: Tensor, size: int) -> Tensor:
    """Tell which keys of the block before are within reach of each query (size, size); its mirror image: behind."""
    return torch.ones(size, size, dtype=torch.bool, device=like.device).triu()


class _OverWindows(torch.autograd.Function):
    """Apply a function window by window; keep only the inputs, and compute each window again in the backward pass."""

    @staticmethod
    def forward(ctx: Any, function: Callable[..., Tensor], windows: Sequence[Window], *tensors: Tensor) -> Tensor:
        ctx.function, ctx.windows = function, windows
        ctx.save_for_backward(*tensors)
        parts = [function(w.skipped, *pieces(w, i, tensors)) for i, w in enumerate(windows)]
        return torch.cat(parts, dim=2)

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        tensors = ctx.saved_tensors
        found = [torch.zeros_like(t) for t in tensors]
        for i, window in enumerate(ctx.windows):
            inputs = [t.detach().requires_grad_() for t in pieces(window, i, tensors)]
            with torch.enable_grad():
                out = ctx.function(window.skipped, *inputs)
            grads = torch.autograd.grad(out, inputs, grad[:, :, window.queries])
            for whole, part in zip(pieces(window, i, found), grads, strict=True):
                whole += part
        return None, None, *found


def pieces(window: Window, index: int, tensors: Sequence[Tensor]) -> tuple[Tensor, ...]:
    """Return a window's queries, keys, values and sums of far tokens."""
    queries, keys, values, far = tensors
    return queries[:, :, window.queries], keys[:, :, window.keys], values[:, :, window.keys], far[:, :, index]
