"""Codons: which start and end a gene in a genetic code, and what each is translated to."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

import numpy as np

from genoformer.errors import ConfigError
from genoformer.tokens import N

UNKNOWN_CODON = 64
"""Index of a codon that holds an unknown base."""
COMMON_STARTS = ("ATG", "GTG", "TTG")
_BASES = "ACGT"


@dataclass(frozen=True, eq=False)
class GeneticCode:
    """One of NCBI's translation tables, as arrays indexed by codon: 16 a + 4 b + c, UNKNOWN_CODON last.

    Attributes
    ----------
    number : of the table
    stops, starts : bool, (65,); the starts are those of the table, and ATG, GTG and TTG
    letters : uint8, (65,); ASCII of the amino acid, ``*`` for a stop, ``X`` where unknown
    """

    number: int
    stops: np.ndarray
    starts: np.ndarray
    letters: np.ndarray


def codon_index(codon: str) -> int:
    """Return the index of a codon.

    >>> codon_index("AAC"), codon_index("TTT")
    (1, 63)
    """
    a, b, c = (_BASES.index(letter) for letter in codon)
    return 16 * a + 4 * b + c


def codon_text(index: int) -> str:
    """Return the letters of a codon, NNN where unknown."""
    if not 0 <= index < UNKNOWN_CODON:
        return "NNN"
    return _BASES[index // 16] + _BASES[index // 4 % 4] + _BASES[index % 4]


@cache
def genetic_code(number: int) -> GeneticCode:
    """Return an NCBI translation table. A codon that is a stop or an amino acid (tables 27, 28, 31) is a stop here.

    Raises
    ------
    ConfigError : there is no such table
    """
    from Bio.Data import CodonTable

    if number not in CodonTable.unambiguous_dna_by_id:
        known = ", ".join(str(known) for known in sorted(CodonTable.unambiguous_dna_by_id))
        raise ConfigError(f"genetic code {number} is not one of NCBI's: {known}")
    table = CodonTable.unambiguous_dna_by_id[number]
    letters = np.full(UNKNOWN_CODON + 1, ord("X"), dtype=np.uint8)
    for codon, letter in table.forward_table.items():
        letters[codon_index(codon)] = ord(letter)
    stops, starts = np.zeros((2, UNKNOWN_CODON + 1), dtype=bool)
    stops[[codon_index(codon) for codon in table.stop_codons]] = True
    letters[stops] = ord("*")
    starts[[codon_index(codon) for codon in (*table.start_codons, *COMMON_STARTS)]] = True
    return GeneticCode(number, stops, starts & ~stops, letters)


@cache
def common_starts() -> np.ndarray:
    """Return which codons are ATG, GTG or TTG: bool, (65,)."""
    is_common = np.zeros(UNKNOWN_CODON + 1, dtype=bool)
    is_common[[codon_index(codon) for codon in COMMON_STARTS]] = True
    return is_common


def codons(codes: np.ndarray) -> np.ndarray:
    """Return the index of the codon that begins at each base: codes (bases,) -> uint8, (bases - 2,)."""
    if len(codes) < 3:
        return np.empty(0, dtype=np.uint8)
    a, b, c = codes[:-2], codes[1:-1], codes[2:]
    index = 16 * a + 4 * b + c  # at most 16 * 6 + 4 * 6 + 6
    index[(a >= N) | (b >= N) | (c >= N)] = UNKNOWN_CODON
    return index


def translate(codes: np.ndarray, code: GeneticCode, *, first_is_start: bool) -> bytes:
    """Translate whole codons, the stop as ``*``; a start codon, whichever it is, is read as M.

    Parameters
    ----------
    codes : uint8, (bases,), in reading direction; one or two bases behind the last codon are left out
    first_is_start : bool, whether the first codon is a start
    """
    letters = code.letters[codons(codes)[::3]]
    if first_is_start and len(letters):
        letters[0] = ord("M")
    return letters.tobytes()
