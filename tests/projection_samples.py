"""Reads to project, a model, and a plain loop that says what comes of them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pysam
import pytest
import torch
from alignment_samples import (
    REVERSE,
    SECONDARY,
    SUPPLEMENTARY,
    Read,
    aligned_pairs,
    random_reads,
)
from prediction_samples import FINE, NAME
from tiny import Memory, random_bases, tiny_config, tiny_model

from genoformer import pileup, projection
from genoformer.formats.alignments import ReadFilter
from genoformer.formats.sequences import open_sequences
from genoformer.model.checkpoint import load_model, save_model
from genoformer.model.genoformer import Genoformer
from genoformer.predict import Settings
from genoformer.projection import DEPTH, project_plan, project_to_store
from genoformer.projection_plan import Projection, plan_projection
from genoformer.store import Output, open_store
from genoformer.tracks import CODING_FRAME

LENGTHS = {"c": 900, "empty:1-9": 70, "x/y": 500}
CUT = {"window": 40, "overlap": 10}
MIRROR = list(CODING_FRAME.reverse_complement)
Values = dict[str, tuple[np.ndarray, np.ndarray]]


@pytest.fixture(autouse=True)
def _small(monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory) -> None:
    """Make cells and groups small, so that reads reach over their borders."""
    monkeypatch.setattr(pileup, "CELL", 64)
    monkeypatch.setattr(projection, "_GROUP_BASES", 400)
    monkeypatch.setattr(projection, "_GROUP_SPAN", 150)
    monkeypatch.setenv("GENOFORMER_CACHE", str(tmp_path_factory.getbasetemp() / "cache"))


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    torch.manual_seed(0)
    folder = tmp_path_factory.mktemp("model")
    config = tiny_config()
    save_model(folder, tiny_model(config), config, name="tiny")
    return folder


@pytest.fixture(scope="module")
def model(folder: Path) -> Genoformer:
    return load_model(folder)


def some_reads(seed: int, count: int = 40, **options: Any) -> list[Read]:
    rng = np.random.default_rng(seed)
    references = [random_bases(length, seed + number).decode() for number, length in enumerate(LENGTHS.values())]
    drawn = [read for read in random_reads(rng, references, count, **options) if read.sequence != 1]
    drawn[3] = drawn[3]._replace(bases="N" * len(drawn[3].bases or ""))
    gapped = Read("gapped", REVERSE, "ACGTA" + "N" * 60 + "TTGCAACG", 2, 300, "2S40M3I15M5N10M3S")
    return sorted([*drawn, gapped], key=lambda read: (read.sequence, read.start))


def naive(path: Path, model: Genoformer, *, taken: Any = lambda read: True) -> Values:
    """Predict each read alone, as it was sequenced, and add up its values along its CIGAR, base by base."""
    from genoformer.predict import predict

    sums = {name: np.zeros((length, 7)) for name, length in LENGTHS.items()}
    depth = {name: np.zeros(length) for name, length in LENGTHS.items()}
    with pysam.AlignmentFile(str(path), check_sq=False) as file:
        for read in file:
            wrong = read.flag & (4 | SECONDARY | SUPPLEMENTARY)
            if wrong or not read.query_sequence or not taken(read):
                continue
            values = np.full((read.query_length, 7), np.nan)
            for block in predict(Memory(("r", read.get_forward_sequence().encode())), model, **CUT):
                values[block.start : block.end] = block.values[NAME]
            for on_read, on_reference in aligned_pairs(read):
                if on_read is None or on_reference is None or on_reference >= LENGTHS[read.reference_name]:
                    continue
                value = values[-1 - on_read][MIRROR] if read.is_reverse else values[on_read]
                if not np.isnan(value).any():
                    sums[read.reference_name][on_reference] += value
                    depth[read.reference_name][on_reference] += 1
    with np.errstate(invalid="ignore"):
        return {
            name: (sums[name] / depth[name][:, None], np.where(depth[name], depth[name], np.nan)) for name in LENGTHS
        }


def project(path: Path, model: Genoformer, *, reads: ReadFilter | None = None, **cut: Any) -> tuple[Values, Projection]:
    sequences = open_sequences(path, reads=reads)
    plan = plan_projection(sequences, **{**CUT, **cut})
    found = {name: (np.full((length, 7), np.nan), np.full(length, np.nan)) for name, length in LENGTHS.items()}
    for block in project_plan(plan, sequences, model, settings=Settings(batch_size=3)):
        assert list(block.values) == [NAME, DEPTH.name]
        values, depth = (part[block.start : block.end] for part in found[block.sequence])
        assert np.isnan(depth).all()
        values[:], depth[:] = block.values[NAME], block.values[DEPTH.name][:, 0]
    return found, plan


def assert_close(found: Values, expected: Values) -> None:
    for name in LENGTHS:
        assert np.array_equal(found[name][1], expected[name][1], equal_nan=True)
        np.testing.assert_allclose(found[name][0], expected[name][0], rtol=0, atol=FINE)


def account(plan: Projection) -> dict[str, int]:
    return plan.made_by["counts"]["bases of reads"]


def project_file(
    path: Path, model: Genoformer, output: Path, *, report: Callable[[int], None] = lambda _: None, **options: Any
) -> Path:
    sequences = open_sequences(path)
    plan = plan_projection(sequences, **CUT)
    where, settings = Output(output, **options), Settings(batch_size=3)
    return project_to_store(plan, sequences, model, where, settings=settings, report=report)


def stored(path: Path) -> Iterator[np.ndarray]:
    with open_store(path) as store:
        for track in store.tracks:
            yield store.axis_values(0, store.sequences.total_bases, track=track)
