"""A window split over processes: each computes its span of bases, all together what one process would.

Every rank holds consecutive bases, in the order of the ranks. Before each layer that looks around itself, ranks swap
the tokens at their edges; the summaries of global attention are merged by one all-reduce a layer.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import torch
from torch import Tensor, nn
from torch import distributed as dist
from torch.nn import functional

from genoformer.attention import Attention, Summary
from genoformer.attention.distributed import merge
from genoformer.attention.exchange import Bounds, Exchange, gather_bounds
from genoformer.errors import ConfigError
from genoformer.model.encoder import Place, Resident, Span, prepare, tokens_of
from genoformer.model.genoformer import Genoformer
from genoformer.tokens import PAD


def own_span(length: int, *, stride: int, rank: int, ranks: int) -> slice:
    """Return which bases of a window a rank computes, if all get as many tokens, or one less.

    Parameters
    ----------
    length : bases of the window
    stride : bases a token, ``model.encoder.stem.stride``
    rank, ranks : which rank of how many
    """
    tokens = -(-length // stride)
    first, last = (tokens * part // ranks * stride for part in (rank, rank + 1))
    return slice(min(first, length), min(last, length))


def split_logits(
    model: Genoformer,
    codes: Tensor,
    *,
    mask: Tensor | None = None,
    genetic_code: int | Tensor = 11,
    chunk_size: int | None = None,
    group: dist.ProcessGroup | None = None,
) -> dict[str, Tensor]:
    """Predict the logits of this rank's bases of a window, as ``model(whole window)`` would.

    All ranks call it together, with the same model. A loss is the sum of the ranks' losses: divide a mean by the bases
    of all. If one rank calls ``backward()`` on its loss, all must, also one without bases; then `add_up_gradients`.

    Parameters
    ----------
    model : the same on every rank
    codes : Tensor of uint8, (B, bases of this rank), none or more; all ranks but the last that has any hold a multiple
        of the stem's stride
    mask, genetic_code, chunk_size : as of `Genoformer.forward`, for this rank's bases
    group : the processes, one after the other along the window; default all

    Returns
    -------
    dict from track name to logits, (B, bases of this rank, channels)

    Raises
    ------
    ValueError : the spans do not start at tokens, or batches differ
    ConfigError : the window is longer than the model can see

    Examples
    --------
    ``torchrun --nproc-per-node 2 script.py``, with script.py::

        import torch
        from genoformer import load_model
        from genoformer.model.split import own_span, split_logits

        torch.distributed.init_process_group("gloo")
        rank, ranks = torch.distributed.get_rank(), torch.distributed.get_world_size()
        model = load_model("prokaryote-genes")
        window = torch.randint(0, 4, (1, 100_000), generator=torch.Generator().manual_seed(0)).to(torch.uint8)
        mine = own_span(100_000, stride=model.encoder.stem.stride, rank=rank, ranks=ranks)
        with torch.inference_mode():
            print(rank, mine, split_logits(model, window[:, mine])["coding-frame"].shape)
        torch.distributed.destroy_process_group()
    """
    stride = model.encoder.stem.stride
    bounds = gather_bounds(codes.shape[1], group=group)
    _check(model, bounds, codes.shape[0], group)
    if mask is None:
        mask = codes != PAD
    codes, mask = codes.masked_fill(~mask, PAD).to(model.device), mask.to(model.device)
    start, end = bounds[dist.get_rank(group)]
    derived: list[Tensor] = []
    if model.inputs:
        derived = [x[:, start:end] for x in model.derived(_gathered(codes, bounds, group), genetic_code)]
    own = prepare(codes, derived, mask, stride)
    exchange = Exchange(group, [(-(-a // stride), -(-b // stride)) for a, b in bounds])
    sequence = with_neighbors(own, exchange, bounds, stride=stride, reach=reach_of(model))
    logits = model.logits(sequence, chunk_size=chunk_size)
    names = list(logits)
    tied = exchange.finish(torch.cat([logits[name] for name in names], dim=-1))
    parts = tied.split([logits[name].shape[-1] for name in names], dim=-1)
    return dict(zip(names, parts, strict=True))


def add_up_gradients(parameters: Iterable[nn.Parameter], *, group: dist.ProcessGroup | None = None) -> None:
    """Give every rank the sum of the ranks' gradients, by one all-reduce; a gradient that is None counts as zeros."""
    wanted = [parameter for parameter in parameters if parameter.requires_grad]
    if not wanted:
        return
    kind = torch.float64 if any(p.dtype == torch.float64 for p in wanted) else torch.float32
    flat = torch.cat([(torch.zeros_like(p) if p.grad is None else p.grad).to(kind).flatten() for p in wanted])
    dist.all_reduce(flat, group=group)
    for parameter, total in zip(wanted, flat.split([p.numel() for p in wanted]), strict=True):
        parameter.grad = total.view_as(parameter).to(parameter.dtype)


