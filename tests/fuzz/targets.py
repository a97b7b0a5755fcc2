"""Every reader of files that strangers may write: good files to damage, and what is done with a damaged one.

A reader raises errors of genoformer, or returns; where two ways to read one file exist, they must agree.
"""

from __future__ import annotations

import gzip
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

from agreement import texts
from model_files import (
    SAMPLES,
    TOML,
    made_embeddings,
    made_model,
    made_state,
    made_store,
    read_embeddings,
    read_model,
    read_samples,
    read_state,
    read_store,
    read_toml,
)
from sequence_files import (
    FASTA,
    GENBANK,
    alignments,
    packed,
    read_alignments,
    read_fasta,
    read_genbank,
    read_plan,
    unpacked,
)
from strategies import bgzip
from table_files import (
    BED,
    BEDGRAPH,
    GFF3,
    TABLE,
    VCF,
    all_of,
    beside_reference,
    made_bcf,
    made_bigwig,
    made_npz,
    read_bed,
    read_bedgraph,
    read_bigwig,
    read_gff3,
    read_npz,
    read_region_texts,
    read_spans,
    read_table,
    read_variants,
)


class Target(NamedTuple):
    """A reader under attack."""

    file: str
    """name of the file that it reads, in a folder"""
    prepare: Callable[[Path], Sequence[bytes]]
    """writes what lies beside that file into the folder, and returns good contents"""
    read: Callable[[Path], None]
    words: tuple[bytes, ...] = ()
    """worth inserting"""
    leak: int = 0
    """bytes of addresses a file, on average, that a C library does not give back, a quarter of them in use: bcftools
    ends as a program does that stops at an error (of BCF at two files of 3,000, 350 kB each)"""
    wrap: Callable[[bytes], bytes] = bytes
    """what is done to damaged contents before they are written: compression, so that damage is found inside"""


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
    "vcf": Target("x.vcf", beside_reference(VCF), read_variants, (b"<DEL>", b"c[5[", b"*", b"##contig=<ID=", b","),
                  leak=48 << 10),
    "bcf-inside": Target("x.bcf", unpacked(made_bcf), read_variants, leak=1 << 10, wrap=packed),
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

NATIVE = ("sam", "bam", "bam-inside", "cram", "vcf", "bcf-inside", "store", "embeddings")
"""Readers that C libraries work for, which may abort or never come back."""
