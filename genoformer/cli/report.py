"""genoformer report: a page about what predict wrote."""

from __future__ import annotations

from pathlib import Path

import click

from genoformer.cli.progress import progress, say, size


# fmt: off
@click.command("report")
@click.argument("predictions", metavar="PRED.h5", type=click.Path(path_type=Path))
@click.option("-o", "--output", required=True, metavar="OUT.html|-", help="Page to write, - for standard output.")
@click.option("--truth", "-t", "truths", multiple=True, metavar="ANNOTATION",
              help="What is true: GFF3 or GenBank; of other tracks as evaluate takes it. Adds accuracy, calibration.")
@click.option("--fasta", metavar="GENOME", help="The sequences that were predicted.  [default: where they were then]")
@click.option("--genes", metavar="GFF3", help="Genes to show.  [default: called as export does]")
@click.option("--track", metavar="NAME", help="What to show.  [default: the first track]")
@click.option("--circular", multiple=True, metavar="NAME|all",
              help="Sequence whose ends are joined, beside those that their file says are; repeatable.")
@click.option("--genetic-code", type=click.IntRange(1), metavar="N",
              help="NCBI translation table.  [default: that of the prediction]")
@click.option("--detail", "-r", multiple=True, metavar="BED|REGION",
              help="Show these base by base before all others: chr:start-end (from 1, both ends included), or a BED "
                   "file; repeatable.")
@click.option("--size", "megabytes", type=click.FloatRange(0.1, 500), default=4.0, show_default=True, metavar="MB",
              help="How large the page may become. What overview, genes and tables leave is used for values base by "
                   "base, from the longest sequence on.")
@click.option("--overwrite", is_flag=True, help="Replace the output if it exists.")
def command(
    predictions: Path, output: str, truths: tuple[str, ...], fasta: str | None, genes: str | None, track: str | None,
    circular: tuple[str, ...], genetic_code: int | None, detail: tuple[str, ...], megabytes: float, overwrite: bool,
) -> None:
    """Write one HTML page about PRED.h5 that needs no network: how it was made, a browser over values, genes and GC
    content, distributions, and tables of sequences and genes; with --truth also accuracy and calibration.

    At most 10,000 sequences and 50,000 genes are listed and drawn, those of the longest sequences; numbers and charts
    are of all. The page says what it leaves out.

    \b
    Example:
      genoformer report genome.h5 -o genome.html --truth genome.gff
    """
    # fmt: on
    from genoformer.cli.evaluate import truth_files
    from genoformer.cli.export import check_output, writing
    from genoformer.report import ReportSettings, build_report
    from genoformer.store import open_store

    given = [Path(name) for name in (fasta, genes, *truths) if name is not None]
    check_output(output, overwrite=overwrite, inputs=[predictions, *given])
    settings = ReportSettings(
        track=track, truth=truth_files(truths) if truths else None, fasta=fasta, genes=genes, circular=circular,
        genetic_code=genetic_code, detail=detail, size=megabytes,
    )  # fmt: skip
    with open_store(predictions) as store:
        total = store.sequences.total_bases
    with progress(2 * total, what="report") as report:
        page = build_report(predictions, settings, report=report)
    with writing(output) as stream:
        stream.write(page)
    say(f"{output}: {size(len(page))}, open it in any browser")
