"""A sequence split over processes: summaries merged by one all-reduce, local windows given their neighbors' tokens.

How a summary travels is decided by its type. Sums are added up by the all-reduce itself. Of a type not known here, each
rank's summary travels in a slot of its own, zeros elsewhere, and all are merged by their own ``+`` in the order of the
ranks. Tokens kept as they are have their place in the whole sequence for a slot.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields, is_dataclass, replace
from functools import reduce
from operator import add
from typing import Any, TypeVar

import torch
from torch import Tensor
from torch import distributed as dist
from torch.nn import functional

from genoformer.attention.attention import Attention, Pair, Segment, Segments, Summary, Totals
from genoformer.attention.exchange import Bounds, Exchange
from genoformer.attention.hybrid import Hybrid
from genoformer.attention.joint import Joined, Joint, Strips
from genoformer.attention.linear_projections import Sums
from genoformer.attention.local import Local
from genoformer.attention.nearby import Nothing

ADDED = (Totals, Sums, Strips)
"""Summaries whose ``+`` adds up their tensors."""
FIELDWISE = (Pair, Joined)
"""Summaries whose ``+`` is that of their fields."""

S = TypeVar("S", bound=Summary)


def all_reduce_summary(
    summary: S,
    group: dist.ProcessGroup | None = None,
    *,
    bounds: Sequence[Bounds] | None = None,
    attention: Attention | None = None,
) -> S:
    """Merge the summaries of all ranks, by one all-reduce; the backward pass is another one.

    Every rank gets the same bits. If a rank runs a backward pass, all must, from something that depends on the result:
    one that does not would leave the others waiting. `merge` and `Exchange.finish` see to that for whole models.

    Parameters
    ----------
    summary : of this rank's tokens, given their ``start`` and the ``lengths`` of the whole sequences
    group : the processes; default all
    bounds : tokens [start, end) of each rank, see `gather_bounds`; needed where a summary keeps tokens as they are
    attention : the mechanism. With it, local windows get the tokens next to this rank's own, from its neighbors, and no
        others; without it, tokens kept as they are go to all ranks

    Raises
    ------
    ValueError : bounds or attention are needed and missing, or do not fit the summary
    """
    return merge(summary, Exchange(group, bounds), attention)


def merge(summary: S, exchange: Exchange, attention: Attention | None = None) -> S:
    """Merge the ranks' summaries as `all_reduce_summary` does, as one of several exchanges."""
    marked = _with_halos(summary, exchange, attention)
    own = _contribution(marked, exchange)
    if not own:
        return _collected(marked, iter(()), exchange)  # type: ignore[return-value]
    kind = reduce(torch.promote_types, (tensor.dtype for tensor in own))
    total = exchange.all_reduce(torch.cat([tensor.to(kind).flatten() for tensor in own]))
    parts = total.split([tensor.numel() for tensor in own])
    shaped = (part.view(like.shape).to(like.dtype) for part, like in zip(parts, own, strict=True))
    return _collected(marked, shaped, exchange)  # type: ignore[return-value]


# Local windows -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Near:
    """Segments that have their neighbors already."""

    segments: Segments

    def __add__(self, other: _Near) -> _Near:
        return _Near(self.segments + other.segments)


def _with_halos(summary: Summary, exchange: Exchange, attention: Attention | None) -> Summary:
    """Give local windows their neighbors' tokens, and strips of tokens the same range on every rank."""
    if isinstance(summary, Nothing):
        return summary
    if isinstance(attention, Hybrid):
        assert isinstance(summary, Pair)
        return Pair(
            _with_halos(summary.first, exchange, attention.first),
            _with_halos(summary.second, exchange, attention.second),
        )
    if isinstance(attention, Local):
        assert isinstance(summary, Segments)
        return _Near(_neighbors(summary, exchange, attention.radius))
    if isinstance(summary, Joined):
        if not isinstance(attention, Joint):
            raise ValueError("joint attention lays its sums on a grid: give the attention, too")
        far = _laid_out(summary.far, exchange, attention.cell)
        if isinstance(summary.near, Nothing):
            return Joined(summary.near, far)
        return Joined(_Near(_neighbors(summary.near, exchange, attention.cell + attention.radius)), far)  # type: ignore[arg-type]
    return summary


