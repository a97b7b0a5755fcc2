"""Training: one step after another from a seed, so that a run that was cut off goes on exactly where it was."""

from __future__ import annotations

import json
import math
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from genoformer.attention.performer import redraw_features, settle_moments
from genoformer.augmentation import ErrorModel
from genoformer.config import ModelConfig, RunConfig, TrainConfig, to_dict
from genoformer.errors import CheckpointError, ConfigError, InputError, ResourceError
from genoformer.evaluate import Score, confusion, pooled_score, strand_probabilities
from genoformer.examples import Genome, draw_batch, load_split
from genoformer.model.checkpoint import Checkpoint, named_tensors, read_tensors, restore, save_model, write_tensors
from genoformer.model.device import CPU_CHUNK
from genoformer.model.genoformer import Genoformer, build

STATE, LOG = "state.safetensors", "log.jsonl"

_MOMENTUM = 0.99
"""Of the running mean of queries' and keys' moments, which tuned features follow."""


class Progress(NamedTuple):
    """What is known after a step."""

    step: int
    steps: int
    loss: float
    bases_per_second: float
    validation: float | None
    """mean F1 of the coding strand over the validation genomes, when it was measured"""


@dataclass
class State:
    """Everything that changes while training."""

    model: Genoformer
    average: Genoformer
    optimizer: torch.optim.AdamW
    step: int = 0


def learning_rate(step: int, config: TrainConfig) -> float:
    """Return the rate of a step: linear warm-up, then cosine decay to ``final_rate`` of the peak."""
    if step < config.warmup:
        return config.learning_rate * (step + 1) / config.warmup
    done = (step - config.warmup) / max(config.steps - config.warmup, 1)
    floor = config.final_rate
    return config.learning_rate * (floor + (1 - floor) * 0.5 * (1 + math.cos(math.pi * min(done, 1.0))))


def new_state(config: RunConfig, device: torch.device) -> State:
    """Build the model, its running mean and the optimizer."""
    model, average = build(config.model).to(device), build(config.model).to(device)
    decayed = [p for p in model.parameters() if p.ndim >= 2]
    others = [p for p in model.parameters() if p.ndim < 2]
    groups: list[dict[str, Any]] = [{"params": decayed}, {"params": others, "weight_decay": 0.0}]
    optimizer = torch.optim.AdamW(
        groups, lr=config.train.learning_rate, weight_decay=config.train.weight_decay, betas=(0.9, 0.98)
    )
    return State(model, average.eval(), optimizer)


def save_state(state: State, path: Path, config: RunConfig) -> None:
    """Write everything that a later run needs to go on bit by bit."""
    tensors = {f"model.{name}": tensor for name, tensor in named_tensors(state.model).items()}
    tensors |= {f"average.{name}": tensor for name, tensor in named_tensors(state.average).items()}
    names = {id(p): name for name, p in state.model.named_parameters()}
    for parameter, moments in state.optimizer.state.items():
        for key, value in moments.items():
            tensors[f"optimizer.{names[id(parameter)]}.{key}"] = torch.as_tensor(value)
    write_tensors(tensors, path, {"step": str(state.step), "config": json.dumps(to_dict(config))})


def load_state(state: State, path: Path, config: RunConfig) -> None:
    """Go back to what `save_state` wrote.

    Raises
    ------
    CheckpointError : the file is damaged or of another configuration
    """
    tensors, metadata = read_tensors(path)
    saved = json.loads(metadata.get("config", "{}"))
    own = json.loads(json.dumps(to_dict(config)))
    for table in own:
        if saved.get(table) != own[table]:
            raise CheckpointError(
                f"{path}: was written with another [{table}] configuration; resume with the one it had, or start anew "
                "in another folder"
            )

    def part(prefix: str) -> dict[str, Tensor]:
        return {name.removeprefix(prefix): t for name, t in tensors.items() if name.startswith(prefix)}

    restore(state.model, part("model."), where=str(path))
    restore(state.average, part("average."), where=str(path))
    moments = part("optimizer.")
    for name, parameter in state.model.named_parameters():
        keys = {key.removeprefix(name + "."): key for key in moments if key.rpartition(".")[0] == name}
        state.optimizer.state[parameter] = {key: moments[full].clone() for key, full in keys.items()}
    state.step = int(metadata["step"])


