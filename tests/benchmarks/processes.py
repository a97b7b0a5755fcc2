"""Time prediction by several processes on the CPU: `python tests/benchmarks/processes.py [--processes 2]`.

On simulated sequence (random bases, seeded), into a store: one process with one thread, one process with as many
threads as there are processes, and so many processes with one thread each, started and warm before the clock runs. The
ways take turns. Told are medians, how many times as fast the processes are, and whether they give the bytes of one
process with one thread. The aim, on as many quiet cores: 2 processes at least 1.7 times one with one thread.
"""

from __future__ import annotations

import argparse
import os
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import torch
from predict_speed import write_fasta

from genoformer import Workers
from genoformer.formats.sequences import open_sequences
from genoformer.model.checkpoint import DEFAULT_MODEL, load_model
from genoformer.model.device import keep_freed_memory
from genoformer.model.genoformer import Genoformer
from genoformer.plan import make_plan
from genoformer.predict import Settings, predict_to_store
from genoformer.store import Output, open_store

AIM = 1.7


@contextmanager
def one_process(threads: int) -> Iterator[None]:
    """Have this process compute with so many threads."""
    torch.set_num_threads(threads)
    yield None


def seconds(fasta: Path, model: Genoformer, settings: Settings, workers: Workers | None) -> float:
    """Return the time to read, plan, predict and write."""
    began = time.perf_counter()
    sequences = open_sequences(fasta)
    plan, output = make_plan(sequences), fasta.with_suffix(".h5")
    predict_to_store(plan, sequences, model, Output(output, overwrite=True), settings=settings, workers=workers)
    return time.perf_counter() - began


def values(path: Path) -> np.ndarray:
    """Return all values of a store."""
    with open_store(path) as store:
        return store.axis_values(0, store.sequences.total_bases)


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model", default=DEFAULT_MODEL, help="bundled model or folder")
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--bases", type=int, default=2_000_000, help="of the sequence")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--no-strand-average", action="store_true")
    return parser.parse_args()


def main() -> None:
    options = arguments()
    os.environ.setdefault("THP_MEM_ALLOC_ENABLE", "1")  # as the command line does
    keep_freed_memory()
    model, count = load_model(options.model), options.processes
    settings = Settings(strand_average=not options.no_strand_average)
    many = f"{count} processes of 1 thread"
    ways = {"1 process of 1 thread": 1, f"1 process of {count} threads": count, many: 0}
    taken: dict[str, list[float]] = {name: [] for name in ways}
    starts, found = [], {}
    with tempfile.TemporaryDirectory() as folder:
        fasta = write_fasta(Path(folder) / "x.fa", records=1, length=options.bases)
        warm = write_fasta(Path(folder) / "warm.fa", records=1, length=200_000 * count)
        for _ in range(options.repeats):
            for name, threads in ways.items():
                began = time.perf_counter()
                with one_process(threads) if threads else Workers(model, processes=count, threads=count) as workers:
                    seconds(warm, model, settings, workers)
                    starts += [] if threads else [time.perf_counter() - began]
                    taken[name].append(seconds(fasta, model, settings, workers))
                found[name] = values(fasta.with_suffix(".h5"))
    rates = {name: options.bases / float(np.median(times)) for name, times in taken.items()}
    for name, rate in rates.items():
        low, high = (options.bases / limit(taken[name]) for limit in (max, min))
        print(f"{name}: {rate:,.0f} bases/s, median of {options.repeats}, {low:,.0f} to {high:,.0f}")
    alone, threaded, spread = rates.values()
    print(f"{many}: {spread / alone:.2f} times one process of one thread (aim: {AIM}), ", end="")
    print(f"{spread / threaded:.2f} times one process of {count} threads; ", end="")
    print(f"started and warm in {np.median(starts):.1f} s")
    first = found["1 process of 1 thread"]
    print(f"same bytes as one process of one thread: {found[many].tobytes() == first.tobytes()}")


if __name__ == "__main__":
    main()
