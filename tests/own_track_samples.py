"""Own tracks on made-up genomes, for every test of them: labels that can be read off the bases."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from tiny import made_up_genome, tiny_config, write_fasta, write_gff

from genoformer.config import ModelConfig
from genoformer.tokens import encode
from genoformer.tracks import Track
from genoformer.training.config import RunConfig, Sample, TrainConfig

LETTER = Track("letter", "class", ("A", "C", "G", "T"), "probability", (3, 2, 1, 0))
PURINE = Track("purine", "class", ("no", "yes"), "probability", (1, 0))
AMOUNT = Track("amount", "signal", ("of A", "of T"), "share", (1, 0))
OWN = (PURINE, AMOUNT)
LABELS: dict[str, Any] = {"purine": "purine.bed", "amount": {"of A": "a.bedgraph", "of T": "t.bedgraph"}}


def write_labels(folder: Path, records: dict[str, bytes], *, scale: float = 1.0, offset: float = 0.0) -> None:
    """Write labels that follow from the bases: purines as BED, and where A and T are as bedGraph."""
    with (folder / "purine.bed").open("a") as bed:
        for name, bases in records.items():
            for place in np.flatnonzero(encode(bases) % 2 == 0):
                bed.write(f"{name}\t{place}\t{place + 1}\n")
    for file, letter in (("a.bedgraph", 0), ("t.bedgraph", 3)):
        with (folder / file).open("a") as graph:
            for name, bases in records.items():
                for place, code in enumerate(encode(bases)):
                    graph.write(f"{name}\t{place}\t{place + 1}\t{scale * (code == letter) + offset:g}\n")


def write_genomes(folder: Path, **options: float) -> Path:
    """Write two genomes with genes and labels of own tracks."""
    for name, genes, seed in (("a", 10, 1), ("b", 6, 2)):
        bases, places = made_up_genome(genes, seed=seed)
        records = {f"chr-{name}": bases, f"other-{name}": bases[:150]}
        write_fasta(folder / f"{name}.fa", records)
        write_gff(folder / f"{name}.gff", {f"chr-{name}": places})
        write_labels(folder, records, **options)
    return folder


def own_model(*names: str, own: tuple[Track, ...] = OWN, **changes: Any) -> ModelConfig:
    return tiny_config(tracks=names or tuple(track.name for track in own), own_tracks=own, **changes)


def own_config(model: ModelConfig | None = None, samples: tuple[Sample, ...] = (), **changes: Any) -> RunConfig:
    base: dict[str, Any] = {
        "windows": (60, 180),
        "step_bases": 360,
        "steps": 6,
        "warmup": 2,
        "validate_every": 4,
        "validate_bases": 500,
        "save_every": 2,
    }
    model = model or own_model()
    labels = {track.name: LABELS[track.name] for track in model.own_tracks if track.name in LABELS}
    both = (Sample("a.fa", labels=labels), Sample("b.fa", split="validation", labels=labels))
    return RunConfig(model, TrainConfig(**{**base, **changes}), samples or both)
