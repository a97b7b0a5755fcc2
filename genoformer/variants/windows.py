"""Windows around variants: a function of the place alone, so that neighbors share one and no score depends on others.

A sequence is cut into cells, laid out from its middle; a variant sees the window in whose middle its cell lies. So
every variant has (size - cell) / 2 bases to each side, unless the sequence ends, and the opposite strand of a
sequence has mirrored windows.
"""

from __future__ import annotations

from genoformer.errors import ConfigError

DEFAULT_WINDOW = 3_000
CELLS = 8
"""A cell is this part of a window, where nothing else is said."""


def cell_size(window: int, cell: int | None = None) -> int:
    """Return the bases of a cell: as given, or a part of the window.

    Raises
    ------
    ConfigError : the window is empty, or the cell does not lie within it
    """
    if window < 1:
        raise ConfigError(f"window must be at least 1 base, got {window}")
    if cell is None:
        return max(window // CELLS, 1)
    if not 1 <= cell <= window:
        raise ConfigError(f"variants that share a window must lie within 1 to {window} bases, got {cell}")
    return cell


def shared_window(window: int) -> tuple[int, int]:
    """Return size and cell of windows of which only parts are predicted again: large, since all share their cost.

    A variant has at least half of ``window`` bases to each side, as in its very middle.
    """
    return 4 * window, 3 * window


def window_of(start: int, end: int, length: int, *, size: int, cell: int) -> tuple[int, int]:
    """Return the window of bases [start, end) of a sequence of ``length`` bases; start = end lies between two.

    It is moved where the sequence ends, and widened as far as the bases reach beyond it.

    >>> window_of(500, 501, 1000, size=101, cell=1)
    (450, 551)
    >>> window_of(3, 4, 1000, size=101, cell=1)
    (0, 101)
    """
    if size >= length:
        return 0, length
    cell -= (cell + length) % 2 if length % 2 else 0  # cells of an odd sequence are odd: one lies in its middle
    cell = max(cell, 1)
    first = (length - cell) // 2 if length % 2 else length // 2  # where one of the cells begins
    inner = first + (start + end - 2 * first) // (2 * cell) * cell  # the cell of the middle of the bases
    flank = (size - cell) // 2
    here = min(max(inner - flank, 0), max(length - (cell + 2 * flank), 0))
    return min(here, start), max(min(here + cell + 2 * flank, length), end)
