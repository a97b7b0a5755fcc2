"""Linear attention over the neighbors of a graph, by a Performer's features: README.md, "Graphs"."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from genoformer.attention.attention import EMPTY, check_chunk, hide, in_float, unit_norm
from genoformer.attention.backward import differentiable_once
from genoformer.attention.moments import KEYS, QUERIES
from genoformer.attention.performer import Performer
from genoformer.attention.recompute import piece_size

_LARGEST_EXPONENT = 60.0


class Edges(NamedTuple):
    """Edges in the order of their targets."""

    source: Tensor  # (E,) int64
    target: Tensor  # (E,) int64, ascending
    weight: Tensor  # (E,) >= 0
    targets: int  # how many nodes there are to attend


class GraphPerformer(nn.Module):
    """h_i = sigma(sum over neighbors j of phi(q_i).phi(k_j) v_j / sum over j of phi(q_i).phi(k_j)).

    On a complete graph this is the Performer itself. There, sums over all keys are shared by all queries; here each
    query has sums of its own, so that the cheapest exact way is one product of features an edge: O(E (M + D)) time,
    and O(M D) for the features of each node that a piece of edges touches. Pieces are worked on one by one, and again
    in the backward pass: memory is that of queries, keys, values and outputs, two numbers an edge and head, and one
    piece; no features are kept.

    Parameters
    ----------
    performer : gives the features, which must not be "trigonometric": weights must be positive
    activation : sigma; None is the identity

    Examples
    --------
    A bubble of a pangenome: segment 0 is followed by either 1 or 2, both by 3. Each segment looks at what precedes it.

    >>> from genoformer.attention import Performer
    >>> attend = GraphPerformer(Performer(1, 4, count=8))
    >>> segments = torch.eye(4).view(1, 1, 4, 4)
    >>> edges = torch.tensor([[0, 0, 1, 2], [1, 2, 3, 3]])  # from, to
    >>> attend(segments, torch.ones(1, 1, 4, 4), segments, edges)[0, 0].detach()
    tensor([[0.0000, 0.0000, 0.0000, 0.0000],
            [1.0000, 0.0000, 0.0000, 0.0000],
            [1.0000, 0.0000, 0.0000, 0.0000],
            [0.0000, 0.5000, 0.5000, 0.0000]])
    """

    def __init__(self, performer: Performer, *, activation: Callable[[Tensor], Tensor] | None = None) -> None:
        super().__init__()
        if performer.kind.rows == "waves":
            raise ValueError(f"attention on graphs needs features that are positive, got {performer.features!r}")
        self.performer, self.activation = performer, activation

    def forward(
        self,
        queries: Tensor,
        keys: Tensor,
        values: Tensor,
        edges: Tensor,
        *,
        weights: Tensor | None = None,
        mask: Tensor | None = None,
    ) -> Tensor:
        """Attend to the neighbors of each node.

        Parameters
        ----------
        queries : Tensor, (B, H, targets, D)
        keys, values : Tensor, (B, H, sources, D); usually sources and targets are the same nodes
        edges : Tensor of int64, (2, E), from sources edges[0] to targets edges[1], in any order; a target attends to
            its sources. Edges that occur twice count twice
        weights : Tensor, (E,) >= 0, factors of the edges' weights; default 1
        mask : Tensor of bool, (B, sources), True at real nodes; others have no influence

        Returns
        -------
        Tensor, (B, H, targets, D); sigma(0) where a target has no neighbor

        Raises
        ------
        ValueError : shapes do not go together, an edge leads to a node that does not exist, a weight is negative
        """
        kind, queries = queries.dtype, in_float(queries)
        keys, values, mask = check_chunk(keys, values, mask)
        ordered = in_order(edges, weights, sources=keys.shape[2], targets=queries.shape[2], like=queries)
        self.performer.gather_moments(keys, KEYS, mask)
        self.performer.gather_moments(queries, QUERIES)
        parameters = [self.performer.rows(side, keys)[0] for side in (QUERIES, KEYS)]
        scores = _EdgeScores.apply(self._scores, ordered, queries, keys, *parameters, self.performer.norm)
        if mask is not None:
            scores = scores.masked_fill(~mask[:, None, ordered.source], EMPTY)
        out = _Mean.apply(scores, ordered.weight, hide(values, mask), ordered).to(kind)
        return out if self.activation is None else self.activation(out)

    def _scores(self, queries: Tensor, keys: Tensor, ends: Edges, *parameters: Tensor) -> Tensor:
        """Return log phi(q).phi(k) of some edges (B, H, E), up to a number a query, from the nodes they touch."""
        query_rows, key_rows, norm = parameters
        phi_q, _ = self._features(queries, QUERIES, query_rows, norm)
        phi_k, scale = self._features(keys, KEYS, key_rows, norm)
        products = (phi_q.index_select(2, ends.target) * phi_k.index_select(2, ends.source)).sum(dim=-1)
        logarithms = products.clamp_min(torch.finfo(products.dtype).tiny).log()
        return logarithms if scale is None else logarithms + scale.index_select(2, ends.source)

    def _features(self, vectors: Tensor, side: int, rows: Tensor, norm: Tensor) -> tuple[Tensor, Tensor | None]:
        """Return features (B, H, T, M) and the logarithm of what to multiply each vector's by, None for a constant."""
        performer = self.performer
        log_weight = performer.rows(side, vectors)[1]
        if performer.is_bounded:
            return performer.phi(vectors, *performer.for_phi(rows, log_weight)), None
        unit = vectors if performer.max_temperature is None else unit_norm(vectors)
        logarithms = unit @ rows.transpose(1, 2)
        logarithms = logarithms if log_weight is None else logarithms + log_weight[:, None]
        largest = logarithms.detach().amax(dim=-1, keepdim=True)
        balance = performer.moments.balance().to(unit.dtype)[:, None] if performer.kind.is_scaled else 1.0
        half_square = 0.5 * (norm.to(unit.dtype)[:, None, None] * unit / balance).square().sum(dim=-1)
        return (logarithms - largest).exp(), largest[..., 0] - half_square


