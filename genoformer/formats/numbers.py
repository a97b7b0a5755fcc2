"""Whole numbers as text files write them: ASCII digits, and none that a position could not be."""

from __future__ import annotations

_DIGITS = 18
"""so that sums and ends of spans still fit into 64 bits"""


def whole(text: str) -> int | None:
    """Return the whole number that a text writes; None for anything else, and for numbers of more than 18 digits.

    >>> whole("12"), whole("-1"), whole("1_000"), whole("9" * 19)
    (12, None, None, None)
    """
    if len(text) > _DIGITS:
        text = text.lstrip("0")
    return int(text) if text.isascii() and text.isdecimal() and len(text) <= _DIGITS else None
