"""The configuration of a training: frozen dataclasses read from TOML; an impossible value is a ConfigError."""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace

from genoformer.config import ModelConfig
from genoformer.limits import (
    check_class_weights,
    check_seed,
    check_shares,
    listed,
    one_of,
    require,
    require_positive,
)
from genoformer.tracks import CODING_FRAME, MASKED_NUCLEOTIDE, Track

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
    accumulate : passes of each process whose gradients are added up for one step
    split_windows : several processes share out the positions of each window, instead of the windows of a step: for
        windows that are too long for one device. However many there are, a step is then the same
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
    synonyms : fraction of windows whose genes are rewritten with a codon usage drawn at random, their proteins kept, so
        that a model learns the usage from what it sees, and does not know the species of its training by it
    one_genome : fraction of steps whose windows are all of one organism, and share what global attention sums up, as
        contigs of an assembly may; those of each process and pass, without `split_windows`
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
    split_windows: bool = False
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
    synonyms: float = 0.0
    one_genome: float = 0.0
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
        for name in ("recode", "synonyms", "one_genome"):
            share = getattr(self, name)
            require(0 <= share <= 1, f"{name} must be from 0 to 1, got {share}")
        require(not (self.one_genome and self.split_windows), "one_genome: not with split_windows")
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
    samples_table : file of more of them, tab-separated, see genoformer.training.samples_table
    """

    model: ModelConfig = field(default_factory=ModelConfig)
    train: TrainConfig = field(default_factory=TrainConfig)
    samples: tuple[Sample, ...] = ()
    samples_table: str = ""

    def __post_init__(self) -> None:
        model, pretrain = self.model, self.train.pretrain
        shares = "performer" in model.attention or ("hybrid" in model.attention and model.hybrid_global == "performer")
        require(shares or not self.train.one_genome, "one_genome needs performer in attention, alone or in a hybrid")
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
