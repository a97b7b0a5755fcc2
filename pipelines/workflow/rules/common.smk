"""Configuration and tables, checked, and what rules ask of them."""

import csv
import json
import math
import os
import re
import shlex
from pathlib import Path

from snakemake.exceptions import WorkflowError
from snakemake.utils import validate

SCHEMAS = Path(workflow.basedir) / "schemas"
SCRIPTS = Path(workflow.basedir) / "scripts"
RECIPE = Path(workflow.basedir).parent / "prokaryote-genes"
ENDINGS = {"gff3": "gff.gz", "faa": "faa.gz", "fna": "fna.gz", "bed": "bed.gz"}
"""Exports of one file each, and how their names end."""


def read_table(path, schema):
    """Read a tab-separated table with a header; lines that begin with # do not count. Each row is checked."""
    try:
        with open(path, newline="", encoding="utf-8-sig") as stream:
            lines = [line for line in stream if line.strip() and not line.startswith("#")]
    except OSError as error:
        raise WorkflowError(f"{path}: cannot be read: {error.strerror}; name another in the configuration") from None
    rows = {}
    for row in csv.DictReader(lines, delimiter="\t", quoting=csv.QUOTE_NONE):
        if None in row or None in row.values():
            raise WorkflowError(f"{path}: {row}: expected as many cells, divided by tabs, as the header has")
        kept = {name: cell.strip() for name, cell in row.items() if cell.strip()}
        try:
            validate(kept, str(SCHEMAS / schema))
        except WorkflowError as error:
            raise WorkflowError(f"{path}: sample {kept.get('sample', '')!r}: {error}") from None
        if kept["sample"] in rows:
            raise WorkflowError(f"{path}: sample {kept['sample']!r} comes twice; names must differ")
        rows[kept["sample"]] = kept
    return rows


def one_of(names):
    """Return a pattern of these names; of nothing, if there are none."""
    return "|".join(re.escape(name) for name in names) or "(?!)"


validate(config, str(SCHEMAS / "config.schema.yaml"))
RESULTS = config["results"].rstrip("/")
SAMPLES = read_table(config["samples"], "samples.schema.yaml") if config["samples"] else {}
CALLS = read_table(config["variants"]["table"], "variants.schema.yaml") if config["variants"]["table"] else {}
PREDICT = config["predict"]
TRAINING = config["training"]


# ---- inputs


def is_reads(row):
    """Whether a sample is predicted read by read; alignments are, if nothing else is said."""
    usual = "reads" if row.get("input", "").endswith((".bam", ".cram", ".sam")) else "sequences"
    return row.get("mode", usual) == "reads"


def sequences(wildcards):
    """The file that a sample is predicted from."""
    row = SAMPLES[wildcards.sample]
    return row["input"] if "input" in row else downloaded(wildcards.sample, "fa.gz")


def downloaded(sample, ending):
    """A file that comes with an accession."""
    return f"{RESULTS}/downloads/{sample}/train/{sample}.{ending}"


def reference(wildcards):
    """The reference of alignments, if there is one."""
    row = SAMPLES[wildcards.sample]
    return [row["reference"]] if "reference" in row else []


def truth(wildcards):
    """The annotation to compare a sample with, if there is one."""
    given = SAMPLES[wildcards.sample].get("truth")
    if given == "download":
        return [downloaded(wildcards.sample, "gff.gz")]
    return [given] if given else []


# ---- words of commands


def words(*options):
    """Join options for the shell, quoted."""
    return shlex.join(str(option) for option in options)


def input_words(wildcards):
    """Options of plan and predict that say what the input is, and how it is cut."""
    row, found = SAMPLES[wildcards.sample], []
    if "reference" in row:
        found += ["--reference", row["reference"]]
    if row.get("mode") == "consensus":
        found += ["--bam-as", "consensus"]
    for name in row.get("circular", "").split():
        found += ["--circular", name]
    for option in ("window", "overlap"):
        if PREDICT[option] is not None:
            found += [f"--{option}", PREDICT[option]]
    return words(*found, "--model", config["model"], *config["input_options"])


def speed_words(wildcards):
    """Options of plan and predict that change time and memory, and no value beyond rounding."""
    found = ["--batch-size", PREDICT["batch_size"]]
    if PREDICT["chunk_size"] is not None:
        found += ["--chunk-size", PREDICT["chunk_size"]]
    return words(*found)


