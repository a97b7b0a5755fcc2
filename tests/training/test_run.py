"""Training: a run that was cut off goes on exactly where it was, and nothing goes wrong unseen."""

from __future__ import annotations

import dataclasses
import itertools
import json
import math
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from tiny import tiny_model
from training_samples import log, root, run_config, take

from genoformer.attention import ATTENTION
from genoformer.errors import CheckpointError, ConfigError, GenoformerError, InputError, ResourceError
from genoformer.evaluate import Score, confusion, pooled_score, strand_probabilities
from genoformer.model.checkpoint import load_model, named_tensors, read_tensors
from genoformer.plain import to_dict
from genoformer.training import run as module
from genoformer.training import step as step_module
from genoformer.training.config import Sample, TrainConfig
from genoformer.training.examples import Genome, load_genome
from genoformer.training.run import STATE, train
from genoformer.training.state import State, new_state
from genoformer.training.step import learning_rate, train_step
from genoformer.training.validation import mean_f1, validate

__all__ = ["root"]


def without_speed(entries: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [{key: value for key, value in entry.items() if key != "bases_per_second"} for entry in entries]


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"chunk_size": 7, "precision": "bfloat16", "ema": 0.5},
        {"redraw_every": 2, "model": {"attention": ("performer",), "performer_features": "saderf"}},
        {
            "accumulate": 2,
            "error_rates": (0.0, 0.05),
            "homopolymer_indels": 0.5,
            "label_smoothing": 0.1,
            "approximate_rate": 0.5,
            "validate_error_rates": (0.05,),
            "model": {"inputs": ("open-frames", "stop-distances")},
        },
        {"pretrain": True, "patience": 9, "window_shares": (1.0, 3.0)},
    ],
    ids=["plain", "other", "tuned", "noisy", "pretrained"],
)
def test_a_resumed_run_is_the_same_to_the_last_bit(tmp_path: Path, root: Path, options: dict[str, Any]) -> None:
    config = run_config(validation=True, **options)
    whole = take(config, tmp_path / "whole", root)
    assert [p.step for p in whole] == [1, 2, 3, 4, 5, 6]
    take(config, tmp_path / "cut", root, steps=3)  # the checkpoint is of step 2
    take(config, tmp_path / "cut", root, steps=5, resume=True)
    rest = take(config, tmp_path / "cut", root, resume=True)
    assert [p.step for p in rest] == [5, 6]
    assert [(p.loss, p.validation) for p in rest] == [(p.loss, p.validation) for p in whole[4:]]
    for file in ("model/model.safetensors", "model/config.json"):
        assert (tmp_path / "whole" / file).read_bytes() == (tmp_path / "cut" / file).read_bytes(), file
    (one, about_one), (two, about_two) = (read_tensors(tmp_path / name / STATE) for name in ("whole", "cut"))
    assert about_one == about_two
    assert one.keys() == two.keys()
    assert {name.split(".")[0] for name in one} == {"model", "average", "optimizer"}
    assert all(torch.equal(tensor, two[name]) for name, tensor in one.items())
    assert without_speed(log(tmp_path / "cut")) == without_speed(log(tmp_path / "whole"))
    assert [entry["step"] for entry in log(tmp_path / "cut")] == [1, 2, 3, 4, 5, 6]


@pytest.mark.parametrize(
    "changes",
    [
        {"window_shares": (1.0,)},
        {"window_shares": (0.0, 0.0)},
        {"error_rates": ()},
        {"error_rates": (0.4,)},
        {"error_rates": (0.1, 0.2), "error_shares": (1.0, -1.0)},
        {"error_rates": (0.1, 0.2), "error_shares": (1.0,)},
        {"homopolymer_indels": 1.5},
        {"validate_error_rates": (-0.1,)},
        {"label_smoothing": 1.0},
        {"mask_rate": 0.0},
        {"patience": -1},
        {"accumulate": 0},
        {"approximate_rate": 0.0},
        {"class_weights": (1.0, 2.0)},
        {"class_weights": (-1.0,) * 7},
        {"model": {"tracks": ("masked-nucleotide",)}},
    ],
    ids=lambda changes: next(iter(changes)),
)
def test_settings_that_cannot_be(changes: dict[str, Any]) -> None:
    word = "masked-nucleotide" if "model" in changes else list(changes)[-1]
    with pytest.raises(ConfigError, match=word) as caught:
        run_config(**changes)
    assert "\n" not in str(caught.value)


def test_a_finished_run_has_nothing_left_to_do(tmp_path: Path, root: Path) -> None:
    config = run_config(steps=2)
    take(config, tmp_path / "run", root)
    before = (tmp_path / "run" / STATE).read_bytes()
    assert take(config, tmp_path / "run", root, resume=True) == []
    assert (tmp_path / "run" / STATE).read_bytes() == before
    assert len(log(tmp_path / "run")) == 2


