"""Genes by Prodigal, through pyrodigal, as GFF3. Runs in an environment of its own, with pyrodigal and nothing else.

python call_prodigal.py single|meta GENETIC_CODE IN.fa[.gz] OUT.gff
"""

import sys
from pathlib import Path

import pyrodigal
from plain_fasta import records, region

SHORTEST = 20_000
"""Bases that Prodigal needs to learn from."""


def main(mode, code, source, target):
    """Write the genes of all sequences."""
    found = list(records(source))
    if mode == "single" and sum(len(bases) for _, bases in found) >= SHORTEST:
        finder = pyrodigal.GeneFinder()
        finder.train(*(bases for _, bases in found), translation_table=int(code))
    else:
        finder, mode = pyrodigal.GeneFinder(meta=True), "meta"
    with Path(target).open("w") as stream:
        stream.write(f"##gff-version 3\n# pyrodigal {pyrodigal.__version__}, {mode}\n")
        number = 0
        for name, bases in found:
            seqid, line = region(name, bases)
            stream.write(line)
            for gene in finder.find_genes(bases):
                number += 1
                strand = "+" if gene.strand == 1 else "-"
                partial = f"{gene.partial_begin:d}{gene.partial_end:d}"
                columns = (seqid, "Prodigal", "CDS", gene.begin, gene.end, f"{gene.score:.1f}", strand, 0)
                stream.write("\t".join(map(str, columns)) + f"\tID=gene{number};partial={partial}\n")


if __name__ == "__main__":
    main(*sys.argv[1:])
