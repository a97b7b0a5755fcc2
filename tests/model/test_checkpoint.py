"""Checkpoints: what was saved comes back, and what is damaged, missing or of another kind is one line."""

from __future__ import annotations

import gc
import json
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from tiny import CHOICES, random_codes, tiny_config, tiny_model

from genoformer.errors import CheckpointError, ConfigError, ResourceError
from genoformer.model import checkpoint as module
from genoformer.model.checkpoint import (
    CONFIG,
    WEIGHTS,
    bundled_models,
    find_model,
    load_model,
    named_tensors,
    read_checkpoint,
    read_tensors,
    restore,
    save_model,
    sha256,
    write_tensors,
)


def save(folder: Path, **changes: Any) -> Path:
    save_model(folder, tiny_model(**changes), tiny_config(**changes), name="tiny", training={"steps": 3})
    return folder


def rewrite(folder: Path, change: dict[str, Any], *, new_digest: bool = False) -> None:
    described = json.loads((folder / CONFIG).read_text()) | change
    if new_digest:
        described["weights-sha256"] = sha256(folder / WEIGHTS)
    (folder / CONFIG).write_text(json.dumps(described))


def refused(folder: Path, *parts: str) -> None:
    with pytest.raises(CheckpointError) as caught:
        load_model(folder)
    message = str(caught.value)
    assert "\n" not in message
    for part in (folder.name, *parts):
        assert part in message, message


@pytest.mark.parametrize("choice", CHOICES.values(), ids=CHOICES)
def test_a_loaded_model_gives_the_same_outputs(tmp_path: Path, choice: dict[str, Any]) -> None:
    model, codes = tiny_model(**choice), random_codes(50)
    saved = save_model(tmp_path / "m", model, tiny_config(**choice), name="tiny", training={"steps": 3})
    loaded = load_model(tmp_path / "m")
    assert torch.equal(loaded(codes)["coding-frame"], model(codes)["coding-frame"])
    assert loaded.checkpoint == saved
    assert saved.config == tiny_config(**choice)
    assert saved.name == "tiny"
    assert saved.training == {"steps": 3}
    assert saved.sha256 == sha256(tmp_path / "m" / WEIGHTS)
    assert not loaded.training
    assert sorted(path.name for path in (tmp_path / "m").iterdir()) == [CONFIG, WEIGHTS]


def test_a_shared_projection_is_stored_once_and_stays_shared(tmp_path: Path) -> None:
    choice = {"attention": ("linformer", "linformer"), "linformer_projection": "learned"}
    folder = save(tmp_path / "m", **choice)
    assert sum("projection.matrix" in name for name in load_file(folder / WEIGHTS)) == 1
    first, second = load_model(folder).encoder.blocks
    assert first.multihead.attention.projection is second.multihead.attention.projection


def test_random_features_are_saved_and_win_over_the_seed(tmp_path: Path) -> None:
    model = tiny_model(attention=("performer",))
    attention = model.encoder.blocks[0].multihead.attention
    attention.redraw(99)
    save_model(tmp_path / "m", model, tiny_config(attention=("performer",)), name="x")
    loaded = load_model(tmp_path / "m")
    assert torch.equal(loaded.encoder.blocks[0].multihead.attention.projection, attention.projection)


def test_the_weights_file_as_path_and_overwriting(tmp_path: Path) -> None:
    folder = save(tmp_path / "m")
    save(folder, width=32)
    assert load_model(folder / WEIGHTS).checkpoint.config.width == 32
    assert load_model(folder / CONFIG).checkpoint.path == folder


@pytest.mark.parametrize("keep", [0, 5, 100, -1])
def test_truncated_weights(tmp_path: Path, keep: int) -> None:
    folder = save(tmp_path / "m")
    content = (folder / WEIGHTS).read_bytes()
    (folder / WEIGHTS).write_bytes(content[:keep])
    refused(folder, WEIGHTS, "damaged", "copy it again")
    rewrite(folder, {}, new_digest=True)
    refused(folder, WEIGHTS, "truncated or not a safetensors file")


@pytest.mark.parametrize(
    ("kind", "shape", "size"),
    [
        ("F4", [2], 1),
        ("F8_E8M0", [1], 1),
        ("F32", [0, 2**62, 4], 0),
        ("F32", [0, 2**63], 0),
        ("F32", [0, 2**64 - 1], 0),
    ],
)
def test_tensors_that_torch_cannot_have(tmp_path: Path, kind: str, shape: list[int], size: int) -> None:
    head = json.dumps({"a": {"dtype": kind, "shape": shape, "data_offsets": [0, size]}}).encode()
    (tmp_path / WEIGHTS).write_bytes(len(head).to_bytes(8, "little") + head + bytes(size))
    with pytest.raises(CheckpointError, match=r"^[^\n]*a tensor of a type or shape that torch does not know$"):
        read_tensors(tmp_path / WEIGHTS)


