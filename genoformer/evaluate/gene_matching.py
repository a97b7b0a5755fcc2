"""Genes called against genes that are true, by where they end and begin."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from itertools import pairwise

import numpy as np

from genoformer.annotation import CodingSequence
from genoformer.evaluate.counts import Score, score_of

LENGTH_BINS = (0, 150, 300, 600, 1200, 2400)
"""Where bins of gene lengths begin, in bases; the last one has no end."""
STRANDS = ("+", "-")
EXACT, SAME_END, WRONG, LEFT_OUT = "exact", "3' end", "wrong", "left out"
"""What a called gene may be: all right; of a true 3' end; of none; or mostly within true genes that do not count."""
_EDGE = 2
"""An end this near to an end of a linear sequence may go on beyond it: programs differ in where they stop there."""
_TRUE, _FOUND, _FOUND_EXACT, _CALLED, _RIGHT, _RIGHT_EXACT = range(6)

_End = tuple[str, int]
_Key = tuple[int, _End]


@dataclass
class GeneCounts:
    """Genes by strand and length; tables of sequences add up.

    Attributes
    ----------
    table : int64, (2 strands, length bins, 6): true, found by their 3' end, found exactly, called, called with a true
        3' end, called exactly right; true ones by their own length, called ones by theirs
    unscored : true genes left out: pseudo, broken, or partial within the sequence
    excused : called genes left out, because most of their bases lie in such genes
    """

    table: np.ndarray = field(default_factory=lambda: np.zeros((len(STRANDS), len(LENGTH_BINS), 6), dtype=np.int64))
    unscored: int = 0
    excused: int = 0

    def __iadd__(self, other: GeneCounts) -> GeneCounts:
        self.table += other.table
        self.unscored += other.unscored
        self.excused += other.excused
        return self

    def counts(self, *, exact: bool, strand: int | None = None, length_bin: int | None = None) -> tuple[int, int, int]:
        """Return right ones, called and true, of all or of one strand (0 +, 1 -) or length bin.

        In a length bin, right ones are of the called; those of the true may be of another bin.
        """
        table = self.table if strand is None else self.table[[strand]]
        table = table if length_bin is None else table[:, [length_bin]]
        sums = table.sum(axis=(0, 1))
        return int(sums[_RIGHT_EXACT if exact else _RIGHT]), int(sums[_CALLED]), int(sums[_TRUE])

    def score(self, *, exact: bool, strand: int | None = None, length_bin: int | None = None) -> Score:
        """Score the genes; recall is of true genes by their length, precision of called ones by theirs."""
        right, called, true = self.counts(exact=exact, strand=strand, length_bin=length_bin)
        table = self.table if strand is None else self.table[[strand]]
        table = table if length_bin is None else table[:, [length_bin]]
        found = int(table[..., _FOUND_EXACT if exact else _FOUND].sum())
        precision, recall = score_of(right, called, 0).precision, score_of(found, 0, true).recall
        if not called or not true:
            return Score(precision, recall, 0.0 if called or true else float("nan"))
        return Score(precision, recall, 2 * precision * recall / (precision + recall) if right and found else 0.0)


def match_genes(
    true: Iterable[CodingSequence], called: Iterable[CodingSequence], *, length: int, circular: bool = False
) -> GeneCounts:
    """Compare the genes of one sequence.

    - A gene is found if a called one has its 3' end, on its strand; exactly, if the 5' end and all joints agree too.
    - Genes of the same parts count once.
    - At the ends of a linear sequence genes may be cut: an end within 2 bases of it is the same as any other end
      there in the same reading frame.
    - Not scored are true genes that are pseudo, broken, or partial with both ends away from the ends of the sequence;
      a called gene with more than half of its bases in these, and no true 3' end, is left out.
    - Called genes that say they are pseudo are not counted.

    Parameters
    ----------
    true, called : CDS of the sequence, stop codons included
    length : int, bases of the sequence
    circular : no end of it cuts a gene

    Returns
    -------
    GeneCounts
    """
    ends = _Ends(0 if circular else length)
    wanted = _Wanted(true, ends)
    counts = GeneCounts(unscored=wanted.unscored)
    given = {ends.exact(cds): cds for cds in called if not cds.pseudo}
    stops_called = {ends.three_prime(cds) for cds in given.values()}
    for key, cds in wanted.genes.items():
        cell = _cell(counts, cds)
        cell[_TRUE] += 1
        cell[_FOUND] += ends.three_prime(cds) in stops_called
        cell[_FOUND_EXACT] += key in given
    for cds in given.values():
        verdict = wanted.verdict(cds)
        if verdict == LEFT_OUT:
            counts.excused += 1
            continue
        cell = _cell(counts, cds)
        cell[_CALLED] += 1
        cell[_RIGHT] += verdict in (SAME_END, EXACT)
        cell[_RIGHT_EXACT] += verdict == EXACT
    return counts


