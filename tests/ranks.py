"""Run a script of checks in several processes that form a gloo group, as torchrun would, and collect what they found.

Such a script defines functions ``check_...(rank, size)`` and ends with ``main(globals())``. A rank stops at its first
failure, since the others may wait for it: they are told within seconds.
"""

from __future__ import annotations

import datetime
import json
import os
import re
import subprocess
import sys
import tempfile
import traceback
from collections.abc import Mapping
from pathlib import Path
from typing import Any

LIMIT = 300
"""Seconds after which the processes are ended."""


def lack() -> str | None:
    """Return why no group of processes can be formed here, None if it can."""
    from torch import distributed

    if not distributed.is_available() or not distributed.is_gloo_available():
        return "torch was built without gloo"
    return None


def check(script: Path, size: int, pattern: str = "") -> None:
    """Run the checks of a script and fail with what any rank found wrong."""
    found = run(script, size, pattern)
    wrong = [f"{name}, rank {rank}: {words}" for name, said in found.items() for rank, words in enumerate(said)]
    assert set(found["all"]) == {"ok"}, "\n".join(words for words in wrong if not words.endswith(": ok"))


def run(script: Path, size: int, pattern: str = "") -> dict[str, list[str]]:
    """Run a script on so many ranks; return what each says of each check, and of "all": "ok", or what was wrong.

    ``pattern`` picks checks by name.
    """
    with tempfile.TemporaryDirectory() as folder:
        started = [
            subprocess.Popen(
                [sys.executable, str(script), str(rank), str(size), folder, pattern],
                env={**os.environ, "OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": "lo"},
            )
            for rank in range(size)
        ]
        try:
            for process in started:
                process.wait(timeout=LIMIT)
        except subprocess.TimeoutExpired:
            pass
        finally:
            for process in started:
                process.kill()
                process.wait()
        files = [Path(folder, f"{rank}.json") for rank in range(size)]
        found = [json.loads(file.read_text()) if file.exists() else {} for file in files]
    names = dict.fromkeys([*(name for one in found for name in one), "all"])
    return {name: [one.get(name, "did not get there") for one in found] for name in names}


def main(members: Mapping[str, Any]) -> None:
    """Run the checks of a script as one rank, and write down how each went."""
    import torch
    from torch import distributed

    rank, size, folder, pattern = int(sys.argv[1]), int(sys.argv[2]), Path(sys.argv[3]), sys.argv[4]
    found: dict[str, str] = {}
    distributed.init_process_group(
        "gloo",
        init_method=f"file://{folder}/meeting",
        rank=rank,
        world_size=size,
        timeout=datetime.timedelta(seconds=90),
    )
    for name, check in members.items():
        if not name.startswith("check_"):
            continue
        torch.manual_seed(0)
        for label, arguments in getattr(check, "cases", {"": ()}).items():
            key = f"{name}[{label}]" if label else name
            if not re.search(pattern, key):
                continue
            try:
                check(rank, size, *arguments)
                found[key] = "ok"
            except Exception:
                found[key] = traceback.format_exc()
                break
        if any(one != "ok" for one in found.values()):
            break
    else:
        found["all"] = "ok"
    Path(folder, f"{rank}.json").write_text(json.dumps(found))
    distributed.destroy_process_group()


def over(cases: Mapping[str, tuple[Any, ...]]) -> Any:
    """Have a check run with each of some arguments, by name."""

    def marked(check: Any) -> Any:
        check.cases = cases
        return check

    return marked