def in_order(edges: Tensor, weights: Tensor | None, *, sources: int, targets: int, like: Tensor) -> Edges:
    """Check edges and sort them by target, if they are not sorted."""
    if edges.ndim != 2 or edges.shape[0] != 2 or edges.dtype != torch.int64:
        raise ValueError(f"edges must be int64 (2, edges), sources and targets, got {edges.dtype} {tuple(edges.shape)}")
    count = edges.shape[1]
    for name, ends, nodes in (("source", edges[0], sources), ("target", edges[1], targets)):
        if count and (int(ends.min()) < 0 or int(ends.max()) >= nodes):
            bad = int(((ends < 0) | (ends >= nodes)).nonzero()[0])
            raise ValueError(
                f"edge {bad} has {name} {int(ends[bad])}, but there are {nodes} nodes; they are numbered from 0"
            )
    if weights is None:
        weights = like.new_ones(count)
    if tuple(weights.shape) != (count,) or bool((weights < 0).any()):
        raise ValueError(f"weights must be ({count},), one an edge, none negative, got {tuple(weights.shape)}")
    source, target = edges
    if bool((target[1:] < target[:-1]).any()):
        target, order = target.sort(stable=True)
        source, weights = source[order], weights[order]
    return Edges(source, target, weights.to(like.dtype), targets)


def _pieces(edges: Edges, row: int) -> Iterator[slice]:
    size = piece_size(row, edges.source.device)
    for start in range(0, len(edges.source), size):
        yield slice(start, start + size)


