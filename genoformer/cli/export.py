"""genoformer export: genes, as GFF3 or FASTA, from predictions in a store."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, TYPE_CHECKING

import click

from genoformer.cli.options import circular_option
from genoformer.cli.progress import counted, progress, quiet_pipe, say
from genoformer.errors import ConfigError, InputError, ResourceError

if TYPE_CHECKING:
    from genoformer.store import TrackStore


@click.command("export")
@click.argument("predictions", metavar="PRED.h5", type=click.Path(path_type=Path))
@click.option("--to", required=True, type=click.Choice(["gff3", "faa", "fna"]),
              help="Genes as GFF3, their proteins, or their bases.")  # fmt: skip
@click.option("-o", "--output", required=True, metavar="OUT|-", help="File to write, - for standard output.")
@click.option("--fasta", metavar="GENOME", help="The sequences that were predicted.  [default: where they were then]")
@circular_option("Sequence whose ends are joined, beside those that were predicted so. May be repeated.")
@click.option("--genetic-code", type=click.IntRange(1), metavar="N",
              help="NCBI translation table.  [default: that of the prediction]")  # fmt: skip
@click.option("--frameshifts", is_flag=True,
              help="Follow the frame through insertions and deletions: for reads and drafts with errors.")  # fmt: skip
@click.option("--no-stop", is_flag=True, help="Leave out the * at the end of proteins.")
@click.option("--overwrite", is_flag=True, help="Replace the output if it exists.")
def command(
    predictions: Path,
    to: str,
    output: str,
    fasta: str | None,
    circular: tuple[str, ...],
    genetic_code: int | None,
    frameshifts: bool,
    no_stop: bool,
    overwrite: bool,
) -> None:
    """Call the genes of what predict wrote, and write them. The same genes have the same IDs in all formats.

    In GFF3, score is the log-odds of a gene in nats, conf the probability of its 3' end in percent, partial=10 a gene
    cut off at its left, 01 at its right. A gene over the origin of a circular sequence ends beyond its length.

    \b
    Example:
      genoformer export genome.h5 --to faa -o - | head
    """
    from genoformer.formats.gff3_write import header
    from genoformer.genes import CallSettings
    from genoformer.genes.output import render
    from genoformer.genes.stored import stored_code, stored_genes
    from genoformer.store import open_store
    from genoformer.tokenizing import open_sequences_or_tokens

    with open_store(predictions) as store:
        code = stored_code(store) if genetic_code is None else genetic_code
        settings = CallSettings(genetic_code=code, frameshifts=frameshifts)
        _ = settings.code  # unknown ones are refused before anything is written
        source = _source(store, fasta)
        sequences = open_sequences_or_tokens(source)
        check_output(output, overwrite=overwrite, inputs=[predictions, Path(source)])
        genes = 0
        with writing(output) as stream, progress(store.sequences.total_bases, what="export") as report:
            if to == "gff3":
                stream.write(header(_comments(store)).encode("utf-8", "replace"))
            for found in stored_genes(store, sequences, settings=settings, circular=circular, report=report):
                genes += len(found.genes)
                stream.write(render(found, to=to, code=code, keep_stop=not no_stop))
        say(f"{output}: {counted(genes, 'gene')} of {counted(len(store.sequences), 'sequence')}, genetic code {code}")


def _source(store: TrackStore, fasta: str | None) -> str:
    """Return the path of what was predicted: as given, or as the store has it."""
    if fasta is not None:
        return fasta
    source = str(store.metadata.get("input", ""))
    if not source or not Path(source).exists():
        missing = f"{source!r}, which was predicted, is not there" if source else "it does not say what was predicted"
        raise InputError(f"{store.path}: genes need the bases too, and {missing}; give the file with --fasta")
    return source


def _comments(store: TrackStore) -> Iterator[str]:
    """Yield how the predictions came about."""
    from genoformer import __version__

    identity = store.metadata.get("identity", {})
    yield f"genoformer {__version__}"
    if "model" in identity:
        yield f"model {identity['model']}, sha256 {identity.get('model-sha256', '')}"
    for key in ("input", "command"):
        if store.metadata.get(key):
            yield f"{key}: {store.metadata[key]}"


def check_output(output: str, *, overwrite: bool, inputs: list[Path]) -> None:
    """Raise ConfigError or ResourceError if a file cannot be written there, before any work is done."""
    path = Path(output)
    if output == "-":
        return
    if not path.parent.is_dir():
        raise ResourceError(f"{path.parent}: no such folder; make it first")
    if path.is_dir():
        raise ConfigError(f"{path}: is a folder; name a file")
    if path.exists() and any(given.exists() and path.samefile(given) for given in inputs):
        raise ConfigError(f"{path}: is what is to be read, and would be lost; name another output")
    if path.is_file() and not overwrite:
        raise ConfigError(f"{path}: exists already; use --overwrite to replace it, or name another output")


@contextmanager
def writing(output: str) -> Iterator[IO[bytes]]:
    """Open standard output (``-``), or a file that appears under its name once it is whole."""
    path = Path(output)
    if output == "-":
        with quiet_pipe():
            yield sys.stdout.buffer
        return
    if path.exists() and not path.is_file():  # a pipe or a device
        with path.open("wb") as stream:
            yield stream
        return
    part = path.with_name(f"{path.name}.part")
    try:
        with part.open("wb") as stream:
            yield stream
            stream.flush()
            os.fsync(stream.fileno())
        part.replace(path)
    except BaseException:
        with suppress(OSError):
            part.unlink()
        raise
