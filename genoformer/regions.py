"""Coordinates: regions, the windows that are predicted, and the blocks of values that come back.

All coordinates are 0-based half-open, in bases, on the forward strand.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, NamedTuple

from genoformer.errors import ConfigError

if TYPE_CHECKING:
    import numpy as np

DEFAULT_WINDOW = 100_000
DEFAULT_OVERLAP = 5_000


class Region(NamedTuple):
    """A span of a sequence: ``[start, end)`` in bases."""

    sequence: str
    start: int
    end: int

    def __str__(self) -> str:
        """Write the region as samtools does: 1-based, both ends included."""
        return f"{self.sequence}:{self.start + 1}-{self.end}"

    @property
    def length(self) -> int:
        return self.end - self.start

    def overlaps(self, other: Region) -> bool:
        return self.sequence == other.sequence and self.start < other.end and other.start < self.end

    def covers(self, other: Region) -> bool:
        return self.sequence == other.sequence and self.start <= other.start and other.end <= self.end


class Window(NamedTuple):
    """What the model sees (``region``) and the part of it whose predictions are kept (``owned``)."""

    region: Region
    owned: Region


class Block(NamedTuple):
    """Values of one span: ``values[track]`` is an array ``(bases, channels)``, or ``(bases,)`` for codes."""

    sequence: str
    start: int
    values: dict[str, np.ndarray]

    @property
    def end(self) -> int:
        return self.start + len(next(iter(self.values.values())))


def check_window(size: int, overlap: int) -> None:
    """Raise ConfigError unless windows of ``size`` bases overlapping by ``overlap`` advance along a sequence."""
    if size < 1:
        raise ConfigError(f"window must be at least 1 base, got {size}")
    if not 0 <= overlap < size:
        raise ConfigError(f"overlap must be from 0 to window - 1 = {size - 1} bases, got {overlap}")


def plan_windows(
    sequence: str,
    length: int,
    *,
    size: int = DEFAULT_WINDOW,
    overlap: int = DEFAULT_OVERLAP,
    start: int = 0,
    end: int | None = None,
) -> Iterator[Window]:
    """Cut ``[start, end)`` of a sequence into windows whose owned spans partition it.

    Neighbouring windows share ``overlap`` bases (more at the last one, which is shifted left instead of padded) and
    meet in the middle of what they share. Windows reach half an overlap beyond the span, as far as the sequence
    does; a span that fits into one window with that is placed in its middle. So every owned base has at least
    ``overlap // 2`` bases around it in its window, unless the sequence ends there.

    Parameters
    ----------
    sequence : name of the sequence
    length : int, bases of the whole sequence
    size, overlap : int, bases
    start, end : int, bases; the part to own (default: the whole sequence)

    Returns
    -------
    iterator of Window, in order of position; none for an empty span

    Raises
    ------
    ConfigError : the window cannot advance, or the span does not lie on the sequence
    """
    check_window(size, overlap)
    end = length if end is None else end
    if not 0 <= start <= end <= length:
        raise ConfigError(f"{sequence}: the span {start}-{end} does not lie within its {length} bases")
    if start == end:
        return
    size = min(size, length)
    margin = overlap // 2
    first, end_seen = max(0, start - margin), min(length, end + margin)
    if end_seen - first <= size:
        first = min(max(0, start - (size - (end - start)) // 2), length - size)
    last = max(first, end_seen - size)
    here, owned_start = first, start
    while True:
        window_end = here + size
        following = min(here + size - overlap, last)
        is_last = window_end >= end_seen
        owned_end = end if is_last else (following + window_end) // 2
        yield Window(Region(sequence, here, window_end), Region(sequence, owned_start, owned_end))
        if is_last:
            return
        here, owned_start = following, owned_end
