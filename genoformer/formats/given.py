"""What a caller of the library may give as sequences: a file, bases, or records of any kind."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import IO, Any

from genoformer.errors import InputError
from genoformer.formats.sequences import Record, Sequences, check_region, check_unique, open_sequences
from genoformer.regions import Region

Given = Sequences | str | os.PathLike[str] | bytes | IO[bytes] | IO[str] | Mapping[str, str | bytes] | Iterable[Any]
"""What `as_sequences` takes."""

NAME = "sequence"
"""Of bases that come without one."""
_BASES = re.compile(r"[ACGTUNacgtun\s]+")


class HeldSequences:
    """Records in memory, as a source of sequences.

    Parameters
    ----------
    records : in order; held as they are
    source : what they are called in messages

    Raises
    ------
    InputError : a name comes twice
    """

    def __init__(self, records: Iterable[Record], *, source: str = "records"):
        self.source = source
        held = list(records)
        check_unique((record.name for record in held), source)
        self._records = {record.name: record for record in held}

    def records(self) -> Iterator[Record]:
        yield from self._records.values()

    def lengths(self) -> dict[str, int]:
        return {name: len(record.bases) for name, record in self._records.items()}

    def fetch(self, region: Region) -> bytes:
        check_region(region, self.lengths(), self.source)
        return self._records[region.sequence].bases[region.start : region.end]


def as_sequences(given: Given) -> Sequences:
    """Return a source of sequences, whatever they are given as.

    Parameters
    ----------
    given : one of

        - the path of a file, ``-`` for standard input, or an open file, of a format that `open_sequences` reads
        - bases: bytes, or a str of A, C, G, T, U, N and white space where no file has that name; called ``sequence``
        - a mapping from names to bases
        - records, one or many: pairs (name, bases), `Record`, or Biopython's SeqRecord. They are held in memory
        - what `open_sequences` returns

    Raises
    ------
    InputError : there is no such file, a record has no name or one with white space, or a name comes twice
    FormatError : a file of another format
    TypeError : none of these
    """
    if isinstance(given, bytes | bytearray):
        return HeldSequences([_record(NAME, given)], source="bases")
    if isinstance(given, str):
        if not given:
            raise InputError("sequences: the text is empty; expected the path of a file, or bases")
        is_bases = _BASES.fullmatch(given) is not None and not _exists(given)
        return HeldSequences([_record(NAME, given)], source="bases") if is_bases else open_sequences(given)
    if isinstance(given, os.PathLike) or hasattr(given, "read"):
        return open_sequences(given)  # type: ignore[arg-type]
    if hasattr(given, "records") and hasattr(given, "fetch"):
        return given  # type: ignore[return-value]
    if isinstance(given, Mapping):
        return HeldSequences(_record(name, bases) for name, bases in given.items())
    if isinstance(given, Record) or hasattr(given, "seq"):
        return HeldSequences([_any(given)])
    if isinstance(given, Iterable):
        return HeldSequences(map(_any, given))
    raise TypeError(_expected(given))


def _any(given: Any) -> Record:
    """Return a record, whatever it is given as."""
    if isinstance(given, Record):
        return _record(given.name, given.bases, description=given.description, topology=given.topology)
    if hasattr(given, "seq"):  # Biopython's
        topology = "circular" if given.annotations.get("topology") == "circular" else "linear"
        rest = given.description.removeprefix(given.id).strip()
        return _record(given.id, bytes(given.seq), description=rest, topology=topology)
    if isinstance(given, tuple | list) and len(given) == 2 and isinstance(given[0], str):
        return _record(given[0], given[1])
    raise TypeError(_expected(given))


def _record(name: str, bases: Any, *, description: str = "", topology: str = "linear") -> Record:
    if not name or len(name.split()) != 1 or name.strip() != name:
        raise InputError(f"records: a sequence is called {name!r}; expected a name without white space")
    if isinstance(bases, str):
        if not bases.isascii():
            letter, place = next((letter, place) for place, letter in enumerate(bases, 1) if not letter.isascii())
            raise InputError(f"sequence {name!r}: letter {place} is {letter!r}; expected letters of ASCII")
        bases = bases.encode("ascii")
    if not isinstance(bases, bytes | bytearray):
        raise TypeError(f"sequence {name!r}: expected its bases as str or bytes, got {type(bases).__name__}")
    return Record(name, description, topology, b"".join(bytes(bases).split()))


def _exists(path: str) -> bool:
    try:
        return os.path.lexists(path)
    except (OSError, ValueError):
        return False


def _expected(given: object) -> str:
    return (
        "expected sequences: a path, an open file, bases, a mapping from names to bases, pairs (name, bases) or "
        f"SeqRecords; got {type(given).__name__}"
    )
