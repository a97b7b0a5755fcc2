"""Configurations: frozen dataclasses read from TOML; an unknown key or an impossible value is a ConfigError."""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace

from genoformer.limits import (
    check_class_weights,
    check_seed,
    check_shares,
    listed,
    one_of,
    require,
    require_positive,
)
from genoformer.plain import from_dict, read_toml, to_dict
from genoformer.tracks import CODING_FRAME, MASKED_NUCLEOTIDE, TRACKS, Track, check_own

__all__ = [
    "INPUTS",
    "PERFORMER_FEATURES",
    "ModelConfig",
    "RunConfig",
    "Sample",
    "TrackLoss",
    "TrainConfig",
    "from_dict",
    "read_toml",
    "to_dict",
]

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


LabelFiles = str | dict[str, str]
"""A file with the labels of a track, or one for each channel."""


@dataclass(frozen=True)
class TrackLoss:
    """How the loss of one track counts: ``weight`` beside those of the others, ``class_weights`` within it."""

    track: str
    weight: float = 1.0
    class_weights: tuple[float, ...] = ()

    def __post_init__(self) -> None:
        require_positive(self, "weight")
        check_class_weights(f"class_weights of {self.track!r}", self.class_weights)


@dataclass(frozen=True)
class Sample:
    """One genome to learn from or to be measured on.

    Attributes
    ----------
    fasta, annotation : sequences, and their coding sequences: FASTA and GFF3, or GenBank; without an annotation the
        bases do not count for the track coding-frame
    split, weight : "train" or "validation"; how often it is drawn, relative to others of its length
    labels : for each own track a file, or a table with a file for each channel, see genoformer.labels; for a track that
        is not named the bases do not count
    """

    fasta: str
    annotation: str = ""
    split: str = "train"
    weight: float = 1.0
    labels: dict[str, LabelFiles] = field(default_factory=dict)

    def __post_init__(self) -> None:
        one_of("split", self.split, ("train", "validation"))
        require_positive(self, "weight")


@dataclass(frozen=True)
class TrainConfig:
    """How a model is trained.

    Attributes
    ----------
    windows : bases of the windows; each step draws one of these lengths, with as many windows as fill `step_bases`
    window_shares : how often each of `windows` is drawn, relative to the others; none: all alike
    step_bases : bases of one pass through the model
    accumulate : passes whose gradients are added up for one step
    steps : how many steps
    learning_rate, warmup, final_rate : peak of the rate; steps to reach it; fraction of it that cosine decay ends at
    approximate_rate : factor of the learning rate for the projections around approximate attention (Performer,
        Linformer)
    weight_decay, gradient_clip : of AdamW; largest norm of the gradient
    ema : decay of the running mean of the weights, which is what is kept; 0 keeps the last weights
    class_weights : weight of each class in the loss, in the order of the track's channels; none: all alike
    losses : weight, and class_weights of its own, of the loss of single tracks; signals have the mean squared error,
        in units of their standard deviation in the training data
    label_smoothing : share of each label that is spread over all classes
    error_rates, error_shares : substitutions, insertions and deletions (in equal parts) per base; each window has one
        of these rates, drawn in these shares; no shares: all alike
    homopolymer_indels : from 0, insertions and deletions anywhere alike, to 1, in proportion to the length of the run
        of equal bases
    recode : fraction of windows rewritten to genetic code 4 (TGG to TGA in genes, TGA stops to TAA), so that a model
        learns to follow the genetic code it is told
    length_power : a genome is drawn in proportion to its length to this power
    redraw_every : steps between new random features for Performers; 0 keeps the first ones
    chunk_size : tokens that are computed and recomputed at a time; 0 keeps everything
    precision : "float32" or "bfloat16" (products only)
    validate_every, validate_bases : steps between validations; bases of each validation genome looked at
    validate_error_rates : validations are also of reads of 5,000 bases with errors at these rates
    patience : validations without a better one after which training stops; the best model is kept. 0 never stops
    save_every : steps between checkpoints
    init_from : model to start from, a bundled one or a folder; what does not fit is told and starts afresh
    pretrain : learn to tell hidden letters from those around them, instead of the model's tracks
    mask_rate : share of letters hidden then
    seed : of the windows drawn
    """

    windows: tuple[int, ...] = (1_500, 6_000, 24_000, 96_000)
    window_shares: tuple[float, ...] = ()
    step_bases: int = 96_000
    accumulate: int = 1
    steps: int = 2_000
    learning_rate: float = 2e-3
    warmup: int = 100
    final_rate: float = 0.02
    approximate_rate: float = 1.0
    weight_decay: float = 0.05
    gradient_clip: float = 1.0
    ema: float = 0.998
    class_weights: tuple[float, ...] = ()
    losses: tuple[TrackLoss, ...] = ()
    label_smoothing: float = 0.0
    error_rates: tuple[float, ...] = (0.0,)
    error_shares: tuple[float, ...] = ()
    homopolymer_indels: float = 0.0
    recode: float = 0.05
    length_power: float = 0.6
    redraw_every: int = 0
    chunk_size: int = 0
    precision: str = "float32"
    validate_every: int = 200
    validate_bases: int = 200_000
    validate_error_rates: tuple[float, ...] = ()
    patience: int = 0
    save_every: int = 100
    init_from: str = ""
    pretrain: bool = False
    mask_rate: float = 0.15
    seed: int = 0

    def __post_init__(self) -> None:
        require_positive(self, "step_bases", "steps", "learning_rate", "gradient_clip", "validate_every", "save_every")
        require_positive(self, "validate_bases", "accumulate", "approximate_rate")
        require(len(self.windows) > 0 and min(self.windows) > 0, "windows must name at least one length above 0")
        require(max(self.windows) <= self.step_bases, "step_bases must be at least the longest of windows")
        require(0 <= self.ema < 1, f"ema must be from 0 to below 1, got {self.ema}")
        require(0 <= self.weight_decay < math.inf, f"weight_decay must not be negative, got {self.weight_decay}")
        require(math.isfinite(self.length_power), f"length_power must be finite, got {self.length_power}")
        check_seed(self.seed)
        require(0 <= self.recode <= 1, f"recode must be from 0 to 1, got {self.recode}")
        require(self.warmup >= 0, f"warmup must not be negative, got {self.warmup}")
        require(0 <= self.final_rate <= 1, f"final_rate must be from 0 to 1, got {self.final_rate}")
        require(self.redraw_every >= 0, f"redraw_every must not be negative, got {self.redraw_every}")
        require(self.chunk_size >= 0, f"chunk_size must not be negative, got {self.chunk_size}")
        one_of("precision", self.precision, ("float32", "bfloat16"))
        self._check_draws()

    def _check_draws(self) -> None:
        """Check what windows, their errors and their loss are drawn and weighed by."""
        check_shares("window_shares", self.window_shares, "windows", len(self.windows))
        require(len(self.error_rates) > 0, "error_rates must name at least one rate; 0 is none")
        for name in ("error_rates", "validate_error_rates"):
            rates = getattr(self, name)
            require(all(0 <= rate <= 0.3 for rate in rates), f"{name} must be from 0 to 0.3, got {listed(rates)}")
        check_shares("error_shares", self.error_shares, "error_rates", len(self.error_rates))
        bias, smoothing = self.homopolymer_indels, self.label_smoothing
        require(0 <= bias <= 1, f"homopolymer_indels must be from 0 to 1, got {bias}")
        require(0 <= smoothing < 1, f"label_smoothing must be from 0 to below 1, got {smoothing}")
        require(0 < self.mask_rate < 1, f"mask_rate must be between 0 and 1, got {self.mask_rate}")
        require(self.patience >= 0, f"patience must not be negative, got {self.patience}")
        check_class_weights("class_weights", self.class_weights)

    def loss_of(self, track: Track) -> TrackLoss:
        """Return how the loss of a track counts."""
        own = next((loss for loss in self.losses if loss.track == track.name), TrackLoss(track.name))
        if own.class_weights or track.kind != "class" or track == MASKED_NUCLEOTIDE:
            return own
        return replace(own, class_weights=self.class_weights)


