"""Tokens: what becomes of every byte, and where the gaps are."""

from __future__ import annotations

import doctest
import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from genoformer import tokens
from genoformer.tokens import (
    ALPHABET,
    COMPLEMENT,
    composition,
    decode,
    encode,
    gaps,
    lower_case_mask,
    reverse_complement,
)

LETTERS = st.text("ACGTUNacgtunRYSWKMBDHVX-.*8 ", max_size=80).map(str.encode)


def test_every_byte_has_a_code() -> None:
    naive = {**dict(zip(b"ACGTU", (0, 1, 2, 3, 3), strict=True)), **dict(zip(b"acgtu", (0, 1, 2, 3, 3), strict=True))}
    everything = bytes(range(256))
    assert encode(everything).tolist() == [naive.get(byte, 4) for byte in everything]
    assert encode(everything).dtype == np.uint8


def test_doctests() -> None:
    assert doctest.testmod(tokens).failed == 0
    assert doctest.testmod(tokens).attempted > 0


@given(LETTERS)
def test_decoding_gives_the_letters_back_but_for_case_u_and_what_is_unknown(letters: bytes) -> None:
    expected = "".join(c if c in "ACGT" else "N" for c in letters.decode().upper().replace("U", "T"))
    assert decode(encode(letters)) == expected.encode()


@given(st.lists(st.integers(0, 6), max_size=50))
def test_codes_survive_decoding_and_complement_twice(codes: list[int]) -> None:
    array = np.array(codes, dtype=np.uint8)
    assert decode(array) == bytes(ALPHABET[code] for code in codes)
    assert np.array_equal(reverse_complement(reverse_complement(array)), array)


def test_decode_takes_views_and_other_integers() -> None:
    assert decode(np.array([0, 1, 2, 3, 4])[::-2]) == b"NGA"
    assert decode(np.array([7, 255], dtype=np.uint8)) == b"NN"


def test_complement_by_letters() -> None:
    assert decode(reverse_complement(encode(b"AACGTN"))) == b"NACGTT"
    assert decode(COMPLEMENT) == b"TGCAN.?"


def test_soft_masked_bases_equal_their_upper_case_twins() -> None:
    """Fault 1: case-insensitive; the case is there for whoever wants it."""
    assert np.array_equal(encode(b"acgtACGT"), encode(b"ACGTACGT"))
    assert lower_case_mask(b"acgtACGT").tolist() == [True] * 4 + [False] * 4
    assert lower_case_mask(b"`az{@AZ[").tolist() == [False, True, True] + [False] * 5
    assert composition(b"acgtACGT").soft_masked == 4


def test_odd_letters_are_unknown_and_counted() -> None:
    """Fault 2: never seen as a base, never unseen."""
    assert encode(b"acgtnM S").tolist() == [0, 1, 2, 3, 4, 4, 4, 4]
    assert composition(b"acgtnM S") == (4, 3, 1, 5)


def test_iupac_letters_are_unknown_and_counted() -> None:
    """Fault 3: no IUPAC letter becomes a concrete base."""
    assert encode(b"ACGRYSWKMBDHVN").tolist() == [0, 1, 2] + [4] * 11
    assert composition(b"ACGRYSWKMBDHVN") == (3, 11, 0, 0)
    assert composition(b"RYSWKMBDHVNXryswkmbdhvnx-.") == (0, 26, 0, 12)
    assert composition(b"*8 \xff\x00EFIJLOPQZ") == (0, 0, 14, 0)


@given(LETTERS, st.integers(1, 9))
def test_counts_add_up(letters: bytes, piece: int) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tokens, "_PIECE", piece)
        counts = composition(letters)
    assert counts.known == int((encode(letters) < 4).sum())
    assert counts.known + counts.ambiguous + counts.invalid == len(letters)
    assert counts.soft_masked == int(lower_case_mask(letters).sum())


def naive_gaps(letters: bytes, least: int) -> list[list[int]]:
    found, here = [], 0
    for known, run in itertools.groupby(letters, key=lambda byte: byte in b"ACGTUacgtu"):
        length = len(list(run))
        if not known and length >= least:
            found.append([here, here + length])
        here += length
    return found


@given(st.text("AN", max_size=40).map(str.encode), st.integers(1, 6), st.integers(1, 12))
def test_gaps_are_the_runs_that_a_loop_finds(letters: bytes, least: int, piece: int) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tokens, "_PIECE", piece)
        found = gaps(letters, least=least)
    assert found.dtype == np.int64
    assert found.shape[1] == 2
    assert found.tolist() == naive_gaps(letters, least)


def test_a_gap_has_50_bases_by_default() -> None:
    letters = b"A" + b"N" * 49 + b"C" + b"n" * 50 + b"G" + b"R" * 51
    assert gaps(letters).tolist() == [[51, 101], [102, 153]]
