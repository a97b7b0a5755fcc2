"""Models as one file with checksums: to carry them to machines without a network, and install them there by name."""

from __future__ import annotations

import hashlib
import io
import os
import tarfile
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import IO

from genoformer.errors import CheckpointError, ConfigError, ResourceError
from genoformer.model.checkpoint import (
    CARD,
    CONFIG,
    ENVIRONMENT,
    WEIGHTS,
    Checkpoint,
    bundled_models,
    check_name,
    own_folder,
    read_checkpoint,
    sha256,
)
from genoformer.model.reference import REFERENCE

SUMS = "SHA256SUMS"
"""Checksums of the files beside it, as `sha256sum` writes them."""
FILES = (CONFIG, WEIGHTS, CARD, REFERENCE)
"""What a bundle may hold, and nothing else; the first two it must."""
_LARGEST = 1 << 36
"""bytes of a file"""


def export_model(name_or_path: str | Path, output: str | Path) -> Checkpoint:
    """Write a model, checked, with its card and reference and the checksums of all, into one tar file.

    Raises
    ------
    CheckpointError : there is no such model, or it is damaged
    ConfigError : its name cannot be one of a folder
    ResourceError : the file cannot be written
    """
    found, output = read_checkpoint(name_or_path), Path(output)
    check_name(found.name)
    there = {name: found.weights if name == WEIGHTS else found.path / name for name in FILES}
    there = {name: path for name, path in there.items() if path.is_file()}
    sums = "".join(f"{sha256(path)}  {name}\n" for name, path in there.items()).encode()
    part = output.with_name(f"{output.name}.{os.getpid()}.part")
    try:
        with tarfile.open(part, "w", format=tarfile.PAX_FORMAT) as bundle:
            bundle.addfile(_entry(f"{found.name}/{SUMS}", len(sums)), io.BytesIO(sums))
            for name, path in there.items():
                with path.open("rb") as stream:
                    bundle.addfile(_entry(f"{found.name}/{name}", path.stat().st_size), stream)
        part.replace(output)
    except OSError as error:
        raise ResourceError(f"{output}: cannot be written: {error.strerror or error}") from error
    finally:
        part.unlink(missing_ok=True)
    return found


def import_model(bundle: str | Path, *, folder: str | Path | None = None, overwrite: bool = False) -> Checkpoint:
    """Check a file of `export_model`, and put the model where it is found by its name.

    Nothing but FILES is taken from it, and nothing appears before all checksums are right.

    Parameters
    ----------
    folder : of models; default: that of ``$GENOFORMER_MODELS``
    overwrite : replace a model of this name

    Raises
    ------
    CheckpointError : the file is damaged, or no such bundle
    ConfigError : no folder is given or set, or there is a model of this name
    ResourceError : nothing can be written there
    """
    bundle = Path(bundle)
    target = own_folder() if folder is None else Path(folder)
    if target is None:
        raise ConfigError(f"no folder of models: give one with --to, or set {ENVIRONMENT} to it")
    try:
        target.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix=".import-", dir=target) as work:
            name = _unpack(bundle, Path(work, "model"))
            place = target / name
            if name in bundled_models():
                raise ConfigError(f"{bundle}: {name!r} comes with genoformer; a model of another name is needed")
            if place.exists() and not overwrite:
                raise ConfigError(f"{place}: exists already; use --overwrite to replace it")
            read_checkpoint(Path(work, "model"))
            if place.exists():
                place.rename(Path(work, "old"))
            Path(work, "model").rename(place)
    except OSError as error:
        raise ResourceError(f"{target}: cannot be written to: {error.strerror or error}") from error
    return read_checkpoint(place)


def _unpack(bundle: Path, folder: Path) -> str:
    """Write the files of a bundle into a new folder, checked; return the name of the model."""
    try:
        return _checked(bundle, folder)
    except FileNotFoundError:
        raise CheckpointError(f"{bundle}: no such file; expected one of `genoformer models export`") from None
    except (tarfile.TarError, EOFError) as error:
        raise CheckpointError(f"{bundle}: damaged, or no tar file ({error}); copy it again") from error


def _checked(bundle: Path, folder: Path) -> str:
    folder.mkdir()
    found: dict[str, str] = {}
    models: set[str] = set()
    sums = b""
    for entry, stream in _entries(bundle):
        model, _, name = entry.name.partition("/")
        models.add(model)
        if name == SUMS and not sums:
            sums = stream.read(1 << 16)
        elif name in FILES and name not in found:
            found[name] = _copy(stream, folder / name)
        else:
            raise CheckpointError(f"{bundle}: holds {entry.name!r}, which belongs to no bundle of a model")
    lines = (line.partition("  ") for line in sums.decode("utf-8", "replace").splitlines())
    stated = {name: digest for digest, _, name in lines}
    if len(models) != 1 or not {CONFIG, WEIGHTS} <= found.keys():
        raise CheckpointError(f"{bundle}: is no bundle of one model; expected a file of `genoformer models export`")
    if stated != found:
        wrong = sorted(name for name in stated.keys() | found.keys() if stated.get(name) != found.get(name))
        raise CheckpointError(f"{bundle}: damaged: {', '.join(wrong)} is not what {SUMS} says; copy it again")
    (name,) = models
    check_name(name)
    return name


def _entries(bundle: Path) -> Iterator[tuple[tarfile.TarInfo, IO[bytes]]]:
    with tarfile.open(bundle, "r:") as archive:
        for entry in archive:
            stream = archive.extractfile(entry) if entry.isreg() and entry.size <= _LARGEST else None
            if stream is None:
                raise CheckpointError(f"{bundle}: holds {entry.name!r}, which is no file of a model")
            yield entry, stream


def _copy(stream: IO[bytes], path: Path) -> str:
    """Write what a stream holds; return its SHA-256."""
    digest = hashlib.sha256()
    with path.open("wb") as file:
        while piece := stream.read(1 << 20):
            digest.update(piece)
            file.write(piece)
        file.flush()
        os.fsync(file.fileno())
    return digest.hexdigest()


def _entry(name: str, size: int) -> tarfile.TarInfo:
    """Return a header that is the same whenever and by whomever it is written."""
    entry = tarfile.TarInfo(name)
    entry.size, entry.mode = size, 0o644
    return entry
