"""What the programs of a page work on, as plain data; see assets/js/data.js for the reader."""

from __future__ import annotations

import json
from typing import Any

import numpy as np

from genoformer.report.embed import packed, quantized
from genoformer.report.gather import Gathered
from genoformer.report.markup import shown
from genoformer.report.selection import Selection
from genoformer.report.truth import Truth
from genoformer.report.values import Values, drawn_channels
from genoformer.report.walk import PageGene
from genoformer.store import TrackStore

Limits = list[tuple[float, float]]


def limits_of(values: Values) -> Limits:
    """Return the lowest and highest value of each channel that is drawn; of signals all but the extreme 0.1%."""
    if values.track.kind == "class":
        return [(0.0, 1.0)] * len(drawn_channels(values.track))
    found = []
    for channel in range(len(values.track.channels)):
        low, high = values.quantiles(channel, (0.0005, 0.9995))
        low = min(low, 0.0)
        found.append((low, high if high > low else low + 1.0))
    return found


def packed_json(value: Any) -> str:
    """Return data as compressed JSON."""
    return packed(json.dumps(value, ensure_ascii=True, allow_nan=False, separators=(",", ":")).encode("ascii"))


def overview(values: Values, gathered: Gathered, truth: Truth | None, limits: Limits) -> dict[str, Any]:
    """Return the bins of everything that is listed, each channel by itself."""

    def columns(array: np.ndarray | None) -> list[str] | None:
        if array is None:
            return None
        scaled = [quantized(column, low=low, high=high) for column, (low, high) in zip(array.T, limits, strict=True)]
        return [packed(column) for column in scaled]

    bins = values.bins
    has_extremes = bins.low is not None and bins.high is not None
    known = np.maximum(gathered.known_bins, 1)
    share = np.where(gathered.known_bins > 0, gathered.gc_bins / known, np.nan)
    return {
        "mean": columns(bins.means()),
        "low": columns(_finite(bins.low)) if has_extremes else None,
        "high": columns(_finite(bins.high)) if has_extremes else None,
        "gc": packed(quantized(share)) if gathered.has_bases else None,
        "true_classes": None if truth is None or truth.classes is None else packed(truth.classes),
        "true_class_names": [] if truth is None else [shown(name) for name in truth.class_names],
        "true_signals": columns(None if truth is None else truth.signals),
    }


def _finite(array: np.ndarray | None) -> np.ndarray | None:
    return None if array is None else np.where(np.isfinite(array), array, np.nan)


def gene_columns(gathered: Gathered, truth: Truth | None) -> dict[str, list[Any]]:
    """Return the listed genes, a list for each of their properties."""
    genes: list[PageGene] = [gene for _, gene in gathered.listed]
    columns: dict[str, list[Any]] = {
        "place": [place for place, _ in gathered.listed],
        "name": [shown(gene.name) for gene in genes],
        "start": [gene.start for gene in genes],
        "end": [gene.end for gene in genes],
        "strand": [gene.strand for gene in genes],
        "bases": [gene.bases for gene in genes],
        "codon": [gene.start_codon for gene in genes],
        "partial": [int(gene.is_partial) for gene in genes],
        "posterior": [None if gene.posterior is None else round(gene.posterior, 4) for gene in genes],
        "parts": [gene.parts if len(gene.parts) > 1 else 0 for gene in genes],
    }
    if truth is not None and truth.matches:
        columns["match"] = truth.matches
    return columns


def truth_columns(truth: Truth) -> dict[str, list[Any]]:
    """Return true CDS, a list for each of their properties."""
    genes = truth.genes
    return {
        "missed": [int(missed) for missed in truth.missed],
        "place": [place for place, _ in genes],
        "name": [shown(cds.name) for _, cds in genes],
        "start": [min(start for start, _ in cds.parts) for _, cds in genes],
        "end": [max(end for _, end in cds.parts) for _, cds in genes],
        "strand": [cds.strand for _, cds in genes],
        "partial": [int(cds.partial) for _, cds in genes],
        "pseudo": [int(cds.pseudo or cds.is_broken) for _, cds in genes],
        "parts": [cds.parts if len(cds.parts) > 1 else 0 for _, cds in genes],
    }


def sequence_columns(
    store: TrackStore, selection: Selection, values: Values, gathered: Gathered, truth: Truth | None
) -> dict[str, list[Any]]:
    """Return the table of the listed sequences; shares from 0 to 1, None where undefined."""
    chosen = selection.indices
    lengths, predicted = selection.lengths, values.predicted[chosen]
    columns: dict[str, list[Any]] = {
        "name": [shown(name) for name in selection.names],
        "length": lengths.tolist(),
        "status": [_status(store, index) for index in chosen.tolist()],
        "topology": [store.sequences.topology[index] for index in chosen.tolist()],
        "predicted": _shares(predicted, lengths),
    }
    if gathered.has_bases:
        columns["gc"] = _shares(gathered.gc[chosen], gathered.known[chosen])
    if gathered.has_genes:
        columns["genes"] = gathered.genes[chosen].tolist()
        columns["coding"] = _shares(gathered.covered[chosen], predicted)
    if values.track.kind == "class":
        columns["confidence"] = _shares(values.certainty[chosen], predicted)
    if truth is not None:
        columns |= _agreement(selection, truth)
    return columns


def _status(store: TrackStore, index: int) -> str:
    status, reason = store.sequences.status[index], store.sequences.reason[index]
    word = "not requested" if status == "pending" else status
    return f"{word}: {shown(reason)}" if reason else word


def _shares(parts: np.ndarray, wholes: np.ndarray) -> list[float | None]:
    return [round(float(part) / whole, 4) if whole else None
            for part, whole in zip(parts.tolist(), wholes.tolist(), strict=True)]  # fmt: skip


def _agreement(selection: Selection, truth: Truth) -> dict[str, list[float | None]]:
    """Return the F1 of each sequence by base and by gene, or the correlation of the first channel of a signal."""
    results = {one.name: one for one in truth.evaluation.sequences}
    chosen = [results.get(name) for name in selection.names]
    measure = "pearson" if truth.evaluation.signals else "f1"
    by_base = [None if one is None else getattr(next(iter(one.numbers.values())), measure) for one in chosen]
    found = {measure: [_rounded(value) for value in by_base]}
    if truth.evaluation.genes is not None:
        found["gene_f1"] = [_rounded(one.genes[0].f1 if one and one.genes else None) for one in chosen]
    return found


def _rounded(value: float | None) -> float | None:
    return None if value is None or np.isnan(value) else round(float(value), 4)
