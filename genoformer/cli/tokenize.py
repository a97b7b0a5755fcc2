"""genoformer tokenize: the tokenized windows of an input into HDF5."""

from __future__ import annotations

import click

from genoformer.cli.checks import Checks
from genoformer.cli.events import log_json_option
from genoformer.cli.options import (
    InputOptions,
    OutputOptions,
    WindowOptions,
    input_options,
    output_options,
    window_options,
)
from genoformer.cli.progress import progress, say, show_plan, size


@click.command("tokenize")
@input_options
@output_options(required=True, help="HDF5 file to write; it appears under this name once it is whole.")
@window_options
@log_json_option
def command(source: InputOptions, target: OutputOptions, cut: WindowOptions) -> None:
    """Cut INPUT into windows of single-nucleotide tokens: A C G T N, a code from 0 to 4 for each base.

    The file holds the codes of every sequence (track "tokens"), the table of windows, and for each sequence how many
    letters were known, ambiguous (IUPAC), invalid and soft-masked. predict takes it as an input, and so cuts it the
    same way.

    \b
    Example:
      genoformer tokenize genome.fa.gz -o tokens.h5 --window 50000
    """
    from genoformer.errors import ConfigError
    from genoformer.plan import check_predictable
    from genoformer.tokenizing import tokenize_to_store

    target.check(source)
    checks = Checks()
    checks.read(source, cut)
    plan, sequences = checks.plan, checks.sequences
    assert plan is not None
    assert sequences is not None
    show_plan(plan)
    if plan.regions is not None:
        raise ConfigError("--regions: a tokenized input holds whole sequences; give the regions to predict instead")
    check_predictable(plan)
    with target.resumable() as stop, progress(plan.accounting.total, what="tokenize") as report:
        tokenize_to_store(plan, sequences, target.store(), report=stop.after(report))
    letters, windows = plan.letters, len(plan.owned)
    unknown = letters.ambiguous + letters.invalid
    say(
        f"{target.output}: {size(plan.accounting.total, 'b')} in {windows:,} windows; {unknown:,} unknown "
        f"({letters.ambiguous:,} ambiguous, {letters.invalid:,} invalid), {letters.soft_masked:,} soft-masked"
    )
