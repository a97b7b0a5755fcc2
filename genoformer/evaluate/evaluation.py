"""Hold predictions against truth, streamed: memory is that of the largest sequence's labels."""

from __future__ import annotations

import os
from collections.abc import Mapping
from contextlib import closing
from dataclasses import dataclass, field
from itertools import groupby
from pathlib import Path
from typing import NamedTuple

import numpy as np

from genoformer.errors import InputError
from genoformer.evaluate.counts import Score, matthews, pooled_score
from genoformer.evaluate.curves import Histogram
from genoformer.evaluate.gene_matching import GeneCounts, match_genes
from genoformer.evaluate.intervals import Interval, Units, bootstrap
from genoformer.evaluate.predictions import Piece, Predictions, StorePredictions, read_genes
from genoformer.evaluate.signals import Moments, SignalNumbers
from genoformer.evaluate.tally import Tally
from genoformer.evaluate.truth import CodingTruth, LabelTruth, Level, StrandTruth, Truth
from genoformer.formats.annotated import read_annotation
from genoformer.formats.bytestream import sniff
from genoformer.formats.spans import is_bed
from genoformer.labels import Files, Labels, read_labels
from genoformer.store import open_store
from genoformer.tracks import CODING_FRAME, IGNORED

UNIT = 16_384
"""Bases of a stretch that confidence intervals draw."""


class Numbers(NamedTuple):
    """The main numbers of a level; the first three of all classes but the first (none), pooled. NaN: undefined."""

    precision: float
    recall: float
    f1: float
    mcc: float
    accuracy: float
    calibration_error: float
    brier_score: float

    @classmethod
    def of(cls, tally: Tally) -> Numbers:
        return cls(
            *pooled_score(tally.matrix), matthews(tally.matrix), tally.accuracy, tally.calibration_error,
            tally.brier_score,
        )  # fmt: skip


@dataclass
class LevelResult:
    """What came out at one level, over all sequences.

    Attributes
    ----------
    level : which
    tally : all counts
    histogram : of probabilities; None if the predictions have none
    units : counts of stretches, for intervals
    """

    level: Level
    tally: Tally
    histogram: Histogram | None
    units: Units = field(default_factory=Units)

    def add(self, truth: np.ndarray, called: np.ndarray, probabilities: np.ndarray | None) -> Tally:
        """Count a piece; bases that are IGNORED in truth are left out."""
        counted = np.flatnonzero(truth != IGNORED)
        if len(counted) < len(truth):
            truth, called = truth[counted], called[counted]
            probabilities = None if probabilities is None else probabilities[:, counted]
        classes = len(self.level.classes)
        total = Tally.empty(classes)
        for start in range(0, len(truth), UNIT):
            part = slice(start, start + UNIT)
            values = None if probabilities is None else probabilities[:, part]
            tally = Tally.of(truth[part], called[part], values, classes=classes)
            self.units.add(tally.row())
            total += tally
        if self.histogram is not None and probabilities is not None:
            self.histogram.add(probabilities, truth)
        self.tally += total
        return total

    def numbers(self) -> Numbers:
        return Numbers.of(self.tally)

    def intervals(self, *, seed: int = 0) -> dict[str, Interval]:
        """Return a 95% interval of each of the main numbers, by redrawing stretches of 16,384 bases."""
        classes = len(self.level.classes)
        found = bootstrap(
            self.units.rows, lambda row: list(Numbers.of(Tally.from_row(row, classes=classes))), seed=seed
        )
        return dict(zip(Numbers._fields, found, strict=True)) if found else {}


class SequenceResult(NamedTuple):
    """What came out of one sequence."""

    name: str
    length: int
    numbers: Mapping[str, Numbers | SignalNumbers]
    """by level; of a signal track by channel"""
    genes: tuple[Score, Score] | None
    """3' ends, exact"""


