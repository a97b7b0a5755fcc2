"""Genes of whole sequences: cut at gaps, unrolled where circular, called many at a time."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from genoformer.circles import own_origin
from genoformer.genes.candidates import Candidates, Scoring, both_strands, find_candidates, lay_out, log_odds
from genoformer.genes.chain import Rules, best_chain, posteriors
from genoformer.genes.codons import GeneticCode, codon_text, genetic_code
from genoformer.genes.gene import Gene
from genoformer.genes.signals import learn
from genoformer.tokens import encode
from genoformer.tracks import CODING_FRAME

BATCH_BASES = 2_000_000
LEARN_BASES = 100_000
"""Bases of a sequence from which on signals are learned from its own genes, see `signals`."""
UNROLL = 60_000
"""Bases of a circular sequence that are repeated at both ends: more than a gene and what its choice depends on."""


class Called(NamedTuple):
    """A sequence with values, as it goes in."""

    codes: np.ndarray
    """uint8, (bases,)"""
    values: np.ndarray
    """float16, (bases, 7): probabilities of the classes of CODING_FRAME; NaN where nothing was predicted"""
    is_circular: bool = False


@dataclass(frozen=True)
class CallSettings:
    """How genes are called.

    Attributes
    ----------
    genetic_code : number of an NCBI translation table
    frameshifts : follow the probabilities through insertions and deletions, for reads
    rounds : how often signals are learned from the genes of a long sequence, and its genes called again
    scoring, rules : of candidates, and of neighbors
    """

    genetic_code: int = 11
    frameshifts: bool = False
    rounds: int = 2
    scoring: Scoring = field(default_factory=Scoring)
    rules: Rules = field(default_factory=Rules)

    @property
    def code(self) -> GeneticCode:
        return genetic_code(self.genetic_code)


class _Stretch(NamedTuple):
    """A run of predicted bases of a sequence; of a circular one, unrolled."""

    sequence: int
    offset: int  # of its first base on the sequence
    codes: np.ndarray
    values: np.ndarray


def call_genes(
    codes: np.ndarray | bytes | str,
    values: np.ndarray,
    *,
    circular: bool = False,
    settings: CallSettings | None = None,
) -> list[Gene]:
    """Call the genes of one sequence.

    Parameters
    ----------
    codes : uint8, (bases,), or the bases themselves
    values : float16, (bases, 7): probabilities of the classes of CODING_FRAME, NaN where nothing was predicted
    circular : whether its ends are joined
    settings : how

    Returns
    -------
    list of Gene, by start, then end

    Raises
    ------
    ValueError : there are not as many values as bases, or not those of all classes
    """
    if isinstance(codes, str | bytes):
        codes = encode(codes.encode() if isinstance(codes, str) else codes)
    if values.shape != (len(codes), len(CODING_FRAME.channels)):
        raise ValueError(
            f"expected values of {len(codes)} bases in {len(CODING_FRAME.channels)} classes, got shape {values.shape}"
        )
    return next(call_many([Called(codes, values, circular)], settings=settings or CallSettings()))


def call_many(sequences: Iterable[Called], *, settings: CallSettings) -> Iterator[list[Gene]]:
    """Call the genes of many sequences: a list for each, in order; short ones are computed together."""
    batch: list[Called] = []
    bases = 0
    for sequence in sequences:
        is_long = len(sequence.codes) >= LEARN_BASES
        if batch and (is_long or bases >= BATCH_BASES):
            yield from _call_batch(batch, settings, learning=False)
            batch, bases = [], 0
        if is_long:
            yield from _call_batch([sequence], settings, learning=True)
            continue
        batch.append(sequence)
        bases += len(sequence.codes)
    if batch:
        yield from _call_batch(batch, settings, learning=False)


def _call_batch(batch: list[Called], settings: CallSettings, *, learning: bool) -> list[list[Gene]]:
    origins = [own_origin(sequence.codes) if sequence.is_circular else 0 for sequence in batch]
    batch = [_turned(sequence, origin) for sequence, origin in zip(batch, origins, strict=True)]
    stretches = [stretch for number, sequence in enumerate(batch) for stretch in _stretches(number, sequence)]
    genes: list[list[Gene]] = [[] for _ in batch]
    if stretches:
        if settings.frameshifts:
            from genoformer.genes.frameshifts import call_shifted

            called = call_shifted([(s.codes, s.values) for s in stretches], settings.code, settings.scoring)
        else:
            called = _call_stretches(stretches, settings, rounds=settings.rounds if learning else 0)
        for stretch, found in zip(stretches, called, strict=True):
            genes[stretch.sequence] += [_moved(gene, stretch.offset) for gene in found]
    for number, sequence in enumerate(batch):
        if sequence.is_circular:
            length, origin = len(sequence.codes), origins[number]
            kept = _rolled(genes[number], length, settings.rules)
            genes[number] = [_moved(g, origin if g.start + origin < length else origin - length) for g in kept]
        genes[number].sort(key=lambda gene: (gene.start, gene.end))
    return genes


def _turned(sequence: Called, origin: int) -> Called:
    """Cut a circular sequence elsewhere."""
    if not origin:
        return sequence
    return Called(np.roll(sequence.codes, -origin), np.roll(sequence.values, -origin, axis=0), is_circular=True)


def _stretches(number: int, sequence: Called) -> Iterator[_Stretch]:
    """Yield the runs of bases with values."""
    codes, values, offset = sequence.codes, sequence.values, 0
    if sequence.is_circular and len(codes):
        offset = -min(UNROLL, len(codes))
        around = np.arange(offset, len(codes) - offset)
        codes, values = np.take(codes, around, mode="wrap"), np.take(values, around, axis=0, mode="wrap")
    has_value = ~np.isnan(values[:, 0])
    changes = np.flatnonzero(np.diff(has_value, prepend=False, append=False))
    for start, end in changes.reshape(-1, 2).tolist():
        yield _Stretch(number, offset + start, codes[start:end], values[start:end])


def _call_stretches(stretches: list[_Stretch], settings: CallSettings, *, rounds: int) -> list[list[Gene]]:
    """Call the genes of each stretch, in coordinates of the stretch."""
    layout = lay_out([stretch.codes for stretch in stretches])
    odds = np.zeros((len(layout.codes), 6), dtype=np.float32)
    for stretch, start, end in zip(stretches, layout.starts, layout.ends, strict=True):
        odds[start:end] = log_odds(stretch.values, settings.scoring)
    strands = both_strands(layout, odds)
    found = find_candidates(strands, code=settings.code, scoring=settings.scoring)
    chosen = best_chain(found, settings.rules)
    for _ in range(rounds):
        signals = learn(strands, found.take(chosen))
        if signals is None:
            break
        found = find_candidates(strands, code=settings.code, scoring=settings.scoring, signals=signals)
        chosen = best_chain(found, settings.rules)
    sure = posteriors(found, settings.rules, temperature=settings.scoring.temperature)
    genes: list[list[Gene]] = [[] for _ in stretches]
    picked = found.take(chosen)
    for k, posterior in enumerate(sure[chosen].tolist()):
        number = int(picked.stretch[k])
        genes[number].append(_gene(picked, k, posterior, int(layout.starts[number]), stretches[number].values))
    return genes


def _gene(picked: Candidates, k: int, posterior: float, first: int, values: np.ndarray) -> Gene:
    start, end, strand = int(picked.start[k]) - first, int(picked.end[k]) - first, int(picked.strand[k])
    opened = bool(picked.open_start[k]), bool(picked.open_end[k])
    left, right = opened if strand > 0 else opened[::-1]
    return Gene(
        start,
        end,
        strand,
        open_left=left,
        open_right=right,
        start_type="Edge" if opened[0] else codon_text(int(picked.first[k])),
        score=float(picked.score[k]),
        probability=mean_probability(values[start:end], strand),
        posterior=posterior,
    )


def mean_probability(values: np.ndarray, strand: int) -> float:
    """Return the mean probability that bases are what they are in a gene: (bases, 7), whole codons."""
    channels = (1, 2, 3) if strand > 0 else (6, 5, 4)
    return float(np.mean([values[j::3, channel].mean(dtype=np.float64) for j, channel in enumerate(channels)]))


def _moved(gene: Gene, offset: int) -> Gene:
    if not offset:
        return gene
    shifts = tuple((place + offset, shift) for place, shift in gene.shifts)
    return Gene(**{**gene.__dict__, "start": gene.start + offset, "end": gene.end + offset, "shifts": shifts})


def _rolled(genes: list[Gene], length: int, rules: Rules) -> list[Gene]:
    """Keep one copy of each gene of an unrolled sequence: that which begins on the sequence proper."""
    kept = []
    for gene in sorted(genes, key=lambda gene: gene.end):
        unrolled = gene.start < 0 and gene.open_left, gene.end > length and gene.open_right  # cut by the unrolling
        if 0 <= gene.start < length and gene.end - gene.start <= length and not any(unrolled):
            kept.append(gene)
    if len(kept) > 1:
        first, last = min(kept, key=lambda gene: gene.start), max(kept, key=lambda gene: gene.end)
        limit = rules.same if first.strand == last.strand else max(rules.convergent, rules.divergent)
        if last.end - length - first.start > limit:
            kept.remove(min(first, last, key=lambda gene: gene.score))
    return kept
