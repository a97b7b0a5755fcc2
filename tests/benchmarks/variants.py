"""Time the scoring of variants, and compare ways: `python tests/benchmarks/variants.py [--fasta FILE]`.

Made-up substitutions, seeded, on the longest sequence of a FASTA file: scattered over all of it, and all three at each
base of a stretch, as `genoformer explain` scores. Each is scored exactly, every window predicted whole with the
alternate allele, and by the bases around what changes, by one process and by several. Told are variants a second,
reading and the model's loading not included, and how far the largest of each one's gains, losses and shifts is from
what exact windows of `--context` bases say, with the variant in their middle: both ways see less than that.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Sequence
from itertools import product
from pathlib import Path

import numpy as np
import torch

from genoformer.formats.sequences import Record, Sequences, open_sequences
from genoformer.formats.vcf import Variant
from genoformer.model.checkpoint import DEFAULT_MODEL, load_model
from genoformer.model.device import choose_device, keep_freed_memory
from genoformer.model.genoformer import Genoformer
from genoformer.predict import Settings
from genoformer.tokens import encode
from genoformer.variants import crops
from genoformer.variants.score import Score, score_variants
from genoformer.variants.scoring import Scoring
from genoformer.variants.windows import DEFAULT_WINDOW
from genoformer.workers import Workers

LETTERS = "ACGT"
LAMBDA = Path(__file__).resolve().parents[2] / "data" / "lambda.fa.gz"


def scattered(record: Record, count: int) -> list[Variant]:
    """Return substitutions at random places, in order."""
    rng = np.random.default_rng(0)
    places = np.sort(rng.choice(len(record.bases), min(count, len(record.bases)), replace=False))
    codes = encode(record.bases)
    return [
        Variant(record.name, int(place), LETTERS[codes[place]], LETTERS[(codes[place] + turn) % 4])
        for place, turn in zip(places, rng.integers(1, 4, len(places)), strict=True)
        if codes[place] < 4
    ]


def dense(record: Record, count: int) -> list[Variant]:
    """Return all substitutions of a stretch in the middle."""
    start, codes = len(record.bases) // 2, encode(record.bases)
    return [
        Variant(record.name, place, LETTERS[codes[place]], letter)
        for place in range(start, min(start + count // 3, len(record.bases)))
        if codes[place] < 4
        for letter in LETTERS
        if letter != LETTERS[codes[place]]
    ]


def numbers(scores: Sequence[Score]) -> np.ndarray:
    """Return all gains, losses and shifts: (variants, fields)."""
    effects = [score.effect for score in scores if score.effect is not None]
    return np.array([
        [*(x for change in effect.changes.values() for x in (change.gain, change.loss)),
         *(share for share, _ in effect.shifts.values())]
        for effect in effects
    ])  # fmt: skip


def scored(
    variants: Sequence[Variant],
    sequences: Sequences,
    model: Genoformer,
    scoring: Scoring,
    workers: Workers | None = None,
) -> tuple[np.ndarray, float]:
    """Return what the variants change, and how many were scored in a second."""
    began = time.perf_counter()
    found = list(score_variants(variants, sequences, model, scoring=scoring, workers=workers))
    return numbers(found), len(found) / (time.perf_counter() - began)


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--fasta", type=Path, default=LAMBDA)
    parser.add_argument("--model", default=DEFAULT_MODEL, help="bundled model or folder")
    parser.add_argument("--count", type=int, default=999, help="variants of each kind that are timed")
    parser.add_argument("--compare", type=int, default=150, help="scattered variants that are compared, 0: none")
    parser.add_argument("--context", type=int, default=48_000, help="bases of the windows to compare with")
    parser.add_argument("--window", type=int, default=DEFAULT_WINDOW)
    parser.add_argument("--share", type=int, help="bases; default: what suits the method")
    parser.add_argument("--margin", type=int, nargs="+", default=(crops.MARGIN,), help="tokens around what changes")
    parser.add_argument("--no-strand-average", action="store_true")
    parser.add_argument("--device", default="auto")
    parser.add_argument("--processes", type=int, default=2, help="compared with one that has as many threads; 1: not")
    parser.add_argument("--threads", type=int, default=0, help="0: as torch decides")
    return parser.parse_args()


def main() -> None:
    options = arguments()
    keep_freed_memory()
    if options.threads:
        torch.set_num_threads(options.threads)
    model = load_model(options.model, device=choose_device(options.device))
    sequences = open_sequences(options.fasta)
    record = max(sequences.records(), key=lambda record: len(record.bases))
    settings = Settings(strand_average=not options.no_strand_average)
    kinds = {"scattered": scattered(record, options.count), "dense": dense(record, options.count)}
    compared = scattered(record, options.compare) if options.compare else []
    widest = Scoring(min(options.context, len(record.bases)), 1, settings)
    computing: dict[str, Workers | None] = {"one process": None}
    if options.processes > 1:
        computing[f"{options.processes} processes"] = Workers(model, processes=options.processes)
    truth = scored(compared, sequences, model, widest, [*computing.values()][-1])[0] if compared else None
    ways = [("exact", 0), *(("crop", margin) for margin in options.margin)]
    for method, margin in ways:
        crops.MARGIN = margin or crops.MARGIN
        scoring = Scoring(options.window, options.share, settings, method)
        print(method, f"with {margin} tokens to each side" if margin else "", flush=True)
        for (kind, variants), (name, workers) in product(kinds.items(), computing.items()):
            scored(variants[:300], sequences, model, scoring, workers)
            pace = scored(variants, sequences, model, scoring, workers)[1]
            print(f"  {len(variants)} {kind}, {name}: {pace:.1f} a second", flush=True)
        if truth is not None:
            off = np.abs(scored(compared, sequences, model, scoring)[0] - truth).max(axis=1)
            shares = ", ".join(f"{np.quantile(off, q):.4f} ({q:.0%})" for q in (0.5, 0.9, 0.95, 0.99))
            print(f"  {len(compared)} scattered, off by: {shares}, {off.max():.4f} at most", flush=True)


if __name__ == "__main__":
    main()
