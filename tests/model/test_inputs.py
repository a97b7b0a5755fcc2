"""Open frames against a walk from codon to codon, and the laws they keep."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from tiny import random_codes

from genoformer import config
from genoformer.errors import ConfigError
from genoformer.model.inputs import FARTHEST, INPUTS, open_frames, stop_codons, stop_distances
from genoformer.tokens import PAD, decode, encode, reverse_complement
from genoformer.tracks import CODING_FRAME

STOPS = {11: {"TAA", "TAG", "TGA"}, 4: {"TAA", "TAG"}}
SEQUENCES = st.one_of(st.text("ACGTN", min_size=1, max_size=40), st.text("TAG", min_size=1, max_size=40))
_OPPOSITE = str.maketrans("ACGT", "TGCA")


def walked(letters: str, genetic_code: int) -> list[list[float]]:
    """Walk from each base, codon by codon, to the ends of its stretch, for each strand and codon position."""
    length = len(letters)

    def closed(left: int, strand: int) -> bool:
        if left >= length or left + 2 < 0:
            return True
        codon = letters[max(left, 0) : left + 3]
        codon = codon if strand > 0 else codon.translate(_OPPOSITE)[::-1]
        return codon in STOPS[genetic_code]

    def value(base: int, strand: int, position: int) -> float:
        left = base - position if strand > 0 else base - (2 - position)
        codons, here = 1, left
        while not closed(here, strand):  # on to the codon that closes the stretch, which belongs to it
            here, codons = here + 3 * strand, codons + 1
        here = left - 3 * strand
        while not closed(here, strand):
            here, codons = here - 3 * strand, codons + 1
        return (math.log2(codons) - 5) / 2

    return [[value(base, strand, j) for strand in (1, -1) for j in range(3)] for base in range(length)]


def computed(letters: str, genetic_code: int) -> torch.Tensor:
    return open_frames(torch.tensor(encode(letters.encode()))[None], stop_codons(genetic_code))[0]


@pytest.mark.parametrize("genetic_code", [11, 4])
@given(SEQUENCES)
def test_stretches_are_those_that_a_walk_finds(genetic_code: int, letters: str) -> None:
    np.testing.assert_allclose(computed(letters, genetic_code), walked(letters, genetic_code), atol=1e-6)


@pytest.mark.parametrize("length", range(1, 8))
def test_the_shortest_sequences(length: int) -> None:
    for letters in ("TAATAAT", "ACGTACG", "NNNNNNN", "TTATTAT", "ATAATGA"):
        found = computed(letters[:length], 11)
        assert found.shape == (length, 6)
        np.testing.assert_allclose(found, walked(letters[:length], 11), atol=1e-6)


@given(SEQUENCES)
def test_the_opposite_strand_has_the_same_stretches(letters: str) -> None:
    codes = encode(letters.encode())
    opposite = computed(decode(reverse_complement(codes)).decode(), 11)
    swap = [c - 1 for c in CODING_FRAME.reverse_complement[1:]]
    assert torch.equal(opposite.flip(0)[:, swap], computed(letters, 11))


@given(st.lists(SEQUENCES, min_size=1, max_size=4), st.integers(0, 12))
def test_padding_and_neighbours_change_nothing(rows: list[str], extra: int) -> None:
    longest = max(map(len, rows)) + extra
    codes = np.full((len(rows), longest), PAD, dtype=np.uint8)
    tables = [(11, 4)[number % 2] for number in range(len(rows))]
    for row, letters in zip(codes, rows, strict=True):
        row[: len(letters)] = encode(letters.encode())
    for given_input in INPUTS.values():
        stops = torch.stack([stop_codons(table) for table in tables])
        together = given_input.compute(torch.from_numpy(codes), stops)
        assert together.shape == (*codes.shape, given_input.channels)
        for found, letters, table in zip(together, rows, tables, strict=True):
            alone = given_input.compute(torch.tensor(encode(letters.encode()))[None], stop_codons(table))[0]
            assert torch.equal(found[: len(letters)], alone)
            assert (found[len(letters) :] == 0).all()


def test_an_unknown_base_makes_no_stop() -> None:
    assert torch.equal(computed("ACCTNAACC", 11)[:, :3], computed("ACCTCAACC", 11)[:, :3])
    assert not torch.equal(computed("ACCTAAACC", 11)[:, :3], computed("ACCTCAACC", 11)[:, :3])


def test_an_open_gene_is_longer_in_its_own_frame_only() -> None:
    gene = "ATG" + "GCA" * 50 + "TAA"
    frames = computed("TAGCTAGCTAA" + gene + "CTAGCTAACTAA", 11)
    inside = frames[11 : 11 + len(gene)]
    for base, row in enumerate(inside):
        assert row[base % 3] == pytest.approx((math.log2(52) - 5) / 2)


def test_a_long_sequence_does_not_overflow() -> None:
    codes = torch.zeros(1, 300_000, dtype=torch.uint8)
    assert open_frames(codes, stop_codons(11))[0, 150_000, 0] == pytest.approx((math.log2(100_001) - 5) / 2)


def test_stop_codons_are_those_of_the_table() -> None:
    from Bio.Data import CodonTable

    for table, known in CodonTable.unambiguous_dna_by_id.items():
        found = {
            a + b + c
            for i, a in enumerate("ACGT")
            for j, b in enumerate("ACGT")
            for k, c in enumerate("ACGT")
            if stop_codons(table)[16 * i + 4 * j + k]
        }
        assert found == set(known.stop_codons)
    with pytest.raises(ConfigError, match="genetic code 7 is not one of NCBI's: 1, 2, 3"):
        stop_codons(7)


def test_random_rows_of_both_codes_differ_where_tga_is() -> None:
    codes = random_codes(200)
    assert not torch.equal(open_frames(codes, stop_codons(11)), open_frames(codes, stop_codons(4)))


# ---- distances to stops


def distances(letters: str, genetic_code: int = 11) -> torch.Tensor:
    return stop_distances(torch.tensor(encode(letters.encode()))[None], stop_codons(genetic_code))[0]


def walked_distances(letters: str, genetic_code: int) -> list[list[float]]:
    """Walk from each base's own codon to each side, on each strand, until there is a stop or no base."""

    def value(base: int, strand: int, position: int, step: int) -> float:
        here, codons = base - position if strand > 0 else base - (2 - position), 0
        while -3 < here < len(letters):
            codon = letters[max(here, 0) : here + 3]
            codon = codon if strand > 0 else codon.translate(_OPPOSITE)[::-1]
            if codon in STOPS[genetic_code]:
                return (math.log2(1 + min(codons, FARTHEST)) - 4) / 2
            here, codons = here + 3 * step, codons + 1
        return (math.log2(1 + FARTHEST) - 4) / 2

    return [
        [value(base, strand, j, strand * way) for way in (1, -1) for strand in (1, -1) for j in range(3)]
        for base in range(len(letters))
    ]


