"""genoformer merge: the shards of a run into one store."""

from __future__ import annotations

from pathlib import Path

import click

from genoformer.cli.options import command_line
from genoformer.cli.progress import counted, progress, say, size


@click.command("merge")
@click.argument("shards", nargs=-1, required=True, metavar="SHARD.h5...", type=click.Path(path_type=Path))
@click.option("-o", "--output", required=True, type=click.Path(path_type=Path), metavar="OUT.h5",
              help="HDF5 file to write; it appears under this name once it is whole.")  # fmt: skip
@click.option("--allow-missing", is_flag=True,
              help="Join what there is, if shards are missing; their bases have no values.")  # fmt: skip
@click.option("--overwrite", is_flag=True, help="Replace the output if it exists.")
def command(shards: tuple[Path, ...], output: Path, allow_missing: bool, overwrite: bool) -> None:
    """Join what predict --shard wrote into the file that the whole run would have written.

    Shards come in any order. Before anything is written they are checked to be of one run (model, input, settings),
    none twice and none missing; while they are copied, that all is as it was written.

    \b
    Example:
      genoformer predict genome.fa.gz -o part1.h5 --shard 1/2
      genoformer predict genome.fa.gz -o part2.h5 --shard 2/2
      genoformer merge part1.h5 part2.h5 -o genome.h5
    """
    from genoformer.store import check_shards, merge_shards

    checked = check_shards(shards, allow_missing=allow_missing)
    if checked.missing_bases:
        why = f" ({checked.absent})" if checked.absent else ""
        say(f"missing: {checked.missing_bases:,} of {checked.planned_bases:,} bases{why}; they will have no values")
    for line in checked.notes:
        say(f"note: {line}")
    with progress(checked.sequences.total_bases, what="merge") as report:
        merge_shards(checked, output, overwrite=overwrite, command=command_line(), report=report)
    joined = checked.planned_bases - checked.missing_bases
    say(f"{output}: {size(joined, 'b')} of {counted(len(checked.parts), 'shard')}")
