"""A tiny model with fresh weights, and the command line called in this process."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import pytest

sys.path.insert(0, str(Path(__file__).parent))  # `import samples`, whatever the import mode

from genoformer.cli import run


class Result(NamedTuple):
    code: int
    out: str
    err: str

    @property
    def complaints(self) -> list[str]:
        return [line for line in self.err.splitlines() if line.startswith("genoformer: ")]


Call = Callable[..., Result]


@pytest.fixture(scope="session")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a model that predicts nonsense, fast."""
    import torch

    from genoformer.config import ModelConfig
    from genoformer.model.checkpoint import save_model
    from genoformer.model.genoformer import build

    torch.set_num_threads(1)  # more only get into each other's way
    config = ModelConfig(width=32, heads=2, stem_channels=16, performer_count=32, attention=("local", "performer"))
    folder = tmp_path_factory.mktemp("models") / "tiny"
    save_model(folder, build(config), config, name="tiny")
    return folder


@pytest.fixture
def call(capsys: pytest.CaptureFixture[str]) -> Call:
    """Run a command; an exception that it does not turn into a line fails the test."""

    def called(*arguments: object) -> Result:
        capsys.readouterr()
        code = run([str(argument) for argument in arguments])
        return Result(code, *capsys.readouterr())

    return called


@pytest.fixture(autouse=True)
def _cache(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GENOFORMER_CACHE", str(tmp_path_factory.getbasetemp() / "cache"))
