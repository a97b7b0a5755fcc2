"""Small trainings on made-up genomes, for every test that needs one."""

from __future__ import annotations

import json
from collections.abc import Generator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from tiny import made_up_genome, tiny_config, write_fasta, write_gff

from genoformer.training.config import RunConfig, Sample, TrainConfig
from genoformer.training.run import LOG, Progress, train


@pytest.fixture
def root(tmp_path: Path) -> Path:
    folder = tmp_path / "data"
    folder.mkdir()
    for name, genes, seed in (("a", 10, 1), ("b", 6, 2)):
        bases, places = made_up_genome(genes, seed=seed)
        write_fasta(folder / f"{name}.fa", {"chr": bases, "other": bases[:150]})
        write_gff(folder / f"{name}.gff", {"chr": places})
    return folder


def run_config(*, validation: bool = False, model: dict[str, Any] | None = None, **changes: Any) -> RunConfig:
    base: dict[str, Any] = {
        "windows": (60, 180),
        "step_bases": 360,
        "steps": 6,
        "warmup": 2,
        "recode": 0.5,
        "validate_every": 4,
        "validate_bases": 500,
        "save_every": 2,
    }
    samples = [Sample("a.fa", "a.gff"), Sample("b.fa", "b.gff", split="validation" if validation else "train")]
    return RunConfig(tiny_config(**(model or {})), TrainConfig(**{**base, **changes}), tuple(samples))


class Died(BaseException):
    pass


def die(steps: Generator[Progress, None, None]) -> None:
    """End a training as a kill does: closed, it would save what it goes on from."""
    with suppress(Died):
        steps.throw(Died)


def take(config: RunConfig, folder: Path, root: Path, steps: int | None = None, **options: Any) -> list[Progress]:
    """Train to the end, or as if the process died after some steps."""
    taken, training = [], train(config, folder, root=root, **options)
    for progress in training:
        taken.append(progress)
        if progress.step == steps:
            die(training)
    return taken


def log(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(line, parse_constant=refuse) for line in (folder / LOG).read_text().splitlines()]


def refuse(constant: str) -> None:
    raise AssertionError(f"{constant} is no JSON")
