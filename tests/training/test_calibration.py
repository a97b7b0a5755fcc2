"""Calibration: the temperature that made probabilities too sure is found again, and built into the model."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from tiny import tiny_model
from training_samples import root, run_config, take

from genoformer.model.checkpoint import load_model
from genoformer.model.strands import predict_values
from genoformer.tracks import IGNORED
from genoformer.training.calibration import Outputs, calibrate, fit_temperature
from genoformer.training.config import Sample
from genoformer.training.examples import load_genome

__all__ = ["root"]


def drawn(temperature: float, *, bases: int = 40_000, backward_shift: float = 0.0) -> Outputs:
    """Draw classes from the probabilities of logits, and multiply these by a temperature."""
    generator = torch.Generator().manual_seed(3)
    logits = torch.randn(bases, 7, generator=generator) * 2
    truth = torch.multinomial(logits.softmax(dim=-1), 1, generator=generator)[:, 0]
    backward = logits + backward_shift * torch.randn(bases, 7, generator=generator)
    return Outputs(logits * temperature, backward * temperature, truth)


@pytest.mark.parametrize("temperature", [0.5, 1.0, 2.5])
def test_the_temperature_that_was_applied_is_found(temperature: float) -> None:
    outputs = drawn(temperature)
    fit = fit_temperature(outputs)
    assert fit.temperature == pytest.approx(temperature, rel=0.03)  # of 40,000 draws
    assert fit.bases == 40_000
    assert fit.loss <= fit.loss_before + 1e-9


def test_no_other_temperature_loses_less_where_strands_differ() -> None:
    outputs = drawn(2.0, backward_shift=1.0)
    fit = fit_temperature(outputs)
    assert all(fit.loss <= outputs.loss(fit.temperature * factor) for factor in (0.5, 0.9, 0.99, 1.01, 1.1, 2.0))


def test_the_loss_is_that_of_averaged_probabilities() -> None:
    outputs = drawn(1.5, bases=50, backward_shift=1.0)
    both = ((outputs.forward / 2).softmax(-1) + (outputs.backward / 2).softmax(-1)) / 2
    expected = -both[torch.arange(50), outputs.truth].double().log().mean()
    assert outputs.loss(2.0) == pytest.approx(float(expected), abs=1e-6)


def test_what_predict_gives_is_calibrated(root: Path) -> None:
    genome = load_genome(Sample("a.fa", "a.gff"), root=root)
    model, end = tiny_model().eval(), int(genome.offsets[1])
    codes, truth = (
        torch.from_numpy(genome.codes[:end].copy())[None],
        torch.from_numpy(genome.frames[:end].copy()).long(),
    )
    known = torch.nonzero(truth != IGNORED)[:, 0]

    def loss() -> float:
        values = predict_values(model, codes)["coding-frame"][0]
        return -float(values[known, truth[known]].double().log().mean())

    before = loss()
    found = calibrate(model, [genome], bases=genome.length)["coding-frame"]
    assert found.bases == len(known)
    assert [before, loss()] == pytest.approx([found.loss_before, found.loss], abs=1e-5)
    assert loss() < before


def test_training_ends_with_it_once(tmp_path: Path, root: Path) -> None:
    config = run_config(validation=True)
    take(config, tmp_path, root)
    saved = (tmp_path / "model" / "config.json").read_bytes()
    fit = json.loads(saved)["training"]["calibration"]["coding-frame"]
    assert fit["loss"] <= fit["loss_before"]
    assert load_model(tmp_path / "model").checkpoint.training["calibration"]["coding-frame"] == fit
    assert take(config, tmp_path, root, resume=True) == []
    assert (tmp_path / "model" / "config.json").read_bytes() == saved


def test_a_run_cut_off_before_it_does_it_when_resumed(tmp_path: Path, root: Path) -> None:
    config = run_config(validation=True)
    whole, cut = tmp_path / "whole", tmp_path / "cut"
    take(config, whole, root)
    take(config, cut, root, steps=config.train.steps)  # all steps, and not what comes behind them
    assert "calibration" not in load_model(cut / "model").checkpoint.training
    take(config, cut, root, resume=True)
    for file in ("model.safetensors", "config.json"):
        assert (whole / "model" / file).read_bytes() == (cut / "model" / file).read_bytes()


def test_without_validation_genomes_there_is_none(tmp_path: Path, root: Path) -> None:
    take(run_config(), tmp_path, root)
    assert "calibration" not in load_model(tmp_path / "model").checkpoint.training
