"""Sequences of one organism share what global attention sums up, as if it saw them in one window.

A Performer's summary is a sum over tokens, so those of a batch add up to one of all of it. Convolutions and local
attention see each sequence alone: where one ends, nothing of another begins.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields, replace
from functools import reduce
from operator import add
from typing import Any

from torch import Tensor

from genoformer.attention import Attention, Hybrid, Performer, Summary
from genoformer.attention.attention import Pair, Totals
from genoformer.errors import ConfigError
from genoformer.model.encoder import Block, Place
from genoformer.model.genoformer import Genoformer


class Shared(Place):
    """A batch of so many whole sequences that share the summaries of Performer attention; padding has no part in it."""

    def __init__(self, count: int) -> None:
        self.count = count

    def merged(self, summary: Summary, attention: Attention) -> Summary:
        if isinstance(attention, Hybrid):
            assert isinstance(summary, Pair)
            return Pair(self.merged(summary.first, attention.first), self.merged(summary.second, attention.second))
        return self._added_up(summary) if isinstance(attention, Performer) else summary

    def _added_up(self, summary: Summary) -> Summary:
        if isinstance(summary, Totals):
            keys, values = (x.sum(dim=0, keepdim=True) for x in (summary.keys, summary.values))
            total: Any = Totals(keys, values, summary.weights)
        else:
            rows = (self._each(summary, lambda x, row=row: x[row : row + 1]) for row in range(self.count))
            total = reduce(add, rows)
        return self._each(total, lambda x: x.expand(self.count, *x.shape[1:]), of=1)

    def _each(self, summary: Any, change: Callable[[Tensor], Tensor], *, of: int | None = None) -> Any:
        """Change all tensors of a summary that are of so many sequences, by default of all."""
        count = self.count if of is None else of

        def changed(value: Any) -> Any:
            if isinstance(value, Tensor):
                return change(value) if value.shape[0] == count else value
            return self._each(value, change, of=of)

        return replace(summary, **{part.name: changed(getattr(summary, part.name)) for part in fields(summary)})


def can_share(model: Genoformer) -> bool:
    """Tell whether a model has attention whose summaries sequences can share: Performer, alone or in a hybrid."""
    attentions = [block.multihead.attention for block in model.encoder.blocks if isinstance(block, Block)]
    return any(isinstance(part, Performer) for attention in attentions for part in _parts(attention))


def shared_logits(
    model: Genoformer, codes: Tensor, *, genetic_code: int | Tensor = 11, chunk_size: int | None = None
) -> dict[str, Tensor]:
    """Predict the logits of sequences of one organism; see `Genoformer.forward` for what is not told here.

    Parameters
    ----------
    codes : Tensor of uint8, (B, L); PAD behind shorter sequences. Their order does not matter, but for rounding

    Raises
    ------
    ConfigError : the model has no attention whose summaries can be shared
    """
    if not can_share(model):
        raise ConfigError("sequences can share the summaries of Performer attention only, of which this model has none")
    sequence = model.sequence(codes, genetic_code=genetic_code)
    return model.logits(sequence._replace(place=Shared(len(codes))), chunk_size=chunk_size)


def _parts(attention: Attention) -> tuple[Attention, ...]:
    return (*_parts(attention.first), *_parts(attention.second)) if isinstance(attention, Hybrid) else (attention,)
