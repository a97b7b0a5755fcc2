"""The loss of several heads: for each the mean over its labels, weighed; units of a signal do not matter."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from own_track_samples import AMOUNT, LETTER, OWN, PURINE, own_config, own_model, write_genomes
from training_samples import take

from genoformer.model.genoformer import build
from genoformer.model.heads import SignalHead
from genoformer.tracks import CODING_FRAME, IGNORED
from genoformer.training.config import TrackLoss, TrainConfig
from genoformer.training.examples import Batch, load_split
from genoformer.training.loss import labels_that_count, step_loss
from genoformer.training.state import new_state, standardize_signals
from genoformer.training.step import train_step

TRACKS = (LETTER, AMOUNT, PURINE)
LOSSES = (TrackLoss("letter", 3.0, (1.0, 2.0, 0.5, 1.0)), TrackLoss("amount", 0.5))


def made_up_batch(rng: np.random.Generator, rows: int = 4, length: int = 9) -> Batch:
    classes = {name: rng.integers(0, top, (rows, length)).astype(np.uint8) for name, top in
               (("letter", 4), ("purine", 2), ("coding-frame", 7))}  # fmt: skip
    classes["letter"][0], classes["purine"][1, 3:] = IGNORED, IGNORED
    amounts = rng.normal(5, 2, (rows, length, 2)).astype(np.float32)
    amounts[2], amounts[0, 4, 1] = np.nan, np.nan
    codes = rng.integers(0, 4, (rows, length)).astype(np.uint8)
    return Batch(codes, {**classes, "amount": amounts}, np.full(rows, 11))


@pytest.mark.parametrize("parts", [1, 2])
def test_the_loss_is_that_of_a_loop(parts: int) -> None:
    model = build(own_model("coding-frame", "letter", "amount", "purine", own=TRACKS))
    head = model.heads["amount"]
    assert isinstance(head, SignalHead)
    head.standardize([4.0, 6.0], [2.0, 0.5])
    batch = made_up_batch(np.random.default_rng(0))
    config = TrainConfig(losses=LOSSES, label_smoothing=0.1)
    generator = torch.Generator().manual_seed(1)
    logits = {t.name: torch.randn(4, 9, len(t.channels), generator=generator) for t in model.tracks}
    batches = [batch.rows(0, 1), batch.rows(1, 4)] if parts == 2 else [batch]
    counted = labels_that_count(model, batch, config)
    sizes = [len(part.codes) for part in batches]
    found = sum(
        float(step_loss(model, dict(zip(logits, shown, strict=True)), part.labels, counted=counted, config=config))
        for part, *shown in zip(batches, *(values.split(sizes) for values in logits.values()), strict=True)
    )

    expected = 0.0
    for track, weight in ((CODING_FRAME, 1.0), (PURINE, 1.0), (LETTER, 3.0)):
        weights = LOSSES[0].class_weights if track == LETTER else (1.0,) * len(track.channels)
        total = count = 0.0
        for row, base in zip(*np.nonzero(batch.labels[track.name] != IGNORED), strict=True):
            logs, true = logits[track.name][row, base].log_softmax(-1).tolist(), batch.labels[track.name][row, base]
            total -= 0.9 * weights[true] * logs[true]
            total -= 0.1 / len(logs) * sum(w * value for w, value in zip(weights, logs, strict=True))
            count += weights[true]
        expected += weight * total / count
    target, errors = batch.labels["amount"], []
    for row, base, channel in zip(*np.nonzero(~np.isnan(target)), strict=True):
        center, scale = (4.0, 6.0)[channel], (2.0, 0.5)[channel]
        error = float(logits["amount"][row, base, channel]) - (float(target[row, base, channel]) - center) / scale
        errors.append(error**2)
    assert len(errors) == 4 * 9 * 2 - 18 - 1
    assert found == pytest.approx(expected + 0.5 * np.mean(errors), rel=1e-5)


def test_signals_are_learned_alike_in_any_unit(tmp_path: Path) -> None:
    """Losses are the same, and predictions are in the unit of the labels."""
    values, losses = [], []
    for number, (scale, offset) in enumerate(((1.0, 0.0), (2000.0, -8000.0))):
        folder = tmp_path / str(number)
        folder.mkdir()
        write_genomes(folder, scale=scale, offset=offset)
        config = own_config(own_model(own=(AMOUNT,)))
        genomes = load_split(config.samples, "train", root=folder, tracks=(AMOUNT,))
        state = new_state(config, torch.device("cpu"))
        standardize_signals(state, genomes)
        losses.append([float(train_step(state, genomes, config.train)) for _ in range(4)])
        with torch.no_grad():
            logits = state.average(torch.from_numpy(genomes[0].codes[None, :200]))["amount"]
            values.append((state.average.heads["amount"].predict(logits) - offset) / scale)  # type: ignore[operator]
    assert losses[0] == pytest.approx(losses[1], rel=1e-3)
    torch.testing.assert_close(values[0], values[1], rtol=1e-2, atol=1e-2)


def test_a_step_without_any_known_label_changes_nothing(tmp_path: Path) -> None:
    config = own_config(weight_decay=0.0, warmup=0)
    write_genomes(tmp_path)
    (genome,) = load_split(config.samples, "train", root=tmp_path, tracks=OWN)
    genome.own["purine"].values[:] = IGNORED
    genome.own["amount"].values[:] = np.nan
    state, fresh = (new_state(config, torch.device("cpu")) for _ in range(2))
    assert float(train_step(state, [genome], config.train)) == 0.0
    for one, two in zip(state.model.parameters(), fresh.model.parameters(), strict=True):
        assert torch.equal(one, two)


def test_accumulated_passes_and_weights(tmp_path: Path) -> None:
    """Three passes are as one of all windows; a track of twice the weight has twice the gradient."""
    write_genomes(tmp_path)

    def after(**changes: Any) -> tuple[float, list[torch.Tensor]]:
        config = own_config(warmup=0, gradient_clip=1e9, **changes)
        genomes = load_split(config.samples, "train", root=tmp_path, tracks=config.model.own_tracks)
        state = new_state(config, torch.device("cpu"))
        standardize_signals(state, genomes)
        loss = float(train_step(state, genomes, config.train))
        return loss, [p.grad for p in state.model.parameters() if p.grad is not None]

    whole, gradients = after(step_bases=1080)
    parts, others = after(step_bases=360, accumulate=3)
    assert whole == pytest.approx(parts, rel=1e-5)
    for one, two in zip(gradients, others, strict=True):
        torch.testing.assert_close(one, two, rtol=2e-4, atol=2e-6)
    double = (TrackLoss("purine", 2.0), TrackLoss("amount", 2.0))
    twice, others = after(step_bases=1080, losses=double)
    assert twice == pytest.approx(2 * whole, rel=1e-5)
    for one, two in zip(gradients, others, strict=True):
        torch.testing.assert_close(2 * one, two, rtol=1e-4, atol=1e-6)


def test_what_can_be_told_from_a_base_is_learned(tmp_path: Path) -> None:
    write_genomes(tmp_path)
    easy: dict[str, Any] = {"windows": (200,), "step_bases": 1000, "learning_rate": 0.03, "validate_every": 60}
    config = own_config(steps=60, save_every=60, ema=0.5, **easy)
    steps = take(config, tmp_path / "run", tmp_path)
    assert steps[0].loss == pytest.approx(math.log(2) + 1, rel=0.4)
    assert steps[-1].loss < 0.15
    assert steps[-1].validation is not None
    assert steps[-1].validation > 0.95
    assert steps[-1].measure == "score"
