"""What the ranks of a process group exchange in one forward pass, and again, in reverse order, in the backward pass.

Each rank holds consecutive tokens of a sequence, in the order of the ranks. Everything is differentiable, for the sum
of all ranks' losses: gradients go back the way the tensors came.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor
from torch import distributed as dist

from genoformer.attention.backward import differentiable_once

Bounds = tuple[int, int]
"""Tokens [start, end) of a rank."""


def gather_bounds(tokens: int, *, group: dist.ProcessGroup | None = None) -> list[Bounds]:
    """Tell every rank where each rank's tokens lie in the whole sequence: [start, end) a rank, in order."""
    size = torch.tensor([tokens], device=_device(group))
    sizes = [torch.empty_like(size) for _ in range(dist.get_world_size(group))]
    dist.all_gather(sizes, size, group=group)
    ends = torch.cat(sizes).cumsum(0).tolist()
    return [(end - int(size), end) for size, end in zip(sizes, ends, strict=True)]


class Exchange:
    """What the ranks of a group exchange in one forward pass, one thing after the other.

    A token passes through all exchanges, so that the backward pass goes through all of them too, in reverse order, on
    every rank: whatever a rank's loss depends on, and however many chunks it works in.

    Parameters
    ----------
    group : the processes; default all
    bounds : tokens [start, end) of each rank
    """

    def __init__(self, group: dist.ProcessGroup | None = None, bounds: Sequence[Bounds] | None = None) -> None:
        self.group, self.bounds = group, None if bounds is None else list(bounds)
        self.rank, self.size = dist.get_rank(group), dist.get_world_size(group)
        if self.bounds is not None:
            _check_bounds(self.bounds, self.size)
        self._token: Tensor | None = None

    @property
    def own(self) -> Bounds:
        """Tokens [start, end) of this rank."""
        assert self.bounds is not None
        return self.bounds[self.rank]

    def _passed(self, like: Tensor) -> Tensor:
        if self._token is None:
            self._token = torch.zeros((), device=like.device, requires_grad=torch.is_grad_enabled())
        return self._token

    def all_reduce(self, flat: Tensor) -> Tensor:
        """Return the sum of the ranks' tensors, differentiably."""
        total, self._token = _AllReduce.apply(flat, self._passed(flat), self.group)
        return total

    def halo(
        self, head: Tensor, tail: Tensor, reach: int, bounds: Sequence[Bounds] | None = None
    ) -> tuple[Tensor, Tensor]:
        """Return the ``reach`` tokens before and after this rank's own (B, n, C), fewer at the sequence's ends.

        They may come from several ranks. A rank without tokens gets none.

        Parameters
        ----------
        head, tail : the first and last ``reach`` tokens of this rank, or as many as it has, (B, n, C)
        reach : tokens to each side
        bounds : of all ranks, if other than those of this exchange
        """
        bounds = self.bounds if bounds is None else bounds
        if bounds is None:
            raise ValueError("a halo needs the bounds of all ranks: see gather_bounds")
        route = _Route(self.group, self.rank, *_counts(bounds, self.rank, reach))
        left, right, self._token = _Halo.apply(head, tail, self._passed(head), route)
        return left, right

    def around(self, x: Tensor, reach: int, bounds: Sequence[Bounds] | None = None) -> Tensor:
        """Return this rank's tokens (B, T, C) with up to ``reach`` of its neighbors' to each side."""
        edge = min(reach, x.shape[1])
        left, right = self.halo(x[:, :edge], x[:, x.shape[1] - edge :], reach, bounds)
        return torch.cat([left, x, right], dim=1)

    def finish(self, x: Tensor) -> Tensor:
        """Return x; its backward pass starts that of all exchanges, even where x depends on none of them."""
        return _Tied.apply(x, self._passed(x))


def _device(group: dist.ProcessGroup | None) -> torch.device:
    return torch.device("cuda" if dist.get_backend(group) == "nccl" else "cpu")


def _check_bounds(bounds: Sequence[Bounds], size: int) -> None:
    follows = all(a[1] == b[0] for a, b in pairwise(bounds))
    if len(bounds) != size or not follows or any(start > end for start, end in bounds):
        raise ValueError(
            f"bounds must be [start, end) of {size} ranks, each starting where the one before ends, got {bounds}"
        )


