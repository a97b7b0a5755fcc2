"""Words, tables and progress, all on stderr: a bar on a terminal, a line every few seconds elsewhere."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Protocol

from rich.console import Console

from genoformer.cli import events
from genoformer.errors import printable

if TYPE_CHECKING:
    from genoformer.plan import Plan
    from genoformer.training.run import Progress

console = Console(stderr=True, highlight=False, soft_wrap=True, emoji=False)
LOG_SECONDS = 10.0
LISTED = 5
"""Sequences listed by name before the rest is only counted."""


class Report(Protocol):
    """Called with how many bases were done since the last call."""

    def __call__(self, bases: int, /) -> None: ...


def say(message: str) -> None:
    """Write a line to stderr, what cannot be printed escaped; with --log-json as the text of a message."""
    if events.is_json():
        events.emit("message", {"text": message.strip()})
        return
    console.print(printable(message), markup=False)


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


def counted(count: int, noun: str) -> str:
    """Write a number with its noun.

    >>> counted(1, "window"), counted(1200, "window")
    ('1 window', '1,200 windows')
    """
    return f"{count:,} {noun}{'' if count == 1 else 's'}"


@contextmanager
def progress(total: int, *, what: str = "predict", unit: str = "b") -> Iterator[Report]:
    """Show how far along ``total`` bases, or another unit, are, how fast, and how long it will take."""
    if events.is_json():
        yield events.progress_lines(total, unit, every=LOG_SECONDS)
    elif console.is_terminal:
        yield from _bar(total, what, unit)
    else:
        yield from _lines(total, what, unit)


def _bar(total: int, what: str, unit: str) -> Iterator[Report]:
    from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn

    columns = (TextColumn("{task.description}"), BarColumn(bar_width=None), TaskProgressColumn())
    with Progress(*columns, TextColumn("{task.fields[rate]}"), console=console, expand=True) as bar:
        task = bar.add_task(what, total=max(total, 1), rate="")
        pace = _Pace(total, unit)

        def report(bases: int, /) -> None:
            pace.add(bases)
            bar.update(task, advance=bases, rate=pace.words())

        yield report


def _lines(total: int, what: str, unit: str) -> Iterator[Report]:
    pace = _Pace(total, unit)
    last = time.monotonic()

    def report(bases: int, /) -> None:
        nonlocal last
        pace.add(bases)
        if time.monotonic() - last >= LOG_SECONDS:
            last = time.monotonic()
            percent = 100 * pace.done / max(total, 1)
            said = [f"{what}: {percent:.1f}% of {size(total, unit)}", pace.words()]
            say(", ".join(filter(None, said)))

    yield report


class _Pace:
    """How fast bases go by; those done before this run (the first call) do not count."""

    def __init__(self, total: int, unit: str) -> None:
        self.total, self.unit, self.done = total, unit, 0
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
        return f"{size(rate, f'{self.unit}/s')}, {duration((self.total - self.done) / rate)} left"


def show_plan(plan: Plan) -> None:
    """Say what will become of the input: every base is in one of the numbers."""
    for line in describe_plan(plan):
        say(line)


def left_out_of(reason: str) -> str:
    """Say what is left out for a reason."""
    from genoformer.formats.sequences import NO_NAME

    return "records" if reason == NO_NAME else "reads"


def describe_plan(plan: Plan) -> Iterator[str]:
    """Yield lines that tell what will become of the input."""
    account, letters = plan.accounting, plan.letters
    yield f"{plan.source}: {counted(len(plan.sequences), 'sequence')}, {account.total:,} bases"
    contexts = len(set(plan.owned[:, 0].tolist())) if plan.whole else len(plan.owned)
    what = "whole sequence" if plan.whole else "window"
    parts = [f"{account.predicted:,} to predict in {counted(contexts, what)}"]
    for bases, what in (
        (account.masked, plan.masked_as),
        (account.skipped, "in skipped sequences"),
        (account.not_requested, "not requested"),
    ):
        if bases:
            parts.append(f"{bases:,} {what}")
    yield f"  bases: {', '.join(parts)}"
    unusual = [(letters.ambiguous, "N or another IUPAC letter"), (letters.invalid, "not nucleotide letters")]
    if any(number for number, _ in unusual):
        yield f"  read as N: {', '.join(f'{number:,} {what}' for number, what in unusual if number)}"
    if plan.origins:
        names = [plan.sequences.names[index] for index in list(plan.origins)[:LISTED]]
        more = f", ... and {len(plan.origins) - LISTED:,} more" if len(plan.origins) > LISTED else ""
        yield f"  circular, windows reach over the origin: {', '.join(names)}{more}"
    yield from describe_making(plan.made_by)
    for reason, number in plan.left_out.items():
        yield f"  {left_out_of(reason)} left out: {number:,} ({reason})"
    skipped = [
        (name, reason) for name, reason in zip(plan.sequences.names, plan.sequences.reason, strict=True) if reason
    ]
    for name, reason in skipped[:LISTED]:
        yield f"  {name}: {reason}"
    if len(skipped) > LISTED:
        yield f"  ... and {len(skipped) - LISTED:,} more; the output lists all"
    if plan.short:
        few = counted(plan.short, "sequence")
        yield f"  note: {few} shorter than 100 bases; predictions for them are unreliable"


def describe_making(made_by: dict[str, Any]) -> Iterator[str]:
    """Yield lines that tell how sequences were made that are in no file."""
    if made_by:
        yield f"  {made_by.get('how', '')}"
    for what, counts in made_by.get("counts", {}).items():
        told = ", ".join(f"{number:,} {name}" for name, number in counts.items() if number) or "none"
        yield f"  {what}: {told}"


@contextmanager
def quiet_pipe() -> Iterator[None]:
    """End quietly when whoever reads standard output stops, as `head` does."""
    try:
        yield
        sys.stdout.flush()
    except (BrokenPipeError, SystemExit):  # rich ends the program itself
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # for the flush when Python ends


@contextmanager
def training_progress(steps: int) -> Iterator[Callable[[Progress], None]]:
    """Show loss, speed and validation of each step: a bar on a terminal, a line every few seconds elsewhere."""
    if events.is_json():
        yield events.training_lines(steps, every=LOG_SECONDS)
        return
    words = _TrainingWords()
    if not console.is_terminal:
        last = float("-inf")

        def show_line(step: Progress) -> None:
            nonlocal last
            said = words.of(step)
            if step.validation is not None or step.step == step.steps or time.monotonic() - last >= LOG_SECONDS:
                last = time.monotonic()
                say(f"train: step {step.step:,} of {step.steps:,}, {said}")

        yield show_line
        return
    from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn

    columns = (TextColumn("train"), BarColumn(), TaskProgressColumn(), TextColumn("{task.fields[words]}"))
    with Progress(*columns, console=console) as bar:
        task = bar.add_task("train", total=steps, words="")
        yield lambda step: bar.update(task, completed=step.step, words=words.of(step))


class _TrainingWords:
    """What to say of a step; time is reckoned from the first one on."""

    def __init__(self) -> None:
        self._began, self._first, self._validation = 0.0, 0, ""

    def of(self, step: Progress) -> str:
        if not self._first:
            self._began, self._first = time.monotonic(), step.step
        if step.validation is not None:
            self._validation = f", validation {step.measure} {step.validation:.4f}"
        done = step.step - self._first
        left = (time.monotonic() - self._began) / done * (step.steps - step.step) if done else 0.0
        rest = f", {duration(left)} left" if done and left else ""
        return f"loss {step.loss:.4f}, {size(step.bases_per_second, 'b/s')}{self._validation}{rest}"
