"""Exports as files: one, or one for each channel, compressed and indexed where asked for, whole or not at all."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, NamedTuple

from genoformer.errors import ConfigError
from genoformer.export.channels import Channel, choose_channels
from genoformer.export.formats import TRACK_FORMATS, Calling, Written
from genoformer.export.selection import Selection
from genoformer.formats.bgzip import write_index
from genoformer.formats.output import check_output, is_compressed, writing, writing_text

STDOUT = "-"
_ENDINGS = re.compile(r"((?:\.[A-Za-z0-9]+)?(?:\.b?gz)?)$")
_UNSAFE = re.compile(r"[^A-Za-z0-9.+_-]")


@dataclass(frozen=True)
class Exported:
    """A file that was written."""

    path: str
    written: Written
    index: Path | None = None


class _File(NamedTuple):
    path: str
    channels: Sequence[Channel]


def export_track(  # noqa: PLR0913 - what, how, where to
    selection: Selection,
    to: str,
    output: str | os.PathLike[str],
    *,
    channels: Sequence[str] = (),
    calling: Calling | None = None,
    overwrite: bool = False,
    stdout: IO[bytes] | None = None,
    report: Callable[[int], None] = lambda _: None,
) -> list[Exported]:
    """Write values of a store in a format of TRACK_FORMATS.

    Parameters
    ----------
    selection : what
    to : format
    output : file; ``-``: the stream ``stdout``. Text is compressed by bgzip, and indexed for tabix, where the name ends
        in .gz. Several channels of a format that holds one become NAME.CHANNEL.ENDING
    channels : names; none: what the format is for, all of them or those that intervals are called from
    calling : how intervals are called, for BED
    overwrite : replace files
    report : called with the number of bases done, of ``selection.bases()`` for each file

    Returns
    -------
    list of Exported, in order

    Raises
    ------
    ConfigError : no such format or channel, a file that is there already, a binary format to standard output
    InputError : a name or a value that the format cannot hold
    ResourceError : nothing can be written there
    """
    if to not in TRACK_FORMATS:
        raise ConfigError(f"there is no format {to!r}; expected one of {', '.join(TRACK_FORMATS)}")
    kind = TRACK_FORMATS[to]
    chosen = choose_channels(selection.info, channels) if channels else kind.channels(selection.info)
    kind.check(selection.names())
    files = _files(to, str(output), chosen)
    for file in files:
        check_output(file.path, overwrite=overwrite, inputs=[selection.store.path])
    found = []
    for path, some in files:
        with _opened(path, kind.is_text, stdout) as stream:
            written = kind.write(stream, selection, some, calling or Calling(), report)
        index = None
        if kind.columns is not None and path != STDOUT and is_compressed(path) and Path(path).is_file():
            index = write_index(Path(path), kind.columns, longest=int(selection.store.sequences.lengths.max(initial=0)))
        found.append(Exported(path, written, index))
    return found


def _files(to: str, output: str, channels: Sequence[Channel]) -> list[_File]:
    """Share channels out over files, and check that these can be what they are asked to be."""
    kind = TRACK_FORMATS[to]
    if output == STDOUT and not kind.is_text:
        raise ConfigError(f"-: {to} cannot be written to standard output; name a file")
    if not kind.is_text and is_compressed(output):
        raise ConfigError(f"{output}: {to} is compressed in itself; name it without .gz")
    if not kind.one_channel or len(channels) == 1:
        return [_File(output, channels)]
    names = ", ".join(channel.name for channel in channels)
    if output == STDOUT:
        raise ConfigError(f"-: {to} holds one channel; choose one with --channel: {names}")
    if Path(output).exists() and not Path(output).is_file() and not Path(output).is_dir():
        raise ConfigError(f"{output}: is no regular file, and {to} holds one channel; choose one: {names}")
    return [_File(channel_path(output, channel.name), [channel]) for channel in channels]


def channel_path(output: str, channel: str) -> str:
    """Put the name of a channel before the ending of a file name.

    >>> channel_path("a/x.bedgraph.gz", "+0"), channel_path("x", "a/b")
    ('a/x.+0.bedgraph.gz', 'x.a%2Fb')
    """
    safe = _UNSAFE.sub(
        lambda match: "".join(f"%{byte:02X}" for byte in match[0].encode("utf-8", "surrogateescape")), channel
    )
    folder, name = os.path.split(output)
    return str(Path(folder, _ENDINGS.sub(lambda match: f".{safe}{match[0]}", name, count=1)))


def _opened(path: str, is_text: bool, stdout: IO[bytes] | None) -> AbstractContextManager[Any]:
    if path == STDOUT:
        if stdout is None:
            raise ConfigError("-: there is no standard output here; name a file")
        return nullcontext(stdout)
    return writing_text(path) if is_text else writing(path)
