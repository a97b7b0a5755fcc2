"""What an allele changes: its values against those of the reference, at the bases that both have."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

from genoformer.tracks import CODING_FRAME, Track


class Group(NamedTuple):
    """Channels of a track whose sum is compared."""

    name: str
    """lower case, letters, digits and _"""
    channels: tuple[int, ...]
    said: str
    """for people"""


class Change(NamedTuple):
    """The largest rise and fall of a value over all shared bases, and where."""

    gain: float
    """0 or more"""
    gain_at: int
    """0-based position on the reference"""
    loss: float
    """0 or more"""
    loss_at: int


class Effect(NamedTuple):
    """What one allele changes."""

    changes: dict[str, Change]
    """by name of the group"""
    shifts: dict[str, tuple[float, int]]
    """by label of each class track: the largest share of probability that goes to other classes, and where"""
    inserted: dict[str, float]
    """by group: the largest value of bases that only the alternate has"""
    deleted: dict[str, float]
    """by group: the largest value of bases that only the reference has"""


class Alignment(NamedTuple):
    """Which bases of two haplotypes correspond: index arrays of like lengths, and those without a counterpart."""

    reference: np.ndarray
    alternate: np.ndarray
    deleted: slice
    inserted: slice


def label_of(track: Track) -> str:
    """Return the short name of a track, in names of groups and INFO fields."""
    return "coding" if track.name == CODING_FRAME.name else _word(track.name)


def groups_of(track: Track) -> list[Group]:
    """Return what is compared: the coding strands of a coding-frame track, else each channel."""
    label = label_of(track)
    if track.name == CODING_FRAME.name:
        return [
            Group(f"{label}_plus", (1, 2, 3), "probability of coding on +"),
            Group(f"{label}_minus", (4, 5, 6), "probability of coding on -"),
        ]
    words = [_word(channel) for channel in track.channels]
    if len(set(words)) < len(words):
        words = [f"{word}_{index}" for index, word in enumerate(words)]
    return [
        Group(f"{label}_{word}", (index,), f"{track.units} of {track.channels[index]}, track {track.name}")
        for index, word in enumerate(words)
    ]


def _word(text: str) -> str:
    """Turn a name into lower-case letters, digits and _.

    >>> _word("my-track"), _word("+0"), _word("-0")
    ('my_track', 'plus_0', 'minus_0')
    """
    signed = re.sub("^-|-$", " minus ", text).replace("+", " plus ")
    return "_".join(re.findall("[A-Za-z0-9]+", signed)).lower() or "x"


def trimmed(reference: str, alternate: str) -> tuple[int, int]:
    """Return how many bases two alleles share at their left, and then at their right.

    >>> trimmed("CAT", "CT"), trimmed("A", "AA")
    ((1, 1), (1, 0))
    """
    shortest = min(len(reference), len(alternate))
    left = next((i for i in range(shortest) if reference[i] != alternate[i]), shortest)
    right = next((i for i in range(shortest - left) if reference[-1 - i] != alternate[-1 - i]), shortest - left)
    return left, right


def align(place: int, reference: str, alternate: str, *, length: int) -> Alignment:
    """Align two haplotypes of a window: alleles of one length base by base, else by what they share at their ends.

    Parameters
    ----------
    place : where the alleles begin in the window
    length : bases of the window with the reference allele
    """
    grown = len(alternate) - len(reference)
    left, right = trimmed(reference, alternate)
    start, end = place + left, place + len(reference) - right
    if grown == 0:
        start = end
    before, behind = np.arange(start), np.arange(end, length)
    return Alignment(
        np.concatenate([before, behind]),
        np.concatenate([before, behind + grown]),
        slice(start, end),
        slice(start, end + grown),
    )


def base_by_base(length: int) -> Alignment:
    """Align two haplotypes of one length, or the same part of both."""
    places, nothing = np.arange(length), slice(0, 0)
    return Alignment(places, places, nothing, nothing)


def effect(
    tracks: Sequence[Track],
    reference: Mapping[str, np.ndarray],
    alternate: Mapping[str, np.ndarray],
    alignment: Alignment,
    *,
    start: int,
    counts: np.ndarray,
) -> Effect:
    """Compare the values of two haplotypes.

    Parameters
    ----------
    tracks : what was predicted
    reference, alternate : values (bases, channels) by track
    alignment : which bases correspond
    start : 0-based position of the window on its sequence
    counts : bool, (bases of the reference,): where values mean something
    """
    kept = counts[alignment.reference]
    here, there = alignment.reference[kept], alignment.alternate[kept]
    found = Effect({}, {}, {}, {})
    for track in tracks:
        ours, theirs = reference[track.name], alternate[track.name]
        difference = theirs[there] - ours[here]  # (shared bases, channels)
        if track.kind == "class":
            moved = np.abs(difference).sum(axis=1) / 2
            found.shifts[label_of(track)] = _largest(moved, here, start)
        for group in groups_of(track):
            channels = list(group.channels)
            change = difference[:, channels].sum(axis=1)
            found.changes[group.name] = Change(*_largest(change, here, start), *_largest(-change, here, start))
            if alignment.inserted.start < alignment.inserted.stop:
                found.inserted[group.name] = float(theirs[alignment.inserted][:, channels].sum(axis=1).max())
            if alignment.deleted.start < alignment.deleted.stop:
                found.deleted[group.name] = float(ours[alignment.deleted][:, channels].sum(axis=1).max())
    return found


def _largest(values: np.ndarray, places: np.ndarray, start: int) -> tuple[float, int]:
    """Return the largest value, 0 at least, and its position; the first one where several are equal."""
    if not len(values):
        return 0.0, start
    index = int(values.argmax())
    return max(float(values[index]), 0.0), start + int(places[index])
