"""Made-up genomes with genes, and slow, plain twins of what finds them."""

from __future__ import annotations

import itertools
import math
from typing import NamedTuple

import numpy as np

from genoformer.annotation import CodingSequence, coding_frame_labels
from genoformer.genes.candidates import Scoring
from genoformer.genes.chain import Rules
from genoformer.genes.paths import STATES, PathCosts, step_costs

STARTS, STOPS = ("ATG", "GTG", "TTG"), {11: ("TAA", "TAG", "TGA"), 4: ("TAA", "TAG")}


CLOSED = "TTAATTAATTAA"


class Genome(NamedTuple):
    bases: bytes
    values: np.ndarray
    """float16, (bases, 7)"""
    genes: list[tuple[int, int, int]]
    """start, end, strand"""


def gene_bases(rng: np.random.Generator, codons: int, *, start: str = "ATG", code: int = 11) -> str:
    """Make an open reading frame of so many codons, start and stop included."""
    sense = ["".join(c) for c in itertools.product("ACGT", repeat=3) if "".join(c) not in STOPS[code]]
    first = [codon for codon in sense if codon not in STARTS]  # no other start near the start
    head, body = rng.choice(first, size=20), rng.choice(sense, size=codons - 22)
    return start + "".join([*head, *body]) + str(rng.choice(STOPS[code]))


def genome(
    seed: int, *, genes: int = 6, code: int = 11, sure: float = 0.97, codons: tuple[int, int] = (60, 200)
) -> Genome:
    """Make a genome with genes on both strands, some of them overlapping by 4 bases, and what a model would say."""
    rng = np.random.default_rng(seed)
    text = spacer(rng)
    placed = []
    for _ in range(genes):
        orf = gene_bases(rng, int(rng.integers(*codons)), start=str(rng.choice(STARTS)), code=code)
        strand = int(rng.choice([1, -1]))
        if strand < 0:
            orf = complement(orf)
        placed.append((len(text), len(text) + len(orf), strand))
        text += orf + spacer(rng)
    bases = text.encode()
    return Genome(bases, probabilities(len(bases), placed, sure=sure), placed)


def spacer(rng: np.random.Generator) -> str:
    """Make what lies between genes; at both ends, all frames of both strands have a stop."""
    return CLOSED + "".join(rng.choice(list("ACGT"), size=int(rng.integers(40, 120)))) + CLOSED


def complement(text: str) -> str:
    return text.translate(str.maketrans("ACGT", "TGCA"))[::-1]


def probabilities(length: int, genes: list[tuple[int, int, int]], *, sure: float = 0.97) -> np.ndarray:
    """Return what a model that is right and that sure would say: float16, (bases, 7)."""
    cds = [CodingSequence("x", strand, ((start, end),)) for start, end, strand in genes]
    frames = coding_frame_labels(length, cds).frames
    frames = np.where(frames == 255, 0, frames)
    values = np.full((length, 7), (1 - sure) / 6, dtype=np.float16)
    values[np.arange(length), frames] = sure
    return values


def naive_candidates(bases: bytes, odds: np.ndarray, scoring: Scoring, code: int) -> dict[tuple, float]:
    """Return the score of each (start, end, strand, open start, open end), codon by codon."""
    found: dict[tuple, float] = {}
    length = len(bases)
    mirror = odds[::-1][:, [3, 4, 5, 0, 1, 2]]
    for strand, text, worth in ((1, bases.decode(), odds), (-1, complement(bases.decode()), mirror)):
        for place in range(length - 2):
            codon = text[place : place + 3]
            kinds = ([False] if codon in STARTS else []) + ([True] if place < 3 else [])
            end = place
            while end + 3 <= length and text[end : end + 3] not in STOPS[code]:
                end += 3
            is_open = end + 3 > length
            end += 0 if is_open else 3
            for edge in kinds:
                least = scoring.least_open if edge or is_open else scoring.least
                if end - place < least:
                    continue
                score = _naive_score(worth, place, end, codon, (edge, is_open), scoring)
                where = (place, end) if strand > 0 else (length - end, length - place)
                found[(*where, strand, edge, is_open)] = score
    return found


