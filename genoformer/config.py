"""The configuration of a model: a frozen dataclass; an impossible value is a ConfigError."""

from __future__ import annotations

import math
from dataclasses import dataclass

from genoformer.limits import (
    check_seed,
    one_of,
    require,
    require_positive,
)
from genoformer.tracks import TRACKS, Track, check_own

INPUTS = ("open-frames", "stop-distances")
"""Inputs that can be derived from the tokens, beside the tokens themselves."""

PERFORMER_FEATURES = (
    "positive",
    "hyperbolic",
    "regularized",
    "oprf",
    "saderf",
    "trigonometric",
    "relu",
    "elu",
    "relu-identity",
    "elu-identity",
)
"""Kinds of features that a Performer can have: the keys of genoformer.attention.features.FEATURES."""


_LARGEST = 1 << 20
"""Above any size of a part of a model; what is larger is a mistake, or meant to harm."""
LONGEST_KMER = 8
"""Letters of the longest words with vectors of their own: 65,536 of them."""


@dataclass(frozen=True)
class ModelConfig:
    """Everything that determines the shape of a model.

    Attributes
    ----------
    tracks : names of the tracks predicted, a head each: built-in ones, and own ones
    own_tracks : description of each own track, see genoformer.tracks.Track
    inputs : inputs derived from the tokens, of INPUTS: "open-frames" tells how long each reading frame stays open
        around a base; "stop-distances" how far the next stop codon is to each side, for reads with errors too
    stem_channels, stem_kernel : channels of the full-resolution convolutions; bases they span, odd
    stem_kmer : letters of the words around each base whose learned vectors are added to these; 0 has none
    stem_stride : bases that become one token of the trunk
    width, heads : features of a trunk token; attention heads, a divisor of width
    attention : mechanism of each block, of genoformer.attention.ATTENTION; its length is the depth
    conv_kernel : tokens that a block's depthwise convolution spans, odd
    expansion : hidden features of the feed-forward layers, as a multiple of width
    local_radius : tokens to each side that local heads see, and that "joint" attention weighs exactly
    performer_features, performer_count, performer_max_temperature : see genoformer.attention.Performer; a temperature
        of 0 leaves queries and keys at their natural norm
    linformer_projection, linformer_rank, linformer_tokens : kind of genoformer.attention.PROJECTIONS; slots;
        tokens that a learned projection covers (for "conv": tokens / rank is the stride)
    linformer_ranks : slots of each block, in order, instead of linformer_rank; as many as blocks, or none
    linformer_sharing : who shares a projection: "none", each head has its own for keys and for values; "headwise",
        the heads share them; "key-value", keys and values too; "layerwise", all blocks of equal slots and heads too
    linformer_start : "pool", means of equal stretches, or "normal", at random
    hybrid_local_heads, hybrid_global : heads that look locally in a "hybrid"; mechanism of the others
    seed : of the weights and the random features
    """

    tracks: tuple[str, ...] = ("coding-frame",)
    own_tracks: tuple[Track, ...] = ()
    inputs: tuple[str, ...] = ("open-frames",)
    stem_channels: int = 64
    stem_kernel: int = 9
    stem_kmer: int = 0
    stem_stride: int = 3
    width: int = 128
    heads: int = 4
    attention: tuple[str, ...] = ("local", "performer", "local", "performer")
    conv_kernel: int = 5
    expansion: int = 3
    local_radius: int = 64
    performer_features: str = "positive"
    performer_count: int = 128
    performer_max_temperature: float = 2.0
    linformer_projection: str = "mean"
    linformer_rank: int = 128
    linformer_tokens: int = 33_334
    linformer_ranks: tuple[int, ...] = ()
    linformer_sharing: str = "layerwise"
    linformer_start: str = "pool"
    hybrid_local_heads: int = 2
    hybrid_global: str = "performer"
    seed: int = 0

    def __post_init__(self) -> None:
        sizes = ("stem_channels", "stem_kernel", "stem_stride", "width", "heads", "conv_kernel", "expansion")
        require_positive(self, *sizes, "local_radius", "performer_count", "linformer_rank", most=_LARGEST)
        require_positive(self, "linformer_tokens", "hybrid_local_heads")
        self._check_tracks()
        for name in self.inputs:
            one_of("inputs", name, INPUTS)
        require(len(set(self.inputs)) == len(self.inputs), f"inputs must differ, got {', '.join(self.inputs)}")
        require(len(self.attention) > 0, "attention must name the mechanism of at least one block")
        for name in self.attention:
            one_of("attention", name, ("softmax", "local", "performer", "linformer", "hybrid", "joint"))
        one_of("hybrid_global", self.hybrid_global, ("softmax", "performer", "linformer"))
        one_of("performer_features", self.performer_features, PERFORMER_FEATURES)
        natural = self.performer_max_temperature
        require(0 <= natural < math.inf, f"performer_max_temperature must not be negative, got {natural}")
        self._check_linformer()
        require(
            self.performer_features not in ("hyperbolic", "trigonometric") or self.performer_count % 2 == 0,
            f"performer_count must be even for {self.performer_features} features, got {self.performer_count}",
        )
        check_seed(self.seed)
        require(self.width % self.heads == 0, f"heads = {self.heads} must divide width = {self.width}")
        require(self.width // self.heads % 2 == 0, "width / heads must be even, for rotary positions")
        require(self.conv_kernel % 2 == 1, f"conv_kernel must be odd, got {self.conv_kernel}")
        require(self.stem_kernel % 2 == 1, f"stem_kernel must be odd, got {self.stem_kernel}")
        most = min(self.stem_kernel, LONGEST_KMER)
        require(0 <= self.stem_kmer <= most, f"stem_kmer must be from 0 to {most}, got {self.stem_kmer}")
        if "joint" in self.attention:
            self._require_joint()
        if "hybrid" in self.attention:
            require(self.hybrid_local_heads < self.heads, "hybrid_local_heads must be fewer than heads")

    def _check_tracks(self) -> None:
        require(len(self.tracks) > 0, "tracks must name at least one track")
        for track in self.own_tracks:
            check_own(track)
            require(
                track.name in self.tracks, f"own track {track.name!r} is not among tracks, {', '.join(self.tracks)}"
            )
        for name in self.tracks:
            one_of("tracks", name, [*TRACKS, *(track.name for track in self.own_tracks)])
        require(len(set(self.tracks)) == len(self.tracks), f"tracks must differ, got {', '.join(self.tracks)}")
        require(len({track.name for track in self.own_tracks}) == len(self.own_tracks), "own_tracks must differ")

    @property
    def described_tracks(self) -> tuple[Track, ...]:
        """The tracks predicted, in order."""
        known = TRACKS | {track.name: track for track in self.own_tracks}
        return tuple(known[name] for name in self.tracks)

    def _require_joint(self) -> None:
        fitting = ("positive", "hyperbolic", "regularized", "oprf")
        require(
            self.performer_features in fitting,
            f"performer_features must be one of {', '.join(fitting)} for joint attention, whose far weights must "
            f"estimate the exact ones; got {self.performer_features!r}",
        )
        most = (40 / (math.sqrt(self.width / self.heads) + 4)) ** 2  # as genoformer.attention.joint.most_temperature
        require(
            0 < self.performer_max_temperature <= most,
            f"performer_max_temperature must be above 0 and at most {most:.3g} for joint attention with width / heads "
            f"= {self.width // self.heads}, got {self.performer_max_temperature}",
        )

    def _check_linformer(self) -> None:
        kinds = ("learned", "seeded", "interpolated", "mean", "max", "conv", "dynamic")
        one_of("linformer_projection", self.linformer_projection, kinds)
        one_of("linformer_sharing", self.linformer_sharing, ("none", "headwise", "key-value", "layerwise"))
        one_of("linformer_start", self.linformer_start, ("pool", "normal"))
        ranks, depth = self.linformer_ranks, len(self.attention)
        require(min(ranks, default=1) > 0, f"linformer_ranks must be above 0, got {min(ranks, default=1)}")
        require(
            max(ranks, default=1) <= _LARGEST,
            f"linformer_ranks must be at most {_LARGEST:,}, got {max(ranks, default=1)}",
        )
        require(
            len(ranks) in (0, depth),
            f"linformer_ranks must have one number a block, {depth}, or none; got {len(ranks)}",
        )

    @property
    def most_bases(self) -> int | None:
        """Bases of the longest sequence that the model can see; None where there is no limit."""
        mechanisms = {self.hybrid_global if name == "hybrid" else name for name in self.attention}
        if "linformer" in mechanisms and self.linformer_projection == "learned":
            return self.linformer_tokens * self.stem_stride
        return None
