"""One reader, many damaged files: what comes out, how long it takes, and what memory it needs."""

from __future__ import annotations

import ctypes
import logging
import os
import random
import resource
import signal
import sys
import traceback
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from types import FrameType

from mutations import mutate
from targets import TARGETS, Target

from genoformer.errors import GenoformerError

SECONDS = 1.0
"""of processor time that a file of some kilobytes may take, and half as much again at most"""
MEMORY = 1 << 30
"""bytes that it may take, beyond what the process has"""
GROWTH = 48 << 20
"""bytes that the process may grow by from the first tenth to the last file: more is a leak"""
PATIENCE = 20.0
"""seconds in which a reader must come back from one file"""
CORPUS = Path(__file__).parent / "corpus"


class TooSlowError(BaseException):
    """A reader took too long; no `except Exception` holds it."""


class Clock:
    """Told each half second of processor time."""

    halves = 0
    """that passed since a file was begun"""

    def ring(self, _: int, __: FrameType | None) -> None:
        self.halves += 1
        if self.halves > 2 * SECONDS:
            raise TooSlowError("took too long")


CLOCK = Clock()

UNRAISED: list[str] = []
"""what went wrong where nothing can be raised, as at closing: users would see a traceback"""


def fault(target: Target, path: Path) -> str | None:
    """Read a file, with the limits of `guarded`; return what is wrong with how it was read, else None."""
    CLOCK.halves = 0
    UNRAISED.clear()
    try:
        target.read(path)
    except GenoformerError as error:
        return _unfit(str(error)) or next(iter(UNRAISED), None)
    except (Exception, TooSlowError) as error:
        last = traceback.extract_tb(error.__traceback__)[-1]
        return f"{type(error).__name__}: {error} ({last.filename}:{last.lineno})"
    return next(iter(UNRAISED), None)


def _unfit(message: str) -> str | None:
    """Say why a message is not one that a user can read in a line."""
    if not message or "\n" in message:
        return f"not one line: {message!r}"
    return f"{len(message):,} letters: {message[:200]!r}..." if len(message) > 3000 else None


@contextmanager
def guarded() -> Iterator[None]:
    """Limit time and memory, and keep log lines to oneself."""
    before, limits = signal.signal(signal.SIGPROF, CLOCK.ring), resource.getrlimit(resource.RLIMIT_AS)
    size = int(Path("/proc/self/statm").read_text().split()[0]) * os.sysconf("SC_PAGE_SIZE")
    resource.setrlimit(resource.RLIMIT_AS, (size + MEMORY, limits[1]))
    logging.disable(logging.CRITICAL)
    tell, sys.unraisablehook = sys.unraisablehook, lambda told: UNRAISED.append(f"{told.exc_value!r} in {told.object}")
    signal.setitimer(signal.ITIMER_PROF, 0.5, 0.5)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        sys.unraisablehook = tell
        logging.disable(logging.NOTSET)
        resource.setrlimit(resource.RLIMIT_AS, limits)
        signal.signal(signal.SIGPROF, before)


def resident() -> int:
    """Return the bytes of memory in use, without what the allocator holds though it was freed."""
    with suppress(AttributeError):  # only glibc has it
        ctypes.CDLL(None).malloc_trim(0)
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def prepared(target: Target, folder: Path) -> tuple[list[bytes], Path]:
    """Make what the reader needs; return good contents, which it reads without fault, and where to put bad ones."""
    good, path = list(target.prepare(folder)), folder / target.file
    for content in good:
        path.write_bytes(target.wrap(content))
        try:
            target.read(path)
        except GenoformerError as error:
            if target.file.endswith((".txt", ".json")):
                continue  # which need not all go with the weights or the sequences that are there
            raise AssertionError(f"{target.file}: a good file is refused: {error}") from error
    return good, path


def damaged(target: Target, good: list[bytes], number: int) -> bytes:
    """Return the damaged file of a number."""
    dice = random.Random(number)
    return mutate(dice.choice(good), dice, others=good, words=target.words)


def corpus(name: str) -> list[Path]:
    """Return the files that once hurt a reader."""
    return sorted((CORPUS / name).glob("*.bin"))


def attack(
    name: str, folder: Path, *, first: int, last: int, reached: Callable[[int], None] = lambda _: None
) -> tuple[bytes, str] | None:
    """Read the files that once hurt, and damaged ones number first to last - 1; return the first that does, and how."""
    target = TARGETS[name]
    good, path = prepared(target, folder)
    early = 0
    with guarded():
        for known in corpus(name):
            path.write_bytes(target.wrap(known.read_bytes()))
            if wrong := fault(target, path):
                return known.read_bytes(), f"{known.name}: {wrong}"
        for number in range(first, last):
            bad = damaged(target, good, number)
            path.write_bytes(target.wrap(bad))
            reached(number)
            wrong = fault(target, path)
            if wrong:
                return bad, wrong
            if number == first + (last - first) // 10:
                early = resident()
    grown = resident() - early
    if last - first >= 10_000 and grown > GROWTH + target.leak // 3 * (last - first):
        return b"", f"memory grew by {grown >> 20} MiB over {last - first:,} files"
    return None
