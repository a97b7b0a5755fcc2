"""Values of a region in bins that a figure can draw, streamed."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from genoformer.export.channels import strand_of
from genoformer.regions import Region
from genoformer.report.frames import FRAMES, to_frames
from genoformer.report.values import Bins
from genoformer.store import TrackStore
from genoformer.tracks import CODING_FRAME, Track


class Drawn(NamedTuple):
    """What is drawn of a track."""

    track: Track
    channels: tuple[str, ...]
    strands: list[str]
    edges: np.ndarray
    """int64, (bins + 1,): 0-based positions where bins begin; the last one ends there"""
    means: np.ndarray
    """float32, (bins, channels); NaN where no base has a value"""
    low: np.ndarray | None
    high: np.ndarray | None
    """float32, (bins, channels): extremes of a signal"""

    @property
    def bin_size(self) -> int:
        return int(self.edges[1] - self.edges[0])


def read_drawn(store: TrackStore, track: str, region: Region, *, most_bins: int) -> Drawn:
    """Read a region in at most ``most_bins`` bins, a block in memory at a time.

    The codon positions of coding-frame become reading frames, which stay the same along a gene, so that a mean over
    bases means something.
    """
    info = store.tracks[track]
    is_coding = track == CODING_FRAME.name
    channels = FRAMES if is_coding else info.channels
    strands = [name[0] for name in FRAMES] if is_coding else [strand_of(info, c) for c in range(len(channels))]
    size = max(1, -(-region.length // most_bins))
    edges = np.append(np.arange(region.start, region.end, size), region.end)
    is_signal = info.kind == "signal"
    bins = Bins.empty(len(edges) - 1, len(channels), extremes=is_signal)
    for block in store.blocks(track, region):
        places = np.arange(block.start, block.end)
        values = block.values[track].astype(np.float32)
        values = to_frames(values, places) if is_coding else values
        bins.add((places - region.start) // size, values)
    return Drawn(info, channels, strands, edges, bins.means(), bins.low, bins.high)


def gc_share(bases: bytes, *, most_bins: int, window: int) -> np.ndarray:
    """Return the share of G and C around the middle of each of equal bins: (bins,), NaN where too little is known.

    Parameters
    ----------
    bases : of a region
    most_bins : how many bins
    window : bases around each that count
    """
    letters = np.frombuffer(bases.upper(), dtype=np.uint8)
    is_gc, is_known = (np.isin(letters, np.frombuffer(kind, np.uint8)) for kind in (b"GCS", b"ACGTSW"))
    sums = [np.concatenate([[0], np.cumsum(flags)]) for flags in (is_gc, is_known)]
    middles = np.linspace(0, len(letters), most_bins * 2 + 1)[1::2]
    low = np.clip(middles - window / 2, 0, len(letters)).astype(np.int64)
    high = np.clip(middles + window / 2, 0, len(letters)).astype(np.int64)
    gc, known = ((total[high] - total[low]).astype(np.float64) for total in sums)
    known[known < 0.2 * (high - low)] = 0
    return np.divide(gc, known, out=np.full(most_bins, np.nan), where=known > 0)
