"""Tasks for processes, see genoformer.serving: what a job says is done to its array; and whether processes are gone."""

from __future__ import annotations

import ctypes
import logging
import os
import signal
import time
from contextlib import suppress
from pathlib import Path

from genoformer.errors import InputError, ResourceError
from genoformer.messages import Message
from genoformer.serving import Compute


def begin(setup: Message) -> Compute:
    wrong = setup.head.get("wrong")
    if wrong == "ours":
        raise ResourceError("x: cannot begin")
    if wrong == "memory":
        raise MemoryError
    time.sleep(setup.head.get("delay", 0))

    def compute(job: Message) -> Message:
        what = job.head.get("do", "")
        time.sleep(job.head.get("seconds", 0))
        if what == "ours":
            raise InputError("y: is bad\nreally")
        if what == "defect":
            return Message("", {"x": 1 // 0})
        if what == "die":
            os.kill(os.getpid(), signal.SIGKILL)
        if what == "exit":
            os._exit(7)
        if what == "crash":
            ctypes.string_at(0)
        if what == "warn":
            logging.getLogger("genoformer.some").warning("beware of %s", "x")
        arrays = {name: array * 2 for name, array in job.arrays.items()}
        return Message("", {"pid": os.getpid(), "ignored": _ignored()}, arrays)

    return compute


def _ignored() -> bool:
    return all(signal.getsignal(number) == signal.SIG_IGN for number in (signal.SIGINT, signal.SIGTERM))


def assert_gone(*pids: int) -> None:
    """Fail unless processes have ended, or end within seconds."""
    until = time.monotonic() + 20
    left = list(pids)
    while left and time.monotonic() < until:
        left = [pid for pid in left if is_alive(pid)]
        time.sleep(0.02)
    assert not left


def is_alive(pid: int) -> bool:
    with suppress(OSError):
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    return False
