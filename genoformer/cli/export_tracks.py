"""The values of a store as bigWig, bedGraph, BED, a table or arrays, for `genoformer export`."""

from __future__ import annotations

import sys
from contextlib import nullcontext
from dataclasses import dataclass
from typing import TYPE_CHECKING

from genoformer.cli.progress import counted, progress, quiet_pipe, say
from genoformer.errors import ConfigError

if TYPE_CHECKING:
    from genoformer.export import Exported
    from genoformer.store import TrackStore


@dataclass(frozen=True)
class TrackOptions:
    """Which values are written, and how intervals are called from them."""

    track: str | None
    channel: tuple[str, ...]
    regions: tuple[str, ...]
    smooth: int
    threshold: float
    merge: int
    min_length: int


def export_values(store: TrackStore, to: str, output: str, *, options: TrackOptions, overwrite: bool) -> None:
    """Write values of a store to files or to standard output."""
    from genoformer.export import TRACK_FORMATS, Calling, Selection, choose_channels, export_track
    from genoformer.formats.bed import parse_regions

    if options.smooth % 2 == 0:
        raise ConfigError(f"--smooth must be odd, so that a base is in the middle, got {options.smooth}")
    track = next(iter(store.tracks)) if options.track is None else options.track
    if track not in store.tracks:
        raise ConfigError(f"{store.path}: there is no track {track!r}; it has {', '.join(store.tracks)}")
    regions = None
    if options.regions:
        table = store.sequences
        regions = parse_regions(options.regions, dict(zip(table.names, table.lengths.tolist(), strict=True)))
    selection = Selection(store, track, regions, options.smooth)
    chosen = choose_channels(selection.info, options.channel) or TRACK_FORMATS[to].channels(selection.info)
    passes = len(chosen) if TRACK_FORMATS[to].one_channel else 1
    found: list[Exported] = []  # as it stays where whoever reads standard output stops
    calling = Calling(options.threshold, options.merge, options.min_length)
    with (
        quiet_pipe() if output == "-" else nullcontext(),
        progress(passes * selection.bases(), what="export") as report,
    ):
        found = export_track(
            selection, to, output, channels=options.channel, calling=calling, overwrite=overwrite,
            stdout=sys.stdout.buffer, report=report,
        )  # fmt: skip
    sequences = counted(len(selection.names()), "sequence")
    for file in found:
        words = f"{counted(file.written.count, file.written.noun)} of {sequences}"
        left = selection.bases() - file.written.bases
        words += f"; {counted(left, 'base')} without a prediction" if left else ""
        say(f"{file.path}: {words}{f'; index {file.index}' if file.index else ''}")
