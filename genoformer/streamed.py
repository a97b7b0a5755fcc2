"""Sequences longer than a window that are predicted as one context each, on one device or over several processes."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor
from torch import distributed as dist

from genoformer.batches import Item, places_of
from genoformer.circles import wrapped
from genoformer.formats.sequences import Record, Sequences
from genoformer.model.genoformer import Genoformer
from genoformer.model.rows import Scratch
from genoformer.model.streaming import Chunks, Streamed, chunks_for, exchange_for, stream_values
from genoformer.plan import Plan, planned_records
from genoformer.regions import Region
from genoformer.tokens import COMPLEMENT, PAD, encode

if TYPE_CHECKING:
    from genoformer.predict import Settings

Values = tuple[Item, dict[str, np.ndarray]]


def streamed_values(
    plan: Plan,
    sequences: Sequences,
    model: Genoformer,
    *,
    settings: Settings,
    done: np.ndarray | None = None,
    together: bool = False,
    tick: Callable[[float], None] = lambda _: None,
) -> Iterator[Values]:
    """Predict the sequences of a plan that are longer than its window, but for the windows marked in ``done``.

    Parameters
    ----------
    done : bool, (windows,)
    together : the positions of each sequence are shared out over the processes of torch's default group, which all
        call this; the first one yields the values of all, the others nothing
    tick : called with how many of the bases to predict what was computed since the last call stands for

    Returns
    -------
    iterator of windows, without codes, and float16 values of the bases that they own by track, gaps included

    Raises
    ------
    InputError : the input is not the one that was planned
    ResourceError : memory, or disk where tokens are kept in a file, is lacking
    """
    chunks = chunks_for(model.device, settings.chunk_size, precision=settings.precision)
    for record, items in _wanted(plan, sequences, done):
        bases = sum(item.window.owned.length for item in items)
        one = WholeSequence(record, items[0].window.region, model, settings, chunks)
        pieces = one.values(together=together, tick=lambda share, bases=bases: tick(share * bases))  # type: ignore[misc]
        assembly = _Assembly(items, plan, {track.name: len(track.channels) for track in model.tracks})
        for start, values in pieces:
            yield from assembly.add(start, values.numpy())


def _wanted(plan: Plan, sequences: Sequences, done: np.ndarray | None) -> Iterator[tuple[Record, list[Item]]]:
    """Yield the sequences to stream, with the windows that are not done."""
    first = np.searchsorted(plan.owned[:, 0], np.arange(len(plan.sequences) + 1))
    for index, record in planned_records(plan, sequences):
        numbers = range(int(first[index]), int(first[index + 1]))
        if not plan.is_streamed(index) or not numbers:
            continue
        cut = zip(numbers, plan.windows(index), strict=True)
        items = [Item(n, index, window, np.empty(0, np.uint8)) for n, window in cut if done is None or not done[n]]
        if items:
            yield record, items


class WholeSequence:
    """The values of a region of a sequence, which may go around its origin."""

    def __init__(self, record: Record, region: Region, model: Genoformer, settings: Settings, chunks: Chunks) -> None:
        self.bases, self.region, self.length = record.bases, region, region.length
        self.model, self.settings, self.chunks = model, settings, chunks
        self.channels = sum(len(track.channels) for track in model.tracks)

    def codes(self, start: int, end: int) -> np.ndarray:
        """Return codes of the forward strand, uint8, PAD beyond the region."""
        first, last = min(max(start, 0), self.length), min(max(end, 0), self.length)
        codes = np.full(end - start, PAD, dtype=np.uint8)
        if first < last:
            offset = self.region.start
            codes[first - start : last - start] = encode(wrapped(self.bases, offset + first, offset + last))
        return codes

    def opposite(self, start: int, end: int) -> np.ndarray:
        """Return codes of the reverse strand, as it is read."""
        return COMPLEMENT[self.codes(self.length - end, self.length - start)[::-1]]

    def values(self, *, together: bool, tick: Callable[[float], None]) -> Iterator[tuple[int, Tensor]]:
        """Yield values, in pieces, to the process that writes: place in the region, and float32 (bases, channels)."""
        if not self.settings.strand_average:
            yield from self._strand(self.codes, together=together, tick=tick)
            return

        def half(share: float) -> None:
            tick(share / 2)

        mirror = torch.tensor(_side_by_side([list(track.reverse_complement) for track in self.model.tracks]))
        with self._scratch() as scratch:
            leads = not together or dist.get_rank() == 0
            backward = scratch.rows(self.length if leads else 0, self.channels)
            for start, values in self._strand(self.opposite, together=together, tick=half):
                backward.write(self.length - start - len(values), values.flip(0)[:, mirror])
            for start, values in self._strand(self.codes, together=together, tick=half):
                yield start, (values + backward.read(start, start + len(values))) / 2

    def _strand(
        self, codes: Callable[[int, int], np.ndarray], *, together: bool, tick: Callable[[float], None]
    ) -> Iterator[tuple[int, Tensor]]:
        with self._scratch() as scratch:
            streamed = Streamed(
                codes,
                self.length,
                self.settings.genetic_code,
                self.chunks,
                scratch,
                exchange_for(self.model, self.length) if together else None,
                tick,
            )
            pieces = stream_values(self.model, streamed)
            yield from gathered(pieces, self.channels, self.model.device) if together else pieces

    def _scratch(self) -> Scratch:
        return Scratch(offload=self.settings.offload, device=self.model.device)


def _side_by_side(channels: list[list[int]]) -> list[int]:
    """Number the channels of all tracks one behind the other."""
    offsets = np.cumsum([0, *map(len, channels)]).tolist()
    return [offset + channel for offset, own in zip(offsets, channels, strict=False) for channel in own]


def gathered(pieces: Iterator[tuple[int, Tensor]], channels: int, device: torch.device) -> Iterator[tuple[int, Tensor]]:
    """Yield the pieces of all processes in the first one, a piece of each at a time; the others yield nothing.

    Parameters
    ----------
    pieces : of this process: a number, not negative, and float32 (n, channels), n > 0
    channels : columns, the same everywhere
    device : that the processes' group works on
    """
    rank, size = dist.get_rank(), dist.get_world_size()
    while True:
        own = next(pieces, None)
        head = torch.tensor([-1, 0] if own is None else [own[0], len(own[1])], device=device)
        heads = [torch.empty_like(head) for _ in range(size)]
        dist.all_gather(heads, head)
        told = torch.stack(heads).tolist()
        if all(start < 0 for start, _ in told):
            return
        if rank > 0:
            if own is not None:
                dist.send(own[1].to(device).contiguous(), 0)
            continue
        if own is not None:
            yield own
        for other, (start, count) in enumerate(told[1:], 1):
            if start >= 0:
                values = torch.empty(count, channels, device=device)
                dist.recv(values, other)
                yield start, values.cpu()


class _Assembly:
    """Puts pieces of a region together to what its windows own."""

    def __init__(self, items: list[Item], plan: Plan, channels: dict[str, int]) -> None:
        self._items, self._channels = items, channels
        spans = []
        for number, item in enumerate(items):
            offset = 0
            for start, end in places_of(item, plan):
                spans.append((start, end, number, offset))
                offset += end - start
        self._spans = np.array(sorted(spans), dtype=np.int64).reshape(-1, 4)
        self._missing = [item.window.owned.length for item in items]
        self._held: dict[int, np.ndarray] = {}

    def add(self, start: int, values: np.ndarray) -> Iterator[Values]:
        """Take a piece (bases, channels), and yield the windows that are whole with it."""
        end = start + len(values)
        first = int(np.searchsorted(self._spans[:, 1], start, side="right"))
        last = int(np.searchsorted(self._spans[:, 0], end, side="left"))
        for low, high, number, offset in self._spans[first:last].tolist():
            item = self._items[number]
            if number not in self._held:
                self._held[number] = np.empty((item.window.owned.length, values.shape[1]), dtype=np.float16)
            here, until = max(low, start), min(high, end)
            with np.errstate(over="ignore"):  # what float16 cannot hold is told as infinity later
                self._held[number][offset + here - low : offset + until - low] = values[here - start : until - start]
            self._missing[number] -= until - here
            if self._missing[number] == 0:
                yield item, self._by_track(self._held.pop(number))

    def _by_track(self, values: np.ndarray) -> dict[str, np.ndarray]:
        ends = np.cumsum(list(self._channels.values()))
        parts = np.split(values, ends[:-1], axis=1)
        return {name: np.ascontiguousarray(part) for name, part in zip(self._channels, parts, strict=True)}
