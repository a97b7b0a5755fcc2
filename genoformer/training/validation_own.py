"""Validation of a user's own tracks: F1 of classes, correlation of signals."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch

from genoformer.evaluate import confusion, pooled_score
from genoformer.evaluate.counts import class_scores
from genoformer.evaluate.signals import Moments
from genoformer.model.device import CPU_CHUNK
from genoformer.model.genoformer import Genoformer
from genoformer.tokens import reverse_complement
from genoformer.tracks import TRACKS, Track
from genoformer.training.augmentation import ErrorModel, opposite_labels
from genoformer.training.config import TrainConfig
from genoformer.training.examples import Genome, pieces

READ = 5_000
"""Bases of a read with errors."""
_WINDOW = 100_000


class Validation(NamedTuple):
    """What a validation found."""

    entry: dict[str, Any]
    """for the log: scores by genome, and their means"""
    mean: float
    """the one number that a better model has more of, at most 1; NaN if nothing was there to find"""
    measure: str = "F1"
    """what that number is"""


class _Reading(NamedTuple):
    """What a model is shown, and what is true of it."""

    codes: np.ndarray  # (n,)
    labels: dict[str, np.ndarray]


class ClassTally:
    """Counts of a class track; its number is the F1 of all classes but the first, pooled."""

    measure = "F1"

    def __init__(self, track: Track):
        self._matrix = np.zeros((len(track.channels),) * 2, dtype=np.int64)

    def add(self, values: np.ndarray, true: np.ndarray) -> None:
        """Count some bases: probabilities (bases, classes) and classes (bases,)."""
        self._matrix += confusion(true, values.argmax(axis=1), len(self._matrix))

    def numbers(self) -> tuple[float, dict[str, Any]]:
        """Return the F1, and all numbers for the log, among them the mean F1 of the single classes."""
        pooled = pooled_score(self._matrix)
        macro = _mean([score.f1 for score in class_scores(self._matrix)[1:]])
        return pooled.f1, plain({**pooled._asdict(), "macro_f1": macro})


class SignalTally:
    """Moments of a signal; its number is Pearson's correlation, the mean over channels."""

    measure = "correlation"

    def __init__(self, track: Track):
        self._moments = {channel: Moments() for channel in track.channels}

    def add(self, values: np.ndarray, true: np.ndarray) -> None:
        """Add some bases: values and truth, (bases, channels)."""
        for moments, *columns in zip(self._moments.values(), values.T, true.T, strict=True):
            moments += Moments.of(*columns)

    def numbers(self) -> tuple[float, dict[str, Any]]:
        """Return the correlation, and that of each channel."""
        found = {channel: moments.numbers().pearson for channel, moments in self._moments.items()}
        mean = _mean(found.values())
        return mean, {**plain({"correlation": mean}), "channels": plain(found)}


TALLIES: dict[str, type[ClassTally | SignalTally]] = {"class": ClassTally, "signal": SignalTally}
"""How a kind of track is measured."""


def measure_own(model: Genoformer, genomes: Sequence[Genome], config: TrainConfig) -> dict[str, Validation]:
    """Measure a model's own tracks on the first bases of each genome, and on reads of them with errors.

    Returns
    -------
    dict from track to Validation: its number is the mean over genomes and rates of errors, of those that have one
    """
    tracks = [track for track in model.tracks if track.name not in TRACKS]
    entries: dict[str, dict[str, Any]] = {track.name: {} for track in tracks}
    means: dict[str, list[float]] = {track.name: [] for track in tracks}
    if not tracks:
        return {}
    for rate in (None, *config.validate_error_rates):
        suffix = "" if rate is None else f" at {rate:g}"
        found: dict[str, list[float]] = {track.name: [] for track in tracks}
        for genome in genomes:
            for name, tally in _tallies(model, tracks, genome, _readings(model, genome, config, rate)).items():
                number, numbers = tally.numbers()
                entries[name][f"{genome.name} {name}{suffix}"] = numbers
                found[name].append(number)
        for track in tracks:
            means[track.name].append(_mean(found[track.name]))
            if suffix:
                key = f"mean_{TALLIES[track.kind].measure.lower()}{suffix}"
                entries[track.name] |= plain({key: means[track.name][-1]})
    validations = {}
    for track in tracks:
        mean, kind = _mean(means[track.name]), TALLIES[track.kind].measure
        entry = entries[track.name] | plain({f"mean_{kind.lower()}": mean})
        validations[track.name] = Validation(entry, mean, kind)
    return validations


def _readings(model: Genoformer, genome: Genome, config: TrainConfig, rate: float | None) -> Iterator[_Reading]:
    """Yield windows of a genome; with a rate, reads with errors, every other one of the opposite strand."""
    size = min(_WINDOW if rate is None else READ, model.most_bases or _WINDOW)
    rng = None if rate is None else np.random.default_rng([config.seed, round(rate * 1e6)])
    for number, (start, end) in enumerate(pieces(genome, config.validate_bases, size)):
        codes = genome.codes[start:end]
        labels = {name: own.values[start:end] for name, own in genome.own.items()}
        if rate is not None and rng is not None:
            drawn = ErrorModel((rate,)).draw(codes, rate, rng)
            codes = drawn.read()[:size]
            labels = {name: drawn.carry_own(values)[:size] for name, values in labels.items()}
            if number % 2:
                codes = reverse_complement(codes)
                labels = {name: opposite_labels(values, genome.own[name].track) for name, values in labels.items()}
        if len(codes):
            yield _Reading(codes, labels)


@torch.inference_mode()
def _tallies(
    model: Genoformer, tracks: Sequence[Track], genome: Genome, readings: Iterator[_Reading]
) -> Mapping[str, ClassTally | SignalTally]:
    """Measure all tracks in one pass over a genome."""
    model.eval()
    tallies = {track.name: TALLIES[track.kind](track) for track in tracks}
    for codes, labels in readings:
        shown = torch.from_numpy(codes[None]).to(model.device)
        logits = model(shown, genetic_code=genome.genetic_code, chunk_size=CPU_CHUNK)
        for name, tally in tallies.items():
            values = model.heads[name].predict(logits[name])[0]  # type: ignore[operator]
            tally.add(values.cpu().numpy(), labels[name])
    return tallies


def _mean(numbers: Any) -> float:
    known = [number for number in numbers if not math.isnan(number)]
    return float(np.mean(known)) if known else math.nan


def plain(numbers: Mapping[str, float]) -> dict[str, float | None]:
    """Put None for NaN, which JSON has not."""
    return {name: None if math.isnan(number) else number for name, number in numbers.items()}
