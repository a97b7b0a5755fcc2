"""Checkpoints: a folder with model.safetensors and config.json, checked when saved and when loaded."""

from __future__ import annotations

import hashlib
import json
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import load, save
from torch import Tensor

import genoformer
from genoformer.config import ModelConfig
from genoformer.errors import CheckpointError, ConfigError, ResourceError
from genoformer.model.allowance import check_allowance
from genoformer.model.device import choose_device
from genoformer.model.genoformer import Genoformer, build
from genoformer.plain import from_dict, to_dict

FORMAT, VERSION = "genoformer-model", 1
WEIGHTS, CONFIG, CARD = "model.safetensors", "config.json", "MODEL_CARD.md"
NEXT = WEIGHTS + ".next"
"""Weights that were written, and whose description may not be in place yet."""
_LONGEST_CONFIG = 1 << 24
"""bytes of a description"""
BUNDLED = Path(__file__).resolve().parent.parent / "models"
ENVIRONMENT = "GENOFORMER_MODELS"
"""Variable that names a folder of further models, found by their names as the bundled ones are."""
DEFAULT_MODEL = "prokaryote-genes"
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")


@dataclass(frozen=True)
class Checkpoint:
    """A model's files, read but for the weights.

    Attributes
    ----------
    path : the folder
    name : of the model
    config : its shape
    sha256 : of the weights file, checked
    training : how it came about, as saved
    weights : the weights file
    """

    path: Path
    name: str
    config: ModelConfig
    sha256: str
    training: dict[str, Any] = field(default_factory=dict)

    @property
    def weights(self) -> Path:
        return _weights_of(self.path, self.sha256)


def write_tensors(tensors: Mapping[str, Tensor], path: Path, metadata: Mapping[str, str] | None = None) -> None:
    """Write a safetensors file that is whole or not there: temporary name, fsync, rename."""
    temporary = path.with_name(path.name + ".tmp")
    try:
        content = save({k: v.detach().cpu().contiguous() for k, v in tensors.items()}, dict(metadata or {}))
        with temporary.open("wb") as handle:
            handle.write(content)
            handle.flush()
            os.fsync(handle.fileno())
        temporary.replace(path)
    except OSError as error:
        temporary.unlink(missing_ok=True)
        raise ResourceError(f"{path}: cannot be written: {error.strerror or error}") from None
    except SafetensorError as error:
        temporary.unlink(missing_ok=True)
        raise ResourceError(f"{path}: cannot be written: {error}") from None


def read_tensors(path: Path) -> tuple[dict[str, Tensor], dict[str, str]]:
    """Read a safetensors file: its tensors and its metadata.

    Raises
    ------
    CheckpointError : it is missing, truncated or not safetensors
    """
    try:
        with safe_open(path, framework="pt") as handle:  # which checks the head before all is read
            names, metadata = list(handle.keys()), handle.metadata() or {}
        tensors = load(path.read_bytes())  # `get_tensor` of safetensors 0.8 loses some memory each time
        return {name: tensors[name] for name in names}, metadata
    except FileNotFoundError:
        raise CheckpointError(f"{path}: no such file; a model is a folder with {WEIGHTS} and {CONFIG}") from None
    except (KeyError, TypeError, RuntimeError):
        raise CheckpointError(f"{path}: holds a tensor of a type or shape that torch does not know") from None
    except (SafetensorError, OSError) as error:
        raise CheckpointError(
            f"{path}: truncated or not a safetensors file ({error}); copy or train it again"
        ) from None


def named_tensors(model: torch.nn.Module) -> dict[str, Tensor]:
    """Return every parameter and saved buffer once, shared ones under their first name."""
    kept = set(model.state_dict())
    return {name: tensor for name, tensor in [*model.named_parameters(), *model.named_buffers()] if name in kept}


def sha256(path: Path) -> str:
    """Return the SHA-256 of a file, in hex."""
    with path.open("rb") as handle:
        return hashlib.file_digest(handle, "sha256").hexdigest()


