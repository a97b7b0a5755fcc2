"""An evaluation as plain data, ready for JSON: numbers that are undefined are None."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from genoformer import __version__
from genoformer.evaluate.counts import ClassScore, Score, class_scores
from genoformer.evaluate.evaluation import Evaluation, LevelResult, Numbers
from genoformer.evaluate.gene_matching import LENGTH_BINS, STRANDS, GeneCounts
from genoformer.evaluate.intervals import LEVEL, Interval, bootstrap_f1
from genoformer.evaluate.signals import SignalNumbers
from genoformer.evaluate.tally import CONFIDENCE_BINS

FORMAT, FORMAT_VERSION = "genoformer-evaluation", 1


def summarize(evaluation: Evaluation, *, intervals: bool = False, seed: int = 0) -> dict[str, Any]:
    """Return everything that was measured.

    Parameters
    ----------
    evaluation : what `evaluate` returned
    intervals : add 95% bootstrap intervals of the main numbers; signals have none
    seed : int, of the bootstrap

    Returns
    -------
    dict of plain data
    """
    summary: dict[str, Any] = {
        "format": FORMAT,
        "format-version": FORMAT_VERSION,
        "generated-by": f"genoformer-{__version__}",
        "prediction": evaluation.prediction,
        "truth": evaluation.truth,
        "track": evaluation.track,
        "bases": {"compared": evaluation.bases, "without-prediction": evaluation.missing},
        "notes": evaluation.notes,
        "levels": {name: _level(result) for name, result in evaluation.levels.items()},
        "signals": {name: _named(moments.numbers()) for name, moments in evaluation.signals.items()} or None,
        "genes": None if evaluation.genes is None else _genes(evaluation.genes),
        "sequences": [_sequence(*one) for one in evaluation.sequences],
    }
    if intervals:
        summary["intervals"] = {"confidence": LEVEL, "seed": seed}
        for name, result in evaluation.levels.items():
            found = result.intervals(seed=seed)
            summary["levels"][name]["intervals"] = {key: _pair(interval) for key, interval in found.items()}
        if evaluation.genes is not None:
            for key, exact in (("three-prime", False), ("exact", True)):
                drawn = bootstrap_f1(*evaluation.genes.counts(exact=exact), seed=seed)
                summary["genes"][key]["intervals"] = dict(zip(Score._fields, map(_pair, drawn), strict=True))
    return summary


def _pair(interval: Interval) -> list[float | None]:
    return [_plain(interval.low), _plain(interval.high)]


def _plain(value: float) -> float | None:
    return None if math.isnan(value) else value


def _named(numbers: Score | ClassScore | Numbers | SignalNumbers) -> dict[str, Any]:
    return {name: _plain(value) for name, value in zip(numbers._fields, numbers, strict=True)}


def _level(result: LevelResult) -> dict[str, Any]:
    classes, tally, histogram = result.level.classes, result.tally, result.histogram
    by_class = {}
    for index, (name, score) in enumerate(zip(classes, class_scores(tally.matrix), strict=True)):
        by_class[name] = _named(score)
        if histogram is not None:
            by_class[name]["average_precision"] = _plain(histogram.average_precision(index))
            by_class[name]["auroc"] = _plain(histogram.auroc(index))
    return {
        "bases": tally.bases,
        "numbers": _named(result.numbers()),
        "classes": by_class,
        "confusion": {"classes": list(classes), "true-by-called": tally.matrix.tolist()},
        "calibration": [bin_._asdict() for bin_ in reliability(tally.bins)] if tally.has_probabilities else None,
    }


class ReliabilityBin(NamedTuple):
    """Bases whose highest probability lies between two bounds; means are None where there are no bases."""

    low: float
    high: float
    bases: int
    confidence: float | None
    accuracy: float | None


def reliability(bins: np.ndarray) -> list[ReliabilityBin]:
    """Return the reliability curve of the sums of a `Tally`, (3, bins)."""
    found = []
    for index, (bases, confidence, right) in enumerate(bins.T.tolist()):
        bounds = index / CONFIDENCE_BINS, (index + 1) / CONFIDENCE_BINS
        means = (confidence / bases, right / bases) if bases else (None, None)
        found.append(ReliabilityBin(*bounds, int(bases), *means))
    return found


def _genes(genes: GeneCounts) -> dict[str, Any]:
    bins = []
    for index, start in enumerate(LENGTH_BINS):
        end = LENGTH_BINS[index + 1] if index + 1 < len(LENGTH_BINS) else None
        bins.append({"from": start, "to": end} | _gene_scores(genes, length_bin=index))
    return {
        **_gene_scores(genes),
        "by-length": bins,
        "by-strand": {sign: _gene_scores(genes, strand=index) for index, sign in enumerate(STRANDS)},
        "left-out": {"true": genes.unscored, "called": genes.excused},
    }


def _gene_scores(genes: GeneCounts, *, strand: int | None = None, length_bin: int | None = None) -> dict[str, Any]:
    found = {}
    for key, exact in (("three-prime", False), ("exact", True)):
        right, called, true = genes.counts(exact=exact, strand=strand, length_bin=length_bin)
        score = genes.score(exact=exact, strand=strand, length_bin=length_bin)
        found[key] = {"right": right, "called": called, "true": true, **_named(score)}
    return found


def _sequence(
    name: str, length: int, numbers: Mapping[str, Numbers | SignalNumbers], genes: tuple[Score, Score] | None
) -> dict[str, Any]:
    described: dict[str, Any] = {"name": name, "length": length}
    described |= {level: _named(values) for level, values in numbers.items()}
    if genes is not None:
        described["genes"] = {"three-prime": _named(genes[0]), "exact": _named(genes[1])}
    return described
