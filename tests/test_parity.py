"""Parity: what agrees is told to agree, and what does not is not."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from tiny import tiny_model

from genoformer import parity as module
from genoformer.model.genoformer import Genoformer
from genoformer.model.strands import predict_values
from genoformer.parity import Comparison, parity

WAYS = ["float64 on cpu", "twice the same", "the whole at once", "chunks of 97", "chunks of 1000", "two sequences",
        "the opposite strand", "one thread"]  # fmt: skip


@pytest.fixture(autouse=True)
def short(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "BASES", 8_000)


def test_a_model_that_computes_alike_in_every_way_is_told_so() -> None:
    model = tiny_model()
    threads = torch.get_num_threads()
    found = list(parity(model))
    assert [comparison.what.startswith(way) for comparison, way in zip(found, WAYS, strict=True)] == [True] * len(WAYS)
    assert all(comparison.holds for comparison in found)
    assert 0 < found[0].difference < 1e-4
    assert found[1].difference == 0
    assert torch.get_num_threads() == threads
    assert next(model.parameters()).dtype == torch.float32


@pytest.mark.parametrize(
    ("spoil", "failing"),
    [
        (lambda options, codes, model: options["chunk_size"] == 97, ["chunks of 97"]),
        (lambda options, codes, model: len(codes) > 1, ["two sequences"]),
        (lambda options, codes, model: next(model.parameters()).dtype == torch.float64, ["float64 on cpu"]),
        (lambda options, codes, model: codes[0, :20].tolist() != first(), ["the opposite strand"]),
    ],
    ids=["chunk", "batch", "precision", "strand"],
)
def test_a_way_that_differs_is_named(spoil: Any, failing: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    def spoiled(model: Genoformer, codes: torch.Tensor, **options: Any) -> dict[str, torch.Tensor]:
        values = predict_values(model, codes, **{"chunk_size": None, **options})
        wrong = spoil({"chunk_size": None, **options}, codes, model)
        return {name: tensor + 0.06 * wrong for name, tensor in values.items()}

    monkeypatch.setattr(module, "predict_values", spoiled)
    failed = [comparison.what for comparison in parity(tiny_model()) if not comparison.holds]
    assert [what.startswith(way) for what, way in zip(failed, failing, strict=True)] == [True]


def first() -> list[int]:
    return module.reference_codes(0)[:20].tolist()


def test_what_is_no_number_never_holds() -> None:
    assert not Comparison("x", float("nan"), 1.0).holds
