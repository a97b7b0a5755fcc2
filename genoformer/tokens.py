"""The alphabet: bases as bytes <-> tokens as uint8 codes, one per base."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

A, C, G, T, N, PAD, MASK = range(7)
ALPHABET = b"ACGTN.?"
"""Letter of each code. PAD fills a batch behind a short sequence; MASK hides a base in pre-training."""

UNKNOWN = N
MIN_GAP = 50
"""Bases of the shortest run of unknown bases for which nothing is predicted."""
_PIECE = 1 << 20
_AMBIGUOUS = b"RYSWKMBDHVNX-."


def _make_table() -> bytes:
    table = bytearray([UNKNOWN]) * 256
    for code, letters in ((A, b"Aa"), (C, b"Cc"), (G, b"Gg"), (T, b"TtUu")):
        for letter in letters:
            table[letter] = code
    return bytes(table)


_ENCODE = _make_table()
_DECODE = ALPHABET + b"N" * (256 - len(ALPHABET))
COMPLEMENT = np.array([T, G, C, A, N, PAD, MASK], dtype=np.uint8)
"""Code of the complementary base, indexed by code."""


def encode(bases: bytes) -> np.ndarray:
    """Turn bases into codes: A C G T (U is T, any case) to 0-3, every other byte to N (4).

    >>> encode(b"acGTUn-R").tolist()
    [0, 1, 2, 3, 3, 4, 4, 4]
    """
    return np.frombuffer(bytes(bases).translate(_ENCODE), dtype=np.uint8)


def decode(codes: np.ndarray) -> bytes:
    """Turn codes back into upper-case letters.

    >>> decode(encode(b"acgtn"))
    b'ACGTN'
    """
    return np.ascontiguousarray(codes, dtype=np.uint8).tobytes().translate(_DECODE)


def reverse_complement(codes: np.ndarray) -> np.ndarray:
    """Return the codes of the opposite strand, read in its own direction."""
    return COMPLEMENT[codes[::-1]]


def lower_case_mask(bases: bytes) -> np.ndarray:
    """Return a bool array, True where a base is in lower case (soft-masked)."""
    letters = np.frombuffer(bases, dtype=np.uint8)
    return (letters >= ord("a")) & (letters <= ord("z"))


class Composition(NamedTuple):
    """Counts of what a sequence is made of, in bases."""

    known: int
    ambiguous: int
    """IUPAC letters other than A C G T U, gaps and X: read as N"""
    invalid: int
    """bytes that are no nucleotide letter at all: read as N"""
    soft_masked: int


def composition(bases: bytes) -> Composition:
    """Count known, ambiguous, invalid and lower-case letters of a sequence."""
    letters = np.frombuffer(bases, dtype=np.uint8)
    counts = np.zeros(256, dtype=np.int64)
    for first in range(0, len(letters), _PIECE):  # bincount widens what it counts eightfold
        counts += np.bincount(letters[first : first + _PIECE], minlength=256)
    known = int(counts[list(b"ACGTUacgtu")].sum())
    ambiguous = int(counts[sorted(set(_AMBIGUOUS + _AMBIGUOUS.lower()))].sum())
    soft_masked = int(counts[ord("a") : ord("z") + 1].sum())
    return Composition(known, ambiguous, len(bases) - known - ambiguous, soft_masked)


def gaps(bases: bytes, *, least: int = MIN_GAP, circular: bool = False) -> np.ndarray:
    """Find the runs of unknown bases that are gaps of the assembly rather than single unknown letters.

    Parameters
    ----------
    bases : letters
    least : bases of the shortest run that is a gap
    circular : whether runs at both ends are one

    Returns
    -------
    ndarray of int64, (runs, 2): start and end of each

    >>> gaps(b"ACNNNNGT", least=4).tolist()
    [[2, 6]]
    """
    starts, ends = [], []
    before = False
    for first in range(0, len(bases), _PIECE):
        unknown = encode(bases[first : first + _PIECE]) >= UNKNOWN
        change = np.flatnonzero(np.diff(unknown, prepend=before))
        opens = unknown[change]
        starts.append(change[opens] + first)
        ends.append(change[~opens] + first)
        before = bool(unknown[-1])
    if before:
        ends.append(np.array([len(bases)]))
    if not starts:
        return np.empty((0, 2), dtype=np.int64)
    runs = np.stack([np.concatenate(starts), np.concatenate(ends)], axis=1).astype(np.int64)
    long_enough = runs[:, 1] - runs[:, 0] >= least
    if circular and len(runs) > 1 and runs[0, 0] == 0 and runs[-1, 1] == len(bases):
        long_enough[[0, -1]] = runs[0, 1] + len(bases) - runs[-1, 0] >= least
    return runs[long_enough]
