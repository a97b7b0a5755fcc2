"""Checks of whole sequences over processes, run by test_whole_sequence.py on each rank of a group."""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).resolve().parent))

from prediction_samples import MIXED, assert_same, joined
from ranks import main
from tiny import Memory, random_bases, tiny_config, tiny_model

from genoformer.errors import InputError
from genoformer.model.checkpoint import load_model, save_model
from genoformer.plan import make_plan
from genoformer.predict import Settings
from genoformer.store import Output, open_store
from genoformer.whole_sequence import predict_whole_to_store, whole_blocks

CUT = {"window": 100, "overlap": 24}
SEVERAL = Memory(*MIXED.held, ("longer", random_bases(517, 77)), ("circle", random_bases(230, 78)))
CONFIG = tiny_config(attention=("local", "performer", "hybrid"), inputs=("open-frames", "stop-distances"))


def planned(sequences: Memory = SEVERAL):
    return make_plan(sequences, whole=True, circular=("circle",) if sequences is SEVERAL else (), **CUT)


def check_blocks(rank: int, size: int) -> None:
    """Long and short sequences, gaps, a circle: all blocks, in the first process only, as of one process."""
    model, plan = tiny_model(CONFIG), planned()
    none = np.zeros(len(plan.owned), dtype=bool)
    for settings in (Settings(chunk_size=11), Settings(chunk_size=29, strand_average=False, offload=True)):
        found = list(whole_blocks(plan, SEVERAL, model, settings=settings, done=none, together=True))
        if rank:
            assert found == []
            continue
        alone = list(whole_blocks(plan, SEVERAL, model, settings=settings, done=none, together=False))
        assert len(found) == len(alone) == len(plan.owned)
        kept = Memory(*(record for record in SEVERAL.held if record[0] not in ("unknown", "empty")))
        assert_same(joined(found, kept), joined(alone, kept))


def check_done(rank: int, size: int) -> None:
    """What is done is left out, whether all of a sequence or some of its blocks."""
    model, plan = tiny_model(CONFIG), planned()
    done = np.random.default_rng(3).random(len(plan.owned)) < 0.6
    blocks = whole_blocks(plan, SEVERAL, model, settings=Settings(), done=done, together=True)
    found = {(block.sequence, block.start) for block in blocks}
    wanted = {(plan.sequences.names[index], start) for index, start, _ in plan.owned[~done].tolist()}
    assert found == (set() if rank else wanted)


def check_store(rank: int, size: int) -> None:
    """One store, and again when all is there already."""
    with tempfile.TemporaryDirectory() as folder:
        save_model(Path(folder, "m"), tiny_model(CONFIG), CONFIG, name="m")
        model, told = load_model(Path(folder, "m")), []
        path = Path(folder, "x.h5")
        options = {"settings": Settings(chunk_size=20), "report": told.append, "together": True}
        predict_whole_to_store(planned(), SEVERAL, model, path, **options)
        assert path.exists() == (rank == 0)
        if rank == 0:
            assert sum(told) == sum(len(bases) for name, bases in SEVERAL.held if name != "unknown")
            with open_store(path) as store:
                assert np.isfinite(store["longer", 0:517]).all()
            path.rename(f"{path}.part")
        predict_whole_to_store(planned(), SEVERAL, model, Output(path, resume=True), **options)
        assert path.exists() == (rank == 0)


def check_different_inputs(rank: int, size: int) -> None:
    """Every rank says so, and none waits for the others."""
    other = Memory(("x", random_bases(200, rank)))
    options = {"settings": Settings(), "together": True}
    with pytest.raises(InputError, match="not the same for all processes"):
        predict_whole_to_store(planned(other), other, tiny_model(CONFIG), "nowhere/x.h5", **options)


if __name__ == "__main__":
    main(globals())