@pytest.mark.parametrize("genetic_code", [11, 4])
@given(SEQUENCES)
def test_distances_are_those_of_a_walk(genetic_code: int, letters: str) -> None:
    np.testing.assert_allclose(distances(letters, genetic_code), walked_distances(letters, genetic_code), atol=1e-6)


@given(SEQUENCES)
def test_distances_on_the_opposite_strand(letters: str) -> None:
    opposite = distances(decode(reverse_complement(encode(letters.encode()))).decode())
    swap = [c - 1 for c in CODING_FRAME.reverse_complement[1:]]
    assert torch.equal(opposite.flip(0)[:, [*swap, *(6 + c for c in swap)]], distances(letters))


def test_an_end_is_no_stop_and_far_is_far_enough() -> None:
    assert (distances("GCA" * 30)[:, :3] == 2).all()
    far = distances("TAA" + "GCA" * 300 + "TAA")
    upstream, downstream = far[::3, 6], far[::3, 0]  # of bases at codon position 0 on +
    assert upstream[0] == downstream[-1] == -2
    assert upstream[1] == pytest.approx((1 - 4) / 2)
    assert (upstream[255:-1] == 2).all()
    assert upstream[254] < 2
    assert torch.equal(upstream.flip(0), downstream)


def test_a_lost_base_changes_one_side_only() -> None:
    """Before a deletion the distance to the stop upstream is as it was, behind it that to the stop downstream."""
    gene = "TAA" + "GCA" * 50 + "TAA"
    whole, cut = distances(gene), distances(gene[:80] + gene[81:])
    assert torch.equal(cut[:78, 6], whole[:78, 6])
    assert torch.equal(cut[82:, :3], whole[83:, :3])
    opened, broken = computed(gene, 11), computed(gene[:80] + gene[81:], 11)
    assert not torch.equal(broken[:78, 0], opened[:78, 0])


def test_the_table_of_inputs_is_that_of_the_configuration() -> None:
    assert tuple(INPUTS) == config.INPUTS
    with pytest.raises(ConfigError, match="inputs must differ"):
        config.ModelConfig(inputs=("open-frames", "open-frames"))
