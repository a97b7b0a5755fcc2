"""The genes of a store as GFF3 or FASTA, for `genoformer export`."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from genoformer.cli.progress import counted, progress, say
from genoformer.errors import InputError

if TYPE_CHECKING:
    from genoformer.store import TrackStore


@dataclass(frozen=True)
class GeneOptions:
    """How genes are called and written."""

    fasta: str | None
    circular: tuple[str, ...]
    genetic_code: int | None
    frameshifts: bool
    no_stop: bool


def export_genes(store: TrackStore, to: str, output: str, *, options: GeneOptions, overwrite: bool) -> None:
    """Call the genes of a store and write them to a file or to standard output."""
    from genoformer.cli.export import check_output, writing
    from genoformer.formats.bgzip import GFF_COLUMNS, write_index
    from genoformer.formats.consensus import open_consensus_again
    from genoformer.formats.gff3_write import header
    from genoformer.formats.output import is_compressed
    from genoformer.genes import CallSettings
    from genoformer.genes.output import render
    from genoformer.genes.stored import stored_code, stored_genes
    from genoformer.tokenizing import open_sequences_or_tokens

    code = stored_code(store) if options.genetic_code is None else options.genetic_code
    settings = CallSettings(genetic_code=code, frameshifts=options.frameshifts)
    _ = settings.code  # unknown ones are refused before anything is written
    again = open_consensus_again(store.metadata) if options.fasta is None else None
    source = str(store.metadata["alignments"]) if again else source_of(store, options.fasta)
    sequences = again or open_sequences_or_tokens(source)
    check_output(output, overwrite=overwrite, inputs=[store.path, Path(source)])
    genes = 0
    with writing(output, is_text=True) as stream, progress(store.sequences.total_bases, what="export") as report:
        if to == "gff3":
            stream.write(header(_comments(store)).encode("utf-8", "replace"))
        for found in stored_genes(store, sequences, settings=settings, circular=options.circular, report=report):
            genes += len(found.genes)
            stream.write(render(found, to=to, code=code, keep_stop=not options.no_stop))
    words = f"{counted(genes, 'gene')} of {counted(len(store.sequences), 'sequence')}, genetic code {code}"
    if to == "gff3" and is_compressed(output) and Path(output).is_file():
        longest = int(store.sequences.lengths.max(initial=0))
        words += f"; index {write_index(Path(output), GFF_COLUMNS, longest=longest)}"
    say(f"{output}: {words}")


def source_of(store: TrackStore, fasta: str | None) -> str:
    """Return the path of what was predicted: as given, or as the store has it."""
    if fasta is not None:
        return fasta
    source = str(store.metadata.get("input", ""))
    if not source or not Path(source).exists():
        missing = f"{source!r}, which was predicted, is not there" if source else "it does not say what was predicted"
        if "alignments" in store.metadata:
            missing = "alignments do not hold those of their references"
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
