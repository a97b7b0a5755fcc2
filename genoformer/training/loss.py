"""The loss of a step: for each track the mean over all its labels, weighed, and added up over the tracks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from genoformer.model.genoformer import Genoformer
from genoformer.model.heads import Head, SignalHead
from genoformer.tracks import IGNORED
from genoformer.training.config import TrainConfig
from genoformer.training.examples import Batch


def total_weight(labels: np.ndarray, class_weights: Sequence[float] = ()) -> float:
    """Return how many labels count: of classes (uint8) each as much as its class, of signals (float) all but NaN."""
    if labels.dtype != np.uint8:
        return float(np.isfinite(labels).sum())
    weights = np.zeros(256)
    weights[: len(class_weights) or IGNORED] = class_weights or 1.0
    return float(weights @ np.bincount(labels.ravel(), minlength=256))


def summed_loss(
    logits: Tensor, labels: Tensor, *, class_weights: Sequence[float] = (), label_smoothing: float = 0.0
) -> Tensor:
    """Return the cross entropy summed over bases, each as much as its class counts: (B, L, C), (B, L) -> ()."""
    return functional.cross_entropy(
        logits.flatten(0, 1),
        labels.flatten().long(),
        weight=torch.tensor(class_weights, device=logits.device) if class_weights else None,
        ignore_index=IGNORED,
        reduction="sum",
        label_smoothing=label_smoothing,
    )


def labels_that_count(model: Genoformer, windows: Batch, config: TrainConfig) -> dict[str, float]:
    """Return the total weight of the labels of each track of a model, in all windows of a step."""
    return {
        track.name: total_weight(windows.labels[track.name], config.loss_of(track).class_weights)
        for track in model.tracks
    }


def step_loss(
    model: Genoformer,
    logits: Mapping[str, Tensor],
    labels: Mapping[str, np.ndarray],
    *,
    counted: Mapping[str, float],
    config: TrainConfig,
) -> Tensor:
    """Return the part that one pass has in the loss of a step.

    Classes have the cross entropy, signals the squared error in units of their standard deviation, and each track its
    mean over the labels that count in the whole step, times the weight that the configuration gives it.

    Parameters
    ----------
    logits, labels : of the pass, by track
    counted : of `labels_that_count`, over all passes of the step
    """
    parts = []
    for name, head in model.heads.items():
        assert isinstance(head, Head)
        target, counts = torch.from_numpy(labels[name]).to(logits[name].device), config.loss_of(head.track)
        if isinstance(head, SignalHead):
            total = head.squared_error(logits[name], target).sum()
        else:
            smoothing = config.label_smoothing
            total = summed_loss(logits[name], target, class_weights=counts.class_weights, label_smoothing=smoothing)
        parts.append(total / max(counted[name], 1e-9) * counts.weight)
    return torch.stack(parts).sum()
