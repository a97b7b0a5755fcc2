"""Training: one step after another from a seed, so that a run that was cut off goes on exactly where it was."""

from __future__ import annotations

import json
import math
import time
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from itertools import takewhile
from pathlib import Path
from typing import Any, NamedTuple

import torch

from genoformer.errors import CheckpointError, ConfigError, InputError, ResourceError
from genoformer.model.checkpoint import Checkpoint, check_name, load_model, read_checkpoint, save_model
from genoformer.plain import to_dict
from genoformer.tracks import CODING_FRAME
from genoformer.training.calibration import calibrate
from genoformer.training.config import RunConfig, TrainConfig
from genoformer.training.examples import Genome, load_split
from genoformer.training.own_labels import check_learnable
from genoformer.training.samples_table import read_samples_table
from genoformer.training.state import (
    State,
    load_state,
    new_state,
    require_same_data,
    save_state,
    standardize_signals,
    start_from,
    trained_shape,
)
from genoformer.training.step import learning_rate, train_step
from genoformer.training.team import join_team
from genoformer.training.validation import Validation, measure

STATE, LOG = "state.safetensors", "log.jsonl"

Say = Callable[[str], None]


class Progress(NamedTuple):
    """What is known after a step."""

    step: int
    steps: int
    loss: float
    bases_per_second: float
    validation: float | None
    """mean over the validation genomes and tracks, when it was measured"""
    measure: str = "F1"
    """what was measured: F1 of classes (or the coding strand), correlation of signals, the mean "score" of both, or
    accuracy of hidden letters"""


def train(
    config: RunConfig,
    folder: str | Path,
    *,
    name: str = "",
    root: str | Path = ".",
    resume: bool = False,
    device: str | torch.device = "cpu",
    report: Say = lambda _: None,
) -> Generator[Progress, None, None]:
    """Train a model, yielding after each step; the model of the running mean is saved in ``folder/model``.

    With `TrainConfig.patience` that is the model of the best validation, else the last one. At the end it is calibrated
    on the validation genomes, see `genoformer.training.calibration`. Where torch.distributed is set up, its
    processes train together: each takes its share of the windows, as if one had taken them all. A KeyboardInterrupt
    that is thrown into the iterator has it save what a later run goes on from.

    Parameters
    ----------
    config : the model, the training and the samples
    folder : for the checkpoint, the log (JSONL) and the model
    name : of the model; default: the one that it has already, else ``model``
    root : folder that relative paths of samples, of their table and of ``init_from`` start at
    resume : go on from the folder's checkpoint, exactly as if it had never stopped
    report : called with lines about the data, about what starts afresh, and about an early end

    Raises
    ------
    ConfigError, InputError : nothing to train on, files that do not fit, a name that cannot be, or is another one than
        that of the run to go on with, or a loss that is no number any more
    CheckpointError : a checkpoint is damaged or of another configuration, or the data are not those it was trained on
    ResourceError : the folder cannot be written
    """
    folder, root = Path(folder), Path(root)
    config = with_table(config, root)
    name = _named(name, folder, resume=resume)
    with _folder_for_a_run(folder):
        state = prepare_run(config, folder, resume=resume, device=torch.device(device))
        genomes, held_out = _load(config, root, report)
        data = {"train": _digests(genomes), "validation": _digests(held_out)}
        require_same_data(state, data, where=folder / STATE)
        if not state.step:
            standardize_signals(state, genomes)
        if config.train.init_from and not state.step:
            start_from(state, config.train.init_from, trained_shape(config), root=root, report=report)
    output = _Output(folder, name, config)
    yield from _steps(state, (genomes, held_out), output=output, report=report)
    if held_out and state.team.leads and not config.train.pretrain:
        output.calibrate(held_out, report)


@contextmanager
def _folder_for_a_run(folder: Path) -> Iterator[None]:
    """Make a folder, and leave none behind if the run cannot begin."""
    new = list(takewhile(lambda place: not place.exists(), (folder, *folder.parents)))
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ResourceError(f"{folder}: cannot be made: {error.strerror}") from None
    try:
        yield
    except BaseException:
        with suppress(OSError):  # something else lies in it by now
            for place in new:
                place.rmdir()
        raise


def _named(name: str, folder: Path, *, resume: bool) -> str:
    """Return the name that the model of a run is to have: as given, or the one that it has already."""
    known = ""
    with suppress(CheckpointError):  # not saved yet, or cut off while it was
        known = read_checkpoint(folder / "model").name if resume else ""
    if name and known and name != known:
        raise ConfigError(f"{folder / 'model'}: is called {known!r}, not {name!r}; go on without a name")
    if name:
        check_name(name)
    return name or known or "model"


def _steps(
    state: State, data: tuple[list[Genome], list[Genome]], *, output: _Output, report: Say
) -> Iterator[Progress]:
    """Take the steps that are left."""
    (genomes, held_out), settings = data, output.config.train
    began, first = time.monotonic(), state.step
    step_bases = settings.step_bases * state.passes
    while state.step < settings.steps and not is_patience_over(state, settings):
        loss = float(train_step(state, genomes, settings))
        if not math.isfinite(loss):
            raise ConfigError(
                f"step {state.step}: the loss is {loss}; start again in another folder with a lower learning_rate "
                f"(now {settings.learning_rate}) or precision = 'float32'"
            )
        speed = (state.step - first) * step_bases / (time.monotonic() - began)
        found, last = None, state.step == settings.steps
        if held_out and (last or state.step % settings.validate_every == 0):
            found = measure(state.average, held_out, settings)
            judge(state, found)
        output.log(state, loss, speed, found)
        ends = last or is_patience_over(state, settings)
        if is_to_be_kept(state, settings, ends=ends):
            output.save_model(state)
        if ends or state.step % settings.save_every == 0:
            output.save_state(state)
        if ends and not last:
            report(
                f"stopped at step {state.step:,}: no validation was better than that of step {state.best_step:,} "
                f"({state.best:.4f}) in {state.stale}"
            )
        shown = (None,) if found is None else (found.mean, found.measure)
        try:
            yield Progress(state.step, settings.steps, loss, speed, *shown)
        except KeyboardInterrupt:
            if not ends and state.step % settings.save_every:
                output.save_state(state)
            raise