@dataclass(frozen=True)
class RunConfig:
    """A whole training: the model, how it is trained, on what.

    Attributes
    ----------
    model, train : the tables [model] and [train]
    samples : genomes to learn from and to be measured on
    samples_table : file of more of them, tab-separated, see genoformer.samples_table
    """

    model: ModelConfig = field(default_factory=ModelConfig)
    train: TrainConfig = field(default_factory=TrainConfig)
    samples: tuple[Sample, ...] = ()
    samples_table: str = ""

    def __post_init__(self) -> None:
        pretrain = self.train.pretrain
        require(pretrain or "masked-nucleotide" not in self.model.tracks, "masked-nucleotide needs pretrain = true")
        if not pretrain:
            self._check_losses()
            self._check_labels()
        most = self.model.most_bases
        require(
            most is None or max(self.train.windows) <= most,
            f"windows must be at most linformer_tokens x stem_stride = {most} bases, which the model can see",
        )

    def _check_losses(self) -> None:
        """Check that weights are those of the model's tracks."""
        named = [loss.track for loss in self.train.losses]
        for name in named:
            one_of("losses: track", name, self.model.tracks)
        require(len(set(named)) == len(named), f"losses: tracks must differ, got {', '.join(named)}")
        for track in self.model.described_tracks:
            loss = self.train.loss_of(track)
            require(
                len(loss.class_weights) in (0, len(track.channels) if track.kind == "class" else 0),
                f"class_weights must have one number for each channel of the class track {track.name}, which has "
                f"{len(track.channels)}; give those of a track by its own in [[train.losses]]"
                if track.kind == "class"
                else f"losses: {track.name} is a signal, and has no class_weights",
            )

    def _check_labels(self) -> None:
        """Check that samples are labeled with tracks of the model."""
        own = [track.name for track in self.model.own_tracks]
        for sample in self.samples:
            for name in sample.labels:
                require(name != CODING_FRAME.name, f"{sample.fasta}: labels of {name} are given as annotation")
                require(
                    name in own,
                    f"{sample.fasta}: labels of {name!r}, which is none of the model's own tracks: "
                    f"{', '.join(own) or 'it has none'}; describe them in [[model.own_tracks]]",
                )
            require(
                bool(sample.annotation or sample.labels),
                f"{sample.fasta}: neither annotation nor labels are given, so that nothing can be learned from it",
            )
