"""Files that appear under their names once they are whole."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, Protocol

from genoformer.errors import ConfigError, ResourceError
from genoformer.formats.bgzip import BgzipWriter


def check_output(output: str | os.PathLike[str], *, overwrite: bool, inputs: list[Path]) -> None:
    """Raise ConfigError or ResourceError if a file cannot be written there, before any work is done."""
    path = Path(output)
    if str(output) == "-":
        return
    try:
        _check(path, overwrite, inputs)
    except OSError as error:  # such as a name that is too long
        if isinstance(error, ResourceError):
            raise
        raise ResourceError(f"{path}: {error.strerror}; name another output") from error


def _check(path: Path, overwrite: bool, inputs: list[Path]) -> None:
    if not path.parent.is_dir():
        raise ResourceError(f"{path.parent}: no such folder; make it first")
    if path.is_dir():
        raise ConfigError(f"{path}: is a folder; name a file")
    if path.exists() and any(given.exists() and path.samefile(given) for given in inputs):
        raise ConfigError(f"{path}: is what is to be read, and would be lost; name another output")
    if path.is_file() and not overwrite:
        raise ConfigError(f"{path}: exists already; use --overwrite to replace it, or name another output")
    if not path.exists() and not os.access(path.parent, os.W_OK):
        raise ResourceError(f"{path.parent}: cannot be written to; name an output elsewhere")


class Sink(Protocol):
    """What takes bytes, one piece after the other."""

    def write(self, data: bytes, /) -> object: ...


@contextmanager
def writing(output: str | os.PathLike[str]) -> Iterator[IO[bytes]]:
    """Open a file that appears under its name once it is whole; a pipe or a device is written to as it is."""
    path = Path(output)
    if path.exists() and not path.is_file():
        with path.open("wb") as stream:
            yield stream
        return
    part = path.with_name(f"{path.name}.part")
    try:
        with part.open("wb") as stream:
            yield stream
            stream.flush()
            os.fsync(stream.fileno())
        part.replace(path)
    except BaseException:
        with suppress(OSError):
            part.unlink()
        raise


@contextmanager
def writing_text(output: str | os.PathLike[str]) -> Iterator[Sink]:
    """Do as `writing` does, compressed by bgzip where the name ends in .gz or .bgz."""
    with writing(output) as stream:
        if not is_compressed(output):
            yield stream
            return
        packer = BgzipWriter(stream)
        yield packer
        packer.finish()


def is_compressed(output: str | os.PathLike[str]) -> bool:
    """Tell from its name whether a file is to be compressed."""
    return Path(output).suffix.lower() in (".gz", ".bgz")
