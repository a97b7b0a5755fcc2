"""Called genes against annotations, beside Prodigal's: `python tests/benchmarks/genes_f1.py STORE.h5=TRUTH.gff ...`.

Each store, as `genoformer predict` writes them, is called with the settings of `genoformer export`; where pyrodigal is
installed, it is trained on and called in the same sequences with the same genetic code. Counted are 3' ends (a gene is
found if its stop is) and exact genes (the start as well). Of sequences predicted in part, only genes within the
part count. Settings were chosen by validation genomes; test genomes are for the last look only.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np

from genoformer.annotation import CodingSequence
from genoformer.evaluate.gene_matching import GeneCounts, match_genes
from genoformer.evaluate.predictions import as_coding_sequence
from genoformer.formats.annotated import read_annotation
from genoformer.formats.sequences import open_sequences
from genoformer.genes import Called, CallSettings, call_genes
from genoformer.genes.stored import stored_code
from genoformer.regions import Region
from genoformer.store import TrackStore, open_store
from genoformer.tokens import encode
from genoformer.tracks import CODING_FRAME


class Sequence(NamedTuple):
    name: str
    bases: bytes
    called: Called
    predicted: np.ndarray
    """bool, (bases,)"""


def sequences_of(store: TrackStore) -> list[Sequence]:
    found = []
    for record in open_sequences(store.metadata["input"]).records():
        values = store.values(Region(record.name, 0, len(record.bases)), CODING_FRAME.name)
        called = Called(encode(record.bases), values, record.topology == "circular")
        found.append(Sequence(record.name, record.bases, called, ~np.isnan(values[:, 0])))
    return found


def ours(sequences: list[Sequence], code: int) -> Iterator[list[CodingSequence]]:
    settings = CallSettings(genetic_code=code)
    for name, bases, called, _ in sequences:
        genes = call_genes(called.codes, called.values, circular=called.is_circular, settings=settings)
        yield [as_coding_sequence(gene, name, len(bases)) for gene in genes]


def prodigals(sequences: list[Sequence], code: int) -> Iterator[list[CodingSequence]]:
    import pyrodigal

    finder = pyrodigal.GeneFinder()
    finder.train(*[sequence.bases for sequence in sequences], translation_table=code)
    for name, bases, _, _ in sequences:
        yield [
            CodingSequence(
                name, gene.strand, ((gene.begin - 1, gene.end),), partial=gene.partial_begin or gene.partial_end
            )
            for gene in finder.find_genes(bases)
        ]


def counts(sequences: list[Sequence], called: Iterator[list[CodingSequence]], truth: dict) -> GeneCounts:
    total = GeneCounts()
    for (name, bases, _, predicted), genes in zip(sequences, called, strict=True):
        if name in truth:
            within = [[cds for cds in given if all(predicted[a:b].all() for a, b in cds.parts)]
                      for given in (truth[name], genes)]  # fmt: skip
            total += match_genes(*within, length=len(bases))
    return total


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("pairs", nargs="+", metavar="STORE.h5=TRUTH.gff")
    callers = {"genoformer": ours, "prodigal": prodigals}
    try:
        import pyrodigal  # noqa: F401
    except ImportError:
        print("pyrodigal is not installed: genoformer alone")
        del callers["prodigal"]
    print(
        f"{'store':40} {'caller':10} {'genes':>6} {'precision':>9} {'recall':>7} {'F1':>7} {'exact F1':>8} {'s/Mb':>6}"
    )
    for pair in parser.parse_args().pairs:
        path, truth = pair.split("=")
        with open_store(Path(path)) as store:
            code, sequences = stored_code(store), sequences_of(store)
        annotation = read_annotation(truth).coding_sequences
        for caller, call in callers.items():
            began = time.perf_counter()
            genes = list(call(sequences, code))
            elapsed = time.perf_counter() - began
            found = counts(sequences, iter(genes), annotation)
            score, exact = found.score(exact=False), found.score(exact=True)
            number, bases = sum(map(len, genes)), sum(len(sequence.bases) for sequence in sequences)
            row = f"{Path(path).name:40} {caller:10} {number:6} {score.precision:9.4f} {score.recall:7.4f} "
            print(row + f"{score.f1:7.4f} {exact.f1:8.4f} {elapsed / bases * 1e6:6.2f}", flush=True)


if __name__ == "__main__":
    main()
