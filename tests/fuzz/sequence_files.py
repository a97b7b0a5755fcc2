"""Sequences and alignments under attack: good files, and what is done with a damaged one."""

from __future__ import annotations

import gzip
from collections.abc import Callable
from pathlib import Path

from agreement import agree
from strategies import bgzip

FASTA = (
    ">a first sequence\nACGTACGTNNRYacgt\nACGTAC\n\n>b\r\nGGCC\r\n; a comment\n>c|x:1-9\nAC-GT.U\n",
    "# words\n>one\nACGT\n>two\n>three\nAAAA>four\nCC",
)
GENBANK = """LOCUS       X1                        60 bp    DNA     circular BCT 01-JAN-2000
DEFINITION  A made up plasmid.
ACCESSION   X1
VERSION     X1.1
FEATURES             Location/Qualifiers
     source          1..60
     gene            1..12
                     /locus_tag="t1"
                     /pseudo
     CDS             join(50..60,1..10)
                     /locus_tag="t2"
                     /codon_start=1
                     /transl_table=11
     CDS             complement(<20..>31)
                     /gene="g"
                     /protein_id="p"
     CDS             order(33..35,37..39)
ORIGIN
        1 acgtacgtac gtacgtacgt acgtacgtac gtacgtnnnn acgtacgtac gtacgtacgt
//
"""


def read_fasta(path: Path) -> None:
    from genoformer.errors import GenoformerError
    from genoformer.formats.sequences import open_sequences
    from genoformer.regions import Region

    sequences = open_sequences(path)
    try:
        held = {record.name: record.bases for record in sequences.records()}
    except GenoformerError as error:
        held = {"": type(error).__name__.encode()}
    try:
        lengths = sequences.lengths()
    except GenoformerError as error:
        if "more than once" not in str(error):
            agree(held, {"": type(error).__name__.encode()})
        return
    agree({name: len(bases) for name, bases in held.items()}, lengths)
    for name, length in list(lengths.items())[:3]:
        agree(sequences.fetch(Region(name, 0, length)), held[name])
        agree(sequences.fetch(Region(name, length // 2, length)), held[name][length // 2 :])


def read_plan(path: Path) -> None:
    """Go as far as `predict` does before it computes."""
    from genoformer.formats.sequences import open_sequences
    from genoformer.plan import make_plan

    plan = make_plan(open_sequences(path), window=30, overlap=6)
    agree(sum(plan.accounting[:-1]), plan.sequences.total_bases)


def read_genbank(path: Path) -> None:
    from genoformer.formats import genbank

    found = genbank.read_genbank(path)
    agree([record.name for record in found.records], list(found.annotation.coding_sequences))


def alignments(mode: str) -> Callable[[Path], list[bytes]]:
    def write(folder: Path) -> list[bytes]:
        import pysam

        reference = folder / "reference.fa"
        reference.write_text(">c\n" + "ACGTTGCAAC" * 20 + "\n")
        pysam.faidx(str(reference))
        header = {"HD": {"VN": "1.6", "SO": "coordinate"}, "SQ": [{"SN": "c", "LN": 200}]}
        good = []
        with pysam.AlignmentFile(str(folder / "made"), mode, header=header, reference_filename=str(reference)) as file:
            for number, cigar in enumerate(("40M", "10S30M", "5H20M2I10M5D8M", "10M100N30M", "40M", "*")):
                read = pysam.AlignedSegment(file.header)
                read.query_name, read.query_sequence = f"r{number}", "ACGTTGCAAC" * 4
                read.flag = (0, 16, 0, 99, 2048, 4)[number]
                read.reference_id, read.reference_start = (0, 10 * number) if cigar != "*" else (-1, -1)
                read.cigarstring = None if cigar == "*" else cigar
                read.mapping_quality = 30
                file.write(read)
        good.append((folder / "made").read_bytes())
        return good

    return write


def unpacked(prepare: Callable[[Path], list[bytes]]) -> Callable[[Path], list[bytes]]:
    return lambda folder: [gzip.decompress(good) for good in prepare(folder)]


def packed(content: bytes) -> bytes:
    return bgzip(content, block=1 << 15)


def read_alignments(path: Path) -> None:
    from genoformer.formats.sequences import open_sequences
    from genoformer.regions import Region

    sequences = open_sequences(path, reference=path.parent / "reference.fa")
    names = [record.name for record in sequences.records()]
    agree(len(set(names)), len(names))
    for name, length in list(sequences.lengths().items())[:2]:
        if path.suffix != ".sam" and hasattr(sequences, "hard_clipped"):
            list(sequences.records([Region(name, 0, min(length, 50))]))  # type: ignore[call-arg]
