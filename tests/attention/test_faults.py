"""Faults seen in other implementations of linear attention, one test each: genoformer/attention/README.md, "Faults".

Many tests first build the fault in a few lines and assert that it would be noticed (`error(...)` above a bound): a test
that cannot fail is itself a failure. They lie in test_faults_*.py by topic.
"""

from __future__ import annotations

import re
from pathlib import Path


def test_every_fault_has_a_test() -> None:
    files = Path(__file__).parent.glob("test_faults_*.py")
    numbers = {
        number for file in files for number in re.findall(r"(?m)^def test_fault_(\d\d)_", file.read_text("utf-8"))
    }
    assert numbers == {f"{i:02}" for i in range(1, 28)}
