"""Whole sequences streamed in chunks are as at once: every mechanism, chunk and place to keep tokens in."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import ranks
import torch
from model.streaming_checks import CODES, TOLERANCE, expected, streamed
from tiny import CHOICES, random_codes, tiny_model
from watch import Watch

from genoformer.attention import attention as contract
from genoformer.errors import ResourceError
from genoformer.model import streaming
from genoformer.model.rows import MemoryRows, Scratch
from genoformer.model.streaming import Chunks, Streamed, stream_values

SCRIPT = Path(__file__).with_name("streaming_checks.py")
MODELS: dict[str, dict[str, Any]] = {
    **CHOICES,
    "inputs": {"inputs": ("open-frames", "stop-distances")},
    "stride-1": {"stem_stride": 1},
    "stride-5": {"stem_stride": 5, "attention": ("hybrid",)},
    "two-tracks": {"tracks": ("coding-frame", "masked-nucleotide")},
}


@pytest.mark.parametrize("name", MODELS)
def test_chunks_equal_the_whole(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(contract, "PIECE", 40)  # joint attention works in cells of a quarter of it
    model = tiny_model(**MODELS[name])
    for length, size, offload in [(1, 5, False), (7, 2, True), (82, 5, True), (82, 17, False), (301, 64, False)]:
        codes = random_codes(length, seed=length)
        found = streamed(model, codes, size=size, offload=offload)
        torch.testing.assert_close(found, expected(model, codes), rtol=0, atol=TOLERANCE)


def test_work_adds_up() -> None:
    told: list[float] = []
    streamed(tiny_model(), random_codes(200), size=9, tick=told.append)
    assert len(told) > 20
    assert sum(told) == pytest.approx(1)


def test_device_memory_depends_on_the_chunk_alone() -> None:
    """Live bytes of tensors, with tokens in a file: the same for four times the length."""
    model, most = tiny_model(inputs=("open-frames",)), []
    for length in (3_000, 12_000):
        codes = random_codes(length)
        with Watch() as watch:
            watch.ignore([codes, *model.parameters(), *model.buffers()])
            with Scratch(offload=True, device=model.device) as scratch:
                sequence = Streamed(CODES(codes), length, 11, Chunks(100, model.device), scratch)
                for _ in stream_values(model, sequence):
                    pass
        most.append(watch.most)
    assert most[1] <= 1.02 * most[0]


def test_chunks_are_halved_where_memory_runs_out(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    model, codes = tiny_model(), random_codes(900)
    write = MemoryRows.write

    def small(rows: MemoryRows, start: int, values: torch.Tensor) -> None:
        if len(values) > 80:
            raise RuntimeError("DefaultCPUAllocator: can't allocate memory")
        write(rows, start, values)

    monkeypatch.setattr(MemoryRows, "write", small)
    found = streamed(model, codes, size=300)
    torch.testing.assert_close(found, expected(model, codes), rtol=0, atol=TOLERANCE)
    assert caplog.messages == [f"out of memory: chunks of {n} tokens instead of {2 * n}" for n in (150, 75)]
    monkeypatch.setattr(streaming, "LEAST_CHUNK", 90)
    with pytest.raises(ResourceError, match="out of memory even in chunks of 90 tokens"):
        streamed(model, codes, size=300)


def test_other_errors_are_not_taken_for_lack_of_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object) -> None:
        raise RuntimeError("out of order")

    monkeypatch.setattr(MemoryRows, "write", broken)
    with pytest.raises(RuntimeError, match="out of order"):
        streamed(tiny_model(), random_codes(30), size=5)


@pytest.mark.skipif(ranks.lack() is not None, reason=str(ranks.lack()))
@pytest.mark.parametrize(("size", "pattern"), [(2, ""), pytest.param(3, "", marks=pytest.mark.slow)], ids=["2", "3"])
def test_every_rank_agrees_with_one_process(size: int, pattern: str) -> None:
    """The checks of the script beside this one, in one group of processes."""
    ranks.check(SCRIPT, size, pattern)