def save_model(
    path: str | Path, model: Genoformer, config: ModelConfig, *, name: str, training: Mapping[str, Any] | None = None
) -> Checkpoint:
    """Write a model folder; whenever the process dies, the folder holds the old model or the new one, whole.

    The new weights lie beside the old ones until the description that names their digest is in place, which is one
    rename; then they take the old ones' place. Whoever reads takes the file that the description names.

    Parameters
    ----------
    path : the folder, made if missing
    model, config : the weights and the shape that they fit
    name : what the model is called in outputs
    training : anything worth keeping about how it came about, as plain values
    """
    folder = Path(path)
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ResourceError(f"{folder}: cannot be made: {error.strerror}") from None
    _finish(folder)
    write_tensors(named_tensors(model), folder / NEXT, {"format": "pt"})
    digest = sha256(folder / NEXT)
    described = {
        "format": FORMAT,
        "format-version": VERSION,
        "name": name,
        "generated-by": f"genoformer {genoformer.__version__}",
        "weights-sha256": digest,
        "model": to_dict(config),
        "training": dict(training or {}),
    }
    temporary = folder / (CONFIG + ".tmp")
    try:
        with temporary.open("w", encoding="utf-8") as handle:
            handle.write(json.dumps(described, indent=2) + "\n")
            handle.flush()
            os.fsync(handle.fileno())
        temporary.replace(folder / CONFIG)
        (folder / NEXT).replace(folder / WEIGHTS)
    except OSError as error:
        raise ResourceError(f"{folder / CONFIG}: cannot be written: {error.strerror}") from None
    return Checkpoint(folder, name, config, digest, dict(training or {}))


def _weights_of(folder: Path, digest: str) -> Path:
    """Return the weights file that a digest names: that of a save that died at its very end, or the usual one."""
    following = folder / NEXT
    return following if following.is_file() and sha256(following) == digest else folder / WEIGHTS


def _finish(folder: Path) -> None:
    """Put weights in their place where a save died just before that."""
    if not (folder / NEXT).is_file():
        return
    try:
        described = json.loads((folder / CONFIG).read_text(encoding="utf-8"))
        if sha256(folder / NEXT) == described["weights-sha256"]:
            (folder / NEXT).replace(folder / WEIGHTS)
    except (OSError, ValueError, TypeError, KeyError, RecursionError):  # then there is no model to keep
        return


def check_name(name: str) -> None:
    """Raise ConfigError unless a model can be called so: it may become the name of a folder, and of files."""
    if not _NAME.fullmatch(name):
        raise ConfigError(f"a model cannot be called {name!r}: expected up to 100 letters, digits and . _ - only")


def bundled_models() -> list[str]:
    """Return the names of the models that come with the package."""
    return sorted(path.parent.name for path in BUNDLED.glob(f"*/{CONFIG}"))


def own_folder() -> Path | None:
    """Return the folder of models that ``$GENOFORMER_MODELS`` names, None where it is not set."""
    given = os.environ.get(ENVIRONMENT, "")
    return Path(given) if given else None


def known_models() -> dict[str, Path]:
    """Return the folder of each model that has a name: the bundled ones, then those of ``$GENOFORMER_MODELS``."""
    own = own_folder()
    found = {} if own is None else {path.parent.name: path.parent for path in own.glob(f"[!.]*/{CONFIG}")}
    bundled = {name: BUNDLED / name for name in bundled_models()}
    return bundled | {name: found[name] for name in sorted(found) if name not in bundled}


def find_model(name_or_path: str | Path) -> Path:
    """Return the folder of a model that has a name here, see `known_models`, or of a path.

    Raises
    ------
    CheckpointError : there is none
    """
    text = str(name_or_path)
    known = known_models()
    if text in known:
        return known[text]
    path = Path(text)
    if path.name in (CONFIG, WEIGHTS):
        path = path.parent
    if not path.is_dir():
        names = ", ".join(known) or "none"
        raise CheckpointError(f"{text}: no such model; give a folder with {WEIGHTS}, or a name: {names}")
    return path


