"""What the provenance of a store holds: a JSON object, of which programs rely on what is named here."""

from __future__ import annotations

import reprlib
from collections.abc import Iterator
from typing import Any

_OBJECT, _WORDS, _NUMBER = (dict,), (str,), (int,)
_KINDS: dict[str, tuple[type, ...]] = {
    "accounting": _OBJECT,
    "accounting.*": _NUMBER,
    "alignments": _WORDS,
    "command": _WORDS,
    "identity": _OBJECT,
    "identity.genetic-code": _NUMBER,
    "identity.overlap": _NUMBER,
    "identity.window": (int, str),
    "input": _WORDS,
    "left-out": _OBJECT,
    "left-out.*": _NUMBER,
    "letters": _OBJECT,
    "letters.*": _NUMBER,
    "made-by": _OBJECT,
    "made-by.choice": _OBJECT,
    "made-by.choice.exclude-flags": _NUMBER,
    "made-by.choice.include-flags": _NUMBER,
    "made-by.choice.min-mapq": _NUMBER,
    "made-by.choice.reference": (str, type(None)),
    "made-by.counts": _OBJECT,
    "made-by.counts.*": _OBJECT,
    "made-by.counts.*.*": _NUMBER,
    "missing": _OBJECT,
    "missing.bases": _NUMBER,
    "versions": _OBJECT,
}
"""Kinds of values by path, where they are there; a star is any key."""
_CHOICE = ("exclude-flags", "include-flags", "min-mapq", "reference")
_NAMES = {dict: "an object", str: "text", int: "a whole number", type(None): "null"}


def check_metadata(metadata: Any) -> None:
    """Raise ValueError where something that programs rely on is of another kind than it should be."""
    if not isinstance(metadata, dict):
        raise ValueError(f"metadata: must be an object, got {reprlib.repr(metadata)}")
    for path, kinds in _KINDS.items():
        for value in _found(metadata, path.split(".")):
            if not isinstance(value, kinds):
                expected = " or ".join(_NAMES[kind] for kind in kinds)
                raise ValueError(f"metadata: {path} must be {expected}, got {reprlib.repr(value)}")
    choice = metadata.get("made-by", {}).get("choice")
    if choice is not None and not (set(_CHOICE) <= set(choice) and "alignments" in metadata):
        raise ValueError(
            f"metadata: made-by.choice must have alignments and {', '.join(_CHOICE)}, got {reprlib.repr(choice)}"
        )


def _found(value: Any, path: list[str]) -> Iterator[Any]:
    """Yield all that lies at a path below objects."""
    if not path:
        yield value
    elif isinstance(value, dict):
        key, *rest = path
        for inner in value.values() if key == "*" else [value[key]] if key in value else []:
            yield from _found(inner, rest)
