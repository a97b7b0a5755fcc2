"""A torch Dataset of windows, with labels or without, for those who train in their own way."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import TypedDict

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import Dataset

from genoformer.formats.sequences import Sequences, open_sequences
from genoformer.labels import Labels
from genoformer.plan import make_plan
from genoformer.regions import DEFAULT_WINDOW, Window, plan_windows
from genoformer.tokens import PAD, encode
from genoformer.tracks import IGNORED


class Example(TypedDict, total=False):
    """A window, as a model takes it."""

    codes: Tensor
    """(window,) uint8, PAD behind a sequence that is shorter"""
    labels: Tensor
    """(window,) uint8, IGNORED = 255 at padding, or (window, channels) float32, NaN at padding; only with labels"""
    sequence: str
    start: int
    """0-based position of the window on its sequence"""
    owned: Tensor
    """(2,) int64: from where to where in the window it owns its bases; over all windows, each base is owned once"""


class WindowDataset(Dataset[Example]):
    """Windows of sequences, by number, in the order of the input; sequences without any known base are left out.

    The bases are held in memory, a byte each, so that any window can be taken at any time, by any worker.

    Parameters
    ----------
    sequences : a path, or what `genoformer.open_sequences` returns; taken as linear
    window, overlap : bases
    labels : what is true of every base, by name of the sequence: of `genoformer.labels.read_labels`, or arrays; those
        of a sequence are kept once they were asked for
    min_length : bases; shorter sequences are left out

    Examples
    --------
    >>> labels = read_labels("genome.gff", sequences.lengths(), CODING_FRAME)  # doctest: +SKIP
    >>> loader = DataLoader(WindowDataset(sequences, window=6000, labels=labels), batch_size=8)  # doctest: +SKIP
    >>> for batch in loader:  # doctest: +SKIP
    ...     logits = model(batch["codes"])["coding-frame"]
    ...     loss = model.heads["coding-frame"].loss(logits, batch["labels"])
    """

    def __init__(
        self,
        sequences: Sequences | str | os.PathLike[str],
        *,
        window: int = DEFAULT_WINDOW,
        overlap: int = 0,
        labels: Labels | Mapping[str, np.ndarray] | None = None,
        min_length: int = 1,
    ) -> None:
        if isinstance(sequences, str | os.PathLike):
            sequences = open_sequences(sequences)
        plan = make_plan(sequences, window=window, overlap=overlap, min_length=min_length)
        self.window, self._labels = window, labels
        self._windows: list[Window] = []
        self._codes: dict[str, np.ndarray] = {}
        self._known: dict[str, np.ndarray] = {}
        for status, record in zip(plan.sequences.status, sequences.records(), strict=True):
            if status == "pending":
                self._windows += plan_windows(record.name, len(record.bases), size=window, overlap=overlap)
                self._codes[record.name] = encode(record.bases)

    def __len__(self) -> int:
        return len(self._windows)

    def __getitem__(self, number: int) -> Example:
        region, owned = self._windows[number]
        codes = self._codes[region.sequence][region.start : region.end]
        example: Example = {
            "codes": torch.from_numpy(_padded(codes, self.window, PAD)),
            "sequence": region.sequence,
            "start": region.start,
            "owned": torch.tensor([owned.start - region.start, owned.end - region.start]),
        }
        if self._labels is not None:
            if region.sequence not in self._known:
                self._known[region.sequence] = self._checked(region.sequence)
            labels = self._known[region.sequence][region.start : region.end]
            filler = np.nan if labels.dtype.kind == "f" else IGNORED
            example["labels"] = torch.from_numpy(_padded(labels, self.window, filler))
        return example

    def _checked(self, name: str) -> np.ndarray:
        assert self._labels is not None
        labels, bases = self._labels[name], len(self._codes[name])
        if len(labels) != bases:
            raise ValueError(f"sequence {name!r} has {bases} bases, its labels {len(labels)}")
        return labels


def _padded(values: np.ndarray, length: int, filler: float) -> np.ndarray:
    """Copy values, and fill up to ``length``."""
    padded = np.full((length, *values.shape[1:]), filler, dtype=values.dtype)
    padded[: len(values)] = values
    return padded
