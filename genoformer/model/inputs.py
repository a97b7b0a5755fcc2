"""Inputs derived from the tokens: how long each of the six reading frames stays open around a base."""

from __future__ import annotations

from functools import cache

import torch
from torch import Tensor
from torch.nn import functional

from genoformer.errors import ConfigError
from genoformer.tokens import PAD, A, C, G, N, T

_EDGE = 6  # pads on each side, so that every frame has a codon without any base there
_COMPLEMENT = (T, G, C, A, N, PAD, N)


@cache
def stop_codons(genetic_code: int) -> Tensor:
    """Return which of the 64 codons are stops in an NCBI translation table: bool (64,), indexed 16 a + 4 b + c.

    Raises
    ------
    ConfigError : there is no such table
    """
    from Bio.Data import CodonTable

    if genetic_code not in CodonTable.unambiguous_dna_by_id:
        known = ", ".join(str(number) for number in sorted(CodonTable.unambiguous_dna_by_id))
        raise ConfigError(f"genetic code {genetic_code} is not one of NCBI's: {known}")
    is_stop = torch.zeros(64, dtype=torch.bool)
    for codon in CodonTable.unambiguous_dna_by_id[genetic_code].stop_codons:
        a, b, c = ("ACGT".index(letter) for letter in codon)
        is_stop[16 * a + 4 * b + c] = True
    return is_stop


def _is_stop(first: Tensor, second: Tensor, third: Tensor, stops: Tensor) -> Tensor:
    """Tell whether codons (B, n), as three arrays of codes, are stops by the table (B, 64) of each row."""
    known = (first < N) & (second < N) & (third < N)
    index = torch.where(known, 16 * first + 4 * second + third, 0)
    return stops.gather(1, index) & known


def _open_codons(closed: Tensor, *, from_left: bool) -> Tensor:
    """Count the codons of each stretch, the closing codon included: bool (B, n, 3 frames) -> int (B, n, 3).

    ``from_left``: stretches are read left to right, so that the closing codon is the last of its stretch.
    """
    count = closed.shape[1]
    index = torch.arange(count, device=closed.device, dtype=torch.int32)[None, :, None]
    before = torch.where(closed, index, -1).cummax(dim=1).values  # last closed codon so far, this one included
    after = torch.where(closed, index, count).flip(1).cummin(dim=1).values.flip(1)  # first one from here on
    if from_left:
        return after - functional.pad(before, (0, 0, 1, 0), value=-1)[:, :-1]
    return functional.pad(after, (0, 0, 0, 1), value=count)[:, 1:] - before


def open_frames(codes: Tensor, stops: Tensor) -> Tensor:
    """Tell, for each base, how long the stop-free stretch around it is if it were codon position j of a strand.

    Channel j (0-2) is codon position j on +, channel 3 + j codon position j on -: in step with the classes of
    CODING_FRAME. A stretch reaches from after one stop codon through the next; the ends of the sequence close it.
    On the opposite strand the channels change places exactly as CODING_FRAME's classes do.

    Parameters
    ----------
    codes : Tensor of uint8, (B, L), padded with PAD behind each sequence
    stops : Tensor of bool, (B, 64) or (64,); which codons are stops: see `stop_codons`

    Returns
    -------
    Tensor of float32, (B, L, 6): (log2 of the codons - 5) / 2; 0 at padding
    """
    batch, length = codes.shape
    stops = stops.to(codes.device).expand(batch, 64)
    tail = _EDGE + (-length) % 3
    padded = functional.pad(codes.to(torch.int64), (_EDGE, tail), value=PAD)
    a, b, c = padded[:, :-2], padded[:, 1:-1], padded[:, 2:]
    complement = torch.tensor(_COMPLEMENT, device=codes.device)
    outside = (a == PAD) & (b == PAD) & (c == PAD)
    whole = a.shape[1] - a.shape[1] % 3
    is_real = codes != PAD
    channels = []
    for strand in (+1, -1):
        stop = _is_stop(a, b, c, stops) if strand > 0 else _is_stop(complement[c], complement[b], complement[a], stops)
        closed = (stop | outside)[:, :whole].view(batch, -1, 3)
        codons = _open_codons(closed, from_left=strand > 0).reshape(batch, -1)
        for position in range(
            3
        ):  # a base that is codon position j lies j bases after (on -: 2 - j) the codon's left end
            first = _EDGE - (position if strand > 0 else 2 - position)
            channels.append(codons[:, first : first + length])
    lengths = torch.stack(channels, dim=-1).clamp_min(1).to(torch.float32)
    return ((lengths.log2() - 5.0) / 2.0) * is_real[..., None]
