"""Signals from bigWig files, through pybigtools (extra `bigwig`)."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from genoformer.errors import FormatError, ResourceError
from genoformer.formats.bytestream import Source
from genoformer.formats.spans import Spans

_MAGIC = (b"\x26\xfc\x8f\x88", b"\x88\x8f\xfc\x26")
_RECORD = np.dtype([("start", "i8"), ("end", "i8"), ("value", "f4")])


def is_bigwig(path: str | os.PathLike[str]) -> bool:
    """Tell by its first bytes whether a file is bigWig; a file that is not there, or a pipe, is not."""
    if not Path(path).is_file():
        return False
    with Path(path).open("rb") as stream:
        return stream.read(4) in _MAGIC


class BigWig:
    """The numbers of a bigWig file, read a sequence at a time.

    Raises
    ------
    InputError : the file cannot be read
    FormatError : it is not bigWig, or is damaged
    ResourceError : pybigtools is not installed
    """

    def __init__(self, path: str | os.PathLike[str]):
        self._source = Source(path)
        if not is_bigwig(self._source.path):
            raise FormatError(f"{self._source.name}: is not bigWig")
        with self._open() as reader:
            self.lengths: dict[str, int] = dict(reader.chroms())

    def spans(self, name: str) -> Spans:
        """Return the spans of a sequence that have a value."""
        with self._open() as reader:
            records = np.fromiter(reader.records(name), dtype=_RECORD)
        return Spans(records["start"], records["end"], records["value"])

    @contextmanager
    def _open(self) -> Iterator[Any]:
        """Open the file for a while; what the library complains about becomes an error of ours."""
        try:
            import pybigtools
        except ImportError as error:
            raise ResourceError(
                f"{self._source.name}: bigWig needs pybigtools; get it with: pip install 'genoformer[bigwig]'"
            ) from error
        with self._source.path.open("rb") as stream:
            try:
                with closing(pybigtools.open(stream)) as reader:
                    yield reader
            except Exception as error:  # of the library's own kinds
                words = " ".join(str(error).split())[:160]
                raise FormatError(
                    f"{self._source.name}: cannot be read as bigWig ({words}); write or fetch it again"
                ) from error
