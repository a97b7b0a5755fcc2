"""genoformer models: which ones there are, what one is, where it lies; carried from machine to machine."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import click

from genoformer.cli.progress import quiet_pipe, say, size
from genoformer.errors import printable

if TYPE_CHECKING:
    from genoformer.model.checkpoint import Checkpoint


@click.group("models", invoke_without_command=True)
@click.pass_context
def command(context: click.Context) -> int | None:
    """List the models that have a name, show one (its configuration, training and model card), or print its folder.

    These are the bundled ones and those in the folder that GENOFORMER_MODELS names. To carry a model to a machine
    without a network, export it to one file, and import that there: both check it by its checksums.

    \b
    Example:
      genoformer models
      genoformer models show prokaryote-genes
      genoformer models export mine/model -o mine.tar
      GENOFORMER_MODELS=~/models genoformer models import mine.tar
      genoformer predict genome.fa -o genome.h5 --model "$(genoformer models path prokaryote-genes)"
    """
    return show_list() if context.invoked_subcommand is None else None


@command.command("list")
def list_command() -> int:
    """List the models that have a name; exit with 1 if one of them is damaged."""
    return show_list()


@command.command("show")
@click.argument("name", metavar="NAME|PATH")
def show_command(name: str) -> None:
    """Print the configuration, the training and the model card of a model by its name, or of a folder."""
    from genoformer.model.checkpoint import CARD, read_checkpoint

    found = read_checkpoint(name)
    lines = [
        f"name: {found.name}",
        f"path: {found.path}",
        f"sha256: {found.sha256} (checked)",
        f"parameters: {parameters(found):,}",
        f"tracks: {', '.join(found.config.tracks)}",
        f"config: {as_json(found.config)}",
        *f"training: {json.dumps(found.training, indent=2)}".split("\n"),
    ]
    card = found.path / CARD
    if card.is_file():
        lines += ["", *card.read_text(encoding="utf-8", errors="replace").rstrip().split("\n")]
    with quiet_pipe():
        for line in lines:
            click.echo(printable(line))


@command.command("path")
@click.argument("name", metavar="NAME|PATH")
def path_command(name: str) -> None:
    """Print the folder of a model by its name, or of a folder, if it is intact."""
    from genoformer.model.checkpoint import read_checkpoint

    click.echo(read_checkpoint(name).path)


@command.command("export")
@click.argument("name", metavar="NAME|PATH")
@click.option("-o", "--output", required=True, metavar="OUT.tar", type=click.Path(path_type=Path, dir_okay=False),
              help="File to write.")  # fmt: skip
@click.option("--overwrite", is_flag=True, help="Replace the output if it exists.")
def export_command(name: str, output: Path, overwrite: bool) -> None:
    """Write a model, with its card and checksums, into one file; `tar -xO` and `sha256sum -c` read it as well."""
    from genoformer.cli.export import check_output

    check_output(str(output), overwrite=overwrite, inputs=[])
    from genoformer.model.bundle import export_model

    found = export_model(name, output)
    say(f"{output}: model {found.name}, {size(output.stat().st_size)}, weights sha256 {found.sha256}")


@command.command("import")
@click.argument("bundle", metavar="BUNDLE.tar", type=click.Path(path_type=Path))
@click.option("--to", "folder", metavar="FOLDER", type=click.Path(path_type=Path, file_okay=False),
              help="Folder of models.  [default: GENOFORMER_MODELS]")  # fmt: skip
@click.option("--overwrite", is_flag=True, help="Replace a model of the same name.")
def import_command(bundle: Path, folder: Path | None, overwrite: bool) -> None:
    """Check what `models export` wrote, and put the model into a folder of models, under its name."""
    from genoformer.model.bundle import import_model
    from genoformer.model.checkpoint import known_models

    found = import_model(bundle, folder=folder, overwrite=overwrite)
    name = found.path.name if known_models().get(found.path.name) == found.path else str(found.path)
    say(f"{found.path}: model {found.name}, checksums right; use it with --model {name}")


def show_list() -> int:
    """Print a line for each model that has a name; return 1 if one cannot be used."""
    from genoformer.errors import CheckpointError
    from genoformer.model.checkpoint import WEIGHTS, known_models, read_checkpoint

    names = known_models()
    if not names:
        say("no model is bundled with this installation; `genoformer train` makes one")
    rows, failures = [], 0
    for name in names:
        try:
            found = read_checkpoint(name)
            weights = size((found.path / WEIGHTS).stat().st_size)
            rows.append((name, f"{parameters(found):,}", ",".join(found.config.tracks), weights,
                         found.sha256[:12], "intact"))  # fmt: skip
        except CheckpointError as error:
            rows.append((name, "-", "-", "-", "-", f"unusable: {error}"))
            failures += 1
    if rows:
        rows.insert(0, ("name", "parameters", "tracks", "size", "sha256", "state"))
    widths = [max(len(row[column]) for row in rows) for column in range(5)] if rows else []
    for row in rows:
        click.echo("  ".join([*(f"{text:<{width}}" for text, width in zip(row[:5], widths, strict=True)), row[5]]))
    return 1 if failures else 0


def parameters(found: Checkpoint) -> int:
    """Count the learned numbers of a model."""
    from genoformer.model.genoformer import build

    return sum(parameter.numel() for parameter in build(found.config).parameters())


def as_json(config: object) -> str:
    """Write a configuration for people."""
    from genoformer.plain import to_dict

    return json.dumps(to_dict(config), indent=2)
