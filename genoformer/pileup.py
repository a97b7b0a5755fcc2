"""What is gathered along reference sequences in one pass over sorted reads, in the memory of what they still reach."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from typing import Generic, NamedTuple, TypeVar

import numpy as np

from genoformer.regions import Region

CELL = 1 << 16
"""Bases of a cell, at most."""
T = TypeVar("T")


class Cell(NamedTuple):
    """A stretch of a reference sequence, by its number."""

    sequence: int
    start: int
    end: int


class Cells:
    """Sequences, or regions of them, cut into cells of at most CELL bases.

    Attributes
    ----------
    lengths : of all sequences, by name
    """

    def __init__(self, lengths: Mapping[str, int], regions: Iterable[Region] | None = None) -> None:
        """Cut sequences of these lengths; ``regions`` must be apart and in order."""
        self.lengths = lengths
        self._ends = list(lengths.values())
        self._regions: dict[int, list[tuple[int, int]]] | None = None
        if regions is not None:
            numbers = {name: number for number, name in enumerate(lengths)}
            self._regions = {}
            for region in regions:
                self._regions.setdefault(numbers[region.sequence], []).append((region.start, region.end))
        self._last: tuple[int, np.ndarray] = (-1, np.empty((0, 2), dtype=np.int64))

    def asked(self, sequence: int) -> list[tuple[int, int]]:
        """Return the regions of a sequence; all of it if there are none at all."""
        return [(0, self._ends[sequence])] if self._regions is None else self._regions.get(sequence, [])

    def of(self, sequence: int) -> np.ndarray:
        """Return the cells of a sequence: int64, (cells, 2), start and end."""
        if self._last[0] != sequence:
            parts = [np.empty((0, 2), dtype=np.int64)]
            for start, end in self.asked(sequence):
                starts = np.arange(start, end, CELL, dtype=np.int64)
                parts.append(np.stack([starts, np.minimum(starts + CELL, end)], axis=1))
            self._last = sequence, np.concatenate(parts)
        return self._last[1]

    def split(self, sequence: int, places: np.ndarray) -> Iterator[tuple[Cell, slice]]:
        """Tell which cells some places of a sequence lie in, and which of the places, which rise; others in none."""
        cells = self.of(sequence)
        if not len(cells) or not len(places):
            return
        first = int(np.searchsorted(cells[:, 1], places[0], side="right"))
        last = int(np.searchsorted(cells[:, 0], places[-1], side="right"))
        bounds = np.searchsorted(places, cells[first:last])
        for (start, end), (low, high) in zip(cells[first:last].tolist(), bounds.tolist(), strict=True):
            if low < high:
                yield Cell(sequence, start, end), slice(low, high)


class Pileup(Generic[T]):
    """What is gathered in cells, each made when it is first reached."""

    def __init__(
        self, cells: Cells, make: Callable[[Cell], T], *, only: Collection[tuple[int, int, int]] | None = None
    ) -> None:
        """Gather what ``make`` begins, in every cell or ``only`` in some."""
        self.cells = cells
        self._make, self._only = make, only
        self._open: dict[Cell, T] = {}

    def at(self, sequence: int, places: np.ndarray) -> Iterator[tuple[T, np.ndarray, slice]]:
        """Yield what is gathered at some places, which rise: it, the places from its cell's start on, and which."""
        for cell, chosen in self.cells.split(sequence, places):
            if self._only is None or cell in self._only:
                if cell not in self._open:
                    self._open[cell] = self._make(cell)
                yield self._open[cell], places[chosen] - cell.start, chosen

    def before(self, sequence: int, start: int) -> list[tuple[Cell, T]]:
        """Hand over, in order, the cells that end before a place: no read from there on reaches them."""
        over = sorted(cell for cell in self._open if (cell.sequence, cell.end) <= (sequence, start))
        return [(cell, self._open.pop(cell)) for cell in over]

    def rest(self) -> list[tuple[Cell, T]]:
        """Hand over, in order, all cells that are left."""
        return [(cell, self._open.pop(cell)) for cell in sorted(self._open)]
