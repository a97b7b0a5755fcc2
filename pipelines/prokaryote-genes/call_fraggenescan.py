"""Genes by FragGeneScan, through pyfgs (FragGeneScanRs), as GFF3. Runs in an environment of its own, with pyfgs alone.

python call_fraggenescan.py MODEL whole|parts IN.fa[.gz] OUT.gff

MODEL is the name of its training files: complete, sanger_5, sanger_10, 454_5, 454_10, 454_30, illumina_1, illumina_5,
illumina_10. whole is -complete=1, parts -complete=0. A gene is written from its first to its last base; pyfgs itself
writes those with a frameshift as pseudogenes, which would not count as calls.
"""

import sys
from importlib.metadata import version
from pathlib import Path

import pyfgs
from plain_fasta import records, region

MODELS = {
    "complete": "Complete",
    "sanger_5": "Sanger5",
    "sanger_10": "Sanger10",
    "454_5": "Pyro454_5",
    "454_10": "Pyro454_10",
    "454_30": "Pyro454_30",
    "illumina_1": "Illumina1",
    "illumina_5": "Illumina5",
    "illumina_10": "Illumina10",
}


def main(model, extent, source, target):
    """Write the genes of all sequences."""
    finder = pyfgs.GeneFinder(getattr(pyfgs.Model, MODELS[model]), whole_genome=extent == "whole")
    with Path(target).open("w") as stream:
        stream.write(f"##gff-version 3\n# pyfgs {version('pyfgs')}, {model}, {extent}\n")
        number = 0
        for name, bases in records(source):
            seqid, line = region(name, bases)
            stream.write(line)
            for gene in finder.find_genes(bases):
                number += 1
                start, end = max(gene.start, 0) + 1, min(gene.end, len(bases))
                strand = "+" if gene.strand == 1 else "-"
                shifts = len(gene.insertions) + len(gene.deletions)
                columns = (seqid, "FragGeneScan", "CDS", start, end, f"{gene.score:.3f}", strand, 0)
                stream.write("\t".join(map(str, columns)) + f"\tID=gene{number};shifts={shifts}\n")


if __name__ == "__main__":
    main(*sys.argv[1:])
