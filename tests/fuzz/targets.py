"""Every reader of files that strangers may write: good files to damage, and what is done with a damaged one.

A reader raises errors of genoformer, or returns; where two ways to read one file exist, they must agree.
"""

from __future__ import annotations

import gzip
import json
import tempfile
from collections.abc import Callable, Sequence
from contextlib import closing
from pathlib import Path
from typing import NamedTuple

from strategies import bgzip


class Target(NamedTuple):
    """A reader under attack."""

    file: str
    """name of the file that it reads, in a folder"""
    prepare: Callable[[Path], Sequence[bytes]]
    """writes what lies beside that file into the folder, and returns good contents"""
    read: Callable[[Path], None]
    words: tuple[bytes, ...] = ()
    """worth inserting"""
    wrap: Callable[[bytes], bytes] = bytes
    """what is done to damaged contents before they are written: compression, so that damage is found inside"""


class DisagreementError(Exception):
    """Two ways to read a file say different things."""


def agree(one: object, other: object) -> None:
    if one != other:
        raise DisagreementError(f"{one!r:.200} is not {other!r:.200}")


def texts(*good: str | bytes) -> Callable[[Path], list[bytes]]:
    return lambda _: [one.encode() if isinstance(one, str) else one for one in good]


# Sequences

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


# Annotation, spans, tables

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
                assert len(record.alleles or ()) <= 2


# Configurations and models

TOML = (
    """samples_table = "x.tsv"
[model]
tracks = ["coding-frame", "own"]
width = 32
heads = 4
attention = ["local", "hybrid", "performer", "linformer"]
performer_max_temperature = 1.5
linformer_ranks = [1, 2, 3, 4]
[[model.own_tracks]]
name = "own"
kind = "class"
channels = ["none", "+", "-"]
reverse_complement = [0, 2, 1]
[train]
windows = [100, 200]
step_bases = 1000
error_rates = [0.0, 0.1]
class_weights = []
seed = 7
[[train.losses]]
track = "own"
class_weights = [1.0, 2, 3]
[[samples]]
fasta = "../a.fa"
annotation = "/etc/passwd"
split = "validation"
labels = { own = { "+" = "b.bw" } }
""",
)


def read_toml(path: Path) -> None:
    from genoformer.config import RunConfig, from_dict, read_toml, to_dict

    config = read_toml(RunConfig, path)
    agree(from_dict(RunConfig, json.loads(json.dumps(to_dict(config)))), config)


SAMPLES = "fasta\tannotation\tsplit\tweight\town\n# words\na.fa\ta.gff\ttrain\t2\t\nb.fa\t\tvalidation\t1e0\tb.bed\n"


def read_samples(path: Path) -> None:
    from genoformer.samples_table import read_samples_table
    from genoformer.tracks import Track

    own = Track(name="own", kind="class", channels=("a", "b"), units="", reverse_complement=(0, 1))
    read_samples_table(path, tracks=[own])


def made_model(part: str) -> Callable[[Path], list[bytes]]:
    """Write a tiny model; one of its two files is to be damaged."""

    def write(folder: Path) -> list[bytes]:
        from tiny import tiny_config, tiny_model

        from genoformer.model.checkpoint import save_model

        good = []
        for changes in ({}, {"attention": ("linformer",), "linformer_projection": "seeded", "stem_kmer": 2}):
            save_model(folder / "model", tiny_model(**changes), tiny_config(**changes), name="m")
            good.append((folder / "model" / part).read_bytes())
        return good if part == "config.json" else good[1:]

    return write


def read_model(path: Path) -> None:
    """Load it; weights that were damaged are those that the description names, as a stranger's would be."""
    from genoformer.model.checkpoint import load_model, sha256

    if path.name == "model.safetensors":
        about = path.parent / "config.json"
        described = json.loads(about.read_text())
        about.write_text(json.dumps(described | {"weights-sha256": sha256(path)}))
    load_model(path.parent)


def read_state(path: Path) -> None:
    import torch
    from tiny import tiny_config

    from genoformer.config import RunConfig
    from genoformer.training_state import load_state, new_state

    config = RunConfig(model=tiny_config())
    load_state(new_state(config, torch.device("cpu")), path, config)


def made_state(folder: Path) -> list[bytes]:
    import torch
    from tiny import tiny_config

    from genoformer.config import RunConfig
    from genoformer.training_state import new_state, save_state

    config = RunConfig(model=tiny_config())
    save_state(new_state(config, torch.device("cpu")), folder / "made", config)
    return [(folder / "made").read_bytes()]


# HDF5


def made_store(folder: Path) -> list[bytes]:
    from tiny import Memory

    from genoformer.plan import make_plan
    from genoformer.tokenizing import tokenize_to_store

    memory = Memory(("a", b"ACGTN" * 20), ("x:1", b"GG"), ("empty", b""))
    plan = make_plan(memory, window=50, overlap=10)
    tokenize_to_store(plan, memory, folder / "made.h5")
    return [(folder / "made.h5").read_bytes()]


