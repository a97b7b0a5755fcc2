"""One step: the loss of a step does not depend on how many passes or processes compute it."""

from __future__ import annotations

import math
from operator import attrgetter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch.nn import functional
from training_samples import root, run_config

from genoformer.errors import ConfigError
from genoformer.model.checkpoint import named_tensors
from genoformer.model.shared import shared_logits
from genoformer.tokens import MASK, PAD, N
from genoformer.tracks import IGNORED
from genoformer.training.config import Sample
from genoformer.training.examples import Batch, Genome, load_genome
from genoformer.training.loss import summed_loss, total_weight
from genoformer.training.state import State, new_state
from genoformer.training.step import draw_windows, hide_letters, learning_rate, own_passes, train_step
from genoformer.training.team import ALONE, Team, join_team
from genoformer.training.validation import hidden_letters_told, measure, validate, validate_reads

__all__ = ["root"]


@pytest.fixture
def genome(root: Path) -> Genome:
    return load_genome(Sample("a.fa", "a.gff"), root=root)


def after(genome: Genome, taken: int = 1, **changes: Any) -> tuple[State, list[float]]:
    config = run_config(warmup=0, **changes)
    state = new_state(config, torch.device("cpu"))
    return state, [float(train_step(state, [genome], config.train)) for _ in range(taken)]


@pytest.mark.parametrize("changes", [{}, {"class_weights": (1.0, 3.0, 3.0, 3.0, 2.0, 2.0, 0.0)}, {"pretrain": True}])
def test_passes_add_up_to_one_of_all_windows(genome: Genome, changes: dict[str, Any]) -> None:
    """To rounding: gradients are compared before AdamW divides them by their own size."""
    at_once, losses = after(genome, step_bases=1080, **changes)
    in_passes, others = after(genome, step_bases=360, accumulate=3, **changes)
    assert losses == pytest.approx(others, rel=1e-5)
    for one, two in zip(at_once.model.parameters(), in_passes.model.parameters(), strict=True):
        assert one.grad is not None
        torch.testing.assert_close(one.grad, two.grad, rtol=2e-4, atol=2e-6)


@pytest.mark.parametrize("size", [1, 2, 3, 4, 5, 8, 11])
def test_passes_are_the_windows_of_the_step(genome: Genome, size: int) -> None:
    """Of however many processes, all as busy as they can be."""
    config = run_config(windows=(180,), accumulate=2, error_rates=(0.05,)).train
    windows = draw_windows([genome], config, step=3, passes=4)
    shares = [list(own_passes(windows, config, Team(rank, size))) for rank in range(size)]
    passes = [batch for share in shares for batch in share]
    assert {len(batch.codes) for batch in passes} <= {1, 2}
    assert len(np.unique(windows.codes, axis=0)) == 8
    counts = [sum(len(batch.codes) for batch in share) for share in shares]
    assert sum(counts) == 8
    assert max(counts) - min(counts) <= 1
    larger = run_config(windows=(180,), step_bases=1440, error_rates=(0.05,)).train
    whole = draw_windows([genome], larger, step=3, passes=1)
    for of in (attrgetter("codes"), attrgetter("genetic_codes"), lambda batch: batch.labels["coding-frame"]):
        assert np.array_equal(np.concatenate([of(batch) for batch in passes]), of(whole))


def test_windows_of_one_genome_see_each_other(genome: Genome) -> None:
    """Each pass by itself; the other windows are the same either way."""
    shape = {"attention": ("local", "performer")}
    options = {"model": shape, "windows": (60,), "step_bases": 600}
    config = run_config(**options, one_genome=1.0).train
    windows = draw_windows([genome], config, step=0, passes=1)
    assert windows.one_genome
    assert windows.rows(2, 4).one_genome
    _, (loss,) = after(genome, **options, one_genome=1.0)
    state = new_state(run_config(**options), torch.device("cpu"))
    codes, labels = torch.from_numpy(windows.codes), windows.labels["coding-frame"]
    logits = shared_logits(state.model, codes, genetic_code=torch.from_numpy(windows.genetic_codes))["coding-frame"]
    total = summed_loss(logits, torch.from_numpy(labels), class_weights=(), label_smoothing=0.0)
    assert loss == pytest.approx(float(total.detach() / total_weight(labels, ())), rel=1e-5)
    alone = state.model(codes, genetic_code=torch.from_numpy(windows.genetic_codes))["coding-frame"]
    assert not torch.allclose(alone, logits, atol=1e-4)


