"""The workflow on every kind of input, and the training: minutes, so `--slow`."""

from __future__ import annotations

from pathlib import Path

import pysam
import pytest
from recipe_samples import write_folder
from workflow_runs import LOCAL, ROOT, copy_case, snakemake

from genoformer.formats.sequences import open_sequences
from genoformer.store import open_store

pytestmark = pytest.mark.slow
LOCALLY = ("--profile", LOCAL, "--cores", 2, "--retries", 0)


def genbank(path: Path, bases: bytes) -> None:
    """Write a record as NCBI would send it, with one gene."""
    from Bio.Seq import Seq
    from Bio.SeqFeature import SeqFeature, SimpleLocation
    from Bio.SeqIO import write
    from Bio.SeqRecord import SeqRecord

    record = SeqRecord(Seq(bases), id="NC_001416.1", name="NC_001416", description="phage lambda")
    record.annotations |= {"molecule_type": "DNA", "topology": "linear"}
    record.features.append(SeqFeature(SimpleLocation(190, 736, 1), type="CDS", qualifiers={"transl_table": ["11"]}))
    path.parent.mkdir(parents=True)
    write(record, path, "genbank")


def test_every_kind_of_input(tmp_path: Path) -> None:
    """CRAM with its reference, a consensus, a projection, and an accession whose records were fetched before."""
    case = copy_case(tmp_path)
    (record,) = open_sequences(str(ROOT / "data" / "lambda.fa.gz")).records()
    (case / "lambda.fa").write_text(f">{record.name}\n{record.bases.decode()}\n")
    pysam.faidx(str(case / "lambda.fa"))
    bam, reference = str(ROOT / "data" / "lambda_reads.bam"), str(case / "lambda.fa")
    pysam.view("-C", "-T", reference, "-o", str(case / "reads.cram"), bam, catch_stdout=False)
    genbank(case / "results" / "downloads" / "accession" / "records" / "NC_001416.1.gb", record.bases)
    (case / "config" / "samples.tsv").write_text(
        "sample\tinput\taccession\treference\tmode\tcircular\ttruth\n"
        "cram\treads.cram\t\tlambda.fa\treads\t\t\n"
        f"consensus\t{bam}\t\t\tconsensus\t\tconfig/lambda.gff\n"
        f"project\t{bam}\t\tlambda.fa\tproject\t\tconfig/lambda.gff\n"
        "accession\t\tNC_001416.1\t\t\tall\tdownload\n"
    )
    snakemake(case, *LOCALLY, "--config", "email=nobody@example.org")
    for sample, sequences in {"cram": 12, "consensus": 1, "project": 1, "accession": 1}.items():
        with open_store(case / "results" / sample / f"{sample}.h5") as store:
            assert len(store.sequences.names) == sequences, sample
            assert ("depth" in store.tracks) == (sample == "project")
        assert (case / "results" / sample / f"{sample}.evaluation.json").exists() == (sample != "cram")


def test_settings_that_change_half_way_are_said_and_can_be_overruled(tmp_path: Path) -> None:
    case = copy_case(tmp_path)
    store = "results/lambda/lambda.h5"
    (case / "fatal").write_text("2/2")
    snakemake(case, *LOCALLY, store, expected=1)
    changed = case / "config" / "changed.yaml"
    changed.write_text("predict: {strand_average: false}")
    snakemake(case, *LOCALLY, store, "--configfile", changed, expected=1)
    log = (case / "results" / "logs" / "lambda" / "predict-2-of-2.log").read_text()
    assert "another run" in log
    assert "--overwrite" in log
    snakemake(case, *LOCALLY, store, "--configfile", changed, "--config", "predict={'interrupted': 'overwrite'}")
    assert (case / store).is_file()


def test_training(tmp_path: Path) -> None:
    """From genomes in a folder to a card; a training that ended is not begun again."""
    case = copy_case(tmp_path)
    genomes = write_folder(case / "data" / "genomes", split="train", names=("one",))
    write_folder(tmp_path / "more", split="validation", names=("two",))
    (tmp_path / "more" / "validation").rename(genomes / "validation")
    line = (tmp_path / "more" / "MANIFEST.tsv").read_text().splitlines()[1]
    with (genomes / "MANIFEST.tsv").open("a") as stream:
        stream.write(f"{line}\n")
    recipe = (ROOT / "pipelines" / "config" / "small.toml").read_text().partition("[[samples]]")[0]
    for old, new in {
        "steps = 120": "steps = 2",
        "_every = 120": "_every = 2",
        "24000": "3000",
        "12000": "3000",
    }.items():
        recipe = recipe.replace(old, new)
    samples = [("train", "one"), ("validation", "two")]
    recipe += "".join(
        f'[[samples]]\nfasta = "genomes/{split}/{name}.fa"\nannotation = "genomes/{split}/{name}.gff"\n'
        f'split = "{split}"\n'
        for split, name in samples
    )
    (case / "recipe.toml").write_text(recipe)
    with (case / "config" / "config.yaml").open("a") as stream:
        stream.write("training: {recipe: recipe.toml, name: tiny, threads: 1, listed: listed.tsv}\n")
    rows = [[split, name, "gold", f"Organism {name}", "X00001", "1000", "11", "none", "-"] for split, name in samples]
    columns = ["split", "name", "tier", "organism", "accessions", "bases", "genetic_code", "licence", "note"]
    (case / "listed.tsv").write_text("".join("\t".join(row) + "\n" for row in [columns, *rows]))
    snakemake(case, *LOCALLY, "train")
    folder = case / "results" / "training" / "tiny"
    assert (folder / "model" / "config.json").is_file()
    card = (folder / "MODEL_CARD.md").read_text()
    assert "tiny" in card
    assert "two" in card
    assert "Nothing to be done" in snakemake(case, *LOCALLY, "train")
