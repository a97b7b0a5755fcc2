"""A window split over processes gets the outputs and gradients of one process."""

from __future__ import annotations

from pathlib import Path

import pytest
import ranks

SOME = r"(softmax|two-blocks|hybrid-linformer|joint)\]$|check_[gsrw]"
SCRIPT = Path(__file__).with_name("split_checks.py")


@pytest.mark.skipif(ranks.lack() is not None, reason=str(ranks.lack()))
@pytest.mark.parametrize(
    ("size", "pattern"), [(2, ""), (3, SOME), pytest.param(3, "", marks=pytest.mark.slow)], ids=["2", "3", "3-all"]
)
def test_every_rank_agrees_with_one_process(size: int, pattern: str) -> None:
    """The checks of the script beside this one, in one group of processes."""
    ranks.check(SCRIPT, size, pattern)
