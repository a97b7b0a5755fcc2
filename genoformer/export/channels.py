"""Which values of a track to export: its channels, and sums over those of a strand."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from genoformer.errors import ConfigError
from genoformer.tracks import Track


class Channel(NamedTuple):
    """A number for every base, made of one or more columns of a track."""

    name: str
    columns: tuple[int, ...]
    strand: str
    """``+``, ``-``, or ``.`` where it has none"""

    def values(self, slab: np.ndarray) -> np.ndarray:
        """Return its values from those of its columns, (bases, columns): (bases,), of the same type."""
        if len(self.columns) == 1:
            return slab[:, 0]
        return slab.astype(np.float32).sum(axis=1).astype(slab.dtype)


def strand_of(track: Track, column: int) -> str:
    """Return the strand of a channel: the sign that its name begins or ends with, if its mate has the other one.

    >>> from genoformer.tracks import CODING_FRAME
    >>> [strand_of(CODING_FRAME, column) for column in (0, 1, 4)]
    ['.', '+', '-']
    """
    signs = [_sign(track.channels[index]) for index in (column, track.reverse_complement[column])]
    return signs[0] if set(signs) == {"+", "-"} else "."


def _sign(name: str) -> str:
    return next((letter for letter in (name[:1], name[-1:]) if letter in ("+", "-")), ".")


def stored_channels(track: Track) -> list[Channel]:
    """Return the channels of a track as they are."""
    return [Channel(name, (index,), strand_of(track, index)) for index, name in enumerate(track.channels)]


def strand_channels(track: Track) -> list[Channel]:
    """Return ``+`` and ``-``, each the sum over the classes of a strand; none if the track has no such classes."""
    if track.kind != "class":
        return []
    columns = {sign: tuple(c for c in range(len(track.channels)) if strand_of(track, c) == sign) for sign in "+-"}
    return [Channel(sign, found, sign) for sign, found in columns.items() if found and sign not in track.channels]


def calling_channels(track: Track) -> list[Channel]:
    """Return the channels that intervals are called from: strands if it has them, else all but the class of nothing."""
    stored = stored_channels(track)
    return strand_channels(track) or (stored[1:] if track.kind == "class" and len(stored) > 1 else stored)


def choose_channels(track: Track, names: Sequence[str]) -> list[Channel]:
    """Return channels by name, in the order asked for.

    Raises
    ------
    ConfigError : there is no such channel
    """
    known = {channel.name: channel for channel in (*stored_channels(track), *strand_channels(track))}
    for name in names:
        if name not in known:
            raise ConfigError(f"track {track.name!r} has no channel {name!r}; it has {', '.join(known)}")
    return [known[name] for name in dict.fromkeys(names)]
