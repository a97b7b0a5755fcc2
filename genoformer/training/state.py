"""State of a training: all that changes, written and read back to the last bit, or begun from other weights."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from genoformer.config import ModelConfig
from genoformer.errors import CheckpointError, ConfigError
from genoformer.model.checkpoint import (
    bundled_models,
    named_tensors,
    read_checkpoint,
    read_tensors,
    restore,
    write_tensors,
)
from genoformer.model.genoformer import LETTERS, Genoformer, build
from genoformer.model.heads import SignalHead
from genoformer.model.inputs import INPUTS
from genoformer.plain import from_dict, to_dict
from genoformer.tracks import MASKED_NUCLEOTIDE
from genoformer.training.config import RunConfig
from genoformer.training.examples import Genome
from genoformer.training.own_labels import signal_spread
from genoformer.training.team import ALONE, Team

_STEM = "encoder.stem.first.weight"
_LISTED = 4
_LARGEST_TEAM = 4096

Digests = dict[str, list[list[str]]]
"""Name and digest of each genome, by split."""


@dataclass
class State:
    """Everything that changes while training.

    Attributes
    ----------
    model, average, optimizer : the weights, their running mean, the moments of AdamW
    step : steps taken
    best, best_step, stale : best validation so far, the step it was of (0: none yet), validations since
    data : what it learns from and is measured on
    origin : name and digest of the model whose weights it began from
    team : the processes that train together
    passes : as many as the windows of a step need, of all processes together; the same whoever goes on
    """

    model: Genoformer
    average: Genoformer
    optimizer: torch.optim.AdamW
    step: int = 0
    best: float = -1.0
    best_step: int = 0
    stale: int = 0
    data: Digests = field(default_factory=dict)
    origin: dict[str, str] = field(default_factory=dict)
    team: Team = ALONE
    passes: int = 1


def trained_shape(config: RunConfig) -> ModelConfig:
    """Return the shape of the model that is trained: in pre-training, one that tells letters."""
    if not config.train.pretrain:
        return config.model
    return replace(config.model, tracks=(MASKED_NUCLEOTIDE.name,), own_tracks=())


def new_state(config: RunConfig, device: torch.device, *, team: Team = ALONE) -> State:
    """Build the model, its running mean and the optimizer.

    A step has `TrainConfig.accumulate` passes of each process of a team, or of all together where windows are split.
    """
    shape = trained_shape(config)
    model, average = build(shape).to(device), build(shape).to(device)
    groups: dict[tuple[bool, bool], list[Tensor]] = {}
    around = tuple(_approximate(shape)) if config.train.approximate_rate != 1 else ()
    for name, parameter in model.named_parameters():
        groups.setdefault((parameter.ndim >= 2, name.startswith(around)), []).append(parameter)
    optimizer = torch.optim.AdamW(
        [
            {
                "params": groups[is_matrix, is_approximate],
                "weight_decay": config.train.weight_decay if is_matrix else 0.0,
                "factor": config.train.approximate_rate if is_approximate else 1.0,
            }
            for is_matrix, is_approximate in sorted(groups, reverse=True)
        ],
        lr=config.train.learning_rate,
        betas=(0.9, 0.98),
    )
    passes = config.train.accumulate * (1 if config.train.split_windows else team.size)
    return State(model, average.eval(), optimizer, team=team, passes=passes)


def standardize_signals(state: State, genomes: Sequence[Genome]) -> None:
    """Have the heads of signals count in standard deviations from the mean of what they learn from."""
    for model in (state.model, state.average):
        for name, head in model.heads.items():
            if isinstance(head, SignalHead):
                center, scale = signal_spread([genome.own[name] for genome in genomes])
                head.standardize(center.tolist(), scale.tolist())


def _approximate(shape: ModelConfig) -> Iterator[str]:
    """Yield what the names of the parameters around approximate attention begin with."""
    for index, name in enumerate(shape.attention):
        mechanism = shape.hybrid_global if name == "hybrid" else name
        if mechanism not in ("softmax", "local"):
            yield f"encoder.blocks.{index}.multihead."


def save_state(state: State, path: Path, config: RunConfig) -> None:
    """Write everything that a later run needs to go on bit by bit."""
    tensors = {f"model.{name}": tensor for name, tensor in named_tensors(state.model).items()}
    tensors |= {f"average.{name}": tensor for name, tensor in named_tensors(state.average).items()}
    names = {id(p): name for name, p in state.model.named_parameters()}
    for parameter, moments in state.optimizer.state.items():
        for key, value in moments.items():
            tensors[f"optimizer.{names[id(parameter)]}.{key}"] = torch.as_tensor(value)
    best = {"best": state.best, "best_step": state.best_step, "stale": state.stale}
    about = {"config": to_dict(config), "validation": best, "data": state.data, "origin": state.origin}
    counts = {"step": str(state.step), "passes": str(state.passes)}
    write_tensors(tensors, path, counts | {key: json.dumps(value) for key, value in about.items()})


def load_state(state: State, path: Path, config: RunConfig) -> None:
    """Go back to what `save_state` wrote; `State.data` is then that of the file, see `require_same_data`.

    Raises
    ------
    CheckpointError : the file is damaged or of another configuration
    """
    tensors, metadata = read_tensors(path)
    about = _about(path, metadata)
    _require_same_configuration(path, about["config"], config)

    def part(prefix: str) -> dict[str, Tensor]:
        return {name.removeprefix(prefix): t for name, t in tensors.items() if name.startswith(prefix)}

    restore(state.model, part("model."), where=str(path))
    restore(state.average, part("average."), where=str(path))
    moments = part("optimizer.")
    for name, parameter in state.model.named_parameters():
        keys = {key.removeprefix(name + "."): key for key in moments if key.rpartition(".")[0] == name}
        state.optimizer.state[parameter] = {key: moments[full].clone() for key, full in keys.items()}
    state.step = about["step"]
    if about["passes"] is not None:
        state.passes = _checked_passes(path, about["passes"], config)
    for key in ("best", "best_step", "stale"):
        setattr(state, key, about["validation"].get(key, getattr(state, key)))
    state.data, state.origin = about["data"], about["origin"]


def _checked_passes(path: Path, passes: int, config: RunConfig) -> int:
    """Refuse what no team can have begun with, as memory is taken by it."""
    each, most = config.train.accumulate, 1 if config.train.split_windows else _LARGEST_TEAM
    if passes % each or not 1 <= passes // each <= most:
        raise CheckpointError(f"{path}: damaged: {passes} passes a step, where accumulate is {each}; copy it again")
    return passes


def _about(path: Path, metadata: dict[str, str]) -> dict[str, Any]:
    """Return what the metadata of a checkpoint say, as plain values."""
    if "step" not in metadata:
        raise CheckpointError(f"{path}: is no checkpoint of a training; bring that back, or start in another folder")
    try:
        about: dict[str, Any] = {
            key: json.loads(metadata.get(key, "{}")) for key in ("config", "validation", "data", "origin")
        }
        if not all(isinstance(value, dict) for value in about.values()):
            raise ValueError("expected objects")
        passes = int(metadata["passes"]) if "passes" in metadata else None
        return about | {"step": int(metadata["step"]), "passes": passes}
    except (ValueError, KeyError, RecursionError) as error:
        raise CheckpointError(f"{path}: damaged: its metadata cannot be read ({error}); copy it again") from None


def _require_same_configuration(path: Path, described: dict[str, Any], config: RunConfig) -> None:
    advice = "resume with the one it had, or start anew in another folder"
    try:  # what is new since the file was written is at its default
        saved = to_dict(from_dict(RunConfig, described))
    except ConfigError as error:
        raise CheckpointError(f"{path}: was written with another configuration ({error}); {advice}") from None
    own = to_dict(config)
    for table in own:
        if saved[table] != own[table]:
            raise CheckpointError(
                f"{path}: was written with another [{table}] configuration{_difference(saved[table], own[table])}; "
                f"{advice}"
            )


def _difference(saved: Any, own: Any) -> str:
    if not isinstance(own, dict):
        return ""
    key = next(key for key in own if saved[key] != own[key])
    return f" ({key} was {saved[key]!r}, is {own[key]!r})"


def require_same_data(state: State, data: Digests, *, where: Path) -> None:
    """Compare what a checkpoint was trained on with what was loaded now, and keep the latter.

    Raises
    ------
    CheckpointError : bases or labels of a genome are others
    """
    for split, genomes in state.data.items():
        for (name, then), (_, now) in zip(genomes, data[split], strict=True):
            if then != now:
                raise CheckpointError(
                    f"{where}: bases or labels of {name} ({split}) are not those it was trained with; bring back the "
                    "files as they were, or start anew in another folder"
                )
    state.data = data


def start_from(state: State, source: str, shape: ModelConfig, *, root: Path, report: Callable[[str], None]) -> None:
    """Begin from the weights of a model, wherever names and shapes agree, and say what does not.

    Inputs that only the new model has begin with weights of zero, so that they change nothing yet.

    Parameters
    ----------
    source : name of a bundled model, or a folder; a relative one starts at ``root``
    shape : of the state's model

    Raises
    ------
    CheckpointError : there is no such model, it is damaged, or nothing of it fits
    """
    checkpoint = read_checkpoint(source if source in bundled_models() else root / source)
    tensors, _ = read_tensors(checkpoint.weights)
    own = named_tensors(state.model)
    if _STEM in tensors and checkpoint.config.inputs != shape.inputs:
        stem = _with_inputs(tensors[_STEM], checkpoint.config, shape)
        if stem is not None:
            tensors[_STEM] = stem
            report(f"{source}: inputs were {_named(checkpoint.config.inputs)}, are {_named(shape.inputs)}")
    fitting = [name for name, tensor in own.items() if name in tensors and tensors[name].shape == tensor.shape]
    if not fitting:
        raise CheckpointError(f"{source}: nothing of it fits the model; init_from takes one of a like configuration")
    with torch.no_grad():
        for model in (state.model, state.average):
            for name, tensor in named_tensors(model).items():
                if name in fitting:
                    tensor.copy_(tensors[name])
    report(f"{source}: {len(fitting)} of {len(own)} tensors start from it")
    for names, what in (
        ([name for name in own if name not in fitting], "start afresh"),
        ([name for name in tensors if name not in fitting], "of it have no place"),
    ):
        if names:
            report(f"  {len(names)} {what}: {_named(names[:_LISTED])}{' ...' if len(names) > _LISTED else ''}")
    state.origin = {"name": checkpoint.name, "weights-sha256": checkpoint.sha256}


def _with_inputs(weight: Tensor, old: ModelConfig, new: ModelConfig) -> Tensor | None:
    """Return the stem's weight (kernel x channels, features) for other derived inputs; None if it fits in no way."""
    if (old.stem_kernel, old.stem_channels) != (new.stem_kernel, new.stem_channels):
        return None
    sizes = [LETTERS, *(INPUTS[name].channels for name in old.inputs)]
    known = dict(zip(("letters", *old.inputs), weight.unflatten(0, (old.stem_kernel, -1)).split(sizes, 1), strict=True))
    parts = [known["letters"]]
    for name in new.inputs:
        zeros = weight.new_zeros(new.stem_kernel, INPUTS[name].channels, weight.shape[1])
        parts.append(known.get(name, zeros))
    return torch.cat(parts, dim=1).flatten(0, 1)


def _named(names: list[str] | tuple[str, ...]) -> str:
    return ", ".join(names) or "none"
