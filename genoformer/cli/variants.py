"""genoformer variants: what the alleles of a VCF change in the predictions."""

from __future__ import annotations

import time
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING

import click

from genoformer.cli.export import check_output
from genoformer.cli.options import ProcessOptions, command_line, model_option, process_options
from genoformer.cli.progress import Report, counted, duration, progress, quiet_pipe, say
from genoformer.cli.scoring import ScoringOptions, scoring_options

if TYPE_CHECKING:
    from genoformer.variants.annotate import Summary


@click.command("variants")
@click.argument("variants", metavar="IN.vcf")
@click.option(
    "-f",
    "--fasta",
    required=True,
    type=click.Path(dir_okay=False),
    metavar="REF.fa",
    help="The sequences that the variants were called on.",
)
@click.option(
    "-o",
    "--output",
    required=True,
    metavar="OUT.vcf.gz|-",
    help="File to write, in the format of its name: .vcf.gz and .bcf with an index, or .vcf; - for VCF on "
    "standard output.",
)
@model_option
@scoring_options
@process_options
@click.option("--overwrite", is_flag=True, help="Replace the output if it exists.")
def command(
    variants: str,
    fasta: str,
    output: str,
    model: str,
    scoring: ScoringOptions,
    hardware: ProcessOptions,
    overwrite: bool,
) -> None:
    """Predict what each allele of a VCF or BCF changes: the sequence around it with the reference, and with it.

    Alleles are split, left-aligned and sorted, as `bcftools norm -m- -f` and `bcftools sort` do, and all are written.
    For each coding strand (or channel of the model) INFO tells the largest gain and loss among the bases that both
    alleles have, from 0 to 1, and where; for inserted and deleted bases the largest value among them; and SHIFT, the
    largest share of probability that changes class, a reading frame for instance. An allele that cannot be scored has
    GF_SKIPPED, with the reason. Sequences are taken as linear.

    \b
    Example:
      genoformer variants calls.vcf.gz --fasta genome.fa.gz -o scored.vcf.gz
      bcftools view -i 'INFO/GF_CODING_PLUS_LOSS>0.5 || INFO/GF_CODING_MINUS_LOSS>0.5' scored.vcf.gz
    """
    from genoformer.formats.vcf_write import mode_of

    mode_of(output)
    check_output(output, overwrite=overwrite, inputs=[Path(variants), Path(fasta)])

    from genoformer.formats.vcf import open_reference
    from genoformer.variants.annotate import annotate_vcf

    loaded, chosen = scoring.prepare(model, hardware, open_reference(fasta))
    began = time.monotonic()
    with ExitStack() as stack:
        if output == "-":
            stack.enter_context(quiet_pipe())
        bar: list[Report] = []

        def report(done: int, total: int) -> None:
            if not bar:
                bar.append(stack.enter_context(progress(total, what="variants", unit="variants")))
            bar[0](1)

        workers = stack.enter_context(hardware.workers(loaded))
        summary = annotate_vcf(
            variants, fasta, loaded, output, scoring=chosen, workers=workers, command=command_line(), report=report
        )
        _tell(summary, output, time.monotonic() - began)


def _tell(summary: Summary, output: str, elapsed: float) -> None:
    from genoformer.formats.vcf import REASONS

    for note in summary.notes:
        say(f"  note: {note}")
    pace = f" ({summary.scored / elapsed:.3g} a second)" if summary.scored else ""
    say(
        f"{output}: {summary.scored:,} of {counted(summary.alleles, 'allele')} "
        f"(in {counted(summary.records, 'record')}) scored in {duration(elapsed)}{pace}; "
        f"{summary.changed:,} split or left-aligned"
    )
    for reason, number in summary.skipped.most_common():
        say(f"  not scored: {number:,} {reason}: {REASONS[reason]}")
