"""Summaries and halos across processes equal one process, in outputs and in gradients."""

from __future__ import annotations

from pathlib import Path

import pytest
import ranks

SCRIPT = Path(__file__).with_name("distributed_checks.py")


@pytest.mark.skipif(ranks.lack() is not None, reason=str(ranks.lack()))
@pytest.mark.parametrize("size", [2, 3])
def test_every_rank_agrees_with_one_process(size: int) -> None:
    """Every check of the script beside this one, in one group of processes."""
    found = ranks.run(SCRIPT, size)
    wrong = [f"{name}, rank {rank}: {words}" for name, said in found.items() for rank, words in enumerate(said)]
    assert set(found["all"]) == {"ok"}, "\n".join(words for words in wrong if not words.endswith(": ok"))
