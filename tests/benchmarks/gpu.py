"""Check and time the attention core on a GPU, in under six minutes: `python tests/benchmarks/gpu.py`.

First parity: every mechanism of the tests against its naive float64 twin at a few hundred tokens, and the linear ones
against their own float64 modules on the CPU at more, outputs and gradients, for float32 and bfloat16 inputs. Then, for
every mechanism, length and size of heads: time, TFLOP/s, GB/s, the fraction of the floor, and peak memory; eager, and
through torch.compile at one length. The floor is the longest of three times: operations at the rate of a matrix
product, exponentials at the rate of exp2, and bytes of queries, keys, values and outputs at the rate of a copy, all
measured on the same device beforehand. Exits with 1 if a parity check fails.

Without a CUDA device the same runs on the CPU with few tokens, to show that it works; it then says nothing of a GPU.
"""

from __future__ import annotations

import argparse
import copy
import fnmatch
import statistics
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import torch
from torch import Tensor, nn

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # tests: the twins, and the table of cases

from attention.cases import CASES, DIM, HEADS, Case, draw, error, prefix_mask

from genoformer.attention.features import FEATURES
from genoformer.bench.contenders import CONTENDERS, CORE, MATRIX, Contender, Shape
from genoformer.bench.probe import Task

WIDTH = 256
TOLERANCES = {torch.float32: (2e-5, 2e-4), torch.bfloat16: (2e-2, 4e-2)}
"""Largest error of outputs and of gradients, as a part of their norm. float32: sums and exponentials round in the
seventh digit, gradients of normalized vectors cost one or two more. bfloat16 inputs are rounded before both compute, so
that what is left is the rounding of outputs to 8 bits, and of gradients on their way through them."""


# Parity ------------------------------------------------------------------------------------------------------------


class Parity(NamedTuple):
    """Errors of outputs and of the worst gradient, as parts of their norm."""

    outputs: float
    gradients: float

    def holds(self, dtype: torch.dtype) -> bool:
        return self.outputs <= TOLERANCES[dtype][0] and self.gradients <= TOLERANCES[dtype][1]


def compare(
    module: nn.Module, exact: Callable[..., Tensor], inputs: Sequence[Tensor], mask: Tensor | None, device: str
) -> Parity:
    """Run a module on the device, and something exact in float64 on the CPU, on the same numbers."""
    here = copy.deepcopy(module).float().to(device)
    mine = [x.to(device).requires_grad_() for x in inputs]
    theirs = [x.detach().double().requires_grad_() for x in inputs]
    got = here(*mine, mask=None if mask is None else mask.to(device))
    expected = exact(*theirs, mask)
    generator = torch.Generator().manual_seed(9)
    upstream = torch.randn(expected.shape, generator=generator).to(got.dtype)
    pairs = zip(
        torch.autograd.grad(got, mine, upstream.to(device)),
        torch.autograd.grad(expected, theirs, upstream.double()),
        strict=True,
    )
    return Parity(error(got.cpu(), expected), max(relative(a.cpu(), b) for a, b in pairs))


def relative(got: Tensor, expected: Tensor) -> float:
    """Return an error; of what is expected to be all zeros, the norm."""
    return error(got, expected) if bool(expected.any()) else float(got.double().norm())


