"""Performer: softmax attention through random features, in forms that cannot overflow."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn
from torch.nn import functional

from genoformer.attention.attention import (
    EMPTY,
    Attention,
    LogMean,
    ScaledTotals,
    Summary,
    Totals,
    check_chunk,
    hide,
    in_float,
    pieces,
    unit_norm,
)
from genoformer.attention.features import FEATURES, draw_projection
from genoformer.attention.moments import KEYS, QUERIES, Moments
from genoformer.attention.recompute import Workspace, over_pieces
from genoformer.attention.softmax import attend_with_log_sum, key_bias

_LARGEST_EXPONENT = 32.0
"""exp of twice this, times any number of tokens that fits a machine, is a float32."""
LOG2_E = math.log2(math.e)
"""exp(x) is computed as 2 to this times x: on some processors the power of 2 is by far the faster one."""
_LEAST_ROW = 512
"""Numbers a token that summaries are cut for, at least: on a CPU, pieces of 1,024 tokens at most. Some of its products
add up one term after the other, and of more positive ones would lose digits."""


class Performer(Attention):
    """Linear attention by random features (Choromanski et al. 2020, arXiv 2009.14794): O(T count) time.

    Queries and keys are given norm sqrt(temperature), with one learned temperature a head between 0 and
    ``max_temperature``: random features approximate the softmax only for such small norms. Their exponents are bounded
    then, and the summary is plain sums. At natural norm, exponential features run as two softmax attentions through
    ``count`` latent tokens, exactly, without epsilon and without overflow (README.md, "Performer").

    Parameters
    ----------
    heads, dim : attention heads and dimensions of each
    count : features a head; of no account for the "identity" kinds, which have ``dim``
    features : one of FEATURES
    max_temperature : largest squared norm of queries and keys; None leaves them at their natural norm (scaled by
        dim^-1/4 each, as softmax attention does)
    seed : of the projection, which is saved with the weights

    Raises
    ------
    ValueError : there are no such features, or a number is too small
    """

    projection: Tensor  # (H, M, D), as drawn

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
        if max_temperature is not None and not 0.0 < max_temperature < math.inf:
            raise ValueError(f"max_temperature must be a positive number, or None, got {max_temperature}")
        self.dim, self.features, self.max_temperature = dim, features, max_temperature
        self.count = count
        projection = draw_projection(features, heads=heads, count=count, dim=dim, seed=seed)
        self.kind = FEATURES[features]
        self.register_buffer("projection", projection)
        if max_temperature is not None:
            self.temperature = nn.Parameter(torch.zeros(heads))
        if self.kind.is_tuned:
            self.moments = Moments(heads, dim, squared_norm=max_temperature / 2 if max_temperature else dim**0.5)

    def redraw(self, seed: int) -> None:
        """Draw new features, between training steps. Summaries made before do not fit those made after."""
        heads, _, dim = self.projection.shape
        projection = draw_projection(self.features, heads=heads, count=self.count, dim=dim, seed=seed)
        self.projection.copy_(projection)

    @property
    def is_bounded(self) -> bool:
        """Whether exponents cannot grow large, so that features may be summed as they are."""
        if not self.kind.is_exponential:
            return True
        if self.max_temperature is None or self.kind.is_scaled:
            return False
        largest_row = math.sqrt(self.dim) + 4.0  # no norm of Gaussian numbers is larger in practice
        return 1.5 * largest_row * math.sqrt(self.max_temperature) <= _LARGEST_EXPONENT

    # Queries and keys ------------------------------------------------------------------------------------------------

    @property
    def norm(self) -> Tensor:
        """What queries and keys are multiplied by after they have unit norm, or as they are (H or 1,)."""
        if self.max_temperature is None:
            return self.projection.new_full((1,), self.dim**-0.25)
        # The square root of a sigmoid, whose gradient stays finite where the sigmoid is 0 or 1.
        return self.max_temperature**0.5 * torch.exp(0.5 * functional.logsigmoid(self.temperature))

    def scaled(self, vectors: Tensor) -> Tensor:
        """Return queries or keys (B, H, T, D) as the features see them."""
        unit = vectors if self.max_temperature is None else unit_norm(vectors)
        return unit * self.norm.to(vectors.dtype)[:, None, None]

    def gather_moments(self, vectors: Tensor, side: int, mask: Tensor | None = None) -> None:
        """Let tuned features see queries or keys in training; they change by `Moments.settle` only."""
        if self.kind.is_tuned and self.training:
            with torch.no_grad():
                for piece in pieces(vectors.shape[2]):
                    seen = None if mask is None else mask[:, piece]
                    self.moments.gather(hide(self.scaled(vectors[:, :, piece]), seen), side, seen)

    def tuned_rows(self, side: int, like: Tensor) -> tuple[Tensor, Tensor | None]:
        """Return the rows that meet scaled QUERIES or KEYS (H, M, D), and logarithms of the features' weights (H, M)
        where these are not all 1.
        """
        rows = self.projection.to(like.dtype)
        if not self.kind.is_tuned:
            return rows, None
        balance = self.moments.balance() if self.kind.is_scaled else torch.ones_like(self.moments.square[0])
        damping = self.moments.damping(balance).to(like.dtype)[:, None]  # (H, 1)
        log_weight = damping * rows.square().sum(dim=-1) + torch.log1p(-4 * damping) * self.dim / 4
        balance = balance.to(like.dtype)[:, None]  # (H, 1, D)
        return rows * (1 - 4 * damping[..., None]).sqrt() * (balance if side == QUERIES else 1 / balance), log_weight

    def rows(self, side: int, like: Tensor) -> tuple[Tensor, Tensor | None]:
        """Return what `tuned_rows` does, with the norm of queries or keys in the rows, which then meet unit vectors."""
        rows, log_weight = self.tuned_rows(side, like)
        return rows * self.norm.to(like.dtype)[:, None, None], log_weight

    def for_phi(self, rows: Tensor, log_weight: Tensor | None) -> tuple[Tensor, Tensor | None]:
        """Return what `rows` does as `phi` takes it, with exponents of 2 where there are any: see `LOG2_E`."""
        if not self.kind.is_exponential:
            return rows, log_weight
        return rows * LOG2_E, None if log_weight is None else log_weight * LOG2_E

    def phi(self, vectors: Tensor, rows: Tensor, log_weight: Tensor | None, out: Tensor | None = None) -> Tensor:
        """Return the features (B, H, T, M) of queries or keys (B, H, T, D), up to a factor common to all tokens.

        Of bounded exponential features the factor is exp(-temperature / 2) / sqrt(M). ``rows`` and ``log_weight`` are
        those of `for_phi`. ``out`` is memory to work in, of no use in a differentiation.
        """
        unit = vectors if self.max_temperature is None else unit_norm(vectors)
        batch, heads, tokens, _ = unit.shape
        right = rows.transpose(1, 2).expand(batch, -1, -1, -1).flatten(0, 1)
        projected = torch.bmm(unit.flatten(0, 1), right, out=out).view(batch, heads, tokens, rows.shape[1])
        if self.kind.function is not None:
            return self.kind.function(projected)
        if self.kind.rows == "waves":
            return torch.cat([projected.cos(), projected.sin()], dim=-1)
        return (projected if log_weight is None else projected.add_(log_weight[:, None])).exp2_()

    # Summaries -------------------------------------------------------------------------------------------------------

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
        self.gather_moments(keys, KEYS, mask)
        if not self.is_bounded:
            return self._log_mean(keys, values, mask)
        if self.kind.rows == "waves" and self.max_temperature is None:
            half = self._half_square(keys)  # (B, H, T)
            half = half if mask is None else half.masked_fill(~mask[:, None], EMPTY)
            scale = half.detach().amax(dim=-1, keepdim=True) if half.shape[-1] else half.new_full((1, 1, 1), EMPTY)
            scale = scale.expand(*keys.shape[:2], 1)
            return ScaledTotals(self._totals(keys, values, mask, scale), scale)
        return self._totals(keys, values, mask, None)

    def attend(self, queries: Tensor, summary: Summary, *, start: int = 0) -> Tensor:
        kind, queries = queries.dtype, in_float(queries)
        self.gather_moments(queries, QUERIES)
        if isinstance(summary, LogMean):
            return self._through(queries, summary).to(kind)
        totals = summary.totals if isinstance(summary, ScaledTotals) else summary
        assert isinstance(totals, Totals)

        rows, log_weight = self.for_phi(*self.rows(QUERIES, queries))
        work = Workspace(queries, rows)
        # A summary without any key is all zeros. Then 0 / 1 = 0 is answered, with finite gradients; of exponentials no
        # other sum is zero.
        always = self.kind.is_exponential
        keys = totals.keys
        keys = keys.masked_fill((keys == 0).all(dim=-1, keepdim=True), 1.0) if always else keys
        counted = torch.cat([totals.values, keys[..., None]], dim=-1)  # (B, H, M, D + 1): one product for both

        def answer(piece: slice, queries: Tensor, rows: Tensor, counted: Tensor, out: Tensor | None) -> tuple[Tensor]:
            answered = self.phi(queries, rows, log_weight, work.of(queries)) @ counted
            total = answered[..., -1:]
            total = total if always else total.masked_fill(total == 0, 1.0)
            return (torch.div(answered[..., :-1], total, out=out),)

        row, width = totals.keys.numel(), totals.values.shape[3]
        return over_pieces(answer, [queries], [rows, counted], join="cat", row=row, width=width)[0].to(kind)

    def _totals(self, keys: Tensor, values: Tensor, mask: Tensor | None, log_scale: Tensor | None) -> Totals:
        rows, log_weight = self.for_phi(*self.rows(KEYS, keys))
        work = Workspace(keys, rows)

        def add_up(piece: slice, keys: Tensor, values: Tensor, rows: Tensor) -> tuple[Tensor, Tensor]:
            phi = self.phi(keys, rows, log_weight, work.of(keys))
            if log_scale is not None:
                phi = phi * (self._half_square(keys) - log_scale).exp()[..., None]
            phi = phi if mask is None else phi.masked_fill(~mask[:, None, piece, None], 0.0)
            return phi.sum(dim=2), phi.transpose(2, 3) @ values

        row = max(keys.shape[0] * keys.shape[1] * self.count, _LEAST_ROW)
        sums, weighted = over_pieces(add_up, [keys, values], [rows], join="sum", row=row)
        return Totals(sums, weighted, sums.new_zeros(1, 1, 1))

    def _half_square(self, vectors: Tensor) -> Tensor:
        """Half the squared norm of queries or keys as the features see them, at natural norm (B, H, T)."""
        return vectors.square().sum(dim=-1) * (0.5 * self.dim**-0.5)

    def _log_mean(self, keys: Tensor, values: Tensor, mask: Tensor | None) -> LogMean:
        rows, log_weight = self.rows(KEYS, keys)
        hidden = key_bias(keys, mask)
        balance = self.moments.balance().to(keys.dtype)[:, None] if self.kind.is_scaled else None

        def attend(piece: slice, keys: Tensor, values: Tensor, rows: Tensor, norm: Tensor) -> tuple[Tensor, Tensor]:
            unit = keys if self.max_temperature is None else unit_norm(keys)
            seen = unit if balance is None else unit / balance
            bias = -0.5 * norm.square()[:, None] * seen.square().sum(dim=-1)  # (B, H, T)
            bias = bias if hidden is None else bias + hidden[:, :, piece]
            found = attend_with_log_sum(rows.expand(len(keys), -1, -1, -1), unit, values, bias)
            return found.log_sum, found.mean

        whole = [rows, self.norm.to(keys.dtype)]
        log_sum, mean = over_pieces(attend, [keys, values], whole, join="log", row=0)
        return LogMean(log_sum if log_weight is None else log_sum + log_weight, mean)

    def _through(self, queries: Tensor, summary: LogMean) -> Tensor:
        rows, log_weight = self.rows(QUERIES, queries)
        bias = summary.log_sum if log_weight is None else summary.log_sum + log_weight

        def attend(piece: slice, queries: Tensor, rows: Tensor, mean: Tensor, bias: Tensor) -> tuple[Tensor]:
            unit = queries if self.max_temperature is None else unit_norm(queries)
            return (attend_with_log_sum(unit, rows.expand(len(unit), -1, -1, -1), mean, bias).mean,)

        return over_pieces(attend, [queries], [rows, summary.mean, bias], join="cat", row=0)[0]


def performers(module: nn.Module) -> list[Performer]:
    """Return every Performer inside a module, in its order."""
    return [part for part in module.modules() if isinstance(part, Performer)]


def redraw_features(module: nn.Module, seed: int) -> None:
    """Draw new features for every Performer inside a module, between training steps; the same for the same seed."""
    for index, performer in enumerate(performers(module)):
        performer.redraw(1000 * seed + index)


def settle_moments(module: nn.Module, *, momentum: float) -> None:
    """Let tuned features follow the queries and keys seen since the last time: see `Moments.settle`."""
    for performer in performers(module):
        if performer.kind.is_tuned:
            performer.moments.settle(momentum=momentum)
