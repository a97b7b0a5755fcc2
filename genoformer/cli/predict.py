"""genoformer predict: every base of an input into an HDF5 store."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import click

from genoformer.cli.checks import Checks, check_run
from genoformer.cli.events import log_json_option
from genoformer.cli.options import (
    InputOptions,
    OutputOptions,
    ProcessOptions,
    WholeOptions,
    WindowOptions,
    batch_option,
    chunk_option,
    input_options,
    model_option,
    output_options,
    process_options,
    project_option,
    shard_option,
    whole_options,
    window_options,
)
from genoformer.cli.progress import duration, progress, say, show_plan, size
from genoformer.cli.together import Crew, crew_of_torchrun
from genoformer.errors import ConfigError

if TYPE_CHECKING:
    from genoformer.model.genoformer import Genoformer
    from genoformer.store import Shard


@click.command("predict")
@input_options
@output_options(required=True, help="HDF5 file to write; it appears under this name once it is whole.")
@model_option
@window_options
@whole_options
@chunk_option
@batch_option
@shard_option
@project_option
@process_options
@log_json_option
@click.option(
    "--precision",
    type=click.Choice(["float32", "bfloat16"]),
    default="float32",
    show_default=True,
    help="Of the products in the layers.",
)
@click.option(
    "--strand-average/--no-strand-average",
    default=True,
    show_default=True,
    help="Mean of the predictions for both strands: twice the time.",
)
@click.option(
    "--genetic-code",
    type=click.Choice(["auto", "11", "4"]),
    default="auto",
    show_default=True,
    help="NCBI translation table; auto tells 11 from 4 by the input.",
)
@click.option(
    "--one-genome",
    is_flag=True,
    help="All sequences are contigs of one organism: short ones are predicted with what the longest tell of it.",
)
@click.option(
    "--seed",
    type=click.IntRange(0, 2**32 - 1),
    default=0,
    show_default=True,
    metavar="N",
    help="Of torch's generator; the bundled models draw nothing at random.",
)
def command(
    source: InputOptions,
    target: OutputOptions,
    model: str,
    cut: WindowOptions,
    whole: WholeOptions,
    chunk_size: int | None,
    batch_size: int,
    shard: str | None,
    project: bool,
    hardware: ProcessOptions,
    precision: str,
    strand_average: bool,
    genetic_code: str,
    one_genome: bool,
    seed: int,
) -> None:
    """Predict every base of INPUT: FASTA or GenBank (plain, gzip or bgzip), the reads of BAM or CRAM, what tokenize
    wrote, or - for standard input.

    The bundled model predicts coding sequences: the codon position (0, 1, 2) of each base on + and on -, or none.

    \b
    Example:
      genoformer predict genome.fa.gz -o genome.h5
    A chromosome as one context, its positions shared out over processes:
      torchrun --nproc-per-node 2 -m genoformer predict genome.fa.gz -o genome.h5 --whole-sequence
    """
    from genoformer.store import Shard

    part = None if shard is None else Shard.parse(shard)
    whole.check(cut, project=project)
    if one_genome and whole.whole_sequence:
        raise ConfigError("--one-genome is for contigs; with --whole-sequence each sequence tells for itself")
    whole.check_run(source, hardware)
    settings = {
        "chunk_size": chunk_size,
        "batch_size": batch_size,
        "strand_average": strand_average,
        "precision": precision,
        "offload": whole.offload,
    }
    with crew_of_torchrun(hardware) as crew:
        asked: dict[str, Any] = {
            "model": model,
            "device": hardware.device,
            "processes": hardware.processes,
            "target": crew.target(target),
            "shard": part,
            "project": project,
            "whole": whole.whole_sequence,
        }
        checks = crew.agreed(lambda: check_run(source, cut, **asked, show=show_plan))
        import torch

        from genoformer.cli.estimates import whole_notes
        from genoformer.model.checkpoint import load_model

        torch.manual_seed(seed)
        if target.resume and not (target.is_interrupted or target.may_be_done):
            say(f"{target.output}: no interrupted run to resume, starting anew")
        assert checks.plan is not None
        assert checks.checkpoint is not None
        for note in whole_notes(checks.plan, checks.checkpoint.config):
            say(f"  {note}")
        loaded = load_model(model, device=crew.use())
        _write(
            checks, loaded, crew, target=target, part=part, hardware=hardware, how=(genetic_code, one_genome, settings)
        )


def _write(
    checks: Checks,
    model: Genoformer,
    crew: Crew,
    *,
    target: OutputOptions,
    part: Shard | None,
    hardware: ProcessOptions,
    how: tuple[str, bool, dict[str, Any]],
) -> None:
    """Predict what was checked, and say how that went; ``how``: genetic code, whether of one genome, and settings."""
    from genoformer.cli.estimates import planned_bases
    from genoformer.genetic_code import choose_genetic_code
    from genoformer.organism import planned_context
    from genoformer.predict import Settings, predict_to_store
    from genoformer.projection import project_to_store
    from genoformer.projection_plan import Projection
    from genoformer.whole_sequence import predict_whole_to_store

    plan, sequences = checks.plan, checks.sequences
    assert plan is not None
    assert sequences is not None
    sample = (plan.sample.plan(), plan.sample) if isinstance(plan, Projection) else (plan, sequences)
    table, why = crew.same(lambda: choose_genetic_code(how[0], *sample, model))
    context = planned_context(*sample, model, genetic_code=table) if how[1] else None
    began, ended = time.monotonic(), target.may_be_done
    bases = planned_bases(plan, part)
    with hardware.workers(model) as workers, crew.resumable(target) as stop, progress(bases) as report:
        together = f" in {crew.team.size} processes" if crew.is_many else ""
        say(f"model {model.checkpoint.name} on {workers or model.device}{together}, genetic code {table} ({why})")
        if workers is not None:
            stop.leave_to(workers.hold)
        options: dict[str, Any] = {"together": crew.is_many} if plan.whole else {"workers": workers}
        write: Callable[..., object] = project_to_store if isinstance(plan, Projection) else predict_to_store
        write = predict_whole_to_store if plan.whole else write
        write(
            plan,
            sequences,
            model,
            target.store(part),
            settings=Settings(genetic_code=table, context=context, **how[2]),
            report=stop.after(report),
            **options,
        )
    what = size(plan.accounting.predicted, "b") if part is None else f"shard {part}, {size(bases, 'b')},"
    how_long = "before; there was nothing left to do" if ended else f"in {duration(time.monotonic() - began)}"
    say(f"{target.output}: {what} predicted {how_long}")
