"""What a model would take, told from its description and the head of its weights before anything is allocated.

A description is a few words, and may ask for any size; a file of weights cannot hold more numbers than it has bytes.
So nothing is built that the weights do not fill.
"""

from __future__ import annotations

import math
from pathlib import Path

from safetensors import SafetensorError, safe_open

from genoformer.config import ModelConfig
from genoformer.errors import CheckpointError

_GRID = 4  # points a slot of an interpolated projection


def stored_numbers(weights: Path) -> int:
    """Return how many numbers a safetensors file holds; only its head is read.

    Raises
    ------
    CheckpointError : it is missing, truncated or not safetensors
    """
    try:
        with safe_open(weights, framework="pt") as file:
            return sum(math.prod(file.get_slice(name).get_shape()) for name in file.keys())  # noqa: SIM118
    except FileNotFoundError:
        raise CheckpointError(f"{weights}: no such file; the model's weights are missing") from None
    except (SafetensorError, OSError, ValueError) as error:
        raise CheckpointError(
            f"{weights}: truncated or not a safetensors file ({error}); copy or train it again"
        ) from None


def least_numbers(config: ModelConfig) -> int:
    """Return how many numbers a model has at least: all of those whose count grows with two sizes or more."""
    width, features = config.width, config.stem_channels
    ends = features * (config.stem_kernel + 2 * config.stem_stride * width)
    ends += 4**config.stem_kmer * features if config.stem_kmer else 0
    ends += features * sum(len(track.channels) for track in config.described_tracks)
    block = (4 + 2 * config.expansion) * width**2 + config.conv_kernel * width
    projections: dict[tuple[int, int, int], int] = {}
    features_of_attention = 0
    for index, name in enumerate(config.attention):
        heads = config.heads - config.hybrid_local_heads if name == "hybrid" else config.heads
        mechanism = config.hybrid_global if name == "hybrid" else name
        if mechanism in ("performer", "joint"):
            features_of_attention += heads * (config.performer_count // 2) * (width // config.heads)
        elif mechanism == "linformer":
            rank = config.linformer_ranks[index] if config.linformer_ranks else config.linformer_rank
            shared = -1 if config.linformer_sharing == "layerwise" else index
            copies = {"none": 2 * heads, "headwise": 2}.get(config.linformer_sharing, 1)
            projections[rank, heads, shared] = copies * _projection(config, rank)
    return ends + len(config.attention) * block + features_of_attention + sum(projections.values())


def _projection(config: ModelConfig, rank: int) -> int:
    sizes = {
        "learned": rank * config.linformer_tokens,
        "interpolated": rank * rank * _GRID,
        "conv": config.linformer_tokens // rank,
        "dynamic": rank * (config.width // config.heads),
    }
    return sizes.get(config.linformer_projection, 0)


def check_allowance(config: ModelConfig, weights: Path) -> None:
    """Raise CheckpointError if a model of this shape has more numbers than its weights."""
    needed, stored = least_numbers(config), stored_numbers(weights)
    if needed > stored:
        raise CheckpointError(
            f"{weights}: holds {stored:,} numbers, but a model as it is described has at least {needed:,}; "
            "description and weights do not belong together: copy both again"
        )
