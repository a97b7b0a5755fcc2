"""Genes of reads with insertions and deletions: runs of a path of codon positions, its changes of frame noted."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from genoformer.genes.candidates import Scoring
from genoformer.genes.codons import GeneticCode, codon_index, codon_text, codons, common_starts
from genoformer.genes.gene import Gene
from genoformer.genes.paths import NONE, PathCosts, best_path, marks_of
from genoformer.tokens import reverse_complement

_OVERLAP = 9
"""Bases around a change of frame within which a stop of the old and a start of the new frame make two genes of it."""


class _Path(NamedTuple):
    """What is known of each base of one stretch."""

    states: np.ndarray
    codes: np.ndarray
    values: np.ndarray
    worth: np.ndarray
    """of its state against none"""


class _Run(NamedTuple):
    """A run of bases on one strand, in reading direction."""

    position: np.ndarray
    """codon position of each base"""
    codon: np.ndarray
    """codon that begins at each base"""


class _Piece(NamedTuple):
    """A gene of a run: start, end, changes of frame (before which base, +1 a base too many or -1 one too few)."""

    start: int
    end: int
    shifts: list[tuple[int, int]]


def call_shifted(
    stretches: list[tuple[np.ndarray, np.ndarray]],
    code: GeneticCode,
    scoring: Scoring,
    *,
    costs: PathCosts | None = None,
) -> list[list[Gene]]:
    """Call the genes of stretches of bases with insertions and deletions, in coordinates of each stretch.

    Parameters
    ----------
    stretches : codes (bases,) and values (bases, 7) of each
    code : genetic code
    scoring : for the shortest gene
    costs : of the path
    """
    costs = costs or PathCosts()
    lengths = np.array([len(codes) for codes, _ in stretches])
    first = np.cumsum(lengths) - lengths
    codes = np.concatenate([codes for codes, _ in stretches])
    values = np.concatenate([values for _, values in stretches]).astype(np.float32)
    worth = np.log(np.maximum(values, costs.floor)) * costs.weight
    path = best_path(worth, marks_of(codes, first, code), costs)
    own = np.take_along_axis(worth, path[:, None].astype(np.int64), axis=1)[:, 0] - worth[:, NONE]
    called = []
    for a, n in zip(first.tolist(), lengths.tolist(), strict=True):
        here = slice(a, a + n)
        called.append(list(_genes_of(_Path(path[here], codes[here], values[here], own[here]), code, scoring)))
    return called


def _genes_of(path: _Path, code: GeneticCode, scoring: Scoring) -> Iterator[Gene]:
    """Yield the genes of one stretch."""
    strands = (path.states > 0).astype(np.int8) + (path.states > 3)  # 0, 1 on +, 2 on -
    borders = np.flatnonzero(np.diff(strands, prepend=-1, append=-1))
    for a, b in zip(borders[:-1].tolist(), borders[1:].tolist(), strict=True):
        if strands[a] == NONE:
            continue
        strand = 1 if strands[a] == 1 else -1
        states, codes = path.states[a:b], path.codes[a:b]
        run = (
            _Run(states - 1, codons(codes)) if strand > 0 else _Run(states[::-1] - 4, codons(reverse_complement(codes)))
        )
        for piece in _pieces(run, code):
            gene = _gene(piece, run, (a, b, strand), path, code)
            least = scoring.least_open if gene.open_left or gene.open_right else scoring.least
            if gene.end - gene.start >= least:
                yield gene


def _pieces(run: _Run, code: GeneticCode) -> Iterator[_Piece]:
    """Cut a run into genes, where one ends and another of its strand begins at once."""
    steps = np.mod(np.diff(run.position.astype(np.int8)), 3)
    start = 0
    shifts: list[tuple[int, int]] = []
    starts = common_starts() & ~code.stops
    for k in (np.flatnonzero((steps != 1) | _after_stop(run, code)) + 1).tolist():
        cut = _two_genes(run, k, code, starts)
        if cut is not None:
            yield _Piece(start, cut[0], [shift for shift in shifts if shift[0] < cut[0]])
            start, shifts = cut[1], []
        elif steps[k - 1] != 1:
            shifts.append((k, 1 if steps[k - 1] == 0 else -1))
    yield _Piece(start, len(run.position), shifts)


def _after_stop(run: _Run, code: GeneticCode) -> np.ndarray:
    """Tell which steps follow the last base of a stop codon read in frame: bool, (bases - 1,)."""
    found = np.zeros(max(len(run.position) - 1, 0), dtype=bool)
    count = len(run.position) - 3
    if count > 0:
        found[2:] = code.stops[run.codon[:count]] & (run.position[:count] == 0) & (run.position[3:] == 0)
    return found


def _two_genes(run: _Run, k: int, code: GeneticCode, starts: np.ndarray) -> tuple[int, int] | None:
    """Return where one gene ends and the next begins, if a stop of the old frame and a start of the new are near k."""
    near = np.arange(max(k - _OVERLAP, 0), min(k + _OVERLAP, len(run.codon)))
    old = (run.position[k - 1] + near - (k - 1)) % 3 == 0
    new = (run.position[k] + near - k) % 3 == 0
    stop = near[old & code.stops[run.codon[near]]]
    start = near[new & starts[run.codon[near]]]
    if not len(stop) or not len(start):
        return None
    return int(stop[0]) + 3, int(start[np.abs(start - k).argmin()])


def _merged(shifts: list[tuple[int, int]]) -> list[tuple[int, int]]:
    """Join changes of frame between which nothing is read."""
    merged: list[tuple[int, int]] = []
    for place, shift in shifts:
        if merged and sum(merged[-1]) >= place:
            before = merged.pop()
            place, shift = before[0], before[1] + shift
        if shift:
            merged.append((place, shift))
    return merged


def _gene(piece: _Piece, run: _Run, where: tuple[int, int, int], path: _Path, code: GeneticCode) -> Gene:
    """Turn a piece of a run into a gene: whole codons, in coordinates of the stretch."""
    a, b, strand = where
    skipped = int((-int(run.position[piece.start])) % 3) if piece.start < len(run.position) else 0
    start = piece.start + skipped
    shifts = _merged([shift for shift in piece.shifts if shift[0] > start])
    length = piece.end - start - sum(shift for _, shift in shifts)
    end = piece.end - length % 3
    shifts = [shift for shift in shifts if shift[0] < end]
    first = int(run.codon[start]) if start < len(run.codon) else codon_index("AAA")
    has_start = bool(common_starts()[first]) and not skipped
    has_stop = 0 <= end - 3 < len(run.codon) and bool(code.stops[run.codon[end - 3]])
    opened = (not has_start, not has_stop)
    left, right = (a + start, a + end) if strand > 0 else (b - end, b - start)
    states = path.states[left:right].astype(np.int64)
    probability = float(path.values[np.arange(left, right), states].mean(dtype=np.float64)) if right > left else 0.0
    return Gene(
        left,
        right,
        strand,
        open_left=opened[0] if strand > 0 else opened[1],
        open_right=opened[1] if strand > 0 else opened[0],
        start_type=codon_text(first) if has_start else "Edge",
        score=float(path.worth[left:right].sum()),
        probability=probability,
        posterior=probability,
        shifts=tuple((a + place if strand > 0 else b - place, shift) for place, shift in shifts),
    )
