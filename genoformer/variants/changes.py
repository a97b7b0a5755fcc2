"""What other bases change of a model's inputs: the letters themselves, and how far open frames reach around them."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from genoformer.model.encoder import LETTERS
from genoformer.model.genoformer import Genoformer

_WIDEST, _AROUND, _PIECE = 4, 9, 24
"""Bases that may change, those to each side that tell of their codons, and both with some to spare."""
_FLANK = 500
"""Bases to each side among which most open frames end."""


class Change(NamedTuple):
    """Inputs that are others than before, from the first to the last of them."""

    start: int
    """first base"""
    inputs: Tensor
    """(bases, channels)"""

    @property
    def end(self) -> int:
        """Return the base behind the last one."""
        return self.start + len(self.inputs)


def changes(
    model: Genoformer, haplotypes: Tensor, codes: Tensor, inputs: Tensor, *, genetic_code: int = 11
) -> list[Change]:
    """Return what each haplotype of a window changes of its inputs.

    All inputs but the letters follow from where there are stop codons. If those around the changed bases are the same,
    which is seen in a short piece, so are the inputs everywhere: they are not computed again.

    Parameters
    ----------
    haplotypes : uint8, (n, L): the window with other bases
    codes, inputs : of the window as it was: uint8, (L,), and (L, channels), of `Genoformer.sequence`

    Returns
    -------
    list of Change; of a haplotype that changes nothing, its first base
    """
    spans = [_span(np.flatnonzero(row)) for row in (haplotypes != codes).cpu().numpy()]
    near = _with_the_same_stops(model, haplotypes, codes, spans, genetic_code)
    found: dict[int, Change] = {}
    for row in near:
        first, last = spans[row]
        own = inputs[first:last].clone()
        letters = torch.arange(LETTERS, device=codes.device)
        own[:, :LETTERS] = (haplotypes[row, first:last, None] == letters).to(own)
        found[row] = Change(first, own)
    left = [row for row in range(len(haplotypes)) if row not in found]
    found |= _by_pieces(
        model, haplotypes, codes, inputs, spans={row: spans[row] for row in left}, genetic_code=genetic_code
    )
    far = [row for row in left if row not in found]
    if far:
        all_inputs = model.sequence(haplotypes[far], genetic_code=genetic_code).bases
        is_changed = (all_inputs != inputs).any(dim=2).cpu().numpy()
        for row, theirs, changed in zip(far, all_inputs, is_changed, strict=True):
            first, last = _span(np.flatnonzero(changed))
            found[row] = Change(first, theirs[first:last].clone())
    return [found[row] for row in range(len(haplotypes))]


def _by_pieces(
    model: Genoformer,
    haplotypes: Tensor,
    codes: Tensor,
    inputs: Tensor,
    *,
    spans: dict[int, tuple[int, int]],
    genetic_code: int,
) -> dict[int, Change]:
    """Return the changes of haplotypes that end within a piece around the changed bases.

    A stretch that reaches beyond the piece would change up to its edge, so what changes inside lies between two stops
    there, and is as in the whole window. Where nothing changes, the inputs are those of the window.
    """
    size = 2 * _FLANK
    narrow = [row for row, (first, last) in spans.items() if last - first <= _FLANK]
    if len(codes) <= size or not narrow:
        return {}
    starts = torch.tensor([sum(spans[row]) // 2 - _FLANK for row in narrow], device=codes.device)
    starts = starts.clamp(0, len(codes) - size)
    alone, which = starts.unique(return_inverse=True)
    within = torch.arange(size, device=codes.device)
    pieces = torch.cat([haplotypes[narrow].gather(1, starts[:, None] + within), codes[alone[:, None] + within]])
    theirs, ours = model.sequence(pieces, genetic_code=genetic_code).bases.split([len(narrow), len(alone)])
    differs = theirs != ours[which]
    found = {}
    for row, start, new, is_new, places in zip(
        narrow, starts.tolist(), theirs, differs, differs.any(dim=2).cpu().numpy(), strict=True
    ):
        first, last = _span(np.flatnonzero(places))
        if (first > 0 or start == 0) and (last < size or start + size == len(codes)):
            old = inputs[start + first : start + last]
            found[row] = Change(start + first, torch.where(is_new[first:last], new[first:last], old))
    return found


def _span(places: np.ndarray) -> tuple[int, int]:
    """Return where rising places begin and end; the first base if there are none."""
    return (int(places[0]), int(places[-1]) + 1) if len(places) else (0, 1)


def _with_the_same_stops(
    model: Genoformer, haplotypes: Tensor, codes: Tensor, spans: list[tuple[int, int]], genetic_code: int
) -> list[int]:
    """Return the haplotypes whose changed bases are few and leave the stop codons around them as they are."""
    narrow = [row for row, (first, last) in enumerate(spans) if last - first <= _WIDEST]
    if len(codes) < _PIECE or not narrow:
        return []
    starts = torch.tensor([spans[row][0] - _AROUND for row in narrow], device=codes.device)
    index = starts.clamp(0, len(codes) - _PIECE)[:, None] + torch.arange(_PIECE, device=codes.device)
    pieces = torch.cat([haplotypes[narrow].gather(1, index), codes[index]])
    is_same = torch.ones(len(narrow), dtype=torch.bool, device=codes.device)
    for derived in model.derived(pieces, genetic_code):
        theirs, ours = derived.chunk(2)
        is_same &= (theirs == ours).flatten(1).all(dim=1)
    return [row for row, same in zip(narrow, is_same.tolist(), strict=True) if same]