class Part(Place):
    """A resident that holds this rank's tokens and ``reach`` of its neighbors' to each side, fewer at the ends."""

    def __init__(self, exchange: Exchange, reach: int) -> None:
        self.exchange, self.reach = exchange, reach
        start, end = exchange.own
        assert exchange.bounds is not None
        before = min(reach, start - exchange.bounds[0][0]) if start < end else 0
        self.offset = start - before
        self._own = Span(before, before + end - start)

    def own(self, tokens: int) -> Span:
        return self._own

    def around(self, x: Tensor) -> Tensor:
        return self.exchange.around(x, self.reach)

    def merged(self, summary: Summary, attention: Attention) -> Summary:
        return merge(summary, self.exchange, attention)


def reach_of(model: Genoformer) -> int:
    """Return how many tokens beyond its own a rank must see, for any of the model's convolutions."""
    stem, blocks = model.encoder.stem, model.encoder.blocks
    bases = max(stem.side, model.decoder.halo * stem.stride) + stem.reach
    return max(-(-bases // stem.stride), model.decoder.halo, *(int(block.reach) for block in blocks))  # type: ignore[arg-type]


def with_neighbors(own: Resident, exchange: Exchange, bounds: Sequence[Bounds], *, stride: int, reach: int) -> Resident:
    """Turn this rank's bases into the resident that it computes on, with its neighbors' bases at the edges.

    Parameters
    ----------
    own : of this rank's bases alone
    exchange : with the tokens of all ranks
    bounds : bases [start, end) of each rank
    stride, reach : bases a token; tokens wanted to each side
    """
    mask = torch.ones_like(own.bases[..., 0], dtype=torch.bool) if own.base_mask is None else own.base_mask
    with_mask = torch.cat([own.bases, mask[..., None].to(own.bases)], dim=-1)
    around = exchange.around(with_mask, reach * stride, bounds)
    seen = around[..., -1] > 0.5
    start = exchange.own[0]
    reaches = torch.where(own.lengths > 0, own.lengths + start, 0)
    lengths = [torch.empty_like(reaches) for _ in range(exchange.size)]
    dist.all_gather(lengths, reaches, group=exchange.group)
    whole = torch.stack(lengths).amax(dim=0)
    base_mask = None if bool(seen.all()) else seen
    token_mask = None if base_mask is None else tokens_of(base_mask, stride)
    return Resident(around[..., :-1], base_mask, token_mask, whole, Part(exchange, reach))


def _gathered(codes: Tensor, bounds: Sequence[Bounds], group: dist.ProcessGroup | None) -> Tensor:
    """Return the codes of the whole window: a byte a base, on every rank."""
    most = max(end - start for start, end in bounds)
    held = [codes.new_zeros(codes.shape[0], most) for _ in bounds]
    dist.all_gather(held, functional.pad(codes, (0, most - codes.shape[1])), group=group)
    return torch.cat([one[:, : end - start] for one, (start, end) in zip(held, bounds, strict=True)], dim=1)


def _check(model: Genoformer, bounds: Sequence[Bounds], batch: int, group: dist.ProcessGroup | None) -> None:
    """Refuse what cannot be split, on all ranks alike, so that none is left waiting."""
    stride = model.encoder.stem.stride
    for rank, (start, end) in enumerate(bounds):
        if start < end and start % stride:
            raise ValueError(
                f"rank {rank} starts at base {start} of the window, which is no multiple of the model's stride of "
                f"{stride} bases; cut the window with own_span"
            )
    length = bounds[-1][1]
    if model.most_bases is not None and length > model.most_bases:
        raise ConfigError(f"the window has {length} bases, the model can see {model.most_bases}; cut smaller windows")
    batches = {end - start for start, end in gather_bounds(batch, group=group)}
    if len(batches) > 1:
        raise ValueError(f"all ranks must hold the same sequences, but they hold {sorted(batches)} of them")