def parity(case: Case, *, tokens: int, dtype: torch.dtype, device: str) -> Parity:
    """Compare with the naive twin, with holes and padding."""
    module = case.module(dtype=torch.float64)
    inputs = draw(2, HEADS, tokens, DIM, seed=tokens, dtype=dtype)
    mask = prefix_mask([tokens, tokens // 2], tokens)
    mask[:, 3::7] = False
    return compare(module, lambda q, k, v, mask: case.twin(module, q, k, v, mask), inputs, mask, device)


def parity_of_many(case: Case, *, tokens: int, dtype: torch.dtype, device: str) -> Parity:
    """Compare with the same module in float64 on the CPU, at more tokens than a matrix of weights allows."""
    module = case.module(dtype=torch.float64, tokens=tokens)
    inputs = draw(1, HEADS, tokens, DIM, seed=tokens, dtype=dtype)
    return compare(module, lambda q, k, v, mask: module(q, k, v, mask=mask), inputs, None, device)


def show_parity(options: argparse.Namespace, clock: Clock) -> int:
    """Print a line for each case; return how many fail."""
    sizes = ((parity, options.parity_tokens), (parity_of_many, options.many_tokens))
    titles = [f"{str(kind)[6:]} n={tokens:,}" for kind in TOLERANCES for _, tokens in sizes]
    print(f"\nparity, errors of outputs / gradients\n{'':40}" + "".join(f"{title:>22}" for title in titles))
    failed = 0
    for case in chosen(CASES, options.only):
        cells = []
        for dtype in TOLERANCES:
            for check, tokens in sizes:
                if clock.is_over() or (check is parity_of_many and not case.linear):
                    cells.append("-")
                    continue
                found = check(case, tokens=tokens, dtype=dtype, device=options.device)
                bad = not found.holds(dtype)
                failed += bad
                cells.append(f"{'FAILED ' if bad else ''}{found.outputs:.1e} / {found.gradients:.1e}")
        print(f"{case.name:40}" + "".join(f"{cell:>22}" for cell in cells), flush=True)
    return failed


# The floor ---------------------------------------------------------------------------------------------------------


class Rates(NamedTuple):
    """What the device reaches, a second."""

    products: float
    """floating-point operations of the fastest kind of matrix product"""
    exponentials: float
    bytes: float


def seconds(run: Callable[[], object], device: str, *, repeats: int = 5) -> float:
    """Return the best time of a few."""
    times = []
    for _ in range(repeats + 1):
        wait(device)
        began = time.perf_counter()
        run()
        wait(device)
        times.append(time.perf_counter() - began)
    return min(times[1:])


def wait(device: str) -> None:
    if device != "cpu":
        torch.cuda.synchronize()


def product_rates(device: str) -> dict[str, float]:
    """Return the rates of square matrix products by kind of number."""
    size = 1024 if device == "cpu" else 8192
    found = {}
    for name, dtype, reduced in (("float32", torch.float32, False), ("tf32", torch.float32, True),
                                 ("bfloat16", torch.bfloat16, False)):  # fmt: skip
        if device == "cpu" and name != "float32":
            continue
        torch.set_float32_matmul_precision("high" if reduced else "highest")
        a, b = (torch.randn(size, size, device=device, dtype=dtype) for _ in range(2))
        found[name] = 2.0 * size**3 / seconds(lambda a=a, b=b: a @ b, device)
    torch.set_float32_matmul_precision("highest")
    return found


def exponential_rate(device: str) -> tuple[float, str]:
    """Return exponentials a second, and how they were measured: many in a row a number, so that memory is no limit."""
    if device == "cpu":
        x = torch.randn(1 << 17)  # stays in the caches
        out = torch.empty_like(x)
        return 50 * x.numel() / seconds(lambda: [torch.exp2(x, out=out) for _ in range(50)], device), "in caches"
    x, depth = torch.randn(1 << 24, device=device), 64

    def chain(x: Tensor) -> Tensor:
        for _ in range(depth):
            x = torch.exp2(-x)
        return x

    try:
        compiled = torch.compile(chain)
        return depth * x.numel() / seconds(lambda: compiled(x), device), "in one kernel"
    except Exception as failure:  # whatever a compiler may say
        rate = x.numel() / seconds(lambda: torch.exp2(x), device)
        return rate, f"through memory, a lower bound, since torch.compile failed: {type(failure).__name__}"


def measured_rates(device: str) -> Rates:
    """Measure and print what the device reaches."""
    products = product_rates(device)
    exponentials, how = exponential_rate(device)
    x = torch.empty(1 << 26, device=device)
    y = torch.empty_like(x)
    copied = 2.0 * x.numel() * x.element_size() / seconds(lambda: y.copy_(x), device)
    said = ", ".join(f"{name} {rate / 1e12:.2f}" for name, rate in products.items())
    print(f"matrix products, TFLOP/s: {said}")
    print(f"exponentials: {exponentials / 1e9:,.1f} G/s ({how}); copies: {copied / 1e9:,.0f} GB/s")
    return Rates(max(products.values()), exponentials, copied)


def exponentials(name: str, shape: Shape, tokens: int) -> float:
    """Return how many exponentials a mechanism takes, forward; a sine or a cosine counts as one."""
    near, far, slots = 3 * shape.radius, 2 * shape.features, shape.rank
    kind = name.removeprefix("performer-")
    if kind in FEATURES and FEATURES[kind].function is not None:
        far = 0
    a_token = {
        "local": near,
        "performer": far,
        "hybrid": (near + far) / 2,
        "joint": near + far,
        "linformer": 3 * slots if name.endswith("dynamic") else slots,
    }
    return shape.heads * tokens * float(a_token.get(name.partition("-")[0], tokens))


def traffic(shape: Shape, tokens: int, dtype: torch.dtype) -> float:
    """Return the bytes of queries, keys, values and outputs."""
    return 4.0 * tokens * shape.width * dtype.itemsize


# Speed -------------------------------------------------------------------------------------------------------------


class Clock:
    """Ends a run in time."""

    def __init__(self, minutes: float) -> None:
        self.end = time.monotonic() + 60 * minutes

    def is_over(self) -> bool:
        return time.monotonic() > self.end


class Run(NamedTuple):
    """What to time."""

    contender: Contender
    shape: Shape
    tokens: int
    dtype: torch.dtype
    compiled: bool = False


def runs(options: argparse.Namespace) -> Iterator[Run]:
    """Yield all combinations; the most telling first."""
    mine = [contender for contender in CONTENDERS.values() if contender.group == CORE and not contender.package]
    mine = [contender for contender in chosen({c.name: c for c in mine}, options.only) if contender.name != MATRIX]
    kinds = (torch.float32,) if options.device == "cpu" else (torch.float32, torch.bfloat16)
    for tokens in options.lengths:
        for dim in options.dims:
            shape = Shape(max(options.width // dim, 1), dim, options.features, options.rank)
            for dtype in kinds:
                yield from (Run(contender, shape, tokens, dtype) for contender in mine)
                if options.compile and tokens == options.compile_at and dim == options.dims[-1]:
                    yield from (Run(contender, shape, tokens, dtype, compiled=True) for contender in mine)


def show_speed(options: argparse.Namespace, rates: Rates, clock: Clock) -> None:
    """Print a line for each run; quadratic mechanisms stop where they would take too long."""
    print(
        f"\n{'n':>9} {'head':>5} {'type':>9} {'mechanism':24} {'ms':>9} {'TFLOP/s':>9} {'GB/s':>8} {'floor':>7} "
        f"{'MB':>9}"
    )
    left_out: list[str] = []
    slow: dict[tuple[str, int, torch.dtype], float] = {}
    for run in runs(options):
        key = (run.contender.name, run.shape.dim, run.dtype)
        times = 4 if run.contender.is_quadratic else 1
        if clock.is_over() or slow.get(key, 0.0) * 4 * times > options.longest:
            left_out.append(f"{run.contender.name} at {run.tokens:,}")
            continue
        print(line(run, rates, options, slow), flush=True)
    if left_out:
        print(f"left out, for want of time: {', '.join(dict.fromkeys(left_out))}")


def line(run: Run, rates: Rates, options: argparse.Namespace, slow: dict[tuple[str, int, torch.dtype], float]) -> str:
    """Time one run; a failure is reported, not raised."""
    name = run.contender.name + (" compiled" if run.compiled else "")
    head = f"{run.tokens:9,} {run.shape.dim:5} {str(run.dtype)[6:]:>9} {name:24}"
    try:
        task = Task(run.contender, run.shape, run.tokens, device=options.device, dtype=run.dtype)
        if run.compiled:
            task.module = torch.compile(task.module)
        task.seconds()
        elapsed = statistics.median(task.seconds() for _ in range(options.repeats))
        memory = task.memory() if options.device == "cuda" else None  # in this process, it is used again
    except Exception as failure:  # of a compiler, or of too little memory: part of what is to be found out
        said = (str(failure).strip().splitlines() or [""])[0]
        return f"{head} failed: {type(failure).__name__}: {said[:100]}"
    if not run.compiled:
        slow[run.contender.name, run.shape.dim, run.dtype] = elapsed
    operations, moved = run.contender.operations(run.shape, run.tokens), traffic(run.shape, run.tokens, run.dtype)
    powers = exponentials(run.contender.name, run.shape, run.tokens)
    floor = max(operations / rates.products, powers / rates.exponentials, moved / rates.bytes)
    megabytes = "-" if memory is None else f"{memory / 1e6:,.1f}"
    return (
        f"{head} {1e3 * elapsed:9.3f} {operations / elapsed / 1e12:9.3f} {moved / elapsed / 1e9:8.1f} "
        f"{floor / elapsed:7.1%} {megabytes:>9}"
    )


def chosen(table: dict, only: Sequence[str]) -> list:
    """Return the entries whose names fit a pattern; all if there is none."""
    return [item for name, item in table.items() if not only or any(fnmatch.fnmatchcase(name, p) for p in only)]


def arguments(given: Sequence[str] | None) -> argparse.Namespace:
    there = torch.cuda.is_available()
    lengths = [4096, 16_384, 65_536, 262_144, 1_048_576] if there else [256, 1024]
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--device", default="cuda" if there else "cpu", choices=["cuda", "cpu"])
    parser.add_argument("--only", nargs="+", default=[], metavar="PATTERN", help="mechanisms, such as 'performer*'")
    parser.add_argument("--lengths", type=int, nargs="+", default=lengths, metavar="TOKENS")
    parser.add_argument("--dims", type=int, nargs="+", default=[32, 64], help="dimensions of a head")
    parser.add_argument("--width", type=int, default=WIDTH, help="of all heads together")
    parser.add_argument("--features", type=int, default=256)
    parser.add_argument("--rank", type=int, default=256)
    parser.add_argument("--parity-tokens", type=int, default=257, help="against twins that write out all weights")
    parser.add_argument("--many-tokens", type=int, default=16_384 if there else 2048, help="against float64 modules")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--longest", type=float, default=1.0, help="seconds; longer runs are left out")
    parser.add_argument("--compile", action=argparse.BooleanOptionalAction, default=there, help="also torch.compile")
    parser.add_argument("--compile-at", type=int, default=65_536, help="the one length at which it is tried")
    parser.add_argument("--minutes", type=float, default=5.5, help="after which what remains is left out")
    return parser.parse_args(given)


def main(given: Sequence[str] | None = None) -> int:
    options = arguments(given)
    clock = Clock(options.minutes)
    if options.device == "cpu":
        print("NO GPU: on the CPU with few tokens, which shows that this runs and says nothing of the speed of a GPU")
    else:
        print(f"{torch.cuda.get_device_name()}, {torch.cuda.get_device_properties(0).total_memory / 2**30:.0f} GiB")
    print(
        f"torch {torch.__version__}, CUDA {torch.version.cuda}, {options.width} wide, {options.features} features, ",
        end="",
    )
    print(f"{options.rank} slots")
    rates = measured_rates(options.device)
    failed = show_parity(options, clock)
    show_speed(options, rates, clock)
    print(f"\nparity: {f'{failed} FAILED' if failed else 'all hold'}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