def test_the_log_says_what_happened(tmp_path: Path, root: Path) -> None:
    config = run_config(validation=True)
    reported: list[str] = []
    steps = take(config, tmp_path / "run", root, name="mine", report=reported.append)
    entries = log(tmp_path / "run")
    assert [entry["loss"] for entry in entries] == [round(p.loss, 5) for p in steps]
    assert [entry["learning_rate"] for entry in entries] == [learning_rate(i, config.train) for i in range(6)]
    assert [p.step for p in steps if p.validation is not None] == [4, 6]
    assert set(entries[3]["validation"]) == {"b.fa", "mean_f1"}
    assert len(reported) == 3
    assert "coding-frame: calibrated on" in reported[2]
    assert "genetic code 11" in reported[0]
    assert "1 sequences without annotation ignored" in reported[0]
    model = load_model(tmp_path / "run" / "model")
    saved, _ = read_tensors(tmp_path / "run" / STATE)
    scale = model.checkpoint.training["calibration"]["coding-frame"]["temperature"]
    for tensor_name, tensor in named_tensors(model).items():
        average = saved[f"average.{tensor_name}"]
        assert torch.equal(tensor, average / scale if tensor_name.startswith("heads.") else average)
    assert not torch.equal(saved["average.decoder.up.bias"], saved["model.decoder.up.bias"])
    assert model.checkpoint.name == "mine"
    assert model.checkpoint.training["steps"] == 6
    assert model.checkpoint.training["train"]["seed"] == 0
    assert set(model.checkpoint.training["data-sha256"]) == {"a.fa"}
    assert model.checkpoint.config == config.model


@pytest.mark.parametrize("mechanism", ATTENTION)
def test_every_mechanism_learns(mechanism: str, tmp_path: Path, root: Path) -> None:
    """Changing its name is all it takes; the loss falls below that of knowing how frequent each class is."""
    easy = {"windows": (600,), "step_bases": 1800, "recode": 0.0}
    config = run_config(
        steps=60, warmup=3, learning_rate=0.02, save_every=60, model={"attention": (mechanism,)}, **easy
    )
    losses = [progress.loss for progress in take(config, tmp_path / "run", root)]
    genomes = [load_genome(sample, root=root) for sample in config.samples]
    counts = np.sum([np.bincount(genome.frames, minlength=7)[:7] for genome in genomes], axis=0)
    shares = counts[counts > 0] / counts.sum()
    assert np.mean(losses[-8:]) < -(shares * np.log(shares)).sum()


def test_features_are_redrawn_on_schedule(tmp_path: Path, root: Path) -> None:
    model = {"attention": ("performer",)}

    def rows(folder: str, **changes: Any) -> list[torch.Tensor]:
        state = new_state(run_config(model=model, **changes), torch.device("cpu"))
        name = next(name for name in named_tensors(state.model) if name.endswith("projection"))
        found = [named_tensors(state.model)[name].clone()]
        for _ in train(run_config(model=model, save_every=1, **changes), tmp_path / folder, root=root):
            tensors, _ = read_tensors(tmp_path / folder / STATE)
            assert torch.equal(tensors[f"model.{name}"], tensors[f"average.{name}"])
            found.append(tensors[f"model.{name}"])
        return found

    fixed = rows("fixed")
    assert all(torch.equal(fixed[0], later) for later in fixed)
    redrawn = rows("redrawn", redraw_every=2)  # of 6 steps: after the 2nd and the 4th
    changed = [not torch.equal(a, b) for a, b in itertools.pairwise(redrawn)]
    assert changed == [False, True, False, True, False, False]


def test_loss_falls(tmp_path: Path, root: Path) -> None:
    easy = {"windows": (600,), "step_bases": 1800, "recode": 0.0}
    config = run_config(steps=40, warmup=3, learning_rate=0.02, save_every=40, **easy)
    losses = [progress.loss for progress in take(config, tmp_path / "run", root)]
    assert losses[0] == pytest.approx(math.log(7), rel=0.3)
    assert np.mean(losses[-5:]) < 0.87 * np.mean(losses[:3])


@pytest.mark.parametrize(
    "change",
    [{"learning_rate": 0.1}, {"seed": 1}, {"steps": 7}, {"model": {"expansion": 3}}, {"validation": True}],
    ids=lambda change: next(iter(change)),
)
def test_another_configuration_is_refused(tmp_path: Path, root: Path, change: dict[str, Any]) -> None:
    take(run_config(steps=2), tmp_path / "run", root)
    changed = run_config(**{"steps": 2, **change})
    with pytest.raises(CheckpointError, match="was written with another") as caught:
        take(changed, tmp_path / "run", root, resume=True)
    assert "\n" not in str(caught.value)


