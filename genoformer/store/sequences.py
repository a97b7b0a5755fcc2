"""The table of sequences of a store: names are data, all sequences lie one behind the other on one axis."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from genoformer.errors import InputError

STATUSES = ("pending", "predicted", "masked", "skipped")
"""What became of a sequence: not (yet) asked for, predicted, without a known base, or left out for a reason."""
TOPOLOGIES = ("linear", "circular")
_PART = 1 << 16


class UnknownNameError(InputError, KeyError):
    """A sequence or track that a store does not have; also a KeyError."""


def encode_text(text: str, *, what: str) -> bytes:
    """Encode a name or reason for HDF5; bytes that were no UTF-8 when read come back as they were.

    Raises
    ------
    InputError : the text holds a NUL, which would end it, or cannot be encoded at all
    """
    if "\0" in text:
        raise InputError(f"{what} {text!r} holds a NUL character, which no file can keep; remove it")
    try:
        return text.encode("utf-8", "surrogateescape")
    except UnicodeEncodeError as error:
        raise InputError(f"{what} {text!r} holds a character that UTF-8 cannot encode; rename it") from error


def decode_text(data: bytes | str) -> str:
    """Decode what :func:`encode_text` encoded."""
    return data if isinstance(data, str) else data.decode("utf-8", "surrogateescape")


@dataclass(frozen=True, eq=False)
class SequenceTable:
    """Names, lengths and state of all sequences, in the order of the input.

    Attributes
    ----------
    names : list of str, any characters but NUL, unique
    lengths : (n,) int64, bases
    md5 : list of str, hexadecimal digest of the upper-case bases, or "" where unknown
    topology : list of str, "linear" or "circular"
    status : list of str, one of STATUSES
    reason : list of str, why a sequence was skipped, else ""
    """

    names: list[str]
    lengths: np.ndarray
    md5: list[str]
    topology: list[str]
    status: list[str]
    reason: list[str]

    def __post_init__(self) -> None:
        columns = (self.names, self.lengths, self.md5, self.topology, self.status, self.reason)
        if len({len(column) for column in columns}) != 1:
            raise ValueError(f"columns of a SequenceTable differ in length: {[len(column) for column in columns]}")
        if len(self.lengths) and int(self.lengths.min()) < 0:
            raise ValueError("a sequence has a negative length")
        for what, values, known in (("status", self.status, STATUSES), ("topology", self.topology, TOPOLOGIES)):
            unknown = set(values) - set(known)
            if unknown:
                raise ValueError(f"{what} must be one of {', '.join(known)}, got {sorted(unknown)}")
        if any(len(digest) > 32 or not digest.isascii() for digest in self.md5):
            raise ValueError("md5 must be at most 32 hexadecimal digits")

    @classmethod
    def build(
        cls,
        names: Iterable[str],
        lengths: Iterable[int] | np.ndarray,
        *,
        md5: Iterable[str] | None = None,
        topology: Iterable[str] | None = None,
        status: Iterable[str] | None = None,
        reason: Iterable[str] | None = None,
    ) -> SequenceTable:
        """Build the table from iterables; what is left out is unknown, linear, pending and without a reason."""
        names = list(names)
        if not isinstance(lengths, np.ndarray):
            lengths = np.fromiter(lengths, dtype=np.int64)

        def column(values: Iterable[str] | None, default: str) -> list[str]:
            return [default] * len(names) if values is None else list(values)

        return cls(
            names,
            lengths.astype(np.int64),
            column(md5, ""),
            column(topology, "linear"),
            column(status, "pending"),
            column(reason, ""),
        )

    def __len__(self) -> int:
        return len(self.names)

    @cached_property
    def offsets(self) -> np.ndarray:
        """(n + 1,) int64: where each sequence begins on the common axis; the last one is the total of bases."""
        return np.concatenate([np.zeros(1, dtype=np.int64), np.cumsum(self.lengths, dtype=np.int64)])

    @property
    def total_bases(self) -> int:
        return int(self.offsets[-1])

    @cached_property
    def _indices(self) -> dict[str, int]:
        indices = {name: i for i, name in enumerate(self.names)}
        if len(indices) != len(self.names):
            repeated = sorted({name for i, name in enumerate(self.names) if indices[name] != i})
            listed = ", ".join(map(repr, repeated[:5])) + (", ..." if len(repeated) > 5 else "")
            raise InputError(f"{len(repeated)} sequence names are used more than once: {listed}; make them unique")
        return indices

    def index(self, name: str) -> int:
        """Return the position of a sequence in the table.

        Raises
        ------
        UnknownNameError : there is no such sequence (an InputError and a KeyError)
        InputError : names are not unique
        """
        try:
            return self._indices[name]
        except KeyError:
            some = ", ".join(map(repr, self.names[:3])) + (", ..." if len(self) > 3 else "")
            raise UnknownNameError(f"there is no sequence {name!r}; the {len(self)} sequences are {some}") from None

    def check_unique(self) -> None:
        """Raise InputError unless every name is used once."""
        _ = self._indices

    def bytes_of_names(self) -> list[bytes]:
        """Encode all names at once where possible."""
        if "\0" not in (joined := "\n".join(self.names)) and joined.isascii():
            return [name.encode("ascii") for name in self.names]
        return [encode_text(name, what="sequence name") for name in self.names]


def write_sequences(group: Any, table: SequenceTable) -> None:
    """Write a table into an empty HDF5 group."""
    import h5py

    n = len(table)
    text = h5py.string_dtype("utf-8")
    packed = {"compression": "gzip", "compression_opts": 1, "shuffle": True} if n else {}
    objects = np.empty(n, dtype=object)
    objects[:] = table.bytes_of_names()
    group.create_dataset("name", data=objects, dtype=text)
    group.create_dataset("length", data=table.lengths, **packed)
    group.create_dataset("offset", data=table.offsets, **packed)
    for name, width, values in (
        ("md5", 32, table.md5),
        ("topology", 8, table.topology),
        ("status", 9, table.status),
    ):
        data = np.array(values, dtype=f"S{width}").reshape(n)
        group.create_dataset(name, data=data, dtype=h5py.string_dtype("ascii", width), **packed)
    reasons = np.empty(n, dtype=object)
    reasons[:] = [encode_text(reason, what="reason") for reason in table.reason]
    group.create_dataset("reason", data=reasons, dtype=text)


def read_sequences(group: Any) -> SequenceTable:
    """Read the table written by :func:`write_sequences`; ValueError where its parts do not fit together."""
    lengths = group["length"][:].astype(np.int64)
    columns = {name: _read_strings(group[name][:]) for name in ("name", "md5", "topology", "status", "reason")}
    names = columns.pop("name")
    table = SequenceTable.build(names, lengths, **columns)
    if not np.array_equal(table.offsets, group["offset"][:]):
        raise ValueError("the offsets are not the running sum of the lengths")
    return table


def same_sequences(group: Any, other: Any) -> bool:
    """Tell whether two tables in HDF5 have the same names, lengths, checksums and topology, a part at a time."""
    n = len(group["length"])
    return len(other["length"]) == n and all(
        np.array_equal(group[name][start : start + _PART], other[name][start : start + _PART])
        for name in ("name", "length", "md5", "topology")
        for start in range(0, n, _PART)
    )


def _read_strings(values: np.ndarray) -> list[str]:
    joined = b"\0".join(values.tolist())  # names hold no NUL: decode all of them in one go
    return decode_text(joined).split("\0") if len(values) else []
