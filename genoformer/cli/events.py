"""What happens, told to programs: with --log-json, every line on standard error is one JSON object.

Keys of every line: ``time`` (ISO 8601, UTC), ``command``, ``event``. By event:

- ``message``: ``text``
- ``progress``: ``done``, ``total``, ``unit`` ("bases" or "steps"), ``per_second``, ``bases_per_second``, ``seconds``,
  ``seconds_left``; numbers that are not known yet are null. Of train also ``loss``, ``validation`` (null where it was
  not measured) and ``measure``, what that is
- ``error``: ``kind``, ``text``
- ``end``: ``exit_code``, the last line
"""

from __future__ import annotations

import json
import logging
import math
import sys
import time
from collections.abc import Callable, Mapping
from contextvars import ContextVar
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from genoformer.training.run import Progress

_command: ContextVar[str | None] = ContextVar("command whose lines are JSON", default=None)
_UNITS = {"b": "bases"}


def ask(context: click.Context | None) -> None:
    """Have lines be for programs, from this command on."""
    _command.set(None if context is None else str(context.info_name))


log_json_option = click.option(
    "--log-json", is_flag=True, expose_value=False, is_eager=True,
    callback=lambda context, _, value: ask(context) if value else None,
    help="Write messages and progress to standard error as JSON, an object a line, for programs.",
)  # fmt: skip


def is_json() -> bool:
    """Tell whether lines are for programs."""
    return _command.get() is not None


def forget() -> None:
    """Have lines be for people again, until a command asks for others."""
    _command.set(None)


def line(event: str, fields: Mapping[str, Any]) -> str:
    """Return the line that tells of an event."""
    now = datetime.now(UTC).isoformat(timespec="milliseconds")
    return json.dumps({"time": now, "command": _command.get(), "event": event, **fields})


def emit(event: str, fields: Mapping[str, Any]) -> None:
    """Write the line that tells of an event, at once."""
    print(line(event, fields), file=sys.stderr, flush=True)


class Rate:
    """How fast units are done, and how long the rest takes; those done before this run do not count."""

    def __init__(self, total: int) -> None:
        self.total, self.done = total, 0
        self._began = time.monotonic()
        self._first: int | None = None

    def reach(self, done: int) -> None:
        """Take note of how many are done; the first call tells those of earlier runs."""
        self.done = done
        if self._first is None:
            self._began, self._first = time.monotonic(), done

    def fields(self) -> dict[str, Any]:
        """Return what is known."""
        seconds, mine = time.monotonic() - self._began, self.done - (self._first or 0)
        rate = mine / seconds if mine > 0 and seconds > 0 else None
        left = None if rate is None else round((self.total - self.done) / rate, 1)
        return {
            "done": self.done,
            "total": self.total,
            "per_second": rate and round(rate, 3),
            "seconds": round(seconds, 1),
            "seconds_left": left,
        }


def progress_lines(total: int, unit: str, *, every: float) -> Callable[[int], None]:
    """Return what to call with the units done since the last call: it writes the first, the last, and now and then."""
    rate, last = Rate(total), float("-inf")

    def report(count: int, /) -> None:
        nonlocal last
        rate.reach(rate.done + count)
        if rate.done >= total or time.monotonic() - last >= every:
            last = time.monotonic()
            fields = {**rate.fields(), "unit": _UNITS.get(unit, unit)}
            emit("progress", {**fields, "bases_per_second": fields["per_second"] if unit == "b" else None})

    return report


def training_lines(steps: int, *, every: float) -> Callable[[Progress], None]:
    """Return what to call with each step: it writes the first, the last, validations, and now and then."""
    rate, last = Rate(steps), float("-inf")

    def show(step: Progress, /) -> None:
        nonlocal last
        rate.reach(step.step)
        if step.validation is not None or step.step == steps or time.monotonic() - last >= every:
            last = time.monotonic()
            fields = {**rate.fields(), "unit": "steps", "bases_per_second": _finite(step.bases_per_second)}
            said = {"loss": _finite(step.loss), "validation": _finite(step.validation), "measure": step.measure}
            emit("progress", {**fields, **said})

    return show


def _finite(number: float | None) -> float | None:
    return round(number, 5) if number is not None and math.isfinite(number) else None


class LogHandler(logging.Handler):
    """Says what the library logs as everything else is said."""

    def emit(self, record: logging.LogRecord) -> None:
        from genoformer.cli.progress import say

        say(record.getMessage())
