"""Time the scoring of variants, and compare ways: `python tests/benchmarks/variants.py [--fasta FILE] [--window 3000]`.

Made-up substitutions, seeded, on the longest sequence of a FASTA file: scattered over all of it, and all three at each
base of a stretch, as `genoformer explain` scores. Each is scored exactly, every window predicted whole with the
alternate allele, and by the bases around what changes. Told are variants a second, reading and the model's loading not
included, and how far gains, losses and shifts differ from the exact ones.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Sequence
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
from genoformer.variants.score import Score, Scoring, score_variants

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
    variants: Sequence[Variant], sequences: Sequences, model: Genoformer, scoring: Scoring
) -> tuple[np.ndarray, float]:
    """Return what the variants change, and how many were scored in a second."""
    began = time.perf_counter()
    found = list(score_variants(variants, sequences, model, scoring=scoring))
    return numbers(found), len(found) / (time.perf_counter() - began)


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--fasta", type=Path, default=LAMBDA)
    parser.add_argument("--model", default=DEFAULT_MODEL, help="bundled model or folder")
    parser.add_argument("--count", type=int, default=600, help="variants of each kind")
    parser.add_argument("--window", type=int, nargs="+", default=(3000, 1000))
    parser.add_argument("--share", type=int, help="bases; default: an eighth of the window")
    parser.add_argument("--margin", type=int, nargs="+", default=(crops.MARGIN,), help="tokens around what changes")
    parser.add_argument("--no-strand-average", action="store_true")
    parser.add_argument("--device", default="auto")
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
    for window in options.window:
        for kind, variants in (
            ("scattered", scattered(record, options.count)),
            ("dense", dense(record, options.count)),
        ):
            exact, rate = scored(variants, sequences, model, Scoring(window, options.share, settings))
            print(f"window {window}, {len(variants)} {kind}: exact {rate:.1f} a second")
            for margin in options.margin:
                crops.MARGIN = margin
                found, rate = scored(variants, sequences, model, Scoring(window, options.share, settings, "crop"))
                off = np.abs(found - exact)
                large = off.max(axis=1)
                print(
                    f"  by parts, margin {margin} tokens: {rate:.1f} a second; off by {large.max():.4f} at most, "
                    f"{np.quantile(large, 0.99):.4f} in 1 of 100, {np.median(large):.5f} by median, "
                    f"by field at most {', '.join(f'{x:.4f}' for x in off.max(axis=0))}"
                )


if __name__ == "__main__":
    main()
