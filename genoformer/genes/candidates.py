"""Candidates: every open reading frame of six frames with its possible starts, scored by cumulative sums.

Many sequences are handled at once: laid one behind the other, with pads between them that close every frame.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from genoformer.genes.codons import COMMON_STARTS, GeneticCode, codon_index, codons
from genoformer.tokens import N, reverse_complement
from genoformer.tracks import CODING_FRAME

if TYPE_CHECKING:
    from genoformer.genes.signals import Signals

PAD = 30
"""Unknown bases between two stretches: more than anything looked at around a start."""
_BEST_START = 10.0  # more than a start is worth
_AROUND = 15  # bases before and behind a start whose log-odds are compared


@dataclass(frozen=True)
class Scoring:
    """How candidates are scored, in nats. Fitted on annotated genomes of the training and validation sets.

    Attributes
    ----------
    cap : most that one base can say for or against a gene, before weighting
    bias : taken from the log-odds of each base, before weighting
    weight : of the log-odds of a base; far below 1, as neighboring bases say much the same
    cost : of any gene, half of it for each end
    short, scale : cost of a whole gene of length 0, falling by e each ``scale`` bases; one that is cut off may be long
    edge : cost of an end that lies beyond an edge, instead of its half of ``cost``
    gradient : weight of the step of mean log-odds at a start
    gtg, ttg, rare : cost of start codons against ATG
    hexamers, signal : weights of what is learned from a sequence itself, see `signals`
    least, least_open : bases of the shortest gene, whole and cut off
    starts : start codons kept of one reading frame
    margin : worst score that a candidate may have, to count among the alternatives in posteriors
    temperature : what scores are divided by to become log-probabilities, as neighboring bases say the same
    """

    cap: float = 1.25
    bias: float = -2.5
    weight: float = 0.04
    cost: float = 5.0
    short: float = 18.0
    scale: float = 185.0
    edge: float = 0.5
    gradient: float = 1.5
    gtg: float = 2.0
    ttg: float = 3.0
    rare: float = 40.0
    hexamers: float = 0.33
    signal: float = 1.33
    least: int = 90
    least_open: int = 60
    starts: int = 6
    margin: float = -40.0
    temperature: float = 8.0


class Candidates(NamedTuple):
    """Candidate genes as arrays, (candidates,)."""

    stretch: np.ndarray
    """which stretch it lies on"""
    start: np.ndarray
    """on the axis of all stretches, forward strand, half-open"""
    end: np.ndarray
    strand: np.ndarray
    """+1 or -1"""
    open_start: np.ndarray
    open_end: np.ndarray
    """whether its 5' or 3' end lies beyond the stretch"""
    first: np.ndarray
    """index of its first codon"""
    score: np.ndarray

    def take(self, which: np.ndarray) -> Candidates:
        return Candidates(*(column[which] for column in self))

    @property
    def stop(self) -> np.ndarray:
        """A number for each reading frame's end, shared by candidates that differ in their start only."""
        return np.where(self.strand > 0, self.end, -self.start - 1)


class Layout(NamedTuple):
    """Stretches one behind the other, PAD unknown bases before each and behind the last."""

    codes: np.ndarray
    starts: np.ndarray
    ends: np.ndarray

    def mirrored(self) -> Layout:
        length = len(self.codes)
        return Layout(reverse_complement(self.codes), (length - self.ends)[::-1], (length - self.starts)[::-1])


def lay_out(stretches: list[np.ndarray]) -> Layout:
    """Lay codes one behind the other."""
    lengths = np.array([len(stretch) for stretch in stretches], dtype=np.int64)
    ends = np.cumsum(lengths + PAD)
    pad = np.full(PAD, N, dtype=np.uint8)
    return Layout(np.concatenate([*(piece for s in stretches for piece in (pad, s)), pad]), ends - lengths, ends)


@cache
def _odds_table(cap: float, bias: float) -> np.ndarray:
    """Return the log-odds of every float16 that is a probability, by its bits."""
    with np.errstate(all="ignore"):
        p = np.nan_to_num(np.arange(1 << 16, dtype=np.uint16).view(np.float16).astype(np.float64)).clip(1e-6, 1 - 1e-6)
    return (np.log(p / (1 - p)) - bias).clip(-cap, cap).astype(np.float32)


def log_odds(values: np.ndarray, scoring: Scoring) -> np.ndarray:
    """Return the weighted log-odds of probabilities: (bases, 7) float16 -> (bases, 6), of +0 +1 +2 -0 -1 -2."""
    bits = np.ascontiguousarray(values[:, 1:].astype(np.float16, copy=False)).view(np.uint16)
    return _odds_table(scoring.cap, scoring.bias)[bits] * np.float32(scoring.weight)


class Strand(NamedTuple):
    """One strand of a layout, in its own reading direction."""

    layout: Layout
    codon: np.ndarray
    """codon that begins at each base, uint8"""
    sums: np.ndarray
    """see `_frame_sums`"""


def both_strands(layout: Layout, odds: np.ndarray) -> tuple[Strand, Strand]:
    """Prepare the strands of a layout.

    Parameters
    ----------
    layout : the stretches
    odds : float32, (bases of the layout, 6), see `log_odds`; 0 in pads
    """
    mirror = layout.mirrored()
    order = np.array(CODING_FRAME.reverse_complement[1:4]) - 1
    return (
        Strand(layout, codons(layout.codes), _frame_sums(odds[:, :3])),
        Strand(mirror, codons(mirror.codes), _frame_sums(odds[::-1, order])),
    )


