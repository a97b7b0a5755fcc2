"""Processes: results in order, errors in their turn, no hang whatever ends them, no orphan whatever ends this one."""

from __future__ import annotations

import logging
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from io import FileIO
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from process_tasks import assert_gone, is_alive

from genoformer.errors import InputError, ResourceError
from genoformer.messages import Message, receive, send
from genoformer.processes import AHEAD, Processes, _Job

BEGIN = {"task": "process_tasks:begin"}


def start(count: int = 2, **setup: Any) -> Processes:
    labels = [f"process {number}" for number in range(1, count + 1)]
    return Processes([Message("setup", {**BEGIN, **setup})] * count, labels=labels, environment={})


@pytest.fixture(scope="module")
def two() -> Iterator[Processes]:
    with start() as processes:
        yield processes


def job(value: int = 0, **head: Any) -> Message:
    return Message("job", head, {"x": np.arange(value)})


# Messages


def test_messages_arrive_as_they_were_sent() -> None:
    reader, writer = os.pipe()
    sent = Message(
        "x",
        {"name": "a/\udcff\n|", "n": [1, None, 2.5]},
        {
            "half": np.linspace(0, 1, 14, dtype=np.float16).reshape(2, 7),
            "none": np.empty((0, 3), dtype=np.float16),
            "strided": np.arange(12, dtype=np.uint8).reshape(3, 4).T,
            "one": np.array(5, dtype=np.int64),
        },
    )
    with FileIO(reader) as inlet, FileIO(writer, "w") as outlet:
        send(outlet, sent)
        found = receive(inlet)
        outlet.close()
        with pytest.raises(EOFError):
            receive(inlet)
    assert (found.kind, found.head) == (sent.kind, sent.head)
    assert list(found.arrays) == list(sent.arrays)
    for name, array in sent.arrays.items():
        assert found.arrays[name].dtype == array.dtype
        np.testing.assert_array_equal(found.arrays[name], array)
        found.arrays[name][...] = 0  # they can be written to


# Order and balance


def test_results_come_in_the_order_of_their_jobs(two: Processes) -> None:
    draw = random.Random(0)
    jobs = [None if draw.random() < 0.2 else job(n * 9000, seconds=draw.random() / 50) for n in range(30)]
    found = list(two.map(enumerate(jobs)))
    assert [key for key, _ in found] == list(range(30))
    for (key, result), given in zip(found, jobs, strict=True):
        assert (result is None) == (given is None)
        if result is not None:
            np.testing.assert_array_equal(result.arrays["x"], 2 * np.arange(key * 9000))
    assert len({result.head["pid"] for _, result in found if result}) == 2
    assert all(result.head["ignored"] for _, result in found if result)
    assert list(two.map([])) == []


def test_jobs_are_read_no_faster_than_they_are_done(two: Processes) -> None:
    taken = yielded = most = 0

    def jobs() -> Iterator[tuple[int, Message]]:
        nonlocal taken, most
        for number in range(40):
            taken += 1
            most = max(most, taken - yielded)
            yield number, job(seconds=0.3 if number == 0 else 0)

    for _ in two.map(jobs()):
        yielded += 1
    assert yielded == taken == 40
    assert AHEAD < most <= 2 * AHEAD * 2 + 1


def test_who_has_the_least_to_compute_gets_the_next(two: Processes) -> None:
    sizes = [100_000, *[1000] * (4 * AHEAD - 1)]
    first, *others = [
        result.head["pid"]
        for _, result in two.map((n, job(size, seconds=0.5 if n == 0 else 0.01)) for n, size in enumerate(sizes))
        if result is not None
    ]
    assert others.count(first) <= AHEAD - 1


def test_those_that_still_start_are_waited_for() -> None:
    """The first to be ready is not given all there is where there is little."""
    with start() as processes:
        first, second = processes._alive
        first.is_ready = True
        assert processes._free() is first
        first.held[0] = _Job(0)
        assert processes._free() is None
        second.is_ready = True
        second.held[1] = _Job(1, size=1)
        assert processes._free() is first  # a job ahead, where all have one


def test_what_is_left_of_a_map_does_not_disturb_the_next(two: Processes) -> None:
    first = two.map((n, job(n)) for n in range(9))
    assert next(first)[0] == 0
    first.close()
    assert [key for key, _ in two.map((n, job(n)) for n in range(5))] == list(range(5))


# Errors


def yielded_before(processes: Processes, jobs: Any, kind: type[BaseException], match: str) -> list[int]:
    """Return the keys that came before the error."""
    keys: list[int] = []
    with pytest.raises(kind, match=match):
        keys.extend(key for key, _ in processes.map(jobs))
    return keys


def test_an_error_comes_in_its_turn_as_it_was_raised(two: Processes) -> None:
    jobs = [(n, job(do="ours" if n == 3 else "", seconds=0 if n == 3 else 0.05)) for n in range(20)]
    assert yielded_before(two, jobs, InputError, r"^y: is bad\\nreally$") == [0, 1, 2]
    assert [key for key, _ in two.map([(7, job())])] == [7]  # they are still there


def test_a_defect_brings_its_traceback(two: Processes) -> None:
    with pytest.raises(RuntimeError, match=r"^process [12]: ZeroDivisionError: ") as caught:
        list(two.map([(0, job(do="defect"))]))
    assert 'process_tasks.py", line' in caught.value.__notes__[0]


