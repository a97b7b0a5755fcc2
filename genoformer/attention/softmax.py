"""Exact softmax attention, fused and chunked over keys, and the (output, log-sum-exp) pair that others build on."""

from __future__ import annotations

from collections.abc import Iterable
from functools import reduce
from operator import add
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from genoformer.attention.attention import EMPTY, Attention, LogMean, Segment, Segments, check_chunk, in_float
from genoformer.attention.backward import differentiable_once

_FUSED_TYPES = (torch.float32, torch.float64)


class _FusedSoftmax(torch.autograd.Function):
    """softmax(q k^T + bias + band) v and the log-sum-exp of its rows, through the fused kernel; gradients for all but
    the band."""

    @staticmethod
    def forward(ctx: Any, q: Tensor, k: Tensor, v: Tensor, *biases: Tensor | None) -> tuple[Tensor, Tensor]:
        bias, band = biases
        q, k, v, bias = dense(q), dense(k), dense(v), None if bias is None else dense(bias)
        # Read through strides of 0, one row of biases serves all queries.
        seen = band
        if bias is not None:
            row = bias[:, :, None]
            seen = (row if band is None else row + band).expand(*q.shape[:3], k.shape[2])
        kernel = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu
        out, lse = kernel(q, k, v, 0.0, False, attn_mask=seen, scale=1.0)
        ctx.save_for_backward(q, k, v, bias, band, out, lse)
        return out, lse

    @staticmethod
    @differentiable_once
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        q, k, v, bias, band, out, lse = ctx.saved_tensors
        d_out, d_lse = grads
        # The kernel's score gradient is p (dp - sum(d_out * out)); the log-sum-exp adds p d_lse. One more value
        # dimension carries it: values 0, outputs -1, output gradients d_lse. The bias likewise rides as one more
        # dimension of the keys, met by a 1 in the queries, since the kernel has no gradient for its mask.
        one = torch.ones_like(d_lse)[..., None]
        q = functional.pad(q, (0, 1), value=0.0 if bias is None else 1.0)
        k = functional.pad(k, (0, 1)) if bias is None else torch.cat([k, bias[..., None].expand(*k.shape[:3], 1)], -1)
        v = functional.pad(v, (0, 1))
        out = torch.cat([out, -one], dim=-1)
        d_out = torch.cat([d_out, d_lse[..., None]], dim=-1)
        backward = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu_backward
        d_q, d_k, d_v = backward(d_out, q, k, v, out, lse, 0.0, False, attn_mask=band, scale=1.0)
        d_bias = d_k[..., -1].sum_to_size(bias.shape) if ctx.needs_input_grad[3] else None
        return d_q[..., :-1], d_k[..., :-1], d_v[..., :-1], d_bias, None


def dense(tensor: Tensor) -> Tensor:
    """Return a tensor whose last dimension lies in order: the fused kernel reads it so, whatever its stride."""
    return tensor if tensor.stride(-1) == 1 else tensor.contiguous()


def attend_with_log_sum(
    q: Tensor, k: Tensor, v: Tensor, bias: Tensor | None = None, *, band: Tensor | None = None
) -> LogMean:
    """Compute softmax(q k^T + bias + band) v and the log-sum-exp of the scores, differentiable in all but the band.

    Parameters
    ----------
    q, k, v : Tensor, (B, H, Tq, D), (B, H, Tk, D), (B, H, Tk, D); no scale is applied
    bias : Tensor, (B or 1, H or 1, Tk), added to the scores of each key; EMPTY hides a key, whose value must be 0
    band : Tensor, (Tq, Tk), 0 where a query may see a key, -inf elsewhere; each must be allowed some

    Returns
    -------
    LogMean : log_sum (B, H, Tq), mean (B, H, Tq, D)
    """
    if q.shape[:2] != k.shape[:2] or k.shape[:3] != v.shape[:3]:  # the fused kernel would read past their ends
        raise ValueError(
            "queries, keys and values must have the same batch and heads, and a value a key, "
            f"got {tuple(q.shape)}, {tuple(k.shape)} and {tuple(v.shape)}"
        )
    if k.shape[2] == 0 or q.shape[2] == 0:
        return LogMean(q.new_full(q.shape[:3], EMPTY), q.new_zeros(*q.shape[:3], v.shape[3]))
    if q.device.type != "cpu" or q.dtype not in _FUSED_TYPES:
        scores = q @ k.transpose(-1, -2)  # (B, H, Tq, Tk)
        scores = scores if bias is None else scores + bias[:, :, None]
        scores = scores if band is None else scores + band
        return LogMean(scores.logsumexp(dim=-1), scores.softmax(dim=-1) @ v)
    mean, log_sum = _FusedSoftmax.apply(q, k, v, bias, band)
    return LogMean(log_sum, mean)


def key_bias(keys: Tensor, mask: Tensor | None) -> Tensor | None:
    """Return EMPTY at masked keys and 0 elsewhere (B, 1, T), or None where nothing is masked."""
    if mask is None:
        return None
    return torch.zeros(mask.shape, dtype=keys.dtype, device=keys.device).masked_fill(~mask, EMPTY)[:, None]


def merge(parts: Iterable[LogMean]) -> LogMean:
    """Merge partial results of the same queries."""
    return reduce(add, parts)


def rotate(vectors: Tensor, start: int) -> Tensor:
    """Apply rotary positions (Su et al. 2021, arXiv 2104.09864, section 3.4) to (B, H, T, D), D even.

    Angles are in float32 at least, from the position in the whole sequence, so that they do not depend on chunks.

    Raises
    ------
    ValueError : D is odd
    """
    tokens, dim = vectors.shape[2:]
    if dim % 2:
        raise ValueError(
            f"rotary positions turn dimensions in pairs, got heads of {dim}; give an even number, or rotary=False"
        )
    kind = torch.promote_types(vectors.dtype, torch.float32)
    positions = torch.arange(start, start + tokens, device=vectors.device, dtype=torch.float64)
    rates = 10_000.0 ** (-torch.arange(0, dim, 2, device=vectors.device, dtype=torch.float64) / dim)
    angles = positions[:, None] * rates  # (T, D/2)
    cos, sin = angles.cos().to(kind), angles.sin().to(kind)
    even, odd = vectors[..., : dim // 2], vectors[..., dim // 2 :]
    return torch.cat([even * cos - odd * sin, even * sin + odd * cos], dim=-1)


class Softmax(Attention):
    """Exact softmax attention over all tokens: O(T^2) time, the keys and values kept.

    Parameters
    ----------
    rotary : turn queries and keys by their positions
    """

    def __init__(self, *, rotary: bool = False) -> None:
        super().__init__()
        self.rotary = rotary

    def summarize(
        self,
        keys: Tensor,
        values: Tensor,
        *,
        start: int = 0,
        lengths: Tensor | None = None,
        mask: Tensor | None = None,
    ) -> Segments:
        keys, values, mask = check_chunk(keys, values, mask)
        keys = rotate(keys, start) if self.rotary else keys
        return Segments((Segment(start, keys, values, mask),))

    def attend(self, queries: Tensor, summary: Segments, *, start: int = 0) -> Tensor:  # type: ignore[override]
        kind, queries = queries.dtype, in_float(queries)
        queries = rotate(queries, start) if self.rotary else queries
        queries = queries * queries.shape[-1] ** -0.5
        parts = (attend_with_log_sum(queries, s.keys, s.values, key_bias(s.keys, s.mask)) for s in summary)
        return merge(parts).mean.to(kind)
