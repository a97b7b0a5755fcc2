"""Synthetic DNA with labels that depend on motifs far away, and nested expressions spelled in codons."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from genoformer.tokens import PAD

IGNORED = 255
"""Label of a base that is not asked for."""
_LETTERS = {letter: code for code, letter in enumerate("ACGT")}


class Batch(NamedTuple):
    """Sequences with labels at a few bases."""

    codes: np.ndarray  # (B, L) uint8
    labels: np.ndarray  # (B, L) uint8, IGNORED nearly everywhere
    groups: np.ndarray  # (B, L) int64: how far a label's causes lie, as results are told by
    hints: np.ndarray  # (B, L) uint8: all that can be known about the label from what stands beside it


def blank(count: int, length: int, codes: np.ndarray) -> Batch:
    """Make a batch without labels."""
    labels = np.full((count, length), IGNORED, dtype=np.uint8)
    return Batch(codes, labels, np.zeros((count, length), dtype=np.int64), np.zeros((count, length), dtype=np.uint8))


def spelled(word: str) -> np.ndarray:
    """Turn letters into codes."""
    return np.array([_LETTERS[letter] for letter in word], dtype=np.uint8)


# Paired motifs -----------------------------------------------------------------------------------------------------

_MARKER, _QUERY = spelled("GATCCAGT"), spelled("CTAGGTCA")
_FAMILIES = [spelled(word) for word in ("AACC", "CAGA", "GTTG", "TGCT")]
_KINDS = [spelled(word) for word in ("ACTC", "GTAG")]
_ROOM = 16  # bases that a motif takes
_LABEL = 8  # base of a query that has the label


@dataclass(frozen=True)
class Paired:
    """Markers of some families, each of one of two kinds, and queries that ask for the kind of their family's marker.

    A marker is a motif, the word of its family and that of its kind; a query is another motif and a family's word. All
    else is noise. Each family has one marker a sequence; its queries lie ``distance`` away, all on one side: one of
    them, or four within a tenth of it at 1,000 bases and more. Kinds are drawn evenly and independently: whoever does
    not see the marker is right half of the time; whoever goes by the kinds of all four alike, 69% (11 of 16). Motifs
    start at multiples of 8.
    """

    families: int = 4
    distances: tuple[int, ...] = (30, 100, 1_000, 10_000, 100_000)
    classes: int = 2
    stride: int = 8

    def training(self, progress: float, bases: int, random: np.random.Generator) -> Batch:
        """Draw a batch: the two shortest distances at first, then longer ones, the longest so far half of the time."""
        known = 2 + int(np.searchsorted((0.4, 0.6, 0.8), progress, side="right"))
        longest = min(known, len(self.distances)) - 1
        distance = self.distances[longest if random.random() < 0.5 else random.integers(longest + 1)]
        return self.draw(distance, max(1, bases // self.length(distance)), random)

    def examination(self, random: np.random.Generator) -> Iterator[Batch]:
        for distance in self.distances:
            count = min(64, max(1, 100_000 // self.length(distance)))
            for _ in range(max(6, 48 // count)):
                yield self.draw(distance, count, random)

    def length(self, distance: int) -> int:
        """Bases of a sequence: room for all families."""
        return (distance + max(256 * self.families, distance // 8)) // 8 * 8

    def draw(self, distance: int, count: int, random: np.random.Generator) -> Batch:
        length = self.length(distance)
        batch = blank(count, length, random.integers(0, 4, size=(count, length), dtype=np.uint8))
        for row in range(count):
            markers, queries = self._places(distance, length, random)
            for family, marker in enumerate(markers):
                kind = random.integers(2)
                motif = np.concatenate([_MARKER, _FAMILIES[family], _KINDS[kind]])
                batch.codes[row, marker : marker + len(motif)] = motif
                motif = np.concatenate([_QUERY, _FAMILIES[family]])
                for query in queries[family]:
                    batch.codes[row, query : query + len(motif)] = motif
                    batch.labels[row, query + _LABEL] = kind
                    batch.groups[row, query + _LABEL] = distance
                    batch.hints[row, query + _LABEL] = family
        return batch

    def _places(self, distance: int, length: int, random: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
        """Places of the markers (families,) and of their queries (families, n), such that nothing overlaps."""
        spread, count = (distance // 10, 4) if distance >= 1_000 else (0, 1)
        taken: set[int] = set()  # eights of bases; a motif takes two
        markers, queries = [], []
        for _ in range(self.families):
            while True:
                marker = int(random.integers(0, length - distance - spread - 2 * _ROOM)) // 8 * 8
                away = distance + random.integers(-spread, spread + 1, size=count)
                places = [marker, *(-(-(marker + away) // 8) * 8).tolist()]
                slots = {place // 8 + half for place in places for half in (0, 1)}
                if len(slots) == 2 * len(places) and not slots & taken:
                    break
            taken |= slots
            markers.append(marker)
            queries.append(places[1:])
        flipped = random.integers(0, 2) == 1
        there, asked = np.array(markers), np.array(queries)
        return (length - _ROOM - there, length - _ROOM - asked) if flipped else (there, asked)


# Nested expressions ------------------------------------------------------------------------------------------------

_OPERATORS = ("MAX", "MIN", "MED", "SUM")
_CODONS = [spelled(a + b + c) for a in "ACGT" for b in "ACG" for c in "AT"][:15]  # digits, operators, "]"
_CLOSE = 14


def value_of(operator: int, arguments: list[int]) -> int:
    """Compute one operation; the median of an even number of digits is the lower one, sums are modulo 10."""
    ordered = sorted(arguments)
    return (ordered[-1], ordered[0], ordered[(len(ordered) - 1) // 2], sum(ordered) % 10)[operator]


@dataclass(frozen=True)
class Nested:
    """Nested operations on digits (Nangia & Bowman 2018, arXiv 1804.06028), each symbol a codon, 2,040 bases at most.

    Every closing bracket asks for the value of what it closes; labels are told apart by how far its opening is away.
    """

    spans: tuple[int, ...] = (30, 100, 300, 1_000, 2_041)
    classes: int = 10
    stride: int = 3

    def training(self, progress: float, bases: int, random: np.random.Generator) -> Batch:
        """Draw a batch of expressions of one size: small ones only at first, then all."""
        symbols = int(random.choice((12, 30, 100) if progress < 0.5 else (12, 30, 100, 340, 680)))
        return self.draw(symbols, max(1, bases // (3 * symbols)), random)

    def examination(self, random: np.random.Generator) -> Iterator[Batch]:
        for symbols in (30, 100, 340, *[680] * 8):
            yield self.draw(symbols, 32, random)

    def draw(self, symbols: int, count: int, random: np.random.Generator) -> Batch:
        batch = blank(count, 3 * symbols, np.full((count, 3 * symbols), PAD, dtype=np.uint8))
        for row in range(count):
            written: list[int] = []
            for opening, closing, operator, value in self._write(symbols, written, random)[1]:
                at, span = 3 * closing + 1, 3 * (closing - opening + 1)
                batch.labels[row, at], batch.hints[row, at] = value, operator
                batch.groups[row, at] = next(edge for edge in self.spans if span < edge)
            batch.codes[row, : 3 * len(written)] = np.concatenate([_CODONS[symbol] for symbol in written])
        return batch

    def _write(
        self, symbols: int, written: list[int], random: np.random.Generator
    ) -> tuple[int, list[tuple[int, int, int, int]]]:
        """Append an expression of at most so many symbols; return its value and (opening, closing, operator, value)."""
        if symbols < 4:
            written.append(int(random.integers(10)))
            return written[-1], []
        opening, operator = len(written), int(random.integers(4))
        written.append(10 + operator)
        count = int(random.integers(2, min(5, symbols - 2) + 1))
        shares = random.multinomial(symbols - 2 - count, random.dirichlet(np.ones(count))) + 1
        arguments, found = [], []
        for share in shares:
            value, inner = self._write(int(share), written, random)
            arguments.append(value)
            found += inner
        written.append(_CLOSE)
        value = value_of(operator, arguments)
        return value, [*found, (opening, len(written) - 1, operator, value)]


TASKS = {"single": Paired(families=1), "paired": Paired(), "nested": Nested()}
