"""What a walk over the sequences adds up to: genes to list, coverage, GC content, and letters of what is drawn."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field

import numpy as np

from genoformer.annotation import CodingSequence
from genoformer.report.selection import Selection, Tile
from genoformer.report.walk import PageGene, Step
from genoformer.tokens import N

GENES = 50_000
"""Genes that a page lists, those of the longest sequences first."""


@dataclass
class Gathered:
    """What was gathered.

    Attributes
    ----------
    genes : int64, (sequences,): how many each sequence has
    covered : int64, (sequences,): bases in genes
    gc, known : int64, (sequences,): bases that are G or C; that are known
    covered_bins, gc_bins, known_bins : int64, (bins,): the same in the bins of what is listed
    lengths, posteriors : of all genes, in bases, and from 0 to 1 where they have one
    start_codons : of all genes that have their start
    listed : genes of listed sequences, with the place of theirs
    letters : codes of the bases of tiles
    calls : all genes by sequence, if they were to be kept
    has_bases, has_genes : whether there were any to be had
    """

    genes: np.ndarray
    covered: np.ndarray
    gc: np.ndarray
    known: np.ndarray
    covered_bins: np.ndarray
    gc_bins: np.ndarray
    known_bins: np.ndarray
    lengths: list[int] = field(default_factory=list)
    posteriors: list[float] = field(default_factory=list)
    start_codons: Counter[str] = field(default_factory=Counter)
    listed: list[tuple[int, PageGene]] = field(default_factory=list)
    letters: dict[Tile, np.ndarray] = field(default_factory=dict)
    calls: dict[str, list[CodingSequence]] | None = None
    has_bases: bool = False
    has_genes: bool = False

    @classmethod
    def empty(cls, selection: Selection, *, keep_calls: bool) -> Gathered:
        sequences, bins = len(selection.table), int(selection.bin_offsets[-1])
        a, b, c, d = np.zeros((4, sequences), dtype=np.int64)
        e, f, g = np.zeros((3, bins), dtype=np.int64)
        return cls(a, b, c, d, e, f, g, calls={} if keep_calls else None)


def gather(
    steps: Iterable[Step], selection: Selection, wanted: Iterable[Tile], *, keep_calls: bool = False
) -> Gathered:
    """Walk, and add up.

    Parameters
    ----------
    steps : of a `Walk`
    selection : what is listed
    wanted : stretches whose letters are kept
    keep_calls : keep all genes, to be evaluated
    """
    found = Gathered.empty(selection, keep_calls=keep_calls)
    by_place: dict[int, list[Tile]] = {}
    for tile in wanted:
        by_place.setdefault(tile.place, []).append(tile)
    for step in steps:
        place = selection.places.get(step.number)
        if step.codes is not None:
            _add_bases(found, selection, step, place)
            for tile in () if place is None else by_place.get(place, ()):
                found.letters[tile] = step.codes[tile.start : tile.end].copy()
        if step.genes is not None:
            _add_genes(found, selection, step, place)
    _prune(found, selection, GENES)
    return found


def _add_bases(found: Gathered, selection: Selection, step: Step, place: int | None) -> None:
    assert step.codes is not None
    found.has_bases = True
    is_gc, is_known = (step.codes == 1) | (step.codes == 2), step.codes < N
    found.gc[step.number], found.known[step.number] = is_gc.sum(), is_known.sum()
    if place is not None:
        _add_bins(found.gc_bins, selection, place, is_gc)
        _add_bins(found.known_bins, selection, place, is_known)


def _add_bins(bins: np.ndarray, selection: Selection, place: int, flags: np.ndarray) -> None:
    starts = np.arange(0, len(flags), selection.bin_size)
    if len(starts):
        first = int(selection.bin_offsets[place])
        bins[first : first + len(starts)] = np.add.reduceat(flags, starts, dtype=np.int64)


def _add_genes(found: Gathered, selection: Selection, step: Step, place: int | None) -> None:
    assert step.genes is not None
    found.has_genes = True
    length = int(selection.table.lengths[step.number])
    is_covered = np.zeros(length, dtype=bool)
    for gene in step.genes:
        found.lengths.append(gene.bases)
        if gene.posterior is not None:
            found.posteriors.append(gene.posterior)
        if gene.start_codon not in ("", "Edge"):
            found.start_codons[gene.start_codon] += 1
        for start, end in gene.cds.parts:
            is_covered[start:end] = True
    found.genes[step.number], found.covered[step.number] = len(step.genes), is_covered.sum()
    if found.calls is not None and step.genes:
        found.calls[selection.table.names[step.number]] = [gene.cds for gene in step.genes]
    if place is not None:
        _add_bins(found.covered_bins, selection, place, is_covered)
        found.listed += [(place, gene) for gene in step.genes]
        if len(found.listed) > 4 * GENES:
            _prune(found, selection, GENES)


def _prune(found: Gathered, selection: Selection, most: int) -> None:
    """Keep the genes of the longest sequences, in the order of the file."""
    if len(found.listed) > most:
        found.listed.sort(key=lambda row: (-int(selection.lengths[row[0]]), row[0]))
        del found.listed[most:]
        found.listed.sort(key=lambda row: row[0])
