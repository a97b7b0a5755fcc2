"""Stores written by every released layout are read for ever. The files here are never written again."""

from __future__ import annotations

import hashlib
from pathlib import Path

import numpy as np

from genoformer.store import open_store
from genoformer.tracks import CODING_FRAME

ARCHIVE = Path(__file__).parent / "archive"


def test_version_1() -> None:
    path = ARCHIVE / "v1" / "store.h5"
    assert (
        hashlib.md5(path.read_bytes()).hexdigest() == "d2502efda7e56ad4b3baf0ba6f3718b6"
    )  # the file as it was written then
    with open_store(path) as store:
        table = store.sequences
        assert store.tracks == {"coding-frame": CODING_FRAME}
        assert store.metadata == {"identity": {"model": "none"}, "command": "genoformer predict"}
        assert table.names == ["chr1", "ENA|AB|AB.1:1-9/x", "caf\udce9", "empty"]
        assert table.lengths.tolist() == [500, 60, 20, 0]
        assert table.topology == ["linear", "circular", "linear", "linear"]
        assert table.status == ["predicted", "predicted", "masked", "skipped"]
        assert table.reason == ["", "", "", "it has no bases"]
        assert table.md5 == ["b4c9a289323b21a01c3e940f150eb9b8", "", "", ""]
        wanted = (np.arange(580)[:, None] * 7 + np.arange(7)).astype(np.float16) / 4096
        wanted[:, 0] = 0.5
        wanted[100:110] = np.nan
        found = np.concatenate([store["chr1"], store["ENA|AB|AB.1:1-9/x"]])
        assert np.array_equal(found, wanted[:560], equal_nan=True)
        assert np.isnan(store["caf\udce9"]).all()
        assert store["empty"].shape == (0, 7)
