"""Model folders as model hubs have them: config.json and model.safetensors, links into a cache, other files beside."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from safetensors import safe_open
from safetensors.torch import load_file
from tiny import random_codes, tiny_config, tiny_model

from genoformer.config import ModelConfig
from genoformer.model.checkpoint import load_model, save_model
from genoformer.model.genoformer import build
from genoformer.plain import from_dict


@pytest.fixture
def saved(tmp_path: Path) -> Path:
    config = tiny_config(attention=("local", "performer", "hybrid"))
    save_model(tmp_path / "model", tiny_model(config), config, name="mine")
    return tmp_path / "model"


def test_a_snapshot_of_links_loads(saved: Path, tmp_path: Path) -> None:
    """Caches keep files by digest, and link to them from a folder for each revision."""
    blobs, snapshot = tmp_path / "hub" / "blobs", tmp_path / "hub" / "snapshots" / "0123abc"
    blobs.mkdir(parents=True)
    snapshot.mkdir(parents=True)
    for number, path in enumerate(sorted(saved.iterdir())):
        path.rename(blobs / str(number))
        (snapshot / path.name).symlink_to(Path("..") / ".." / "blobs" / str(number))
    for name in (".gitattributes", "README.md"):
        (snapshot / name).write_text("x")
    codes = random_codes(50)
    model, again = load_model(snapshot), tiny_model(tiny_config(attention=("local", "performer", "hybrid")))
    with torch.no_grad():
        for name, logits in model(codes).items():
            torch.testing.assert_close(logits, again(codes)[name])


def test_other_libraries_can_read_it(saved: Path) -> None:
    with safe_open(saved / "model.safetensors", framework="pt") as file:
        assert file.metadata()["format"] == "pt"
    described = json.loads((saved / "config.json").read_text())
    model = build(from_dict(ModelConfig, described["model"], where="config.json"))
    missing, unexpected = model.load_state_dict(load_file(saved / "model.safetensors"), strict=False)
    assert unexpected == []
    assert missing == []
