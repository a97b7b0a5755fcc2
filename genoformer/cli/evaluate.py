"""genoformer evaluate: how far predictions agree with an annotation."""

from __future__ import annotations

from pathlib import Path

import click

from genoformer.cli.progress import quiet_pipe, say
from genoformer.errors import ResourceError

_FILE = click.Path(dir_okay=False, path_type=Path)


# fmt: off
@click.command("evaluate")
@click.argument("prediction", metavar="PRED", type=click.Path(path_type=Path))
@click.option("--truth", "-t", "truths", required=True, multiple=True, metavar="ANNOTATION",
              help="What is true: GFF3 or GenBank; or BED with a strand in column 6, to score bases by strand and no "
                   "genes. Of tracks of other classes BED with these for names, of signals bedGraph or bigWig; several "
                   "as CHANNEL=FILE each.")
@click.option("--fasta", type=click.Path(path_type=Path), metavar="FASTA",
              help="What was predicted. Of a store: to call genes, if its input is not where it was. Of a GFF3: for "
                   "the lengths, if no ##sequence-region states them.")
@click.option("--no-genes", is_flag=True, help="Of a store: do not call genes, which takes longer than all the rest.")
@click.option("--track", metavar="NAME", help="Of a store.  [default: its first]")
@click.option("--intervals", is_flag=True,
              help="Add 95% intervals of the main numbers: stretches of 16,384 bases, and genes, drawn anew 1,000 "
                   "times.")
@click.option("--seed", type=click.IntRange(0, 2**32 - 1), default=0, show_default=True, help="Of what is drawn.")
@click.option("--all", "show_all", is_flag=True, help="List every sequence, not only the first 10.")
@click.option("--json", "json_path", type=_FILE, metavar="FILE", help="Write all numbers there.")
@click.option("--plot", "plot_path", type=_FILE, metavar="FILE",
              help="Draw reliability, precision against recall, and confusion (.png, .svg, .pdf).")
def command(
    prediction: Path, truths: tuple[str, ...], fasta: Path | None, no_genes: bool, track: str | None,
    intervals: bool, seed: int, show_all: bool, json_path: Path | None, plot_path: Path | None,
) -> None:
    """Compare PRED with an annotation: what predict wrote, or the genes of another program (GFF3, GenBank).

    By base: precision, recall, F1, Matthews correlation of each class and of coding bases with their strand; average
    precision, AUROC and calibration where there are probabilities. By gene, where there are genes: how many have the
    true 3' end, and how many the true start too.

    Pseudogenes and CDS that are not whole codons do not count, nor bases where CDS overlap in different frames (or on
    both strands). Where called genes overlap, the longest counts. What is left out is said.

    \b
    Example:
      genoformer evaluate genome.h5 --truth genome.gff --plot genome.png
      genoformer evaluate prodigal.gff --truth genome.gff --fasta genome.fa --json prodigal.json
    """
    # fmt: on
    _check_outputs(json_path, plot_path)

    from genoformer.cli.evaluate_views import show, write_json
    from genoformer.evaluate.evaluation import evaluate
    from genoformer.evaluate.summary import summarize

    evaluation = evaluate(prediction, truth_files(truths), track=track, fasta=fasta, call_genes=not no_genes)
    summary = summarize(evaluation, intervals=intervals, seed=seed)
    if json_path is not None:
        write_json(summary, json_path)
    if plot_path is not None and not evaluation.levels:
        say(f"{plot_path}: not written, as there is no figure for signals")
    elif plot_path is not None:
        from genoformer.cli.evaluate_plot import draw

        draw(evaluation, plot_path)
    with quiet_pipe():
        show(summary, show_all=show_all)


def truth_files(texts: tuple[str, ...]) -> str | dict[str, str]:
    """Return the file, or the file of each channel, that the user named."""
    if len(texts) == 1 and (Path(texts[0]).exists() or "=" not in texts[0]):
        return texts[0]
    pairs = [text.partition("=") for text in texts]
    if any(not equals for _, equals, _ in pairs) or len({channel for channel, _, _ in pairs}) < len(pairs):
        raise click.UsageError("several --truth are given as CHANNEL=FILE each, one for each channel of the track")
    return {channel: file for channel, _, file in pairs}


def _check_outputs(json_path: Path | None, plot_path: Path | None) -> None:
    """Find out before any work what would fail after it."""
    for path in (json_path, plot_path):
        if path is not None and not path.resolve().parent.is_dir():
            raise ResourceError(f"{path.parent}: no such folder; make it first")
    if plot_path is not None:
        from genoformer.plotting.files import check_plot

        check_plot(plot_path)
