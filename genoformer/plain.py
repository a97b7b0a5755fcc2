"""Dataclasses from plain values, as TOML and JSON hold them, and back; every mistake is a ConfigError that names it."""

from __future__ import annotations

import dataclasses
import functools
import tomllib
import types
import typing
from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypeVar

from genoformer.errors import ConfigError

T = TypeVar("T")
_LARGEST = (1 << 63) - 1
"""Of whole numbers in TOML."""
_LONGEST = 1 << 24
"""Letters of a text that people write."""


@functools.cache
def _hints(kind: type) -> dict[str, Any]:
    """Return what the annotations of a dataclass mean."""
    return typing.get_type_hints(kind)


def _fits(value: Any, kind: Any) -> Any:
    """Return value as the annotated kind, or raise TypeError."""
    origin = typing.get_origin(kind)
    if origin is tuple:
        if not isinstance(value, list | tuple):
            raise TypeError("a list")
        return tuple(_fits(item, typing.get_args(kind)[0]) for item in value)
    if origin is dict:
        if not isinstance(value, Mapping):
            raise TypeError("a table")
        return {key: _item(key, item, typing.get_args(kind)[1]) for key, item in value.items()}
    if origin is typing.Literal:
        if value not in typing.get_args(kind):
            raise TypeError(" or ".join(map(repr, typing.get_args(kind))))
        return value
    if origin is types.UnionType:
        kinds = [k for k in typing.get_args(kind) if k is not type(None)]
        return _fits(value, next((k for k in kinds if isinstance(value, typing.get_origin(k) or k)), kinds[0]))
    if dataclasses.is_dataclass(kind):
        return from_dict(typing.cast(type, kind), value)
    if kind is float and isinstance(value, int) and not isinstance(value, bool) and abs(value) <= _LARGEST:
        return float(value)
    if not isinstance(value, kind) or (kind is int and (isinstance(value, bool) or abs(value) > _LARGEST)):
        raise TypeError({str: "a text", int: "a whole number", float: "a number", bool: "true or false"}[kind])
    return value


def _item(key: str, item: Any, kind: Any) -> Any:
    try:
        return _fits(item, kind)
    except TypeError as error:
        raise TypeError(f"a table whose {key!r} is {error}") from None


def from_dict(kind: type[T], values: Mapping[str, Any], *, where: str = "") -> T:
    """Build a configuration from plain values (of TOML or JSON).

    Raises
    ------
    ConfigError : a key is unknown, a value has the wrong type, or values do not go together
    """
    prefix = f"{where}: " if where else ""
    if not isinstance(values, Mapping):
        raise ConfigError(f"{prefix}expected a table for {kind.__name__}, got {values!r}")
    hints = _hints(typing.cast(type, kind))
    known = [item.name for item in dataclasses.fields(kind)]  # type: ignore[arg-type]
    unknown = sorted(set(values) - set(known))
    if unknown:
        raise ConfigError(f"{prefix}unknown key {unknown[0]!r} for {kind.__name__}; known are: {', '.join(known)}")
    built: dict[str, Any] = {}
    for key, value in values.items():
        try:
            built[key] = _fits(value, hints[key])
        except TypeError as error:
            raise ConfigError(f"{prefix}{key} must be {error}, got {value!r}") from None
        except ConfigError as error:
            raise ConfigError(
                f"{prefix}{error}" if where and not str(error).startswith(where) else str(error)
            ) from None
    try:
        return kind(**built)
    except ConfigError as error:
        raise ConfigError(f"{prefix}{error}") from None
    except TypeError as error:
        missing = [item.name for item in dataclasses.fields(kind) if item.name not in built]  # type: ignore[arg-type]
        raise ConfigError(f"{prefix}{kind.__name__} lacks a value ({error}); it has: {', '.join(missing)}") from None


def to_dict(config: Any) -> dict[str, Any]:
    """Return a configuration as plain values that JSON and TOML can hold."""
    return dataclasses.asdict(config)


def read_small(path: str | Path, *, encoding: str = "utf-8") -> str:
    """Read a text that people write, which has an end.

    Raises
    ------
    OSError, ValueError : it cannot be read, is no text, or is far longer than anyone writes
    """
    with Path(path).open(encoding=encoding) as stream:
        content = stream.read(_LONGEST + 1)
    if len(content) > _LONGEST:
        raise ValueError(f"it has more than {_LONGEST:,} letters")
    return content


def read_toml(kind: type[T], path: str | Path) -> T:
    """Read a configuration file.

    Raises
    ------
    ConfigError : the file cannot be read, is not TOML, or does not describe a `kind`
    """
    try:
        values = tomllib.loads(read_small(path))
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read: {error.strerror}") from None
    except RecursionError:
        raise ConfigError(f"{path}: not valid TOML: nested too deep") from None
    except ValueError as error:  # no TOML, no UTF-8, a number of thousands of digits, a path with a NUL byte
        raise ConfigError(f"{path}: not valid TOML: {error}") from None
    return from_dict(kind, values, where=str(path))
