"""Peak memory of a training step through one layer of attention: `python tests/benchmarks/layer_memory.py`.

Each layer runs forward and backward on one sequence in a process of its own; memory is what the process's peak grows
by. The layer to compare with is the same one with attention replaced by a product of queries, keys and values token by
token: it keeps what any network of that width keeps. Its kept activations are counted, too.
"""

from __future__ import annotations

import argparse
import resource
import subprocess
import sys
from collections.abc import Callable
from typing import Any

WIDTH, HEADS = 128, 4
MEGABYTE = 1e6


def layers() -> dict[str, Callable[[], Any]]:
    """Return every attention mechanism of interest by name, "pointwise" first."""
    from genoformer.attention import PROJECTIONS, Attention, Joint, Linformer, Local, Performer
    from genoformer.attention.features import FEATURES

    class Pointwise(Attention):
        def summarize(self, keys: Any, values: Any, **_: Any) -> Any:
            return keys * values

        def attend(self, queries: Any, summary: Any, *, start: int = 0) -> Any:
            return queries * summary

    dim = WIDTH // HEADS
    made: dict[str, Callable[[], Any]] = {"pointwise": Pointwise, "local": Local}
    for kind in FEATURES:
        made[f"performer {kind}"] = lambda kind=kind: Performer(HEADS, dim, features=kind)
    made["performer natural norm"] = lambda: Performer(HEADS, dim, max_temperature=None)
    for kind in ("mean", "seeded", "interpolated"):
        grid = (1024,) if kind == "interpolated" else ()
        made[f"linformer {kind}"] = lambda kind=kind, grid=grid: Linformer(PROJECTIONS[kind](256, *grid))
    made["linformer dynamic"] = lambda: Linformer(PROJECTIONS["dynamic"](256, HEADS, dim))
    made["joint"] = lambda: Joint(Performer(HEADS, dim))
    return made


def step(name: str, tokens: int) -> None:
    """Take one step and print the growth of this process's peak, and what was kept between the passes, in MB."""
    import torch

    from genoformer.attention.layer import MultiHead

    layer = MultiHead(WIDTH, HEADS, layers()[name]())
    x = torch.randn(1, tokens, WIDTH, requires_grad=True)
    kept: dict[int, int] = {}

    def keep(tensor: torch.Tensor) -> torch.Tensor:
        storage = tensor.untyped_storage()
        kept[storage.data_ptr()] = storage.nbytes()
        return tensor

    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
        out = layer(x)
    total = sum(kept.values())
    out.square().sum().backward()
    peak = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) * 1024
    print(peak / MEGABYTE, total / MEGABYTE)


def measured(name: str, tokens: int) -> tuple[float, float]:
    """Return peak and kept MB of a step in a process of its own."""
    command = [sys.executable, __file__, "--one", name, "--tokens", str(tokens)]
    peak, kept = subprocess.run(command, check=True, capture_output=True, text=True).stdout.split()
    return float(peak), float(kept)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--tokens", type=int, default=100_000)
    parser.add_argument("--one", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.one:
        step(options.one, options.tokens)
        return
    print(
        f"{options.tokens:,} tokens, width {WIDTH}, {HEADS} heads: {WIDTH * options.tokens * 4 / MEGABYTE:.0f} MB each"
    )
    print(f"{'':24}{'peak MB':>10}{'kept MB':>10}{'peak / pointwise':>18}{'kept / pointwise':>18}")
    base = measured("pointwise", options.tokens)
    for name in layers():
        peak, kept = base if name == "pointwise" else measured(name, options.tokens)
        print(f"{name:24}{peak:10.0f}{kept:10.0f}{peak / base[0]:18.2f}{kept / base[1]:18.2f}", flush=True)


if __name__ == "__main__":
    main()
