"""What a prediction will take: time, memory and disk, estimated from the plan and the shape of the model."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, NamedTuple

from genoformer.attention.attention import PIECE
from genoformer.config import ModelConfig
from genoformer.model.device import CPU_CHUNK
from genoformer.plan import Plan

if TYPE_CHECKING:
    from genoformer.store import Shard

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
    shard: Shard | None = None,
) -> Estimate:
    """Estimate what predicting takes.

    Parameters
    ----------
    speed : bases a second
    chunk_size : trunk tokens computed at a time; None: as on a CPU, 0: all
    batch_size : windows computed together
    channels : of all tracks together
    shard : the part that is predicted
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
    memory, temporary = PROGRAM + (0 if _read_bases(plan) else 2 * longest) + batch_size * (resident + active), 0
    if plan.streamed.any():  # tokens, and the values of one strand
        kept = 4 * (-(-plan.longest // config.stem_stride) * config.width + plan.longest * channels)
        memory, temporary = (memory, kept) if offload else (memory + kept, 0)
        memory += kept_by_attention(plan, config)
    share = planned_bases(plan, shard) / max(planned_bases(plan, None), 1)
    most = round(2 * share * plan.accounting.predicted * channels)
    seconds = share * (_read_bases(plan) or plan.accounting.predicted + plan.repeated) / speed
    return Estimate(seconds, round(memory), most, round(TYPICAL_SHARE * most), temporary)


def kept_by_attention(plan: Plan, config: ModelConfig) -> int:
    """Return the bytes that a block keeps on the device of a whole sequence, where they grow with it, at most."""
    tokens, cell = -(-plan.longest // config.stem_stride), max(2, PIECE // (2 * config.local_radius))
    features = config.heads * config.performer_count * (config.width // config.heads + 1)
    kept = {
        "softmax": 8 * tokens * config.width,  # keys and values
        "joint": 12 * (tokens // (cell * config.local_radius) + 1) * features,  # three sums for each cell
    }
    return max((kept.get(name, 0) for name in _mechanisms(config)), default=0)


def whole_notes(plan: Plan, config: ModelConfig) -> Iterator[str]:
    """Yield what should be known before whole sequences are predicted with such a model."""
    if not plan.streamed.any():
        return
    if "softmax" in _mechanisms(config):
        yield "note: exact attention (softmax) takes time that grows with the square of a sequence's length"
    elif "linformer" in _mechanisms(config) and config.linformer_projection == "conv":
        yield "note: a Linformer by convolution takes time that grows with the square of a sequence's length"


def _mechanisms(config: ModelConfig) -> set[str]:
    return {config.hybrid_global if name == "hybrid" else name for name in config.attention}


def planned_bases(plan: Plan, shard: Shard | None) -> int:
    """Count the bases that windows own, those in gaps included: all, or those of a shard."""
    owned = plan.owned if shard is None else plan.owned[shard.select(plan.blocks)]
    return int((owned[:, 2] - owned[:, 1]).sum())


def _read_bases(plan: Plan) -> int:
    """Count the bases of the reads of a projection, all of which are predicted; 0 of other plans."""
    return sum(plan.made_by.get("counts", {}).get("bases of reads", {}).values())
