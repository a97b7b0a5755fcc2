"""Which genetic code an input uses: told by how often the codon TGA stands for tryptophan in predicted genes."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
import torch

from genoformer.formats.sequences import Sequences
from genoformer.model.device import CPU_CHUNK
from genoformer.model.genoformer import Genoformer
from genoformer.model.strands import predict_values
from genoformer.plan import Plan
from genoformer.sampling import SAMPLE_BASES, sample
from genoformer.tokens import PAD, A, G, T, reverse_complement
from genoformer.tracks import CODING_FRAME

_MARGIN = 30  # bases of clear coding wanted on both sides of a codon
_FEWEST_CODONS, _FEWEST_TGA = 1_000, 5
_THRESHOLD = 0.25
"""Share of TGA among TGA and TGG well inside genes, where TGA is taken for a stop. With code 11 read errors alone make
some of it: 0 to 0.03 in genomes, up to 0.15 in reads with 5 or 8% errors. With code 4 it is tryptophan, as TGG is: in
Mycoplasma mycoides 0.8 to 0.97, and 0.4."""


def choose_genetic_code(choice: str, plan: Plan, sequences: Sequences, model: Genoformer) -> tuple[int, str]:
    """Return the genetic code to use and why.

    Parameters
    ----------
    choice : "auto", or the number of an NCBI translation table
    plan, sequences, model : what will be predicted, and by what
    """
    if choice != "auto":
        return int(choice), "as asked"
    if CODING_FRAME.name not in model.heads:
        return 11, "the default"
    return detect_genetic_code(sample(plan, sequences, model), model)


def _batches(samples: list[np.ndarray]) -> Iterator[list[np.ndarray]]:
    """Yield samples together, as many as make a window with the padding that they need."""
    batch: list[np.ndarray] = []
    for codes in samples:
        if batch and (len(batch) + 1) * max(len(codes), *map(len, batch)) > SAMPLE_BASES:
            yield batch
            batch = []
        batch.append(codes)
    if batch:
        yield batch


class Inner(NamedTuple):
    """Codons well inside predicted genes."""

    codons: int
    tga: int
    tgg: int

    def plus(self, other: Inner) -> Inner:
        return Inner(*(mine + its for mine, its in zip(self, other, strict=True)))


def count_inner(codes: np.ndarray, frames: np.ndarray) -> Inner:
    """Count codons that lie well inside predicted genes of the + strand.

    Parameters
    ----------
    codes : uint8, (bases,)
    frames : predicted class of CODING_FRAME, (bases,)
    """
    if len(codes) < 2 * _MARGIN + 3:
        return Inner(0, 0, 0)
    in_frame = (frames[:-2] == 1) & (frames[1:-1] == 2) & (frames[2:] == 3)
    # position i begins a codon; it counts if the codons _MARGIN bases before and behind are in frame too
    inside = in_frame[_MARGIN:-_MARGIN] & in_frame[: -2 * _MARGIN] & in_frame[2 * _MARGIN :]
    starts = np.flatnonzero(inside) + _MARGIN
    third = codes[starts + 2][(codes[starts] == T) & (codes[starts + 1] == G)]
    return Inner(len(starts), int((third == A).sum()), int((third == G).sum()))


def detect_genetic_code(samples: list[np.ndarray], model: Genoformer) -> tuple[int, str]:
    """Tell code 4 (TGA is tryptophan) from code 11 (TGA is a stop), and say by what.

    Genes are predicted as if TGA were a stop. If it is none, genes are still seen beside and behind it, as they are
    behind the stops that read errors make; and it is as frequent as tryptophan is.
    """
    found = Inner(0, 0, 0)
    mirror = np.array(CODING_FRAME.reverse_complement)
    for batch in _batches(samples):
        rows = np.full((len(batch), max(map(len, batch))), PAD, dtype=np.uint8)
        for row, codes in zip(rows, batch, strict=True):
            row[: len(codes)] = codes
        predicted = predict_values(
            model, torch.from_numpy(rows), genetic_code=11, chunk_size=CPU_CHUNK, strand_average=False
        )[CODING_FRAME.name]
        for codes, values in zip(batch, predicted.argmax(dim=-1).cpu().numpy(), strict=True):
            frames = values[: len(codes)]
            for strand, classes in ((codes, frames), (reverse_complement(codes), mirror[frames[::-1]])):
                found = found.plus(count_inner(strand, classes))
    if found.codons < _FEWEST_CODONS:
        return 11, f"the default: too few clear genes to tell it from, {found.codons} codons"
    both = found.tga + found.tgg
    is_4 = found.tga >= _FEWEST_TGA and found.tga > _THRESHOLD * both
    return (4 if is_4 else 11), f"TGA is {found.tga:,} of {both:,} codons TGA and TGG inside genes"