def with_table(config: RunConfig, root: Path) -> RunConfig:
    """Return the configuration with the samples of its table among the others."""
    if not config.samples_table:
        return config
    samples = read_samples_table(root / config.samples_table, tracks=config.model.own_tracks)
    return replace(config, samples=config.samples + samples, samples_table="")


def _load(config: RunConfig, root: Path, report: Say) -> tuple[list[Genome], list[Genome]]:
    """Load the genomes to learn from and to be measured on, say what they hold, and check that something is there."""
    tracks = trained_shape(config).described_tracks
    genomes, held_out = (
        load_split(config.samples, split, root=root, tracks=tracks) for split in ("train", "validation")
    )
    for genome in (*genomes, *held_out):
        known = [f"{genome.length:,} bases", f"genetic code {genome.genetic_code}", genome.dropped]
        report(f"{genome.name}: {', '.join(filter(None, known))}")
        for name, own in genome.own.items():
            for note in own.notes:
                report(f"  {name}: {note}")
    for name in genomes[0].own:
        for warning in check_learnable([genome.own[name] for genome in genomes]):
            report(f"warning: {warning}")
    if CODING_FRAME in tracks and not any(genome.recodable for genome in genomes):
        raise InputError(
            f"track {CODING_FRAME.name!r}: no sample to train on has an annotation; give one, or take it from tracks"
        )
    return genomes, held_out


def prepare_run(config: RunConfig, folder: Path, *, resume: bool, device: torch.device) -> State:
    """Make the state, or go on from the folder's checkpoint."""
    splits = {sample.split for sample in config.samples}
    if "train" not in splits:
        raise ConfigError("samples: at least one sample must have split = 'train'")
    if config.train.patience and "validation" not in splits:
        raise ConfigError("patience needs validations: at least one sample must have split = 'validation'")
    state = new_state(config, device, team=join_team())
    if (folder / STATE).exists():
        if not resume:
            raise InputError(f"{folder}: already holds a training; use --resume to go on with it, or another folder")
        load_state(state, folder / STATE, config)
    if state.team.leads:
        _rewind(folder / LOG, state.step)
    return state


def judge(state: State, found: Validation) -> None:
    """Take note of whether a validation is the best so far."""
    if found.mean > state.best:  # never so if it is NaN
        state.best, state.best_step, state.stale = found.mean, state.step, 0
    else:
        state.stale += 1


def is_patience_over(state: State, config: TrainConfig) -> bool:
    """Tell whether too many validations in a row were not better than the best one."""
    return bool(config.patience) and state.stale >= config.patience


def is_to_be_kept(state: State, config: TrainConfig, *, ends: bool) -> bool:
    """Tell whether the model of this step is the one to save."""
    if config.patience and (state.best_step or not ends):
        return state.best_step == state.step
    return ends or state.step % config.save_every == 0


def _digests(genomes: list[Genome]) -> list[list[str]]:
    return [[genome.name, genome.digest] for genome in genomes]


class _Output:
    """The folder of a training; only the leading process of a team writes to it."""

    def __init__(self, folder: Path, name: str, config: RunConfig) -> None:
        self.folder, self.name, self.config = folder, name, config

    def log(self, state: State, loss: float, speed: float, found: Validation | None) -> None:
        """Add a line about a step to the log."""
        entry: dict[str, Any] = {"step": state.step, "loss": round(loss, 5), "bases_per_second": round(speed)}
        entry["learning_rate"] = learning_rate(state.step - 1, self.config.train)
        if found is not None:
            entry["validation"] = found.entry
        if state.team.leads:
            _append(self.folder / LOG, entry)

    def save_state(self, state: State) -> None:
        """Write what a later run goes on from: after the model, which that run would not make again."""
        if state.team.leads:
            save_state(state, self.folder / STATE, self.config)

    def save_model(self, state: State) -> Checkpoint | None:
        """Write the model of the running mean."""
        if not state.team.leads:
            return None
        training = {
            "steps": state.step,
            "train": to_dict(self.config.train),
            "data-sha256": dict(state.data["train"]),
        }
        if state.origin:
            training["init-from"] = state.origin
        shape = trained_shape(self.config)
        return save_model(self.folder / "model", state.average, shape, name=self.name, training=training)

    def calibrate(self, genomes: list[Genome], report: Say) -> None:
        """Calibrate the saved model, if that was not done yet."""
        folder = self.folder / "model"
        saved = read_checkpoint(folder)
        if "calibration" in saved.training:
            return
        model = load_model(folder)
        found = calibrate(model, genomes, bases=self.config.train.validate_bases)
        for track, fit in found.items():
            report(
                f"{track}: calibrated on {fit.bases:,} bases, temperature {fit.temperature:.3f}, "
                f"loss {fit.loss_before:.4f} -> {fit.loss:.4f}"
            )
        training = saved.training | {"calibration": {track: fit._asdict() for track, fit in found.items()}}
        save_model(folder, model, saved.config, name=saved.name, training=training)


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
    temporary = path.with_name(path.name + ".tmp")
    temporary.write_text("".join(kept), encoding="utf-8")
    temporary.replace(path)
