"""Processes that compute for this one: jobs go out, results come back in order, and none of them outlives it.

They are started anew, without a fork, without the caller's main module, and with the signals of their group left to
this process. Each talks through two pipes of its own, and ends at once when that of its jobs closes, which the system
does whatever may end this process.
"""

from __future__ import annotations

import fcntl
import json
import logging
import os
import signal
import subprocess
import sys
import weakref
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from io import FileIO
from multiprocessing.connection import wait
from typing import Any, Generic, TypeVar

from genoformer.errors import GenoformerError, ResourceError
from genoformer.messages import Message, receive, send
from genoformer.serving import IGNORED

AHEAD = 2
"""Jobs that a process has at a time: one to compute, and the next, so that it never waits."""
_POLL, _GRACE = 1.0, 5.0  # seconds
_PIPE_BYTES = 1 << 20
_START = (
    "import json, sys; sys.path[:] = json.loads(sys.argv[1]); "
    "from genoformer.serving import serve; serve(int(sys.argv[2]), int(sys.argv[3]))"
)
_LOG = logging.getLogger(__name__)
_KINDS = {kind.__name__: kind for kind in GenoformerError.__subclasses__()}

K = TypeVar("K")


@dataclass
class _Job(Generic[K]):
    """What was given out, by the key of the caller; a result of None is that of a job of nothing."""

    key: K
    size: int = 0
    where: str = ""
    result: Message | None = None
    error: Exception | None = None
    is_done: bool = False

    def end(self, *, result: Message | None = None, error: Exception | None = None) -> None:
        self.result, self.error, self.is_done = result, error, True


@dataclass
class _Process:
    """One of them, and the jobs that it has, by their numbers."""

    label: str
    popen: subprocess.Popen[bytes]
    jobs: FileIO
    results: FileIO
    held: dict[int, _Job[Any]] = field(default_factory=dict)
    is_ready: bool = False

    @property
    def load(self) -> int:
        return sum(job.size for job in self.held.values())


class Processes:
    """Some processes that all compute the same. Use it in one thread, as a context manager or until `close`.

    Parameters
    ----------
    setups : the first message to each, see `genoformer.serving.serve`
    labels : what each is called in messages
    environment : of the processes, beside this one's

    Raises
    ------
    ResourceError : a process cannot be started
    """

    def __init__(self, setups: Sequence[Message], *, labels: Sequence[str], environment: Mapping[str, str]) -> None:
        self._alive: list[_Process] = []
        started: list[_Process] = []
        self.close = weakref.finalize(self, _end, started)
        """End the processes, whatever they are doing."""
        self._number = 0
        self._is_held = False
        self._failure: Exception | None = None
        try:
            for label in labels:
                started.append(_start(label, {**os.environ, **environment}))
        except OSError as error:
            self.close()
            raise ResourceError(f"{sys.executable}: no process can be started: {error.strerror}") from None
        self._alive += started
        for process, setup in zip(started, setups, strict=True):
            with suppress(OSError):  # that it ended is seen when its results are read
                send(process.jobs, setup)

    def __enter__(self) -> Processes:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def pids(self) -> list[int]:
        """Return the numbers of the processes that are alive, by the system."""
        return [process.popen.pid for process in self._alive]

    def hold(self) -> None:
        """Give out no more jobs: `map` ends with KeyboardInterrupt once it has yielded those given out."""
        self._is_held = True

    def map(self, jobs: Iterable[tuple[K, Message | None]]) -> Iterator[tuple[K, Message | None]]:
        """Have jobs computed, and yield the results with their keys, in the order of the jobs.

        Jobs are taken from the iterator when a process can have them, the one with the fewest bytes to compute, and no
        more of them than a few for each process before the first of them is done. A job None is its own result.

        Raises
        ------
        any error : that of a job, of reading the jobs, or of a process, once the results before it have been yielded
        ResourceError : a process was ended
        KeyboardInterrupt : see `hold`
        """
        if not self.close.alive:
            raise ResourceError("these processes were closed; start others")
        rest, is_more = iter(jobs), True
        waiting: deque[_Job[K]] = deque()  # in order; given out, or done and not yielded
        while True:
            while waiting and waiting[0].is_done:
                job = waiting.popleft()
                if job.error is not None:
                    raise job.error
                yield job.key, job.result
            may_give = is_more and not self._is_held and self._failure is None and not any(j.error for j in waiting)
            process = self._free() if may_give and len(waiting) < 2 * AHEAD * len(self._alive) else None
            if process is not None:
                given = self._give(process, rest)
                is_more = given is not None and given.error is None
                waiting.extend([given] if given is not None else [])
            elif waiting or may_give:
                self._receive()
            elif self._failure is not None:
                raise self._failure
            elif is_more:
                raise KeyboardInterrupt
            else:
                return

    def _free(self) -> _Process | None:
        """Return the process to have the next job, None if it is better to wait for one."""
        able = [process for process in self._alive if process.is_ready and len(process.held) < AHEAD]
        chosen = min(able, key=lambda process: process.load, default=None)
        if chosen is not None and chosen.held and not all(process.is_ready for process in self._alive):
            return None  # those that still start shall have some too
        return chosen

    def _give(self, process: _Process, rest: Iterator[tuple[K, Message | None]]) -> _Job[K] | None:
        """Give out the next job, None if there is none."""
        try:
            following = next(rest, None)
        except Exception as error:  # raised in its turn
            return _Job(None, error=error, is_done=True)  # type: ignore[arg-type]
        if following is None:
            return None
        key, message = following
        if message is None:
            return _Job(key, is_done=True)
        self._number += 1
        job = process.held[self._number] = _Job(key, message.size, message.head.get("where", ""))
        with suppress(OSError):  # that it ended is seen when its results are read
            send(process.jobs, replace(message, head={**message.head, "job": self._number}))
        return job

    def _receive(self) -> None:
        """Wait for what any process has to say, and see whether all are there."""
        if not self._alive:
            raise self._failure or ResourceError("all processes have ended")
        ready = wait([process.results.fileno() for process in self._alive], timeout=_POLL)
        for process in list(self._alive):
            try:
                number = process.results.fileno()
                if number in ready:
                    self._take(process, receive(process.results))
                elif process.popen.poll() is not None and not wait([number], 0):
                    self._lose(process)
            except (EOFError, OSError):
                self._lose(process)

    def _take(self, process: _Process, message: Message) -> None:
        head = message.head
        if message.kind == "ready":
            process.is_ready = True
        elif message.kind == "log":
            _LOG.log(head["level"], "%s: %s", process.label, head["text"])
        elif message.kind == "result":
            process.held.pop(head["job"]).end(result=message)
        elif head["job"] is not None:
            process.held.pop(head["job"]).end(error=_error(head, process.label))
        else:  # before any job
            self._failure = _error(head, process.label)
            self._alive.remove(process)

    def _lose(self, process: _Process) -> None:
        """Take note that a process has ended."""
        self._alive.remove(process)
        try:
            code = process.popen.wait(_GRACE)
        except subprocess.TimeoutExpired:
            process.popen.kill()
            code = process.popen.wait()
        where = next((f" at {job.where}" for job in process.held.values() if job.where), "")
        self._failure = ResourceError(f"{process.label}{where}: {_said_of(code)}")
        for job in process.held.values():
            job.end(error=self._failure)


