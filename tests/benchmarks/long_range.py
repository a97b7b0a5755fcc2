"""What linear attention keeps and loses over distance: small models trained on labels whose causes lie far away.

    python tests/benchmarks/long_range.py train runs/long_range            # minutes each, resumes where it stopped
    python tests/benchmarks/long_range.py report runs/long_range tests/benchmarks/results    # needs matplotlib

Three tasks (long_range_tasks.py): "single", where a motif's label is the kind of one other motif 30 to 100,000 bases
away; "paired", with four such pairs, told apart by a word; and "nested", expressions of up to 2,040 bases with the
value asked for at every bracket. Every mechanism gets the same model around it, the same sequences for the same seed,
and the same number of steps, except that exact attention leaves out what is longer than 20,000 bases. Start two
processes with --part 1/2 and --part 2/2 to use two cores. `pip install matplotlib` for the plot.
"""

from __future__ import annotations

import argparse
import json
import math
import time
from collections import defaultdict
from pathlib import Path
from typing import Any

import numpy as np
import torch
from long_range_tasks import IGNORED, TASKS, Batch
from torch import nn

from genoformer.config import ModelConfig
from genoformer.model.genoformer import Genoformer, build

MECHANISMS = ("softmax", "local", "performer", "linformer", "hybrid", "joint")
BASES = 16_384
"""Bases of a training step, where a sequence is not longer than that."""
STEPS = {"single": 300, "paired": 800, "nested": 300}
RATE = 6e-3
WARMUP = 50
QUADRATIC_LIMIT = 20_000
"""Bases of the longest sequence that exact attention is given."""
NAME = "coding-frame"


def configuration(task: str, mechanism: str, seed: int) -> ModelConfig:
    """Return the model: the same for each mechanism but for its attention."""
    return ModelConfig(
        inputs=(),
        stem_channels=16,
        stem_stride=TASKS[task].stride,
        width=48,
        heads=4,
        attention=(mechanism,) * 2,
        conv_kernel=3,
        expansion=2,
        local_radius=32,
        performer_count=64,
        performer_max_temperature=4.0,
        linformer_projection="dynamic",
        linformer_rank=64,
        hybrid_local_heads=2,
        seed=seed,
    )


def make(task: str, mechanism: str, seed: int) -> Genoformer:
    """Build a model with as many classes as the task has."""
    model = build(configuration(task, mechanism, seed))
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model.heads[NAME].output = nn.Linear(16, TASKS[task].classes)
    return model


def answers(model: Genoformer, batch: Batch) -> tuple[torch.Tensor, torch.Tensor, np.ndarray]:
    """Return logits and labels of the bases asked for (n, classes), (n,), and where these are (B, L)."""
    asked = batch.labels != IGNORED
    logits = model(torch.from_numpy(batch.codes))[NAME][torch.from_numpy(asked)]
    return logits, torch.from_numpy(batch.labels[asked]).long(), asked


def is_too_long(mechanism: str, batch: Batch) -> bool:
    return mechanism == "softmax" and batch.codes.shape[1] > QUADRATIC_LIMIT


