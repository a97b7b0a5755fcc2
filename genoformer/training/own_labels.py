"""Labels of a user's own tracks, of all bases of a genome, as training holds them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from genoformer.errors import InputError
from genoformer.labels import Files, read_labels
from genoformer.tracks import IGNORED, Track
from genoformer.training.config import LabelFiles

MOST = 65_504
"""Largest value of a signal: what float16 holds, in which a store keeps it."""
_STRETCH = 1 << 20
"""Bases looked at together."""


class OwnLabels(NamedTuple):
    """Labels of one track, the sequences of a genome one behind the other."""

    track: Track
    values: np.ndarray
    """uint8 classes, (bases,), IGNORED where unknown; float32 signals, (bases, channels), NaN where unknown"""
    known: bool
    """whether there are any; else nothing is kept in memory"""
    notes: list[str]
    """what is labeled, and what was left out, in words"""

    def stretches(self) -> Iterator[np.ndarray]:
        """Yield the values a stretch at a time; none if nothing is known."""
        for start in range(0, len(self.values) if self.known else 0, _STRETCH):
            yield self.values[start : start + _STRETCH]

    def counts(self) -> np.ndarray:
        """Count the bases of each class, unknown ones at IGNORED: int64, (256,)."""
        return sum((np.bincount(part, minlength=256) for part in self.stretches()), np.zeros(256, dtype=np.int64))


def load_labels(
    track: Track, files: LabelFiles | None, lengths: Mapping[str, int], *, root: Path, sequences: str
) -> OwnLabels:
    """Read the labels of a track for every sequence of a genome.

    Parameters
    ----------
    track : one of the user's own
    files : a file, or one for each channel, relative to ``root``; None: nothing is known
    lengths : bases of every sequence, in order
    sequences : what the file with the sequences is called in messages

    Raises
    ------
    InputError, FormatError : see `genoformer.labels.read_labels`; or a value is too large to be stored
    """
    total = sum(lengths.values())
    blank = np.uint8(IGNORED) if track.kind == "class" else np.float32(np.nan)
    shape = (total,) if track.kind == "class" else (total, len(track.channels))
    if files is None:
        return OwnLabels(track, np.broadcast_to(blank, shape), known=False, notes=["no labels given"])
    labels = read_labels(_within(root, files), lengths, track, sequences=sequences)
    values, here, plain = np.empty(shape, dtype=blank.dtype), 0, 0
    for name, length in lengths.items():
        found = labels[name]
        plain += not found.any() if track.kind == "class" else bool(np.isnan(found).all())
        values[here : here + length] = found
        here += length
    own = OwnLabels(track, values, known=True, notes=[])
    _check_values(own, labels.source)
    own.notes.append(_summary(own))
    if plain:
        word = f"are {track.channels[0]} throughout" if track.kind == "class" else "have no value"
        own.notes.append(f"{plain:,} of {len(lengths):,} sequences {word}")
    own.notes.extend(labels.notes)
    return own


def _within(root: Path, files: LabelFiles) -> Files:
    found = [root / path for path in ([files] if isinstance(files, str) else files.values())]
    for path in found:
        if not path.is_file():
            raise InputError(f"{path}: no such file; label paths are relative to {root.resolve()}")
    return found[0] if isinstance(files, str) else dict(zip(files, found, strict=True))


def _check_values(own: OwnLabels, source: str) -> None:
    if own.track.kind == "class":
        return
    largest = max((float(np.nanmax(np.abs(part), initial=0.0)) for part in own.stretches()), default=0.0)
    if largest > MOST:
        raise InputError(
            f"{source}: track {own.track.name!r} has values up to {largest:g}, and a store holds {MOST} at most; "
            "give them in a larger unit"
        )


def _summary(own: OwnLabels) -> str:
    """Say how much is labeled as what."""
    channels = own.track.channels
    if own.track.kind == "class":
        counts = own.counts()
        named = [f"{counts[index]:,} {name}" for index, name in enumerate(channels)]
        named += [f"{counts[IGNORED]:,} ignored"] if counts[IGNORED] else []
        return f"bases of {', '.join(named)}"
    known = sum((np.isfinite(part).sum(axis=0) for part in own.stretches()), np.zeros(len(channels), dtype=np.int64))
    return f"bases with a value: {', '.join(f'{count:,} {name}' for count, name in zip(known, channels, strict=True))}"


def check_learnable(labels: Sequence[OwnLabels]) -> list[str]:
    """Check that there is something to learn of a track, in all the genomes to learn from; return warnings.

    Parameters
    ----------
    labels : of one track, one for each genome

    Raises
    ------
    InputError : nothing is labeled, nothing but one class, or a channel with one value only
    """
    track = labels[0].track
    if not any(own.known for own in labels):
        raise InputError(
            f"track {track.name!r}: no sample to train on has labels of it; name their files in its [samples.labels]"
        )
    if track.kind == "signal":
        for channel, spread in zip(track.channels, signal_spread(labels)[1], strict=True):
            if not spread > 0:
                raise InputError(
                    f"track {track.name!r}: channel {channel!r} has "
                    f"{'no value' if np.isnan(spread) else 'one value only'} in the samples to train on, "
                    "so that there is nothing to learn; check the files"
                )
        return []
    counts = sum((own.counts() for own in labels), np.zeros(256, dtype=np.int64))[: len(track.channels)]
    there = [name for name, count in zip(track.channels, counts, strict=True) if count]
    if len(there) < 2:
        raise InputError(
            f"track {track.name!r}: no base of the samples to train on is of another class than "
            f"{there[0] if there else 'none at all'!r}, so that there is nothing to learn; check the files"
        )
    missing = [name for name in track.channels if name not in there]
    return [f"track {track.name!r}: no base to train on is {', '.join(missing)}"] if missing else []


def signal_spread(labels: Sequence[OwnLabels]) -> tuple[np.ndarray, np.ndarray]:
    """Return mean and standard deviation of each channel of a signal over all genomes; NaN where nothing is known."""
    channels = len(labels[0].track.channels)
    count, total, square = (np.zeros(channels) for _ in range(3))
    for part in (part for own in labels for part in own.stretches()):
        count += np.isfinite(part).sum(axis=0)
        total += np.nansum(part, axis=0, dtype=np.float64)
    with np.errstate(invalid="ignore"):
        mean = total / count
    for part in (part for own in labels for part in own.stretches()):
        square += np.nansum(np.square(part - mean), axis=0)
    with np.errstate(invalid="ignore"):
        return mean, np.sqrt(square / count)
