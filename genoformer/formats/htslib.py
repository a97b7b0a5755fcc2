"""What htslib needs and must not do: indexes and references beside no input, no words on stderr, no network."""

from __future__ import annotations

import os
import re
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from genoformer.errors import FormatError, InputError
from genoformer.formats.bytestream import Source
from genoformer.formats.cache import index_path

if TYPE_CHECKING:
    from sys import UnraisableHookArgs
    from types import TracebackType

_LOCK = threading.RLock()
_URL = re.compile(r"(?!file:)[A-Za-z][A-Za-z0-9+.-]+:")
_INDEXES = {"bam": (".csi", ".bai"), "cram": (".crai",)}
_CRAM_END, _FIRST_CRAM_WITH_END = b"\xe0EOF", (2, 1)
REFERENCE_HELP = "give the FASTA it was made with as --reference REF.fa"


@contextmanager
def quiet_and_offline() -> Iterator[None]:
    """Keep htslib from writing to stderr, and from looking for references in the network, for as long as this lasts.

    References in a local ``REF_PATH`` or ``REF_CACHE`` are still found.
    """
    import pysam

    with _LOCK:
        verbosity = pysam.set_verbosity(0)
        before = os.environ.get("REF_PATH")
        if not before or "://" in before:  # empty: htslib before 1.22 asks a public server
            os.environ["REF_PATH"] = os.devnull
        try:
            with _no_words_of_closing():
                yield
        finally:
            pysam.set_verbosity(verbosity)
            if before is None:
                os.environ.pop("REF_PATH", None)
            else:
                os.environ["REF_PATH"] = before


@contextmanager
def _no_words_of_closing() -> Iterator[None]:
    """Keep pysam from telling of files that it drops for an error, when these fail once more, at closing."""
    hooks = sys.unraisablehook, sys.excepthook

    def tell_others(told: UnraisableHookArgs) -> None:
        if not (isinstance(told.exc_value, OSError) and "pysam" in str(told.object)):
            hooks[0](told)

    def tell_other_errors(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
        if not (isinstance(error, OSError) and trace is None):  # Cython prints the error before it tells of it
            hooks[1](kind, error, trace)

    sys.unraisablehook, sys.excepthook = tell_others, tell_other_errors
    try:
        yield
    finally:
        sys.unraisablehook, sys.excepthook = hooks


def cut_short(name: str) -> FormatError:
    """Make the error of a file that lacks its end."""
    return FormatError(
        f"{name}: the end-of-file marker is missing, so the file is cut short; copy or download it again"
    )


def check_cram_end(cram: Source) -> None:
    """Raise FormatError if a CRAM lacks the container that marks its end; htslib does not look for it."""
    with cram.path.open("rb") as stream:
        version = tuple(stream.read(6)[4:])
        stream.seek(max(0, cram.path.stat().st_size - (38 if version >= (3, 0) else 30)))
        if version >= _FIRST_CRAM_WITH_END and stream.read()[9:13] != _CRAM_END:
            raise cut_short(cram.name)


def cram_reference(cram: Source, given: str | os.PathLike[str] | None) -> Path | None:
    """Return an indexed reference for a CRAM: the one given, else the file that the header names, else None.

    Raises
    ------
    InputError : the header sends htslib to the network for a sequence that the reference lacks
    """
    import pysam

    with pysam.AlignmentFile(str(cram.path), "r", check_sq=False) as file:
        lines = file.header.to_dict().get("SQ", [])
    named = {line.get("UR", "").removeprefix("file:") for line in lines}
    path = given or next((name for name in named if len(named) == 1 and name and Path(name).is_file()), None)
    reference = None if path is None else indexed_reference(Source(path))
    known = set() if reference is None else {line.partition("\t")[0] for line in _index_lines(reference)}
    for line in lines:
        if _URL.match(line.get("UR", "")) and line["SN"] not in known:
            what = f"{path} has no sequence {line['SN']!r}" if path else f"its reference is at {line['UR']}"
            raise InputError(f"{cram.name}: {what}, and nothing is read from the network; {REFERENCE_HELP}")
    return reference


def _index_lines(reference: Path) -> list[str]:
    return Path(f"{reference}.fai").read_text().splitlines()


def indexed_reference(source: Source) -> Path:
    """Return a link to a reference, or a copy where htslib cannot use it as it is, that has its index beside it."""
    import pysam

    link = index_path(source.path, ".fa", is_temporary=source.is_temporary)
    index = index_path(source.path, ".fa.fai", is_temporary=source.is_temporary)
    if link.exists() and index.exists():
        return link
    part = link.with_name(f"{link.name}.{os.getpid()}.part")
    try:
        part.unlink(missing_ok=True)
        part.symlink_to(source.path.resolve())
        try:
            pysam.faidx(str(part))
        except pysam.SamtoolsError:  # ragged lines, or ordinary gzip
            _copy_regular(source, part)
            pysam.faidx(str(part))
        for suffix in ("", ".gzi", ".fai"):
            if (made := Path(f"{part}{suffix}")).exists():
                made.replace(f"{link}{suffix}")
    finally:
        for suffix in ("", ".gzi", ".fai"):
            Path(f"{part}{suffix}").unlink(missing_ok=True)
    return link


def _copy_regular(source: Source, path: Path) -> None:
    from genoformer.formats.fasta import FastaSequences, write_fasta

    path.unlink()
    with path.open("wb") as stream:
        write_fasta(FastaSequences(source).records(), stream)


def alignment_index(source: Source, kind: str) -> Path:
    """Return an index of a BAM or CRAM: the one beside it if it is no older, else one built in the cache folder.

    Raises
    ------
    InputError : the file is SAM text, or is not sorted by position
    FormatError : it cannot be indexed
    """
    import pysam

    if kind not in _INDEXES:
        raise InputError(
            f"{source.name}: is SAM text, which has no index for regions; "
            "turn it into BAM with `samtools sort -o sorted.bam`"
        )
    _check_sorted(source)
    for suffix in _INDEXES[kind]:
        for beside in (Path(f"{source.path}{suffix}"), source.path.with_suffix(suffix)):
            if _is_usable(beside, source.path):
                return beside
    index = index_path(source.path, _INDEXES[kind][0], is_temporary=source.is_temporary)
    if not index.exists():
        part = index.with_name(f"{index.name}.{os.getpid()}.part")
        try:
            pysam.index("-c", "-o", str(part), str(source.path))  # CSI: positions beyond 512 Mb
            part.replace(index)
        except pysam.SamtoolsError as error:
            raise FormatError(
                f"{source.name}: cannot be indexed for regions; "
                "it is damaged or not sorted by position: `samtools sort -o sorted.bam`"
            ) from error
        finally:
            part.unlink(missing_ok=True)
    return index


def _check_sorted(source: Source) -> None:
    import pysam

    with pysam.AlignmentFile(str(source.path), "r", check_sq=False) as file:
        order = file.header.to_dict().get("HD", {}).get("SO", "coordinate")
    if order != "coordinate":
        raise InputError(
            f"{source.name}: is not sorted by position (its header says {order!r}), which regions need; "
            "sort it with `samtools sort -o sorted.bam`"
        )


def _is_usable(index: Path, path: Path) -> bool:
    import pysam

    if not index.is_file() or index.stat().st_mtime < path.stat().st_mtime:
        return False
    try:
        with pysam.AlignmentFile(str(path), "r", check_sq=False, index_filename=str(index)) as file:
            return bool(file.has_index())
    except (OSError, ValueError):
        return False
