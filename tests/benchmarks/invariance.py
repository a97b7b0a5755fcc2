"""Check on real sequences that windows, chunks, batches and interruptions leave the predictions as they are.

    python tests/benchmarks/invariance.py [--input FASTA] [--model NAME|PATH] [--kills 10]

1. Chunk sizes from 1,000 tokens to whole and batches of 1 to 8: largest difference to the default.
2. Windows of 50,000 and 100,000 bases on sequences that fit into both, so that the context is the same.
3. A run killed by SIGKILL at random moments and resumed each time: the `.part` is opened after every kill, each block
   that it calls done is compared with an uninterrupted run, and so is the final file.
"""

from __future__ import annotations

import argparse
import random
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import h5py
import numpy as np

from genoformer.store import open_store
from genoformer.store.writer import part_path

ROOT = Path(__file__).resolve().parents[2]
VALUES = "tracks/coding-frame/values"
TOLERANCE = 2e-3


def command(source: Path, output: Path, model: str, *options: str) -> list[str]:
    return [sys.executable, "-m", "genoformer", "predict", str(source), "-o", str(output), "--model", model,
            "--genetic-code", "11", *options]  # fmt: skip


def values(path: Path) -> np.ndarray:
    with h5py.File(path) as file:
        return file[VALUES][:].astype(np.float32)


def difference(a: np.ndarray, b: np.ndarray) -> float:
    """Return the largest difference; NaN must be in the same places."""
    assert a.shape == b.shape
    assert (np.isnan(a) == np.isnan(b)).all(), "not the same bases are predicted"
    return float(np.nanmax(np.abs(a - b))) if a.size else 0.0


def compare_settings(source: Path, model: str, folder: Path, variants: list[list[str]]) -> float:
    """Predict with each variant and print its difference to the first; return the largest."""
    reference, worst = None, 0.0
    for number, options in enumerate(variants):
        output = folder / f"{source.name}.{number}.{len(variants)}.h5"
        subprocess.run(command(source, output, model, *options), check=True, capture_output=True)
        got = values(output)
        reference = got if reference is None else reference
        found = difference(reference, got)
        worst = max(worst, found)
        print(f"  {' '.join(options) or 'default':<45} largest difference {found:.2e}", flush=True)
    return worst


def compare_all(genome: Path, small: Path, model: str, folder: Path) -> float:
    """Compare chunks and batches on a genome and windows on a small one; return the largest difference."""
    print(f"chunks and batches, {genome.name}")
    chunks = [["--chunk-size", size] for size in ("1000", "4096", "10000", "0")]
    batches = [["--batch-size", size] for size in ("2", "8")]
    variants = [[], *chunks, *batches, ["--chunk-size", "1000", "--batch-size", "8"]]
    worst = compare_settings(genome, model, folder, variants)
    print(f"windows on one context, {small.name}")
    windows = [["--window", size] for size in ("100000", "50000")]
    return max(worst, compare_settings(small, model, folder, windows))


def check_part(output: Path, reference: np.ndarray) -> str:
    """Compare every block that a killed run left as done; return how many there are."""
    part = part_path(output)
    if not part.exists():
        return "nothing written yet"
    with open_store(part, allow_incomplete=True) as store:
        file = store._hdf5
        blocks, done = file["progress/blocks"][:], file["progress/done"][:].astype(bool)
        stored = file[VALUES]
        found = [difference(reference[a:b], stored[a:b].astype(np.float32)) for a, b in blocks[done]]
        assert max(found, default=0.0) <= TOLERANCE
        return f"{int(done.sum())} of {len(done)} blocks done, largest difference {max(found, default=0.0):.2e}"


def kill_and_resume(source: Path, model: str, folder: Path, *, kills: int, seed: int) -> bool:
    """Kill a run again and again, then let it finish; return whether everything was as it should be."""
    options = ["--window", "20000", "--overlap", "1000"]
    whole = folder / "whole.h5"
    began = time.monotonic()
    subprocess.run(command(source, whole, model, *options), check=True, capture_output=True)
    duration = time.monotonic() - began
    reference, rng = values(whole), random.Random(seed)
    output = folder / "killed.h5"
    killed = 0
    while killed < kills:
        process = subprocess.Popen(
            command(source, output, model, *options, "--resume"), stderr=subprocess.PIPE, stdout=subprocess.PIPE
        )
        try:
            _, said = process.communicate(timeout=rng.uniform(0.1, duration))
        except subprocess.TimeoutExpired:
            process.kill()
            process.communicate()
        else:
            if process.returncode:
                raise AssertionError(said.decode())
            print("  a run finished before it was killed; starting anew", flush=True)
            output.unlink()
            continue
        killed += 1
        if output.exists():  # killed between the renaming and its end
            found = difference(reference, values(output))
            print(f"  kill {killed}: whole, largest difference {found:.2e}; starting anew", flush=True)
            assert found <= TOLERANCE
            output.unlink()
            continue
        print(f"  kill {killed}: {check_part(output, reference)}", flush=True)
    subprocess.run(command(source, output, model, *options, "--resume"), check=True, capture_output=True)
    found = difference(reference, values(output))
    print(f"  resumed to the end: largest difference {found:.2e}", flush=True)
    return found <= TOLERANCE and not part_path(output).exists()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--input", type=Path, help="a genome to interrupt [default: Treponema of the validation set]")
    parser.add_argument("--model", default="prokaryote-genes")
    parser.add_argument("--kills", type=int, default=10)
    parser.add_argument("--only-kills", action="store_true", help="leave out the first two")
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()
    small = ROOT / "data" / "lambda.fa.gz"
    genome = arguments.input or ROOT.parent / "shared/genomes/validation/Tpallidum_Nichols_NC_021490.fa.gz"
    genome = genome if genome.exists() else small
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        worst = 0.0 if arguments.only_kills else compare_all(genome, small, arguments.model, folder)
        print(f"kill -9 and --resume, {genome.name}")
        survived = kill_and_resume(genome, arguments.model, folder, kills=arguments.kills, seed=arguments.seed)
    passed = worst <= TOLERANCE and survived
    print(f"largest difference {worst:.2e} (at most {TOLERANCE}), interruptions {'right' if survived else 'WRONG'}")
    return 0 if passed else 1


if __name__ == "__main__":
    raise SystemExit(main())
