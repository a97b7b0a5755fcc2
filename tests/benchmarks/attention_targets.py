"""Check what linear attention promises on a CPU: `python tests/benchmarks/attention_targets.py [--parts ...]`.

Forward passes in float32, four heads of 32, 128 features, 256 slots; each part is one run of `genoformer.bench.speed`,
in turns, medians of five. Prints each target with what was measured, and exits with 1 if one is not met. Needs
`pip install 'genoformer[bench]'` for the comparisons with other libraries.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterator
from typing import NamedTuple

import torch

from genoformer.bench.contenders import CORE, FUSED, LAYER, MATRIX
from genoformer.bench.probe import Limits
from genoformer.bench.speed import Measurement, Report, Setup, measure, select
from genoformer.model.device import keep_freed_memory

PERFORMERS = tuple(f"{CORE}/performer-{kind}" for kind in ("positive", "hyperbolic"))
LINFORMERS = tuple(f"{LAYER}/linformer-{kind}" for kind in ("mean", "learned"))
TWO = f"{LAYER}/linformer-learned-two"
MEGABYTE = 1e6


class Target(NamedTuple):
    """A promise, what was measured, and whether it is kept; None: not measured."""

    words: str
    measured: str
    is_met: bool | None


class Part(NamedTuple):
    """One run: lengths, contenders, and the targets that follow from it."""

    lengths: tuple[int, ...]
    contenders: tuple[str, ...]
    judge: Callable[[Report], Iterator[Target]]


def found(report: Report, key: str, tokens: int) -> Measurement | None:
    group, name = key.split("/")
    return report.find(group, name, tokens)


def faster(report: Report, key: str, than: str, tokens: int, least: float) -> Target:
    """Compare times at one length."""
    words = f"{key} at {tokens:,}: at least {least:g} x the speed of {than}"
    mine, other = found(report, key, tokens), found(report, than, tokens)
    if mine is None or other is None:
        return Target(words, "not measured", None)
    ratio = other.seconds / mine.seconds
    return Target(words, f"{ratio:.2f} x ({1e3 * mine.seconds:.1f} ms, {1e3 * other.seconds:.1f} ms)", ratio >= least)


def smaller(report: Report, key: str, than: str, tokens: int, most: float) -> Target:
    """Compare extra memory at one length."""
    words = f"{key} at {tokens:,}: at most {most:.0%} of the extra memory of {than}"
    mine, other = found(report, key, tokens), found(report, than, tokens)
    if mine is None or other is None or mine.memory is None or not other.memory:
        return Target(words, "not measured", None)
    share = mine.memory / other.memory
    return Target(
        words, f"{share:.1%} ({mine.memory / MEGABYTE:.1f} MB, {other.memory / MEGABYTE:.1f} MB)", share <= most
    )


def judge_performer(report: Report) -> Iterator[Target]:
    """Against performer-pytorch, and against the machine."""
    other, tokens = f"{CORE}/performer-pytorch", 100_000
    for key in PERFORMERS:
        yield faster(report, key, other, tokens, 5)
        yield smaller(report, key, other, tokens, 0.1)
        mine = found(report, key, tokens)
        words = f"{key} at {tokens:,}: at least 45% of the rate of a matrix product"
        share = mine.share if mine else 0.0
        yield Target(words, f"{share:.1%} of {report.peak / 1e9:.0f} GFLOP/s", share >= 0.45)


def judge_linformer(report: Report) -> Iterator[Target]:
    """Against lucidrains' linformer: with one projection for keys and values (our default), and with two, as there."""
    for key in (*LINFORMERS, TWO):
        yield faster(report, key, f"{LAYER}/linformer", 65_536, 4)


def judge_exact(report: Report) -> Iterator[Target]:
    """Against fused exact attention of the same group, and the memory of a materialized matrix."""
    for tokens, performer, linformer in ((4096, 10, 8), (16_384, 35, 30)):
        for key in PERFORMERS:
            yield faster(report, key, f"{CORE}/{FUSED}", tokens, performer)
        for key in LINFORMERS:
            yield faster(report, key, f"{LAYER}/{FUSED}", tokens, linformer)


def judge_memory(report: Report) -> Iterator[Target]:
    for key in (PERFORMERS[0], f"{CORE}/linformer-learned"):
        yield smaller(report, key, f"{CORE}/{MATRIX}", 8192, 0.05)


def judge_scaling(report: Report) -> Iterator[Target]:
    """From 10,000 to a million tokens: time per token, and extra memory."""
    few, some, many = SCALING
    for key in (PERFORMERS[0], *LINFORMERS):
        rows = [found(report, key, tokens) for tokens in SCALING]
        if any(row is None or row.memory is None for row in rows):
            yield Target(f"{key}: scaling", "not measured", None)
            continue
        first, middle, last = (row for row in rows if row is not None)
        growth = last.seconds / many / (first.seconds / few) - 1
        words = f"{key}: time per token at {many:,} within 10% of that at {few:,}"
        yield Target(words, f"{growth:+.1%} ({1e9 * last.seconds / many:.0f} ns a token)", abs(growth) <= 0.1)
        sizes = [(row.memory or 0) / MEGABYTE for row in (first, middle, last)]
        words = f"{key}: extra memory at {many:,} at most 1.1 times that at {some:,}, and 1 MB"
        said = ", ".join(f"{size:.1f} MB" for size in sizes)
        yield Target(words, f"{said} at {few:,}, {some:,}, {many:,}", sizes[2] <= 1.1 * sizes[1] + 1)


SCALING = (10_000, 100_000, 1_000_000)
PARTS = {
    "performer": Part((100_000,), (*PERFORMERS, f"{CORE}/performer-pytorch"), judge_performer),
    "linformer": Part((65_536,), (*LINFORMERS, TWO, f"{LAYER}/linformer"), judge_linformer),
    "exact": Part((4096, 16_384), (*PERFORMERS, *LINFORMERS, f"{CORE}/{FUSED}", f"{LAYER}/{FUSED}"), judge_exact),
    "memory": Part((8192,), (PERFORMERS[0], f"{CORE}/linformer-learned", f"{CORE}/{MATRIX}"), judge_memory),
    "scaling": Part(SCALING, (PERFORMERS[0], *LINFORMERS), judge_scaling),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--parts", nargs="+", choices=PARTS, default=list(PARTS))
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--threads", type=int, default=0, help="0: as torch decides")
    kept = "kept for the next tensor, as genoformer's commands do, or returned, as the C library does by default"
    parser.add_argument("--freed-memory", choices=("kept", "returned"), default="kept", help=kept)
    options = parser.parse_args()
    if options.freed_memory == "kept":
        keep_freed_memory()
    if options.threads:
        torch.set_num_threads(options.threads)
    unmet = 0
    for name in options.parts:
        part = PARTS[name]
        setup = Setup(lengths=part.lengths, repeats=options.repeats, limits=Limits(seconds=60, memory=12e9))
        report = measure(setup, select(part.contenders))
        print(f"{name}: {report.threads} threads, matrix product {report.peak / 1e9:.0f} GFLOP/s, torch ", end="")
        print(f"{report.torch_version}, {report.processor}")
        for target in part.judge(report):
            verdict = {True: "met", False: "NOT MET", None: "not measured"}[target.is_met]
            print(f"  {verdict:12} {target.words}: {target.measured}", flush=True)
            unmet += target.is_met is not True
        for reason in report.missing.values():
            print(f"  {reason}")
    sys.exit(1 if unmet else 0)


if __name__ == "__main__":
    main()
