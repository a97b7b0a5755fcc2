"""Tiny models that do something, and made-up annotated genomes, for every test that needs one."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from genoformer.config import ModelConfig
from genoformer.formats.sequences import Record
from genoformer.model.genoformer import Genoformer, build
from genoformer.regions import Region
from genoformer.tokens import PAD, decode, encode, reverse_complement

CHOICES: dict[str, dict[str, Any]] = {
    "softmax": {"attention": ("softmax",)},
    "local": {"attention": ("local",)},
    "performer": {"attention": ("performer",)},
    "performer-relu": {"attention": ("performer",), "performer_features": "relu"},
    "hybrid-softmax": {"attention": ("hybrid",), "hybrid_global": "softmax"},
    "hybrid-performer": {"attention": ("hybrid",)},
    "hybrid-linformer": {"attention": ("hybrid",), "hybrid_global": "linformer"},
    "joint": {"attention": ("joint",)},
    "linformer-headwise": {
        "attention": ("linformer", "linformer"),
        "linformer_projection": "interpolated",
        "linformer_sharing": "headwise",
        "linformer_start": "normal",
        "linformer_ranks": (4, 6),
    },
    "two-blocks": {"attention": ("local", "performer")},
    "words": {"attention": ("local", "performer"), "stem_kmer": 4},
    **{
        f"linformer-{kind}": {"attention": ("linformer", "linformer"), "linformer_projection": kind}
        for kind in ("learned", "seeded", "interpolated", "mean", "max", "conv", "dynamic")
    },
}
"""Changes to the tiny configuration that reach every attention mechanism."""


def tiny_config(**changes: Any) -> ModelConfig:
    """Return a configuration whose model is tiny, local heads seeing little."""
    base: dict[str, Any] = {
        "width": 16,
        "heads": 2,
        "stem_channels": 6,
        "stem_kernel": 5,
        "attention": ("local", "performer"),
        "conv_kernel": 3,
        "expansion": 2,
        "local_radius": 4,
        "performer_count": 12,
        "linformer_rank": 5,
        "linformer_tokens": 200,
        "hybrid_local_heads": 1,
    }
    return ModelConfig(**{**base, **changes})


def tiny_model(config: ModelConfig | None = None, *, dtype: torch.dtype = torch.float32, **changes: Any) -> Genoformer:
    """Build a tiny model and move every parameter off the special values it starts at."""
    model = build(config or tiny_config(**changes)).eval()
    generator = torch.Generator().manual_seed(7)
    with torch.no_grad():
        for parameter in model.parameters():
            noise = torch.randn(parameter.shape, generator=generator)
            parameter += 0.3 * parameter.square().mean().sqrt().clamp_min(0.2) * noise
    return model.to(dtype)


def random_codes(*lengths: int, seed: int = 0, unknown: float = 0.05) -> Tensor:
    """Return rows of random codes (rows, longest), some unknown, PAD behind the shorter ones."""
    rng = np.random.default_rng(seed)
    rows = np.full((len(lengths), max(lengths)), PAD, dtype=np.uint8)
    for row, length in zip(rows, lengths, strict=True):
        row[:length] = np.where(rng.random(length) < unknown, 4, rng.integers(0, 4, length))
    return torch.from_numpy(rows)


def random_bases(length: int, seed: int = 0) -> bytes:
    """Return random upper-case bases."""
    return decode(np.random.default_rng(seed).integers(0, 4, length).astype(np.uint8))


SENSE = [a + b + c for a in "ACGT" for b in "ACGT" for c in "ACGT" if a + b + c not in ("TAA", "TAG", "TGA")]


def made_up_genome(genes: int, *, seed: int = 0, codons: int = 60) -> tuple[bytes, list[tuple[int, int, int]]]:
    """Return bases, and genes as (start, end, strand), stop codons included, with random bases between them."""
    rng = np.random.default_rng(seed)
    pieces, places, here = [random_bases(100, seed + 1000)], [], 100
    for number in range(genes):
        inner = "".join(SENSE[i] for i in rng.integers(0, len(SENSE), int(rng.integers(codons // 2, codons * 2))))
        gene = f"ATG{inner}{('TAA', 'TGA', 'TAG')[number % 3]}".encode()
        strand = 1 if rng.random() < 0.5 else -1
        pieces.append(gene if strand == 1 else decode(reverse_complement(encode(gene))))
        places.append((here, here + len(gene), strand))
        pieces.append(random_bases(int(rng.integers(10, 60)), seed * 1000 + number))
        here += len(gene) + len(pieces[-1])
    return b"".join(pieces), places


def write_fasta(path: Path, records: dict[str, bytes]) -> Path:
    """Write a FASTA file."""
    path.write_bytes(b"".join(b">" + name.encode() + b"\n" + bases + b"\n" for name, bases in records.items()))
    return path


def write_gff(path: Path, genes: dict[str, list[tuple[int, int, int]]], *, genetic_code: int = 11) -> Path:
    """Write the CDS of some sequences as GFF3."""
    lines = ["##gff-version 3"]
    for name, places in genes.items():
        for number, (start, end, strand) in enumerate(places):
            sign = "+" if strand == 1 else "-"
            attributes = f"ID=cds-{name}-{number};transl_table={genetic_code}"
            lines.append(f"{name}\ttest\tCDS\t{start + 1}\t{end}\t.\t{sign}\t0\t{attributes}")
    path.write_text("\n".join(lines) + "\n")
    return path


class Memory:
    """Sequences held in memory: a source of records that needs no file."""

    def __init__(self, *records: tuple[str, bytes], source: str = "memory") -> None:
        self.source = source
        self.held = list(records)

    def records(self) -> Iterator[Record]:
        yield from (Record(name, "", "linear", bases) for name, bases in self.held)

    def lengths(self) -> dict[str, int]:
        return {name: len(bases) for name, bases in self.held}

    def fetch(self, region: Region) -> bytes:
        return dict(self.held)[region.sequence][region.start : region.end]
