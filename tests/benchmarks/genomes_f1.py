"""Measure a model on annotated genomes: `python tests/benchmarks/genomes_f1.py [FOLDER] [--model NAME|PATH]`.

Each genome of the folder (NAME.fa.gz with NAME.gff.gz) is predicted into a store, as `genoformer predict` does, and the
store is compared with the annotation base by base: which strand codes here, +, - or none; the two coding classes are
pooled. Bases of pseudogenes, and those where coding sequences of both strands overlap, do not count. Choose models and
settings by validation genomes; test genomes are for the last look only.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch

from genoformer.annotation import Annotation, coding_frame_labels
from genoformer.evaluate import Score, confusion, pooled_score, strand_probabilities
from genoformer.formats.sequences import Sequences
from genoformer.genetic_code import choose_genetic_code
from genoformer.model.checkpoint import DEFAULT_MODEL, load_model
from genoformer.model.device import choose_device, keep_freed_memory
from genoformer.model.genoformer import Genoformer
from genoformer.plan import Plan, make_plan
from genoformer.predict import Settings, predict_to_store
from genoformer.regions import DEFAULT_WINDOW, Region
from genoformer.store import TrackStore, open_store
from genoformer.tracks import CODING_FRAME
from genoformer.training.examples import read_annotated

VALIDATION = Path(__file__).resolve().parents[3] / "shared" / "genomes" / "validation"
NONE = 0


class Result(NamedTuple):
    """What came out for one genome."""

    score: Score
    bases: int
    bases_per_second: float
    genetic_code: int


def genomes(folder: Path) -> list[tuple[Path, Path]]:
    """Return the pairs of sequences and annotation in a folder."""
    pairs = [(fasta, fasta.with_name(fasta.name[: -len(".fa.gz")] + ".gff.gz")) for fasta in folder.glob("*.fa.gz")]
    return sorted(pair for pair in pairs if pair[1].is_file())


def first_bases(sequences: Sequences, limit: int) -> list[Region] | None:
    """Return regions that hold the first ``limit`` bases of the input; None for all of it."""
    if not limit:
        return None
    regions = []
    for name, length in sequences.lengths().items():
        if limit > 0 and length > 0:
            regions.append(Region(name, 0, min(length, limit)))
            limit -= length
    return regions


def predicted_strands(store: TrackStore, plan: Plan) -> Iterator[tuple[str, int, np.ndarray]]:
    """Yield sequence, start and called strand (0 none, 1 +, 2 -) of block after block; without a value: none."""
    for region in plan.regions or (None,):
        for block in store.blocks(CODING_FRAME.name, region):
            values = block.values[CODING_FRAME.name]
            called = strand_probabilities(values).argmax(axis=1)
            called[np.isnan(values[:, 0])] = NONE
            yield block.sequence, block.start, called


def score_store(path: Path, plan: Plan, annotation: Annotation) -> Score:
    """Compare a store with an annotation; sequences that the annotation does not name do not count."""
    matrix = np.zeros((3, 3), dtype=np.int64)
    labeled, truth = "", np.empty(0, dtype=np.uint8)
    with open_store(path) as store:
        lengths = dict(zip(store.sequences.names, store.sequences.lengths.tolist(), strict=True))
        for name, start, called in predicted_strands(store, plan):
            if name not in annotation.coding_sequences:
                continue
            if name != labeled:
                labels = coding_frame_labels(lengths[name], annotation.coding_sequences[name])
                labeled, truth = name, labels.strands
            matrix += confusion(truth[start : start + len(called)], called, 3)
    return pooled_score(matrix)


def measure(fasta: Path, annotated: Path, model: Genoformer, options: argparse.Namespace) -> Result:
    """Predict a genome into a temporary store and score it; the time is that of predicting and writing."""
    sequences, annotation = read_annotated(fasta, annotated)
    plan = make_plan(sequences, window=options.window, regions=first_bases(sequences, options.limit))
    table, _ = choose_genetic_code(options.genetic_code, plan, sequences, model)
    settings = Settings(
        batch_size=options.batch_size, strand_average=options.strand_average, genetic_code=table,
        precision=options.precision,
    )  # fmt: skip
    with tempfile.TemporaryDirectory() as folder:
        began = time.perf_counter()
        store = predict_to_store(plan, sequences, model, Path(folder) / "genome.h5", settings=settings)
        elapsed = time.perf_counter() - began
        bases = plan.accounting.predicted
        return Result(score_store(store, plan, annotation), bases, bases / elapsed, table)


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path, nargs="?", default=VALIDATION, help=f"default: {VALIDATION}")
    parser.add_argument("--model", default=DEFAULT_MODEL, help="bundled model or folder")
    parser.add_argument("--limit", type=int, default=0, metavar="BASES", help="of each genome; 0: all")
    parser.add_argument("--window", type=int, default=DEFAULT_WINDOW, metavar="BASES")
    parser.add_argument("--batch-size", type=int, default=1)
    parser.add_argument("--genetic-code", choices=("auto", "11", "4"), default="auto")
    parser.add_argument("--precision", choices=("float32", "bfloat16"), default="float32")
    parser.add_argument("--no-strand-average", dest="strand_average", action="store_false")
    parser.add_argument("--device", default="auto")
    parser.add_argument("--threads", type=int, default=0, help="0: as torch decides")
    return parser.parse_args()


def main() -> None:
    options = arguments()
    pairs = genomes(options.folder)
    if not pairs:
        raise SystemExit(f"{options.folder}: holds no NAME.fa.gz with NAME.gff.gz")
    keep_freed_memory()
    if options.threads:
        torch.set_num_threads(options.threads)
    model = load_model(options.model, device=choose_device(options.device))
    print(f"{model.checkpoint.name} ({model.checkpoint.sha256[:12]}), {model.device}, ", end="")
    print(f"{torch.get_num_threads()} threads, strand averaging {'on' if options.strand_average else 'off'}")
    width = max(len(fasta.name) for fasta, _ in pairs)
    print(f"{'genome':{width}} {'bases':>12} {'code':>5} {'precision':>10} {'recall':>8} {'F1':>8} {'bases/s':>10}")
    results = []
    for fasta, annotated in pairs:
        result = measure(fasta, annotated, model, options)
        results.append(result)
        print(
            f"{fasta.name:{width}} {result.bases:12,} {result.genetic_code:5} {result.score.precision:10.4f} ", end=""
        )
        print(f"{result.score.recall:8.4f} {result.score.f1:8.4f} {result.bases_per_second:10,.0f}", flush=True)
    mean = np.mean([[*result.score, result.bases_per_second] for result in results], axis=0)
    total = sum(result.bases for result in results)
    print(f"{'mean':{width}} {total:12,} {'':5} {mean[0]:10.4f} {mean[1]:8.4f} {mean[2]:8.4f} {mean[3]:10,.0f}")


if __name__ == "__main__":
    main()
