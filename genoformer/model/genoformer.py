"""The model: encoder, decoder and heads, and the builder that makes one from a configuration."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from genoformer.attention import Attention, Hybrid, Joint, Linformer, Local, Performer, Softmax
from genoformer.attention.linear_projections import Convolution as ConvolutionProjection
from genoformer.attention.linear_projections import Interpolated, Learned, Mean, Seeded
from genoformer.attention.projections import Dynamic, Max, Projection
from genoformer.config import ModelConfig
from genoformer.errors import ConfigError
from genoformer.model.convolution import Convolution
from genoformer.model.encoder import (
    LETTERS,
    WHOLE,
    Block,
    Encoder,
    Place,
    Resident,
    Span,
    Stem,
    called,
    inside,
    joined,
    kept,
    prepare,
    recomputed,
    spans,
    with_halo,
)
from genoformer.model.heads import HEADS, Head, Heads
from genoformer.model.inputs import INPUTS, stop_codons
from genoformer.tokens import PAD
from genoformer.tracks import Track

GRID = 4
"""Points a slot of an interpolated Linformer projection."""


class Decoder(nn.Module):
    """Return from tokens to bases, beside the stem's features of each base."""

    _REACH = 2

    def __init__(self, width: int, features: int, stride: int) -> None:
        super().__init__()
        self.stride = stride
        self.halo = -(-self._REACH // stride)
        self.norm = nn.LayerNorm(width)
        self.up = nn.Linear(width, stride * features)
        self.smooth = Convolution(features, features, kernel=2 * self._REACH + 1)

    def forward(self, tokens: Tensor, skip: Tensor, real: Tensor | None) -> Tensor:
        """Return features of the bases of some tokens.

        Parameters
        ----------
        tokens : (B, T + 2 halo, width): the tokens and ``halo`` neighbours to each side
        skip : stem features of the same bases, (B, (T + 2 halo) stride, features)
        real : which of these bases exist, (B or 1, (T + 2 halo) stride, 1), or None where all do

        Returns
        -------
        Tensor, (B, T stride, features)
        """
        x = kept(functional.gelu(self.up(self.norm(tokens)).view(skip.shape) + skip), real)
        side = self.halo * self.stride
        around = x[:, side - self._REACH : x.shape[1] - side + self._REACH]
        return x[:, side : x.shape[1] - side] + functional.gelu(self.smooth(around))


class Genoformer(nn.Module):
    """Per-base predictions of one or more tracks."""

    checkpoint: Any = None
    """what it was loaded from, see genoformer.model.checkpoint"""
    config: ModelConfig | None = None
    """its shape, if `build` made it"""
    most_bases: int | None = None
    """bases of the longest sequence that it can see, None where there is no limit"""

    def __init__(self, encoder: Encoder, decoder: Decoder, heads: Sequence[Head], *, inputs: Sequence[str]) -> None:
        super().__init__()
        self.encoder, self.decoder = encoder, decoder
        self.heads = Heads({head.track.name: head for head in heads})
        self.inputs = tuple(inputs)

    @property
    def tracks(self) -> list[Track]:
        return [head.track for head in self.heads.values()]  # type: ignore[misc]

    @property
    def held_fixed(self) -> tuple[str, ...]:
        """What the model looks up of its letters, so that it has no gradient with respect to them."""
        words = self.encoder.stem.words
        return self.inputs if words is None else (*self.inputs, f"words of {words.k} letters")

    @property
    def device(self) -> torch.device:
        return self.decoder.up.weight.device

    def sequence(self, codes: Tensor, *, mask: Tensor | None = None, genetic_code: int | Tensor = 11) -> Resident:
        """Prepare the resident sequence from codes (B, L) uint8; see `forward`."""
        if mask is not None:
            codes = codes.masked_fill(~mask, PAD)  # what is hidden must not show in what is derived from the codes
        return prepare(codes, self.derived(codes, genetic_code), mask, self.encoder.stem.stride)

    def derived(self, codes: Tensor, genetic_code: int | Tensor) -> list[Tensor]:
        """Compute the inputs (B, L, c) that depend on more than a base each, from codes (B, L), PAD where hidden."""
        if not self.inputs:
            return []
        if isinstance(genetic_code, int):
            stops = stop_codons(genetic_code)
        else:
            stops = torch.stack([stop_codons(int(code)) for code in genetic_code])
        return [INPUTS[name].compute(codes, stops) for name in self.inputs]

    def forward(
        self,
        codes: Tensor,
        *,
        mask: Tensor | None = None,
        genetic_code: int | Tensor = 11,
        chunk_size: int | None = None,
        place: Place = WHOLE,
    ) -> dict[str, Tensor]:
        """Predict logits.

        Parameters
        ----------
        codes : Tensor of uint8, (B, L); PAD behind shorter sequences. They may lie on another device than the model:
            the resident sequence stays there, chunks are moved to the model
        mask : Tensor of bool, (B, L), True at bases; default: where codes are not PAD
        genetic_code : NCBI translation table, or one for each sequence (B,)
        chunk_size : trunk tokens computed at a time; None is all at once. The result is the same
        place : what the sequences see beside themselves, see `genoformer.model.shared`; default: nothing

        Returns
        -------
        dict from track name to logits, (B, L, channels) float32
        """
        sequence = self.sequence(codes, mask=mask, genetic_code=genetic_code)
        return self.logits(sequence._replace(place=place), chunk_size=chunk_size)

    def logits(self, sequence: Resident, *, chunk_size: int | None = None) -> dict[str, Tensor]:
        """Predict the logits of the bases of a resident sequence; see `forward`."""
        tokens = sequence.place.around(self.encoder(sequence, chunk_size=chunk_size))
        own = sequence.place.own(tokens.shape[1])
        chunks = spans(own.end - own.start, chunk_size, first=own.start)
        call = recomputed if len(chunks) > 1 and torch.is_grad_enabled() else called
        parts = [call(self.decode, sequence, tokens, span) for span in chunks]
        return {name: joined([part[name] for part in parts]) for name in self.heads}  # type: ignore[index]

    @torch.inference_mode()
    def embed(
        self,
        codes: Tensor,
        *,
        layer: int = -1,
        mask: Tensor | None = None,
        genetic_code: int | Tensor = 11,
        chunk_size: int | None = None,
    ) -> Tensor:
        """Return the hidden states of a layer, of the strand that is given, without gradients.

        Parameters
        ----------
        codes, mask, genetic_code, chunk_size : see `forward`
        layer : 0 for what the stem makes, n for what block n returns; negative ones count from the last

        Returns
        -------
        Tensor, (B, T, width): a token for every ``encoder.stem.stride`` bases, T = ceil(L / stride); 0 at padding

        Raises
        ------
        ConfigError : there is no such layer
        """
        sequence = self.sequence(codes, mask=mask, genetic_code=genetic_code)
        return self.encoder(sequence, chunk_size=chunk_size, layers=self.layer(layer))

    def layer(self, number: int) -> int:
        """Return the number of a layer, counted from 0, the stem, where it is counted from the last."""
        last = len(self.encoder.blocks)
        if not -last - 1 <= number <= last:
            raise ConfigError(f"layer {number}: this model has the layers 0 (stem) to {last} (last block)")
        return number % (last + 1)

    def decode(self, sequence: Resident, tokens: Tensor, span: Span) -> dict[str, Tensor]:
        """Predict the logits of the bases of some tokens, from all tokens (B, T, width) of a resident sequence."""
        stem, halo = self.encoder.stem, self.decoder.halo
        start, end = (span.start - halo) * stem.stride, (span.end + halo) * stem.stride
        around = with_halo(tokens, span.start - halo, span.end + halo).to(self.device)
        skip = stem.features(sequence, start, end)
        length = sequence.bases.shape[1]
        features = self.decoder(around, skip, inside(length, sequence.base_mask, start, end, self.device))
        features = features[:, : length - span.start * stem.stride]
        return {name: head(features).to(tokens.device) for name, head in self.heads.items()}


def _projection(config: ModelConfig, index: int, heads: int) -> Projection:
    """Make the Linformer projection of a block."""
    rank, sharing = _rank(config, index), config.linformer_sharing
    seed = config.seed if sharing == "layerwise" else 1000 * config.seed + index

    def learned(kind: type[Learned | Interpolated], size: int) -> Projection:
        return kind(rank, size, heads=heads, sharing=sharing, start=config.linformer_start)

    def convolution() -> Projection:
        stride = -(-config.linformer_tokens // rank)
        return ConvolutionProjection(stride, heads=heads, sharing=sharing, start=config.linformer_start)

    makers = {
        "learned": lambda: learned(Learned, config.linformer_tokens),
        "interpolated": lambda: learned(Interpolated, GRID * rank),
        "seeded": lambda: Seeded(rank, seed=seed, heads=heads, sharing=sharing),
        "mean": lambda: Mean(rank),
        "max": lambda: Max(rank),
        "conv": convolution,
        "dynamic": lambda: Dynamic(rank, heads, config.width // config.heads, sharing=sharing),
    }
    return makers[config.linformer_projection]()


def _rank(config: ModelConfig, index: int) -> int:
    return config.linformer_ranks[index] if config.linformer_ranks else config.linformer_rank


Shared = dict[tuple[int, int], Projection]
"""Projections by slots and heads."""


def _attention(name: str, config: ModelConfig, *, heads: int, index: int, shared: Shared) -> Attention:
    """Make one mechanism of a block by its name."""
    if name == "hybrid":
        local = config.hybrid_local_heads
        return Hybrid(
            Local(radius=config.local_radius),
            _attention(config.hybrid_global, config, heads=heads - local, index=index, shared=shared),
            first_heads=local,
        )

    def performer() -> Performer:
        return Performer(
            heads,
            config.width // config.heads,
            count=config.performer_count,
            features=config.performer_features,
            max_temperature=config.performer_max_temperature or None,
            seed=1000 * config.seed + index,
        )

    def linformer() -> Linformer:
        if config.linformer_sharing != "layerwise":
            return Linformer(_projection(config, index, heads))
        alike = (_rank(config, index), heads)
        if alike not in shared:
            shared[alike] = _projection(config, index, heads)
        return Linformer(shared[alike])

    makers = {
        "softmax": lambda: Softmax(rotary=True),
        "local": lambda: Local(radius=config.local_radius),
        "performer": performer,
        "joint": lambda: Joint(performer(), radius=config.local_radius),
        "linformer": linformer,
    }
    return makers[name]()


def build(config: ModelConfig) -> Genoformer:
    """Build a model with fresh weights, the same ones for the same config; torch's own generator is left as it was."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(config.seed)
        channels = LETTERS + sum(INPUTS[name].channels for name in config.inputs)
        stem = Stem(
            channels,
            config.stem_channels,
            config.width,
            kernel=config.stem_kernel,
            stride=config.stem_stride,
            kmer=config.stem_kmer,
        )
        shared: Shared = {}
        blocks = [
            Block(
                config.width,
                config.heads,
                _attention(name, config, heads=config.heads, index=index, shared=shared),
                conv_kernel=config.conv_kernel,
                expansion=config.expansion,
            )
            for index, name in enumerate(config.attention)
        ]
        decoder = Decoder(config.width, config.stem_channels, config.stem_stride)
        heads = [HEADS[track.kind](config.stem_channels, track) for track in config.described_tracks]
        model = Genoformer(Encoder(stem, blocks), decoder, heads, inputs=config.inputs)
        model.config, model.most_bases = config, config.most_bases
        return model