def find_candidates(
    strands: tuple[Strand, Strand], *, code: GeneticCode, scoring: Scoring, signals: Signals | None = None
) -> Candidates:
    """Find and score the candidates on both strands.

    Parameters
    ----------
    strands : of `both_strands`
    code : says what starts and ends a gene
    scoring : how to score
    signals : what was learned from the sequence itself

    Returns
    -------
    Candidates, those that are not hopeless, sorted by end, then start
    """
    forward, backward = (_one_strand(strand, code, scoring, signals) for strand in strands)
    length, last = len(strands[0].layout.codes), len(strands[0].layout.starts) - 1
    backward = backward._replace(
        stretch=last - backward.stretch,
        start=length - backward.end,
        end=length - backward.start,
        strand=-backward.strand,
    )
    both = Candidates(*(np.concatenate(pair) for pair in zip(forward, backward, strict=True)))
    return both.take(np.lexsort((both.strand, both.start, both.end)))


def read_places(found: Candidates, strand: int, length: int) -> tuple[np.ndarray, np.ndarray]:
    """Return start and end of the candidates on one strand, in its reading direction; see `Strand`."""
    mine = found.take(np.flatnonzero(found.strand == strand))
    return (mine.start, mine.end) if strand > 0 else (length - mine.end, length - mine.start)


def _one_strand(strand: Strand, code: GeneticCode, scoring: Scoring, signals: Signals | None) -> Candidates:
    """Find the candidates that are read from left to right."""
    layout, codon, sums = strand
    ends_here = code.stops[codon]
    closers = (layout.ends[:, None] - np.arange(3)).ravel()
    ends_here[closers] = True
    edges = (layout.starts[:, None] + np.arange(3)).ravel()
    edges = edges[edges + 3 <= np.repeat(layout.ends, 3)]
    starts = np.flatnonzero(code.starts[codon])
    start = np.concatenate([starts, edges])
    is_edge = np.arange(len(start)) >= len(starts)
    closing = _next_in_frame(ends_here, start)
    stretch = np.searchsorted(layout.ends, start, side="right")
    open_end = closing >= layout.ends[stretch] - 2
    end = closing + 3 * ~open_end
    least = np.where(is_edge | open_end, scoring.least_open, scoring.least)
    coding = sums if signals is None else sums + scoring.hexamers * signals.hexamer_sums(codon, len(sums))
    found = Candidates(
        stretch, start, end, np.ones(len(start), np.int8), is_edge, open_end, codon[start], coding[end] - coding[start]
    ).take(end - start >= least)  # fmt: skip
    found = found._replace(score=found.score + _ends(found, strand, scoring))
    found = found.take(np.flatnonzero(found.score > scoring.margin - _BEST_START))
    at_starts = _start_codons(scoring)[found.first]
    if signals is not None:
        learned = scoring.signal * signals.at_starts(strand, found.start)
        at_starts = np.where(at_starts == -scoring.rare, at_starts, 0.0) + learned
    return _best_starts(found._replace(score=found.score + np.where(found.open_start, 0.0, at_starts)), scoring)


def _start_codons(scoring: Scoring) -> np.ndarray:
    """Return what each codon is worth as a start, (65,)."""
    worth = np.full(65, -scoring.rare)
    worth[[codon_index(codon) for codon in COMMON_STARTS]] = 0.0, -scoring.gtg, -scoring.ttg
    return worth


def _frame_sums(odds: np.ndarray) -> np.ndarray:
    """Return, at each base i, the log-odds of all codons before it in its frame: (bases, 3) -> float64, (bases + 1,).

    A codon that begins at i adds odds[i, 0] + odds[i + 1, 1] + odds[i + 2, 2].
    """
    count = len(odds) - 2
    rows = -(-max(count, 0) // 3)
    sums = np.zeros((rows + 1, 3))
    each = np.zeros(3 * rows, dtype=np.float32)
    each[:count] = odds[:-2, 0] + odds[1:-1, 1] + odds[2:, 2]
    np.cumsum(each.reshape(rows, 3), axis=0, out=sums[1:], dtype=np.float64)
    return sums.ravel()


def _next_in_frame(marks: np.ndarray, places: np.ndarray) -> np.ndarray:
    """Return, for each place, the first marked one at or behind it in its frame; there always is one."""
    found = np.empty_like(places)
    for frame in range(3):
        mine = np.flatnonzero(places % 3 == frame)
        marked = np.flatnonzero(marks[frame::3]) * 3 + frame
        found[mine] = marked[np.searchsorted(marked, places[mine])]
    return found


def _ends(found: Candidates, strand: Strand, scoring: Scoring) -> np.ndarray:
    """Return what a candidate scores beside its codons: the step at its start, its length, ends beyond an edge."""
    start, sums = found.start, strand.sums
    first = strand.layout.starts[found.stretch]
    before = np.maximum(start - _AROUND, first + (start - first) % 3)
    upstream = (sums[start] - sums[before]) / np.maximum(start - before, 3)
    step = ((sums[start + _AROUND] - sums[start]) / _AROUND - upstream) / scoring.weight
    opened = found.open_start.astype(np.int8) + found.open_end
    short = np.where(opened, 0.0, scoring.short * np.exp((start - found.end) / scoring.scale))
    prior = scoring.cost * (1 - opened / 2) + short + scoring.edge * opened
    return np.where(found.open_start, 0.0, scoring.gradient * step) - prior


def _best_starts(found: Candidates, scoring: Scoring) -> Candidates:
    """Keep the best few starts of each reading frame's end, if they are not hopeless."""
    found = found.take(np.flatnonzero(found.score > scoring.margin))
    order = np.lexsort((found.start, -found.score, found.end))
    end = found.end[order]
    first = np.flatnonzero(np.diff(end, prepend=-1))
    rank = np.arange(len(end)) - np.repeat(first, np.diff(first, append=len(end)))
    return found.take(order[rank < scoring.starts])
