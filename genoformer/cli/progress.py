"""Words, tables and progress, all on stderr: a bar on a terminal, a line every few seconds elsewhere."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Protocol

from rich.console import Console

if TYPE_CHECKING:
    from genoformer.plan import Plan

console = Console(stderr=True, highlight=False, soft_wrap=True)
LOG_SECONDS = 10.0
LISTED = 5
"""Sequences listed by name before the rest is only counted."""


class Report(Protocol):
    """Called with how many bases were done since the last call."""

    def __call__(self, bases: int, /) -> None: ...


def say(message: str) -> None:
    """Write a line to stderr, as it is."""
    console.print(message, markup=False)


def duration(seconds: float) -> str:
    """Write a time for people.

    >>> duration(3725)
    '1:02:05'
    """
    whole = round(seconds)
    hours, minutes = whole // 3600, whole // 60 % 60
    return f"{hours}:{minutes:02}:{whole % 60:02}" if hours else f"{minutes}:{whole % 60:02}"


def size(count: float, unit: str = "B") -> str:
    """Write a number with a decimal prefix.

    >>> size(1_234_567, "b")
    '1.23 Mb'
    """
    prefixes = ("", "k", "M", "G", "T")
    power = 0
    while abs(count) >= 999.5 and power < len(prefixes) - 1:
        count, power = count / 1000, power + 1
    return f"{count:.3g} {prefixes[power]}{unit}"


@contextmanager
def progress(total: int, *, what: str = "predict") -> Iterator[Report]:
    """Show how far along ``total`` bases are, how fast, and how long it will take."""
    if console.is_terminal:
        yield from _bar(total, what)
    else:
        yield from _lines(total, what)


def _bar(total: int, what: str) -> Iterator[Report]:
    from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn

    columns = (TextColumn("{task.description}"), BarColumn(bar_width=None), TaskProgressColumn())
    with Progress(*columns, TextColumn("{task.fields[rate]}"), console=console, expand=True) as bar:
        task = bar.add_task(what, total=max(total, 1), rate="")
        pace = _Pace(total)

        def report(bases: int, /) -> None:
            pace.add(bases)
            bar.update(task, advance=bases, rate=pace.words())

        yield report


def _lines(total: int, what: str) -> Iterator[Report]:
    pace = _Pace(total)
    last = time.monotonic()

    def report(bases: int, /) -> None:
        nonlocal last
        pace.add(bases)
        if time.monotonic() - last >= LOG_SECONDS:
            last = time.monotonic()
            percent = 100 * pace.done / max(total, 1)
            say(f"{what}: {percent:.1f}% of {size(total, 'b')}, {pace.words()}")

    yield report


class _Pace:
    """How fast bases go by; those done before this run (the first call) do not count."""

    def __init__(self, total: int) -> None:
        self.total, self.done = total, 0
        self._began: float | None = None
        self._first = 0

    def add(self, bases: int) -> None:
        self.done += bases
        if self._began is None:
            self._began, self._first = time.monotonic(), self.done

    def words(self) -> str:
        assert self._began is not None
        elapsed, mine = time.monotonic() - self._began, self.done - self._first
        if mine <= 0 or elapsed <= 0:
            return ""
        rate = mine / elapsed
        return f"{size(rate, 'b/s')}, {duration((self.total - self.done) / rate)} left"


def show_plan(plan: Plan) -> None:
    """Say what will become of the input: every base is in one of the numbers."""
    account, letters = plan.accounting, plan.letters
    count = len(plan.sequences)
    say(f"{plan.source}: {count:,} sequence{'s' if count != 1 else ''}, {account.total:,} bases")
    parts = [f"{account.predicted:,} to predict in {len(plan.owned):,} windows"]
    for bases, what in (
        (account.masked, "masked (gaps)"),
        (account.skipped, "in skipped sequences"),
        (account.not_requested, "not requested"),
    ):
        if bases:
            parts.append(f"{bases:,} {what}")
    say(f"  bases: {', '.join(parts)}")
    unusual = [(letters.ambiguous, "ambiguous (IUPAC)"), (letters.invalid, "not nucleotide letters")]
    if any(number for number, _ in unusual):
        say(f"  read as N: {', '.join(f'{number:,} {what}' for number, what in unusual if number)}")
    for reason, number in plan.left_out.items():
        say(f"  reads left out: {number:,} ({reason})")
    skipped = [
        (name, reason) for name, reason in zip(plan.sequences.names, plan.sequences.reason, strict=True) if reason
    ]
    for name, reason in skipped[:LISTED]:
        say(f"  {name}: {reason}")
    if len(skipped) > LISTED:
        say(f"  ... and {len(skipped) - LISTED:,} more; the output lists all")
    if plan.short:
        say(f"  note: {plan.short:,} sequences are shorter than 100 bases; predictions for them are unreliable")
