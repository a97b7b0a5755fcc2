"""Batches: the windows of a plan, of like lengths, that are computed together."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple, TypeVar

import numpy as np

from genoformer.circles import wrapped
from genoformer.formats.sequences import Sequences
from genoformer.plan import Plan, planned_records
from genoformer.regions import Window, place_in_window
from genoformer.tokens import PAD, encode

T = TypeVar("T")


class Item(NamedTuple):
    """A window to predict."""

    number: int  # of the window, in the order of the plan
    sequence: int  # its index
    window: Window
    codes: np.ndarray


def batches(
    plan: Plan, sequences: Sequences, *, budget: int, most: int, done: np.ndarray | None = None
) -> Iterator[list[Item]]:
    """Yield the windows of a plan in batches, in the order in which they are full.

    They are grouped in the same way whatever is done, and left out are batches of which all is done.

    Parameters
    ----------
    budget : bases of a batch of windows shorter than those of the plan
    most : windows of a batch of whole ones
    done : bool, (windows,)

    Raises
    ------
    InputError : the input is not the one that was planned
    """
    left_out = None if done is None else _in_done_batches(plan, done, budget=budget, most=most)
    items = ((len(item.codes), item) for item in _items(plan, sequences, left_out))
    return _grouped(items, budget=budget, most=most, window=plan.window)


def rows_of(batch: list[Item], plan: Plan) -> np.ndarray | None:
    """Return the codes of a batch, uint8 (windows, bases), PAD behind shorter ones; None if it is all in gaps."""
    if all(gaps_of(item, plan).all() for item in batch):
        return None
    rows = np.full((len(batch), longest(batch)), PAD, dtype=np.uint8)
    for row, item in zip(rows, batch, strict=True):
        row[: len(item.codes)] = item.codes
    return rows


def longest(batch: list[Item]) -> int:
    """Return the bases of the longest window of a batch."""
    return max(len(item.codes) for item in batch)


def _items(plan: Plan, sequences: Sequences, done: np.ndarray | None) -> Iterator[Item]:
    """Yield the windows to predict, with their codes, in the order of the input."""
    number = 0  # of the window, in the order of plan.owned
    first = np.searchsorted(plan.owned[:, 0], np.arange(len(plan.sequences) + 1))
    for index, record in planned_records(plan, sequences):
        count = int(first[index + 1] - first[index])
        if count == 0 or (done is not None and done[number : number + count].all()):
            number += count
            continue
        for window in plan.windows(index):
            if done is None or not done[number]:
                codes = encode(wrapped(record.bases, window.region.start, window.region.end))
                yield Item(number, index, window, codes)
            number += 1


def _in_done_batches(plan: Plan, done: np.ndarray, *, budget: int, most: int) -> np.ndarray:
    """Tell which windows are in batches of which all are done: bool, (windows,)."""
    if done.all() or not done.any():
        return done
    windows = (cut for index in range(len(plan.sequences)) for cut in plan.windows(index))
    streamed = plan.streamed
    lengths = ((cut.region.length, number) for number, cut in enumerate(windows) if not streamed[number])
    left_out = done.copy()
    for batch in _grouped(lengths, budget=budget, most=most, window=plan.window):
        if not done[batch].all():
            left_out[batch] = False
    return left_out


def _grouped(items: Iterable[tuple[int, T]], *, budget: int, most: int, window: int) -> Iterator[list[T]]:
    """Group windows of like lengths: whole ones by ``most``, shorter ones until they have ``budget`` bases."""
    waiting: dict[int, list[T]] = {}
    for length, item in items:
        bucket = window if length == window else _bucket(length)
        group = waiting.setdefault(bucket, [])
        group.append(item)
        if len(group) >= (most if bucket == window else max(1, budget // bucket)):
            yield waiting.pop(bucket)
    yield from waiting.values()


def _bucket(length: int) -> int:
    """Round up to three significant bits, so that padding is at most a quarter."""
    step = 1 << max(length.bit_length() - 3, 0)
    return -(-length // step) * step


def gaps_of(item: Item, plan: Plan) -> np.ndarray:
    """Tell which of the owned bases are in gaps: bool (bases,)."""
    owned = item.window.owned
    in_gap = np.zeros(owned.length, dtype=bool)
    runs = plan.gaps.get(item.sequence)
    if runs is not None:
        for start, end in runs[(runs[:, 0] < owned.end) & (runs[:, 1] > owned.start)].clip(owned.start, owned.end):
            in_gap[start - owned.start : end - owned.start] = True
    return in_gap


def places_of(item: Item, plan: Plan) -> list[tuple[int, int]]:
    """Return where the owned bases lie in the window, in order."""
    region, owned = item.window
    if item.sequence in plan.origins:
        length = int(plan.sequences.lengths[item.sequence])
        return place_in_window(item.window, length=length, overlap=plan.overlap)
    return [(owned.start - region.start, owned.end - region.start)]