def _said_of(code: int) -> str:
    """Say what an exit code of a process means."""
    advice = "what was done before is kept, for --resume"
    if code == -signal.SIGKILL:
        return (
            "the process was killed (SIGKILL), as systems do where memory runs out; use fewer --processes, or a "
            f"smaller --chunk-size, --batch-size or --window; {advice}"
        )
    return f"the process ended ({signal.Signals(-code).name if code < 0 else f'exit code {code}'}); {advice}"


def _error(head: Mapping[str, Any], label: str) -> Exception:
    """Make an error again that was raised in another process."""
    if head["lacks_memory"]:
        said = (head["text"].strip().splitlines() or [head["kind"]])[0]
        return ResourceError(f"{label}: out of memory ({said}); use fewer --processes, or a --device with more memory")
    if head["kind"] in _KINDS:
        return _KINDS[head["kind"]](head["text"])
    error = RuntimeError(f"{label}: {head['kind']}: {head['text']}")
    error.add_note(f"There:\n{head['traceback']}")
    return error


def _start(label: str, environment: Mapping[str, str]) -> _Process:
    """Start a process that serves."""
    jobs_out, jobs_in = os.pipe()
    results_out, results_in = os.pipe()
    theirs = (jobs_out, results_in)
    words = [json.dumps([text for text in sys.path if isinstance(text, str)]), *map(str, theirs)]
    try:
        with _signals_left_out():
            popen = subprocess.Popen(
                [sys.executable, "-P", "-c", _START, *words],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                pass_fds=theirs,
                env=environment,
            )
    except BaseException:
        os.close(jobs_in)
        os.close(results_out)
        raise
    finally:
        for number in theirs:
            os.close(number)
    for number in (jobs_in, results_out):
        with suppress(OSError, AttributeError):  # Linux
            fcntl.fcntl(number, fcntl.F_SETPIPE_SZ, _PIPE_BYTES)
    return _Process(label, popen, FileIO(jobs_in, "w"), FileIO(results_out))


@contextmanager
def _signals_left_out() -> Iterator[None]:
    """Block the signals that a process to be started will ignore, until it does; it inherits what is blocked."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, IGNORED)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _end(processes: list[_Process]) -> None:
    """End processes."""
    for process in processes:
        process.jobs.close()
    for process in processes:
        try:
            process.popen.wait(_GRACE)
        except subprocess.TimeoutExpired:
            process.popen.kill()
            process.popen.wait()
        process.results.close()
