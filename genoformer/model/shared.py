"""Sequences of one organism share what global attention sums up, as if it saw them in one window.

A Performer's summary is a sum over tokens, so those of a batch add up to one of all of it, and that of a sample of an
organism can be added to that of any of its sequences. Convolutions and local attention see each sequence alone: where
one ends, nothing of another begins.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from functools import cached_property, reduce
from operator import add
from typing import Any

import numpy as np
import torch
from torch import Tensor

from genoformer.attention import Attention, Hybrid, Performer, Summary
from genoformer.attention.attention import Pair, Totals
from genoformer.errors import ConfigError
from genoformer.model.encoder import WHOLE, Block, Place
from genoformer.model.genoformer import Genoformer
from genoformer.tokens import PAD, reverse_complement

_LEAST_CHUNK = 64


class _Organism(Place):
    """Whole sequences that see others in Performer attention, alone or in a hybrid, and nowhere else."""

    def merged(self, summary: Summary, attention: Attention) -> Summary:
        if isinstance(attention, Hybrid):
            assert isinstance(summary, Pair)
            return Pair(self.merged(summary.first, attention.first), self.merged(summary.second, attention.second))
        return self._with_others(summary) if isinstance(attention, Performer) else summary

    def _with_others(self, summary: Summary) -> Summary:
        """Return the summary of all that is seen."""
        raise NotImplementedError


class Shared(_Organism):
    """A batch of so many sequences that see each other; padding has no part in it."""

    def __init__(self, count: int) -> None:
        self.count = count

    def _with_others(self, summary: Summary) -> Summary:
        if isinstance(summary, Totals):
            keys, values = (x.sum(dim=0, keepdim=True) for x in (summary.keys, summary.values))
            total: Any = Totals(keys, values, summary.weights)
        else:
            total = reduce(add, (self._row(summary, row) for row in range(self.count)))
        return self._each(total, lambda x: x.expand(self.count, *x.shape[1:]), of=1)

    def _row(self, summary: Any, row: int) -> Any:
        return self._each(summary, lambda x: x[row : row + 1])

    def _each(self, summary: Any, change: Callable[[Tensor], Tensor], *, of: int | None = None) -> Any:
        """Change all tensors of a summary that are of so many sequences, by default of all."""
        count = self.count if of is None else of

        def changed(value: Any) -> Any:
            if isinstance(value, Tensor):
                return change(value) if value.shape[0] == count else value
            return self._each(value, change, of=of)

        return replace(summary, **{part.name: changed(getattr(summary, part.name)) for part in fields(summary)})


@dataclass(frozen=True, eq=False)
class Context:
    """What sequences of an organism amount to in global attention: the summaries of a model's Performers, in order.

    Attributes
    ----------
    totals : of each, (1, heads, features) and (1, heads, features, dim of a head)
    sha256 : of the sequences and their genetic code
    """

    totals: tuple[Totals, ...]
    sha256: str

    @classmethod
    def of_arrays(cls, arrays: Mapping[str, np.ndarray], device: torch.device) -> Context:
        """Return the context that has these `arrays`."""
        count = len(arrays) - 1
        found = [torch.from_numpy(arrays[f"context-{number}"].copy()).to(device) for number in range(count)]
        totals = tuple(_totals(*pair) for pair in zip(found[::2], found[1::2], strict=True))
        return cls(totals, arrays["context-sha256"].tobytes().hex())

    @cached_property
    def arrays(self) -> dict[str, np.ndarray]:
        """All of it, by names."""
        tensors = [tensor for part in self.totals for tensor in (part.keys, part.values)]
        found = {f"context-{number}": tensor.cpu().numpy() for number, tensor in enumerate(tensors)}
        return {**found, "context-sha256": np.frombuffer(bytes.fromhex(self.sha256), dtype=np.uint8)}


class _InContext(_Organism):
    """Sequences that see a context each, and not each other."""

    def __init__(self, context: Context) -> None:
        self._left = list(context.totals)

    def _with_others(self, summary: Summary) -> Summary:
        assert isinstance(summary, Totals)
        return summary + self._left.pop(0)


class _Recorded(Shared):
    """A batch that shares its summaries, and keeps them."""

    def __init__(self, count: int) -> None:
        super().__init__(count)
        self.totals: list[Totals] = []

    def _with_others(self, summary: Summary) -> Summary:
        found = super()._with_others(summary)
        assert isinstance(found, Totals)
        self.totals.append(_totals(found.keys[:1].clone(), found.values[:1].clone()))
        return found


def _totals(keys: Tensor, values: Tensor) -> Totals:
    return Totals(keys, values, keys.new_zeros(1, 1, 1))


@torch.inference_mode()
def context_of(
    model: Genoformer, codes: Sequence[np.ndarray], *, genetic_code: int = 11, chunk_size: int | None = None
) -> Context:
    """Summarize sequences of an organism, each read on both strands, for predictions of others of it.

    Parameters
    ----------
    codes : uint8 codes of each

    Raises
    ------
    ConfigError : the model has no attention whose summaries can be shared so: Performer with features that are bounded
    """
    check_context(model)
    rows = np.full((2 * len(codes), max(map(len, codes), default=0)), PAD, dtype=np.uint8)
    for number, one in enumerate(codes):
        rows[2 * number, : len(one)], rows[2 * number + 1, : len(one)] = one, reverse_complement(one)
    place = _Recorded(len(rows))
    sequence = model.sequence(torch.from_numpy(rows).to(model.device), genetic_code=genetic_code)
    each = None if chunk_size is None else max(chunk_size // len(rows), _LEAST_CHUNK)
    model.encoder(sequence._replace(place=place), chunk_size=each)
    return Context(tuple(place.totals), _sha256(codes, genetic_code))


def _sha256(codes: Sequence[np.ndarray], genetic_code: int) -> str:
    """Tell sequences by their letters, their borders and their genetic code, not by what a machine makes of them."""
    digest = hashlib.sha256(f"{genetic_code} {[len(one) for one in codes]}".encode())
    for one in codes:
        digest.update(one.tobytes())
    return digest.hexdigest()


def in_context(context: Context | None) -> Place:
    """Return the place of sequences that see a context, if there is one: for one pass through the model."""
    return WHOLE if context is None else _InContext(context)


def sees_context(model: Genoformer) -> bool:
    """Tell whether a model can see a context: it has Performers, and all their summaries are plain sums."""
    parts = _performers(model)
    sums = [part.is_bounded and (part.max_temperature is not None or part.kind.rows != "waves") for part in parts]
    return bool(sums) and all(sums)


def check_context(model: Genoformer) -> None:
    """Raise ConfigError unless a model can see a context."""
    if not sees_context(model):
        raise ConfigError("a context needs Performer attention with bounded features, which this model does not have")


def can_share(model: Genoformer) -> bool:
    """Tell whether a model has attention whose summaries sequences can share: Performer, alone or in a hybrid."""
    return bool(_performers(model))


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
    return model(codes, genetic_code=genetic_code, chunk_size=chunk_size, place=Shared(len(codes)))


def _performers(model: Genoformer) -> list[Performer]:
    """Return the Performers of a model whose summaries are sums, in order: those of `Joint` keep tokens beside them."""
    attentions = [block.multihead.attention for block in model.encoder.blocks if isinstance(block, Block)]
    return [part for attention in attentions for part in _parts(attention) if isinstance(part, Performer)]


def _parts(attention: Attention) -> tuple[Attention, ...]:
    return (*_parts(attention.first), *_parts(attention.second)) if isinstance(attention, Hybrid) else (attention,)
