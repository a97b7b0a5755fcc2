"""genoformer inspect: what a store holds, or the values of regions as text."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import click

from genoformer.cli.progress import counted, describe_making, left_out_of, quiet_pipe
from genoformer.errors import FormatError, printable

if TYPE_CHECKING:
    from genoformer.store import TrackStore

FIRST = 20
_BLOCK = 1 << 16


@click.command("inspect")
@click.argument("file", metavar="FILE.h5", type=click.Path(path_type=Path))
@click.option("--region", "-r", "regions", multiple=True, metavar="BED|REGION",
              help="Print the values of these as TSV instead: chr:start-end (from 1, both ends included), a whole "
                   "sequence by its name, or a BED file; may be repeated.")  # fmt: skip
@click.option("--track", metavar="NAME", help="Whose values to print.  [default: the first track]")
@click.option("--all", "show_all", is_flag=True, help=f"List every sequence, not only the first {FIRST}.")
@click.option("--json", "as_json", is_flag=True, help="Print all of it as JSON, for programs.")
@click.option("--verify", is_flag=True,
              help="Compare all values with the checksums stored with them, and name what is damaged.")  # fmt: skip
def command(
    file: Path, regions: tuple[str, ...], track: str | None, show_all: bool, as_json: bool, verify: bool
) -> None:
    """Show what FILE.h5 holds: how it was made, its tracks, what became of each base, and every sequence. Takes what
    predict, tokenize and merge wrote, shards, and the .part of an interrupted run.

    With --region, print one line a base: sequence, position (from 1), and a column for each channel, "nan" where
    nothing was predicted.

    \b
    Example:
      genoformer inspect genome.h5 --region chr1:1001-2000 | head
      genoformer inspect genome.h5 --json | jq .metadata.accounting
    """
    from genoformer.store import open_store

    with open_store(file, allow_incomplete=True) as store, quiet_pipe():
        if verify:
            click.echo(verified(store, None if show_all else FIRST))
            return
        if as_json:
            click.echo(described(store))
            return
        if not regions:
            for line in (*summary(store), *table(store, None if show_all else FIRST)):
                click.echo(printable(line))
            return
        for data in values_as_text(store, regions, track):
            sys.stdout.buffer.write(data)


def summary(store: TrackStore) -> Iterator[str]:
    """Yield lines about the file as a whole."""
    metadata = store.metadata
    identity, account = metadata.get("identity", {}), metadata.get("accounting", {})
    yield f"file: {store.path}, {store.generated_by}, layout {store.format_version}, {store.status}"
    for key in ("input", "alignments"):
        if key in metadata:
            yield f"{key}: {metadata[key]}"
    if "model" in identity:
        yield f"model: {identity['model']} (sha256 {str(identity.get('model-sha256', ''))[:12]})"
    told = ("window", "overlap", "genetic-code", "strand-average", "precision")
    settings = [f"{key} {identity[key]}" for key in told if key in identity]
    if "one-genome" in identity:
        settings.append(f"one-genome (sha256 {str(identity['one-genome'])[:12]})")
    if settings:
        yield f"settings: {', '.join(settings)}"
    if metadata.get("command"):
        yield f"command: {metadata['command']}"
    for track in store.tracks.values():
        yield f"track: {track.name}, {track.kind} ({track.units}), channels {' '.join(track.channels)}"
    if account:
        of_run = "" if store.shard is None else " of the whole run"
        yield f"bases{of_run}: {_counts(account)}"
    letters = metadata.get("letters", {})
    if any(letters.values()):
        yield f"letters: {_counts(letters)}"
    for line in describe_making(metadata.get("made-by", {})):
        yield line.strip()
    for reason, number in metadata.get("left-out", {}).items():
        yield f"{left_out_of(reason)} left out: {number:,} ({reason})"
    missing = metadata.get("missing")
    if missing:
        yield f"missing: {missing.get('bases', 0):,} bases of shards that were not there when the others were merged"
    if store.status != "complete":
        total = store.sequences.total_bases if "tokens" in store.tracks else account.get("predicted", 0)
        done = int(store.predicted_counts().sum())
        share = f" ({100 * done / total:.1f}%)" if total else ""
        what = "progress" if store.shard is None else f"shard {store.shard}"
        then = (
            "the same command with --resume goes on"
            if store.status == "incomplete"
            else "genoformer merge joins shards"
        )
        yield f"{what}: {done:,} of {total:,} bases written{share}; {then}"


def described(store: TrackStore) -> str:
    """Return what the file holds, but for values, as JSON."""
    table = store.sequences
    columns = {
        "name": table.names, "length": table.lengths.tolist(), "status": table.status, "reason": table.reason,
        "topology": table.topology, "md5": table.md5, "predicted": store.predicted_counts().tolist(),
    }  # fmt: skip
    found = {
        "file": str(store.path),
        "generated-by": store.generated_by,
        "format-version": store.format_version,
        "created": store.created,
        "status": store.status,
        "tracks": [
            {"name": name, "kind": track.kind, "channels": track.channels, "units": track.units}
            for name, track in store.tracks.items()
        ],
        "sequences": [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)],
        "metadata": store.metadata,
    }
    return json.dumps(found, indent=2, default=str)


def verified(store: TrackStore, most: int | None) -> str:
    """Say that every sequence is as it was written; FormatError with the names of those that are not."""
    from genoformer.store import damaged_sequences

    sequences = store.sequences
    damaged = damaged_sequences(store)
    what = f"{counted(len(sequences), 'sequence')}, {counted(sequences.total_bases, 'base')}"
    if not len(damaged):
        return f"{store.path}: {what}: all values are as they were written"
    listed = ", ".join(_fitting(sequences.names[index]) for index in damaged[:most].tolist())
    rest = f" and {len(damaged) - most:,} more" if most is not None and len(damaged) > most else ""
    raise FormatError(
        f"{store.path}: {len(damaged):,} of {what} are damaged: {listed}{rest}; "
        "predict them again, or fetch another copy"
    )


def _counts(numbers: dict[str, int]) -> str:
    return ", ".join(f"{number:,} {name.replace('_', ' ')}" for name, number in numbers.items())


def table(store: TrackStore, most: int | None) -> Iterator[str]:
    """Yield aligned lines about the sequences: at most so many, and how many more there are."""
    sequences = store.sequences
    shown = len(sequences) if most is None else min(most, len(sequences))
    counts = store.predicted_counts(0, shown)
    yield f"sequences: {len(sequences):,}"
    rows = [("name", "length", "topology", "status", "values", "reason")]
    for index in range(shown):
        length = int(sequences.lengths[index])
        share = f"{100 * counts[index] / length:.1f}%" if length else "-"
        rows.append((_fitting(sequences.names[index]), f"{length:,}", sequences.topology[index],
                     sequences.status[index], share, sequences.reason[index]))  # fmt: skip
    widths = [max(len(row[column]) for row in rows) for column in range(5)]
    for row in rows:
        cells = [f"{row[i]:{'>' if i in (1, 4) else '<'}{widths[i]}}" for i in range(5)]
        yield f"  {'  '.join([*cells, row[5]])}".rstrip()
    if shown < len(sequences):
        yield f"  ... and {len(sequences) - shown:,} more; --all lists them"


def _fitting(name: str, width: int = 40) -> str:
    """Make a name printable, and on a terminal short."""
    name = printable(name)
    return f"{name[: width - 1]}…" if len(name) > width and sys.stdout.isatty() else name


def values_as_text(store: TrackStore, texts: tuple[str, ...], track: str | None) -> Iterator[bytes]:
    """Yield the values of regions as tab-separated lines, a header first, in pieces."""
    import numpy as np

    from genoformer.formats.bed import parse_regions
    from genoformer.formats.columns import joined, number_texts
    from genoformer.store.sequences import encode_text

    lengths = dict(zip(store.sequences.names, store.sequences.lengths.tolist(), strict=True))
    regions = parse_regions(texts, lengths)
    name = next(iter(store.tracks)) if track is None else track
    blocks = [store.blocks(name, region, size=_BLOCK) for region in regions]
    written = number_texts(store.dtype)
    yield "\t".join(["sequence", "position", *store.tracks[name].channels]).encode() + b"\n"
    for block in (block for stream in blocks for block in stream):
        values = np.ascontiguousarray(block.values[name])
        codes = values if values.dtype == np.uint8 else values.view(np.uint16)
        shown = printable(block.sequence) if sys.stdout.isatty() else block.sequence
        label = np.full(len(values), encode_text(shown, what="name"))
        positions = np.arange(block.start + 1, block.end + 1).astype("S20")
        columns = [label, positions, *(written[codes[:, channel]] for channel in range(codes.shape[1]))]
        yield joined(columns)
