"""Genes found, by their ends: counts worked out by hand, and laws."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from genoformer.annotation import CodingSequence
from genoformer.evaluate.gene_matching import (
    EXACT,
    LEFT_OUT,
    LENGTH_BINS,
    SAME_END,
    WRONG,
    GeneCounts,
    match_each,
    match_genes,
)


def cds(strand: int, *parts: tuple[int, int], **more: object) -> CodingSequence:
    return CodingSequence("s", strand, parts, **more)


def numbers(true: list, called: list, length: int = 10_000, *, circular: bool = False) -> tuple:
    counts = match_genes(true, called, length=length, circular=circular)
    return counts.counts(exact=False), counts.counts(exact=True), counts.unscored, counts.excused


PLUS, MINUS = cds(1, (99, 399)), cds(-1, (1000, 1600))


@pytest.mark.parametrize(
    ("called", "three_prime", "exact"),
    [
        ([PLUS, MINUS], 2, 2),
        ([cds(1, (129, 399)), cds(-1, (1000, 1540))], 2, 0),  # other starts
        ([cds(1, (99, 396)), cds(-1, (1003, 1600))], 0, 0),  # other ends
        ([cds(-1, (99, 399)), cds(1, (1000, 1600))], 0, 0),  # other strands
        ([PLUS, PLUS, MINUS], 2, 2),  # the same gene twice counts once
        ([], 0, 0),
    ],
)
def test_ends_decide(called: list, three_prime: int, exact: int) -> None:
    distinct = len(set(called))
    assert numbers([PLUS, MINUS], called) == ((three_prime, distinct, 2), (exact, distinct, 2), 0, 0)


def test_joints_count_as_exact_only() -> None:
    slips = cds(1, (99, 202), (201, 401))
    assert numbers([slips], [slips])[:2] == ((1, 1, 1), (1, 1, 1))
    assert numbers([slips], [cds(1, (101, 401))])[:2] == ((1, 1, 1), (0, 1, 1))
    split = cds(-1, (300, 400), (200, 300), (100, 200))
    assert numbers([split], [cds(-1, (100, 400))])[1] == (1, 1, 1)  # parts that touch are one


def test_cut_at_the_ends_of_the_sequence() -> None:
    true = [cds(1, (0, 151), phase=1, partial=True), cds(1, (9400, 10_000), partial=True)]
    same_frames = [cds(1, (1, 151), partial=True), cds(1, (9400, 9998))]
    assert numbers(true, same_frames)[:2] == ((2, 2, 2), (2, 2, 2))
    assert numbers(true, [cds(1, (9401, 9998))])[0] == (0, 1, 2)  # another frame
    assert numbers(true, same_frames, circular=True)[2] == 2  # a circle has no ends: unscored
    left = cds(-1, (0, 300), partial=True)
    assert numbers([left], [cds(-1, (0, 300)), cds(-1, (3000, 3300))])[0] == (1, 2, 1)
    assert numbers([left], [cds(-1, (1, 301))])[0] == (0, 1, 1)


def test_what_is_not_scored_excuses_calls_in_it() -> None:
    pseudo, broken = cds(1, (2000, 2900), pseudo=True), cds(1, (4000, 4100))
    inner = cds(-1, (6000, 6300), partial=True)
    calls = [cds(1, (2100, 2400)), cds(-1, (2800, 3100)), cds(-1, (2800, 3001)), cds(1, (4000, 4099)), inner]
    assert numbers([PLUS, pseudo, broken, inner], [PLUS, *calls]) == ((1, 3, 1), (1, 3, 1), 3, 3)
    assert numbers([PLUS], [cds(1, (2000, 2900), pseudo=True)])[0] == (0, 0, 1)  # not a call
    within = cds(1, (2100, 2400))
    assert numbers([pseudo, within], [within])[0] == (1, 1, 1)


def test_over_the_origin() -> None:
    plus, minus = cds(1, (9900, 10_000), (0, 200)), cds(-1, (0, 200), (9900, 10_000))
    assert numbers([plus, minus], [plus, minus], circular=True)[1] == (2, 2, 2)
    assert numbers([plus], [cds(1, (50, 200))], circular=True)[:2] == ((1, 1, 1), (0, 1, 1))


def test_bins_of_length_and_strands() -> None:
    true = [cds(1, (0 + 5, 95)), cds(-1, (1000, 1150)), cds(1, (2000, 5000))]
    called = [cds(1, (5, 95)), cds(-1, (1000, 1600)), cds(1, (6000, 6300))]
    counts = match_genes(true, called, length=10_000)
    assert counts.score(exact=False) == pytest.approx((2 / 3, 2 / 3, 2 / 3))
    assert counts.score(exact=False, strand=1) == (1, 1, 1)
    assert counts.score(exact=True, strand=1) == (0, 0, 0)
    assert counts.score(exact=False, length_bin=0) == (1, 1, 1)
    short = counts.score(exact=False, length_bin=1)  # found by a longer call: there is no call in this bin
    assert math.isnan(short.precision)
    assert short.recall == 1
    assert counts.score(exact=False, length_bin=len(LENGTH_BINS) - 1).recall == 0
    assert all(math.isnan(value) for value in GeneCounts().score(exact=False))


GENE = st.builds(
    lambda strand, start, codons: cds(strand, (start, start + 3 * codons)),
    st.sampled_from([1, -1]), st.integers(3, 300), st.integers(1, 60),
)  # fmt: skip


@given(st.lists(GENE, max_size=8), st.lists(GENE, max_size=8))
def test_counts_are_those_of_sets(true: list, called: list) -> None:
    (right, calls, genes), (same, *_), unscored, excused = numbers(true, called)

    def ends(some: list) -> set:
        return {(c.strand, c.parts[0][1] if c.strand == 1 else c.parts[0][0]) for c in some}

    assert (calls, genes, unscored, excused) == (len(set(called)), len(set(true)), 0, 0)
    assert right == sum(bool(ends([call]) & ends(true)) for call in set(called))
    assert same == len(set(called) & set(true))
    assert numbers(true, true)[1] == (genes, genes, genes)


def test_each_by_itself() -> None:
    pseudo = cds(1, (2000, 2900), pseudo=True)
    called = [PLUS, cds(-1, (1000, 1540)), cds(1, (99, 396)), cds(1, (2100, 2400)), cds(1, (5, 95), pseudo=True)]
    assert match_each([PLUS, MINUS, pseudo], called, length=10_000) == [EXACT, SAME_END, WRONG, LEFT_OUT, LEFT_OUT]
    assert match_each([], [], length=0) == []


@given(st.lists(GENE, max_size=8), st.lists(GENE, max_size=8))
def test_each_adds_up_to_the_counts(true: list, called: list) -> None:
    distinct = list(dict.fromkeys(called))
    each = match_each(true, distinct, length=10_000)
    (right, calls, _), (same, *_), _, excused = numbers(true, distinct)
    assert (each.count(EXACT) + each.count(SAME_END), each.count(EXACT)) == (right, same)
    assert (len(each) - each.count(LEFT_OUT), each.count(LEFT_OUT)) == (calls, excused)


@given(st.lists(GENE, max_size=5), st.lists(GENE, max_size=5))
def test_the_other_strand_of_everything_gives_the_same(true: list, called: list) -> None:
    def flipped(some: list) -> list:
        return [cds(-c.strand, *((1000 - end, 1000 - start) for start, end in c.parts)) for c in some]

    here = match_genes(true, called, length=1000).table
    there = match_genes(flipped(true), flipped(called), length=1000).table
    assert np.array_equal(here, there[::-1])
