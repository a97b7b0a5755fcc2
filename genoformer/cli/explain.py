"""genoformer explain: what each base of a region does to predictions."""

from __future__ import annotations

import time
from pathlib import Path

import click

from genoformer.cli.export import check_output
from genoformer.cli.options import ProcessOptions, command_line, model_option, process_options
from genoformer.cli.progress import duration, progress, say, size
from genoformer.cli.scoring import ScoringOptions, scoring_options
from genoformer.errors import ConfigError, InputError


@click.command("explain")
@click.argument("genome", metavar="GENOME")
@click.option("--region", "-r", required=True, metavar="REGION",
              help="chr:start-end (from 1, both ends included).")  # fmt: skip
@click.option("-o", "--output", required=True, metavar="OUT.h5", type=click.Path(path_type=Path),
              help="HDF5 store to write.")  # fmt: skip
@click.option("--by", type=click.Choice(["saturation", "gradient"]), default="saturation", show_default=True,
              help="Put every other letter at every base of the region, or differentiate.")  # fmt: skip
@click.option("--plot", metavar="FIGURE", type=click.Path(path_type=Path),
              help="Draw it too: .png, .svg or .pdf. Needs matplotlib.")  # fmt: skip
@model_option
@scoring_options
@process_options
@click.option("--overwrite", is_flag=True, help="Replace the output if it exists.")
def command(
    genome: str,
    region: str,
    output: Path,
    by: str,
    plot: Path | None,
    model: str,
    scoring: ScoringOptions,
    hardware: ProcessOptions,
    overwrite: bool,
) -> None:
    """Tell what each base of a region of GENOME does to the predictions around it.

    By saturation: every substitution is predicted as variants does, 3 windows a base; the store has the gain and loss
    by each letter at each base. By gradient: the sum of the region's log-odds is differentiated, at once, for all
    bases that the model sees; the store has gradient x input. The gradient holds fixed what is derived from the letters
    by rules, as the bundled model's open frames: it does not see what a stop codon does, saturation does. Sequences are
    taken as linear, also those that GenBank says are circular.

    \b
    Example:
      genoformer explain genome.fa.gz -r chr1:1001-1100 -o effects.h5 --plot effects.png
    """
    check_output(str(output), overwrite=overwrite, inputs=[Path(genome)])
    if by == "gradient" and hardware.count > 1:
        raise ConfigError("--by gradient is computed at once, by one process; leave out --processes, name one --device")
    if plot is not None:
        from genoformer.plotting.files import check_plot

        check_plot(plot)
        check_output(str(plot), overwrite=overwrite, inputs=[Path(genome), output])

    from genoformer.formats.bed import parse_regions
    from genoformer.formats.sequences import open_sequences
    from genoformer.store import Output
    from genoformer.variants.attribution import attribute_to_store
    from genoformer.variants.saturation import saturate_to_store

    sequences = open_sequences(genome)
    regions = parse_regions([region], sequences.lengths())
    if len(regions) > 1:
        raise InputError(f"{region}: holds {len(regions)} regions; explain takes one")
    loaded, chosen = scoring.prepare(model, hardware, sequences)
    target = Output(output, command_line(), overwrite=overwrite)
    began = time.monotonic()
    if by == "saturation":
        with hardware.workers(loaded) as workers, progress(regions[0].length, what="explain") as report:
            saturate_to_store(regions[0], sequences, loaded, target, scoring=chosen, workers=workers, report=report)
    else:
        if loaded.held_fixed:
            say(
                f"  note: {', '.join(loaded.held_fixed)} have no gradient and are held fixed; saturation has their part"
            )
        attribute_to_store(regions[0], sequences, loaded, target, scoring=chosen)
    say(f"{output}: {size(regions[0].length, 'b')} explained by {by} in {duration(time.monotonic() - began)}")
    if plot is not None:
        from genoformer.cli.explain_plot import draw_effects

        draw_effects(output, plot)
        say(f"{plot}: drawn")
