"""Reading frames instead of codon positions: within a gene one value stays high, so the mean of a bin means something.

A base of codon position c on the forward strand is in frame (place - c) mod 3; on the reverse strand, where codons are
read towards lower coordinates, in frame (place + c) mod 3. Places are those of the sequence, from 0.
"""

from __future__ import annotations

import numpy as np

FRAMES = ("+0", "+1", "+2", "-0", "-1", "-2")


def to_frames(values: np.ndarray, places: np.ndarray) -> np.ndarray:
    """Return the probability of each reading frame: (bases, 7) classes of CODING_FRAME -> (bases, 6).

    Parameters
    ----------
    values : (bases, 7)
    places : integers, (bases,): where each base lies on its sequence
    """
    found = np.empty((len(values), 6), dtype=values.dtype)
    phase = (places % 3).astype(np.intp)
    for remainder in range(3):
        rows = np.flatnonzero(phase == remainder)
        for frame in range(3):
            found[rows, frame] = values[rows, 1 + (remainder - frame) % 3]
            found[rows, 3 + frame] = values[rows, 4 + (frame - remainder) % 3]
    return found
