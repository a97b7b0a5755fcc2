"""Blocks joined: in any order, with NaN where nothing is."""

from __future__ import annotations

from itertools import pairwise

import numpy as np

from genoformer.blocks import collect
from genoformer.regions import Block


def test_any_order_gives_the_whole():
    rng = np.random.default_rng(0)
    whole = {"a": rng.normal(size=(50, 3)), "b": rng.normal(size=(7, 3))}
    cuts = {"a": [0, 13, 14, 50], "b": [0, 7]}
    blocks = [
        Block(name, start, {"t": whole[name][start:end].astype(np.float16), "u": np.arange(start, end)[:, None]})
        for name, places in cuts.items()
        for start, end in pairwise(places)
    ]
    for order in (blocks, blocks[::-1]):
        found = collect(iter(order))
        for name, values in whole.items():
            assert np.array_equal(found[name]["t"], values.astype(np.float16))
            assert found[name]["t"].dtype == np.float16
            assert found[name]["u"][:, 0].tolist() == list(range(len(values)))


def test_what_has_no_block_is_nan_or_missing():
    found = collect([Block("a", 3, {"t": np.ones((2, 1), np.float16)})])
    assert np.array_equal(found["a"]["t"][:, 0], [np.nan, np.nan, np.nan, 1, 1], equal_nan=True)
    assert collect([]) == {}
