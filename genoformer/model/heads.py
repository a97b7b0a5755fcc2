"""Heads: from the features of a base to the values of a track, and the loss to train them by."""

from __future__ import annotations

from abc import ABC, abstractmethod

import torch
from torch import Tensor, nn
from torch.nn import functional

from genoformer.attention.attention import in_float
from genoformer.tracks import IGNORED, Track


class Head(nn.Module, ABC):
    """One track's output layer."""

    def __init__(self, features: int, track: Track) -> None:
        super().__init__()
        self.track = track
        self.output = nn.Linear(features, len(track.channels))

    def forward(self, features: Tensor) -> Tensor:
        """Return logits: (B, L, features) -> (B, L, channels) float32, or float64 of a model in float64."""
        return in_float(self.output(features))

    @abstractmethod
    def loss(self, logits: Tensor, target: Tensor, mask: Tensor | None = None) -> Tensor:
        """Return the mean loss over the bases that count."""

    @abstractmethod
    def predict(self, logits: Tensor) -> Tensor:
        """Turn logits into the track's values, of the same shape."""


class ClassHead(Head):
    """Exclusive classes: targets (B, L) of class numbers, IGNORED where a base must not count."""

    def loss(self, logits: Tensor, target: Tensor, mask: Tensor | None = None) -> Tensor:
        target = target.long()
        if mask is not None:
            target = target.masked_fill(~mask, IGNORED)
        counted = (target != IGNORED).sum().clamp_min(1)
        total = functional.cross_entropy(logits.flatten(0, 1), target.flatten(), ignore_index=IGNORED, reduction="sum")
        return total / counted

    def predict(self, logits: Tensor) -> Tensor:
        return logits.softmax(dim=-1)


class SignalHead(Head):
    """Real values: targets (B, L, channels), NaN where a base must not count."""

    def loss(self, logits: Tensor, target: Tensor, mask: Tensor | None = None) -> Tensor:
        counts = torch.isfinite(target)
        if mask is not None:
            counts = counts & mask[..., None]
        error = torch.where(counts, logits - target.nan_to_num(), 0.0)
        return error.square().sum() / counts.sum().clamp_min(1)

    def predict(self, logits: Tensor) -> Tensor:
        return logits


HEADS: dict[str, type[Head]] = {"class": ClassHead, "signal": SignalHead}
"""Head of each kind of track."""
