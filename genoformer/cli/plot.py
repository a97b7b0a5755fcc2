"""genoformer plot: a region of a store as a figure."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from genoformer.cli.evaluate import truth_files
from genoformer.cli.progress import say
from genoformer.errors import ConfigError

if TYPE_CHECKING:
    from genoformer.store import TrackStore


@click.command("plot")
@click.argument("predictions", metavar="PRED.h5", type=click.Path(path_type=Path))
@click.option(
    "--region",
    "-r",
    required=True,
    metavar="REGION",
    help="What to draw: chr:start-end (from 1, both ends included), or a whole sequence by its name.",
)
@click.option(
    "-o",
    "--output",
    required=True,
    type=click.Path(path_type=Path),
    metavar="FIG.png|svg|pdf",
    help="Figure to write; its ending tells the kind.",
)
@click.option("--track", metavar="NAME", help="Whose values to draw.  [default: the first]")
@click.option(
    "--genes",
    metavar="FILE",
    help="Genes to draw, GFF3 or GenBank.  [default: those that export calls, if the bases are there]",
)
@click.option("--no-genes", is_flag=True, help="Draw no genes, and call none.")
@click.option(
    "--truth",
    "-t",
    multiple=True,
    metavar="FILE|CHANNEL=FILE",
    help="What is true: GFF3 or GenBank; of other tracks BED, bedGraph or bigWig, one for each channel.",
)
@click.option(
    "--fasta",
    metavar="GENOME",
    help="The sequences that were predicted, for genes and GC content.  [default: where they were then]",
)
@click.option(
    "--width",
    type=click.FloatRange(3, 40),
    default=10.0,
    show_default=True,
    metavar="INCHES",
    help="Width of the figure.",
)
@click.option(
    "--dpi", type=click.IntRange(30, 1200), default=200, show_default=True, metavar="DOTS", help="Dots an inch, of PNG."
)
@click.option("--overwrite", is_flag=True, help="Replace the output if it exists.")
def command(
    predictions: Path,
    region: str,
    output: Path,
    track: str | None,
    genes: str | None,
    no_genes: bool,
    truth: tuple[str, ...],
    fasta: str | None,
    width: float,
    dpi: int,
    overwrite: bool,
) -> None:
    """Draw a region: genes on both strands, what is true, probabilities of both strands (or signals), and GC content.

    Where a region has more bases than the figure has dots, means are drawn; of signals their extremes too. Needs
    matplotlib (pip install 'genoformer[plots]'). In notebooks: genoformer.plotting.plot_region.

    \b
    Example:
      genoformer plot genome.h5 -r chr1:1001-20000 -o region.pdf
      genoformer plot genome.h5 -r chr1 --genes other.gff3 --truth annotation.gff3 -o chr1.png
    """
    from genoformer.formats.output import check_output
    from genoformer.plotting.files import check_plot
    from genoformer.plotting.region import CALL, plot_region, save_figure
    from genoformer.store import open_store
    from genoformer.tracks import CODING_FRAME

    check_plot(output)
    given = [Path(path) for path in (predictions, genes, fasta, *(file.rpartition("=")[2] for file in truth)) if path]
    check_output(output, overwrite=overwrite, inputs=given)
    if genes and no_genes:
        raise ConfigError("--genes and --no-genes cannot go together; leave one out")
    true = truth_files(truth) if truth else None
    with open_store(predictions) as store:
        bases = fasta or _where_they_were(store)
        drawn = None if no_genes else genes
        if genes is None and not no_genes and bases and CODING_FRAME.name in store.tracks:
            drawn = CALL
        axes = plot_region(store, region, track=track, genes=drawn, truth=true, fasta=bases, width=width)
    save_figure(axes, output, dpi=dpi)
    without = "" if bases else "; without genes and GC content, as the sequences are not there: give --fasta"
    say(f"{output}: {region}{'' if genes or no_genes else without}")


def _where_they_were(store: TrackStore) -> str | None:
    source = str(store.metadata.get("input", ""))
    return source if source and Path(source).is_file() else None