@dataclass
class Evaluation:
    """Everything that was measured.

    Attributes
    ----------
    prediction, truth : files
    track : what was predicted
    levels : results by name of the level
    sequences : one by one
    genes : counts, None if there were no genes to compare
    signals : of a signal track, which has no levels: moments by channel
    bases, missing : bases of the sequences compared, and how many of them had no prediction and do not count
    notes : what was left out, and rules, in words
    """

    prediction: str
    truth: str
    track: str
    levels: dict[str, LevelResult]
    sequences: list[SequenceResult] = field(default_factory=list)
    genes: GeneCounts | None = None
    signals: dict[str, Moments] = field(default_factory=dict)
    bases: int = 0
    missing: int = 0
    notes: list[str] = field(default_factory=list)


def evaluate(
    prediction: str | os.PathLike[str],
    truth: Files,
    *,
    track: str | None = None,
    fasta: str | os.PathLike[str] | None = None,
    call_genes: bool = True,
) -> Evaluation:
    """Compare predictions with an annotation, base by base and gene by gene.

    Parameters
    ----------
    prediction : store of `genoformer predict`, or the genes of another program (GFF3 or GenBank)
    truth : annotation, GFF3 or GenBank, or BED with a strand in column 6, by which bases count, and no genes; of other
        tracks BED, bedGraph or bigWig as `read_labels` takes them
    track : of the store; default: its first
    fasta : the sequences that were predicted, or genes called in; needed where no file states their lengths, and for
        the genes of a store whose input is not where it was
    call_genes : of a store, as `genoformer export` does, if its sequences are at hand

    Returns
    -------
    Evaluation

    Raises
    ------
    InputError : a file cannot be read, names, lengths or coordinates do not fit, or there is nothing to compare
    FormatError : a file is damaged, or in an unknown format
    """
    kind = sniff(prediction)
    if kind == "empty":
        raise InputError(f"{prediction}: is empty; expected a store or GFF3")
    if kind != "hdf5":
        sequences = str(prediction) if fasta is None else str(fasta)
        if is_bed(_only(truth)):
            genes = read_genes(prediction, fasta=fasta)
            return compare(genes, StrandTruth(_only(truth), genes.lengths(), sequences=sequences))
        annotation = read_annotation(_only(truth))
        genes = read_genes(prediction, fasta=fasta, truth=annotation)
        return compare(genes, CodingTruth(annotation, genes.lengths(), source=str(truth), sequences=sequences))
    with closing(StorePredictions(open_store(Path(prediction)), track)) as store:
        if store.track.name != CODING_FRAME.name:
            labels = read_labels(truth, store.lengths(), store.track, sequences=store.source)
            if store.track.kind == "signal":
                return compare_signals(store, labels)
            return compare(store, LabelTruth(labels))
        if is_bed(_only(truth)):
            return compare(store, StrandTruth(_only(truth), store.lengths(), sequences=store.source))
        coding = CodingTruth(read_annotation(_only(truth)), store.lengths(), source=str(truth), sequences=store.source)
        if call_genes:
            store.call_genes(fasta)
        return compare(store, coding)


def _only(truth: Files) -> str | os.PathLike[str]:
    """Return the one file that coding sequences come in."""
    if isinstance(truth, Mapping):
        raise InputError(f"{', '.join(map(str, truth.values()))}: coding sequences come in one annotation; give that")
    return truth


def compare(predictions: Predictions, truth: Truth) -> Evaluation:
    """Compare opened predictions with opened truth; see :func:`evaluate`."""
    results = {}
    for level in truth.levels:
        classes = len(level.classes)
        histogram = Histogram(classes) if predictions.has_probabilities else None
        results[level.name] = LevelResult(level, Tally.empty(classes), histogram)
    evaluation = Evaluation(predictions.source, truth.source, predictions.track.name, results)
    evaluation.notes = [*truth.notes, *predictions.notes]
    if predictions.genes is not None and truth.has_genes:
        evaluation.genes = GeneCounts()
    lengths = predictions.lengths()
    for name, pieces in groupby(predictions.pieces(set(truth.names)), key=lambda piece: piece.sequence):
        labels = truth.labels(name)
        tallies = {level.name: Tally.empty(len(level.classes)) for level in truth.levels}
        for piece in pieces:
            evaluation.missing += _add_piece(piece, labels, results, tallies)
        genes = _add_genes(evaluation, predictions, truth, name, length=lengths[name])
        evaluation.bases += lengths[name]
        numbers = {key: Numbers.of(tally) for key, tally in tallies.items()}
        evaluation.sequences.append(SequenceResult(name, lengths[name], numbers, genes))
    if not any(result.tally.bases for result in results.values()):
        raise InputError(
            f"{predictions.source}: not one base of the {len(truth.names)} sequences of {truth.source} has a "
            "prediction that can be scored; predict these sequences first"
        )
    _note_missing(evaluation)
    return evaluation


