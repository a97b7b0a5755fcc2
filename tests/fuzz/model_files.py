"""Configurations, models and HDF5 under attack: good files, and what is done with a damaged one."""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

from agreement import agree

TOML = (
    """samples_table = "x.tsv"
[model]
tracks = ["coding-frame", "own"]
width = 32
heads = 4
attention = ["local", "hybrid", "performer", "linformer"]
performer_max_temperature = 1.5
linformer_ranks = [1, 2, 3, 4]
[[model.own_tracks]]
name = "own"
kind = "class"
channels = ["none", "+", "-"]
reverse_complement = [0, 2, 1]
[train]
windows = [100, 200]
step_bases = 1000
error_rates = [0.0, 0.1]
class_weights = []
seed = 7
[[train.losses]]
track = "own"
class_weights = [1.0, 2, 3]
[[samples]]
fasta = "../a.fa"
annotation = "/etc/passwd"
split = "validation"
labels = { own = { "+" = "b.bw" } }
""",
)


def read_toml(path: Path) -> None:
    from genoformer.plain import from_dict, read_toml, to_dict
    from genoformer.training.config import RunConfig

    config = read_toml(RunConfig, path)
    agree(from_dict(RunConfig, json.loads(json.dumps(to_dict(config)))), config)


SAMPLES = "fasta\tannotation\tsplit\tweight\town\n# words\na.fa\ta.gff\ttrain\t2\t\nb.fa\t\tvalidation\t1e0\tb.bed\n"


def read_samples(path: Path) -> None:
    from genoformer.tracks import Track
    from genoformer.training.samples_table import read_samples_table

    own = Track(name="own", kind="class", channels=("a", "b"), units="", reverse_complement=(0, 1))
    read_samples_table(path, tracks=[own])


def made_model(part: str) -> Callable[[Path], list[bytes]]:
    """Write a tiny model; one of its two files is to be damaged."""

    def write(folder: Path) -> list[bytes]:
        from tiny import tiny_config, tiny_model

        from genoformer.model.checkpoint import save_model

        good = []
        for changes in ({}, {"attention": ("linformer",), "linformer_projection": "seeded", "stem_kmer": 2}):
            save_model(folder / "model", tiny_model(**changes), tiny_config(**changes), name="m")
            good.append((folder / "model" / part).read_bytes())
        return good if part == "config.json" else good[1:]

    return write


def read_model(path: Path) -> None:
    """Load it; weights that were damaged are those that the description names, as a stranger's would be."""
    from genoformer.model.checkpoint import load_model, sha256

    if path.name == "model.safetensors":
        about = path.parent / "config.json"
        described = json.loads(about.read_text())
        about.write_text(json.dumps(described | {"weights-sha256": sha256(path)}))
    load_model(path.parent)


@cache
def begun() -> tuple[Any, Any]:
    """Return a training that has just begun, and its configuration."""
    import torch
    from tiny import tiny_config

    from genoformer.training.config import RunConfig
    from genoformer.training.state import new_state

    config = RunConfig(model=tiny_config())
    return new_state(config, torch.device("cpu")), config


def read_state(path: Path) -> None:
    from genoformer.training.state import load_state

    state, config = begun()
    load_state(state, path, config)


def made_state(folder: Path) -> list[bytes]:
    from genoformer.training.state import save_state

    state, config = begun()
    save_state(state, folder / "made", config)
    return [(folder / "made").read_bytes()]


# HDF5


def made_store(folder: Path) -> list[bytes]:
    from tiny import Memory

    from genoformer.plan import make_plan
    from genoformer.tokenizing import tokenize_to_store

    memory = Memory(("a", b"ACGTN" * 20), ("x:1", b"GG"), ("empty", b""))
    plan = make_plan(memory, window=50, overlap=10)
    tokenize_to_store(plan, memory, folder / "made.h5")
    return [(folder / "made.h5").read_bytes()]


def read_store(path: Path) -> None:
    from genoformer.cli import inspect
    from genoformer.formats.bed import parse_regions
    from genoformer.plan import make_plan
    from genoformer.store import damaged_sequences, open_store
    from genoformer.tokenizing import open_sequences_or_tokens

    with open_store(path, allow_incomplete=True) as store:
        for block in store.blocks():
            assert block.values
        list(inspect.summary(store)), list(inspect.table(store, 20))
        damaged_sequences(store)
        if len(store.sequences):
            parse_regions(store.sequences.names[0], dict(zip(store.sequences.names, store.sequences.lengths.tolist())))  # noqa: B905
    make_plan(open_sequences_or_tokens(path), window=50, overlap=10)


def made_embeddings(folder: Path) -> list[bytes]:
    from tiny import Memory, tiny_model

    from genoformer.embedding import embed_to_store
    from genoformer.plan import make_plan

    memory = Memory(("a", b"ACGT" * 20), ("b", b"GG"))
    embed_to_store(make_plan(memory, window=60, overlap=12), memory, tiny_model(), folder / "made.h5", layer=1)
    return [(folder / "made.h5").read_bytes()]


def read_embeddings(path: Path) -> None:
    from genoformer.embedding import open_embeddings
    from genoformer.regions import Region

    with open_embeddings(path) as found:
        for name, length in list(zip(found.sequences.names, found.sequences.lengths.tolist(), strict=True))[:3]:
            agree(found[name].shape, found.tokens(Region(name, 0, length)).shape)
