"""Genes of reads with insertions and deletions: runs of a path of codon positions, its changes of frame noted."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from genoformer.genes.candidates import Scoring
from genoformer.genes.codons import UNKNOWN_CODON, GeneticCode, codon_index, codon_text, codons, common_starts
from genoformer.genes.gene import Gene
from genoformer.genes.paths import NONE, PathCosts, best_path, marks_of
from genoformer.tokens import reverse_complement

_SNAP = 15
"""Bases within which the ends of a path are moved to a start or stop codon."""
_NEAR = 5
"""Bases between a change of frame and the codons that make two genes of it."""


class _Path(NamedTuple):
    """What is known of each base of one stretch."""

    states: np.ndarray
    codes: np.ndarray
    values: np.ndarray
    worth: np.ndarray
    """of its state against none"""


class _Run(NamedTuple):
    """A run of bases on one strand; places are those of the stretch read in the direction of that strand."""

    first: int
    """where it begins"""
    position: np.ndarray
    """codon position of each of its bases"""
    codon: np.ndarray
    """codon that begins at each base of the stretch"""


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
    length = len(path.states)
    plus, minus = codons(path.codes), codons(reverse_complement(path.codes))
    for a, b in zip(borders[:-1].tolist(), borders[1:].tolist(), strict=True):
        if strands[a] == NONE:
            continue
        is_plus = strands[a] == 1
        states = path.states[a:b]
        run = _Run(a, states - 1, plus) if is_plus else _Run(length - b, states[::-1] - 4, minus)
        for piece in _pieces(run, code):
            gene = _gene(piece, run, 1 if is_plus else -1, path, code)
            least = scoring.least_open if gene.open_left or gene.open_right else scoring.least
            if gene.end - gene.start >= least:
                yield gene


def _pieces(run: _Run, code: GeneticCode) -> Iterator[_Piece]:
    """Cut a run into genes, where one ends and another of its strand begins at once."""
    steps = np.mod(np.diff(run.position.astype(np.int8)), 3)
    start = run.first
    shifts: list[tuple[int, int]] = []
    for k in (np.flatnonzero((steps != 1) | _after_stop(run, code)) + 1).tolist():
        cut = _two_genes(run, k, code)
        if cut is not None:
            yield _Piece(start, cut[0], [shift for shift in shifts if shift[0] < cut[0]])
            start, shifts = cut[1], []
        elif steps[k - 1] != 1:
            shifts.append((run.first + k, 1 if steps[k - 1] == 0 else -1))
    yield _Piece(start, run.first + len(run.position), shifts)


def _after_stop(run: _Run, code: GeneticCode) -> np.ndarray:
    """Tell which steps follow the last base of a stop codon read in frame: bool, (bases - 1,)."""
    found = np.zeros(max(len(run.position) - 1, 0), dtype=bool)
    count = len(run.position) - 3
    if count > 0:
        found[2:] = (
            code.stops[run.codon[run.first : run.first + count]] & (run.position[:count] == 0) & (run.position[3:] == 0)
        )
    return found


def _two_genes(run: _Run, k: int, code: GeneticCode) -> tuple[int, int] | None:
    """Return where one gene ends and the next begins, if base k begins another gene rather than follow an error.

    That is so behind a stop codon if a start codon follows at once; and where the frame changes, if a stop of the old
    frame and an ATG of the new one overlap by 4 bases (ATGA) or by 1 (TAATG), as they do in operons.
    """
    before, here, place = int(run.position[k - 1]), int(run.position[k]), run.first + k
    if (here - before) % 3 == 1:
        follows = place < len(run.codon) and common_starts()[run.codon[place]]
        return (place, place) if follows else None
    near = np.arange(max(place - _NEAR - 3, 0), min(place + _NEAR, len(run.codon)))
    old = (before + near - (place - 1)) % 3 == 0
    for stop in near[old & code.stops[run.codon[near]]].tolist():
        for start in (stop - 1, stop + 2):
            in_frame = (here + start - place) % 3 == 0
            if in_frame and 0 <= start < len(run.codon) and run.codon[start] == codon_index("ATG"):
                return stop + 3, start
    return None


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


def _gene(piece: _Piece, run: _Run, strand: int, path: _Path, code: GeneticCode) -> Gene:
    """Turn a piece of a run into a gene: whole codons, in coordinates of the stretch."""
    at = piece.start - run.first
    begins = piece.start + (-int(run.position[at]) % 3 if 0 <= at < len(run.position) else 0)
    shifts = _merged([shift for shift in piece.shifts if begins < shift[0] < piece.end])
    start = _snapped_start(begins, shifts[0][0] if shifts else piece.end, run, code)
    end, shifts = _whole_codons(start, piece.end, shifts)
    end = _snapped_end(end, run, code)
    first = int(run.codon[start]) if start < len(run.codon) else UNKNOWN_CODON
    has_start = bool(common_starts()[first])
    has_stop = 0 <= end - 3 < len(run.codon) and bool(code.stops[run.codon[end - 3]])
    size = len(path.states)
    left, right = (start, end) if strand > 0 else (size - end, size - start)
    states = path.states[left:right].astype(np.int64)
    probability = float(path.values[np.arange(left, right), states].mean(dtype=np.float64)) if right > left else 0.0
    return Gene(
        left,
        right,
        strand,
        open_left=not (has_start if strand > 0 else has_stop),
        open_right=not (has_stop if strand > 0 else has_start),
        start_type=codon_text(first) if has_start else "Edge",
        score=float(path.worth[left:right].sum()),
        probability=probability,
        posterior=probability,
        shifts=tuple((place if strand > 0 else size - place, shift) for place, shift in shifts),
    )


def _whole_codons(start: int, end: int, shifts: list[tuple[int, int]]) -> tuple[int, list[tuple[int, int]]]:
    """Return the last end of whole codons, and the changes of frame behind which something is read before it."""
    shifts = list(shifts)
    while True:
        while shifts and shifts[-1][0] + max(shifts[-1][1], 0) >= end:
            end = min(end, shifts.pop()[0])
        more = (end - start - sum(shift for _, shift in shifts)) % 3
        if more == 0:
            return end, shifts
        end -= more


def _snapped_start(start: int, before: int, run: _Run, code: GeneticCode) -> int:
    """Return the start codon in frame that is nearest, if one is near and no stop between; else the place itself."""
    for distance in range(0, _SNAP + 1, 3):
        for place in (start - distance, start + distance):
            if 0 <= place < min(before, len(run.codon)) and common_starts()[run.codon[place]]:
                between = run.codon[min(place, start) : max(place, start) : 3]
                return start if code.stops[between].any() else place
    return start


def _snapped_end(end: int, run: _Run, code: GeneticCode) -> int:
    """Return the end of the stop codon in frame that ends here or begins near behind; else the place itself."""
    for place in range(max(end - 3, 0), min(end + _SNAP, len(run.codon)), 3):
        if code.stops[run.codon[place]]:
            return place + 3
    return end
