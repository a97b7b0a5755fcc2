"""What a process does that computes for another: see genoformer.processes, which starts it."""

from __future__ import annotations

import importlib
import logging
import os
import queue
import signal
import threading
import traceback
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace
from io import FileIO
from typing import NoReturn

from genoformer.errors import is_out_of_memory
from genoformer.messages import Message, receive, send

IGNORED = (signal.SIGINT, signal.SIGTERM)
"""Signals that whole groups of processes get; what to do about them is decided where the jobs come from."""

Compute = Callable[[Message], Message]
"""From a job to its result."""


def serve(jobs: int, results: int) -> NoReturn:
    """Answer every job with a result or an error, until nobody can send jobs any more; then end at once.

    The first message names the task, ``module:function``, which is called with it and returns what computes.

    Parameters
    ----------
    jobs, results : file descriptors of pipes, to read from and to write to
    """
    for number in IGNORED:
        signal.signal(number, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, IGNORED)
    inbox: queue.SimpleQueue[Message] = queue.SimpleQueue()
    threading.Thread(target=_read, args=(FileIO(jobs), inbox), daemon=True).start()
    outbox = _Outbox(FileIO(results, "w"))
    logging.getLogger("genoformer").addHandler(_Forward(outbox))
    try:
        _work(inbox, outbox)
    except OSError:  # nobody waits for an answer any more
        os._exit(0)


def _work(inbox: queue.SimpleQueue[Message], outbox: _Outbox) -> NoReturn:
    """Set up what computes, and answer jobs."""
    try:
        compute = _begin(inbox.get())
    except BaseException as error:
        outbox.send(_failure(error))
        outbox.flush()
        os._exit(1)
    outbox.send(Message("ready"))
    while True:
        outbox.send(_answer(inbox.get(), compute))


def _begin(setup: Message) -> Compute:
    return named(setup.head["task"])(setup)


def named(name: str) -> Callable[..., Compute]:
    """Return the function of a name, ``module:function``."""
    module, _, function = name.partition(":")
    return getattr(importlib.import_module(module), function)


def _read(pipe: FileIO, inbox: queue.SimpleQueue[Message]) -> None:
    """Take messages as they come, and end the process, whatever it is doing, when none can come any more."""
    code = 1
    try:
        while True:
            inbox.put(receive(pipe))
    except (EOFError, OSError):
        code = 0
    finally:
        os._exit(code)


def _answer(job: Message, compute: Compute) -> Message:
    number = job.head["job"]
    try:
        result = compute(job)
    except Exception as error:
        return _failure(error, job=number)
    return replace(result, kind="result", head={**result.head, "job": number})


def _failure(error: BaseException, *, job: int | None = None) -> Message:
    """Tell of an error."""
    told = {"job": job, "kind": type(error).__name__, "text": str(error), "lacks_memory": is_out_of_memory(error)}
    return Message("error", {**told, "traceback": "".join(traceback.format_exception(error))})


class _Outbox:
    """Sends a message while the next one is computed, and no more than one."""

    def __init__(self, pipe: FileIO) -> None:
        self._pipe, self._sender = pipe, ThreadPoolExecutor(1)
        self._last: Future[None] | None = None

    def send(self, message: Message) -> None:
        self.flush()
        self._last = self._sender.submit(send, self._pipe, message)

    def flush(self) -> None:
        """Wait until the last message is sent."""
        if self._last is not None:
            self._last.result()


class _Forward(logging.Handler):
    """Has what the library logs be said by the process that gives out the jobs."""

    def __init__(self, outbox: _Outbox) -> None:
        super().__init__(logging.WARNING)
        self._outbox = outbox

    def emit(self, record: logging.LogRecord) -> None:
        self._outbox.send(Message("log", {"level": record.levelno, "text": record.getMessage()}))
