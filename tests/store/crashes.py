"""Runs that die, for the tests of this folder: children of a process that has everything loaded, killed anywhere.

A child writes a small genome into a store. It dies by SIGKILL from outside after some milliseconds, or by its own hand
(`os._exit`) just before, half-way through or just after one of the calls that change something on disk.
"""

from __future__ import annotations

import errno
import os
import random
import resource
import signal
import sys
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from store_samples import SIGNAL, block, expected, spans

from genoformer.errors import ResourceError
from genoformer.store import SequenceTable, TrackStore, TrackWriter, damaged_sequences, open_store, part_path

GENOMES = {
    "one long": ([200_000], 9_500),
    "a chunk and a base": ([65_536, 1, 65_535, 2], 30_000),
    "many short": ([150 + i % 60 for i in range(150)], 1_000),
    "with empty ones": ([0, 40_000, 0, 0, 90_001, 0], 7_000),
    "blocks beyond chunks": ([400_000], 150_000),
}
"""Lengths of the sequences, and bases of a block."""
CALLS = ("pwrite", "ftruncate", "fsync", "rename")
DIED = 77


def table(genome: str) -> SequenceTable:
    lengths = GENOMES[genome][0]
    return SequenceTable.build([f"s{i}/{genome}" for i in range(len(lengths))], lengths)


def begin(path: Path, genome: str, **options: Any) -> TrackWriter:
    sequences = table(genome)
    options = {"provenance": {}, "blocks": spans(sequences, GENOMES[genome][1]), "resume": True} | options
    return TrackStore.create(path, sequences, [SIGNAL], **options)


def write(path: Path, genome: str, seed: int) -> None:
    """Write what is missing, in random order, with commits now and then."""
    dice = random.Random(seed)
    with begin(path, genome) as writer:
        writer.commit_bytes = dice.choice([1, 100_000, 400_000])
        left = np.flatnonzero(~writer.done).tolist()
        dice.shuffle(left)
        for number in left:
            writer.write(block(writer.sequences, writer.blocks[number]))
            if dice.random() < 0.05:
                writer.commit()
        writer.finish()


def dying(seed: int) -> None:
    """Have this process die at a random one of the calls that change files."""
    dice = random.Random(seed)
    left = int(dice.expovariate(1 / 40))
    when = dice.choice(["before", "half", "after"])

    def wrap(name: str, call: Callable[..., Any]) -> Callable[..., Any]:
        def wrapped(*arguments: Any, **options: Any) -> Any:
            nonlocal left
            left -= 1
            if left == -1:
                if when == "half" and name == "pwrite":
                    descriptor, data, place = arguments
                    call(descriptor, bytes(data)[: dice.randrange(len(data) + 1)], place)
                elif when == "after":
                    call(*arguments, **options)
                os._exit(DIED)
            return call(*arguments, **options)

        return wrapped

    for name in CALLS[:3]:
        setattr(os, name, wrap(name, getattr(os, name)))
    Path.replace = wrap("rename", Path.replace)  # type: ignore[method-assign]


def in_child(work: Callable[[], None], *, kill_after: float | None = None) -> int:
    """Do something in a child and return how it ended: the exit code, or minus the signal."""
    child = os.fork()
    if child == 0:
        code = 1
        try:
            work()
            code = 0
        except ResourceError as error:
            os.write(1, f"{error}\n".encode())
            code = 3
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(code)
    if kill_after is not None:
        time.sleep(kill_after)
        os.kill(child, signal.SIGKILL)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def check_part(path: Path, genome: str, before: np.ndarray | None) -> np.ndarray:
    """Check that each block marked done has its values and no other has any; return which are done."""
    sequences = table(genome)
    right = expected(0, sequences.total_bases)
    with open_store(part_path(path), allow_incomplete=True) as store:
        values = np.concatenate([store[name] for name in sequences.names])
        assert damaged_sequences(store).tolist() == []
    with begin(path, genome) as writer:
        done, blocks = writer.done, writer.blocks
    has_values = np.zeros(len(values), dtype=bool)
    for start, end in blocks[done]:
        has_values[start:end] = True
    assert np.array_equal(values[has_values], right[has_values])
    assert np.isnan(values[~has_values]).all()
    assert before is None or done[before].all(), "a block that was done is lost"
    return done


def check_whole(path: Path, genome: str) -> None:
    sequences = table(genome)
    with open_store(path) as store:
        assert np.array_equal(
            np.concatenate([store[name] for name in sequences.names]), expected(0, sequences.total_bases)
        )
        assert damaged_sequences(store).tolist() == []
        wanted = ["predicted" if length else "pending" for length in sequences.lengths]
        assert store.sequences.status == wanted
    assert not part_path(path).exists()


def killed(folder: Path, genome: str, seed: int) -> int:
    """Write a store through kills until it is whole; return how many there were."""
    dice = random.Random(seed)
    path, done, kills = folder / "s.h5", None, 0
    while not path.exists():
        by_hand = dice.random() < 0.7

        def work(seed: int = dice.randrange(1 << 30), by_hand: bool = by_hand) -> None:
            if by_hand:
                dying(seed)
            write(path, genome, seed)

        code = in_child(work, kill_after=None if by_hand else dice.uniform(0, 0.1))
        assert code in (0, DIED, -signal.SIGKILL), code
        kills += code != 0
        if part_path(path).exists():
            done = check_part(path, genome, done)
        else:
            assert done is None or path.exists(), "a run is lost"
        if kills > 30:  # enough of it
            write(path, genome, seed)
    check_whole(path, genome)
    return kills


def filled(folder: Path, genome: str, limit: int) -> int:
    """Write into a file that may not grow beyond ``limit`` bytes, then without a limit; return the exit code."""
    path = folder / "s.h5"

    def work() -> None:
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))
        write(path, genome, 0)

    code = in_child(work)
    assert code in (0, 3), code
    if part_path(path).exists():
        check_part(path, genome, None)
    if code:
        assert not path.exists()
        write(path, genome, 1)
    check_whole(path, genome)
    return code


def lost(folder: Path, genome: str, calls: int) -> int:
    """Have the file system go away after so many calls, for good; return the exit code."""
    path = folder / "s.h5"

    def work() -> None:
        left = calls

        def gone(call: Callable[..., Any]) -> Callable[..., Any]:
            def wrapped(*arguments: Any) -> Any:
                nonlocal left
                left -= 1
                if left < 0:
                    raise OSError(errno.ESTALE, os.strerror(errno.ESTALE))
                return call(*arguments)

            return wrapped

        for name in ("pwrite", "pread", "fsync", "ftruncate"):
            setattr(os, name, gone(getattr(os, name)))
        write(path, genome, 0)

    code = in_child(work)
    assert code in (0, 3), code
    if part_path(path).exists():
        check_part(path, genome, None)
    if not path.exists():
        write(path, genome, 1)
    check_whole(path, genome)
    return code


def main(kind: str, folder: str, first: int, rounds: int) -> None:
    """Do some rounds over all genomes and print their outcome, a line each."""
    names = list(GENOMES)
    for number in range(first, first + rounds):
        here = Path(folder) / f"{kind}{number}"
        here.mkdir()
        genome = names[number % len(names)]
        if kind == "killed":
            outcome = killed(here, genome, number)
        elif kind == "filled":
            outcome = filled(here, genome, 3_000 + 7_919 * number)
        else:
            outcome = lost(here, genome, 1 + 5 * number)
        print(kind, number, outcome, flush=True)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4]))
