"""Heads: from the features of a base to the values of a track, and the loss to train them by."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence

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
    """Real values: targets (B, L, channels), NaN where a base must not count.

    Logits are in units of `scale` from `center`, so that signals of any size are learned alike; what is predicted is in
    the units of the targets.

    Attributes
    ----------
    center, scale : Tensor (channels,): mean and standard deviation of the training data; saved with the weights
    """

    center: Tensor
    scale: Tensor

    def __init__(self, features: int, track: Track) -> None:
        super().__init__(features, track)
        self.register_buffer("center", torch.zeros(len(track.channels)))
        self.register_buffer("scale", torch.ones(len(track.channels)))

    def standardize(self, center: Sequence[float], scale: Sequence[float]) -> None:
        """Set mean and standard deviation of each channel."""
        if not all(math.isfinite(value) for value in center) or not all(0 < value < math.inf for value in scale):
            raise ValueError(f"expected finite means and standard deviations above 0, got {center} and {scale}")
        self.center.copy_(torch.tensor(center, dtype=torch.float64))
        self.scale.copy_(torch.tensor(scale, dtype=torch.float64))

    def squared_error(self, logits: Tensor, target: Tensor) -> Tensor:
        """Return the squared error in units of `scale`, 0 where the target is NaN: of the targets' shape."""
        error = logits - (target.nan_to_num() - self.center) / self.scale
        return torch.where(torch.isfinite(target), error, 0.0).square()

    def loss(self, logits: Tensor, target: Tensor, mask: Tensor | None = None) -> Tensor:
        counts = torch.isfinite(target)
        if mask is not None:
            counts = counts & mask[..., None]
        error = self.squared_error(logits, target.masked_fill(~counts, math.nan))
        return error.sum() / counts.sum().clamp_min(1)

    def predict(self, logits: Tensor) -> Tensor:
        return logits * self.scale + self.center


class Heads(nn.ModuleDict):
    """Heads by the names of their tracks, which may be words that a module has for itself, such as "type"."""

    def __setitem__(self, name: str, head: nn.Module) -> None:
        self._modules[name] = head


HEADS: dict[str, type[Head]] = {"class": ClassHead, "signal": SignalHead}
"""Head of each kind of track."""
