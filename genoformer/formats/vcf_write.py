"""VCF and BCF written whole: bgzip and index by the name of the file, under its name only when complete."""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from genoformer.errors import ConfigError, ResourceError
from genoformer.formats.htslib import quiet_and_offline

_ENDINGS = {".vcf.gz": "wz", ".vcf.bgz": "wz", ".bcf": "wb", ".vcf": "w"}
_TBI_MOST = 1 << 29
"""Bases up to which a .tbi reaches."""


def mode_of(output: str) -> str:
    """Return how pysam writes a file of that name: "wz" bgzip, "wb" BCF, "w" text; ``-`` is text on standard output.

    Raises
    ------
    ConfigError : the name has none of these endings
    """
    if output == "-":
        return "w"
    for ending, mode in _ENDINGS.items():
        if output.lower().endswith(ending):
            return mode
    raise ConfigError(f"{output}: the name must end in .vcf.gz, .bcf or .vcf, which says what is written")


@contextmanager
def writing_variants(output: str, *, lengths: Mapping[str, int], index: bool = True) -> Iterator[Callable[[str], None]]:
    """Yield a function that takes text, header and records in order, for a file that takes its name once it is whole.

    Beside bgzipped VCF lies a .tbi, or a .csi if a sequence is longer than 512 Mb; beside BCF a .csi.

    Parameters
    ----------
    output : .vcf.gz, .bcf, .vcf, or ``-``
    lengths : bases of each sequence, which decide about the index
    index : make one, where the format has one

    Raises
    ------
    ConfigError : the name says nothing of the format
    ResourceError : it cannot be written
    """
    mode = mode_of(output)
    if output == "-":
        yield lambda text: _write(sys.stdout.buffer, text)
        sys.stdout.buffer.flush()
        return
    path = Path(output)
    try:
        folder = Path(tempfile.mkdtemp(prefix=".genoformer-", suffix=".part", dir=path.parent))
    except OSError as error:
        raise ResourceError(f"{path.parent}: cannot be written to ({error.strerror}); name another output") from error
    part = folder / "part.vcf"
    try:
        with _opened(part, mode) as stream:
            yield lambda text: _write(stream, text)
        if mode == "wb":
            part = _run("view", "--no-version", "-Ob", "-o", folder / "part.bcf", part, output=output, made="part.bcf")
        suffix = ""
        if index and mode != "w":
            suffix = ".tbi" if mode == "wz" and max(lengths.values(), default=0) <= _TBI_MOST else ".csi"
            _run("index", "-t" if suffix == ".tbi" else "-c", "-f", "-o", f"{part}{suffix}", part, output=output)
        for stale in (".tbi", ".csi"):
            Path(f"{path}{stale}").unlink(missing_ok=True)
        part.replace(path)
        if suffix:
            Path(f"{part}{suffix}").replace(f"{path}{suffix}")
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _opened(part: Path, mode: str) -> Any:
    import pysam

    return pysam.BGZFile(str(part), "wb", None) if mode == "wz" else part.open("wb")


def _write(stream: Any, text: str) -> None:
    stream.write(text.encode("utf-8", "surrogateescape"))


def _run(command: str, *arguments: str | os.PathLike[str], output: str, made: str = "") -> Path:
    """Run a command of bcftools; return the file beside its last argument that it made."""
    import pysam.bcftools

    with quiet_and_offline():
        try:
            getattr(pysam.bcftools, command)(*map(str, arguments), catch_stdout=False)
        except pysam.SamtoolsError as error:
            raise ResourceError(f"{output}: bcftools {command} failed; is there space left? ({error})") from error
    return Path(arguments[-1]).with_name(made or "index")