def test_nothing_is_kept_of_what_was_read(tmp_path: Path) -> None:
    save_file({f"t{n}": torch.full((300, 400), float(n)) for n in range(5)}, tmp_path / WEIGHTS, {"a": "b"})
    tensors, metadata = read_tensors(tmp_path / WEIGHTS)
    assert (float(tensors["t3"].mean()), len(tensors), metadata) == (3.0, 5, {"a": "b"})
    gc.collect()
    before = sys.getallocatedblocks()
    for _ in range(50):
        read_tensors(tmp_path / WEIGHTS)
    gc.collect()
    assert sys.getallocatedblocks() - before < 50


def test_a_flipped_bit(tmp_path: Path) -> None:
    folder = save(tmp_path / "m")
    content = bytearray((folder / WEIGHTS).read_bytes())
    content[-7] ^= 1
    (folder / WEIGHTS).write_bytes(content)
    refused(folder, "damaged", "SHA-256")


@pytest.mark.parametrize("name", [CONFIG, WEIGHTS])
def test_a_missing_file(tmp_path: Path, name: str) -> None:
    folder = save(tmp_path / "m")
    (folder / name).unlink()
    refused(folder, name, "o such file")


@pytest.mark.parametrize("content", [b"{", b"\xff\xfe", b"", b"[1]", b"3", b'{"format": "other"}'])
def test_a_description_that_is_none(tmp_path: Path, content: bytes) -> None:
    folder = save(tmp_path / "m")
    (folder / CONFIG).write_bytes(content)
    refused(folder, CONFIG)


@pytest.mark.parametrize(
    ("change", "part"),
    [
        ({"format": "other"}, "no description of a genoformer model"),
        ({"format-version": 2}, "format version 2, known here is 1"),
        ({"format-version": None}, "format version None"),
        ({"model": {"widht": 3}}, "unknown key 'widht'"),
        ({"model": [1]}, "expected a table"),
        ({"model": {"width": 0}}, "width must be above 0"),
        ({"weights-sha256": None}, "damaged or from another model"),
    ],
)
def test_a_description_that_does_not_fit(tmp_path: Path, change: dict[str, Any], part: str) -> None:
    folder = save(tmp_path / "m")
    rewrite(folder, change)
    refused(folder, CONFIG, part)


def test_weights_of_another_shape_and_with_other_names(tmp_path: Path) -> None:
    folder = save(tmp_path / "m")
    tensors = load_file(folder / WEIGHTS)
    name = "decoder.up.bias"
    for changed, part in [
        ({k: v for k, v in tensors.items() if k != name}, f"'{name}' is missing"),
        ({**tensors, "spare": torch.zeros(1)}, "'spare' is not part of this model"),
        ({**tensors, name: torch.zeros(2)}, "has shape (2,), expected (18,)"),
    ]:
        save_file(changed, folder / WEIGHTS)
        rewrite(folder, {}, new_digest=True)
        refused(folder, WEIGHTS, part)


def test_a_failed_restore_is_refused_before_anything_of_another_name_is_copied() -> None:
    one, two = tiny_model(), tiny_model(width=32)
    before = {name: tensor.clone() for name, tensor in named_tensors(one).items()}
    with pytest.raises(CheckpointError):
        restore(one, {"x": torch.zeros(1)}, where="there")
    assert all(torch.equal(tensor, before[name]) for name, tensor in named_tensors(one).items())
    with pytest.raises(CheckpointError, match=r"there: tensor .* has shape"):
        restore(one, named_tensors(two), where="there")


def test_no_such_model(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match=r"no such model; give a folder with model.safetensors"):
        load_model(tmp_path / "none")
    with pytest.raises(CheckpointError, match="no such file; a model is a folder"):
        read_tensors(tmp_path / "none.safetensors")


def test_unreadable_files_are_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = save(tmp_path / "m")

    def refuse(_: Path) -> str:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(module, "sha256", refuse)
    refused(folder, WEIGHTS, "cannot be read: Permission denied")


def test_a_place_that_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(ResourceError, match="cannot be made"):
        save(tmp_path / "file" / "m")
    with pytest.raises(ResourceError, match="cannot be written"):
        write_tensors({"x": torch.zeros(1)}, tmp_path / "none" / "w")
    (tmp_path / "m" / CONFIG).mkdir(parents=True)
    with pytest.raises(ResourceError, match=r"config.json: cannot be written"):
        save(tmp_path / "m")


def test_a_write_that_fails_leaves_the_old_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "w"
    write_tensors({"x": torch.ones(3)}, path)

    def fail(_: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(module.os, "fsync", fail)
    with pytest.raises(ResourceError, match="No space left"):
        write_tensors({"x": torch.zeros(3)}, path)
    assert torch.equal(read_tensors(path)[0]["x"], torch.ones(3))
    assert [item.name for item in tmp_path.iterdir()] == ["w"]


def test_every_bundled_model_is_whole() -> None:
    for name in bundled_models():
        assert find_model(name).name == name
        assert read_checkpoint(name).name


@pytest.mark.parametrize(("device", "kind"), [("cuda:99", ResourceError), ("tpu", ConfigError)])
def test_no_such_device(device: str, kind: type[Exception], tmp_path: Path) -> None:
    with pytest.raises(kind, match=repr(device)):
        load_model(tmp_path / "none", device=device)
