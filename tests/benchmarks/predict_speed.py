"""Time prediction and measure its memory: `python tests/benchmarks/predict_speed.py [--model NAME|PATH]`.

On simulated sequence (random bases, seeded): bases a second with and without the mean over strands; time and peak
memory of whole `genoformer predict` processes on many short records and on one sequence of the same length; and their
peak memory on one contig of 5 Mb and one of 100 Mb, of which the sequence itself is taken off. The default takes about
half an hour on two cores; `--parts speed short` leaves the memory out.

A genome of any size passes through a model in the same memory. To see what surrounds it, on a chromosome or a million
reads, give it little to do: `--model tiny` is a random model that is 300 times smaller.
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
import torch

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from tiny import tiny_config, tiny_model

from genoformer.formats.sequences import open_sequences
from genoformer.model.checkpoint import DEFAULT_MODEL, load_model, save_model
from genoformer.model.device import choose_device, keep_freed_memory
from genoformer.model.genoformer import Genoformer
from genoformer.plan import make_plan
from genoformer.predict import Settings, predict_to_store
from genoformer.store import Output

PARTS = ("speed", "short", "memory")
LINE = 80


def write_fasta(path: Path, *, records: int, length: int) -> Path:
    """Write records of random bases, in lines of LINE bases."""
    rng = np.random.default_rng(0)
    letters = np.frombuffer(b"ACGT", dtype=np.uint8)
    with path.open("wb") as file:
        for number in range(records):
            file.write(b">sequence%d\n" % (number + 1))
            for start in range(0, length, 100_000 * LINE):
                count = min(length - start, 100_000 * LINE)
                bases = letters[rng.integers(0, 4, count)]
                whole = bases[: count // LINE * LINE].reshape(-1, LINE)
                file.write(np.pad(whole, ((0, 0), (0, 1)), constant_values=ord("\n")).tobytes())
                if count % LINE:
                    file.write(bases[count // LINE * LINE :].tobytes() + b"\n")
    return path


def seconds(fasta: Path, model: Genoformer, settings: Settings) -> float:
    """Return the time to read, plan, predict and write, the model being loaded."""
    began = time.perf_counter()
    sequences = open_sequences(fasta)
    output = Output(fasta.with_suffix(".h5"), overwrite=True)
    predict_to_store(make_plan(sequences), sequences, model, output, settings=settings)
    return time.perf_counter() - began


def show_speed(folder: Path, model: Genoformer, options: argparse.Namespace) -> None:
    """Print bases a second with and without the mean over strands."""
    fasta = write_fasta(folder / "one.fa", records=1, length=options.bases)
    for strand_average in (True, False):
        settings = Settings(batch_size=options.batch_size, strand_average=strand_average)
        rates = [options.bases / seconds(fasta, model, settings) for _ in range(options.repeats)]
        words = "with" if strand_average else "without"
        print(f"speed: {np.median(rates):,.0f} bases/s {words} the mean over strands ", end="")
        print(f"({options.bases:,} bases, median of {options.repeats}, {min(rates):,.0f} to {max(rates):,.0f})")


def show_short(folder: Path, options: argparse.Namespace) -> None:
    """Print time and memory of many short records, and those of one sequence as long."""
    total = options.records * options.record_length
    short = write_fasta(folder / "many.fa", records=options.records, length=options.record_length)
    same = write_fasta(folder / "same.fa", records=1, length=total)
    many, one = (predict(fasta, options) for fasta in (short, same))
    print(f"short: {options.records:,} records of {options.record_length} bases {many.seconds:.1f} s, ", end="")
    print(f"{many.peak / 1e6:,.0f} MB; one of {total:,} bases {one.seconds:.1f} s, {one.peak / 1e6:,.0f} MB: ", end="")
    print(f"{many.seconds / one.seconds:.2f} times as long")


class Run(NamedTuple):
    """Seconds that a process took, and the most memory that it held at a time, bytes."""

    seconds: float
    peak: int


def predict(fasta: Path, options: argparse.Namespace) -> Run:
    """Run `genoformer predict` on a file."""
    began = time.perf_counter()
    command = [sys.executable, "-m", "genoformer", "predict", str(fasta), "-o", str(fasta.with_suffix(".h5"))]
    command += ["--model", str(options.model), "--overwrite", "--device", options.device]
    command += ["--batch-size", str(options.batch_size)]
    command += ["--strand-average" if options.strand_average else "--no-strand-average"]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    assert process.stderr is not None
    words = process.stderr.read()
    _, status, usage = os.wait4(process.pid, 0)  # of this child alone
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode != 0:
        raise SystemExit(f"{' '.join(command)}\n{words}")
    fasta.with_suffix(".h5").unlink()
    return Run(time.perf_counter() - began, usage.ru_maxrss * (1 if sys.platform == "darwin" else 1024))


def show_memory(folder: Path, options: argparse.Namespace) -> None:
    """Print the peak memory for each contig, and what is left of it without the sequence itself."""
    beyond = []
    for bases in options.memory_bases:
        fasta = write_fasta(folder / f"contig{bases}.fa", records=1, length=bases)
        took, peak = predict(fasta, options)
        beyond.append(peak - bases)
        print(f"memory: {bases:,} bases, {took:,.0f} s, peak {peak / 1e6:,.0f} MB, ", end="")
        print(f"{beyond[-1] / 1e6:,.0f} MB beyond the sequence")
    if len(beyond) > 1:
        print(f"memory: beyond the sequence, {beyond[-1] / beyond[0] - 1:+.1%} from the first to the last")


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model", default=DEFAULT_MODEL, help="bundled model, folder, or tiny")
    parser.add_argument("--parts", nargs="+", choices=PARTS, default=PARTS)
    parser.add_argument("--bases", type=int, default=3_000_000, help="of the sequence that is timed")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--records", type=int, default=50_000, help="short ones")
    parser.add_argument("--record-length", type=int, default=300)
    parser.add_argument("--memory-bases", type=int, nargs="+", default=(5_000_000, 100_000_000))
    parser.add_argument("--strand-average", action="store_true", help="also in the parts short and memory")
    parser.add_argument("--batch-size", type=int, default=1)
    parser.add_argument("--device", default="auto")
    parser.add_argument("--threads", type=int, default=0, help="0: as torch decides")
    return parser.parse_args()


def main() -> None:
    options = arguments()
    keep_freed_memory()
    if options.threads:
        torch.set_num_threads(options.threads)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        if options.model == "tiny":
            options.model = str(folder / "tiny")
            save_model(folder / "tiny", tiny_model(), tiny_config(), name="tiny", training={})
        if "memory" in options.parts:
            show_memory(folder, options)
        if "short" in options.parts:
            show_short(folder, options)
        if "speed" in options.parts:
            model = load_model(options.model, device=choose_device(options.device))
            print(f"{model.checkpoint.name} on {model.device}, {torch.get_num_threads()} threads, torch ", end="")
            print(torch.__version__)
            seconds(write_fasta(folder / "warm.fa", records=1, length=min(options.bases, 100_000)), model, Settings())
            show_speed(folder, model, options)


if __name__ == "__main__":
    main()