class _EdgeScores(torch.autograd.Function):
    """Apply a function of queries, keys and parameters to pieces of edges; keep only its inputs for the backward pass.

    Each piece sees the nodes that its edges touch, each once.
    """

    @staticmethod
    def forward(ctx: Any, function: Callable[..., Tensor], edges: Edges, *tensors: Tensor) -> Tensor:
        ctx.function, ctx.edges = function, edges
        ctx.save_for_backward(*tensors)
        queries, keys, *parameters = tensors
        ctx.row = queries.shape[0] * parameters[0].shape[0] * parameters[0].shape[1]
        scores = queries.new_zeros(*queries.shape[:2], len(edges.source))
        for piece in _pieces(edges, ctx.row):
            targets, sources, ends = _touched(edges, piece)
            scores[:, :, piece] = function(queries[:, :, targets], keys[:, :, sources], ends, *parameters)
        return scores

    @staticmethod
    @differentiable_once
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        queries, keys, *parameters = ctx.saved_tensors
        found = [torch.zeros_like(tensor) for tensor in ctx.saved_tensors]
        wanted = ctx.needs_input_grad[2:]
        for piece in _pieces(ctx.edges, ctx.row):
            targets, sources, ends = _touched(ctx.edges, piece)
            inputs = [queries[:, :, targets], keys[:, :, sources], *parameters]
            inputs = [t.detach().requires_grad_(want) for t, want in zip(inputs, wanted, strict=True)]
            with torch.enable_grad():
                scores = ctx.function(*inputs[:2], ends, *inputs[2:])
            asked = [i for i, want in enumerate(wanted) if want]
            grads = torch.autograd.grad(scores, [inputs[i] for i in asked], grad[:, :, piece], allow_unused=True)
            for i, part in zip(asked, grads, strict=True):
                if part is not None and i < 2:
                    found[i][:, :, (targets, sources)[i]] += part
                elif part is not None:
                    found[i] += part
        return None, None, *(tensor if want else None for tensor, want in zip(found, wanted, strict=True))


def _touched(edges: Edges, piece: slice) -> tuple[Tensor, Tensor, Edges]:
    """Return the targets and sources of some edges, each once, and the edges counted among these."""
    targets, target = edges.target[piece].unique_consecutive(return_inverse=True)
    sources, source = edges.source[piece].unique(return_inverse=True)
    return targets, sources, Edges(source, target, edges.weight[piece], len(targets))


class _Mean(torch.autograd.Function):
    """Average the values of each target's sources, weighted by weight exp(score): a softmax over the edges."""

    @staticmethod
    def forward(ctx: Any, scores: Tensor, weight: Tensor, values: Tensor, edges: Edges) -> Tensor:
        batch, heads, targets = *scores.shape[:2], edges.targets
        index = edges.target.expand_as(scores)
        counted = scores.masked_fill(weight <= 0, EMPTY)
        largest = scores.new_full((batch, heads, targets), EMPTY).scatter_reduce(2, index, counted, "amax")
        exponent = (scores - largest.index_select(2, edges.target)).clamp_max(_LARGEST_EXPONENT)
        ratio = exponent.exp().masked_fill(scores <= EMPTY / 2, 0.0)
        total = scores.new_zeros(batch, heads, targets).index_add_(2, edges.target, ratio * weight)
        share = torch.where(total > 0, 1.0 / total, 0.0)  # no weight at all: 0, and no gradient
        ratio = ratio * share.index_select(2, edges.target)
        out = values.new_zeros(batch, heads, targets, values.shape[3])
        for piece in _pieces(edges, batch * heads * values.shape[3]):
            part = (ratio[:, :, piece] * weight[piece])[..., None] * values.index_select(2, edges.source[piece])
            out.index_add_(2, edges.target[piece], part)
        ctx.edges = edges
        ctx.save_for_backward(ratio, weight, values, out)
        return out

    @staticmethod
    @differentiable_once
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        (ratio, weight, values, out), edges = ctx.saved_tensors, ctx.edges
        mean = (grad * out).sum(dim=-1)  # (B, H, targets)
        d_log, d_values = torch.zeros_like(ratio), torch.zeros_like(values)
        for piece in _pieces(edges, ratio.shape[0] * ratio.shape[1] * values.shape[3]):
            source, target = edges.source[piece], edges.target[piece]
            seen = grad.index_select(2, target)
            share = (seen * values.index_select(2, source)).sum(dim=-1) - mean.index_select(2, target)
            d_log[:, :, piece] = ratio[:, :, piece] * share  # over the edge's weight
            d_values.index_add_(2, source, (ratio[:, :, piece] * weight[piece])[..., None] * seen)
        d_weight = d_log.sum(dim=(0, 1)) if ctx.needs_input_grad[1] else None
        return d_log * weight, d_weight, d_values, None
