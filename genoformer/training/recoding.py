"""Genes rewritten so that they mean the same: to another genetic code, or with another codon usage."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from genoformer.genes.codons import GeneticCode, genetic_code
from genoformer.tokens import A, C, G, N, T, reverse_complement
from genoformer.training.augmentation import opposite

_GC_SPREAD, _SKEW_SPREAD, _SPREAD = 1.2, 0.4, 0.8
"""Standard deviations of what is drawn for a codon usage, in natural logarithms of the odds: the pull towards G and C
at the third position; that towards G and T on one strand, and away from them on the other, as leading and lagging
strands of replication differ; and what each codon has for itself."""
_LEAST_SHARE = 0.3
"""Of the codons that are drawn anew."""


@dataclass(frozen=True)
class Recoding:
    """How often the genes of a window are rewritten.

    Attributes
    ----------
    to_4 : fraction of the windows of genetic code 11 that is rewritten to code 4, see `recode_to_4`
    synonyms : fraction of windows that gets a codon usage drawn at random, see `exchange_synonyms`
    """

    to_4: float = 0.0
    synonyms: float = 0.0

    def rewrite(
        self,
        codes: np.ndarray,
        frames: np.ndarray,
        code: int,
        rng: np.random.Generator,
        *,
        organism: np.random.Generator | None = None,
    ) -> tuple[np.ndarray, int]:
        """Return a window, rewritten or not, and its genetic code.

        What is the same in all of an organism, whether its genes are rewritten and with which codon usage, is drawn by
        the generator of the ``organism``, if there is one.
        """
        organism = rng if organism is None else organism
        if self.synonyms and organism.random() < self.synonyms:
            codes = exchange_synonyms(codes, frames, genetic_code(code), rng, organism=organism)
        if code == 11 and organism.random() < self.to_4:
            codes, code = recode_to_4(codes, frames), 4
        return codes, code


NO_RECODING = Recoding()


def recode_to_4(codes: np.ndarray, frames: np.ndarray) -> np.ndarray:
    """Rewrite genes to genetic code 4: tryptophan TGG becomes TGA, the stop TGA becomes TAA."""
    forward = _recode_forward(codes, frames)
    backward = _recode_forward(*opposite(forward, frames))
    return reverse_complement(backward)


def _recode_forward(codes: np.ndarray, frames: np.ndarray) -> np.ndarray:
    codes = codes.copy()
    at = _codons(frames)
    begins_tg = (codes[at] == T) & (codes[at + 1] == G)
    tryptophan = at[begins_tg & (codes[at + 2] == G)]
    stop = at[begins_tg & (codes[at + 2] == A)]
    codes[tryptophan + 2] = A
    codes[stop + 1] = A
    return codes


def exchange_synonyms(
    codes: np.ndarray,
    frames: np.ndarray,
    code: GeneticCode,
    rng: np.random.Generator,
    *,
    organism: np.random.Generator | None = None,
) -> np.ndarray:
    """Rewrite genes with a codon usage that is drawn at random; their proteins stay.

    So a model cannot know a species by its codon usage, and has to learn the usage from the window. First codons of a
    gene and stops stay, and so do codons with unknown bases. Where genes overlap, the one that has the label is kept.

    Parameters
    ----------
    codes, frames : uint8, (n,): tokens, and classes of CODING_FRAME
    code : by which the genes are read
    organism : draws the usage, ``rng`` the codons; default: rng draws both
    """
    organism = rng if organism is None else organism
    preferences, share = draw_preferences(organism), organism.uniform(_LEAST_SHARE, 1.0)
    forward, backward = (usage_table(code, odds) for odds in preferences)
    codes = _exchange_forward(codes, frames, forward, share, rng)
    return reverse_complement(_exchange_forward(*opposite(codes, frames), backward, share, rng))


def draw_preferences(rng: np.random.Generator) -> np.ndarray:
    """Draw how much each codon is liked, in natural logarithms: float, (2, 64), on the strands + and -."""
    third = np.arange(64) % 4  # A, C, G, T
    common = rng.normal(0, _GC_SPREAD) * np.isin(third, (C, G)) + rng.normal(0, _SPREAD, size=64)
    skew = rng.normal(0, _SKEW_SPREAD) * np.where(np.isin(third, (G, T)), 1, -1)
    return np.stack([common + skew, common - skew])


def usage_table(code: GeneticCode, preferences: np.ndarray) -> np.ndarray:
    """Return how often a codon becomes each of its synonyms: float, (64, 64), rows that add up to 1; stops stay."""
    letters, stops = code.letters[:64], code.stops[:64]
    synonyms = (letters[:, None] == letters[None, :]) & ~stops
    table = np.where(synonyms, np.exp(preferences), 0.0)
    table[stops, stops] = 1.0
    return table / table.sum(axis=1, keepdims=True)


def _exchange_forward(
    codes: np.ndarray, frames: np.ndarray, usage: np.ndarray, share: float, rng: np.random.Generator
) -> np.ndarray:
    codes = codes.copy()
    at = _codons(frames)
    at = at[(at > 0) & (frames[at - 1] == 3)]  # not the first of a gene
    at = at[(codes[at] < N) & (codes[at + 1] < N) & (codes[at + 2] < N) & (rng.random(len(at)) < share)]
    old = 16 * codes[at].astype(np.int64) + 4 * codes[at + 1] + codes[at + 2]
    ladder = (np.cumsum(usage, axis=1) + np.arange(64)[:, None]).ravel()  # row r climbs from r to r + 1
    drawn = np.searchsorted(ladder, old + rng.random(len(at)) * (1 - 1e-9), side="right")
    new = np.minimum(drawn, 64 * old + 63) - 64 * old
    codes[at], codes[at + 1], codes[at + 2] = new // 16, new // 4 % 4, new % 4
    return codes


def _codons(frames: np.ndarray) -> np.ndarray:
    """Return where whole codons of the strand ``+`` begin."""
    if len(frames) < 3:
        return np.empty(0, dtype=np.int64)
    return np.flatnonzero((frames[:-2] == 1) & (frames[1:-1] == 2) & (frames[2:] == 3))
