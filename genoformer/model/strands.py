"""Predictions averaged over both strands: a function around the model."""

from __future__ import annotations

import torch
from torch import Tensor

from genoformer.model.genoformer import Genoformer
from genoformer.model.shared import Context, in_context
from genoformer.tokens import COMPLEMENT, PAD


def reverse_rows(values: Tensor, lengths: Tensor) -> Tensor:
    """Reverse each row within its own length; what lies behind stays: (B, L) or (B, L, C), (B,)."""
    position = torch.arange(values.shape[1], device=values.device)[None, :]
    index = torch.where(position < lengths[:, None], lengths[:, None] - 1 - position, position)
    if values.ndim == 3:
        index = index[..., None].expand_as(values)
    return values.gather(1, index)


def reverse_complement_rows(codes: Tensor) -> Tensor:
    """Return the opposite strand of each row (B, L), padding behind it."""
    complement = torch.as_tensor(COMPLEMENT, device=codes.device)[codes.long()]
    return reverse_rows(complement, (codes != PAD).sum(dim=1))


@torch.inference_mode()
def predict_values(
    model: Genoformer,
    codes: Tensor,
    *,
    genetic_code: int | Tensor = 11,
    chunk_size: int | None = None,
    strand_average: bool = True,
    precision: str = "float32",
    context: Context | None = None,
) -> dict[str, Tensor]:
    """Predict the values of every track: probabilities of classes, or signals.

    With ``strand_average`` the mean of the predictions for both strands is returned, so that a sequence and its
    reverse complement get mirrored values; each track says which channel becomes which.

    Parameters
    ----------
    model : in eval mode
    codes : Tensor of uint8, (B, L), PAD behind shorter sequences
    genetic_code, chunk_size : see `Genoformer.forward`
    precision : "float32", or "bfloat16" for the products of the layers
    context : of the organism that all are of, see `genoformer.model.shared`

    Returns
    -------
    dict from track name to Tensor of float32, (B, L, channels)
    """

    def values(codes: Tensor) -> dict[str, Tensor]:
        with torch.autocast(model.device.type, torch.bfloat16, enabled=precision == "bfloat16"):
            logits = model(codes, genetic_code=genetic_code, chunk_size=chunk_size, place=in_context(context))
        return {name: head.predict(logits[name]) for name, head in model.heads.items()}  # type: ignore[operator]

    forward = values(codes)
    if not strand_average:
        return forward
    lengths = (codes != PAD).sum(dim=1)
    backward = values(reverse_complement_rows(codes))
    for track in model.tracks:
        mirrored = reverse_rows(backward[track.name][..., list(track.reverse_complement)], lengths)
        forward[track.name] = (forward[track.name] + mirrored) / 2
    return forward
