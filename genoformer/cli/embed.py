"""genoformer embed: the hidden states of a layer, into HDF5."""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path

import click

from genoformer.cli.checks import Checks
from genoformer.cli.export import check_output
from genoformer.cli.options import (
    DeviceOptions,
    InputOptions,
    WindowOptions,
    batch_option,
    chunk_option,
    command_line,
    device_options,
    model_option,
    straight_input_options,
    window_options,
)
from genoformer.cli.progress import counted, duration, progress, say, show_plan, size
from genoformer.errors import ConfigError


@click.command("embed")
@straight_input_options
@click.option("-o", "--output", required=True, metavar="OUT.h5", type=click.Path(path_type=Path),
              help="HDF5 file to write; it appears under this name once it is whole.")  # fmt: skip
@click.option("--layer", type=int, default=-1, show_default=True, metavar="N",
              help="0: what the stem makes, N: what block N returns; negative ones count from the last.")  # fmt: skip
@model_option
@window_options
@chunk_option
@batch_option
@device_options
@click.option("--genetic-code", type=click.Choice(["auto", "11", "4"]), default="auto", show_default=True,
              help="NCBI translation table; auto tells 11 from 4 by the input.")  # fmt: skip
@click.option("--overwrite", is_flag=True, help="Replace the output if it exists.")
def command(
    source: InputOptions,
    output: Path,
    layer: int,
    model: str,
    cut: WindowOptions,
    chunk_size: int | None,
    batch_size: int,
    hardware: DeviceOptions,
    genetic_code: str,
    overwrite: bool,
) -> None:
    """Write the hidden states of a layer of the model: a vector for every token, that is for every 3 bases with the
    bundled model, of the forward strand, as float16.

    INPUT is what predict takes. The file is described in FORMAT.md; genoformer.open_embeddings and h5py read it. It
    takes 2 x width / stride bytes a base: 85 for the bundled model.

    \b
    Example:
      genoformer embed genome.fa.gz -o states.h5 --layer 2
    """
    check_output(str(output), overwrite=overwrite, inputs=list(source.files()))
    if source.circular:
        raise ConfigError("--circular: tokens of several bases do not go round a circle; embed it as its file cuts it")
    checks = Checks()
    checks.read(source, cut)
    plan, sequences = checks.plan, checks.sequences
    assert plan is not None
    assert sequences is not None
    circles, plan = len(plan.origins), replace(plan, origins={})
    show_plan(plan)
    if circles:
        say(f"  note: {counted(circles, 'circular sequence')}, embedded as the file cuts them")

    from genoformer.embedding import embed_to_store
    from genoformer.genetic_code import choose_genetic_code
    from genoformer.model.checkpoint import load_model
    from genoformer.plan import check_predictable
    from genoformer.predict import Settings

    check_predictable(plan)
    device = hardware.use()
    loaded = load_model(model, device=device)
    layer = loaded.layer(layer)
    table, why = choose_genetic_code(genetic_code, plan, sequences, loaded)
    say(f"model {loaded.checkpoint.name} on {device}, layer {layer}, genetic code {table} ({why})")
    began = time.monotonic()
    with progress(plan.accounting.predicted + plan.accounting.masked, what="embed") as report:
        embed_to_store(
            plan,
            sequences,
            loaded,
            output,
            layer=layer,
            settings=Settings(chunk_size=chunk_size, batch_size=batch_size, genetic_code=table),
            command=command_line(),
            report=report,
        )
    elapsed = time.monotonic() - began
    say(f"{output}: {size(plan.accounting.predicted, 'b')} embedded in {duration(elapsed)}")