def _laid_out(strips: Strips, exchange: Exchange, cell: int) -> Strips:
    """Extend strips, three to a cell, to those of the whole sequence."""
    assert exchange.bounds is not None
    first, last = 3 * (exchange.bounds[0][0] // cell), 3 * -(-exchange.bounds[-1][1] // cell)
    count = strips.sums.shape[2]
    before = strips.first - first if count else 0
    return Strips(first, functional.pad(strips.sums, (0, 0, 0, 0, before, last - first - before - count)))


def _neighbors(own: Segments, exchange: Exchange, radius: int) -> Segments:
    """Add the tokens next to this rank's own."""
    (start, end), like = _bounds_of(own, exchange), own.parts[0]
    heads, dim = like.keys.shape[1], like.keys.shape[3]
    edge = min(radius, end - start)
    left, right = exchange.halo(_packed(own, start, start + edge), _packed(own, end - edge, end), radius)

    def unpacked(first: int, tokens: Tensor) -> Segment:
        keys = tokens[..., : heads * dim].unflatten(2, (heads, -1)).transpose(1, 2)
        values = tokens[..., heads * dim : -1].unflatten(2, (heads, -1)).transpose(1, 2)
        return Segment(first, keys, values, tokens[..., -1] > 0.5)

    return Segments((unpacked(start - left.shape[1], left), *own.parts, unpacked(end, right)))


def _packed(segments: Segments, start: int, end: int) -> Tensor:
    """Return keys, values and mask of some tokens side by side (B, T, 2 H D + 1)."""
    held = _span(segments, start, end)
    assert held.mask is not None
    sides = (held.keys.transpose(1, 2).flatten(2), held.values.transpose(1, 2).flatten(2))
    return torch.cat([*sides, held.mask[..., None].to(held.keys)], dim=-1)


# What a rank adds to the sum, and what is read from it ---------------------------------------------------------------


def _contribution(summary: Summary, exchange: Exchange) -> list[Tensor]:
    """Return tensors whose sums over the ranks hold all that is to be merged, zeros where other ranks add theirs."""
    if isinstance(summary, _Near):
        return []
    if isinstance(summary, ADDED):
        return _tensors(summary)
    if isinstance(summary, FIELDWISE):
        return [tensor for part in _values(summary).values() for tensor in _contribution(part, exchange)]
    if isinstance(summary, Segments):
        own = _span(summary, *_bounds_of(summary, exchange))
        assert exchange.bounds is not None
        assert own.mask is not None
        before, after = own.start - exchange.bounds[0][0], exchange.bounds[-1][1] - own.end
        tensors = (own.keys, own.values, own.mask[:, None, :, None].to(own.keys))
        return [functional.pad(tensor, (0, 0, before, after)) for tensor in tensors]
    before, after = exchange.rank, exchange.size - exchange.rank - 1  # a slot for each rank
    return [
        torch.cat([t.new_zeros(before, *t.shape), t[None], t.new_zeros(after, *t.shape)]) for t in _tensors(summary)
    ]


def _collected(summary: Summary, sums: Iterator[Tensor], exchange: Exchange) -> Summary:
    """Return the merged summary from the sums of all contributions, in the same order."""
    if isinstance(summary, _Near):
        return summary.segments
    if isinstance(summary, ADDED):
        return _rebuilt(summary, sums)
    if isinstance(summary, FIELDWISE):
        parts: dict[str, Any] = {n: _collected(part, sums, exchange) for n, part in _values(summary).items()}
        return replace(summary, **parts)
    if isinstance(summary, Segments):
        assert exchange.bounds is not None
        keys, values, mask = next(sums), next(sums), next(sums)
        return Segments((Segment(exchange.bounds[0][0], keys, values, mask[:, 0, :, 0] > 0.5),))
    slots = [next(sums) for _ in _tensors(summary)]
    return reduce(add, (_rebuilt(summary, iter([slot[rank] for slot in slots])) for rank in range(exchange.size)))


def _values(summary: Any) -> dict[str, Any]:
    return {field.name: getattr(summary, field.name) for field in fields(summary)}


def _tensors(summary: Any) -> list[Tensor]:
    """List the tensors of a summary, and of the summaries in it."""
    if isinstance(summary, Tensor):
        return [summary]
    return [t for value in _values(summary).values() for t in _tensors(value)] if is_dataclass(summary) else []


def _rebuilt(summary: Any, tensors: Iterator[Tensor]) -> Any:
    """Return a summary of the same structure from other tensors."""
    if isinstance(summary, Tensor):
        return next(tensors)
    if not is_dataclass(summary):
        return summary
    return replace(summary, **{n: _rebuilt(value, tensors) for n, value in _values(summary).items()})  # type: ignore[type-var]


def _bounds_of(segments: Segments, exchange: Exchange) -> Bounds:
    """Return this rank's bounds, with which the tokens that it holds agree."""
    if exchange.bounds is None:
        raise ValueError("this summary keeps tokens as they are: give the bounds of all ranks, see gather_bounds")
    held = [(part.start, part.end) for part in segments if part.start < part.end]
    start, end = exchange.own
    if sum(b - a for a, b in held) != end - start or any(a < start or b > end for a, b in held):
        raise ValueError(
            f"rank {exchange.rank} holds tokens {held}, its bounds are {start} to {end}; "
            "give summarize the start of the rank"
        )
    return start, end


def _span(segments: Segments, start: int, end: int) -> Segment:
    """Return the tokens of [start, end), which may be none, with a mask."""
    if start < end:
        return segments.span(start, end)
    like = segments.parts[0]
    mask = torch.zeros(like.keys.shape[0], 0, dtype=torch.bool, device=like.keys.device)
    return Segment(start, like.keys[:, :, :0], like.values[:, :, :0], mask)
