"""Sequences of all sorts, and blocks put together, for the tests of prediction."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from tiny import Memory, random_bases

from genoformer.regions import Block
from genoformer.tracks import CODING_FRAME

FINE = 2e-3  # of probabilities in float16, whose own steps are up to 5e-4
NAME = CODING_FRAME.name

MIXED = Memory(
    ("long", random_bases(300, 1)),
    ("short", random_bases(31, 2)),
    ("gapped", random_bases(90, 3) + b"N" * 120 + b"acgtnnryACG" + random_bases(40, 4)),
    ("one", b"A"),
    ("unknown", b"N" * 80),
    ("empty", b""),
    *((f"s{number}", random_bases(20 + 3 * number, 10 + number)) for number in range(6)),
)


def joined(blocks: Sequence[Block], sequences: Memory) -> dict[str, np.ndarray]:
    """Put blocks where they belong; each base once; what no block has is infinite."""
    whole = {name: np.full((length, 7), np.inf, dtype=np.float16) for name, length in sequences.lengths().items()}
    for block in blocks:
        assert list(block.values) == [NAME]
        assert block.values[NAME].dtype == np.float16
        target = whole[block.sequence][block.start : block.end]
        assert np.isinf(target).all()
        target[:] = block.values[NAME]
    return whole


def assert_same(one: dict[str, np.ndarray], two: dict[str, np.ndarray]) -> None:
    assert one.keys() == two.keys()
    for name, values in one.items():
        assert np.array_equal(np.isnan(values), np.isnan(two[name]))
        assert np.isinf(values).sum() == np.isinf(two[name]).sum() == 0
        np.testing.assert_allclose(values, two[name], rtol=0, atol=FINE)
