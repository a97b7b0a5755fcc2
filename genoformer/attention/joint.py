"""Joint attention: exact weights nearby, random features for the rest of the sequence, under one denominator."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import functional

from genoformer.attention import attention as contract
from genoformer.attention.attention import Attention, Segment, Segments, check_chunk, in_float, pieces, unit_norm
from genoformer.attention.local import Surroundings, band, covered_by, from_blocks, in_blocks, neighborhoods
from genoformer.attention.moments import KEYS, QUERIES
from genoformer.attention.performer import LOG2_E, Performer
from genoformer.attention.recompute import Window, at_once, over_windows
from genoformer.attention.softmax import attend_with_log_sum, rotate

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
        before = [min(max(3 * cell - 1 - self.first, 0), count) for cell in cells]
        after = [min(max(3 * cell + 4 - self.first, 0), count) for cell in cells]
        outer = self.sums[:, :, : before[0]].sum(dim=2) + self.sums[:, :, after[-1] :].sum(dim=2)
        forth = running(self.sums[:, :, before[0] : before[-1]])[:, :, [at - before[0] for at in before]]
        back = running(self.sums[:, :, after[0] : after[-1]].flip(2))[:, :, [after[-1] - at for at in after]]
        return outer[:, :, None] + (forth + back)


@dataclass(frozen=True)
class Joined:
    """Keys and values as they are for those nearby, sums of features for those far away."""

    near: Segments
    far: Strips

    def __add__(self, other: Joined) -> Joined:
        return Joined(self.near + other.near, self.far + other.far)


class Blocks(NamedTuple):
    """Keys and values around some queries, in whole blocks."""

    keys: Tensor  # (B, H, blocks size, D)
    values: Tensor  # (B, H, blocks size, D)
    hidden: Tensor | None  # (B, 1, blocks size): EMPTY where there is no key, else 0


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
        return max(2, contract.PIECE // (2 * self.radius)) * self.radius

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
        self._gather(keys, start, KEYS, mask)
        first, strips = self._strips(start, start + keys.shape[2])
        rows = self._rows(keys)

        def add_up(piece: slice, keys: Tensor, values: Tensor, norm: Tensor) -> tuple[Tensor]:
            edges = strips[piece.start : piece.stop + 1]
            seen = None if mask is None else mask[:, edges[0] : edges[-1]]
            y, v = self._seen(keys, norm, start + edges[0]), counted(values, seen)
            cuts = [edge - edges[0] for edge in edges]
            sums = [self._sums(cuts, *group) for group in in_groups(y, v, rows.expand(len(y), -1, -1, -1))]
            return (torch.cat(sums).unflatten(0, y.shape[:2]),)

        cells = [slice(i, i + 3) for i in range(0, len(strips) - 1, 3)]
        tokens = [slice(strips[cell.start], strips[cell.stop]) for cell in cells]
        windows = [Window(cell, (own, own)) for cell, own in zip(cells, tokens, strict=True)]
        if windows:
            (sums,) = over_windows(add_up, windows, [keys, values], [self.performer.norm.to(keys.dtype)])
        else:
            sums = keys.new_zeros(*keys.shape[:2], 0, self.performer.count, values.shape[3] + 1)
        return Joined(Segments((Segment(start, keys, values, mask),)), Strips(first, sums))

    def attend(self, queries: Tensor, summary: Joined, *, start: int = 0) -> Tensor:  # type: ignore[override]
        tokens = queries.shape[2]
        if tokens == 0:
            return queries
        self._gather(in_float(queries), start, QUERIES, None)
        cells = range(start // self.cell, -(-(start + tokens) // self.cell))
        asked = [range(max(c * self.cell, start), min((c + 1) * self.cell, start + tokens)) for c in cells]
        covered = covered_by(summary.near)
        around = [self._around(own, covered) for own in asked]
        near = Surroundings(summary.near, around)
        rows = self._rows(near.keys)

        def attend(piece: slice, *tensors: Tensor) -> tuple[Tensor]:
            queries, keys, values, far, norm = tensors
            own = range(start + piece.start, start + piece.stop)
            wanted = self._around(own, covered)
            keys = self._seen(keys, norm, near.start + near.held(wanted).start)
            blocks = Blocks(near.padded(keys, wanted), near.padded(values, wanted), near.hidden(wanted))
            skipped = own.start - wanted.start - self.radius
            return (self._attend(skipped, self._seen(queries, norm, own.start), blocks, far, rows),)

        windows = [
            Window(
                slice(own.start - start, own.stop - start),
                (slice(own.start - start, own.stop - start), *[near.held(wanted)] * 2, slice(i, i + 1)),
            )
            for i, (own, wanted) in enumerate(zip(asked, around, strict=True))
        ]
        sliced = [in_float(queries), near.keys, near.values, summary.far.beyond(cells)]
        (out,) = over_windows(attend, windows, sliced, [self.performer.norm.to(near.keys.dtype)])
        return out.to(queries.dtype)

    def _around(self, own: range, covered: range) -> range:
        """Return the positions of the keys to answer some queries of a cell with, in whole blocks.

        These are the cell's own and a block to each side, without what is neither near the queries nor covered by keys.
        """
        size, blocks, cell = self.radius, self.cell // self.radius, own.start // self.cell
        first = max(cell * blocks - 1, min(own[0] // size - 1, covered.start // size))
        last = min((cell + 1) * blocks, max(own[-1] // size + 1, (covered.stop - 1) // size))
        return range(first * size, (last + 1) * size)

    def _seen(self, vectors: Tensor, norm: Tensor, start: int) -> Tensor:
        """Return queries or keys (B, H, T, D) as weights see them, norms (H,) and positions included."""
        scaled = unit_norm(vectors) * norm[:, None, None]
        return rotate(scaled, start) if self.rotary else scaled

    @torch.no_grad()
    def _gather(self, vectors: Tensor, start: int, side: int, mask: Tensor | None) -> None:
        if self.performer.kind.is_tuned and self.training:
            norm = self.performer.norm.to(vectors.dtype)
            for piece in pieces(vectors.shape[2]):
                seen = self._seen(vectors[:, :, piece], norm, start + piece.start)
                self.performer.moments.gather(seen, side, None if mask is None else mask[:, piece])

    def _strips(self, start: int, end: int) -> tuple[int, list[int]]:
        """Cut [start, end) into strips: the number of the first, where each begins in the chunk and the last ends."""
        if start == end:
            return 0, []
        cells = range(start // self.cell, -(-end // self.cell))
        starts = (0, self.radius, self.cell - self.radius)
        edges = [cell * self.cell + offset for cell in cells for offset in starts] + [cells.stop * self.cell]
        return 3 * cells.start, [min(max(edge, start), end) - start for edge in edges]

    def _attend(self, skipped: int, queries: Tensor, near: Blocks, far: Tensor, rows: Tensor) -> Tensor:
        """Answer queries (B, H, T, D) of one cell, the first ``skipped`` tokens behind the second block of near keys.

        Parameters
        ----------
        far : sums over all tokens that are not near, (B, H, 1, M, D + 1)
        rows : see `_rows`
        """
        (batch, heads, tokens, dim), size = queries.shape, self.radius
        begin, until = skipped // size, -(-(skipped + tokens) // size)  # blocks with queries
        lead = skipped - begin * size
        x = functional.pad(queries, (0, 0, lead, (until - begin) * size - lead - tokens))
        inner = slice(begin * size, (until + 2) * size)
        y, v = (neighborhoods(tensor[:, :, inner], size, size) for tensor in (near.keys, near.values))
        hidden = None
        if near.hidden is not None:
            hidden = near.hidden[:, :, inner, None].expand(-1, heads if batch > 1 else 1, -1, -1)
            hidden = neighborhoods(hidden, size, size)[..., 0]
        exact = attend_with_log_sum(in_blocks(x, size), y, v, hidden, band=band(size, size, x))
        mean, log_sum = from_blocks(exact.mean, batch), from_blocks(exact.log_sum[..., None], batch)
        seen = None if near.hidden is None else near.hidden[:, 0] == 0
        groups = in_groups(x, near.keys, counted(near.values, seen), far, rows.expand(batch, -1, -1, -1))
        parts = zip(*(self._beyond(begin, group) for group in groups), strict=True)
        total, scale = (torch.cat(part).unflatten(0, (batch, heads)) for part in parts)
        weight = torch.exp2(log_sum * LOG2_E - scale)
        mass = total[..., dim:] + weight
        total = total[..., :dim] + weight * mean
        return (total / mass.masked_fill(mass <= 0, 1.0))[:, :, lead : lead + tokens]  # without any key: 0 / 1

    def _beyond(self, begin: int, heads: Sequence[Tensor]) -> tuple[Tensor, Tensor]:
        """Weigh all keys out of reach for queries in whole blocks, those of ``begin + 1``, ... of the keys' blocks.

        Returns sums over 2^scale, (G, tokens, D + 1), and the scale, (G, tokens, 1): one factor a query, taken from
        all of its weights alike, keeps them in range.

        Parameters
        ----------
        heads : of G heads queries (G, tokens, D), keys (G, keys, D), values (G, keys, D + 1), sums over tokens that are
            not near (G, 1, M, D + 1), rows (G, D + 2, M)
        """
        (x, y, v, far, rows), size = heads, self.radius
        log = self._log2_features(x, rows)
        scale = log.detach().amax(dim=-1, keepdim=True)
        phi = log.sub_(scale).exp2_().unflatten(1, (-1, size))  # (G, n, size, M)
        z, v = self._log2_features(y, rows).exp2_().unflatten(1, (-1, size)), v.unflatten(1, (-1, size))
        sums, queried = z.transpose(-1, -2) @ v, range(phi.shape[1])  # (G, blocks of keys, M, D + 1)
        place = torch.arange(z.shape[1]) - torch.tensor(queried)[:, None] - begin - 1
        others = (place.abs() > 1).to(sums)  # of a block's far keys, those of blocks that are no neighbors
        far = torch.baddbmm(far.flatten(2), others.expand(len(x), -1, -1), sums.flatten(2)).unflatten(2, far.shape[2:])
        total = phi @ far
        ones = phi.new_ones(size, size)
        for shift, edge in ((0, ones.tril(-1)), (2, ones.triu(1))):  # and those of neighbors that are out of reach
            block = slice(begin + shift, begin + shift + len(queried))
            total = total + (phi @ z[:, block].transpose(-1, -2)).mul_(edge) @ v[:, block]
        return total.flatten(1, 2), scale

    def _sums(self, edges: Sequence[int], y: Tensor, v: Tensor, rows: Tensor) -> Tensor:
        """Sum up features times values of some heads' keys (G, T, D) between edges: (G, strips, M, D + 1)."""
        z = self._log2_features(y, rows).exp2_()
        return torch.stack([z[:, a:b].transpose(1, 2) @ v[:, a:b] for a, b in pairwise(edges)], dim=1)

    def _rows(self, like: Tensor) -> Tensor:
        """Return what makes log2 of the features of a query or key, half its squared norm, and 1: (H, D + 2, M)."""
        performer = self.performer
        rows, log_weight = performer.tuned_rows(KEYS, like)  # the same for queries: no feature here is scaled
        log_factor = rows.new_full(rows.shape[:2], -0.5 * math.log(performer.count))
        log_factor = log_factor if log_weight is None else log_factor + log_weight
        rows = torch.cat([rows, -torch.ones_like(rows[..., :1]), log_factor[..., None]], dim=-1) * LOG2_E
        return rows.transpose(1, 2)

    def _log2_features(self, scaled: Tensor, rows: Tensor) -> Tensor:
        """Return log2 phi, (..., T, D) -> (..., T, M), of which phi(x).phi(y) estimates exp(x.y) itself."""
        half_square = scaled.square().sum(dim=-1, keepdim=True) / 2
        return torch.cat([scaled, half_square, torch.ones_like(half_square)], dim=-1) @ rows


