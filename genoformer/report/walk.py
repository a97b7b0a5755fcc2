"""One walk over the sequences of a store, with their bases and genes where these can be had."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from genoformer.annotation import Annotation, CodingSequence
from genoformer.evaluate.predictions import as_coding_sequence
from genoformer.formats.sequences import Sequences
from genoformer.genes import CallSettings
from genoformer.genes.codons import codon_text
from genoformer.genes.stored import matched_records, stored_genes
from genoformer.store import TrackStore
from genoformer.tokens import encode, reverse_complement


class PageGene(NamedTuple):
    """A gene as a page shows it: coordinates 0-based half-open; over an origin ``end`` exceeds the sequence."""

    name: str
    start: int
    end: int
    strand: int
    parts: tuple[tuple[int, int], ...]
    start_codon: str
    """Edge where it begins beyond an edge or a gap, empty where it is not known"""
    is_partial: bool
    posterior: float | None
    cds: CodingSequence

    @property
    def bases(self) -> int:
        return sum(end - start for start, end in self.parts)


class Step(NamedTuple):
    """A sequence that was walked over, by its number in the store; None where bases or genes are not to be had."""

    number: int
    codes: np.ndarray | None
    genes: list[PageGene] | None


@dataclass(frozen=True)
class Walk:
    """How to walk.

    Attributes
    ----------
    store : of the predictions
    sequences : what was predicted; None where it is not at hand
    annotation : genes that were given; None where there are none, or they are called
    settings : how genes are called; None where they are not
    circular : names of sequences whose ends are joined
    """

    store: TrackStore
    sequences: Sequences | None = None
    annotation: Annotation | None = None
    settings: CallSettings | None = None
    circular: Collection[str] = ()

    @property
    def has_genes(self) -> bool:
        return self.annotation is not None or (self.settings is not None and self.sequences is not None)

    def steps(self, report: Callable[[int], None] = lambda _: None) -> Iterator[Step]:
        """Yield the sequences in order; none where neither bases nor genes are known."""
        if self.sequences is not None and self.settings is not None and self.annotation is None:
            yield from self._called(self.sequences, self.settings, report)
        elif self.sequences is not None:
            for index, (record, _) in enumerate(matched_records(self.store, self.sequences)):
                codes = encode(record.bases)
                yield Step(index, codes, self._given(record.name, codes))
                report(len(codes))
        elif self.annotation is not None:
            for index, name in enumerate(self.store.sequences.names):
                yield Step(index, None, self._given(name, None))

    def _called(self, sequences: Sequences, settings: CallSettings, report: Callable[[int], None]) -> Iterator[Step]:
        walked = stored_genes(self.store, sequences, settings=settings, circular=self.circular, report=report)
        for index, found in enumerate(walked):
            genes = []
            for gene, name in zip(found.genes, found.identifiers, strict=True):
                cds = as_coding_sequence(gene, found.name, len(found.codes))
                genes.append(PageGene(name, gene.start, gene.end, gene.strand, gene.parts, gene.start_type,
                                      gene.open_left or gene.open_right, gene.posterior, cds))  # fmt: skip
            yield Step(index, found.codes, genes)

    def _given(self, name: str, codes: np.ndarray | None) -> list[PageGene] | None:
        if self.annotation is None:
            return None
        found = [cds for cds in self.annotation.coding_sequences.get(name, []) if not cds.pseudo]
        genes = [page_gene(cds, codes) for cds in found]
        return sorted(genes, key=lambda gene: (gene.start, gene.end))


def page_gene(cds: CodingSequence, codes: np.ndarray | None = None) -> PageGene:
    """Return a CDS as a page shows it; codes of its sequence tell its start codon."""
    codon = ""
    if codes is not None and not cds.partial:
        letters = _first_bases(cds, codes)
        codon = codon_text(int(letters @ (16, 4, 1))) if len(letters) == 3 and (letters < 4).all() else ""
    start, end = min(start for start, _ in cds.parts), max(end for _, end in cds.parts)
    return PageGene(cds.name, start, end, cds.strand, cds.parts, codon, cds.partial, None, cds)


def _first_bases(cds: CodingSequence, codes: np.ndarray) -> np.ndarray:
    pieces: list[np.ndarray] = []
    for start, end in cds.parts:
        piece = codes[start:end][:3] if cds.strand > 0 else reverse_complement(codes[start:end][-3:])
        pieces.append(piece)
        if sum(map(len, pieces)) >= 3:
            break
    return np.concatenate(pieces)[:3].astype(np.int64)
