"""Checks of streamed sequences over processes, run by test_streaming.py on each rank of a group."""

from __future__ import annotations

import sys
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from ranks import main, over
from tiny import CHOICES, random_codes, tiny_model

from genoformer.attention import attention as contract
from genoformer.model.genoformer import Genoformer
from genoformer.model.rows import Scratch
from genoformer.model.stops import Codes
from genoformer.model.streaming import Chunks, Streamed, exchange_for, stream_values
from genoformer.tokens import PAD

TOLERANCE = 1e-5
"""Of probabilities in float32: sums in another order."""


def CODES(row: Tensor) -> Codes:
    """Give spans of a row of codes (1, L), PAD beyond it."""
    codes = row[0].numpy()

    def span(start: int, end: int) -> np.ndarray:
        found = np.full(end - start, PAD, dtype=np.uint8)
        first, last = min(max(start, 0), len(codes)), min(max(end, 0), len(codes))
        found[first - start : last - start] = codes[first:last]
        return found

    return span


@torch.inference_mode()
def expected(model: Genoformer, codes: Tensor, genetic_code: int = 11) -> Tensor:
    """Predict a whole sequence at once: (bases, channels of all tracks)."""
    logits = model(codes, genetic_code=genetic_code)
    return torch.cat([head.predict(logits[name])[0] for name, head in model.heads.items()], dim=-1)


def streamed(
    model: Genoformer,
    codes: Tensor,
    *,
    size: int,
    offload: bool = False,
    together: bool = False,
    genetic_code: int = 11,
    tick: Callable[[float], None] = lambda _: None,
) -> Tensor:
    """Predict it in chunks; of several processes, this one's bases."""
    length = codes.shape[1]
    with Scratch(offload=offload, device=model.device) as scratch:
        exchange = exchange_for(model, length) if together else None
        chunks = Chunks(size, model.device)
        sequence = Streamed(CODES(codes), length, genetic_code, chunks, scratch, exchange, tick)
        pieces = list(stream_values(model, sequence))
    for (start, values), (following, _) in pairwise(pieces):
        assert start + len(values) == following
    return torch.cat([values for _, values in pieces]) if pieces else torch.empty(0, 7)


MODELS: dict[str, dict[str, Any]] = {
    **{name: CHOICES[name] for name in ("softmax", "hybrid-linformer", "joint", "words", "linformer-max")},
    "inputs": {"attention": ("local", "performer", "local", "performer"), "inputs": ("open-frames", "stop-distances")},
}


@over({name: (choice,) for name, choice in MODELS.items()})
def check_models(rank: int, size: int, choice: dict[str, Any]) -> None:
    """Each rank has its bases of what one process predicts, in chunks, with tokens in memory or in a file."""
    model = tiny_model(**choice)
    for length, chunk, offload in [(200, 9, True), (83, 100, False)]:
        codes = random_codes(length, seed=length)
        bounds = exchange_for(model, length).own
        mine = slice(3 * bounds[0], min(3 * bounds[1], length))
        found = streamed(model, codes, size=chunk, offload=offload, together=True, genetic_code=4)
        torch.testing.assert_close(found, expected(model, codes, 4)[mine], rtol=0, atol=TOLERANCE)


def check_fewer_tokens_than_ranks(rank: int, size: int) -> None:
    model = tiny_model(attention=("hybrid", "local"))
    found = streamed(model, random_codes(2), size=4, together=True)
    assert len(found) in (0, 2)
    if len(found):
        torch.testing.assert_close(found, expected(model, random_codes(2)), rtol=0, atol=TOLERANCE)


if __name__ == "__main__":
    contract.PIECE = 40  # joint attention works in cells of a quarter of it; in the ranks alone
    main(globals())