def read_store(path: Path) -> None:
    from genoformer.cli import inspect
    from genoformer.formats.bed import parse_regions
    from genoformer.plan import make_plan
    from genoformer.store import damaged_sequences, open_store
    from genoformer.tokenizing import open_sequences_or_tokens

    with open_store(path, allow_incomplete=True) as store:
        for block in store.blocks():
            assert block.values
        list(inspect.summary(store)), list(inspect.table(store, 20))
        damaged_sequences(store)
        if len(store.sequences):
            parse_regions(store.sequences.names[0], dict(zip(store.sequences.names, store.sequences.lengths.tolist())))  # noqa: B905
    make_plan(open_sequences_or_tokens(path), window=50, overlap=10)


def made_embeddings(folder: Path) -> list[bytes]:
    from tiny import Memory, tiny_model

    from genoformer.embedding import embed_to_store
    from genoformer.plan import make_plan

    memory = Memory(("a", b"ACGT" * 20), ("b", b"GG"))
    embed_to_store(make_plan(memory, window=60, overlap=12), memory, tiny_model(), folder / "made.h5", layer=1)
    return [(folder / "made.h5").read_bytes()]


def read_embeddings(path: Path) -> None:
    from genoformer.embedding import open_embeddings
    from genoformer.regions import Region

    with open_embeddings(path) as found:
        for name, length in list(zip(found.sequences.names, found.sequences.lengths.tolist(), strict=True))[:3]:
            agree(found[name].shape, found.tokens(Region(name, 0, length)).shape)


# fmt: off
TARGETS: dict[str, Target] = {
    "fasta": Target("x.fa", texts(*FASTA), read_fasta, (b">", b">\n", b"\n>", b";", b"#", b"MKVLEFPQ", b"\r")),
    "fasta-gzip": Target("x.fa.gz", texts(*(gzip.compress(one.encode(), mtime=0) for one in FASTA)), read_fasta),
    "fasta-bgzip": Target("x.fa.gz", texts(*(bgzip(one.encode()) for one in FASTA)), read_fasta),
    "plan": Target("x.fa", texts(*FASTA, GENBANK), read_plan, (b">", b"N" * 60, b"LOCUS ", b"\n//\n")),
    "genbank": Target("x.gb", texts(GENBANK, GENBANK + GENBANK.replace("X1", "Y2")), read_genbank,
                      (b"join(", b"complement(", b"order(", b"..", b"<1", b"J1.1:1..5", b"^", b"/pseudo", b"ORIGIN",
                       b"one-of(1,2)", b"circular", b"bond(", b"//\n", b"CONTIG      join(X:1..5)\n", b" 0 aa ")),
    "gff3": Target("x.gff", texts(GFF3), read_gff3, (b"##FASTA\n", b"Parent=", b"ID=", b"%", b";", b"=", b",", b"CDS")),
    "bed": Target("x.bed", texts(BED), all_of(read_bed, read_spans), (b"track", b"browser ", b"c\t")),
    "regions": Target("x.txt", texts("c:1-100", "c", "{d e}:1,000-2,000", "c:-5"), read_region_texts, (b"c:", b"-")),
    "bedgraph": Target("x.bg", texts(BEDGRAPH), read_bedgraph),
    "bigwig": Target("x.bw", made_bigwig, read_bigwig),
    "table": Target("x.tsv", texts(TABLE), read_table),
    "npz": Target("x.npz", made_npz, read_npz, (b"PK\3\4", b"'descr': '|O'", b"'shape': (9999999999, 9)")),
    "sam": Target("x.sam", alignments("w"), read_alignments, (b"\t*\t", b"@SQ\tSN:", b"268435456M", b"=")),
    "bam": Target("x.bam", alignments("wb"), read_alignments),
    "bam-inside": Target("x.bam", unpacked(alignments("wb")), read_alignments, wrap=packed),
    "cram": Target("x.cram", alignments("wc"), read_alignments),
    "vcf": Target("x.vcf", beside_reference(VCF), read_variants, (b"<DEL>", b"c[5[", b"*", b"##contig=<ID=", b",")),
    "bcf-inside": Target("x.bcf", unpacked(made_bcf), read_variants, wrap=packed),
    "toml": Target("x.toml", texts(*TOML), read_toml, (b"[", b"]", b"[[", b"{", b"'''", b"[" * 2000, b"true")),
    "samples": Target("x.tsv", texts(SAMPLES), read_samples, (b"own.a", b"\t\t")),
    "config-json": Target("model/config.json", made_model("config.json"), read_model,
                          (b"[" * 5000, b"{", b"null", b"1000000000", b"100000", b'"joint"', b'"softmax"', b"true")),
    "weights": Target("model/model.safetensors", made_model("model.safetensors"), read_model,
                      (b'"F64"', b'"shape":[1000000000,1000000000]', b'"data_offsets":[0,99999999999]')),
    "state": Target("x.safetensors", made_state, read_state, (b'{"step":', b"null", b"[]")),
    "store": Target("x.h5", made_store, read_store, (b'"identity": 0', b'"left-out": []', b"null", b"[" * 1000, b"{}")),
    "embeddings": Target("x.h5", made_embeddings, read_embeddings),
}
# fmt: on
