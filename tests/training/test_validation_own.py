"""Validation of own tracks: the numbers are those of `genoformer evaluate` on what `predict` writes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from own_track_samples import AMOUNT, LABELS, OWN, PURINE, own_config, own_model, write_genomes
from tiny import tiny_model
from training_samples import log, take

from genoformer.evaluate.evaluation import evaluate
from genoformer.formats.sequences import open_sequences
from genoformer.model.checkpoint import load_model, save_model
from genoformer.model.genoformer import Genoformer
from genoformer.plan import make_plan
from genoformer.predict import Settings, predict_to_store
from genoformer.training.config import Sample
from genoformer.training.examples import Genome, load_genome
from genoformer.training.validation import measure
from genoformer.training.validation_own import measure_own


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return write_genomes(tmp_path)


def genome_of(folder: Path, **sample: Any) -> Genome:
    return load_genome(Sample("b.fa", labels=LABELS, **sample), root=folder, tracks=OWN)


def test_the_numbers_are_those_of_evaluate(folder: Path) -> None:
    save_model(folder / "m", tiny_model(own_model()), own_model(), name="x")
    model = load_model(folder / "m")
    sequences = open_sequences(folder / "b.fa")
    plan = make_plan(sequences, window=100_000, overlap=1_000)
    predict_to_store(plan, sequences, model, folder / "b.h5", settings=Settings(strand_average=False))
    found = measure_own(model, [genome_of(folder)], own_config(validate_bases=10**6).train)
    classes = evaluate(folder / "b.h5", folder / "purine.bed", track="purine").levels["class"].numbers()
    entry = found["purine"].entry["b.fa purine"]
    assert [entry[name] for name in ("precision", "recall", "f1")] == pytest.approx(classes[:3], abs=2e-3)
    assert found["purine"].mean == found["purine"].entry["mean_f1"] == entry["f1"]
    assert entry["macro_f1"] == pytest.approx(entry["f1"])  # there is but one class beside the first
    truth = {channel: folder / file for channel, file in LABELS["amount"].items()}
    signals = evaluate(folder / "b.h5", truth, track="amount").signals
    entry = found["amount"].entry["b.fa amount"]
    expected = {channel: moments.numbers().pearson for channel, moments in signals.items()}
    assert entry["channels"] == pytest.approx(expected, abs=2e-3)
    assert found["amount"].mean == entry["correlation"] == pytest.approx(np.mean(list(expected.values())), abs=2e-3)


def test_all_tracks_have_one_number_together(folder: Path) -> None:
    model = tiny_model(own_model("coding-frame", "purine", "amount"))
    genome = load_genome(Sample("b.fa", "b.gff", labels=LABELS), root=folder, tracks=model.tracks)
    config = own_config(validate_error_rates=(0.05,)).train
    found = measure(model, [genome], config)
    parts = [found.entry[f"mean_{kind} {track}"] for kind, track in
             (("f1", "coding-frame"), ("f1", "purine"), ("correlation", "amount"))]  # fmt: skip
    assert found.mean == found.entry["mean_score"] == pytest.approx(np.mean(parts))
    assert found.measure == "score"
    assert {"b.fa", "b.fa at 0.05", "b.fa purine", "b.fa amount at 0.05", "mean_f1 at 0.05 purine"} <= set(found.entry)
    assert measure(model, [genome], config) == found


@pytest.mark.parametrize(("track", "kind"), [(PURINE, "F1"), (AMOUNT, "correlation")])
def test_the_number_is_named(folder: Path, track: Any, kind: str) -> None:
    config = own_config(own_model(own=(track,)), steps=4)
    steps = take(config, folder / "run", folder)
    assert steps[-1].measure == kind
    assert log(folder / "run")[-1]["validation"][f"mean_{kind.lower()}"] == steps[-1].validation


def certain() -> Genoformer:
    """Return a model that says no everywhere, and 3 and 4 of the signal."""
    model = tiny_model(own_model())
    for head, bias in zip(model.heads.values(), ([50.0, 0.0], [3.0, 4.0]), strict=True):
        head.output.weight.data.zero_()  # type: ignore[union-attr]
        head.output.bias.data.copy_(torch.tensor(bias))  # type: ignore[union-attr]
    return model


def test_where_nothing_is_known_or_found_there_is_no_number(folder: Path) -> None:
    genome = genome_of(folder)
    model = certain()
    found = measure(model, [genome], own_config().train)
    assert found.entry["mean_f1 purine"] == 0.0
    assert found.entry["mean_correlation amount"] is None  # of a constant
    assert found.mean == 0.0
    unlabeled = load_genome(Sample("a.fa", labels={"purine": "purine.bed"}), root=folder, tracks=OWN)
    both = measure(tiny_model(own_model()), [genome, unlabeled], own_config().train)
    assert both.entry["a.fa amount"]["correlation"] is None
    assert both.entry["mean_correlation amount"] == both.entry["b.fa amount"]["correlation"]
