"""A store is read by several threads at once: what each gets is what is there."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import numpy as np
from export_samples import random_values, write_store

from genoformer.regions import Region
from genoformer.store import open_store


def test_threads_read_what_is_there(tmp_path):
    values = {f"s{number}": random_values(3000 + 711 * number, number) for number in range(6)}
    rng = np.random.default_rng(0)
    asked = []
    for _ in range(300):
        name = f"s{rng.integers(6)}"
        start, end = sorted(rng.integers(0, len(values[name]) + 1, 2).tolist())
        asked.append(Region(name, start, end))
    with open_store(write_store(tmp_path / "x.h5", values)) as store, ThreadPoolExecutor(8) as threads:
        for region, found in zip(asked, threads.map(store.values, asked), strict=True):
            assert np.array_equal(found, values[region.sequence][region.start : region.end], equal_nan=True)
        walks = list(threads.map(lambda _: [block.values["signal"] for block in store.blocks()], range(4)))
        whole = np.concatenate(list(values.values()))
        for walk in walks:
            assert np.array_equal(np.concatenate(walk), whole, equal_nan=True)
