"""Checks of summaries and halos across processes, run by test_distributed.py on each rank of a group."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, fields
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, distributed

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from ranks import main, over

from attention.cases import CASES, DIM, HEADS, Case, close, draw, gradients, lengths_of, prefix_mask, total
from genoformer.attention import Joint, Summary
from genoformer.attention import attention as contract
from genoformer.attention.distributed import all_reduce_summary, merge
from genoformer.attention.exchange import Bounds, Exchange, gather_bounds

TOKENS = 23
TOLERANCE = 1e-12  # as of chunks: sums in another order
MASKS: dict[str, Callable[[], Tensor | None]] = {
    "none": lambda: None,
    "end": lambda: prefix_mask([TOKENS, 9], TOKENS),
    "holes": lambda: torch.rand(2, TOKENS, generator=torch.Generator().manual_seed(3)) < 0.5,
    "nothing": lambda: prefix_mask([TOKENS, 0], TOKENS),
}
SHARES = {
    2: [("none", [12, 11]), ("holes", [2, 21]), ("nothing", [0, 23])],
    3: [("holes", [13, 1, 9]), ("none", [8, 0, 15]), ("end", [0, 23, 0])],
}
"""A mask, and the tokens of each rank: many, fewer than a local window reaches, none."""
contract.PIECE = 40  # joint attention works in cells of a quarter of it, or of two radii


@contextmanager
def counted() -> Iterator[dict[str, int]]:
    """Count the collectives of this rank, by name."""
    counts: dict[str, int] = {}
    names = ("all_reduce", "all_gather", "batch_isend_irecv")
    kept = {name: getattr(distributed, name) for name in names}

    def counting(name: str) -> Any:
        def call(*arguments: Any, **options: Any) -> Any:
            counts[name] = counts.get(name, 0) + 1
            return kept[name](*arguments, **options)

        return call

    for name in names:
        setattr(distributed, name, counting(name))
    try:
        yield counts
    finally:
        for name in names:
            setattr(distributed, name, kept[name])


def bounds_of(sizes: list[int]) -> list[Bounds]:
    return [(sum(sizes[:rank]), sum(sizes[: rank + 1])) for rank in range(len(sizes))]


def tensors_of(summary: Any) -> list[Tensor]:
    if isinstance(summary, Tensor):
        return [summary]
    if isinstance(summary, tuple):
        return [tensor for part in summary for tensor in tensors_of(part)]
    names = [field.name for field in fields(summary)] if hasattr(summary, "__dataclass_fields__") else []
    return [tensor for name in names for tensor in tensors_of(getattr(summary, name))]


def same_everywhere(summary: Summary, size: int) -> bool:
    """Tell whether all ranks hold the same bits."""
    flat = torch.cat([tensor.detach().double().flatten() for tensor in tensors_of(summary)])
    held = [torch.empty_like(flat) for _ in range(size)]
    distributed.all_gather(held, flat)
    return all(torch.equal(one.view(torch.int64), flat.view(torch.int64)) for one in held)


def compare(case: Case, mask: Tensor | None, bounds: list[Bounds], *, rank: int, near: bool, chunks: int) -> None:
    """Outputs and gradients of this rank's tokens, and the summed ones of parameters, are those of one process."""
    module = case.module(dtype=torch.float64, tokens=TOKENS)
    parameters = list(module.parameters())
    inputs = [x.requires_grad_() for x in draw(2, HEADS, TOKENS, DIM, seed=5)]
    whole = module(*inputs, mask=mask)
    expected = gradients(whole, [*inputs, *parameters])
    weights = torch.randn(whole.shape, generator=torch.Generator().manual_seed(9), dtype=torch.float64)

    (start, end), size = bounds[rank], len(bounds)
    own = [x.detach()[:, :, start:end].requires_grad_() for x in inputs]
    own_mask = None if mask is None else mask[:, start:end]
    lengths = lengths_of(mask, 2, TOKENS)
    cut = [start + (end - start) * i // chunks for i in range(chunks + 1)]
    parts = [
        module.summarize(
            *(x[:, :, a - start : b - start] for x in own[1:]),
            start=a,
            lengths=lengths,
            mask=None if own_mask is None else own_mask[:, a - start : b - start],
        )
        for a, b in pairwise(cut)
    ]
    exchange = Exchange(bounds=bounds)
    with counted() as counts:
        if near:
            merged = merge(total(parts), exchange, module)
        else:
            merged = all_reduce_summary(total(parts), bounds=bounds)
            assert counts == {"all_reduce": 1}, counts
    if not near:
        assert same_everywhere(merged, size)
    out = module.attend(own[0], merged, start=start)
    loss = ((exchange.finish(out) if near else out) * weights[:, :, start:end]).sum()
    if not near and start == end:  # queries that are none do not depend on the summary
        loss = loss + sum(0.0 * tensor.sum() for tensor in tensors_of(merged) if tensor.requires_grad)
    with counted() as back:
        loss.backward()
    assert back == counts, (back, counts)
    assert counts.get("all_reduce", 0) <= 1
    found = [torch.zeros_like(x) if x.grad is None else x.grad for x in (*own, *parameters)]
    close(out, whole[:, :, start:end], TOLERANCE, "output")
    for i, (got, want) in enumerate(zip(found, expected, strict=True)):
        if i < 3:
            close(got, want[:, :, start:end], TOLERANCE, f"gradient of input {i}")
        else:
            distributed.all_reduce(got)
            close(got, want, TOLERANCE, f"gradient of parameter {i - 3}")


def check_bounds(rank: int, size: int) -> None:
    sizes = [5, 0, 3][:size]
    assert gather_bounds(sizes[rank]) == bounds_of(sizes)


@over({name: (case,) for name, case in CASES.items() if not isinstance(case.module(dtype=torch.float64), Joint)})
def check_summaries(rank: int, size: int, case: Case) -> None:
    """One collective each way, the same bits on every rank, whatever the mechanism."""
    for mask, sizes in SHARES[size][1:]:
        compare(case, MASKS[mask](), bounds_of(sizes), rank=rank, near=False, chunks=1)


@over({name: (case,) for name, case in CASES.items()})
def check_with_halos(rank: int, size: int, case: Case) -> None:
    """As a model does it: local windows get their neighbors' tokens, and one all-reduce or none is all besides."""
    for mask, sizes in SHARES[size]:
        compare(case, MASKS[mask](), bounds_of(sizes), rank=rank, near=True, chunks=2)


def check_new_summaries_merge_by_their_own_addition(rank: int, size: int) -> None:
    """A type that nobody told of, with a `+` that is no sum, and with fields that are no tensors."""
    mine = Product(torch.tensor([rank + 2.0], dtype=torch.float64).requires_grad_(), "name")
    merged = all_reduce_summary(mine)
    assert merged.name == "name"
    assert merged.factor.item() == {2: 6.0, 3: 24.0}[size]
    (merged.factor * (rank + 1)).sum().backward()
    assert mine.factor.grad.item() == merged.factor.item() / (rank + 2) * sum(range(size + 1))


def check_refusals(rank: int, size: int) -> None:
    k, v = draw(1, HEADS, 5, DIM, count=2)
    kept = CASES["softmax"].module(dtype=torch.float64).summarize(k, v)
    refused(lambda: all_reduce_summary(kept), "give the bounds of all ranks")
    refused(lambda: all_reduce_summary(kept, bounds=[(4 * i, 4 * i + 4) for i in range(size)]), "holds tokens")
    refused(lambda: Exchange(bounds=[(0, 4)] * size), "bounds must be")
    refused(lambda: Exchange().halo(k[0], k[0], 2), "needs the bounds")
    refused(lambda: all_reduce_summary(joined(k, v), bounds=[(5 * i, 5 * i + 5) for i in range(size)]), "grid")


def refused(call: Callable[[], Any], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        call()


def joined(k: Tensor, v: Tensor) -> Summary:
    case = next(case for case in CASES.values() if isinstance(case.module(dtype=torch.float64), Joint))
    return case.module(dtype=torch.float64).summarize(k, v)


@dataclass(frozen=True)
class Product:
    factor: Tensor
    name: str

    def __add__(self, other: Product) -> Product:
        return Product(self.factor * other.factor, self.name)


if __name__ == "__main__":
    main(globals())
