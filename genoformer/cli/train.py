"""genoformer train: a model from annotated genomes, or from any tracks."""

from __future__ import annotations

import re
from contextlib import nullcontext
from pathlib import Path

import click

from genoformer.cli.events import log_json_option
from genoformer.cli.interrupts import finishing, how_to_resume
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
@log_json_option
def command(
    config: Path, output: Path, data: Path | None, name: str | None, resume: bool, hardware: DeviceOptions
) -> None:
    """Train a model as CONFIG.toml says: tables [model], [train] and one [[samples]] for each genome, with its
    sequences (FASTA or GenBank) and their annotation (GFF3 or GenBank); or samples_table = "samples.tsv", with the
    columns fasta, annotation, split and weight.

    Own tracks are described in [[model.own_tracks]] (name, kind "class" or "signal", channels); each sample names their
    files in labels: BED for classes, bedGraph or bigWig for signals. In a table, each has a column of its name.

    A run that was stopped goes on with --resume exactly where its last checkpoint was. The model, the running mean of
    the weights, lies in FOLDER/model; predict takes it by --model FOLDER/model. FOLDER/log.jsonl holds a line for each
    step, FOLDER/curve.png draws them where matplotlib is installed.

    \b
    Example:
      genoformer train genes.toml -o genes --threads 2
    On several devices or machines, each process with its share of more windows:
      torchrun --nproc-per-node 2 -m genoformer train genes.toml -o genes
    """
    from genoformer.plain import read_toml
    from genoformer.training.config import RunConfig

    run = read_toml(RunConfig, config)

    from genoformer.cli.train_plot import draw_curve
    from genoformer.model.checkpoint import read_checkpoint
    from genoformer.training.run import LOG, train
    from genoformer.training.team import team_of_torchrun

    with team_of_torchrun(hardware.use()) as (team, device):
        tell = say if team.leads else lambda _: None
        together = f", {team.size} processes" if team.size > 1 else ""
        tell(f"{config}: {run.train.steps:,} steps of {run.train.step_bases:,} bases on {device}{together}")
        steps = train(
            run,
            output,
            name=name or ("" if resume and (output / "model").is_dir() else _name_of(output)),
            root=config.parent if data is None else data,
            resume=resume,
            device=device,
            report=lambda line: tell(f"  {line}"),
        )
        last = None
        with (
            finishing("step") as stop,
            training_progress(run.train.steps) if team.leads else nullcontext(lambda _: None) as show,
        ):
            for last in steps:
                show(last)
                if stop.asked:
                    steps.throw(KeyboardInterrupt(how_to_resume()))  # which saves what a later run goes on from
        if team.leads and last is not None and draw_curve(output / LOG, output / "curve.png"):
            tell(f"{output / 'curve.png'}: loss and validation against steps")
        taken = run.train.steps if last is None else last.step
        tell(f"{output / 'model'}: model {read_checkpoint(output / 'model').name!r} after {taken:,} steps")


def _name_of(folder: Path) -> str:
    """Return the name of a folder as that of a model, which has fewer letters to choose from."""
    return re.sub(r"[^A-Za-z0-9._-]+", "-", folder.resolve().name).strip("-._")[:100] or "model"
