"""Small stores, with the sequences they were predicted from, for reports."""

from __future__ import annotations

from pathlib import Path
from typing import Literal, NamedTuple

import numpy as np
from gene_twins import Genome, genome, probabilities

from genoformer.formats.sequences import open_sequences
from genoformer.plan import make_plan
from genoformer.regions import Block
from genoformer.store import TrackStore
from genoformer.tracks import CODING_FRAME, Track

HOSTILE = "<script>alert(1)</script>"
NAMES = [HOSTILE, "a&b\"c'd", "x:1-100", "</script><!--", "${script}", "none", "n"]


class Sample(NamedTuple):
    store: Path
    fasta: Path
    truth: Path
    genomes: dict[str, Genome]


def genomes() -> dict[str, Genome]:
    """Return sequences with genes under names that would do harm, one without genes, and one unknown."""
    made = {name: genome(seed, genes=2 + seed) for seed, name in enumerate(NAMES[:5])}
    made["none"] = Genome(b"ACGT" * 20, probabilities(80, []), [])
    made["n"] = Genome(b"N" * 60, np.full((60, 7), np.nan, np.float16), [])
    return made


def coding_sample(folder: Path, made: dict[str, Genome] | None = None) -> Sample:
    """Write a FASTA, what a model that is right would say of it as a store, and its annotation."""
    made = genomes() if made is None else made
    fasta, path, truth = folder / "genome.fa", folder / "genome.h5", folder / "genome.gff"
    fasta.write_bytes(b"".join(b">%s\n%s\n" % (name.encode(), one.bases) for name, one in made.items()))
    plan = make_plan(open_sequences(fasta))
    provenance = {
        "identity": {"genetic-code": 11, "model": "perfect<b>", "model-sha256": "0" * 64, "window": 100_000},
        "input": str(fasta), "command": "genoformer predict <i>", "accounting": plan.accounting._asdict(),
        "letters": plan.letters._asdict(), "versions": {"genoformer": "0"},
    }  # fmt: skip
    with TrackStore.create(path, plan.sequences, [CODING_FRAME], provenance=provenance, blocks=plan.blocks) as writer:
        for index, start, end in plan.owned.tolist():
            name = plan.sequences.names[index]
            writer.write(Block(name, start, {CODING_FRAME.name: made[name].values[start:end]}))
        writer.finish()
    from genoformer.formats.gff3_write import CodingFeature, coding_lines, header, sequence_lines

    lines = [header([])]
    for name, one in made.items():
        lines.append(sequence_lines(name, len(one.bases)))
        for k, (start, end, strand) in enumerate(one.genes):
            lines.append(coding_lines(name, CodingFeature(f"{name}.true{k}", strand, [(start, end)], 0.0, {})))
    truth.write_text("".join(lines))
    return Sample(path, fasta, truth, made)


def other_track(kind: Literal["class", "signal"], channels: int = 3) -> Track:
    """Return a track that is not coding-frame."""
    names = tuple(f"<b>{k}" for k in range(channels))
    same = tuple(range(channels))
    return Track(f"other-{kind}", kind, channels=names, units="a<b", reverse_complement=same)
