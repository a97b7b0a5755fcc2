"""A gene that was called: where it lies, how sure it is, its bases and its protein."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from genoformer.genes.codons import GeneticCode, translate
from genoformer.tokens import reverse_complement


@dataclass(frozen=True)
class Gene:
    """A gene on one sequence, the stop codon included.

    Attributes
    ----------
    start, end : 0-based half-open on the forward strand; over the origin of a circular sequence ``end`` exceeds its
        length
    strand : +1 or -1
    open_left, open_right : whether it goes on beyond an edge or a gap, at its lower and its higher coordinate
    start_type : the start codon, or "Edge"
    score : log-odds of the gene, in nats
    probability : mean probability, over its bases, of their codon positions on its strand
    posterior : probability of its 3' end among all compatible sets of candidates, see `chain.posteriors`; of genes
        through frameshifts the same as ``probability``
    shifts : changes of frame in reading direction: (parts read so far end before this forward coordinate, +1 a base is
        skipped, -1 a base is read twice); empty but for frameshift-tolerant calls
    parts : (start, end) of what is read, in reading direction, on the forward strand
    """

    start: int
    end: int
    strand: int
    open_left: bool
    open_right: bool
    start_type: str
    score: float
    probability: float
    posterior: float
    shifts: tuple[tuple[int, int], ...] = ()

    @property
    def partial(self) -> str:
        """Two digits as Prodigal writes them: 1 where the gene is cut off, at its left and its right."""
        return f"{self.open_left:d}{self.open_right:d}"

    @property
    def has_start(self) -> bool:
        return not (self.open_left if self.strand > 0 else self.open_right)

    @property
    def parts(self) -> tuple[tuple[int, int], ...]:
        """What is read, in reading direction."""
        cuts = []
        if self.strand > 0:
            here = self.start
            for place, shift in self.shifts:
                cuts.append((here, place))
                here = place + shift
            return (*cuts, (here, self.end))
        there = self.end
        for place, shift in self.shifts:
            cuts.append((place, there))
            there = place - shift
        return (*cuts, (self.start, there))

    def bases(self, codes: np.ndarray) -> np.ndarray:
        """Return the codes of the gene in reading direction, from those of its whole sequence."""
        pieces = []
        for start, end in self.parts:
            piece = codes[start:end] if end <= len(codes) else np.take(codes, np.arange(start, end), mode="wrap")
            pieces.append(piece if self.strand > 0 else reverse_complement(piece))
        return pieces[0] if len(pieces) == 1 else np.concatenate(pieces)

    def protein(self, codes: np.ndarray, code: GeneticCode) -> bytes:
        """Return the translation, ending with ``*`` where the stop codon is there.

        A stop codon within, which only calls that tolerate errors read through, is ``X``.
        """
        letters = translate(self.bases(codes), code, first_is_start=self.has_start)
        return letters[:-1].replace(b"*", b"X") + letters[-1:]
