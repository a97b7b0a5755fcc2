"""Signals that let a block be finished: the first asks for an end, the second is one."""

from __future__ import annotations

import os
import shlex
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from types import FrameType
from typing import Any

from genoformer.cli import events

_SIGNALS = (signal.SIGINT, signal.SIGTERM)
_STDERR = 2


class Stop:
    """Whether an end was asked for.

    Attributes
    ----------
    asked : True from the first signal on
    """

    def __init__(self, what: str) -> None:
        self.asked = False
        self._what = f"this {what}"
        self._hold: Callable[[], None] | None = None

    def catch(self, number: int, _: FrameType | None) -> None:
        """Take note of a signal; the second one ends the process, whatever it is doing."""
        name = signal.Signals(number).name
        if self.asked:
            _write(f"{name} again: ended at once")
            os._exit(130)
        self.asked = True
        if self._hold is not None:
            self._hold()
        _write(f"{name}: stops after {self._what}; a second signal ends it at once")

    def leave_to(self, hold: Callable[[], None]) -> None:
        """Have ``hold`` called at the first signal; what it holds then finishes all that is underway, and raises."""
        self._what, self._hold = "what is underway", hold
        if self.asked:
            hold()

    def check(self) -> None:
        """Raise KeyboardInterrupt if an end was asked for, and is left to nobody else."""
        if self.asked and self._hold is None:
            raise KeyboardInterrupt

    def after(self, report: Callable[[int], None]) -> Callable[[int], None]:
        """Return a report that checks once it has reported, when what it reports is written."""

        def checked(count: int, /) -> None:
            report(count)
            self.check()

        return checked


@contextmanager
def finishing(what: str) -> Iterator[Stop]:
    """Have SIGINT and SIGTERM ask for an end, instead of raising wherever the program is.

    Parameters
    ----------
    what : that is finished first, for the message
    """
    stop, before = Stop(what), dict[signal.Signals, Any]()
    if threading.current_thread() is threading.main_thread():
        for number in _SIGNALS:
            if signal.getsignal(number) not in (signal.SIG_IGN, None):  # what the caller ignores stays ignored
                before[number] = signal.signal(number, stop.catch)
    try:
        yield stop
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def how_to_resume() -> str:
    """Return the command line that goes on with this one, and words about it."""
    words = [argument for argument in sys.argv[1:] if argument != "--resume"]
    again = shlex.join(["genoformer", *words[:1], "--resume", *words[1:]])
    return f"the same command with --resume goes on where it stopped: {again}"


def _write(text: str) -> None:
    """Write a line to stderr around Python's buffers, which a signal may have caught in the middle."""
    said = events.line("message", {"text": text}) if events.is_json() else f"genoformer: {text}"
    with suppress(OSError):
        os.write(_STDERR, f"{said}\n".encode())