def test_an_error_of_reading_comes_in_its_turn(two: Processes) -> None:
    def jobs() -> Iterator[tuple[int, Message]]:
        yield from ((n, job(seconds=0.05)) for n in range(3))
        raise InputError("z: has changed")

    assert yielded_before(two, jobs(), InputError, "^z: has changed$") == [0, 1, 2]


def test_what_is_logged_there_is_said_here(two: Processes, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING, logger="genoformer")
    list(two.map([(0, job(do="warn"))]))
    (said,) = caplog.messages
    assert said in ("process 1: beware of x", "process 2: beware of x")


@pytest.mark.parametrize(
    ("wrong", "said"),
    [("ours", "^x: cannot begin$"), ("memory", r"^process 1: out of memory \(MemoryError\); use fewer --processes")],
)
def test_what_cannot_begin_ends_it(wrong: str, said: str) -> None:
    with start(1, wrong=wrong) as processes:
        assert yielded_before(processes, [(0, job())], ResourceError, said) == []


def test_a_task_that_is_none() -> None:
    with start(1, task="no_such_module:begin") as processes:
        assert yielded_before(processes, [(0, job())], RuntimeError, "process 1: ModuleNotFoundError") == []


@pytest.mark.parametrize(
    ("how", "said"),
    [
        ("die", r"^process [12] at here: the process was killed \(SIGKILL\), as systems do where memory runs out; "),
        (
            "exit",
            r"^process [12] at here: the process ended \(exit code 7\); what was done before is kept, for --res",
        ),
        ("crash", r"^process [12] at here: the process ended \(SIG(SEGV|BUS)\); "),
    ],
)
def test_a_process_that_ends_ends_it_with_all_before_done(how: str, said: str) -> None:
    with start() as processes:
        pids = processes.pids
        jobs = [(n, job(do=how if n == 4 else "", where="here", seconds=0.02)) for n in range(30)]
        assert yielded_before(processes, jobs, ResourceError, said) == [0, 1, 2, 3]
        assert len(processes.pids) == 1
        assert yielded_before(processes, [(0, job())], ResourceError, said) == []  # from then on
    assert_gone(*pids)


def test_holding_finishes_what_is_underway() -> None:
    with start() as processes:
        given: list[int] = []
        keys: list[int] = []

        def jobs() -> Iterator[tuple[int, Message]]:
            for number in range(100):
                given.append(number)
                yield number, job(seconds=0.02)

        def held() -> Iterator[int]:
            for key, _ in processes.map(jobs()):
                yield key
                if key == 5:
                    processes.hold()

        with pytest.raises(KeyboardInterrupt):
            keys.extend(held())
        assert keys == given
        assert 6 <= len(keys) <= 6 + 4 * AHEAD
        assert yielded_before(processes, [(0, job())], KeyboardInterrupt, "^$") == []


# What ends them, and what does not


def test_signals_of_the_group_are_left_to_this_process(two: Processes) -> None:
    for pid in two.pids:
        os.kill(pid, signal.SIGINT)
        os.kill(pid, signal.SIGTERM)
    assert len(list(two.map((n, job()) for n in range(6)))) == 6
    with start(1) as processes:  # also while they start
        os.kill(processes.pids[0], signal.SIGINT)
        os.kill(processes.pids[0], signal.SIGTERM)
        assert len(list(processes.map([(0, job())]))) == 1


def test_closing_ends_what_is_underway() -> None:
    processes = start()
    pids = processes.pids
    assert next(processes.map((n, job(seconds=600 if n else 0)) for n in range(3)))[0] == 0
    began = time.monotonic()
    processes.close()
    assert time.monotonic() - began < 5
    assert not any(map(is_alive, pids))
    processes.close()
    assert yielded_before(processes, [(0, job())], ResourceError, "these processes were closed") == []


def test_files_beside_the_caller_are_not_imported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("json", "numpy", "genoformer"):
        (tmp_path / f"{name}.py").write_text("raise SystemExit('taken from the working folder')")
    monkeypatch.chdir(tmp_path)
    with start(1) as processes:
        assert len(list(processes.map([(0, job())]))) == 1


PARENT = """
import os, signal, sys
sys.path[:0] = [{root!r}, {tests!r}]
from genoformer.messages import Message
from genoformer.processes import Processes
setup = Message("setup", {{"task": "process_tasks:begin"}})
processes = Processes([setup] * 2, labels="ab", environment={{}})
jobs = [(n, Message("job", {{"seconds": 600 if n else 0}})) for n in range(4)]
for key, result in processes.map(jobs):
    print(*processes.pids, flush=True)
    if sys.argv[1] == "kill":
        os.kill(os.getpid(), signal.SIGKILL)
    if sys.argv[1] == "raise":
        raise ValueError
    if sys.argv[1] == "exit":
        break
"""


@pytest.mark.parametrize(("how", "code"), [("kill", -signal.SIGKILL), ("raise", 1), ("exit", 0)])
def test_none_outlives_this_process(how: str, code: int) -> None:
    tests = Path(__file__).parent
    script = PARENT.format(root=str(tests.parent), tests=str(tests))
    done = subprocess.run([sys.executable, "-c", script, how], capture_output=True, text=True, check=False, timeout=120)
    assert done.returncode == code, done.stderr
    assert len(done.stdout.split()) == 2
    assert_gone(*map(int, done.stdout.split()))
