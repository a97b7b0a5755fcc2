"""The measured size of queries and keys, by which tuned random features are stretched or shrunk."""

from __future__ import annotations

from collections.abc import Callable
from typing import Self

import torch
from torch import Tensor, nn

QUERIES, KEYS = 0, 1
_MOST_SCALE = 4.0


class Moments(nn.Module):
    """Means and mean squares of the queries and keys of each head, frozen until `settle`.

    Gathered while the module is in training mode; what is gathered has no influence before `settle` is called, so
    that outputs do not depend on the batch, nor on chunks. Saved with the weights.

    Parameters
    ----------
    heads, dim : attention heads and dimensions of each
    squared_norm : of queries and keys, expected before anything was gathered
    """

    mean: Tensor  # (2, H, D): of queries, of keys
    square: Tensor  # (2, H, D)
    gathered: Tensor  # (2, 2, H, D) float64: sums of both, since the last `settle`
    counted: Tensor  # (2,) vectors in them

    def __init__(self, heads: int, dim: int, *, squared_norm: float) -> None:
        super().__init__()
        self.register_buffer("mean", torch.zeros(2, heads, dim))
        self.register_buffer("square", torch.full((2, heads, dim), squared_norm / dim))
        self.register_buffer("gathered", torch.zeros(2, 2, heads, dim, dtype=torch.float64), persistent=False)
        self.register_buffer("counted", torch.zeros(2, dtype=torch.float64), persistent=False)

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> Self:
        """Move and convert, but keep sums in float64: in half precision they would stall or overflow."""
        sums = {name: getattr(self, name) for name in ("gathered", "counted")}
        super()._apply(fn, recurse)
        for name, kept in sums.items():
            device = getattr(self, name).device
            setattr(self, name, torch.zeros_like(kept, device=device) if kept.is_meta else kept.to(device))
        return self

    @torch.no_grad()
    def gather(self, vectors: Tensor, side: int, mask: Tensor | None = None) -> None:
        """Add scaled queries or keys (B, H, T, D) to what has been gathered, in training mode; else do nothing.

        ``side`` is QUERIES or KEYS. Vectors at which the mask (B, T) is False must be zeros.
        """
        if not self.training:
            return
        count = vectors.shape[0] * vectors.shape[2] if mask is None else int(mask.sum())
        self.gathered[side, 0] += vectors.sum(dim=(0, 2)).double()
        self.gathered[side, 1] += vectors.square().sum(dim=(0, 2)).double()
        self.counted[side] += count

    @torch.no_grad()
    def settle(self, *, momentum: float = 0.0) -> None:
        """Take over what has been gathered since the last time, as ``momentum`` of the old and the rest of the new.

        Every process of a parallel training must call it after the same steps; with torch.distributed set up, they
        settle on the same numbers. Sums that are not finite are left out: one bad step must not spoil all later ones.
        """
        if torch.distributed.is_available() and torch.distributed.is_initialized():
            torch.distributed.all_reduce(self.gathered)
            torch.distributed.all_reduce(self.counted)
        if bool((self.counted > 0).all()) and bool(self.gathered.isfinite().all()):
            new = (self.gathered / self.counted[:, None, None, None]).to(self.mean.dtype)
            self.mean.lerp_(new[:, 0], 1.0 - momentum)
            self.square.lerp_(new[:, 1], 1.0 - momentum)
        self.gathered.zero_()
        self.counted.zero_()

    def balance(self) -> Tensor:
        """Return Psi (H, D): queries times it and keys over it have equal mean squares in every dimension.

        Likhosherstov et al. 2023, arXiv 2302.00787, "SADERF"; kept within a factor of four.
        """
        query, key = self.square.clamp_min(1e-12)
        return (key / query).pow(0.25).clamp(1 / _MOST_SCALE, _MOST_SCALE)

    def damping(self, balance: Tensor) -> Tensor:
        """Return A (H,) of the features exp(A |w|^2 + sqrt(1 - 4 A) w.x - |x|^2/2) with the least mean variance.

        Likhosherstov et al. 2022, arXiv 2205.15317, "OPRF", at the mean |x + y|^2 of independent queries and keys
        """
        query, key = self.mean[QUERIES] * balance, self.mean[KEYS] / balance
        squares = self.square[QUERIES] * balance.square() + self.square[KEYS] / balance.square()
        share = (squares + 2 * query * key).mean(dim=-1).clamp_min(0.0)
        return (1 - 2 * share - ((2 * share + 1).square() + 8 * share).sqrt()) / 16
