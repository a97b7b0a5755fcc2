"""Candidates: every open reading frame of six frames with its possible starts, scored by cumulative sums.

Many sequences are handled at once: laid one behind the other, with pads between them that close every frame.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import NamedTuple

import numpy as np

from genoformer.genes.codons import GeneticCode, codon_index, codons
from genoformer.tokens import N, reverse_complement
from genoformer.tracks import CODING_FRAME

PAD = 30
"""Unknown bases between two stretches: more than anything looked at around a start."""
_AROUND = 15  # bases before and behind a start whose log-odds are compared


@dataclass(frozen=True)
class Scoring:
    """How candidates are scored, in nats. Fitted on annotated genomes of the training and validation sets.

    Attributes
    ----------
    cap : most that one base can say for or against a gene
    bias : taken from the log-odds of each base
    cost : of any gene
    short, scale : cost of a gene of length 0, falling by e each ``scale`` bases
    edge : cost of an end that lies beyond an edge, instead of a start or stop
    gradient : weight of the step of mean log-odds at a start
    gtg, ttg, rare : cost of start codons against ATG
    least, least_open : bases of the shortest gene, whole and cut off
    starts : start codons kept of one reading frame
    margin : worst score that a candidate may have, to count among the alternatives in posteriors
    temperature : what scores are divided by to become log-probabilities, as neighboring bases say the same
    """

    cap: float = 4.0
    bias: float = 0.0
    cost: float = 5.0
    short: float = 30.0
    scale: float = 100.0
    edge: float = 2.0
    gradient: float = 2.0
    gtg: float = 2.0
    ttg: float = 3.0
    rare: float = 20.0
    least: int = 90
    least_open: int = 60
    starts: int = 6
    margin: float = -20.0
    temperature: float = 20.0


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
    """Return the log-odds of probabilities: (bases, 7) float16 -> (bases, 6) float32, of +0 +1 +2 -0 -1 -2."""
    bits = np.ascontiguousarray(values[:, 1:].astype(np.float16, copy=False)).view(np.uint16)
    return _odds_table(scoring.cap, scoring.bias)[bits]


def find_candidates(layout: Layout, odds: np.ndarray, *, code: GeneticCode, scoring: Scoring) -> Candidates:
    """Find and score the candidates on both strands.

    Parameters
    ----------
    layout : the stretches
    odds : float32, (bases of the layout, 6), see `log_odds`; 0 in pads
    code : says what starts and ends a gene
    scoring : how to score

    Returns
    -------
    Candidates, those that are not hopeless, sorted by end, then start
    """
    forward = _one_strand(layout, odds[:, :3], code, scoring)
    order = np.array(CODING_FRAME.reverse_complement[1:4]) - 1
    backward = _one_strand(layout.mirrored(), odds[::-1, order], code, scoring)
    length, last = len(layout.codes), len(layout.starts) - 1
    backward = backward._replace(
        stretch=last - backward.stretch,
        start=length - backward.end,
        end=length - backward.start,
        strand=-backward.strand,
    )
    both = Candidates(*(np.concatenate(pair) for pair in zip(forward, backward, strict=True)))
    return both.take(np.lexsort((both.strand, both.start, both.end)))


def _one_strand(layout: Layout, odds: np.ndarray, code: GeneticCode, scoring: Scoring) -> Candidates:
    """Find the candidates that are read from left to right."""
    index = codons(layout.codes)
    sums = _frame_sums(odds)
    ends_here = code.stops[index]
    closers = (layout.ends[:, None] - np.arange(3)).ravel()
    ends_here[closers] = True
    edges = (layout.starts[:, None] + np.arange(3)).ravel()
    edges = edges[edges + 3 <= np.repeat(layout.ends, 3)]
    starts = np.flatnonzero(code.starts[index])
    start = np.concatenate([starts, edges])
    is_edge = np.arange(len(start)) >= len(starts)
    closing = _next_in_frame(ends_here, start)
    stretch = np.searchsorted(layout.ends, start, side="right")
    open_end = closing >= layout.ends[stretch] - 2
    end = closing + 3 * ~open_end
    least = np.where(is_edge | open_end, scoring.least_open, scoring.least)
    keep = end - start >= least
    found = Candidates(
        stretch, start, end, np.ones(len(start), np.int8), is_edge, open_end, index[start], sums[end] - sums[start]
    ).take(keep)  # fmt: skip
    return _best_starts(found._replace(score=found.score + _priors(found, sums, layout, scoring)), scoring)


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


def _priors(found: Candidates, sums: np.ndarray, layout: Layout, scoring: Scoring) -> np.ndarray:
    """Return what a candidate scores beside its codons: start codon, step at the start, length, ends."""
    kinds = np.full(65, -scoring.rare)
    kinds[[codon_index(codon) for codon in ("ATG", "GTG", "TTG")]] = 0.0, -scoring.gtg, -scoring.ttg
    start = found.start
    before = np.maximum(start - _AROUND, layout.starts[found.stretch] + (start - layout.starts[found.stretch]) % 3)
    upstream = (sums[start] - sums[before]) / np.maximum(start - before, 3)
    step = (sums[start + _AROUND] - sums[start]) / _AROUND - upstream
    at_start = np.where(found.open_start, -scoring.edge, kinds[found.first] + scoring.gradient * step)
    length = found.end - start
    return at_start - scoring.edge * found.open_end - scoring.cost - scoring.short * np.exp(-length / scoring.scale)


def _best_starts(found: Candidates, scoring: Scoring) -> Candidates:
    """Keep the best few starts of each reading frame's end, if they are not hopeless."""
    found = found.take(np.flatnonzero(found.score > scoring.margin))
    order = np.lexsort((found.start, -found.score, found.end))
    end = found.end[order]
    first = np.flatnonzero(np.diff(end, prepend=-1))
    rank = np.arange(len(end)) - np.repeat(first, np.diff(first, append=len(end)))
    return found.take(order[rank < scoring.starts])
