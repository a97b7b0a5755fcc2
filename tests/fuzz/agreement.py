"""What the attacks on all readers share."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path


class DisagreementError(Exception):
    """Two ways to read a file say different things."""


def agree(one: object, other: object) -> None:
    if one != other:
        raise DisagreementError(f"{one!r:.200} is not {other!r:.200}")


def texts(*good: str | bytes) -> Callable[[Path], list[bytes]]:
    return lambda _: [one.encode() if isinstance(one, str) else one for one in good]