def _codons_worth(worth: np.ndarray, start: int, end: int) -> float:
    return sum(float(worth[i, (i - start) % 3]) for i in range(start, end))


def _naive_score(worth, start, end, codon, opened, scoring):
    score = _codons_worth(worth, start, end)
    closed = 2 - opened[0] - opened[1]
    score -= closed / 2 * scoring.cost
    if closed == 2:
        score -= scoring.short * math.exp(-(end - start) / scoring.scale)
    score -= (2 - closed) * scoring.edge
    if opened[0]:
        return score
    before = start
    while before - 3 >= 0 and start - before < 15:
        before -= 3
    upstream = _codons_worth(worth, before, start) / max(start - before, 3)
    step = (_codons_worth(worth, start, start + 15) / 15 - upstream) / scoring.weight
    return score + scoring.gradient * step - {"ATG": 0.0, "GTG": scoring.gtg, "TTG": scoring.ttg}[codon]


def chains(places: list[tuple[int, int, int]], rules: Rules):
    """Yield every compatible set: its indices and what its neighbors are worth."""
    order = sorted(range(len(places)), key=lambda i: (places[i][1], places[i][0], places[i][2]))
    for size in range(len(places) + 1):
        for chosen in itertools.combinations(order, size):
            worths = [_pair(places[a], places[b], rules) for a, b in itertools.pairwise(chosen)]
            if None not in worths:
                yield chosen, sum(worths)


def _pair(a, b, rules):
    overlap = a[1] - b[0]
    if overlap < -rules.near:
        return 0.0
    same = a[2] == b[2]
    limit = rules.same if same else rules.convergent if a[2] > 0 else rules.divergent
    shorter = min(a[1] - a[0], b[1] - b[0])
    if not (a[0] < b[0] and a[1] < b[1] and overlap <= limit and 2 * overlap <= shorter):
        return None
    return rules.near_bonus if same else -rules.overlap_cost * max(overlap, 0)


def naive_path(worth: np.ndarray, marks: np.ndarray, costs: PathCosts) -> float:
    """Return what the best path is worth, base by base."""
    matrix, extra = step_costs(costs)
    best = [0.0] * STATES
    for i, row in enumerate(worth.tolist()):
        step = np.zeros_like(matrix) if marks[i, 4] else matrix + sum(extra[k] for k in range(5) if marks[i, k])
        best = [max(best[a] + step[a, b] for a in range(STATES)) + row[b] for b in range(STATES)]
    return max(best)


def path_worth(path: np.ndarray, worth: np.ndarray, marks: np.ndarray, costs: PathCosts) -> float:
    """Return what a path is worth."""
    matrix, extra = step_costs(costs)
    total = float(worth[0, path[0]])
    for i in range(1, len(path)):
        a, b = path[i - 1], path[i]
        if not marks[i, 4]:
            total += matrix[a, b] + sum(extra[k, a, b] for k in range(5) if marks[i, k])
        total += float(worth[i, path[i]])
    return total


def rotated(made: Genome, by: int) -> Genome:
    """Rotate a circular genome to the left."""
    length = len(made.bases)
    genes = [((a - by) % length, (a - by) % length + b - a, strand) for a, b, strand in made.genes]
    return Genome(made.bases[by:] + made.bases[:by], np.roll(made.values, -by, axis=0), sorted(genes))


def mirrored(made: Genome) -> Genome:
    """Read a genome from its other strand."""
    length = len(made.bases)
    genes = [(length - b, length - a, -strand) for a, b, strand in made.genes]
    values = made.values[::-1][:, [0, 4, 5, 6, 1, 2, 3]]
    return Genome(complement(made.bases.decode()).encode(), values, sorted(genes))
