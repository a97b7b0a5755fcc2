"""Time linear attention at 100,000 tokens: `python tests/benchmarks/attention_speed.py`.

Forward passes in float32 on the CPU, four heads of 32, 128 features, interleaved so that all contenders see the same
machine, warm, medians of five. Beside each time stand its arithmetic rate, as a part of what a large matrix product
reaches just now, and the time relative to ours. performer-pytorch comes with `pip install 'genoformer[bench]'`.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional

from genoformer.attention import Linformer, Local, Performer
from genoformer.attention.linformer import Mean


@dataclass(frozen=True)
class Contender:
    """Something to time, and the floating-point operations that its matrix products take."""

    name: str
    run: Callable[[], object]
    operations: float


def gemm_peak(repeats: int) -> float:
    """Return the rate of a square matrix product, in operations per second."""
    size = 2048
    a, b = torch.randn(size, size), torch.randn(size, size)
    a @ b
    return 2 * size**3 / min(timed(lambda: a @ b) for _ in range(repeats))


def timed(run: Callable[[], object]) -> float:
    start = time.perf_counter()
    run()
    return time.perf_counter() - start


def performer_pytorch(q: Tensor, k: Tensor, v: Tensor, features: int) -> Callable[[], object] | None:
    """Return the attention of performer-pytorch, or None where it is not installed."""
    try:
        from performer_pytorch import FastAttention
    except ImportError:
        return None
    attention = FastAttention(dim_heads=q.shape[-1], nb_features=features, causal=False)
    return lambda: attention(q, k, v)


def contenders(options: argparse.Namespace) -> Iterator[Contender]:
    heads, dim, tokens, features = options.heads, options.dim, options.tokens, options.features
    q, k, v = (torch.randn(1, heads, tokens, dim) for _ in range(3))
    linear = 8.0 * tokens * features * heads * dim  # two products on either side
    for kind in ("positive", "relu"):
        module = Performer(heads, dim, count=features, features=kind)
        yield Contender(f"performer, {kind}", lambda module=module: module(q, k, v), linear)
    other = performer_pytorch(q, k, v, features)
    if other is not None:
        yield Contender("performer-pytorch", other, linear)
    pooled = Linformer(Mean(features))
    yield Contender("linformer, mean", lambda: pooled(q, k, v), linear / 2)
    local = Local(radius=options.radius)
    yield Contender("local", lambda: local(q, k, v), 12.0 * tokens * options.radius * heads * dim)
    if options.exact:
        few = min(options.exact, tokens)
        short = [x[:, :, :few] for x in (q, k, v)]
        exact = 4.0 * few**2 * heads * dim
        yield Contender(f"exact, {few:,} tokens", lambda: functional.scaled_dot_product_attention(*short), exact)


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--tokens", type=int, default=100_000)
    parser.add_argument("--heads", type=int, default=4)
    parser.add_argument("--dim", type=int, default=32, help="dimensions of a head")
    parser.add_argument("--features", type=int, default=128, help="random features, or slots, a head")
    parser.add_argument("--radius", type=int, default=64, help="of local attention")
    parser.add_argument("--exact", type=int, default=0, help="also time exact attention at this many tokens")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--threads", type=int, default=0, help="0: as torch decides")
    return parser.parse_args()


@torch.inference_mode()
def main() -> None:
    options = arguments()
    if options.threads:
        torch.set_num_threads(options.threads)
    torch.manual_seed(0)
    everyone = list(contenders(options))
    for contender in everyone:
        contender.run()
    times: dict[str, list[float]] = {contender.name: [] for contender in everyone}
    peak = gemm_peak(options.repeats)
    for _ in range(options.repeats):
        for contender in everyone:
            times[contender.name].append(timed(contender.run))
    print(f"{options.tokens:,} tokens, {options.heads} heads of {options.dim}, {options.features} features, ", end="")
    print(f"{torch.get_num_threads()} threads, matrix product {peak / 1e9:.0f} GFLOP/s, torch {torch.__version__}")
    ours = statistics.median(times[everyone[0].name])
    print(f"{'':24}{'seconds':>10}{'spread':>10}{'GFLOP/s':>10}{'of peak':>10}{'times ours':>12}")
    for contender in everyone:
        runs = times[contender.name]
        median = statistics.median(runs)
        rate = contender.operations / median
        spread = (max(runs) - min(runs)) / median
        print(
            f"{contender.name:24}{median:10.4f}{spread:10.0%}{rate / 1e9:10.1f}{rate / peak:10.0%}{median / ours:12.2f}"
        )
    if "performer-pytorch" not in times:
        print("performer-pytorch is not installed: pip install 'genoformer[bench]'")


if __name__ == "__main__":
    main()
