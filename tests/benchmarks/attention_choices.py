"""Train one small configuration with every attention mechanism: `python tests/benchmarks/attention_choices.py FOLDER`.

FOLDER is what the sample paths of pipelines/config/small.toml are relative to. Nothing but ``attention`` is changed.
Beside the loss stands that of knowing how frequent each class is and nothing else, about the loss of calling every
base intergenic with the right confidence: whoever stays above it has learned nothing.
"""

from __future__ import annotations

import argparse
import dataclasses
import tempfile
import time
from pathlib import Path

import numpy as np

from genoformer.attention import ATTENTION
from genoformer.model.device import keep_freed_memory
from genoformer.plain import read_toml
from genoformer.tracks import TRACKS
from genoformer.training.config import RunConfig
from genoformer.training.examples import load_split
from genoformer.training.run import train

CONFIG = Path(__file__).resolve().parents[2] / "pipelines" / "config" / "small.toml"


def baseline(config: RunConfig, root: Path) -> float:
    """Return the entropy of the classes of the training genomes, in nats."""
    classes = len(TRACKS["coding-frame"].channels)
    genomes = load_split(config.samples, "train", root=root)
    counts = np.sum([np.bincount(genome.frames, minlength=classes)[:classes] for genome in genomes], axis=0)
    shares = counts[counts > 0] / counts.sum()
    return float(-(shares * np.log(shares)).sum())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--steps", type=int, default=0, help="0: as many as the configuration says")
    options = parser.parse_args()
    keep_freed_memory()
    config = read_toml(RunConfig, CONFIG)
    if options.steps:
        config = dataclasses.replace(config, train=dataclasses.replace(config.train, steps=options.steps))
    print(f"classes known to be as frequent as they are: loss {baseline(config, options.folder):.3f}")
    print(f"{'attention':12}{'loss':>8}{'F1':>8}{'seconds':>10}   (loss: mean of the last tenth of the steps)")
    for name in ATTENTION:
        model = dataclasses.replace(config.model, attention=(name,) * len(config.model.attention))
        began = time.perf_counter()
        with tempfile.TemporaryDirectory() as folder:
            run = dataclasses.replace(config, model=model)
            steps = list(train(run, folder, root=options.folder))
        losses = [step.loss for step in steps]
        loss = np.mean(losses[-max(1, len(losses) // 10) :])
        print(f"{name:12}{loss:8.3f}{steps[-1].validation or 0:8.3f}{time.perf_counter() - began:10.0f}", flush=True)


if __name__ == "__main__":
    main()
