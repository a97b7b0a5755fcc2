"""What a prediction will take: time, memory and disk, estimated from the plan and the shape of the model."""

from __future__ import annotations

from typing import NamedTuple

from genoformer.config import ModelConfig
from genoformer.model.device import CPU_CHUNK
from genoformer.plan import Plan

PROGRAM = 400e6
"""Bytes of Python, torch, HDF5 and buffers, whatever the input."""
TYPICAL_SHARE = 0.8
"""Share of the uncompressed size that predictions take on disk, as seen with the bundled model."""


class Estimate(NamedTuple):
    """Seconds and bytes; rough, to choose a machine by."""

    seconds: float
    memory: int
    disk_most: int
    """values uncompressed; never more than this and a per cent"""
    disk_typical: int
    temporary: int
    """in the temporary folder"""


def estimate(
    plan: Plan,
    config: ModelConfig,
    *,
    speed: float,
    chunk_size: int | None,
    batch_size: int,
    channels: int,
    offload: bool = False,
) -> Estimate:
    """Estimate what predicting takes.

    Parameters
    ----------
    speed : bases a second
    chunk_size : trunk tokens computed at a time; None: as on a CPU, 0: all
    batch_size : windows computed together
    channels : of all tracks together
    offload : tokens of sequences longer than a window are kept in a temporary file
    """
    longest = int(plan.sequences.lengths.max(initial=0))
    window = min(plan.window, longest + (2 * (plan.overlap // 2) if plan.origins else 0))
    tokens = -(-window // config.stem_stride)
    chunk = min(CPU_CHUNK if chunk_size is None else chunk_size or tokens, tokens)
    # float32 of what is kept for each base of a window (inputs, values of both strands), and for each trunk token
    resident = window * (60 + 16 * channels) + tokens * 12 * config.width
    # float32 of the activations that live at once, for each token of a chunk
    features = 4 * config.stem_stride * config.stem_channels + 3 * config.width * config.expansion
    active = chunk * 4 * (features + config.heads * config.performer_count)
    memory, temporary = PROGRAM + 2 * longest + batch_size * (resident + active), 0
    if plan.streamed.any():  # tokens, and the values of one strand
        kept = 4 * (-(-plan.longest // config.stem_stride) * config.width + plan.longest * channels)
        memory, temporary = (memory, kept) if offload else (memory + kept, 0)
    most = 2 * plan.accounting.predicted * channels
    seconds = (plan.accounting.predicted + plan.repeated) / speed
    return Estimate(seconds, round(memory), most, round(TYPICAL_SHARE * most), temporary)