def fit(model: Genoformer, task: str, mechanism: str, *, seed: int, steps: int) -> float:
    """Train; return the mean loss of the last tenth of the steps."""
    random = np.random.default_rng(seed)
    optimizer = torch.optim.AdamW(model.parameters(), lr=RATE, weight_decay=0.01, betas=(0.9, 0.98))
    losses = []
    for step in range(steps):
        batch = TASKS[task].training(step / steps, BASES, random)
        if is_too_long(mechanism, batch):
            continue
        for group in optimizer.param_groups:
            group["lr"] = RATE * min(1, (step + 1) / WARMUP) * (0.55 + 0.45 * math.cos(math.pi * step / steps))
        logits, labels, _ = answers(model, batch)
        loss = nn.functional.cross_entropy(logits, labels)
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        losses.append(loss.item())
    return float(np.mean(losses[-max(1, steps // 10) :]))


@torch.no_grad()
def measure(model: Genoformer, task: str, mechanism: str, *, seed: int) -> dict[str, dict[str, Any]]:
    """Examine on sequences that all mechanisms get: group -> right answers, questions, share of the best guess."""
    right: dict[int, list[bool]] = defaultdict(list)
    hints: dict[int, list[tuple[int, int]]] = defaultdict(list)
    for batch in TASKS[task].examination(np.random.default_rng(1_000_000 + seed)):
        if is_too_long(mechanism, batch):
            continue
        logits, labels, asked = answers(model, batch)
        rows = zip(batch.groups[asked], logits.argmax(dim=-1) == labels, batch.hints[asked], labels, strict=True)
        for group, is_right, hint, label in rows:
            right[int(group)].append(bool(is_right))
            hints[int(group)].append((int(hint), int(label)))
    return {
        str(group): {"right": sum(found), "asked": len(found), "guess": best_guess(hints[group])}
        for group, found in sorted(right.items())
    }


def best_guess(pairs: list[tuple[int, int]]) -> float:
    """Return how often the commonest label for each hint is right: what can be had without looking further."""
    counts: dict[int, dict[int, int]] = defaultdict(lambda: defaultdict(int))
    for hint, label in pairs:
        counts[hint][label] += 1
    return sum(max(labels.values()) for labels in counts.values()) / len(pairs)


def train(options: argparse.Namespace) -> None:
    """Train and measure what is not in the file yet, task by task, seed by seed."""
    options.folder.mkdir(parents=True, exist_ok=True)
    path = options.folder / "results.jsonl"
    part, parts = (int(number) for number in options.part.split("/"))
    jobs = [(t, m, s) for t in options.tasks for s in range(options.seeds) for m in options.mechanisms]
    for index, (task, mechanism, seed) in enumerate(jobs):
        done = {(r["task"], r["mechanism"], r["seed"], r["steps"]) for r in read(path)}
        steps = options.steps or STEPS[task]
        if index % parts != part - 1 or (task, mechanism, seed, steps) in done:
            continue
        began = time.perf_counter()
        model = make(task, mechanism, seed)
        loss = fit(model, task, mechanism, seed=seed, steps=steps)
        result = {"task": task, "mechanism": mechanism, "seed": seed, "steps": steps, "loss": loss}
        result |= {"groups": measure(model, task, mechanism, seed=seed), "seconds": time.perf_counter() - began}
        with path.open("a") as file:
            file.write(json.dumps(result) + "\n")
        shown = {g: round(v["right"] / v["asked"], 3) for g, v in result["groups"].items()}
        print(task, mechanism, seed, f"loss {loss:.3f}, {result['seconds']:.0f} s,", shown, flush=True)


def read(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    commands = parser.add_subparsers(dest="command", required=True)
    training = commands.add_parser("train", help="train and measure models")
    training.add_argument("folder", type=Path, help="where results.jsonl is or will be")
    training.add_argument("--tasks", nargs="+", choices=TASKS, default=list(TASKS))
    training.add_argument("--mechanisms", nargs="+", choices=MECHANISMS, default=MECHANISMS)
    training.add_argument("--seeds", type=int, default=3)
    training.add_argument("--steps", type=int, default=0, help=f"0: {STEPS}")
    training.add_argument("--part", default="1/1", help="which share of the work, as 1/2 and 2/2")
    training.add_argument("--threads", type=int, default=1)
    reporting = commands.add_parser("report", help="write table and plot")
    reporting.add_argument("folder", type=Path)
    reporting.add_argument("to", type=Path)
    return parser.parse_args()


def main() -> None:
    options = arguments()
    if options.command == "train":
        torch.set_num_threads(options.threads)
        train(options)
    else:
        from long_range_report import write

        write(read(options.folder / "results.jsonl"), options.to)


if __name__ == "__main__":
    main()
