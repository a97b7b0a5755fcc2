"""Peak memory of one training step against the chunk size: `python tests/benchmarks/train_memory.py`.

Each variant runs in a process of its own: forward and backward through the recipe's model on one window, with whole
sequences kept or with chunks computed again in the backward pass. The memory of a process that only builds the model
is taken off.
"""

from __future__ import annotations

import argparse
import resource
import subprocess
import sys
import time


def step(bases: int, chunk: int) -> None:
    """Take one step, and print seconds and the peak memory of this process in MB."""
    import torch

    from genoformer.config import ModelConfig
    from genoformer.model.genoformer import build

    model = build(ModelConfig()).train()
    began = time.perf_counter()
    if bases:
        generator = torch.Generator().manual_seed(0)
        codes = torch.randint(0, 4, (1, bases), dtype=torch.uint8, generator=generator)
        labels = torch.randint(0, 7, (1, bases), generator=generator)
        logits = model(codes, chunk_size=chunk or None)
        loss = sum(head.loss(logits[name], labels) for name, head in model.heads.items())
        loss.backward()
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1000
    print(f"{time.perf_counter() - began:.2f} {peak:.0f}")


def measured(bases: int, chunk: int) -> tuple[float, float]:
    """Return seconds and peak MB of a step in a process of its own."""
    arguments = [sys.executable, __file__, "--one", str(bases), "--chunks", str(chunk)]
    out = subprocess.run(arguments, check=True, capture_output=True, text=True).stdout
    seconds, peak = map(float, out.split())
    return seconds, peak


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--bases", type=int, nargs="+", default=[100_000, 300_000], help="of the window")
    parser.add_argument("--chunks", type=int, nargs="+", default=[0, 8192, 2048], help="tokens; 0: all at once")
    parser.add_argument("--one", type=int, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.one is not None:
        step(options.one, options.chunks[0])
        return
    _, base = measured(0, 0)
    print(f"{'bases':>10} {'chunk':>8} {'seconds':>8} {'MB':>8}   (a process with the model alone: {base:.0f} MB)")
    for bases in options.bases:
        for chunk in options.chunks:
            seconds, peak = measured(bases, chunk)
            print(f"{bases:10,} {chunk or 'all':>8} {seconds:8.1f} {peak - base:8.0f}", flush=True)


if __name__ == "__main__":
    main()
