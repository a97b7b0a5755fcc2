"""What a sequence's own genes tell: which pairs of codons they use, and what their starts look like.

As Prodigal does (Hyatt et al. 2010, doi 10.1186/1471-2105-11-119), genes called once train what calls them again:
log-ratios of counts, in genes against everywhere, and at called starts against all start codons of the strands.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from genoformer.genes.candidates import Candidates, Strand, read_places
from genoformer.genes.codons import UNKNOWN_CODON, common_starts
from genoformer.tokens import N

FEWEST = 60
"""Genes to learn from."""
_LONG = 300  # bases of genes to learn from
_CODONS = UNKNOWN_CODON + 1
_NEAR = np.array([-4, -3, -2, -1, 3, 4, 5, 6, 7, 8])  # places around a start, looked at one by one
_MOTIF = 5  # bases of a motif
_PLACES = np.arange(-20, -7)  # where a motif may begin: Shine-Dalgarno, or what the genome has instead
_BINS = 12
_PSEUDO = 8.0
_SAMPLE = 30_000  # start codons of a strand that called starts are compared with


@dataclass(frozen=True, eq=False)
class Signals:
    """Log-ratios learned from a sequence.

    Attributes
    ----------
    hexamers : float32, (65 * 65,), of pairs of codons
    kinds : (65,), of start codons
    near : (places, 5), of the bases around a start
    motifs : (4 ** 5 + 1,), of motifs before a start; the last one is unknown
    places : (places,), of where the best motif lies
    edges, levels : what the sum of motif and place is worth, level by level
    """

    hexamers: np.ndarray
    kinds: np.ndarray
    near: np.ndarray
    motifs: np.ndarray
    places: np.ndarray
    edges: np.ndarray
    levels: np.ndarray

    def hexamer_sums(self, index: np.ndarray, size: int) -> np.ndarray:
        """Return, at each base, the log-ratios of all pairs of codons before it in its frame: float64, (size,)."""
        each = np.zeros(size - 3)
        each[: len(index) - 3] = self.hexamers[_pairs_of(index)]
        sums = np.zeros((size // 3, 3))
        np.cumsum(each.reshape(-1, 3), axis=0, out=sums[1:])
        return sums.ravel()

    def at_starts(self, strand: Strand, starts: np.ndarray) -> np.ndarray:
        """Return the log-ratio of starts: codon, bases around it and motif before it."""
        near = self.near[np.arange(len(_NEAR)), _around(strand, starts)].sum(axis=1)
        value, _ = _best_motif(_motifs_before(strand, starts), self.motifs, self.places)
        return self.kinds[strand.codon[starts]] + near + self.levels[np.searchsorted(self.edges, value)]


def learn(strands: tuple[Strand, Strand], genes: Candidates) -> Signals | None:
    """Learn from genes that were called; None if they are too few.

    Parameters
    ----------
    strands : of `both_strands`
    genes : the chosen candidates
    """
    genes = genes.take(np.flatnonzero((genes.end - genes.start >= _LONG) & ~genes.open_start & ~genes.open_end))
    if len(genes.start) < FEWEST:
        return None
    places = [read_places(genes, sign, len(strands[0].layout.codes)) for sign in (1, -1)]
    every = [_some(np.flatnonzero(common_starts()[strand.codon])) for strand in strands]
    called = [start[common_starts()[s.codon[start]]] for s, (start, _) in zip(strands, places, strict=True)]
    at_called, at_every = (_gather(strands, where, _around) for where in (called, every))
    counts = [[np.bincount(at[:, k], minlength=5) for k in range(len(_NEAR))] for at in (at_called, at_every)]
    near = np.stack([_log_ratio(*pair) for pair in zip(*counts, strict=True)])
    near[:, N] = 0.0
    return Signals(
        _hexamers(strands, places),
        _log_ratio(*(np.bincount(_gather(strands, where, _codon_at), minlength=_CODONS) for where in (called, every))),
        near,
        *_learn_motifs(*(_gather(strands, where, _motifs_before) for where in (called, every))),
    )


def _gather(
    strands: tuple[Strand, Strand], where: list[np.ndarray], look: Callable[[Strand, np.ndarray], np.ndarray]
) -> np.ndarray:
    """Look at places of both strands."""
    return np.concatenate([look(strand, places) for strand, places in zip(strands, where, strict=True)])


def _codon_at(strand: Strand, starts: np.ndarray) -> np.ndarray:
    return strand.codon[starts]


def _some(places: np.ndarray) -> np.ndarray:
    """Return at most _SAMPLE of the places, evenly spaced."""
    return places[:: -(-len(places) // _SAMPLE)] if len(places) else places


def _hexamers(strands: tuple[Strand, Strand], places: list[tuple[np.ndarray, np.ndarray]]) -> np.ndarray:
    """Return log-ratios of pairs of codons: in frame in genes, against everywhere on both strands."""
    inside, everywhere = np.zeros((2, _CODONS * _CODONS))
    for strand, (start, end) in zip(strands, places, strict=True):
        pairs = _pairs_of(strand.codon)
        everywhere += np.bincount(pairs, minlength=_CODONS * _CODONS)
        counts = (end - start) // 3 - 1
        first = np.repeat(start - 3 * (np.cumsum(counts) - counts), counts)
        inside += np.bincount(pairs[first + 3 * np.arange(counts.sum())], minlength=_CODONS * _CODONS)
    table = _log_ratio(inside, everywhere).reshape(_CODONS, _CODONS)
    table[UNKNOWN_CODON] = table[:, UNKNOWN_CODON] = 0.0
    return table.ravel().astype(np.float32)


def _pairs_of(index: np.ndarray) -> np.ndarray:
    return index[:-3].astype(np.int32) * _CODONS + index[3:]


def _log_ratio(counts: np.ndarray, background: np.ndarray) -> np.ndarray:
    """Return log(share in counts / share in background), drawn towards 0 where there is little to tell from."""
    share = background / max(background.sum(), 1)
    expected = share * counts.sum()
    return np.log((counts + _PSEUDO) / (expected + _PSEUDO))


def _around(strand: Strand, starts: np.ndarray) -> np.ndarray:
    """Return the codes around starts: (starts, places)."""
    return np.minimum(strand.layout.codes[starts[:, None] + _NEAR], N)


def _motifs_before(strand: Strand, starts: np.ndarray) -> np.ndarray:
    """Return the motifs that begin before starts: index in 0..4^5, the last one unknown; (starts, places)."""
    codes = strand.layout.codes
    motif = np.zeros(len(codes) - _MOTIF + 1, dtype=np.int16)
    unknown = np.zeros(len(motif), dtype=bool)
    for k in range(_MOTIF):
        piece = codes[k : k + len(motif)]
        motif = 4 * motif + piece
        unknown |= piece >= N
    motif[unknown] = 4**_MOTIF
    return motif[starts[:, None] + _PLACES]


def _best_motif(motifs: np.ndarray, worth: np.ndarray, places: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the value and the place of the best motif: (starts, places) -> (starts,), (starts,)."""
    values = worth[motifs] + places
    at = values.argmax(axis=1)
    return values[np.arange(len(values)), at], at


def _learn_motifs(called: np.ndarray, every: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Return worth of motifs, of places, and the levels of their sum."""
    size = 4**_MOTIF + 1
    worth = _log_ratio(np.bincount(called.ravel(), minlength=size), np.bincount(every.ravel(), minlength=size))
    worth[-1] = 0.0
    flat = np.zeros(len(_PLACES))
    spread = [np.bincount(_best_motif(motifs, worth, flat)[1], minlength=len(flat)) for motifs in (called, every)]
    places = _log_ratio(*spread)
    value, background = (_best_motif(motifs, worth, places)[0] for motifs in (called, every))
    edges = np.unique(np.quantile(background, np.arange(1, _BINS) / _BINS))
    edges = np.append(edges, np.quantile(background, [0.96, 0.99]))
    levels = _log_ratio(
        *(np.bincount(np.searchsorted(edges, v), minlength=len(edges) + 1) for v in (value, background))
    )
    return worth, places, edges, np.maximum.accumulate(levels)