def _counts(bounds: Sequence[Bounds], rank: int, reach: int) -> tuple[list[int], list[int]]:
    """Return how many tokens a rank gives to each other one, and takes from it, for halos of ``reach``."""

    def given(source: int, target: int) -> int:
        (start, end), (first, last) = bounds[source], bounds[target]
        if source == target or first == last:
            return 0
        return max(0, end - max(start, first - reach)) if source < target else max(0, min(end, last + reach) - start)

    ranks = range(len(bounds))
    return [given(rank, other) for other in ranks], [given(other, rank) for other in ranks]


class _AllReduce(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, flat: Tensor, token: Tensor, group: dist.ProcessGroup | None) -> tuple[Tensor, Tensor]:
        ctx.group = group
        total = flat.clone(memory_format=torch.contiguous_format)
        dist.all_reduce(total, group=group)
        return total, token.clone()

    @staticmethod
    @differentiable_once
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, Tensor, None]:
        total = grads[0].clone(memory_format=torch.contiguous_format)
        dist.all_reduce(total, group=ctx.group)
        return total, grads[1], None


class _Tied(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, token: Tensor) -> Tensor:
        return x.view_as(x)

    @staticmethod
    @differentiable_once
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, Tensor]:
        return grads[0], torch.zeros((), device=grads[0].device)


@dataclass(frozen=True)
class _Route:
    """How many tokens go from this rank to each other one in the forward pass, and come from it."""

    group: dist.ProcessGroup | None
    rank: int
    gives: list[int]
    takes: list[int]

    def swap(self, sent: dict[int, Tensor], counts: Sequence[int], like: Tensor) -> dict[int, Tensor]:
        """Send a tensor to each of some ranks, and receive ``counts`` tokens from each (B, count, C)."""
        received = {
            other: like.new_zeros(like.shape[0], count, like.shape[2]) for other, count in enumerate(counts) if count
        }
        operations = []
        for kind, tensors in ((dist.isend, sent), (dist.irecv, received)):
            for other, tensor in tensors.items():
                peer = other if self.group is None else dist.get_global_rank(self.group, other)
                operations.append(dist.P2POp(kind, tensor, peer, self.group))
        for work in dist.batch_isend_irecv(operations) if operations else []:
            work.wait()
        return received


class _Halo(torch.autograd.Function):
    """Give the first and last tokens of this rank to those that need them, take theirs."""

    @staticmethod
    def forward(ctx: Any, head: Tensor, tail: Tensor, token: Tensor, route: _Route) -> tuple[Tensor, Tensor, Tensor]:
        ctx.route, ctx.edge = route, head.shape[1]
        sent = {
            other: (head[:, :count] if other < route.rank else tail[:, tail.shape[1] - count :]).contiguous()
            for other, count in enumerate(route.gives)
            if count
        }
        received = route.swap(sent, route.takes, head)
        none = head.new_zeros(head.shape[0], 0, head.shape[2])
        left = torch.cat([none, *(received[other] for other in sorted(received) if other < route.rank)], dim=1)
        right = torch.cat([none, *(received[other] for other in sorted(received) if other > route.rank)], dim=1)
        return left, right, token.clone()

    @staticmethod
    @differentiable_once
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, Tensor, Tensor, None]:
        route, (left, right, token) = ctx.route, grads
        takes = [count for other, count in enumerate(route.takes) if other != route.rank]
        others = [other for other in range(len(route.takes)) if other != route.rank]
        pieces = torch.cat([left, right], dim=1).split(takes, dim=1) if takes else ()
        sent = {other: piece.contiguous() for other, piece in zip(others, pieces, strict=True) if piece.shape[1]}
        received = route.swap(sent, route.gives, left)
        head, tail = (left.new_zeros(left.shape[0], ctx.edge, left.shape[2]) for _ in range(2))
        for other in sorted(received):
            if other < route.rank:
                head[:, : route.gives[other]] += received[other]
            else:
                tail[:, ctx.edge - route.gives[other] :] += received[other]
        return head, tail, token, None