def predict_words(wildcards):
    """Options of predict alone."""
    found = ["--genetic-code", PREDICT["genetic_code"], f"--{PREDICT['interrupted']}"]
    if PREDICT["processes"] is not None:
        found += ["--processes", PREDICT["processes"]]
    if not PREDICT["strand_average"]:
        found.append("--no-strand-average")
    if SAMPLES[wildcards.sample].get("mode") == "project":
        found.append("--project")
    if wildcards.parts != "1":
        found += ["--shard", f"{wildcards.part}/{wildcards.parts}"]
    return words(*found, *PREDICT["options"])


def genes_words(wildcards):
    """Options of whatever calls genes."""
    row = SAMPLES[wildcards.sample]
    return words("--fasta", row["reference"]) if row.get("mode") == "project" else ""


def value_words(wildcards):
    """Options that choose a track."""
    return words("--track", config["bigwig"]["track"]) if config["bigwig"]["track"] else ""


def option_of(name, paths):
    """Return an option and its file, or nothing."""
    return words(name, paths[0]) if paths else ""


# ---- shards and resources


def keep(path):
    """Mark shards to be removed when they are merged, unless they are wanted."""
    return path if config["keep_shards"] else temp(path)


def shards(wildcards):
    """The shards of a sample, as many as its bases need."""
    with checkpoints.shards.get().output.table.open() as stream:
        count = {row["sample"]: int(row["shards"]) for row in csv.DictReader(stream, delimiter="\t")}
    parts = count[wildcards.sample]
    return [f"{RESULTS}/{wildcards.sample}/shards/{part}-of-{parts}.h5" for part in range(1, parts + 1)]


def planned(path):
    """What a plan says, or what stands for it where it is not made yet, as in a dry run."""
    try:
        return json.loads(Path(path).read_text())
    except OSError:
        return {"bases": {"predicted": 0, "total": 0}, "estimate": {"memory": 1e9, "disk_typical": 0}}


def predict_memory(wildcards, input, attempt):
    """MB of one shard: what the plan says and half as much again; more with each attempt."""
    return math.ceil(1.5 * attempt * planned(input.plan)["estimate"]["memory"] / 1e6)


def predict_minutes(wildcards, input, attempt):
    """Minutes of one shard: three times what its bases take at the speed of the configuration, reading, and ten."""
    bases = planned(input.plan)["bases"]
    mine = 3 * bases["predicted"] / int(wildcards.parts) / PREDICT["bases_per_second"]
    return math.ceil(attempt * (10 + (mine + bases["total"] / 10e6) / 60))


def minutes(bases_per_second):
    """Return a function: minutes of a pass over a sample at this speed, and ten; more with each attempt."""
    return lambda wildcards, input, attempt: math.ceil(
        attempt * (10 + planned(input.plan)["bases"]["total"] / bases_per_second / 60)
    )


def memory(bytes_a_base, megabytes=1000):
    """Return a function: MB of what holds the longest sequence; the plan tells all bases, so it is at most this."""
    return lambda wildcards, input, attempt: math.ceil(
        attempt * (megabytes + bytes_a_base * planned(input.plan)["bases"]["total"] / 1e6)
    )


# ---- targets


def results_of(sample):
    """Everything that is made of a sample."""
    base, row = f"{RESULTS}/{sample}/{sample}", SAMPLES[sample]
    found = [f"{base}.h5", *(f"{base}.{ENDINGS[kind]}" for kind in config["exports"])]
    if not is_reads(row):
        found += [f"{base}.{channel}.bw" for channel in config["bigwig"]["channels"]]
    if "truth" in row:
        found.append(f"{base}.evaluation.json")
    return [*found, f"{base}.html"] if config["report"]["make"] else found


def training_results(wildcards):
    """What the training makes; refused if none is described."""
    if not TRAINING["recipe"]:
        raise WorkflowError("training: no recipe; name one in the configuration, as training: recipe: FILE.toml")
    folder = f"{RESULTS}/training/{TRAINING['name']}"
    card = [f"{folder}/MODEL_CARD.md"] if TRAINING["listed"] or TRAINING["accessions"] else []
    return [f"{folder}/trained", f"{folder}/work/validation.json", *card]
