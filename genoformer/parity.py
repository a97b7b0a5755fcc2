"""Parity: does a model compute the same here, whatever the device, the precision, chunks, batches and threads?"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from genoformer.model.device import default_chunk_size
from genoformer.model.genoformer import Genoformer
from genoformer.model.reference import reference_codes
from genoformer.model.strands import predict_values, reverse_complement_rows
from genoformer.tokens import PAD

BASES = 30_000
ALLOWED = {"float32": 2e-3, "bfloat16": 5e-2}
"""Largest difference of a probability from that of float64 on the CPU, by precision."""
ROUNDING = 1e-3
"""Largest difference that the order of sums may make in float32: chunks, batches, threads, strands."""

Values = dict[str, Tensor]


class Comparison(NamedTuple):
    """One way to compute, held against another."""

    what: str
    difference: float
    """largest, of any value of any track; NaN if one is none"""
    allowed: float

    @property
    def holds(self) -> bool:
        return self.difference <= self.allowed  # never so for NaN


def parity(model: Genoformer, *, precision: str = "float32") -> Iterator[Comparison]:
    """Compute a made-up sequence in many ways, and compare.

    Parameters
    ----------
    model : on the device in question
    precision : "float32" or "bfloat16", of that device

    Yields
    ------
    Comparison : first with float64 on the CPU, then of ways to compute on the device with one another. Signals count
        in units of their largest value
    """
    codes = torch.from_numpy(np.concatenate([reference_codes(seed) for seed in range(BASES // 1000)]))[None]
    chunk = default_chunk_size(model.device)

    def here(codes: Tensor, chunk_size: int | None = chunk) -> Values:
        return predict_values(model, codes.to(model.device), chunk_size=chunk_size, precision=precision)

    rounding = ROUNDING if precision == "float32" else ALLOWED[precision]
    usual = here(codes)
    exact = predict_values(copy.deepcopy(model).cpu().double(), codes)
    yield Comparison(f"float64 on cpu, {precision} on {model.device}", _difference(exact, usual), ALLOWED[precision])
    yield Comparison("twice the same", _difference(usual, here(codes)), 0.0)
    for size in (None, 97, 1000):
        name = "the whole at once" if size is None else f"chunks of {size} tokens"
        yield Comparison(name, _difference(usual, here(codes, size)), rounding)
    short = codes[:, :7001]
    together = torch.full((2, codes.shape[1]), PAD, dtype=torch.uint8)
    together[0], together[1, : short.shape[1]] = codes[0], short[0]
    batched = here(together)
    alone = here(short)
    found = max(_difference(usual, _rows(batched, 0)), _difference(alone, _rows(batched, 1, short.shape[1])))
    yield Comparison("two sequences in one batch", found, rounding)
    mirrored = here(reverse_complement_rows(codes))
    for track in model.tracks:
        mirrored[track.name] = mirrored[track.name].flip(1)[..., list(track.reverse_complement)]
    yield Comparison("the opposite strand", _difference(usual, mirrored), rounding)
    if model.device.type == "cpu":
        yield Comparison("one thread", _difference(usual, _with_one_thread(lambda: here(codes))), rounding)


def _difference(one: Values, other: Values) -> float:
    """Return the largest difference between values, relative to the largest value where that is above 1."""
    found = []
    for name, values in one.items():
        values = values.double().cpu()
        found.append((values - other[name].double().cpu()).abs().max() / values.abs().max().clamp_min(1.0))
    return float(torch.stack(found).max())


def _rows(values: Values, row: int, length: int | None = None) -> Values:
    return {name: tensor[row : row + 1, :length] for name, tensor in values.items()}


def _with_one_thread(compute: Callable[[], Values]) -> Values:
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        return compute()
    finally:
        torch.set_num_threads(threads)