def draw_window(config: TrainConfig, rng: np.random.Generator) -> int:
    """Choose the length of a step's windows."""
    if not config.window_shares:
        return int(rng.choice(config.windows))
    shares = np.array(config.window_shares)
    return int(rng.choice(config.windows, p=shares / shares.sum()))


def train_step(state: State, genomes: Sequence[Genome], config: TrainConfig) -> Tensor:
    """Draw the windows of this step and take it; return the loss, NaN if its gradient was none, not yet waited for."""
    rng = np.random.default_rng([config.seed, state.step])
    window = draw_window(config, rng)
    batch = draw_batch(
        genomes,
        window=window,
        count=max(1, config.step_bases // window),
        recode=config.recode,
        length_power=config.length_power,
        rng=rng,
        errors=ErrorModel(config.error_rates, config.error_shares, config.homopolymer_indels),
    )
    model, device = state.model.train(), state.model.device
    for group in state.optimizer.param_groups:
        group["lr"] = learning_rate(state.step, config)
    with torch.autocast(device.type, torch.bfloat16, enabled=config.precision == "bfloat16"):
        logits = model(
            torch.from_numpy(batch.codes).to(device),
            genetic_code=torch.from_numpy(batch.genetic_codes),
            chunk_size=config.chunk_size or None,
        )
    labels = torch.from_numpy(batch.labels).to(device)
    loss = torch.stack([head.loss(logits[name], labels) for name, head in model.heads.items()]).sum()  # type: ignore[operator]
    state.optimizer.zero_grad(set_to_none=True)
    loss.backward()
    norm = nn.utils.clip_grad_norm_(model.parameters(), config.gradient_clip)
    state.optimizer.step()
    state.step += 1
    settle_moments(model, momentum=min(_MOMENTUM, state.step / (state.step + 10.0)))
    if config.redraw_every and state.step % config.redraw_every == 0 and state.step < config.steps:
        redraw_features(model, 1_000_003 * config.seed + state.step)
    _average(state, config.ema)
    return torch.where(torch.isfinite(norm), loss.detach(), torch.nan)


@torch.no_grad()
def _average(state: State, decay: float) -> None:
    decay = min(decay, state.step / (state.step + 10.0))  # young weights are forgotten soon
    own: list[Tensor] = list(state.average.parameters())
    new: list[Tensor] = list(state.model.parameters())
    torch._foreach_lerp_(own, new, 1.0 - decay)
    for own_buffer, buffer in zip(state.average.buffers(), state.model.buffers(), strict=True):
        own_buffer.copy_(buffer)


@torch.inference_mode()
def validate(model: Genoformer, genomes: Sequence[Genome], *, bases: int, window: int = 100_000) -> dict[str, Score]:
    """Measure a model on the first bases of each genome: score of the coding strand, window by window."""
    model.eval()
    window = min(window, model.most_bases or window)
    scores = {}
    for genome in genomes:
        matrix = np.zeros((3, 3), dtype=np.int64)
        for sequence_start, sequence_end in zip(genome.offsets[:-1], genome.offsets[1:], strict=True):
            for start in range(sequence_start, min(sequence_end, bases), window):
                end = min(start + window, sequence_end, bases)
                codes = torch.from_numpy(genome.codes[None, start:end]).to(model.device)
                logits = model(codes, genetic_code=genome.genetic_code, chunk_size=CPU_CHUNK)["coding-frame"]
                strands = strand_probabilities(logits.softmax(dim=-1)[0].cpu().numpy())
                matrix += confusion(genome.strands[start:end], strands.argmax(axis=1), 3)
        scores[genome.name] = pooled_score(matrix)
    return scores


def mean_f1(scores: dict[str, Score]) -> float:
    """Return the mean F1 over the genomes that have one; NaN if none has."""
    known = [score.f1 for score in scores.values() if not math.isnan(score.f1)]
    return float(np.mean(known)) if known else math.nan


def _plain(numbers: dict[str, float]) -> dict[str, float | None]:
    """Put None for NaN, which JSON has not."""
    return {name: None if math.isnan(number) else number for name, number in numbers.items()}


def _append(path: Path, entry: dict[str, Any]) -> None:
    try:
        with path.open("a", encoding="utf-8") as log:
            log.write(json.dumps(entry) + "\n")
    except OSError as error:
        raise ResourceError(f"{path}: cannot be written: {error.strerror}") from None


def _rewind(path: Path, step: int) -> None:
    """Take from the log what a run wrote after its last checkpoint: these steps will be taken again."""
    if not path.exists():
        return
    kept = []
    for line in path.read_text(encoding="utf-8").splitlines():
        try:
            entry = json.loads(line)
        except ValueError:  # the line that was being written
            continue
        if entry.get("step", 0) <= step:
            kept.append(line + "\n")
    path.write_text("".join(kept), encoding="utf-8")


def prepare_run(config: RunConfig, folder: Path, *, resume: bool, device: torch.device) -> State:
    """Make the folder and the state, or go on from the folder's checkpoint."""
    if not any(sample.split == "train" for sample in config.samples):
        raise ConfigError("samples: at least one sample must have split = 'train'")
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ResourceError(f"{folder}: cannot be made: {error.strerror}") from None
    state = new_state(config, device)
    if (folder / STATE).exists():
        if not resume:
            raise InputError(f"{folder}: already holds a training; use --resume to go on with it, or another folder")
        load_state(state, folder / STATE, config)
    _rewind(folder / LOG, state.step)
    return state


def train(
    config: RunConfig,
    folder: str | Path,
    *,
    name: str = "model",
    root: str | Path = ".",
    resume: bool = False,
    device: str | torch.device = "cpu",
    report: Callable[[str], None] = lambda _: None,
) -> Iterator[Progress]:
    """Train a model, yielding after each step; the model of the running mean is saved in ``folder/model``.

    Parameters
    ----------
    config : the model, the training and the samples
    folder : for the checkpoint, the log (JSONL) and the model
    name : of the model
    root : folder that relative sample paths start at
    resume : go on from the folder's checkpoint, exactly as if it had never stopped
    report : called with lines about the data

    Raises
    ------
    ConfigError, InputError : nothing to train on, files that do not fit, or a loss that is no number any more
    ResourceError : the folder cannot be written
    """
    folder = Path(folder)
    state = prepare_run(config, folder, resume=resume, device=torch.device(device))
    genomes, held_out = (load_split(config.samples, part, root=Path(root)) for part in ("train", "validation"))
    for genome in (*genomes, *held_out):
        report(f"{genome.name}: {genome.length:,} bases, genetic code {genome.genetic_code}, {genome.dropped}")
    settings, began, first = config.train, time.monotonic(), state.step
    data = {genome.name: genome.digest for genome in genomes}
    while state.step < settings.steps:
        loss = float(train_step(state, genomes, settings))
        if not math.isfinite(loss):
            raise ConfigError(
                f"step {state.step}: the loss is {loss}; start again in another folder with a lower learning_rate "
                f"(now {settings.learning_rate}) or precision = 'float32'"
            )
        speed = (state.step - first) * settings.step_bases / (time.monotonic() - began)
        last = state.step == settings.steps
        scores = None
        if held_out and (last or state.step % settings.validate_every == 0):
            scores = validate(state.average, held_out, bases=settings.validate_bases)
        f1 = None if scores is None else mean_f1(scores)
        entry: dict[str, Any] = {"step": state.step, "loss": round(loss, 5), "bases_per_second": round(speed)}
        entry["learning_rate"] = learning_rate(state.step - 1, settings)
        if scores is not None:
            entry["validation"] = {genome: _plain(score._asdict()) for genome, score in scores.items()}
            entry["validation"] |= _plain({"mean_f1": mean_f1(scores)})
        _append(folder / LOG, entry)
        if last or state.step % settings.save_every == 0:
            save_state(state, folder / STATE, config)
            _save(state, folder, config, name=name, data=data)
        yield Progress(state.step, settings.steps, loss, speed, f1)


def _save(state: State, folder: Path, config: RunConfig, *, name: str, data: dict[str, str]) -> Checkpoint:
    training = {"steps": state.step, "train": to_dict(config.train), "data-sha256": data}
    model_config: ModelConfig = config.model
    return save_model(folder / "model", state.average, model_config, name=name, training=training)
