"""export: genes of a store as GFF3, proteins and bases, under the same names; what cannot be, in one line."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys

import numpy as np
import pytest
from Bio import SeqIO
from gene_twins import Genome, complement, genome, probabilities, rotated
from samples import bases, fasta

from genoformer.formats.gff3 import read_gff3
from genoformer.formats.sequences import open_sequences
from genoformer.plan import make_plan
from genoformer.regions import Block
from genoformer.store import TrackStore
from genoformer.tracks import CODING_FRAME, TOKENS


@pytest.fixture
def made():
    return {"one": genome(0), "b|2/x": genome(1, genes=3), "none": Genome(b"ACGT" * 20, probabilities(80, []), []),
            "n": Genome(b"N" * 60, np.full((60, 7), np.nan, np.float16), [])}  # fmt: skip


def written(tmp_path, made, *, code=11, name="genome"):
    """Write genomes as FASTA, and what a model would say of them as a store."""
    fasta = tmp_path / f"{name}.fa"
    fasta.write_bytes(b"".join(b">%s\n%s\n" % (key.encode(), m.bases) for key, m in made.items()))
    plan = make_plan(open_sequences(fasta))
    provenance = {"identity": {"genetic-code": code, "model": "perfect"}, "input": str(fasta), "command": "genoformer"}
    path = tmp_path / f"{name}.h5"
    with TrackStore.create(path, plan.sequences, [CODING_FRAME], provenance=provenance, blocks=plan.blocks) as writer:
        for index, start, end in plan.owned.tolist():
            key = plan.sequences.names[index]
            writer.write(Block(key, start, {CODING_FRAME.name: made[key].values[start:end]}))
        writer.finish()
    return path, fasta


def fasta_records(path):
    with path.open() as stream:
        return {record.id: record for record in SeqIO.parse(stream, "fasta")}


def spans(path):
    found = read_gff3(path).coding_sequences
    return {
        key: sorted((min(p[0] for p in c.parts), max(p[1] for p in c.parts), c.strand) for c in cds)
        for key, cds in found.items()
    }


def test_three_formats_say_the_same(call, tmp_path, made):
    store, _ = written(tmp_path, made)
    for to in ("gff3", "faa", "fna"):
        result = call("export", store, "--to", to, "-o", tmp_path / f"out.{to}")
        assert result.code == 0, result.err
        assert result.out == ""
        assert "9 genes of 4 sequences, genetic code 11" in result.err
    expected = {key: m.genes for key, m in made.items()}
    assert spans(tmp_path / "out.gff3") == expected
    proteins = fasta_records(tmp_path / "out.faa")
    bases = fasta_records(tmp_path / "out.fna")
    genes = [cds for found in read_gff3(tmp_path / "out.gff3").coding_sequences.values() for cds in found]
    assert [cds.name for cds in genes] == list(proteins) == list(bases)
    assert len(proteins) == 9
    for cds in genes:
        text = made[cds.sequence].bases[cds.parts[0][0] : cds.parts[0][1]].decode()
        text = text if cds.strand > 0 else complement(text)
        assert str(bases[cds.name].seq) == text
        assert str(proteins[cds.name].seq) == str(bases[cds.name].seq.translate(table=11, cds=True)) + "*"
        assert proteins[cds.name].description.split(" # ")[1:4] == [
            str(cds.parts[0][0] + 1), str(cds.parts[0][1]), str(cds.strand),
        ]  # fmt: skip
        assert cds.genetic_code == 11


@pytest.mark.skipif(not shutil.which("gt"), reason="no GenomeTools")
@pytest.mark.parametrize("options", [(), ("--circular", "one"), ("--frameshifts",)])
def test_genometools_agrees(call, tmp_path, made, options):
    made["one"] = rotated(made["one"], made["one"].genes[2][0] + 50)
    store, _ = written(tmp_path, made)
    assert call("export", store, "--to", "gff3", "-o", tmp_path / "out.gff3", *options).code == 0
    result = subprocess.run(["gt", "gff3validator", tmp_path / "out.gff3"], capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stderr


def test_a_circle_by_name_and_all(call, tmp_path, made):
    turned = rotated(made["one"], made["one"].genes[2][0] + 50)
    store, _ = written(tmp_path, {"one": turned})
    for number, value in enumerate(("one", "all")):
        out = tmp_path / f"{number}.gff3"
        assert call("export", store, "--to", "gff3", "-o", out, "--circular", value).code == 0
        (over,) = [row.split("\t") for row in out.read_text().splitlines() if "\tCDS\t" in row
                   and int(row.split("\t")[4]) > len(turned.bases)]  # fmt: skip
        assert int(over[4]) - int(over[3]) + 1 == made["one"].genes[2][1] - made["one"].genes[2][0]
        assert "\tregion\t" in out.read_text()
    result = call("export", store, "--to", "gff3", "-o", "-", "--circular", "two")
    assert result.code == 1
    assert "no sequence 'two'" in result.err


@pytest.mark.parametrize("to", ["gff3", "faa", "fna"])
def test_standard_output_is_what_a_file_gets(tmp_path, made, to):
    store, _ = written(tmp_path, made)
    program = [sys.executable, "-m", "genoformer", "export", store, "--to", to, "-o"]
    subprocess.run([*program, tmp_path / "out"], check=True, capture_output=True)
    streamed = subprocess.run([*program, "-"], check=True, capture_output=True)
    assert streamed.stdout == (tmp_path / "out").read_bytes()
    assert b"genes of 4 sequences" in streamed.stderr
    assert not (tmp_path / "out.part").exists()


def test_without_the_asterisk(call, tmp_path, made):
    store, _ = written(tmp_path, made)
    assert call("export", store, "--to", "faa", "-o", tmp_path / "out.faa", "--no-stop").code == 0
    assert "*" not in (tmp_path / "out.faa").read_text()


def test_the_genetic_code_is_that_of_the_store_or_as_asked(call, tmp_path):
    made = {"m": genome(3, code=4)}
    store, _ = written(tmp_path, made, code=4)
    assert call("export", store, "--to", "gff3", "-o", tmp_path / "a.gff3").code == 0
    assert spans(tmp_path / "a.gff3") == {"m": made["m"].genes}
    assert "transl_table=4" in (tmp_path / "a.gff3").read_text()
    assert call("export", store, "--to", "gff3", "-o", tmp_path / "b.gff3", "--genetic-code", 11).code == 0
    assert spans(tmp_path / "b.gff3") != {"m": made["m"].genes}
    result = call("export", store, "--to", "gff3", "-o", tmp_path / "c.gff3", "--genetic-code", 7)
    assert result.code == 2
    assert "genetic code 7 is not one of NCBI's" in result.complaints[0]
    assert not (tmp_path / "c.gff3").exists()


def test_identifiers_are_unique_where_names_look_like_genes(call, tmp_path, made):
    store, _ = written(tmp_path, {"a": made["one"], "a_1": made["b|2/x"]})
    assert call("export", store, "--to", "faa", "-o", tmp_path / "out.faa").code == 0
    names = re.findall(r"^>(\S+)", (tmp_path / "out.faa").read_text(), re.M)
    assert len(set(names)) == len(names) == 9


def test_bases_that_moved_or_changed(call, tmp_path, made):
    store, fasta = written(tmp_path, made)
    out = tmp_path / "out.gff3"
    moved = fasta.rename(tmp_path / "moved.fa")
    result = call("export", store, "--to", "gff3", "-o", out)
    assert result.code == 1
    assert "is not there; give the file with --fasta" in result.complaints[0]
    assert call("export", store, "--to", "gff3", "-o", out, "--fasta", moved).code == 0
    text = moved.read_text()
    moved.write_text(">another\nACGT\n" + text)  # more records than were predicted
    assert call("export", store, "--to", "gff3", "-o", out, "--fasta", moved, "--overwrite").code == 0
    before = out.read_bytes()
    for changed in (text.replace("A", "C", 1), text[: len(text) // 2], ">one\nACGT\n", text.replace(">one", ">two")):
        moved.write_text(changed)
        result = call("export", store, "--to", "gff3", "-o", out, "--fasta", moved, "--overwrite")
        assert result.code == 1, changed[:50]
        assert "--fasta" in result.complaints[0]
        assert out.read_bytes() == before
        assert not (tmp_path / "out.gff3.part").exists()


def test_outputs_that_cannot_be(call, tmp_path, made):
    store, fasta = written(tmp_path, made)
    out = tmp_path / "out.gff3"
    out.write_text("precious")
    for target, options, code, words in (
        (out, (), 2, "exists already"),
        (tmp_path / "no" / "x", (), 3, "no such folder"),
        (tmp_path, (), 2, "is a folder"),
        (store, ("--overwrite",), 2, "is what is to be read"),
        (fasta, ("--overwrite", "--fasta", fasta), 2, "is what is to be read"),
        (fasta, ("--overwrite",), 2, "is what is to be read"),
    ):
        result = call("export", store, "--to", "gff3", "-o", target, *options)
        assert (result.code, words in result.err) == (code, True), result.err
    assert out.read_text() == "precious"
    assert call("export", store, "--to", "gff3", "-o", out, "--overwrite").code == 0


def test_a_store_of_something_else(call, tmp_path):
    from genoformer.store import SequenceTable

    path = tmp_path / "tokens.h5"
    with TrackStore.create(
        path, SequenceTable.build(["x"], [10]), [TOKENS], provenance={}, blocks=np.array([[0, 10]])
    ) as w:
        w.write(Block("x", 0, {"tokens": np.zeros((10, 1), np.uint8)}))
        w.finish()
    (tmp_path / "x.fa").write_text(">x\nACGTACGTAC\n")
    result = call("export", path, "--to", "gff3", "-o", tmp_path / "o", "--fasta", tmp_path / "x.fa")
    assert result.code == 1
    assert "genes need a track 'coding-frame'" in result.complaints[0]
    assert call("export", tmp_path / "x.fa", "--to", "gff3", "-o", "-").code == 1


def test_genes_of_a_tokenized_input_with_its_fasta(call, tiny, tmp_path):
    path = fasta(tmp_path / "x.fa", a=bases(300) + "RYKMacgt" + bases(300, 1))
    assert call("tokenize", path, "-o", tmp_path / "t.h5").code == 0
    assert call("predict", tmp_path / "t.h5", "-o", tmp_path / "p.h5", "--model", tiny, "--genetic-code", 11).code == 0
    assert "4 soft masked" in call("inspect", tmp_path / "p.h5").out
    texts = [call("export", tmp_path / "p.h5", "--to", "fna", "-o", "-", *more) for more in ((), ("--fasta", path))]
    assert [text.code for text in texts] == [0, 0], texts[1].err
