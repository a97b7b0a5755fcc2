"""What is true, beside what was predicted: the evaluation, and what a page draws of it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from itertools import groupby

import numpy as np

from genoformer.annotation import Annotation, CodingSequence
from genoformer.errors import InputError
from genoformer.evaluate.evaluation import Evaluation, compare, compare_signals
from genoformer.evaluate.gene_matching import WRONG, match_each
from genoformer.evaluate.predictions import StorePredictions
from genoformer.evaluate.truth import STRAND, CodingTruth, LabelTruth, StrandTruth
from genoformer.formats.annotated import read_annotation
from genoformer.formats.spans import is_bed
from genoformer.labels import Files, Labels, read_labels
from genoformer.report.gather import GENES, Gathered
from genoformer.report.selection import Selection
from genoformer.report.values import Bins, Values
from genoformer.store import TrackStore
from genoformer.tracks import CODING_FRAME, IGNORED


@dataclass
class Truth:
    """What is true.

    Attributes
    ----------
    evaluation : how far predictions agree with it
    genes : true CDS of listed sequences, with the place of theirs
    matches : of each listed gene that was called, see `match_each`; "" where nothing is known of its sequence
    missed : of each true CDS, whether it counts, has values, and its 3' end is that of no gene that was called
    class_names, classes : uint8, (bins,): the most frequent true class of each bin, 255 where none is known; of a
        class track, or of strands told by BED
    signals : float32, (bins, channels): the true means, of a signal
    """

    evaluation: Evaluation
    genes: list[tuple[int, CodingSequence]] = field(default_factory=list)
    matches: list[str] = field(default_factory=list)
    missed: list[bool] = field(default_factory=list)
    class_names: tuple[str, ...] = ()
    classes: np.ndarray | None = None
    signals: np.ndarray | None = None


def read_truth(store: TrackStore, values: Values, files: Files, *, selection: Selection, gathered: Gathered) -> Truth:
    """Read what is true of a track, and hold its predictions against it.

    Parameters
    ----------
    store, values : of the predictions; what was read of the track that is compared
    files : annotation, or what `read_labels` takes for other tracks
    selection : what is listed
    gathered : genes, all of them kept

    Raises
    ------
    InputError : a file cannot be read, or names, lengths or coordinates do not fit
    FormatError : a file is damaged, or in an unknown format
    """
    track = values.track
    predictions = StorePredictions(store, track.name)
    if track.name == CODING_FRAME.name:
        if isinstance(files, Mapping):
            raise InputError(f"{', '.join(map(str, files.values()))}: coding sequences come in one annotation")
        if is_bed(files):
            strands = StrandTruth(files, predictions.lengths(), sequences=predictions.source)
            truth = Truth(compare(predictions, strands), class_names=STRAND.classes)
            truth.classes = _class_bins(lambda name: strands.labels(name)[STRAND.name], STRAND.classes, selection)
            return truth
        predictions.genes = gathered.calls if gathered.has_genes else None
        truth = _coding(predictions, read_annotation(files), str(files), selection, gathered)
        truth.missed = [missed and _is_predicted(cds, place, selection, values.bins)
                        for missed, (place, cds) in zip(truth.missed, truth.genes, strict=False)]  # fmt: skip
        return truth
    labels = read_labels(files, predictions.lengths(), track, sequences=predictions.source)
    if track.kind == "signal":
        truth = Truth(compare_signals(predictions, labels))
        truth.signals = _signal_bins(labels, selection)
        return truth
    truth = Truth(compare(predictions, LabelTruth(labels)), class_names=track.channels)
    truth.classes = _class_bins(labels.__getitem__, track.channels, selection)
    return truth


def _coding(
    predictions: StorePredictions, annotation: Annotation, source: str, selection: Selection, gathered: Gathered
) -> Truth:
    lengths = predictions.lengths()
    coding = CodingTruth(annotation, lengths, source=source, sequences=predictions.source)
    if predictions.genes is not None:
        predictions.genes = {name: predictions.genes.get(name, []) for name in coding.names}
    truth = Truth(compare(predictions, coding))
    calls = {place: [gene.cds for _, gene in rows] for place, rows in groupby(gathered.listed, key=lambda row: row[0])}
    for place, name in enumerate(selection.names):
        true, called = annotation.coding_sequences.get(name), calls.get(place, [])
        if true is None:
            truth.matches += [""] * len(called)
            continue
        circular = coding.is_circular(name) or predictions.is_circular(name)
        truth.matches += match_each(true, called, length=lengths[name], circular=circular)
        if gathered.calls is not None and gathered.has_genes:
            back = match_each(gathered.calls.get(name, []), true, length=lengths[name], circular=circular)
            counted = [not (cds.is_broken or cds.partial) for cds in true]
            truth.missed += [word == WRONG and counts for word, counts in zip(back, counted, strict=True)]
        truth.genes += [(place, cds) for cds in true]
    del truth.genes[GENES:], truth.missed[GENES:]
    return truth


def _is_predicted(cds: CodingSequence, place: int, selection: Selection, bins: Bins) -> bool:
    """Tell whether there are values at the 3' end of a CDS, without which it cannot be called."""
    end = cds.parts[-1][1] - 1 if cds.strand > 0 else cds.parts[-1][0]
    return bool(bins.counts[int(selection.bin_offsets[place]) + end // selection.bin_size])


def _class_bins(labels: Callable[[str], np.ndarray], names: tuple[str, ...], selection: Selection) -> np.ndarray:
    classes, size = len(names), selection.bin_size
    found = np.full(int(selection.bin_offsets[-1]), 255, dtype=np.uint8)
    for place, name in enumerate(selection.names):
        true = labels(name)
        bins = -(-len(true) // size)
        known = np.flatnonzero(true != IGNORED)
        index = known // size * classes + true[known]
        counts = np.bincount(index, minlength=bins * classes).reshape(bins, classes)
        first = int(selection.bin_offsets[place])
        found[first : first + bins] = np.where(counts.any(axis=1), counts.argmax(axis=1), 255)
    return found


def _signal_bins(labels: Labels, selection: Selection) -> np.ndarray:
    bins = int(selection.bin_offsets[-1])
    columns = [Bins.empty(bins, 1, extremes=False) for _ in labels.track.channels]
    for place, name in enumerate(selection.names):
        values = labels[name]
        numbers = int(selection.bin_offsets[place]) + np.arange(len(values)) // selection.bin_size
        for column, channel in zip(columns, values.T, strict=True):
            column.add(numbers, channel[:, None])
    return np.concatenate([column.means() for column in columns], axis=1)