def read_checkpoint(name_or_path: str | Path) -> Checkpoint:
    """Read and check a model's description, not its weights.

    Raises
    ------
    CheckpointError : the model is missing, damaged, or of a format version not known here
    """
    folder = find_model(name_or_path)
    file = folder / CONFIG
    try:
        if file.stat().st_size > _LONGEST_CONFIG:
            raise CheckpointError(f"{file}: {file.stat().st_size:,} bytes are no description of a model; copy it again")
        described = json.loads(file.read_text(encoding="utf-8"))
    except OSError as error:
        raise CheckpointError(f"{file}: cannot be read: {error.strerror}; a model is a folder with {CONFIG}") from None
    except RecursionError:
        raise CheckpointError(f"{file}: not valid JSON: nested too deep") from None
    except ValueError as error:
        if isinstance(error, CheckpointError):
            raise
        raise CheckpointError(f"{file}: not valid JSON: {error}") from None
    if not isinstance(described, dict) or described.get("format") != FORMAT:
        raise CheckpointError(f"{file}: this is no description of a genoformer model")
    if described.get("format-version") != VERSION:
        raise CheckpointError(
            f"{file}: format version {described.get('format-version')!r}, known here is {VERSION}; "
            "use the genoformer that wrote it, or a newer one"
        )
    try:
        config = from_dict(ModelConfig, described.get("model", {}), where=str(file))
    except ConfigError as error:
        raise CheckpointError(str(error)) from None
    weights = _weights_of(folder, str(described.get("weights-sha256")))
    if not weights.is_file():
        raise CheckpointError(f"{weights}: no such file; the model's weights are missing")
    try:
        digest = sha256(weights)
    except OSError as error:
        raise CheckpointError(f"{weights}: cannot be read: {error.strerror}") from None
    if digest != described.get("weights-sha256"):
        raise CheckpointError(
            f"{weights}: damaged or from another model (its SHA-256 is {digest[:12]}..., {CONFIG} says "
            f"{str(described.get('weights-sha256'))[:12]}...); copy it again"
        )
    training = described.get("training", {})
    if not isinstance(training, dict):
        raise CheckpointError(f"{file}: 'training' must be an object, got {training!r}")
    check_allowance(config, weights)
    return Checkpoint(folder, str(described.get("name", folder.name)), config, digest, training)


def restore(model: torch.nn.Module, tensors: Mapping[str, Tensor], *, where: str) -> None:
    """Copy tensors into a model; names and shapes must agree exactly.

    Raises
    ------
    CheckpointError : a tensor is missing, left over, or of another shape
    """
    own = named_tensors(model)
    for name in sorted(set(own) ^ set(tensors)):
        raise CheckpointError(f"{where}: tensor {name!r} is {'missing' if name in own else 'not part of this model'}")
    with torch.no_grad():
        for name, tensor in own.items():
            if tensor.shape != tensors[name].shape:
                raise CheckpointError(
                    f"{where}: tensor {name!r} has shape {tuple(tensors[name].shape)}, expected {tuple(tensor.shape)}"
                )
            tensor.copy_(tensors[name])


def load_model(name_or_path: str | Path = DEFAULT_MODEL, *, device: str | torch.device = "cpu") -> Genoformer:
    """Load a model, ready to predict.

    Parameters
    ----------
    name_or_path : name of a bundled model, or a folder that `genoformer train` made
    device : where its weights go; "auto" takes the first of cuda, mps and cpu

    Returns
    -------
    Genoformer in eval mode; ``model.checkpoint`` says which one it is

    Raises
    ------
    CheckpointError : the model is missing, damaged, or does not fit its configuration
    ConfigError, ResourceError : there is no such device, or not here
    """
    where = choose_device(device) if isinstance(device, str) else device
    checkpoint = read_checkpoint(name_or_path)
    model = build(checkpoint.config)
    tensors, _ = read_tensors(checkpoint.weights)
    restore(model, tensors, where=str(checkpoint.weights))
    model.checkpoint = checkpoint
    return model.eval().to(where)
