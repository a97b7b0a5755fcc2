"""Tiny annotated genomes for the scripts of a recipe."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from common import annotation_text
from tiny import made_up_genome, write_fasta

from genoformer.annotation import Annotation, CodingSequence


def random_annotation(lengths: dict[str, int], *, seed: int, genes: int = 40) -> Annotation:
    """Draw coding sequences of every kind: overlapping, of several parts, pseudo, broken, partial, over the origin."""
    rng = np.random.default_rng(seed)
    annotation = Annotation(lengths=dict(lengths))
    for name, length in lengths.items():
        annotation.topology[name] = "circular" if rng.random() < 0.5 else "linear"
        found = []
        for number in range(genes):
            strand = 1 if rng.random() < 0.5 else -1
            here = int(rng.integers(0, length - 90))
            cuts = [here]
            for _ in range(int(rng.integers(1, 4))):
                cuts += [cuts[-1] + int(rng.integers(1, 30)), 0]
                cuts[-1] = cuts[-2] + int(rng.integers(1, 6))
            parts = [(a, b) for a, b in zip(cuts[0:-1:2], cuts[1::2], strict=True) if b <= length]
            flags = {"pseudo": rng.random() < 0.1, "partial": rng.random() < 0.5, "phase": int(rng.integers(0, 3))}
            if parts:
                ordered = tuple(parts if strand == 1 else parts[::-1])
                found.append(CodingSequence(name, strand, ordered, name=f"g{number}", genetic_code=11, **flags))
        if annotation.topology[name] == "circular":
            for strand in (1, -1):
                ends = ((length - 31, length), (0, 32))
                found.append(CodingSequence(name, strand, ends if strand == 1 else ends[::-1], name=f"o{strand}"))
        annotation.coding_sequences[name] = found
    return annotation


def write_folder(folder: Path, *, split: str = "validation", names: tuple[str, ...] = ("one", "two")) -> Path:
    """Write a folder of genomes with its MANIFEST.tsv."""
    (folder / split).mkdir(parents=True)
    lines = ["split\tfasta\tannotation\torganism\tgenetic_code"]
    for seed, name in enumerate(names):
        bases, places = made_up_genome(60, seed=seed)
        annotation = Annotation({"s": []}, {"s": "linear"}, {"s": len(bases)})
        annotation.coding_sequences["s"] = [CodingSequence("s", strand, ((a, b),)) for a, b, strand in places]
        write_fasta(folder / split / f"{name}.fa", {"s": bases})
        (folder / split / f"{name}.gff").write_text("".join(annotation_text(annotation)))
        lines.append(f"{split}\t{name}.fa\t{name}.gff\tOrganism {name}\t11")
    (folder / "MANIFEST.tsv").write_text("\n".join(lines) + "\n")
    return folder
