"""How values and genes are distributed, as charts."""

from __future__ import annotations

import numpy as np

from genoformer.report import charts
from genoformer.report.gather import Gathered
from genoformer.report.markup import Markup, element, shown
from genoformer.report.sections import figure, share
from genoformer.report.selection import Selection
from genoformer.report.values import CONFIDENCE_STEPS, Values

WINDOW = 10_000
"""Bases of the stretches whose coding density is counted."""


def distributions(selection: Selection, values: Values, gathered: Gathered) -> Markup:
    """Return charts of coding density, gene lengths, start codons and confidence, or of the values of a signal."""
    if not values.predicted.any():
        return element("p", "Nothing was predicted.")
    made = []
    if gathered.has_genes and gathered.lengths:
        made += [_density(selection, values, gathered), _lengths(gathered)]
        if gathered.start_codons:
            total = sum(gathered.start_codons.values())
            rows = sorted(gathered.start_codons.items(), key=lambda row: (-row[1], row[0]))
            shown_rows = [(shown(name), count) for name, count in rows[:6]]
            chart = charts.bars(shown_rows, label="Start codons")
            made.append(figure(f"Start codons of {total:,} genes", chart))
        if gathered.posteriors:
            edges = np.linspace(0, 1, 21).tolist()
            counts = charts.counted_in(gathered.posteriors, edges)
            chart = charts.histogram(edges, counts, across="posterior of the 3' end", up="genes")
            made.append(figure("Confidence of genes", chart))
    if values.track.kind == "class":
        made += [_confidence(values), _classes(values)]
    else:
        made += [_signal(values, channel) for channel in range(min(len(values.track.channels), 12))]
    return element("div", *made, attributes={"class": "figures"})


def _density(selection: Selection, values: Values, gathered: Gathered) -> Markup:
    """Count stretches of 10,000 bases by the share of their predicted bases that lies in genes."""
    bins = max(1, WINDOW // selection.bin_size)
    widths = np.diff(selection.bin_offsets)
    within = np.arange(int(widths.sum())) - np.repeat(selection.bin_offsets[:-1], widths)
    starts = np.flatnonzero(within % bins == 0)
    if not len(starts):
        return Markup("")
    predicted = np.add.reduceat(values.bins.counts.astype(np.int64), starts)
    covered = np.add.reduceat(gathered.covered_bins, starts)
    used = (predicted >= WINDOW // 10) | ((within[starts] == 0) & (predicted > 0))
    edges = np.linspace(0, 100, 21).tolist()
    counts = charts.counted_in(100 * covered[used] / predicted[used], edges)
    chart = charts.histogram(edges, counts, across="bases in genes (%)", up="stretches")
    note = (f"{int(used.sum()):,} stretches of {bins * selection.bin_size:,} bases, or shorter sequences, of those "
            "that are listed")  # fmt: skip
    return figure("Coding density along the sequences", chart, note=note)


def _lengths(gathered: Gathered) -> Markup:
    lengths = np.array(gathered.lengths)
    top = max(600, int(np.ceil(np.quantile(lengths, 0.98) / 300)) * 300)
    edges = np.linspace(0, top, 31).tolist()
    chart = charts.histogram(edges, charts.counted_in(lengths, edges), across="gene length (bases)", up="genes")
    beyond = int((lengths > top).sum())
    note = f"median {int(np.median(lengths)):,}, mean {lengths.mean():,.0f}, longest {lengths.max():,} bases"
    if beyond:
        note += f"; {beyond:,} longer than {top:,} are in the last bar"
    return figure("Gene lengths", chart, note=note)


def _confidence(values: Values) -> Markup:
    edges = np.linspace(0, 1, CONFIDENCE_STEPS + 1)
    first = min(int(np.flatnonzero(values.confidence)[0]), CONFIDENCE_STEPS - 10)
    counts, total = values.confidence[first:], int(values.confidence.sum())
    shares = (100 * counts / max(total, 1)).tolist()
    chart = charts.histogram(edges[first:].tolist(), shares, across="highest probability of a base", up="bases (%)")
    sure = int(values.confidence[int(0.9 * CONFIDENCE_STEPS) :].sum())
    return figure("Confidence of bases", chart, note=f"0.9 or more at {share(sure, total)} of {total:,} bases")


def _classes(values: Values) -> Markup:
    rows = list(zip(map(shown, values.track.channels), values.likeliest.tolist(), strict=True))
    rows = [(name[:8], count) for name, count in rows]
    if len(rows) > 8:
        rows = sorted(rows, key=lambda row: -row[1])[:8]
    return figure("Likeliest class of each base", charts.bars(rows, label="Bases by likeliest class"))


def _signal(values: Values, channel: int) -> Markup:
    low, middle, high = values.quantiles(channel, (0.001, 0.5, 0.999))
    high = high if high > low else low + 1
    edges = np.linspace(low, high, 31)
    order = np.arange(1 << 16, dtype=np.uint16).view(np.float16).astype(np.float64)
    finite = np.isfinite(order)
    counts = np.histogram(order[finite].clip(low, high), bins=edges, weights=values.counts[channel][finite])[0]
    name = shown(values.track.channels[channel], most=40)
    chart = charts.histogram(edges.tolist(), counts.tolist(), across=shown(values.track.units, most=40), up="bases",
                             words=lambda value: f"{value:.4g}")  # fmt: skip
    return figure(f"Values of {name}", chart, note=f"median {middle:.4g}; 0.1% at either end are in the outer bars")
