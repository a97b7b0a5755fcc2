"""Projections in stores: interrupted, in shards, of other files, and what they tell of the references."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from alignment_samples import (
    write_alignments,
)
from prediction_samples import NAME
from projection_samples import (
    CUT,
    LENGTHS,
    _small,
    folder,
    model,
    project_file,
    some_reads,
    stored,
)

from genoformer import projection
from genoformer.errors import ConfigError, InputError
from genoformer.formats.sequences import open_sequences
from genoformer.model.genoformer import Genoformer
from genoformer.predict import Settings
from genoformer.projection import DEPTH, project_to_store
from genoformer.projection_plan import plan_projection
from genoformer.store import Shard, merge_shards, open_store, part_path

__all__ = ["_small", "folder", "model"]


def test_interrupted_anywhere_and_resumed_it_is_the_same(model: Genoformer, tmp_path: Path) -> None:
    path = write_alignments(tmp_path / "x.bam", LENGTHS, some_reads(0, 60))
    expected = list(stored(project_file(path, model, tmp_path / "whole.h5")))
    blocks = len(plan_projection(open_sequences(path), **CUT).owned)
    assert blocks > 12
    for stop in range(1, blocks, 5):
        left = stop

        def interrupt(bases: int) -> None:
            nonlocal left
            left -= bases > 0
            if left == 0:
                raise KeyboardInterrupt

        output = tmp_path / f"{stop}.h5"
        with pytest.raises(KeyboardInterrupt):
            project_file(path, model, output, report=interrupt)
        assert part_path(output).exists()
        project_file(path, model, output, resume=True)
        for found, values in zip(stored(output), expected, strict=True):
            assert found.tobytes() == values.tobytes()


@pytest.mark.parametrize("count", [1, 2, 7])
def test_shards_join_to_the_same(count: int, model: Genoformer, tmp_path: Path) -> None:
    path = write_alignments(tmp_path / "x.bam", LENGTHS, some_reads(0, 60))
    expected = list(stored(project_file(path, model, tmp_path / "whole.h5")))
    parts = [
        project_file(path, model, tmp_path / f"{number}.h5", shard=Shard(number, count))
        for number in range(1, count + 1)
    ]
    merge_shards(parts, tmp_path / "merged.h5")
    for found, values in zip(stored(tmp_path / "merged.h5"), expected, strict=True):
        assert found.tobytes() == values.tobytes()


def test_another_file_is_not_resumed_and_a_changed_one_is_noticed(model: Genoformer, tmp_path: Path) -> None:
    path = write_alignments(tmp_path / "x.bam", LENGTHS, some_reads(0))
    sequences = open_sequences(path)
    plan = plan_projection(sequences, **CUT)
    reads = some_reads(0)
    moved = reads[5]._replace(cigar="1D" + (reads[5].cigar or ""))
    write_alignments(path, LENGTHS, [*reads[:5], moved, *reads[6:]])
    assert plan_projection(open_sequences(path), **CUT).digest != plan.digest
    with pytest.raises(InputError, match=r"x\.bam: has changed since it was planned"):
        project_to_store(plan, sequences, model, tmp_path / "x.h5", settings=Settings())
    assert not (tmp_path / "x.h5").exists()
    with pytest.raises(ConfigError, match="another run"):
        project_file(path, model, tmp_path / "x.h5", resume=True)


def test_the_store_tells_the_references(model: Genoformer, tmp_path: Path) -> None:
    digest = "0123456789abcdef" * 2
    lines = {"TP": "circular", "M5": digest.upper()}
    path = write_alignments(tmp_path / "x.bam", LENGTHS, some_reads(0), lines=lines)
    with open_store(project_file(path, model, tmp_path / "x.h5")) as store:
        table = store.sequences
        assert dict(zip(table.names, table.lengths.tolist(), strict=True)) == LENGTHS
        assert set(table.topology) == {"circular"}
        assert set(table.md5) == {digest}
        assert table.status == ["predicted", "skipped", "predicted"]
        assert table.reason == ["", "no read is aligned to it", ""]
        assert store.tracks["depth"] == DEPTH
        assert np.isnan(store["empty:1-9"]).all()
        assert store.metadata["made-by"]["counts"]["bases of reads"]["inserted"] > 0


def test_great_depths_are_stored_as_the_greatest_number() -> None:
    sums = projection._Sums({NAME: np.full((3, 7), 2e5)}, np.array([2e5, 0, 1]))
    with np.errstate(over="ignore"):
        block = sums.block("c", 0)
    assert block.values["depth"][0, 0] == projection.MOST_DEPTH
    assert np.isnan(block.values["depth"][1, 0])
    assert (block.values[NAME][0] == 1).all()