def most_temperature(dim: int) -> float:
    """Return the largest max_temperature at which exponents of features stay in range."""
    largest_row = math.sqrt(dim) + 4.0  # no norm of Gaussian numbers is larger in practice
    return (_LARGEST_EXPONENT / largest_row) ** 2


def counted(values: Tensor, mask: Tensor | None) -> Tensor:
    """Append a column of ones to values, zeros where masked: whatever weighs values weighs and counts them at once."""
    ones = values.new_ones(1, 1, 1, 1) if mask is None else mask[:, None, :, None].to(values.dtype)
    return torch.cat([values, ones.expand(*values.shape[:3], 1)], dim=-1)


def running(sums: Tensor) -> Tensor:
    """Add up along dimension 2, from nothing on: (B, H, n, M, D) -> (B, H, n + 1, M, D)."""
    return functional.pad(sums.cumsum(dim=2), (0, 0, 0, 0, 1, 0))


def in_groups(*tensors: Tensor) -> Iterator[tuple[Tensor, ...]]:
    """Split queries or keys, more tensors (B, H, ...) and rows into groups of heads whose features fit the caches."""
    row = tensors[0].shape[2] * tensors[-1].shape[-1]
    share = at_once(row, tensors[0].device)
    return zip(*(tensor.flatten(0, 1).split(share) for tensor in tensors), strict=True)
