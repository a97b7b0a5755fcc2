"""Checks of training in a team, run by tests/training/test_team.py on each rank of a group."""

from __future__ import annotations

import shutil
import sys
import tempfile
from pathlib import Path
from typing import Any

import torch
from torch import distributed

sys.path.insert(0, str(Path(__file__).resolve().parent))

from own_track_samples import LABELS, OWN, write_genomes
from ranks import main, over
from tiny import tiny_config
from training_samples import die, take

from genoformer.model.checkpoint import load_model, named_tensors, read_tensors
from genoformer.training import run as module
from genoformer.training.config import RunConfig, Sample, TrainConfig
from genoformer.training.run import LOG, STATE, Progress, train
from genoformer.training.team import ALONE, join_team

CASES: dict[str, tuple[Any, ...]] = {
    "plain": ({}, {}),
    "tuned": ({"attention": ("performer",), "performer_features": "saderf"}, {"redraw_every": 3}),
    "passes": ({}, {"accumulate": 2, "error_rates": (0.0, 0.05), "class_weights": (1.0, 2.0, 2.0, 2.0, 1.0, 1.0, 1.0)}),
    "own": ({"tracks": ("purine", "coding-frame", "amount"), "own_tracks": OWN}, {"error_rates": (0.0, 0.05)}),
}


def common_folder(rank: int) -> Path:
    """Make a folder that all ranks know, with two genomes."""
    name = [tempfile.mkdtemp() if rank == 0 else ""]
    distributed.broadcast_object_list(name)
    folder = Path(name[0])
    if rank == 0:
        write_genomes(folder)
    distributed.barrier()
    return folder


def configuration(model: dict[str, Any], changes: dict[str, Any], *, step_bases: int) -> RunConfig:
    base = {"windows": (60, 180), "steps": 6, "warmup": 2, "validate_every": 3, "save_every": 2}
    settings = TrainConfig(**{**base, "step_bases": step_bases, "validate_bases": 900, **changes})
    labels = LABELS if "own_tracks" in model else {}
    samples = Sample("a.fa", "a.gff", labels=labels), Sample("b.fa", "b.gff", "validation", labels=labels)
    return RunConfig(tiny_config(**model), settings, samples)


def close(found: list[Progress], expected: list[Progress]) -> None:
    assert [progress.step for progress in found] == [progress.step for progress in expected]
    for one, two in zip(found, expected, strict=True):
        assert abs(one.loss - two.loss) <= 1e-4 * two.loss, (one, two)
        assert (one.validation is None) == (two.validation is None)


@over(CASES)
def check_the_curve_is_that_of_one_with_as_many_windows(
    rank: int, size: int, model: dict[str, Any], changes: dict[str, Any]
) -> None:
    folder = common_folder(rank)
    team = join_team()
    assert (team.rank, team.size) == (rank, size)
    together = list(train(configuration(model, changes, step_bases=360), folder / "team", root=folder))
    module.join_team = lambda: ALONE  # type: ignore[assignment]
    try:
        larger = configuration(model, changes, step_bases=360 * size)
        alone = list(train(larger, folder / f"alone-{rank}", root=folder))
    finally:
        module.join_team = join_team
    close(together, alone)
    assert together[-1].validation == alone[-1].validation or abs(together[-1].validation - alone[-1].validation) < 0.01
    distributed.barrier()
    assert len((folder / "team" / LOG).read_text().splitlines()) == 6
    one, two = (named_tensors(load_model(folder / name / "model")) for name in ("team", f"alone-{rank}"))
    for name, tensor in one.items():
        torch.testing.assert_close(
            tensor, two[name], rtol=0.02, atol=2e-4, msg=lambda words, name=name: f"{name}: {words}"
        )


@over({name: CASES[name] for name in ("plain", "tuned", "own")})
def check_positions_of_windows_are_shared_out(
    rank: int, size: int, model: dict[str, Any], changes: dict[str, Any]
) -> None:
    """A team that splits windows takes the steps of one process."""
    folder = common_folder(rank)
    split = {**changes, "split_windows": True}
    together = list(train(configuration(model, split, step_bases=360), folder / "team", root=folder))
    module.join_team = lambda: ALONE  # type: ignore[assignment]
    try:
        alone = list(train(configuration(model, split, step_bases=360), folder / f"alone-{rank}", root=folder))
    finally:
        module.join_team = join_team
    close(together, alone)
    distributed.barrier()
    one, two = (named_tensors(load_model(folder / name / "model")) for name in ("team", f"alone-{rank}"))
    for name, tensor in one.items():
        torch.testing.assert_close(
            tensor, two[name], rtol=0.02, atol=2e-4, msg=lambda words, name=name: f"{name}: {words}"
        )


def check_a_team_goes_on_where_it_was(rank: int, size: int) -> None:
    folder = common_folder(rank)
    config = configuration({}, {}, step_bases=360)
    whole = list(train(config, folder / "whole", root=folder))
    training = train(config, folder / "cut", root=folder)
    for progress in training:
        if progress.step == 3:
            die(training)
    distributed.barrier()
    rest = list(train(config, folder / "cut", root=folder, resume=True))
    assert [(p.step, p.loss, p.validation) for p in rest] == [(p.step, p.loss, p.validation) for p in whole[2:]]
    distributed.barrier()
    (one, _), (two, _) = (read_tensors(folder / name / STATE) for name in ("whole", "cut"))
    assert one.keys() == two.keys()
    assert all(torch.equal(tensor, two[name]) for name, tensor in one.items())


def check_others_go_on_with_as_many_windows(rank: int, size: int) -> None:
    """One process goes on where a team was, and the team where one was."""
    folder = common_folder(rank)
    config = configuration({}, {"accumulate": 2, "error_rates": (0.0, 0.05)}, step_bases=360)
    whole = take(config, folder / "whole", folder)
    take(config, folder / "team", folder, steps=3)
    distributed.barrier()
    own = folder / f"alone-{rank}"
    shutil.copytree(folder / "team", own)
    module.join_team = lambda: ALONE  # type: ignore[assignment]
    try:
        alone = take(config, own, folder, steps=5, resume=True)
    finally:
        module.join_team = join_team
    close(alone, whole[2:5])
    distributed.barrier()
    close(take(config, folder / "alone-0", folder, resume=True), whole[4:])
    distributed.barrier()
    assert read_tensors(folder / "alone-0" / STATE)[1]["passes"] == str(2 * size)


@over({"plain": ({},), "tuned": ({"attention": ("performer",), "performer_features": "saderf"},)})
def check_others_without_a_window_wait(rank: int, size: int, model: dict[str, Any]) -> None:
    """A team goes on where one process was that has a window a step."""
    folder = common_folder(rank)
    config = configuration(model, {"windows": (180,)}, step_bases=180)
    module.join_team = lambda: ALONE  # type: ignore[assignment]
    try:
        whole = take(config, folder / f"whole-{rank}", folder)
        take(config, folder / f"cut-{rank}", folder, steps=3)
    finally:
        module.join_team = join_team
    distributed.barrier()
    assert sum(progress.loss > 0 for progress in whole[2:]) > 1
    close(take(config, folder / "cut-0", folder, resume=True), whole[2:])


if __name__ == "__main__":
    torch.set_num_threads(1)
    main(globals())
