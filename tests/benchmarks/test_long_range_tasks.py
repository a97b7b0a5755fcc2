"""The labels of the long-range tasks are read back from the letters alone, by other code than that which wrote them."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).parent))

from long_range_tasks import IGNORED, TASKS, Batch

KINDS = ("ACTC", "GTAG")
SYMBOLS = ["AAA", "AAT", "ACA", "ACT", "AGA", "AGT", "CAA", "CAT", "CCA", "CCT", "CGA", "CGT", "GAA", "GAT", "GCA"]


def letters(batch: Batch, row: int) -> str:
    return "".join("ACGT"[code] for code in batch.codes[row] if code < 4)


@pytest.mark.parametrize("distance", TASKS["paired"].distances)
def test_queries_ask_for_the_only_marker_of_their_family(distance: int) -> None:
    batch = TASKS["paired"].draw(distance, 2 if distance > 10_000 else 20, np.random.default_rng(5))
    for row, labels in enumerate(batch.labels):
        sequence = letters(batch, row)
        assert len(sequence) == TASKS["paired"].length(distance)
        asked = np.flatnonzero(labels != IGNORED).tolist()
        assert len(asked) == (16 if distance >= 1_000 else 4)
        for at in asked:
            assert sequence[at - 8 : at] == "CTAGGTCA"
            (marker,) = re.finditer(f"GATCCAGT{sequence[at : at + 4]}({'|'.join(KINDS)})", sequence)
            assert KINDS[labels[at]] == marker[1]
            assert abs(abs(marker.start() - (at - 8)) - distance) <= distance * 0.1 * (distance >= 1_000) + 8
            assert batch.groups[row, at] == distance


def test_kinds_are_drawn_evenly() -> None:
    """1,000 fair draws are within 5 standard deviations, 0.08, of a half."""
    batch = TASKS["paired"].draw(100, 250, np.random.default_rng(1))
    assert abs(batch.labels[batch.labels != IGNORED].mean() - 0.5) < 0.08


def value(operator: str, digits: list[int]) -> int:
    middle = sorted(digits)[(len(digits) - 1) // 2]
    return {"CGA": max(digits), "CGT": min(digits), "GAA": middle, "GAT": sum(digits) % 10}[operator]


@pytest.mark.parametrize("symbols", [12, 100, 680])
def test_brackets_ask_for_the_value_of_what_they_close(symbols: int) -> None:
    batch = TASKS["nested"].draw(symbols, 5, np.random.default_rng(symbols))
    for row, labels in enumerate(batch.labels):
        sequence = letters(batch, row)
        assert len(sequence) <= 3 * symbols
        open_ones: list[tuple[str, list[int], int]] = []
        answered = 0
        for at in range(0, len(sequence), 3):
            codon = sequence[at : at + 3]
            if codon == "GCA":
                operator, digits, opening = open_ones.pop()
                assert labels[at + 1] == value(operator, digits)
                edges = [edge for edge in TASKS["nested"].spans if at + 3 - opening < edge]
                assert batch.groups[row, at + 1] == edges[0]
                answered += 1
                if open_ones:
                    open_ones[-1][1].append(int(labels[at + 1]))
            elif SYMBOLS.index(codon) < 10:
                open_ones[-1][1].append(SYMBOLS.index(codon))
            else:
                open_ones.append((codon, [], at))
        assert not open_ones
        assert answered == (labels != IGNORED).sum()
