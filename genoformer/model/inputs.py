"""Inputs derived from the tokens: how far the six reading frames stay free of stop codons around a base."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cache
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import functional

from genoformer.errors import ConfigError
from genoformer.tokens import PAD, A, C, G, N, T

_EDGE = 6  # pads on each side, so that every frame has a codon without any base there
_COMPLEMENT = (T, G, C, A, N, PAD, N)

FARTHEST = 255
"""Codons beyond which `stop_distances` tells no more."""

MARGIN = 2
"""Bases to each side of a piece that its codons reach into."""


class Around(NamedTuple):
    """What of a sequence lies beyond a piece, as far as the inputs of the piece depend on it.

    Codons are told by the position of their left end, and are of the frame that this leaves over 3.

    Attributes
    ----------
    start, length : position of the piece's first base; bases of the whole sequence
    before : int64, (2 strands, 3 frames): the last stop codon before ``start - MARGIN``, `NONE` where there is none
    after : int64, (2 strands, 3 frames): the first one that does not touch the piece on its right, or `FAR`
    """

    start: int
    length: int
    before: Tensor
    after: Tensor


NONE, FAR = -(1 << 40), 1 << 40
"""Positions that stand for no stop codon before, and behind."""


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


def _codons(codes: Tensor, stops: Tensor) -> Iterator[tuple[int, Tensor, Tensor]]:
    """Yield for each strand: +1 or -1, and which codons are stops and which have no base, bool (B, n, 3 frames).

    Codon (i, frame) has its left end at base 3 i + frame - `_EDGE`, on either strand.
    """
    batch, length = codes.shape
    stops = stops.to(codes.device).expand(batch, 64)
    padded = functional.pad(codes.to(torch.int64), (_EDGE, _EDGE + (-length) % 3), value=PAD)
    a, b, c = padded[:, :-2], padded[:, 1:-1], padded[:, 2:]
    complement = torch.tensor(_COMPLEMENT, device=codes.device)
    whole = a.shape[1] - a.shape[1] % 3
    outside = ((a == PAD) & (b == PAD) & (c == PAD))[:, :whole].view(batch, -1, 3)
    for strand in (+1, -1):
        stop = _is_stop(a, b, c, stops) if strand > 0 else _is_stop(complement[c], complement[b], complement[a], stops)
        yield strand, stop[:, :whole].view(batch, -1, 3), outside


def _by_position(codons: Tensor, strand: int, length: int) -> list[Tensor]:
    """Return values of codons (B, 3 n) as those of bases (B, L), for codon positions 0, 1 and 2 of a base."""
    # a base that is codon position j lies j bases after the codon's left end, on - 2 - j
    firsts = [_EDGE - (position if strand > 0 else 2 - position) for position in range(3)]
    return [codons[:, first : first + length] for first in firsts]


class _Beyond(NamedTuple):
    """Indices of the nearest marked codons outside those at hand: int32 (3 frames,), as of `_codons`."""

    before: Tensor
    after: Tensor


def _none_beyond(marked: Tensor, codons: int = 0) -> _Beyond:
    """Return places so many codons outside of those at hand."""
    ends = torch.tensor([-1 - codons, marked.shape[1] + codons], dtype=torch.int32, device=marked.device)
    return _Beyond(ends[:1].expand(3), ends[1:].expand(3))


def _beyond(marked: Tensor, around: Around, strand: int, *, ends_count: bool) -> _Beyond:
    """Return the places of the codons that lie beyond a piece; ``ends_count``: what has no base is marked, too."""
    codon = torch.arange(3) + around.start - MARGIN - _EDGE  # position of each frame's first one
    side = 0 if strand > 0 else 1
    before, after = (codons[side][codon % 3] for codons in (around.before, around.after))
    if ends_count:
        before = torch.maximum(before, -3 - (-3 - codon) % 3)
        after = torch.minimum(after, around.length + (codon - around.length) % 3)
    most = 1 << 30  # of int32
    places = ((place - codon) // 3 for place in (before, after))
    return _Beyond(*(place.clamp(-most, most).to(marked.device, torch.int32) for place in places))


def _nearest(marked: Tensor, beyond: _Beyond) -> tuple[Tensor, Tensor, Tensor]:
    """Return the index of each codon, and of the last marked one up to it and the first from it on: int (B, n, 3)."""
    index = torch.arange(marked.shape[1], device=marked.device, dtype=torch.int32)[None, :, None]
    before = torch.where(marked, index, beyond.before).cummax(dim=1).values
    after = torch.where(marked, index, beyond.after).flip(1).cummin(dim=1).values.flip(1)
    return index, before, after


def _open_codons(closed: Tensor, beyond: _Beyond, *, from_left: bool) -> Tensor:
    """Count the codons of each stretch, the closing codon included: bool (B, n, 3 frames) -> int (B, n, 3).

    ``from_left``: stretches are read left to right, so that the closing codon is the last of its stretch.
    """
    _, before, after = _nearest(closed, beyond)
    batch = len(closed)
    if from_left:
        return after - torch.cat([beyond.before.expand(batch, 1, 3), before], dim=1)[:, :-1]
    return torch.cat([after, beyond.after.expand(batch, 1, 3)], dim=1)[:, 1:] - before


def open_frames(codes: Tensor, stops: Tensor, around: Around | None = None) -> Tensor:
    """Tell, for each base, how long the stop-free stretch around it is if it were codon position j of a strand.

    Channel j (0-2) is codon position j on +, channel 3 + j codon position j on -: in step with the classes of
    CODING_FRAME. A stretch reaches from after one stop codon through the next; the ends of the sequence close it.
    On the opposite strand the channels change places exactly as CODING_FRAME's classes do.

    Parameters
    ----------
    codes : Tensor of uint8, (B, L), padded with PAD behind each sequence
    stops : Tensor of bool, (B, 64) or (64,); which codons are stops: see `stop_codons`
    around : given for a piece of one sequence; codes are then of the piece and of MARGIN bases to each side, PAD where
        the sequence ends, and the result is that of the piece

    Returns
    -------
    Tensor of float32, (B, L, 6): (log2 of the codons - 5) / 2; 0 at padding
    """
    length = codes.shape[1]
    channels = []
    for strand, stop, outside in _codons(codes, stops):
        closed = stop | outside if around is None else stop
        beyond = _none_beyond(closed) if around is None else _beyond(closed, around, strand, ends_count=True)
        codons = _open_codons(closed, beyond, from_left=strand > 0).flatten(1)
        channels += _by_position(codons, strand, length)
    lengths = torch.stack(channels, dim=-1).clamp_min(1).to(torch.float32)
    return _of_piece(((lengths.log2() - 5.0) / 2.0) * (codes != PAD)[..., None], around)


def _of_piece(values: Tensor, around: Around | None) -> Tensor:
    return values if around is None else values[:, MARGIN : values.shape[1] - MARGIN]


def stop_distances(codes: Tensor, stops: Tensor, around: Around | None = None) -> Tensor:
    """Tell, for each base, how far the next stop codon is to each side, for each codon position and strand.

    Channels 0-5 look downstream, as the strand is read, channels 6-11 upstream; within the six they are in step with
    the classes of CODING_FRAME, as those of `open_frames`, and change places as these do on the opposite strand. An
    end of the sequence is no stop: where none comes, the distance is the greatest. So what an insertion or deletion
    breaks is told apart from what lies on the base's own side of it, and the ends of a read are not taken for stops.

    Parameters
    ----------
    codes, stops, around : see `open_frames`

    Returns
    -------
    Tensor of float32, (B, L, 12): (log2 of 1 + the codons from the base's own to the stop, `FARTHEST` at most, - 4)
    / 2, so from -2 in a stop to 2 where there is none; 0 at padding
    """
    length = codes.shape[1]
    sides: tuple[list[Tensor], list[Tensor]] = ([], [])
    for strand, stop, _ in _codons(codes, stops):
        beyond = _none_beyond(stop, FARTHEST) if around is None else _beyond(stop, around, strand, ends_count=False)
        index, before, after = _nearest(stop, beyond)
        left, right = (index - before).flatten(1), (after - index).flatten(1)
        for channels, codons in zip(sides, (right, left) if strand > 0 else (left, right), strict=True):
            channels += _by_position(codons, strand, length)
    codons = torch.stack([*sides[0], *sides[1]], dim=-1).clamp_max(FARTHEST).to(torch.float32)
    return _of_piece((((codons + 1.0).log2() - 4.0) / 2.0) * (codes != PAD)[..., None], around)


class Input(NamedTuple):
    """An input derived from the tokens."""

    channels: int
    compute: Callable[..., Tensor]
    """from codes (B, L), stops (B, 64) or (64,), and of a piece ``around``, to (B, L, channels) float32"""


INPUTS: dict[str, Input] = {"open-frames": Input(6, open_frames), "stop-distances": Input(12, stop_distances)}
"""The inputs that a model can have beside the tokens, by the names of genoformer.config.INPUTS."""
