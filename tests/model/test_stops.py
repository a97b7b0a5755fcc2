"""Derived inputs of pieces are bit for bit those of the whole sequence."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from genoformer.model import stops
from genoformer.model.inputs import INPUTS, MARGIN, stop_codons
from genoformer.model.stops import Codes, StopTable
from genoformer.tokens import PAD, N


def given(codes: np.ndarray) -> Codes:
    """Give spans of codes, PAD beyond them."""

    def span(start: int, end: int) -> np.ndarray:
        found = np.full(end - start, PAD, dtype=np.uint8)
        first, last = min(max(start, 0), len(codes)), min(max(end, 0), len(codes))
        found[first - start : last - start] = codes[first:last]
        return found

    return span


def drawn(length: int, kind: str, rng: np.random.Generator) -> np.ndarray:
    codes = rng.integers(0, 4, length).astype(np.uint8)
    if kind == "unknown letters":
        codes[rng.random(length) < 0.3] = N
    elif kind == "a gap":
        codes[min(20, length // 3) : max(length - 25, length // 2)] = N
    elif kind == "no stop":
        codes[codes == 3] = 1
        codes[codes == 0] = 2
    return codes


@pytest.mark.parametrize("kind", ["letters", "unknown letters", "a gap", "no stop"])
@pytest.mark.parametrize("length", [1, 2, 3, 7, 64, 65, 130, 1001])
def test_pieces_equal_the_whole(length: int, kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stops, "GRID", 64)
    rng = np.random.default_rng(length)
    codes = drawn(length, kind, rng)
    for genetic_code in (11, 4):
        table, is_stop = StopTable(given(codes), length, genetic_code=genetic_code), stop_codons(genetic_code)
        for name, one in INPUTS.items():
            whole = one.compute(torch.from_numpy(codes)[None], is_stop)
            for _ in range(8):
                start = int(rng.integers(0, length))
                end = int(rng.integers(start + 1, length + 1))
                seen = torch.from_numpy(given(codes)(start - MARGIN, end + MARGIN))[None]
                found = one.compute(seen, is_stop, table.around(start, end))
                assert torch.equal(found, whole[:, start:end]), (name, start, end)


def test_memory_does_not_follow_the_stops() -> None:
    """A few numbers for every few thousand bases, also of a sequence of nothing but stop codons."""
    length = 10 * stops.GRID
    table = StopTable(given(np.resize(np.array([3, 0, 0], np.uint8), length)), length, genetic_code=11)
    kept = sum(value.nbytes for value in vars(table).values() if isinstance(value, np.ndarray))
    assert kept < length / 25
