"""genoformer train: a model from annotated genomes."""

from __future__ import annotations

from pathlib import Path

import click

from genoformer.cli.options import DeviceOptions, device_options, resume_option
from genoformer.cli.progress import say, training_progress


@click.command("train")
@click.argument("config", metavar="CONFIG.toml", type=click.Path(path_type=Path))
@click.option("-o", "--output", required=True, type=click.Path(path_type=Path), metavar="FOLDER",
              help="For the model, the checkpoint to resume from, and the log (JSONL); made if missing.")  # fmt: skip
@click.option("--data", type=click.Path(path_type=Path), metavar="FOLDER",
              help="What the paths of samples are relative to.  [default: the folder of CONFIG.toml]")  # fmt: skip
@click.option("--name", default=None, metavar="NAME",
              help="Of the model, as outputs will show it.  [default: that of FOLDER]")  # fmt: skip
@resume_option
@device_options
def command(
    config: Path, output: Path, data: Path | None, name: str | None, resume: bool, hardware: DeviceOptions
) -> None:
    """Train a model as CONFIG.toml says: tables [model], [train] and one [[samples]] for each genome, with its
    sequences (FASTA or GenBank) and their annotation (GFF3 or GenBank).

    A run that was stopped goes on with --resume exactly where its last checkpoint was. The model, the running mean of
    the weights, lies in FOLDER/model; predict takes it by --model FOLDER/model.

    \b
    Example:
      genoformer train genes.toml -o genes --threads 2
    """
    from genoformer.config import RunConfig, read_toml

    run = read_toml(RunConfig, config)

    from genoformer.train import train

    device = hardware.use()
    say(f"{config}: {run.train.steps:,} steps of {run.train.step_bases:,} bases on {device}")
    steps = train(
        run,
        output,
        name=name or output.resolve().name,
        root=config.parent if data is None else data,
        resume=resume,
        device=device,
        report=lambda line: say(f"  {line}"),
    )
    with training_progress(run.train.steps) as show:
        for step in steps:
            show(step)
    say(f"{output / 'model'}: model {name or output.resolve().name!r} after {run.train.steps:,} steps")