def match_each(
    true: Iterable[CodingSequence], called: Iterable[CodingSequence], *, length: int, circular: bool = False
) -> list[str]:
    """Tell of each called gene what `match_genes` takes it for: EXACT, SAME_END, WRONG or LEFT_OUT.

    Parameters
    ----------
    true, called, length, circular : as of `match_genes`
    """
    wanted = _Wanted(true, _Ends(0 if circular else length))
    return [LEFT_OUT if cds.pseudo else wanted.verdict(cds) for cds in called]


class _Wanted:
    """The true genes that count, and where those lie that do not."""

    def __init__(self, true: Iterable[CodingSequence], ends: _Ends):
        self.genes: dict[tuple[_Key, ...], CodingSequence] = {}
        self.unscored, self._ends = 0, ends
        spared: list[tuple[int, int]] = []
        for cds in true:
            if cds.pseudo or cds.is_broken or (cds.partial and not ends.at_edge(cds)):
                self.unscored += 1
                spared += cds.parts
            else:
                self.genes.setdefault(ends.exact(cds), cds)
        self._stops = {ends.three_prime(cds) for cds in self.genes.values()}
        self._excused = _Cover(spared)

    def verdict(self, cds: CodingSequence) -> str:
        if self._ends.three_prime(cds) in self._stops:
            return EXACT if self._ends.exact(cds) in self.genes else SAME_END
        is_excused = 2 * sum(self._excused.bases(*part) for part in cds.parts) > cds.length
        return LEFT_OUT if is_excused else WRONG


def _cell(counts: GeneCounts, cds: CodingSequence) -> np.ndarray:
    length_bin = int(np.searchsorted(LENGTH_BINS, cds.length, side="right")) - 1
    return counts.table[0 if cds.strand == 1 else 1, length_bin]


class _Ends:
    """Where genes begin and end, so that equal means the same; length 0: the sequence is circular."""

    def __init__(self, length: int):
        self._length = length

    def _is_edge(self, place: int) -> bool:
        return bool(self._length) and (place <= _EDGE or place >= self._length - _EDGE)

    def at_edge(self, cds: CodingSequence) -> bool:
        return self._is_edge(_first(cds)) or self._is_edge(_last(cds))

    def three_prime(self, cds: CodingSequence) -> _Key:
        place, position = _last(cds), (cds.length - cds.phase - 1) % 3
        frame = (place - 1 - position) % 3 if cds.strand == 1 else (place + position) % 3
        return cds.strand, self._end(place, frame)

    def five_prime(self, cds: CodingSequence) -> _Key:
        place = _first(cds)
        frame = (place + cds.phase) % 3 if cds.strand == 1 else (place - 1 - cds.phase) % 3
        return cds.strand, self._end(place, frame)

    def exact(self, cds: CodingSequence) -> tuple[_Key, ...]:
        joints = [
            joint
            for before, after in pairwise(cds.parts)
            for joint in ((before[1], after[0]) if cds.strand == 1 else (before[0], after[1]))
            if (before[1] != after[0] if cds.strand == 1 else before[0] != after[1])
        ]
        return self.five_prime(cds), *((cds.strand, ("joint", joint)) for joint in joints), self.three_prime(cds)

    def _end(self, place: int, frame: int) -> _End:
        if self._is_edge(place):
            return ("left" if place <= _EDGE else "right"), frame
        return "at", place


def _first(cds: CodingSequence) -> int:
    return cds.parts[0][0] if cds.strand == 1 else cds.parts[0][1]


def _last(cds: CodingSequence) -> int:
    return cds.parts[-1][1] if cds.strand == 1 else cds.parts[-1][0]


class _Cover:
    """How many bases of a span lie in any of the spans."""

    def __init__(self, spans: Iterable[tuple[int, int]]):
        merged: list[list[int]] = []
        for start, end in sorted(spans):
            if merged and start <= merged[-1][1]:
                merged[-1][1] = max(merged[-1][1], end)
            else:
                merged.append([start, end])
        self._starts, self._ends = np.array(merged, dtype=np.int64).reshape(-1, 2).T
        self._before = np.concatenate([[0], np.cumsum(self._ends - self._starts)])

    def _up_to(self, place: int) -> int:
        index = int(np.searchsorted(self._starts, place, side="right"))
        inside = max(0, int(self._ends[index - 1]) - place) if index else 0
        return int(self._before[index]) - inside

    def bases(self, start: int, end: int) -> int:
        return self._up_to(end) - self._up_to(start)
