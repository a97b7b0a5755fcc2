"""Messages between processes, through pipes: plain values as JSON, and arrays as their bytes; nothing is pickled."""

from __future__ import annotations

import json
import struct
from dataclasses import dataclass, field
from io import FileIO
from typing import Any, TypeVar

import numpy as np

_LENGTH = struct.Struct("<Q")
B = TypeVar("B", bytearray, memoryview)


@dataclass(frozen=True)
class Message:
    """What one process tells another.

    Attributes
    ----------
    head : plain values, as JSON has them
    arrays : of numbers, by name
    """

    kind: str = ""
    head: dict[str, Any] = field(default_factory=dict)
    arrays: dict[str, np.ndarray] = field(default_factory=dict)

    @property
    def size(self) -> int:
        """Count the bytes of the arrays."""
        return sum(array.nbytes for array in self.arrays.values())


def send(pipe: FileIO, message: Message) -> None:
    """Write a message; returns once the pipe has taken all of it.

    Raises
    ------
    OSError : nobody reads any more
    """
    arrays = {name: np.ascontiguousarray(array) for name, array in message.arrays.items()}
    shapes = [(name, array.dtype.str, array.shape) for name, array in arrays.items()]
    told = json.dumps([message.kind, message.head, shapes]).encode()
    _write(pipe, memoryview(_LENGTH.pack(len(told)) + told))
    for array in arrays.values():
        _write(pipe, _bytes_of(array))


def receive(pipe: FileIO) -> Message:
    """Read a message, waiting for it.

    Raises
    ------
    EOFError, OSError : nobody writes any more
    """
    (length,) = _LENGTH.unpack(_read(pipe, bytearray(_LENGTH.size)))
    kind, head, shapes = json.loads(_read(pipe, bytearray(length)))
    arrays = {name: np.empty(shape, dtype=dtype) for name, dtype, shape in shapes}
    for array in arrays.values():
        _read(pipe, _bytes_of(array))
    return Message(kind, head, arrays)


def _bytes_of(array: np.ndarray) -> memoryview:
    return array.reshape(-1).view(np.uint8).data


def _write(pipe: FileIO, data: memoryview) -> None:
    while len(data):
        data = data[pipe.write(data) :]


def _read(pipe: FileIO, into: B) -> B:
    """Fill a buffer, straight from the pipe."""
    rest = memoryview(into)
    while rest:
        count = pipe.readinto(rest)
        if not count:
            raise EOFError
        rest = rest[count:]
    return into
