"""export of values: formats by name, options that mean nothing are refused, standard output, indexes of genes."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pysam
import pytest
from export_samples import HOSTILE, coding_values, random_values, write_store

from genoformer.cli.export import GENES, TRACKS
from genoformer.tracks import CODING_FRAME


@pytest.fixture(scope="module")
def coding(tmp_path_factory):
    values = {"a": coding_values(900, [(0, 300, 1), (400, 700, -1)]), "b": coding_values(60, [])}
    values["a"][800:850] = np.nan
    return write_store(tmp_path_factory.mktemp("store") / "x.h5", values, CODING_FRAME)


def test_the_help_names_every_format():
    from genoformer.export import TRACK_FORMATS
    from genoformer.genes.output import GENE_FORMATS

    assert tuple(TRACK_FORMATS) == TRACKS
    assert tuple(GENE_FORMATS) == GENES


@pytest.mark.parametrize(
    ("to", "options", "count", "files"),
    [
        ("bigwig", (), "910 values of 2 sequences; 50 bases without a prediction", 7),
        ("bigwig", ("--channel", "+", "--channel", "-"), "910 values", 2),
        ("bedgraph", ("--channel", "none"), "spans of 2 sequences; 50 bases", 1),
        ("bed", ("--min-length", 30), "2 intervals of 2 sequences; 50 bases", 1),
        ("bed", ("-r", "a:1-100", "-r", "b"), "1 interval of 2 sequences\n", 1),
        ("tsv", ("--regions", "a:799-801"), "2 lines of 1 sequence; 1 base without a prediction", 1),
        ("npz", ("--smooth", 9), "2 arrays of 2 sequences; 50 bases", 1),
    ],
)
def test_formats(call, tmp_path, coding, to, options, count, files):
    result = call("export", coding, "--to", to, "-o", tmp_path / f"out.{to}", *options)
    assert (result.code, result.out) == (0, ""), result.err
    assert result.err.count(count) == files, result.err
    assert len(list(tmp_path.iterdir())) == files


@pytest.mark.parametrize("to", ["bed", "bedgraph", "tsv"])
def test_standard_output_is_what_a_file_gets(tmp_path, coding, to):
    program = [sys.executable, "-m", "genoformer", "export", coding, "--to", to, "--channel", "+", "-o"]
    subprocess.run([*program, tmp_path / "out"], check=True, capture_output=True)
    streamed = subprocess.run([*program, "-"], check=True, capture_output=True)
    assert streamed.stdout == (tmp_path / "out").read_bytes()
    assert streamed.stdout


def test_a_reader_that_stops_early(tmp_path):
    path = write_store(tmp_path / "x.h5", {"a": random_values(300_000, 1)})
    line = f"{sys.executable} -m genoformer export {path} --to tsv -o - | head -1"
    done = subprocess.run(["bash", "-o", "pipefail", "-c", line], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, "sequence\tposition\ts+\ts-\n"), done.stderr
    assert "Error" not in done.stderr


@pytest.mark.parametrize(
    ("options", "code", "words"),
    [
        (("--to", "gff3", "--threshold", "0.5"), 2, "--threshold means nothing to gff3"),
        (("--to", "faa", "-r", "a"), 2, "--regions means nothing to faa"),
        (("--to", "bigwig", "--no-stop"), 2, "--no-stop means nothing to bigwig"),
        (("--to", "bigwig", "--merge", "3"), 2, "--merge means nothing to bigwig"),
        (("--to", "bed", "--smooth", "4"), 2, "--smooth must be odd"),
        (("--to", "bed", "--threshold", "nan"), 2, "must be a number"),
        (("--to", "bed", "--track", "x"), 2, "no track 'x'; it has coding-frame"),
        (("--to", "bed", "--channel", "x"), 2, "no channel 'x'; it has none, +0"),
        (("--to", "bed", "-r", "c:1-2"), 1, "no sequence 'c'"),
        (("--to", "bed", "-r", "a:1-901"), 1, "goes past the end of 'a'"),
        (("--to", "bedgraph"), 2, "holds one channel"),
        (("--to", "npz"), 2, "standard output"),
        (("--to", "vcf"), 2, "'vcf' is not one of"),
    ],
)
def test_what_is_refused(call, coding, options, code, words):
    result = call("export", coding, *options, "-o", "-")
    assert (result.code, result.out, words in result.err) == (code, "", True), result.err
    assert len(result.complaints) <= 1


def test_hostile_names_and_channels(call, tmp_path):
    path = write_store(tmp_path / "x.h5", {name: random_values(30, index) for index, name in enumerate(HOSTILE)})
    for number, name in enumerate(HOSTILE):
        result = call("export", path, "--to", "tsv", "-o", "-", "-r", f"{{{name}}}:30-30")
        assert result.code == 0, result.err
        assert result.out.splitlines()[1].split("\t")[:2] == [name, "30"], number


def test_genes_compressed_and_indexed(call, tmp_path):
    from gene_twins import genome

    made = genome(0)
    fasta = tmp_path / "x.fa"
    fasta.write_bytes(b">a|1\n" + made.bases + b"\n>b\nACGT\n")
    values = {"a|1": made.values, "b": np.full((4, 7), np.nan)}
    store = write_store(tmp_path / "x.h5", values, CODING_FRAME, input=str(fasta))
    plain, packed = tmp_path / "x.gff3", tmp_path / "x.gff3.gz"
    assert call("export", store, "--to", "gff3", "-o", plain).code == 0
    result = call("export", store, "--to", "gff3", "-o", packed)
    assert result.code == 0, result.err
    assert f"index {packed}.tbi" in result.err
    with pysam.BGZFile(str(packed)) as stream:
        assert stream.read() == plain.read_bytes()
    start, end, _ = made.genes[1]
    with pysam.TabixFile(str(packed)) as tabix:
        rows = [row.split("\t") for row in tabix.fetch("a|1", start, end)]
        assert [row[3:5] for row in rows if row[2] == "CDS"] == [[str(start + 1), str(end)]]
    assert call("export", store, "--to", "faa", "-o", tmp_path / "x.faa.gz").code == 0
    with pysam.FastxFile(str(tmp_path / "x.faa.gz")) as records:
        assert len(list(records)) == len(made.genes)


def test_lines_of_genes_are_sorted_as_an_index_asks_for():
    """A part behind a change of frame begins after the next gene does."""
    from genoformer.genes import Gene
    from genoformer.genes.output import gff3
    from genoformer.genes.stored import SequenceGenes

    shared = {"open_left": False, "open_right": False, "start_type": "ATG", "score": 1.0}
    genes = [
        Gene(0, 301, 1, probability=0.9, posterior=0.9, shifts=((200, 1),), **shared),
        Gene(150, 450, 1, probability=0.9, posterior=0.9, **shared),
    ]
    text = gff3(SequenceGenes("a", np.zeros(500, np.uint8), False, genes, ["a_1", "a_2"]), 11)
    rows = [line.split("\t") for line in text.splitlines()[1:]]
    assert [(row[3], row[4], row[8].split(";")[0]) for row in rows] == [
        ("1", "200", "ID=a_1"), ("151", "450", "ID=a_2"), ("202", "301", "ID=a_1"),
    ]  # fmt: skip