def compare_signals(predictions: StorePredictions, labels: Labels) -> Evaluation:
    """Compare the values of a signal track with labels, channel by channel; bases without either do not count."""
    channels, lengths = labels.track.channels, predictions.lengths()
    evaluation = Evaluation(predictions.source, labels.source, labels.track.name, {}, notes=list(labels.notes))
    evaluation.signals = {channel: Moments() for channel in channels}
    for name, pieces in groupby(predictions.pieces(labels), key=lambda piece: piece.sequence):
        truth = labels[name]
        moments = {channel: Moments() for channel in channels}
        for piece in pieces:
            assert piece.probabilities is not None
            evaluation.missing += int((piece.frames < 0).sum())
            for channel, values, true in zip(channels, piece.probabilities, truth[piece.start :].T, strict=True):
                moments[channel] += Moments.of(values, true[: len(values)])
        for channel in channels:
            evaluation.signals[channel] += moments[channel]
        evaluation.bases += lengths[name]
        numbers = {channel: moments[channel].numbers() for channel in channels}
        evaluation.sequences.append(SequenceResult(name, lengths[name], numbers, None))
    if not any(moments.bases for moments in evaluation.signals.values()):
        raise InputError(
            f"{predictions.source}: not one base has both a prediction and a value in {labels.source}; predict the "
            "sequences that it tells of"
        )
    _note_missing(evaluation)
    return evaluation


def _note_missing(evaluation: Evaluation) -> None:
    if evaluation.missing:
        evaluation.notes.append(
            f"{evaluation.prediction}: {evaluation.missing:,} bases without a prediction (gaps, skipped or not "
            "requested) do not count"
        )


def _add_piece(
    piece: Piece, labels: dict[str, np.ndarray], results: dict[str, LevelResult], tallies: dict[str, Tally]
) -> int:
    """Count a piece at every level; return how many of its bases had no prediction."""
    unknown = piece.frames < 0
    missing = int(unknown.sum())
    for name, result in results.items():
        true = labels[name][piece.start : piece.start + len(piece.frames)]
        if missing:
            true = np.where(unknown, np.uint8(IGNORED), true)
        called, probabilities = _at_level(piece, result.level)
        tallies[name] += result.add(true, called, probabilities)
    return missing


def _at_level(piece: Piece, level: Level) -> tuple[np.ndarray, np.ndarray | None]:
    """Return the calls and probabilities of a piece in the classes of a level."""
    if level.groups is None:
        return piece.frames, piece.probabilities
    groups = np.array(level.groups)
    if piece.probabilities is None:
        return groups[piece.frames], None
    values = np.stack([piece.probabilities[groups == index].sum(axis=0) for index in range(len(level.classes))])
    return values.argmax(axis=0), values


def _add_genes(
    evaluation: Evaluation, predictions: Predictions, truth: Truth, name: str, *, length: int
) -> tuple[Score, Score] | None:
    true = truth.genes(name)
    if evaluation.genes is None or predictions.genes is None or true is None:
        return None
    circular = truth.is_circular(name) or predictions.is_circular(name)
    counts = match_genes(true, predictions.genes[name], length=length, circular=circular)
    evaluation.genes += counts
    return counts.score(exact=False), counts.score(exact=True)
