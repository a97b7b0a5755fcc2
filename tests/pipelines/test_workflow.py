"""The Snakemake workflow: clean, complete, and going on where it was killed."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import numpy as np
import pytest
from shards import count_shards
from workflow_runs import LOCAL, PIPELINES, ROOT, copy_case, find_snakemake, snakemake

from genoformer.store import open_store

MODEL = ROOT / "genoformer" / "models" / "prokaryote-genes"
needs_model = pytest.mark.skipif(not MODEL.is_dir(), reason="the bundled model prokaryote-genes is not there")


def values(path: Path) -> dict[str, np.ndarray]:
    with open_store(path) as store:
        return {name: store[name] for name in store.sequences.names}


@needs_model
def test_the_small_case_with_a_shard_that_is_killed(tmp_path: Path) -> None:
    """Everything of the .test case by the local profile. A shard dies when its first block is written; the same command
    goes on with it, to the values of one run without shards.
    """
    from genoformer.formats.sequences import open_sequences
    from genoformer.model.checkpoint import load_model
    from genoformer.plan import make_plan
    from genoformer.predict import Settings, predict_to_store

    case = copy_case(tmp_path)
    (case / "fatal").write_text("2/2")
    words = ["--profile", LOCAL, "--cores", 2]
    snakemake(case, *words, "--retries", 0, expected=1)
    shards = case / "results" / "lambda" / "shards"
    assert not (case / "fatal").exists()
    assert sorted(path.name for path in shards.iterdir()) == ["1-of-2.h5", "2-of-2.h5.part"]
    with open_store(shards / "2-of-2.h5.part", allow_incomplete=True) as store:
        (left,) = (store[name] for name in store.sequences.names)
        known = np.isfinite(left).all(axis=1)
        assert known.any()

    snakemake(case, *words)
    log = (case / "results" / "logs" / "lambda" / "predict-2-of-2.log").read_text()
    assert "no interrupted run" not in log, "it began anew"
    assert not list(shards.glob("*"))
    sequences = open_sequences(str(ROOT / "data" / "lambda.fa.gz"))
    plan = make_plan(sequences, window=10_000, overlap=2500)
    predict_to_store(plan, sequences, load_model("prokaryote-genes"), tmp_path / "whole.h5", settings=Settings())
    found, whole = values(case / "results" / "lambda" / "lambda.h5"), values(tmp_path / "whole.h5")
    assert list(found) == list(whole) == ["NC_001416.1"]
    for name, array in whole.items():
        np.testing.assert_allclose(found[name], array, atol=5e-4)  # threads may differ: rounding
        np.testing.assert_array_equal(found[name][known], left[known])

    results = case / "results"
    endings = {"h5", "gff.gz", "faa.gz", "html"}
    for sample, more in {"lambda": {"+.bw", "evaluation.json", "evaluation.txt"}, "reads": set()}.items():
        made = {path.name.removeprefix(f"{sample}.") for path in (results / sample).glob(f"{sample}.*")}
        assert endings | more <= made
        assert made - endings - more <= {"gff.gz.tbi", "gff.gz.csi"}
    assert json.loads((results / "lambda" / "lambda.evaluation.json").read_text())["bases"]
    with (results / "shards.tsv").open() as stream:
        counted = {row["sample"]: int(row["shards"]) for row in csv.DictReader(stream, delimiter="\t")}
    assert counted == {"lambda": 2, "reads": 1}
    assert "Nothing to be done" in snakemake(case, *words)
    snakemake(case, *words, "variants")
    assert (results / "variants" / "lambda.vcf.gz").is_file()


@pytest.mark.parametrize("config", [".test", "."])
def test_lint(config: str, tmp_path: Path) -> None:
    """Nothing to find, with either configuration."""
    case = copy_case(tmp_path)
    for path in (PIPELINES / config / "config").glob("*"):
        (case / "config" / path.name).write_bytes(path.read_bytes())
    assert "Congratulations" in snakemake(case, "--lint")


def test_dry_run_of_everything(tmp_path: Path) -> None:
    """As it is shipped; and with every kind of input."""
    case = copy_case(tmp_path)
    (case / "config" / "config.yaml").write_text((PIPELINES / "config" / "config.yaml").read_text())
    for name in ("x.cram", "x.fa", "x.bam", "truth.gff", "x.vcf", "recipe.toml", "accessions.tsv"):
        (case / name).touch()
    (case / "config" / "samples.tsv").write_text(
        "# a comment\nsample\tinput\taccession\treference\tmode\tcircular\ttruth\n"
        "a\tx.fa\t\t\t\tone two\ttruth.gff\nb\tx.cram\t\tx.fa\treads\t\t\nc\tx.bam\t\tx.fa\tproject\t\t\n"
        "d\tx.bam\t\t\tconsensus\t\t\ne\t\tGCF_000005845.2\t\t\tall\tdownload\nf.1+2\t\tNC_1234567.8,U00096\t\t\t\t\n"
    )
    (case / "config" / "variants.tsv").write_text("sample\tvcf\tfasta\nv\tx.vcf\tx.fa\n")
    changed = ["--config", "training={'recipe': 'recipe.toml', 'accessions': 'accessions.tsv'}"]
    changed += ["variants={'table': 'config/variants.tsv'}"]
    said = snakemake(case, "--profile", LOCAL, "--dry-run", "annotate", "train", "variants", *changed)
    jobs = {
        words[0]: int(words[1]) for words in map(str.split, said.splitlines()) if len(words) == 2 and words[1].isdigit()
    }
    assert jobs["plan"] == 6
    assert jobs["download"] == 2
    for rule in ("shards", "training_genomes", "training", "measurement", "card", "score"):
        assert jobs[rule] == 1, rule


WRONG = {
    "two inputs": ("sample\tinput\taccession\na\tx.fa\tNC_000913\n", "a"),
    "no input": ("sample\tinput\na\t\n", "a"),
    "a path for a name": ("sample\tinput\n../a\tx.fa\n", "../a"),
    "a folder of ours": ("sample\tinput\nlogs\tx.fa\n", "logs"),
    "no such mode": ("sample\tinput\tmode\na\tx.bam\tmean\n", "mean"),
    "project along nothing": ("sample\tinput\tmode\na\tx.bam\tproject\n", "reference"),
    "the truth of no accession": ("sample\tinput\ttruth\na\tx.fa\tdownload\n", "accession"),
    "a column of another table": ("sample\tinput\tvcf\na\tx.fa\tx.vcf\n", "vcf"),
    "twice": ("sample\tinput\na\tx.fa\na\ty.fa\n", "twice"),
    "a cell too few": ("sample\tinput\na\n", "cells"),
}


@pytest.mark.parametrize("wrong", WRONG)
def test_tables_that_make_no_sense_are_refused(wrong: str) -> None:
    """By the schema, and by what reads them: no start of Snakemake for each."""
    jsonschema = pytest.importorskip("jsonschema")
    yaml = pytest.importorskip("yaml")
    text, _ = WRONG[wrong]
    schema = yaml.safe_load((PIPELINES / "workflow" / "schemas" / "samples.schema.yaml").read_text())
    header, *lines = text.splitlines()
    rows = [dict(zip(header.split("\t"), line.split("\t"), strict=False)) for line in lines]
    rows = [{name: cell for name, cell in row.items() if cell} for row in rows]
    bad = [not jsonschema.Draft202012Validator(schema).is_valid(row) for row in rows]
    assert any(bad) or wrong == "twice"


@pytest.mark.slow
@pytest.mark.parametrize("wrong", WRONG)
def test_what_is_said_of_wrong_tables(wrong: str, tmp_path: Path) -> None:
    case = copy_case(tmp_path)
    text, said = WRONG[wrong]
    (case / "config" / "samples.tsv").write_text(text)
    assert said in snakemake(case, "--dry-run", expected=None)


def test_profiles_and_environments_parse() -> None:
    yaml = pytest.importorskip("yaml")
    find_snakemake()
    cli = pytest.importorskip("snakemake.cli")
    known = {action.dest.replace("_", "-") for action in cli.get_argument_parser()._actions}
    known |= {option.removeprefix("--") for a in cli.get_argument_parser()._actions for option in a.option_strings}
    for path in PIPELINES.glob("profiles/*/config.yaml"):
        profile = yaml.safe_load(path.read_text())
        assert set(profile) <= known, path
    environment = yaml.safe_load((PIPELINES / "workflow" / "envs" / "genoformer.yaml").read_text())
    whole = yaml.safe_load((ROOT / "environment.yml").read_text())
    assert set(environment["dependencies"]) <= set(whole["dependencies"])
    assert environment["channels"] == whole["channels"]


@pytest.mark.parametrize(
    ("bases", "windows", "shard", "expected"),
    [
        (0, 0, 10, 1),
        (1, 1, 10, 1),
        (10, 5, 10, 1),
        (11, 5, 10, 2),
        (1000, 5, 10, 5),
        (10**12, 10**7, 5 * 10**7, 20_000),
    ],
)
def test_shards_are_counted_by_bases(bases: int, windows: int, shard: int, expected: int) -> None:
    assert count_shards({"bases": {"predicted": bases}, "windows": windows}, shard_bases=shard) == expected
