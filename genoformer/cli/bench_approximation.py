"""genoformer bench approximation: how far linear attention is from exact softmax, and what size to take."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from genoformer.cli.options import DeviceOptions, device_options, model_option
from genoformer.cli.progress import quiet_pipe, say
from genoformer.errors import ConfigError, InputError, ResourceError

if TYPE_CHECKING:
    from genoformer.bench.candidates import Candidate, Stretches

_FILE = click.Path(dir_okay=False, path_type=Path)
_RANDOM = ("norm", "dim", "heads")


# fmt: off
@click.command("approximation")
@click.option("--input", "source", metavar="FILE",
              help="Sequences (FASTA, GenBank, BAM, CRAM) for the model to read; its attention layers are looked at.")
@click.option("--region", metavar="chr:START-END", help="Of them, from 1, both ends included.  [default: the first]")
@model_option
@click.option("--random", "is_random", is_flag=True, help="Look at random queries and keys of one norm instead.")
@click.option("--norm", type=click.FloatRange(min=0, min_open=True), default=1.0, show_default=True,
              help="Of random ones: squared norm, scaled as features see them (dim^-1/4 each).")
@click.option("--dim", type=click.IntRange(3, 1024), default=64, show_default=True, help="Of random ones: dimensions.")
@click.option("--heads", type=click.IntRange(1, 64), default=1, show_default=True, help="Of random ones: heads.")
@click.option("--tokens", type=click.IntRange(16, 4096), default=512, show_default=True,
              help="Of a stretch; a second one is held out.")
@click.option("--size", type=click.IntRange(8, 65536), default=128, show_default=True,
              help="Features, slots or window at which mechanisms are compared.")
@click.option("--wanted", type=click.FloatRange(0, 1, min_open=True, max_open=True), default=0.1, show_default=True,
              help="Relative error of the outputs that a size is sought for.")
@click.option("--limit", type=click.IntRange(16, 65536), default=4096, show_default=True, help="Most features tried.")
@click.option("--draws", type=click.IntRange(2, 100), default=5, show_default=True,
              help="Random projections that a measurement is repeated with.")
@click.option("--seed", type=click.IntRange(0, 2**32 - 1), default=0, show_default=True, help="Of everything drawn.")
@click.option("--mechanism", "-m", "mechanisms", multiple=True, metavar="NAME",
              help="Only those whose name has this in it, such as positive or linformer; may be repeated.")
@click.option("--json", "json_path", type=_FILE, metavar="FILE", help="Write all numbers there.")
@click.option("--plot", "plot_path", type=_FILE, metavar="FILE", help="Draw error against size (.png, .svg, .pdf).")
@device_options
@click.pass_context
def command(
    context: click.Context, source: str | None, region: str | None, model: str, is_random: bool, norm: float, dim: int,
    heads: int, tokens: int, size: int, wanted: float, limit: int, draws: int, seed: int, mechanisms: tuple[str, ...],
    json_path: Path | None, plot_path: Path | None, hardware: DeviceOptions,
) -> None:
    """Compare every mechanism with exact softmax attention of the same queries and keys: those of a model's global
    layers on a sequence, or random ones.

    For each: relative error of the outputs; bias and spread of single weights, measured and by closed forms; what an
    infinite number of features would give; and the smallest size with the wanted error, checked on held-out tokens
    and seeds. Beside them: effective rank and entropy of the attention matrix, and the error of mean(V).

    \b
    Example:
      genoformer bench approximation --random --norm 1 --dim 64 --tokens 512
      genoformer bench approximation --random --norm 4 -m performer --plot error.png
      genoformer bench approximation --input genome.fa --wanted 0.05 --json audit.json
    """
    # fmt: on
    _check_usage(context, source, region, is_random)
    candidates = _chosen(mechanisms)
    _check_outputs(json_path, plot_path)

    from genoformer.bench.approximation import Settings, audit
    from genoformer.bench.candidates import random_stretches
    from genoformer.cli.approximation_views import draw, show, write_json

    hardware.use()
    if is_random:
        found = [random_stretches(squared_norm=norm, dim=dim, tokens=tokens, heads=heads, seed=seed)]
    else:
        assert source is not None
        found = _of_model(model, source, region, tokens)
    settings = Settings(size=size, wanted=wanted, limit=limit, draws=draws, seed=seed)
    layers = [audit(stretches, candidates, settings, report=say) for stretches in found]
    if json_path is not None:
        write_json(layers, settings, json_path)
    if plot_path is not None:
        draw(layers, settings, plot_path)
    with quiet_pipe():
        show(layers, settings)


def _check_usage(context: click.Context, source: str | None, region: str | None, is_random: bool) -> None:
    given = [name for name in _RANDOM if context.get_parameter_source(name) is click.core.ParameterSource.COMMANDLINE]
    if is_random == (source is not None):
        raise click.UsageError("give either --input FILE, for a model to read, or --random")
    if given and not is_random:
        raise click.UsageError(f"--{given[0]} belongs to --random; with --input the model decides")
    if region is not None and is_random:
        raise click.UsageError("--region belongs to --input")


def _chosen(mechanisms: tuple[str, ...]) -> list[Candidate]:
    from genoformer.bench.candidates import CANDIDATES

    for text in mechanisms:
        if not any(text in name for name in CANDIDATES):
            raise ConfigError(f"no mechanism is called {text!r}; known are {', '.join(CANDIDATES)}")
    return [c for name, c in CANDIDATES.items() if not mechanisms or any(text in name for text in mechanisms)]


def _check_outputs(json_path: Path | None, plot_path: Path | None) -> None:
    """Find out before any work what would fail after it."""
    for path in (json_path, plot_path):
        if path is not None and not path.resolve().parent.is_dir():
            raise ResourceError(f"{path.parent}: no such folder; make it first")
    if plot_path is not None:
        from genoformer.plotting.files import check_plot

        check_plot(plot_path)


def _of_model(name: str, source: str, region: str | None, tokens: int) -> list[Stretches]:
    """Return what the global layers of a model see of a sequence."""
    import torch

    from genoformer.bench.candidates import model_stretches
    from genoformer.formats.bed import parse_regions
    from genoformer.formats.sequences import open_sequences
    from genoformer.model.checkpoint import load_model
    from genoformer.tokens import encode

    model = load_model(name)
    sequences = open_sequences(source)
    if region is None:
        record = next(iter(sequences.records()), None)
        if record is None:
            raise InputError(f"{source}: holds no sequence; give one that does")
        where, bases = record.name, record.bases
    else:
        regions = parse_regions([region], sequences.lengths())
        where, bases = str(regions[0]), sequences.fetch(regions[0])
    found = model_stretches(model, torch.from_numpy(encode(bases).copy()), tokens=tokens)
    used = min(len(bases), 2 * found[0].fit.tokens * model.encoder.stem.stride)
    say(f"model {model.checkpoint.name} on the first {used:,} bases of {where}: two stretches, one of them held out")
    return found