def test_how_often_windows_are_of_one_genome(genome: Genome) -> None:
    config = run_config(one_genome=0.3).train
    drawn = [draw_windows([genome], config, step=step, passes=1).one_genome for step in range(300)]
    assert 60 < sum(drawn) < 120
    with pytest.raises(ConfigError, match="one_genome: not with split_windows"):
        run_config(one_genome=0.3, split_windows=True)
    with pytest.raises(ConfigError, match="one_genome needs performer in attention"):
        run_config(one_genome=0.3, model={"attention": ("local", "linformer")})
    with pytest.raises(ConfigError, match="one_genome must be from 0 to 1"):
        run_config(one_genome=1.3)


@pytest.mark.parametrize("smoothing", [0.0, 0.2])
@pytest.mark.parametrize("weights", [(), (1.0, 2.0, 0.5)])
def test_the_loss_is_the_weighted_mean_over_bases_that_count(weights: tuple[float, ...], smoothing: float) -> None:
    rng = np.random.default_rng(0)
    labels = rng.integers(0, 3, (4, 9)).astype(np.uint8)
    labels[0] = labels[2, 3] = IGNORED
    logits = torch.randn(4, 9, 3, dtype=torch.float64)
    summed = summed_loss(logits.float(), torch.from_numpy(labels), class_weights=weights, label_smoothing=smoothing)
    found = summed / total_weight(labels, weights)
    given = list(weights or (1.0,) * 3)
    total = count = 0.0
    for row, base in zip(*np.nonzero(labels != IGNORED), strict=True):
        logs, true = logits[row, base].log_softmax(-1).tolist(), int(labels[row, base])
        total -= (1 - smoothing) * given[true] * logs[true]
        total -= smoothing / 3 * sum(weight * value for weight, value in zip(given, logs, strict=True))
        count += given[true]
    assert float(found) == pytest.approx(total / count, rel=1e-5)
    mean = functional.cross_entropy(
        logits.flatten(0, 1),
        torch.from_numpy(labels).flatten().long(),
        weight=torch.tensor(given).double(),
        ignore_index=IGNORED,
        label_smoothing=smoothing,
    )
    assert float(found) == pytest.approx(float(mean), rel=1e-5)


def test_a_step_in_which_nothing_counts_changes_little(genome: Genome) -> None:
    genome.frames[:] = IGNORED
    state, losses = after(genome, weight_decay=0.0)
    assert losses == [0.0]
    fresh = new_state(run_config(), torch.device("cpu"))
    for one, two in zip(state.model.parameters(), fresh.model.parameters(), strict=True):
        assert torch.equal(one, two)


def test_projections_around_approximate_attention_learn_more_slowly(genome: Genome) -> None:
    shape = {"attention": ("local", "performer", "hybrid")}
    whole, _ = after(genome, model=shape, weight_decay=0.0)
    slowed, _ = after(genome, model=shape, weight_decay=0.0, approximate_rate=0.25)
    start = named_tensors(new_state(run_config(model=shape), torch.device("cpu")).model)
    seen = set()
    for (name, one), two in zip(whole.model.named_parameters(), slowed.model.parameters(), strict=True):
        is_slow = name.startswith(("encoder.blocks.1.multihead.", "encoder.blocks.2.multihead."))
        moved, other = ((now.detach() - start[name].detach()).norm() for now in (one, two))
        assert float(other / moved) == pytest.approx(0.25 if is_slow else 1.0, rel=2e-3), name
        seen.add(is_slow)
    assert seen == {True, False}


# ---- hidden letters


