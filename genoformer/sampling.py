"""A sample of an input, to tell by it what all of it has in common."""

from __future__ import annotations

import numpy as np

from genoformer.formats.sequences import Sequences
from genoformer.model.genoformer import Genoformer
from genoformer.plan import Plan, records_of
from genoformer.tokens import encode

SAMPLE_WINDOWS, SAMPLE_BASES = 4, 50_000
MOST_RECORDS = 500
"""Short sequences that are looked at, if they have fewer bases than the windows."""


def sample(plan: Plan, sequences: Sequences, model: Genoformer, *, windows: int = SAMPLE_WINDOWS) -> list[np.ndarray]:
    """Return codes of up to so many stretches of the longest sequences, SAMPLE_BASES or what the model sees at once.

    Where these are short, more sequences are taken, until there are as many bases as in full windows.
    """
    most = SAMPLE_BASES if model.most_bases is None else min(SAMPLE_BASES, model.most_bases)
    lengths = np.where(np.array(plan.sequences.status) == "pending", plan.sequences.lengths, 0)
    order = np.argsort(-lengths, kind="stable")[:MOST_RECORDS]
    before = np.cumsum(lengths[order]) - lengths[order]
    wanted = (before < windows * SAMPLE_BASES) | (np.arange(len(order)) < windows)
    longest = [int(i) for i in order[wanted] if lengths[i] > 0]
    each = -(-windows // max(len(longest), 1))
    found: dict[int, list[np.ndarray]] = {}
    for index, record in enumerate(records_of(sequences, plan.chosen_by)):
        if index in longest:
            length = len(record.bases)
            size = min(most, length)
            places = np.linspace(0, length - size, each if length > size else 1).astype(int)
            found[index] = [encode(record.bases[start : start + size]) for start in places]
            if len(found) == len(longest):
                break
    return [codes for index in longest for codes in found.get(index, [])][: max(windows, len(longest))]
