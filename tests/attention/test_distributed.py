"""Summaries and halos across processes equal one process, in outputs and in gradients."""

from __future__ import annotations

from pathlib import Path

import pytest
import ranks

SOME = r"(softmax|local|performer-positive|linformer-max|hybrid-performer|joint-[a-z]+)\]$|check_[bnr]"
SCRIPT = Path(__file__).with_name("distributed_checks.py")


@pytest.mark.skipif(ranks.lack() is not None, reason=str(ranks.lack()))
@pytest.mark.parametrize(
    ("size", "pattern"), [(2, ""), (3, SOME), pytest.param(3, "", marks=pytest.mark.slow)], ids=["2", "3", "3-all"]
)
def test_every_rank_agrees_with_one_process(size: int, pattern: str) -> None:
    """The checks of the script beside this one, in one group of processes."""
    ranks.check(SCRIPT, size, pattern)
