"""What sequences of one organism tell of each other: the same for each of them, however the work is cut."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tiny import Memory, random_bases, tiny_config, tiny_model

from genoformer import Settings, collect, organism_context, predict
from genoformer.errors import ConfigError, InputError
from genoformer.model.checkpoint import load_model, save_model
from genoformer.model.genoformer import Genoformer
from genoformer.plan import make_plan
from genoformer.predict import predict_to_store
from genoformer.store import Output, Shard, merge_shards, open_store
from genoformer.tracks import CODING_FRAME
from genoformer.workers import Workers

CONTIGS = Memory(*((f"c{n}", random_bases(n, n)) for n in (90, 40, 120, 77, 41, 1)), ("n", b"N" * 50))
SEEING = {"attention": ("local", "performer")}


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Genoformer:
    folder = tmp_path_factory.mktemp("model")
    save_model(folder, tiny_model(**SEEING), tiny_config(**SEEING), name="tiny")
    return load_model(folder)


def values(sequences: Memory, model: Genoformer, **options: Any) -> dict[str, np.ndarray]:
    found = collect(predict(sequences, model, window=100, overlap=20, **options))
    return {name: tracks[CODING_FRAME.name] for name, tracks in found.items()}


def test_a_value_depends_on_the_sequence_and_the_context_alone(model: Genoformer) -> None:
    context = organism_context(CONTIGS, model)
    together = values(CONTIGS, model, settings=Settings(context=context, batch_size=3))
    alone = values(CONTIGS, model)
    for name, bases in CONTIGS.held[:6]:
        one = values(Memory((name, bases)), model, settings=Settings(context=context, chunk_size=8))
        np.testing.assert_allclose(one[name], together[name], atol=2e-3)
        assert not np.allclose(alone[name], together[name], atol=2e-3)


def test_what_has_no_bases_tells_nothing(model: Genoformer) -> None:
    with pytest.raises(InputError, match="no bases to tell an organism by"):
        organism_context(Memory(("n", b"N" * 100)), model)


def test_workers_and_shards(model: Genoformer, tmp_path: Path) -> None:
    context, plan = organism_context(CONTIGS, model), make_plan(CONTIGS, window=100, overlap=20)
    settings = Settings(context=context)
    whole = predict_to_store(plan, CONTIGS, model, tmp_path / "whole.h5", settings=settings)
    parts = [Output(tmp_path / f"{n}.h5", shard=Shard(n, 2)) for n in (1, 2)]
    with Workers(model, processes=2, threads=2) as workers:
        paths = [predict_to_store(plan, CONTIGS, model, part, settings=settings, workers=workers) for part in parts]
    merge_shards(paths, tmp_path / "merged.h5")
    with open_store(whole) as one, open_store(tmp_path / "merged.h5") as two:
        assert one.metadata["identity"]["one-genome"] == context.sha256
        for name, bases in CONTIGS.held:
            np.testing.assert_allclose(two[name, 0 : len(bases)], one[name, 0 : len(bases)], atol=2e-3)


def test_shards_are_not_joined_in_contexts_of_different_organisms(model: Genoformer, tmp_path: Path) -> None:
    plan = make_plan(CONTIGS, window=100, overlap=20)
    contexts = [organism_context(CONTIGS, model), organism_context(Memory(CONTIGS.held[0]), model)]
    recoded = organism_context(CONTIGS, model, genetic_code=4)
    assert len({contexts[0].sha256, contexts[1].sha256, recoded.sha256}) == 3
    first, second = (Output(tmp_path / f"{n}.h5", shard=Shard(n, 2)) for n in (1, 2))
    one = predict_to_store(plan, CONTIGS, model, first, settings=Settings(context=contexts[0]))
    two = predict_to_store(plan, CONTIGS, model, second, settings=Settings(context=contexts[1]))
    with pytest.raises(ConfigError, match="one-genome was"):
        merge_shards([one, two], tmp_path / "merged.h5")
