"""The best compatible set of candidates, and how probable each is, by dynamic programming over genes sorted by end.

The rules of overlap follow Hyatt et al. 2010, "Prodigal" (doi 10.1186/1471-2105-11-119), "Dynamic programming".
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from genoformer.genes.candidates import Candidates


@dataclass(frozen=True)
class Rules:
    """Which neighbors go together, and what it is worth.

    Attributes
    ----------
    same, convergent, divergent : bases that neighbors may overlap: on one strand, by their 3' ends, by their 5' ends
    overlap_cost : nats for each base of an overlap on opposite strands
    near : bases; neighbors on one strand that are no farther apart are likely an operon
    near_bonus : nats for them
    """

    same: int = 60
    convergent: int = 200
    divergent: int = 0
    overlap_cost: float = 0.05
    near: int = 30
    near_bonus: float = 0.3


class _Pairs(NamedTuple):
    """For candidate i: all before ``free[i]`` are compatible at no cost; then those in pairs[first[i]:first[i + 1]]."""

    free: np.ndarray
    first: np.ndarray
    before: np.ndarray
    worth: np.ndarray


def best_chain(found: Candidates, rules: Rules) -> np.ndarray:
    """Return the indices, in order, of the compatible set with the highest sum of scores; it may be empty.

    Each gene must be compatible with its neighbors of the set: neither within the other, and overlapping at most
    by what the rules allow, and by half of the shorter one.

    Parameters
    ----------
    found : candidates, sorted by end
    """
    pairs = _pairs(found, rules)
    free, first, before, worth = (column.tolist() for column in pairs)
    best: list[float] = []
    via: list[int] = []
    top: list[tuple[float, int]] = [(0.0, -1)]  # best chain that ends among the first so many candidates
    for i, score in enumerate(found.score.tolist()):
        reach, came = top[free[i]]
        for k in range(first[i], first[i + 1]):
            value = best[before[k]] + worth[k]
            if value > reach:
                reach, came = value, before[k]
        best.append(reach + score)
        via.append(came)
        top.append(max(top[-1], (best[i], i), key=lambda entry: entry[0]))
    chain = []
    here = top[-1][1]
    while here >= 0:
        chain.append(here)
        here = via[here]
    return np.array(chain[::-1], dtype=np.int64)


def posteriors(found: Candidates, rules: Rules, *, temperature: float) -> np.ndarray:
    """Return the probability that a set of genes holds each candidate's 3' end: (candidates,).

    Every compatible set counts, in proportion to exp(its score / temperature); sums over all of them are computed
    forward and backward, as in a hidden Markov model.
    """
    if not len(found.score):
        return np.empty(0)
    scores = found.score / temperature
    forward = _log_sums(found, rules, scores, temperature)
    mirror = np.lexsort((-found.end, -found.start))
    mirrored = found._replace(start=-found.end, end=-found.start, strand=-found.strand).take(mirror)
    backward = np.empty_like(forward)
    backward[mirror] = _log_sums(mirrored, rules, scores[mirror], temperature)
    total = np.logaddexp.reduce(np.append(forward, 0.0))
    each = np.exp((forward + backward - scores - total).clip(max=0.0))
    _, group = np.unique(np.stack([found.strand, found.stop]), axis=1, return_inverse=True)
    return np.bincount(group.ravel(), weights=each)[group.ravel()].clip(0.0, 1.0)


def _log_sums(found: Candidates, rules: Rules, scores: np.ndarray, temperature: float) -> np.ndarray:
    """Return the logarithm of the sum over all chains that end with each candidate."""
    pairs = _pairs(found, rules)
    free, first, before = pairs.free.tolist(), pairs.first.tolist(), pairs.before.tolist()
    worth = (pairs.worth / temperature).tolist()
    sums: list[float] = []
    running = [0.0]
    for i, score in enumerate(scores.tolist()):
        reach = running[free[i]]
        for k in range(first[i], first[i + 1]):
            reach = _log_add(reach, sums[before[k]] + worth[k])
        sums.append(reach + score)
        running.append(_log_add(running[-1], sums[i]))
    return np.array(sums)


def _log_add(a: float, b: float) -> float:
    high, low = (a, b) if a > b else (b, a)
    return high + math.log1p(math.exp(low - high))


def _pairs(found: Candidates, rules: Rules) -> _Pairs:
    """List the pairs of candidates, sorted by end, that lie close enough for the rules to say something."""
    count = len(found.start)
    widest = max(rules.same, rules.convergent, rules.divergent)
    free = np.searchsorted(found.end, found.start - rules.near - 1, side="right")
    stop = np.minimum(np.searchsorted(found.end, found.start + widest, side="right"), np.arange(count))
    sizes = np.maximum(stop - free, 0)
    after = np.repeat(np.arange(count), sizes)
    before = np.arange(sizes.sum()) - np.repeat(np.cumsum(sizes) - sizes, sizes) + np.repeat(free, sizes)
    overlap = found.end[before] - found.start[after]
    same = found.strand[before] == found.strand[after]
    convergent = (found.strand[before] > 0) & ~same
    limit = np.where(same, rules.same, np.where(convergent, rules.convergent, rules.divergent))
    lengths = found.end - found.start
    shorter = np.minimum(lengths[before], lengths[after])
    proper = (found.start[before] < found.start[after]) & (found.end[before] < found.end[after])
    apart = found.stretch[before] != found.stretch[after]
    allowed = apart | (proper & (overlap <= limit) & (2 * overlap <= shorter))
    worth = np.where(same, rules.near_bonus, -rules.overlap_cost * np.maximum(overlap, 0)) * ~apart
    kept = np.bincount(after[allowed], minlength=count)
    return _Pairs(free, np.concatenate([[0], np.cumsum(kept)]), before[allowed], worth[allowed])
