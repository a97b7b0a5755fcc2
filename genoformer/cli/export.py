"""genoformer export: what a store holds in the formats of other programs: genes, tracks, intervals, tables, arrays."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import fields
from pathlib import Path
from typing import Any

import click

from genoformer.cli.export_genes import GeneOptions, export_genes
from genoformer.cli.export_tracks import TrackOptions, export_values
from genoformer.cli.options import bundle, circular_option
from genoformer.cli.progress import quiet_pipe
from genoformer.errors import ConfigError

GENES = ("gff3", "faa", "fna")
TRACKS = ("bigwig", "bedgraph", "bed", "tsv", "npz")

# fmt: off
gene_options = bundle(
    "genes", GeneOptions,
    click.option("--fasta", metavar="GENOME",
                 help="Genes: the sequences that were predicted.  [default: where they were then]"),
    circular_option("Genes: sequence whose ends are joined, beside those that were predicted so. May be repeated."),
    click.option("--genetic-code", type=click.IntRange(1), metavar="N",
                 help="Genes: NCBI translation table.  [default: that of the prediction]"),
    click.option("--frameshifts", is_flag=True,
                 help="Genes: follow the frame through insertions and deletions, for reads and drafts with errors."),
    click.option("--no-stop", is_flag=True, help="Genes: leave out the * at the end of proteins."),
)

track_options = bundle(
    "values", TrackOptions,
    click.option("--track", metavar="NAME", help="Values: which track.  [default: the first]"),
    click.option("--channel", multiple=True, metavar="NAME",
                 help="Values: which channel; + and - are the sums over a strand. May be repeated.  "
                      "[default: all; bed: the strands, or all but the class of nothing]"),
    click.option("--regions", "-r", multiple=True, metavar="BED|REGION",
                 help="Values: only these: a BED file, or chr:start-end (from 1, both ends included). "
                      "May be repeated."),
    click.option("--smooth", type=click.IntRange(min=1), default=1, show_default=True, metavar="BASES",
                 help="Values: running mean over so many bases, an odd number."),
    click.option("--threshold", type=float, default=0.5, show_default=True, metavar="VALUE",
                 help="bed: lowest value of a base within an interval."),
    click.option("--merge", type=click.IntRange(min=0), default=0, show_default=True, metavar="BASES",
                 help="bed: join intervals that are no further apart."),
    click.option("--min-length", type=click.IntRange(min=1), default=1, show_default=True, metavar="BASES",
                 help="bed: leave out shorter intervals."),
)
# fmt: on


@click.command("export")
@click.argument("predictions", metavar="PRED.h5", type=click.Path(path_type=Path))
@click.option("--to", required=True, type=click.Choice([*GENES, *TRACKS]), metavar="FORMAT",
              help=f"Genes: {', '.join(GENES)}. Values: {', '.join(TRACKS)}.")  # fmt: skip
@click.option("-o", "--output", required=True, metavar="OUT|-", help="File to write; - for standard output, of text.")
@gene_options
@track_options
@click.option("--overwrite", is_flag=True, help="Replace the output if it exists.")
@click.pass_context
def command(
    context: click.Context,
    predictions: Path,
    to: str,
    output: str,
    genes: GeneOptions,
    values: TrackOptions,
    overwrite: bool,
) -> None:
    """Write what predict wrote in the formats of other programs.

    Genes: gff3, and under the same IDs their proteins (faa) and bases (fna). In GFF3, score is the log-odds of a gene
    in nats, conf the probability of its 3' end in percent (with --frameshifts the mean one of its bases), partial=10 a
    gene cut off at its left, 01 at its right. A gene over the origin of a circular sequence ends beyond its length.

    Values: bigwig and bedgraph, with a file NAME.CHANNEL.ENDING for each channel if there are several; bed, intervals
    at or above a threshold, whose score is their mean times 1000 (of a signal: their mean); tsv, a line a base; npz, an
    array a sequence. Bases that were not predicted are left out; of npz they are NaN.

    Text is compressed by bgzip where OUT ends in .gz, and gff3, bed, bedgraph and tsv are indexed for tabix.

    \b
    Example:
      genoformer export genome.h5 --to faa -o - | head
      genoformer export genome.h5 --to bigwig --channel + --channel - -o genome.bw
      genoformer export genome.h5 --to bed --merge 30 --min-length 90 -o coding.bed.gz
    """
    from genoformer.store import open_store

    _refuse(context, to, TrackOptions if to in GENES else GeneOptions)
    if to != "bed":
        _refuse(context, to, TrackOptions, only=("threshold", "merge", "min_length"))
    with open_store(predictions) as store:
        if to in GENES:
            export_genes(store, to, output, options=genes, overwrite=overwrite)
        else:
            export_values(store, to, output, options=values, overwrite=overwrite)


def _refuse(context: click.Context, to: str, kind: type, *, only: tuple[str, ...] | None = None) -> None:
    """Raise ConfigError if an option was given that means nothing to this format."""
    for name in only or [item.name for item in fields(kind)]:
        if context.get_parameter_source(name) == click.core.ParameterSource.COMMANDLINE:
            raise ConfigError(f"--{name.replace('_', '-')} means nothing to {to}; leave it out, or see --help")


def check_output(output: str, *, overwrite: bool, inputs: list[Path]) -> None:
    """Raise ConfigError or ResourceError if a file cannot be written there; see `genoformer.formats.output`."""
    from genoformer.formats.output import check_output as check

    check(output, overwrite=overwrite, inputs=inputs)


@contextmanager
def writing(output: str | os.PathLike[str], *, is_text: bool = False) -> Iterator[Any]:
    """Open standard output (``-``), or a file that appears once whole; text ending in .gz is compressed by bgzip."""
    from genoformer.formats import output as files

    if str(output) == "-":
        with quiet_pipe():
            yield sys.stdout.buffer
        return
    with files.writing_text(output) if is_text else files.writing(output) as stream:
        yield stream
