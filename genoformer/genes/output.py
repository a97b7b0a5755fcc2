"""Genes as text: GFF3, protein FASTA and nucleotide FASTA, under the same identifiers."""

from __future__ import annotations

import io
from collections.abc import Callable, Iterator

from genoformer.formats.fasta import write_fasta
from genoformer.formats.gff3_write import CodingFeature, coding_lines, sequence_lines
from genoformer.formats.sequences import Record
from genoformer.genes.codons import genetic_code
from genoformer.genes.gene import Gene
from genoformer.genes.stored import SequenceGenes
from genoformer.tokens import decode


def attributes(gene: Gene, code: int) -> dict[str, str]:
    """Return what is said of a gene beside its place.

    ``conf`` is its posterior in percent: the share of all compatible sets of candidates, weighted by their scores,
    that have its 3' end. ``mean_probability`` is that of its bases.
    """
    said = {
        "partial": gene.partial,
        "start_type": gene.start_type,
        "transl_table": str(code),
        "conf": f"{100 * gene.posterior:.2f}",
        "mean_probability": f"{gene.probability:.4f}",
    }
    if gene.shifts:
        said["frameshifts"] = " ".join(f"{place + (gene.strand > 0)}{shift:+d}" for place, shift in gene.shifts)
    return said


def gff3(found: SequenceGenes, code: int) -> str:
    """Return the lines of a sequence and its genes, sorted by start."""
    head = sequence_lines(found.name, len(found.codes), circular=found.is_circular)
    coding: list[str] = []
    for gene, identifier in zip(found.genes, found.identifiers, strict=True):
        feature = CodingFeature(identifier, gene.strand, gene.parts, gene.score, attributes(gene, code))
        coding += coding_lines(found.name, feature).splitlines(keepends=True)
    coding.sort(key=lambda line: int(line.split("\t", 4)[3]))  # parts of a gene whose frame shifts reach into the next
    return head + "".join(coding)


def records(found: SequenceGenes, code: int, *, proteins: bool, keep_stop: bool = True) -> Iterator[Record]:
    """Yield the genes of a sequence as FASTA records; the header tells place and attributes as Prodigal does."""
    table = genetic_code(code)
    for gene, identifier in zip(found.genes, found.identifiers, strict=True):
        if proteins:
            letters = gene.protein(found.codes, table)
            letters = letters if keep_stop else letters.removesuffix(b"*")
        else:
            letters = decode(gene.bases(found.codes))
        said = ";".join(f"{tag}={value}" for tag, value in attributes(gene, code).items())
        description = f"# {gene.start + 1} # {gene.end} # {gene.strand} # {said}"
        yield Record(identifier, description, "linear", letters)


def _fasta(found: SequenceGenes, code: int, *, proteins: bool, keep_stop: bool) -> bytes:
    stream = io.BytesIO()
    write_fasta(records(found, code, proteins=proteins, keep_stop=keep_stop), stream)
    return stream.getvalue()


Writer = Callable[[SequenceGenes, int, bool], bytes]

GENE_FORMATS: dict[str, Writer] = {
    "gff3": lambda found, code, _: gff3(found, code).encode("utf-8", "surrogateescape"),
    "faa": lambda found, code, keep_stop: _fasta(found, code, proteins=True, keep_stop=keep_stop),
    "fna": lambda found, code, _: _fasta(found, code, proteins=False, keep_stop=True),
}
"""What genes can be written as: sequence and genes, genetic code, whether proteins keep their ``*`` -> text."""


def render(found: SequenceGenes, *, to: str, code: int, keep_stop: bool = True) -> bytes:
    """Return the genes of a sequence as text.

    Parameters
    ----------
    found : from `stored_genes`
    to : one of GENE_FORMATS; GFF3 needs the lines of `genoformer.formats.gff3_write.header` before the first sequence
    code : number of the NCBI translation table
    keep_stop : end proteins with ``*`` where the stop codon is there, as Prodigal does
    """
    return GENE_FORMATS[to](found, code, keep_stop)
