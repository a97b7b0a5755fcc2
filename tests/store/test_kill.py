"""A run killed at any moment leaves a file in which each block marked done has its values."""

from __future__ import annotations

import random
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
from store_samples import SIGNAL, expected

from genoformer.regions import Block
from genoformer.store import SequenceTable, TrackStore, TrackWriter, open_store, part_path

BLOCK, BLOCKS, KILLS = 500, 1000, 10


def _begin(path: Path) -> TrackWriter:
    starts = np.arange(BLOCKS, dtype=np.int64) * BLOCK
    sequences = SequenceTable.build(["s"], [BLOCK * BLOCKS])
    plan = np.stack([starts, starts + BLOCK], axis=1)
    return TrackStore.create(path, sequences, [SIGNAL], provenance={}, blocks=plan, resume=True)


def write_shuffled(path: Path) -> None:
    """Write what is missing in random order, committing without pause."""
    with _begin(path) as writer:
        writer.commit_bytes = 4 * BLOCK * BLOCKS // 60
        left = np.flatnonzero(~writer.done).tolist()
        random.shuffle(left)
        print("begun", flush=True)
        for i in left:
            writer.write(Block("s", i * BLOCK, {"signal": expected(i * BLOCK, (i + 1) * BLOCK)}))
        writer.finish()


def test_killed_ten_times_and_resumed(tmp_path: Path) -> None:
    path, done = tmp_path / "s.h5", 0
    folders = [str(Path(__file__).parent), str(Path(__file__).parents[1])]
    script = f"import sys; sys.path[:0] = {folders!r}; import test_kill as t; t.write_shuffled(t.Path(sys.argv[1]))"
    for _ in range(KILLS):
        with subprocess.Popen([sys.executable, "-c", script, str(path)], stdout=subprocess.PIPE) as run:
            assert run.stdout is not None
            if random.random() < 0.8:
                run.stdout.readline()
            time.sleep(random.uniform(0, 0.15))
            run.kill()
        if path.exists() or not part_path(path).exists():
            continue
        with open_store(part_path(path), allow_incomplete=True) as store:
            values = store["s"].reshape(BLOCKS, -1)
        with _begin(path) as writer:
            is_done = writer.done
        right = expected(0, BLOCK * BLOCKS).reshape(BLOCKS, -1)
        assert np.array_equal(values[is_done], right[is_done])
        assert np.isnan(values[~is_done]).all()
        assert is_done.sum() >= done  # nothing that was done is lost
        done = int(is_done.sum())
    if not path.exists():
        write_shuffled(path)
    with open_store(path) as store:
        assert np.array_equal(store["s"], expected(0, BLOCK * BLOCKS))
    assert [item.name for item in tmp_path.iterdir() if not item.name.endswith(".new")] == ["s.h5"]
