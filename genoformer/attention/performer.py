"""Performer: softmax attention through positive random features, in a form that cannot overflow."""

from __future__ import annotations

from functools import reduce
from operator import add

import torch
from torch import Tensor, nn

from genoformer.attention.attention import (
    Attention,
    LogMean,
    Summary,
    Totals,
    check_chunk,
    hide,
    in_float,
    pieces,
    unit_norm,
)
from genoformer.attention.features import draw_projection
from genoformer.attention.softmax import attend_with_log_sum, key_bias

_RELU_EPSILON = 1e-3


class Performer(Attention):
    """Linear attention by random features (Choromanski et al. 2020, arXiv 2009.14794): O(T count) time.

    Exponential features run as two softmax attentions through ``count`` latent tokens (README.md, "Performer"): keys
    and values become one LogMean, exactly, without epsilon and without overflow. "relu" features are plain sums.

    Queries and keys are given norm sqrt(temperature), with one learned temperature a head between 0 and
    ``max_temperature``: random features approximate the softmax only for such small norms.

    Parameters
    ----------
    heads, dim : attention heads and dimensions of each
    count : features a head
    features : "positive", "hyperbolic", "regularized" or "relu"
    max_temperature : largest squared norm of queries and keys; None leaves them at their natural norm (scaled by
        dim^-1/4 each, as softmax attention does)
    seed : of the projection, which is saved with the weights
    """

    projection: Tensor  # (H, M, D)

    def __init__(
        self,
        heads: int,
        dim: int,
        *,
        count: int = 128,
        features: str = "positive",
        max_temperature: float | None = 2.0,
        seed: int = 0,
    ) -> None:
        super().__init__()
        self.dim, self.features, self.max_temperature = dim, features, max_temperature
        projection = draw_projection(features, heads=heads, count=count, dim=dim, seed=seed)
        self.register_buffer("projection", projection)
        if max_temperature is not None:
            self.temperature = nn.Parameter(torch.zeros(heads))

    def redraw(self, seed: int) -> None:
        """Draw new features, between training steps."""
        heads, count, dim = self.projection.shape
        projection = draw_projection(self.features, heads=heads, count=count, dim=dim, seed=seed)
        self.projection.copy_(projection)

    def _scaled(self, vectors: Tensor) -> Tensor:
        if self.max_temperature is None:
            return vectors * self.dim**-0.25
        temperature = self.max_temperature * torch.sigmoid(self.temperature)
        return unit_norm(vectors, temperature.sqrt()[:, None, None])

    def _rows(self, like: Tensor) -> Tensor:
        return self.projection.to(like.dtype).expand(like.shape[0], -1, -1, -1)  # (B, H, M, D)

    def summarize(
        self,
        keys: Tensor,
        values: Tensor,
        *,
        start: int = 0,
        lengths: Tensor | None = None,
        mask: Tensor | None = None,
    ) -> Summary:
        keys, values, mask = check_chunk(keys, values, mask)
        summarize = self._totals if self.features == "relu" else self._log_mean
        parts = (
            summarize(self._scaled(keys[:, :, piece]), values[:, :, piece], None if mask is None else mask[:, piece])
            for piece in pieces(keys.shape[2])
        )
        return reduce(add, parts)

    def attend(self, queries: Tensor, summary: Summary, *, start: int = 0) -> Tensor:
        kind = queries.dtype
        outputs = []
        for piece in pieces(queries.shape[2]):
            scaled = self._scaled(in_float(queries[:, :, piece]))
            if isinstance(summary, Totals):
                outputs.append(self._from_totals(scaled, summary))
            else:
                assert isinstance(summary, LogMean)
                rows = self._rows(scaled)
                outputs.append(attend_with_log_sum(scaled, rows, summary.mean, summary.log_sum).mean)
        return torch.cat(outputs, dim=2).to(kind)

    def _log_mean(self, keys: Tensor, values: Tensor, mask: Tensor | None) -> LogMean:
        bias = -0.5 * keys.square().sum(dim=-1)  # (B, H, T)
        hidden = key_bias(keys, mask)
        return attend_with_log_sum(self._rows(keys), keys, values, bias if hidden is None else bias + hidden)

    def _relu(self, vectors: Tensor) -> Tensor:
        return torch.relu(vectors @ self.projection.to(vectors.dtype).transpose(1, 2)) + _RELU_EPSILON

    def _totals(self, keys: Tensor, values: Tensor, mask: Tensor | None) -> Totals:
        phi = hide(self._relu(keys), mask)  # (B, H, T, M)
        return Totals(phi.sum(dim=2), phi.transpose(2, 3) @ values, phi.new_zeros(1, 1, 1))

    def _from_totals(self, queries: Tensor, summary: Totals) -> Tensor:
        # A summary without any key is all zeros: 0 / 1 = 0, with finite gradients. Otherwise the sum is positive.
        phi = self._relu(queries)
        total = phi @ summary.keys[..., None]  # (B, H, T, 1)
        return phi @ summary.values / total.masked_fill(total <= 0, 1.0)
