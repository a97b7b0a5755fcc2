"""Annotation, spans, tables and variants under attack: good files, and what is done with a damaged one."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

from agreement import agree

GFF3 = (
    "##gff-version 3\n##sequence-region c 1 200\nc\tx\tregion\t1\t200\t.\t+\t.\tID=c;Is_circular=true\n"
    "c\tx\tgene\t1\t30\t.\t+\t.\tID=g1;locus_tag=t1;pseudo=true\n"
    "c\tx\tCDS\t190\t210\t.\t+\t0\tID=cds1;Parent=g1;transl_table=11\n"
    "c\tx\tCDS\t40\t48\t.\t-\t0\tID=p1;Parent=m1\nc\tx\tCDS\t60\t65\t.\t-\t0\tID=p2;Parent=m1\n"
    "d%20e\tx\tCDS\t5\t9\t0.5\t1\t2\tpartial=10\n##FASTA\n>c\nACGT\n"
)


def read_gff3(path: Path) -> None:
    from genoformer.annotation import coding_frame_labels
    from genoformer.formats.annotated import check_fits, read_annotation

    found = read_annotation(path)
    lengths = {"c": 200, "d e": 300}
    for name in check_fits(found, lengths, source="x", sequences="y"):
        coding_frame_labels(lengths[name], found.coding_sequences[name])


BED = "track name=x\nc\t10\t20\tnone\t0\t+\nc\t30\t60\t+\t1\t-\n# words\nd e\t0\t5\tx\t0\t.\nc 1 2 n 0 .\n"
BEDGRAPH = "track type=bedGraph\nc\t0\t10\t0.5\nc\t10\t12\t-1e3\nd\t5\t6\t7\n"
LENGTHS = {"c": 200, "d e": 300, "d": 9}


def all_of(*reads: Callable[[Path], object]) -> Callable[[Path], None]:
    """Do several things with a file, each whatever becomes of the others."""

    def read(path: Path) -> None:
        from genoformer.errors import GenoformerError

        said: GenoformerError | None = None
        for one in reads:
            try:
                one(path)
            except GenoformerError as error:
                said = error
        if said:
            raise said

    return read


def read_bed(path: Path) -> None:
    from genoformer.formats.bed import read_bed

    list(read_bed(path, LENGTHS))


def read_spans(path: Path) -> None:
    from genoformer.formats import spans

    all_of(spans.read_bed_spans, spans.read_bed_strands, spans.is_bed)(path)


def read_region_texts(path: Path) -> None:
    from genoformer.formats.bed import parse_regions

    parse_regions([path.read_bytes().decode("utf-8", "surrogateescape")], LENGTHS)


def read_bedgraph(path: Path) -> None:
    from genoformer.formats.spans import read_bedgraph

    read_bedgraph(path)


def made_bigwig(_: Path) -> list[bytes]:
    """Write a small bigWig with our own writer."""
    import numpy as np

    from genoformer.formats.bigwig_write import BigWigWriter

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "x.bw"
        with path.open("wb") as stream, closing(BigWigWriter(stream, ["c", "d"], np.array([200, 50]))) as writer:
            writer.add(np.zeros(40, np.int64), np.arange(10, 50), np.linspace(0, 1, 40).astype(np.float16))
            writer.finish()
        return [path.read_bytes()]


def read_bigwig(path: Path) -> None:
    from genoformer.formats.bigwig import BigWig

    held = BigWig(path)
    for name in list(held.lengths)[:3]:
        held.spans(name)


TABLE = "sequence\tposition\tone\ttwo\nc\t1\t0.5\tnan\nc\t2\t0.25\t1\nd\t7\t0\t0\n"


def read_table(path: Path) -> None:
    from genoformer.formats.table import read_table

    for rows in read_table(path)[1]:
        agree(len(rows.positions), len(rows.values))


def made_npz(folder: Path) -> list[bytes]:
    import io

    import numpy as np

    stream = io.BytesIO()
    columns = {"sequence": np.array(["c"]), "start": np.array([0]), "end": np.array([4])}
    np.savez(stream, **columns, track=np.array("t"), channels=np.array(["x"]), values_0=np.zeros((4, 1), np.float16))
    return [stream.getvalue()]


def read_npz(path: Path) -> None:
    from genoformer.formats.arrays import read_npz

    for block in read_npz(path).blocks():
        assert block.sequence is not None


VCF = (
    "##fileformat=VCFv4.2\n##contig=<ID=c,length=200>\n##INFO=<ID=DP,Number=1,Type=Integer,Description=\"d\">\n"
    "##FORMAT=<ID=GT,Number=1,Type=String,Description=\"g\">\n"
    "#CHROM\tPOS\tID\tREF\tALT\tQUAL\tFILTER\tINFO\tFORMAT\ts\n"
    "c\t5\tx\tT\tA,TT\t.\tPASS\tDP=3\tGT\t0/1\nc\t11\t.\tAC\tA\t9\t.\t.\tGT\t./.\nc\t20\t.\tC\t<DEL>\t.\t.\tEND=30\tGT\t1\n"
)  # fmt: skip


def beside_reference(*good: str) -> Callable[[Path], list[bytes]]:
    def write(folder: Path) -> list[bytes]:
        (folder / "reference.fa").write_text(">c\n" + "ACGTTGCAAC" * 20 + "\n")
        return [one.encode() for one in good]

    return write


def made_bcf(folder: Path) -> list[bytes]:
    import pysam

    (folder / "made.vcf").write_bytes(beside_reference(VCF[: VCF.index("c\t20")])(folder)[0])
    with (
        pysam.VariantFile(str(folder / "made.vcf")) as given,
        pysam.VariantFile(str(folder / "made.bcf"), "wb", header=given.header) as made,
    ):
        for record in given:
            made.write(record)
    return [(folder / "made.bcf").read_bytes()]


def read_variants(path: Path) -> None:
    from genoformer.formats.vcf import read_variants

    with tempfile.TemporaryDirectory(dir=path.parent) as folder:
        found = read_variants(path, path.parent / "reference.fa", Path(folder))
        with found.open() as file:
            for record in file:
                assert len(record.alleles or ()) <= 2 or "GF_SKIPPED" in record.info