def test_a_folder_with_a_training_is_left_alone(tmp_path: Path, root: Path) -> None:
    take(run_config(steps=2), tmp_path / "run", root)
    with pytest.raises(InputError, match="already holds a training; use --resume"):
        take(run_config(steps=2), tmp_path / "run", root)
    (tmp_path / "file").write_text("")
    with pytest.raises(ResourceError, match="cannot be made"):
        take(run_config(), tmp_path / "file" / "run", root)


def test_a_damaged_checkpoint_is_refused(tmp_path: Path, root: Path) -> None:
    config = run_config(steps=2)
    take(config, tmp_path / "run", root)
    state = tmp_path / "run" / STATE
    whole = state.read_bytes()
    state.write_bytes(whole[: len(whole) // 2])
    with pytest.raises(CheckpointError, match="truncated"):
        take(config, tmp_path / "run", root, resume=True)
    shutil.copy(tmp_path / "run" / "model" / "model.safetensors", state)
    with pytest.raises(CheckpointError, match="is no checkpoint of a training"):
        take(config, tmp_path / "run", root, resume=True)


def test_nothing_to_train_on(tmp_path: Path, root: Path) -> None:
    config = run_config(validation=True)
    for samples in ((), config.samples[1:]):
        with pytest.raises(ConfigError, match="at least one sample must have split = 'train'"):
            take(dataclasses.replace(config, samples=samples), tmp_path / "run", root)
    assert not (tmp_path / "run").exists()
    gone = dataclasses.replace(config, samples=(Sample("none.fa", "a.gff"),))
    with pytest.raises(InputError, match=r"none\.fa: no such file"):
        take(gone, tmp_path / "run", root)


def poisoned(what: str) -> Any:
    original = train_step

    def step(state: State, genomes: Any, config: TrainConfig) -> torch.Tensor:
        if state.step == 2:
            weight = state.model.decoder.up.bias
            if what == "weight":
                with torch.no_grad():
                    weight[0] = math.nan
            else:
                weight.register_hook(lambda grad: grad * math.inf)
        return original(state, genomes, config)

    return step


@pytest.mark.parametrize("what", ["weight", "gradient"])
def test_a_loss_or_gradient_that_is_no_number_stops_the_run(
    tmp_path: Path, root: Path, monkeypatch: pytest.MonkeyPatch, what: str
) -> None:
    monkeypatch.setattr(module, "train_step", poisoned(what))
    with pytest.raises(GenoformerError, match="step 3: the loss is nan") as caught:
        take(run_config(steps=3, save_every=1), tmp_path / "run", root)
    assert "\n" not in str(caught.value)
    model = load_model(tmp_path / "run" / "model")  # that of step 2
    assert all(torch.isfinite(tensor).all() for tensor in named_tensors(model).values())
    assert len(log(tmp_path / "run")) == 2


def test_learning_rate_rises_then_falls_as_a_cosine() -> None:
    config = TrainConfig(learning_rate=2.0, warmup=10, steps=110, final_rate=0.1)
    rates = [learning_rate(step, config) for step in range(111)]
    assert rates[:10] == pytest.approx([0.2 * (step + 1) for step in range(10)])
    assert rates[10] == pytest.approx(2.0)
    assert rates[60] == pytest.approx(1.1)
    assert rates[35] == pytest.approx(2.0 * (0.1 + 0.9 * (1 + math.cos(math.pi / 4)) / 2))
    assert rates[110] == pytest.approx(0.2)
    assert learning_rate(10_000, config) == pytest.approx(0.2)
    assert all(a > b for a, b in itertools.pairwise(rates[10:]))
    flat = TrainConfig(learning_rate=1.0, warmup=0, steps=1)
    assert learning_rate(0, flat) == 1.0
    assert learning_rate(5, TrainConfig(warmup=20, steps=10)) == pytest.approx(2e-3 * 6 / 20)


def test_a_step_is_that_of_adamw_with_decay_on_matrices_only(root: Path) -> None:
    config = run_config(gradient_clip=1e9, warmup=0, learning_rate=0.01, weight_decay=0.5, ema=0.9)
    genome = load_genome(config.samples[0], root=root)
    state = new_state(config, torch.device("cpu"))
    before = {name: p.detach().clone() for name, p in state.model.named_parameters()}
    train_step(state, [genome], config.train)
    share = min(0.9, 1 / 11)
    for name, parameter in state.model.named_parameters():
        gradient = parameter.grad
        assert gradient is not None
        decay = 0.01 * 0.5 if parameter.ndim >= 2 else 0.0
        expected = before[name] * (1 - decay) - 0.01 * gradient / (gradient.abs() + 1e-8)  # the first step of Adam
        torch.testing.assert_close(parameter.detach(), expected, rtol=1e-4, atol=1e-5)
        average = dict(state.average.named_parameters())[name]
        torch.testing.assert_close(average, share * before[name] + (1 - share) * parameter.detach())
    assert state.step == 1


def test_gradients_are_clipped(root: Path) -> None:
    config = run_config(gradient_clip=1e-3)
    genome = load_genome(config.samples[0], root=root)
    state = new_state(config, torch.device("cpu"))
    train_step(state, [genome], config.train)
    grads = [p.grad for p in state.model.parameters() if p.grad is not None]
    assert float(torch.stack([g.norm() for g in grads]).norm()) == pytest.approx(1e-3, rel=1e-3)


def test_without_a_running_mean_the_last_weights_are_kept(tmp_path: Path, root: Path) -> None:
    config = run_config(steps=2, ema=0.0)
    state = new_state(config, torch.device("cpu"))
    genome = load_genome(config.samples[0], root=root)
    for _ in range(2):
        train_step(state, [genome], config.train)
    for a, b in zip(state.model.parameters(), state.average.parameters(), strict=True):
        assert torch.equal(a, b)


def test_the_windows_of_a_step_come_from_seed_and_step(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    drawn: list[tuple[int, int]] = []
    original = step_module.draw_batch

    def watch(genomes: Any, **options: Any) -> Any:
        batch = original(genomes, **options)
        drawn.append((options["window"], hash(batch.codes.tobytes())))
        assert batch.codes.shape == (360 // options["window"], options["window"])
        return batch

    monkeypatch.setattr(step_module, "draw_batch", watch)
    genome = load_genome(run_config().samples[0], root=root)
    for seed in (0, 0, 1):
        config = run_config(seed=seed)
        state = new_state(config, torch.device("cpu"))
        for _ in range(6):
            train_step(state, [genome], config.train)
    assert drawn[:6] == drawn[6:12]
    assert drawn[:6] != drawn[12:]
    assert len(set(drawn[:6])) == 6
    assert {window for window, _ in drawn} == {60, 180}


# ---- validation


def test_validation_counts_the_first_bases_window_by_window(root: Path) -> None:
    genome = load_genome(Sample("a.fa", "a.gff"), root=root)
    model = tiny_model()
    for bases, window in [(300, 100), (250, 100), (10**9, 10**6)]:
        matrix = np.zeros((3, 3), dtype=np.int64)
        for first, last in zip(genome.offsets[:-1], genome.offsets[1:], strict=True):
            for start in range(first, min(last, bases), window):
                end = min(start + window, last, bases)
                with torch.no_grad():
                    logits = model(torch.from_numpy(genome.codes[None, start:end]))["coding-frame"]
                called = strand_probabilities(logits.softmax(-1)[0].numpy()).argmax(axis=1)
                matrix += confusion(genome.strands[start:end], called, 3)
        assert matrix.sum() == (genome.strands[:bases] != 255).sum()
        scores = validate(model, [genome], bases=bases, window=window)
        assert scores == {"a.fa": pooled_score(matrix)}


def test_validation_sees_no_more_than_the_model_can(root: Path) -> None:
    genome = load_genome(Sample("a.fa", "a.gff"), root=root)
    learned = tiny_model(attention=("linformer",), linformer_projection="learned", linformer_tokens=30)
    assert set(validate(learned, [genome], bases=500)) == {"a.fa"}


def test_a_genome_with_nothing_to_find_leaves_the_mean_alone(tmp_path: Path, root: Path) -> None:
    nothing = Score(math.nan, math.nan, math.nan)
    assert mean_f1({"a": Score(1, 0.5, 0.6), "b": nothing}) == 0.6
    assert math.isnan(mean_f1({"b": nothing}))
    assert math.isnan(mean_f1({}))
    (root / "b.gff").write_text("##gff-version 3\n##sequence-region chr 1 9\n")
    genome = Genome("x", *(np.zeros(9, np.uint8),) * 3, np.array([0, 9]), 11, 1.0, "", "")
    model = tiny_model()
    with torch.no_grad():
        model.heads["coding-frame"].output.bias[0] = 1e4
    assert math.isnan(validate(model, [genome], bases=9)["x"].f1)


def test_every_step_is_told_apart_by_the_saved_configuration(tmp_path: Path, root: Path) -> None:
    config = run_config(steps=2)
    take(config, tmp_path / "run", root)
    from safetensors import safe_open

    with safe_open(tmp_path / "run" / STATE, framework="pt") as file:
        metadata = file.metadata()
    assert metadata["step"] == "2"
    assert json.loads(metadata["config"]) == json.loads(json.dumps(to_dict(config)))