def test_hidden_letters_are_the_labels_and_nothing_else_is() -> None:
    rng = np.random.default_rng(0)
    codes = rng.integers(0, 4, (3, 4_000)).astype(np.uint8)
    codes[0, :100], codes[1, -200:] = N, PAD
    batch = hide_letters(Batch(codes.copy(), {}, np.array([11, 4, 11])), 0.15, np.random.default_rng(1))
    labels = batch.labels["masked-nucleotide"]
    hidden = batch.codes == MASK
    known = codes < N
    assert hidden[known].mean() == pytest.approx(0.15, abs=5 * math.sqrt(0.15 * 0.85 / known.sum()))
    assert not hidden[~known].any()
    assert np.array_equal(labels[hidden], codes[hidden])
    assert (labels[~hidden] == IGNORED).all()
    assert np.array_equal(batch.codes[~hidden], codes[~hidden])


def test_a_model_learns_to_tell_hidden_letters(root: Path) -> None:
    """Of a sequence that repeats itself; a letter's own place is of no help."""
    codes = np.resize(np.array([0, 1, 1, 2, 3, 0, 2], dtype=np.uint8), 6_000)
    genome = Genome("g", codes, codes, codes, np.array([0, 6_000]), 11, 1.0, "", "")
    changes = {"pretrain": True, "windows": (300,), "step_bases": 900, "learning_rate": 0.02, "recode": 0.0, "ema": 0.5}
    state, losses = after(genome, 40, steps=40, validate_bases=2_000, **changes)
    assert losses[0] == pytest.approx(math.log(4), rel=0.4)
    config = run_config(**changes, validate_bases=2_000).train
    told = hidden_letters_told(state.average, genome, config)
    assert told > 0.8
    found = measure(state.average, [genome], config)
    assert found.mean == found.entry["g"] == found.entry["mean_accuracy"] == told


# ---- reads with errors


def test_validation_of_reads(genome: Genome, root: Path) -> None:
    from tiny import tiny_model

    model = tiny_model()
    clean = validate(model, [genome], bases=10**9, window=5_000)
    silent = validate_reads(model, [genome], bases=10**9, rate=0.0, seed=0)
    assert silent.keys() == clean.keys()
    noisy, again = (validate_reads(model, [genome], bases=9_000, rate=0.1, seed=1) for _ in range(2))
    assert noisy == again
    config = run_config(validate_error_rates=(0.0, 0.1), validate_bases=3_000).train
    found = measure(model, [genome], config)
    assert {"a.fa", "a.fa at 0", "a.fa at 0.1", "mean_f1 at 0.1", "mean_f1"} <= set(found.entry)
    means = [found.entry["a.fa"]["f1"], found.entry["a.fa at 0"]["f1"], found.entry["a.fa at 0.1"]["f1"]]
    assert found.mean == pytest.approx(np.mean(means))


# ---- teams


def test_alone_is_a_team_of_one() -> None:
    assert join_team() == ALONE == Team()
    tensor = torch.ones(2)
    ALONE.add_up([tensor])
    assert tensor.tolist() == [1.0, 1.0]
    assert ALONE.leads
    assert not Team(1, 2).leads


def test_each_process_takes_its_own_passes(genome: Genome, monkeypatch: pytest.MonkeyPatch) -> None:
    """Sums over a team of two, one after the other in this process, are those of one with twice the windows."""
    config = run_config(step_bases=360).train
    gradients, losses = [], []
    for rank in (0, 1):
        state = new_state(run_config(step_bases=360), torch.device("cpu"), team=Team(rank, 2))
        monkeypatch.setattr(Team, "add_up", lambda *_: None)
        monkeypatch.setattr(torch.nn.utils, "clip_grad_norm_", lambda *_: torch.tensor(1.0))
        losses.append(float(train_step(state, [genome], config)))
        gradients.append([p.grad for p in state.model.parameters()])
    whole = new_state(run_config(step_bases=720), torch.device("cpu"))
    total = float(train_step(whole, [genome], run_config(step_bases=720).train))
    assert sum(losses) == pytest.approx(total, rel=1e-5)
    for parameter, one, two in zip(whole.model.parameters(), *gradients, strict=True):
        torch.testing.assert_close(one + two, parameter.grad, rtol=2e-4, atol=2e-6)
    assert learning_rate(0, config) > 0
