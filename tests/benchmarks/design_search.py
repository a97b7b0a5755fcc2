"""Designs of the gene model at equal training time: which parts pay, what global attention adds, what was tried.

    python tests/benchmarks/design_search.py train FOLDER runs/designs --seconds 900     # resumes where it stopped
    python tests/benchmarks/design_search.py report runs/designs                         # a table, tab-separated

FOLDER is what the sample paths of pipelines/config/prokaryote-genes.toml are relative to. Every design changes a few
keys of that recipe, as DESIGNS says, and is trained for as many steps as take --seconds of one processor's time, which
is measured first; its learning rate decays over exactly these steps. So other work on the machine slows all alike and
changes nothing. Start several processes with --part 1/2, 2/2 to use several cores. Measured on the first bases of the
validation genomes: F1 of the coding strand on windows of 100,000 bases and of 6,000, and on reads of 5,000 bases with
1% and 5% errors. One result is one line of JSON in results.jsonl.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import os
import time
from collections import defaultdict
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np
import torch

from genoformer.model.device import keep_freed_memory
from genoformer.model.genoformer import Genoformer
from genoformer.plain import read_toml
from genoformer.training.config import RunConfig
from genoformer.training.examples import Genome, load_split
from genoformer.training.state import new_state
from genoformer.training.step import train_step
from genoformer.training.validation import mean_f1, validate, validate_reads

CONFIG = Path(__file__).resolve().parents[2] / "pipelines" / "config" / "prokaryote-genes.toml"
RESULTS = "results.jsonl"
WARM, TIMED = 3, 12
"""Steps before timing, and steps timed."""
SHORT, LONG = 6_000, 100_000
NOTHING: Mapping[str, Any] = MappingProxyType({})


class Design(NamedTuple):
    """What a design changes in the recipe."""

    model: Mapping[str, Any] = NOTHING
    train: Mapping[str, Any] = NOTHING
    longest: int = LONG
    """bases of the longest window that it is measured on"""


def _attention(*names: str) -> dict[str, Any]:
    return {"attention": names}


APART: Mapping[str, Any] = MappingProxyType({"one_genome": 0.0})
"""Each window for itself: what global attention sums up over several is known to Performers only."""
SHORT_WINDOWS: Mapping[str, Any] = MappingProxyType(
    {**APART, "windows": (300, 600, 1000, 1500, 6000), "window_shares": (1.0, 1.0, 1.5, 2.0, 8.5)}
)

DESIGNS: dict[str, Design] = {
    "recipe": Design(),
    "windows apart": Design(NOTHING, APART),
    "no global attention": Design(_attention("local", "local", "local", "local"), APART),
    "linformer": Design(_attention("local", "linformer", "local", "linformer"), APART),
    "hybrid": Design(_attention("hybrid", "hybrid", "hybrid", "hybrid")),
    "joint": Design(_attention("local", "joint", "local", "joint"), APART),
    "exact, short windows": Design(_attention("local", "softmax", "local", "softmax"), SHORT_WINDOWS, longest=SHORT),
    "short windows": Design(NOTHING, SHORT_WINDOWS),
    "tokens of 2 bases": Design({"stem_stride": 2}),
    "tokens of 6 bases": Design({"stem_stride": 6}),
    "width 96": Design({"width": 96}),
    "width 192": Design({"width": 192}),
    "6 blocks": Design(_attention(*("local", "performer") * 3)),
    "2 blocks": Design(_attention("local", "performer")),
    "radius 32": Design({"local_radius": 32}),
    "radius 64": Design({"local_radius": 64}),
    "64 features": Design({"performer_count": 64}),
    "hyperbolic features": Design({"performer_features": "hyperbolic"}),
    "words of 6 letters": Design({"stem_kmer": 6}),
    "words of 5 letters": Design({"stem_kmer": 5}),
    "no derived inputs": Design({"inputs": ()}),
    "open frames only": Design({"inputs": ("open-frames",)}),
    "stop distances only": Design({"inputs": ("stop-distances",)}),
    "no errors in training": Design(NOTHING, {"error_rates": (0.0,), "error_shares": ()}),
    "label smoothing 0.05": Design(NOTHING, {"label_smoothing": 0.05}),
    "no running mean": Design(NOTHING, {"ema": 0.0}),
    "rate 1e-3": Design(NOTHING, {"learning_rate": 1e-3}),
    "rate 4e-3": Design(NOTHING, {"learning_rate": 4e-3}),
}


def configured(recipe: RunConfig, design: Design, *, seed: int, steps: int) -> RunConfig:
    """Return the recipe with a design's changes, for so many steps."""
    model = dataclasses.replace(recipe.model, **design.model, seed=seed)
    warmup = min(recipe.train.warmup, max(steps // 10, 1))
    changes = {"steps": steps, "warmup": warmup, "seed": seed, "init_from": ""}
    train = dataclasses.replace(recipe.train, **{**changes, **design.train})
    return dataclasses.replace(recipe, model=model, train=train)


def seconds_of_a_step(config: RunConfig, genomes: list[Genome]) -> float:
    """Return the mean processor time of the first steps after the very first ones: their windows are drawn alike."""
    state = new_state(config, torch.device("cpu"))
    began = 0.0
    for step in range(WARM + TIMED):
        if step == WARM:
            began = time.process_time()
        train_step(state, genomes, config.train)
    return (time.process_time() - began) / TIMED


def trained(config: RunConfig, genomes: list[Genome]) -> tuple[Genoformer, float, float]:
    """Return the model, the loss of its last tenth of steps, and the processor time that its steps took."""
    state = new_state(config, torch.device("cpu"))
    losses = []
    began = time.process_time()
    while state.step < config.train.steps:
        losses.append(float(train_step(state, genomes, config.train)))
    return state.average, float(np.mean(losses[-max(1, len(losses) // 10) :])), time.process_time() - began


def measured(model: Genoformer, held_out: list[Genome], config: RunConfig, design: Design) -> dict[str, Any]:
    """Return the scores of a model on the validation genomes."""
    bases, seed = config.train.validate_bases, config.train.seed
    found: dict[str, Any] = {}
    for window in (SHORT, LONG):
        if window <= design.longest:
            scores = validate(model, held_out, bases=bases, window=window)
            found |= {f"{name} {window}": score.f1 for name, score in scores.items()}
            found[f"F1 {window}"] = mean_f1(scores)
    for rate in (0.01, 0.05):
        found[f"F1 reads {rate:g}"] = mean_f1(validate_reads(model, held_out, bases=bases, rate=rate, seed=seed))
    return found


def train(options: argparse.Namespace) -> None:
    """Train the designs that have no result yet."""
    keep_freed_memory()
    torch.set_num_threads(1)
    recipe = read_toml(RunConfig, CONFIG)
    genomes, held_out = (load_split(recipe.samples, split, root=options.data) for split in ("train", "validation"))
    options.folder.mkdir(parents=True, exist_ok=True)
    part, parts = (int(number) for number in options.part.split("/"))
    wanted = [(seed, name) for seed in options.seeds for name in options.designs or DESIGNS]
    for seed, name in wanted[part - 1 :: parts]:
        if (seed, name) in {(row["seed"], row["design"]) for row in read_results(options.folder)}:
            continue
        design = DESIGNS[name]
        step = seconds_of_a_step(configured(recipe, design, seed=seed, steps=1000), genomes)
        config = configured(recipe, design, seed=seed, steps=max(10, round(options.seconds / step)))
        model, loss, seconds = trained(config, genomes)
        row = {"design": name, "seed": seed, "steps": config.train.steps, "seconds": round(seconds), "loss": loss}
        row["parameters"] = sum(parameter.numel() for parameter in model.parameters())
        row |= measured(model, held_out, config, design)
        with (options.folder / RESULTS).open("a", encoding="utf-8") as results:
            results.write(json.dumps(row) + os.linesep)
        print(f"{name} (seed {seed}): {row}", flush=True)


def read_results(folder: Path) -> list[dict[str, Any]]:
    path = folder / RESULTS
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()] if path.exists() else []


COLUMNS = (f"F1 {LONG}", f"F1 {SHORT}", "F1 reads 0.01", "F1 reads 0.05")


def report(options: argparse.Namespace) -> None:
    """Print a line for each design: means over seeds, and half the range between them where there are several."""
    rows: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for row in read_results(options.folder):
        rows[row["design"]].append(row)
    print("\t".join(["design", "parameters", "seeds", "CPU seconds", "Mb", *COLUMNS]))
    step_bases = read_toml(RunConfig, CONFIG).train.step_bases
    for name in sorted(rows, key=list(DESIGNS).index):
        found = rows[name]
        shown = [name, f"{found[0]['parameters']:,}", str(len(found)), f"{np.mean([r['seconds'] for r in found]):.0f}"]
        shown.append(f"{np.mean([r['steps'] for r in found]) * step_bases / 1e6:.0f}")
        for column in COLUMNS:
            values = [row[column] for row in found if column in row]
            spread = f" ± {np.ptp(values) / 2:.4f}" if len(values) > 1 else ""
            shown.append(f"{np.mean(values):.4f}{spread}" if values else "-")
        print("\t".join(shown))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    commands = parser.add_subparsers(required=True)
    training = commands.add_parser("train")
    training.set_defaults(run=train)
    training.add_argument("data", type=Path)
    training.add_argument("folder", type=Path)
    training.add_argument("--seconds", type=float, default=900.0, help="processor time of each training")
    training.add_argument("--part", default="1/1")
    training.add_argument("--seeds", type=int, nargs="+", default=[1])
    training.add_argument("--designs", nargs="+", choices=list(DESIGNS), metavar="DESIGN")
    reporting = commands.add_parser("report")
    reporting.set_defaults(run=report)
    reporting.add_argument("folder", type=Path)
    options = parser.parse_args()
    options.run(options)


if __name__ == "__main__":
    main()
