"""Coordinates: regions, the windows that are predicted, and the blocks of values that come back.

All coordinates are 0-based half-open, in bases, on the forward strand.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
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


def usual_overlap(window: int, most: int = DEFAULT_OVERLAP) -> int:
    """Return the overlap of windows of which nothing else is said: at most a quarter of them."""
    return min(most, window // 4)


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
    circular: bool = False,
) -> Iterator[Window]:
    """Cut ``[start, end)`` of a sequence into windows whose owned spans partition it.

    Neighbouring windows share ``overlap`` bases (more at the last one, which is shifted left instead of padded) and
    meet in the middle of what they share. Windows reach half an overlap beyond the span, as far as the sequence
    does; a span that fits into one window with that is placed in its middle. So every owned base has at least
    ``overlap // 2`` bases around it in its window, unless the sequence ends there.

    A circular sequence ends nowhere: windows begin before 0 and end beyond ``length`` where they reach over the origin,
    and see a circle shorter than themselves once, with half an overlap of it again on both sides.

    Parameters
    ----------
    sequence : name of the sequence
    length : int, bases of the whole sequence
    size, overlap : int, bases
    start, end : int, bases; the part to own (default: the whole sequence)
    circular : whether the ends of the sequence are joined; the part to own may then begin anywhere

    Returns
    -------
    iterator of Window, in order of position; none for an empty span

    Raises
    ------
    ConfigError : the window cannot advance, or the span does not lie on the sequence
    """
    check_window(size, overlap)
    end = length if end is None else end
    if not (0 <= start <= end and (end <= length or (circular and end - start <= length))):
        raise ConfigError(f"{sequence}: the span {start}-{end} does not lie within its {length} bases")
    if start == end:
        return
    margin = overlap // 2
    left, right = (start - length - margin, end + length + margin) if circular else (0, length)
    size = min(size, length + 2 * margin if circular else length)
    first, end_seen = max(left, start - margin), min(right, end + margin)
    if end_seen - first <= size:
        first = min(max(left, start - (size - (end - start)) // 2), right - size)
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


def plan_circle(sequence: str, length: int, *, size: int, overlap: int, origin: int) -> Iterator[Window]:
    """Cut a whole circular sequence into windows counted from ``origin``, wherever its file cuts it.

    A window that owns bases on both sides of position 0 comes twice, with the part before and the part behind; where
    one window owns everything, it comes once. `place_in_window` tells where the owned bases lie in it.

    Parameters
    ----------
    sequence : name of the sequence
    length : int, bases
    size, overlap : int, bases
    origin : position of the base that is counted from, of `genoformer.circles.own_origin`

    Returns
    -------
    iterator of Window, in order of what they own; none for an empty sequence
    """
    windows = list(
        plan_windows(sequence, length, size=size, overlap=overlap, start=origin, end=origin + length, circular=True)
    )
    if len(windows) == 1:
        yield Window(windows[0].region, Region(sequence, 0, length))
        return
    for turn in (length, 0):  # what lies beyond the end is at the beginning
        for region, owned in windows:
            start, end = max(owned.start - turn, 0), min(owned.end - turn, length)
            if start < end:
                yield Window(Region(sequence, region.start - turn, region.end - turn), Region(sequence, start, end))


def plan_whole(
    sequence: str, length: int, *, size: int, spans: Iterable[tuple[int, int]], margin: int = 0, origin: int = 0
) -> Iterator[Window]:
    """Cut spans of a sequence into blocks of ``size`` bases, whose window is the whole sequence.

    Parameters
    ----------
    sequence : name of the sequence
    length, size : int, bases of the sequence and of a block
    spans : (start, end) of what is to be owned, in order
    margin : bases that a circular sequence is seen again before its ``origin`` and behind its end

    Returns
    -------
    iterator of Window, in order of what they own; all of one region
    """
    region = Region(sequence, origin - margin, origin + length + margin)
    for first, end in spans:
        for start in range(first, end, size):
            yield Window(region, Region(sequence, start, min(start + size, end)))


def place_in_window(window: Window, *, length: int, overlap: int) -> list[tuple[int, int]]:
    """Return where in a window of a circular sequence the bases lie that it owns, with context on both sides.

    Parameters
    ----------
    window : of `plan_circle`, or of `plan_windows` or `plan_whole` for a circular sequence
    length, overlap : int, bases of the sequence and as it was planned

    Returns
    -------
    list of (start, end) from the beginning of the window, in order of position on the sequence: one span, or two where
    the whole circle is owned by a window that does not begin with it
    """
    margin = overlap // 2
    first = margin + (window.owned.start - window.region.start - margin) % length
    until = min(first + window.owned.length, margin + length)
    rest = first + window.owned.length - until
    return [(first, until)] + ([(margin, margin + rest)] if rest else [])
