"""Predict a synthetic contig as one context: at once, streamed, with tokens in a file, and over two processes.

    python tests/benchmarks/whole_sequence.py [--bases 1000000 10000000] [--model NAME|PATH] [--threads 2]

Of each way and length: seconds, peak memory of a process (the largest of those started), and the largest difference in
float32 from the first way. At once, in a window of its own, only contigs of up to a million bases are predicted, since
that takes more than a kilobyte a base. Then whether the differences are below 1e-4, and what memory grows by from the
shortest to the longest contig. Two processes get half the threads each.

With the bundled model and two cores it takes about half an hour; 3 GB of memory and, in the temporary folder, 3 GB of
disk are needed.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import NamedTuple

import numpy as np

TOLERANCE = 1e-4
AT_ONCE = 1_000_000
PIECE = 1 << 20


class Run(NamedTuple):
    seconds: float
    peak: int  # bytes
    values: Path


def compute(arguments: argparse.Namespace) -> None:
    """Predict a contig in this process, or as one of several, and write its values as float32."""
    import torch

    from genoformer import load_model, open_sequences
    from genoformer.model.device import CPU_CHUNK, choose_device, keep_freed_memory
    from genoformer.model.strands import predict_values
    from genoformer.model.streaming import Chunks
    from genoformer.predict import Settings
    from genoformer.regions import Region
    from genoformer.streamed import WholeSequence
    from genoformer.tokens import encode
    from genoformer.training.team import team_of_torchrun

    keep_freed_memory()
    torch.set_num_threads(arguments.threads)
    (record,) = open_sequences(arguments.contig).records()
    with team_of_torchrun(choose_device("cpu")) as (team, device):
        model = load_model(arguments.model, device=device)
        settings = Settings(offload=arguments.way == "offload")
        if arguments.way == "at once":
            values = predict_values(model, torch.from_numpy(encode(record.bases).copy())[None], chunk_size=CPU_CHUNK)
            pieces = [(0, torch.cat([values[track.name][0] for track in model.tracks], dim=-1))]
        else:
            whole = WholeSequence(
                record, Region(record.name, 0, len(record.bases)), model, settings, Chunks(CPU_CHUNK, device)
            )
            pieces = whole.values(together=team.size > 1, tick=lambda _: None)
        with Path(arguments.output if team.leads else os.devnull).open("wb") as file:
            for start, found in pieces:
                file.seek(start * found.shape[1] * 4)
                file.write(found.numpy().tobytes())


def run(way: str, contig: Path, folder: Path, *, model: str, threads: int) -> Run:
    """Have it computed by other processes, and watch them."""
    output = folder / f"{contig.name}.{way.replace(' ', '-')}.f32"
    count = 2 if way == "2 processes" else 1
    launch = [sys.executable]
    if count > 1:
        launch += ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(count)]
    words = [*launch, __file__, "--way", way, "--contig", contig, "--output", output, "--model", model]
    words += ["--threads", max(threads // count, 1)]
    began = time.monotonic()
    process = subprocess.Popen(list(map(str, words)))
    _, status, usage = os.wait4(process.pid, 0)
    if status:
        raise SystemExit(f"{way}: ended with {os.waitstatus_to_exitcode(status)}")
    return Run(time.monotonic() - began, usage.ru_maxrss * 1024, output)


def difference(one: Path, two: Path) -> float:
    """Return the largest difference of two files of float32."""
    assert one.stat().st_size == two.stat().st_size
    most = 0.0
    with one.open("rb") as a, two.open("rb") as b:
        while block := a.read(4 * PIECE):
            most = max(most, float(np.abs(np.frombuffer(block, "f4") - np.frombuffer(b.read(4 * PIECE), "f4")).max()))
    return most


def compare(bases: list[int], *, model: str, threads: int) -> bool:
    peaks: dict[str, list[int]] = {}
    worst = 0.0
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for length in bases:
            contig = folder / f"{length}.fa"
            letters = np.frombuffer(b"ACGT", np.uint8)[np.random.default_rng(1).integers(0, 4, length, dtype=np.uint8)]
            contig.write_bytes(b">contig\n" + letters.tobytes() + b"\n")
            first = None
            for way in ["at once"] * (length <= AT_ONCE) + ["streamed", "offload", "2 processes"]:
                found = run(way, contig, folder, model=model, threads=threads)
                first = first or found.values
                off = difference(first, found.values)
                worst = max(worst, off)
                peaks.setdefault(way, []).append(found.peak)
                print(f"{length:>11,} bases, {way:<12} {found.seconds:7.1f} s  peak {found.peak / 1e6:7.0f} MB"
                      f"  largest difference {off:.1e}", flush=True)  # fmt: skip
                if found.values != first:
                    found.values.unlink()
    print(f"largest difference {worst:.1e} (at most {TOLERANCE})")
    for way, seen in peaks.items():
        if len(seen) > 1:
            grown = (seen[-1] - seen[0]) / (bases[-1] - bases[0])
            print(f"{way}: memory grows by {grown:.1f} bytes a base")
    return worst <= TOLERANCE


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bases", type=int, nargs="+", default=[1_000_000, 10_000_000])
    parser.add_argument("--model", default="prokaryote-genes")
    parser.add_argument("--threads", type=int, default=2)
    for name in ("--way", "--contig", "--output"):
        parser.add_argument(name, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.way:
        compute(arguments)
        return 0
    return 0 if compare(sorted(arguments.bases), model=arguments.model, threads=arguments.threads) else 1


if __name__ == "__main__":
    raise SystemExit(main())
