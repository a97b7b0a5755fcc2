"""The encoder: stem, blocks, and the streamed stack that computes them chunk by chunk with the same result."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.utils.checkpoint import checkpoint

from genoformer.attention import Attention, MultiHead, Summary
from genoformer.attention.attention import extents, in_float
from genoformer.model.convolution import Convolution, DepthwiseConvolution
from genoformer.tokens import PAD

LETTERS = 4
"""Channels of the stem's input that are letters; those of derived inputs follow, in the order of the configuration."""


class Span(NamedTuple):
    """Tokens [start, end) of a sequence."""

    start: int
    end: int


def spans(tokens: int, chunk_size: int | None, *, first: int = 0) -> list[Span]:
    """Cut so many tokens, from ``first`` on, into chunks; None is one chunk."""
    if chunk_size is not None and chunk_size < 1:
        raise ValueError(f"chunk_size must be at least 1 token, got {chunk_size}")
    size = max(tokens if chunk_size is None else chunk_size, 1)
    return [Span(first + start, first + min(start + size, tokens)) for start in range(0, max(tokens, 1), size)]


def with_halo(x: Tensor, start: int, end: int) -> Tensor:
    """Return positions [start, end) of (B, L, C), zeros where that reaches beyond the sequence."""
    length = x.shape[1]
    inner = x[:, max(start, 0) : min(end, length)]
    before, after = max(-start, 0), max(end - length, 0)
    return functional.pad(inner, (0, 0, before, after)) if before or after else inner


def inside(length: int, mask: Tensor | None, start: int, end: int, device: torch.device) -> Tensor | None:
    """Tell which positions of [start, end) are real: bool (B or 1, n, 1), or None where all are."""
    if mask is not None:
        return with_halo(mask[..., None], start, end).to(device)
    if start >= 0 and end <= length:
        return None
    position = torch.arange(start, end, device=device)
    return ((position >= 0) & (position < length))[None, :, None]


def kept(x: Tensor, real: Tensor | None) -> Tensor:
    """Put zeros where ``real`` is False."""
    return x if real is None else x * real


class Place:
    """Where a resident sequence lies. This one lies in one process, whole; `split.Part` is one that others continue."""

    offset = 0
    """position of the resident's first token in the whole sequence"""

    def own(self, tokens: int) -> Span:
        """Return which of the resident's tokens are computed here."""
        return Span(0, tokens)

    def around(self, x: Tensor) -> Tensor:
        """Return the resident's tokens (B, T, C) from those computed here."""
        return x

    def merged(self, summary: Summary, attention: Attention) -> Summary:
        """Return the summary of the whole sequence from that of the tokens computed here."""
        return summary


WHOLE = Place()


class Resident(NamedTuple):
    """A batch of sequences as the encoder sees it. It stays where it is; chunks are moved to the model's device."""

    bases: Tensor  # (B, L, C) float: one-hot letters and derived inputs, zero at padding
    base_mask: Tensor | None  # (B, L) bool, None where nothing is padding
    token_mask: Tensor | None  # (B, T) bool
    lengths: Tensor  # (B,) tokens of each whole sequence
    place: Place = WHOLE


class KmerEmbedding(nn.Module):
    """A learned vector for each word of k letters, looked up around each base: what codons and their pairs are worth.

    The word of a base reaches from ``(k - 1) // 2`` letters before it to ``k // 2`` behind it. Words with a letter that
    is not known have a vector of their own. All begin as zeros.
    """

    def __init__(self, k: int, features: int) -> None:
        super().__init__()
        self.k = k
        self.weight = nn.Parameter(torch.zeros(4**k + 1, features))

    def forward(self, letters: Tensor) -> Tensor:
        """Look words up: one-hot letters, 0 where not known, (B, L + k - 1, 4) -> (B, L, features)."""
        known = letters.amax(dim=-1) > 0
        codes = letters.argmax(dim=-1)
        length = codes.shape[1] - self.k + 1
        word, whole = torch.zeros_like(codes[:, :length]), torch.ones_like(known[:, :length])
        for place in range(self.k):
            word = 4 * word + codes[:, place : place + length]
            whole = whole & known[:, place : place + length]
        return functional.embedding(torch.where(whole, word, 4**self.k), self.weight)


class Stem(nn.Module):
    """Convolutions at full resolution, then one that makes a token of each ``stride`` bases."""

    def __init__(self, channels: int, features: int, width: int, *, kernel: int, stride: int, kmer: int = 0) -> None:
        super().__init__()
        self.stride, self.reach = stride, kernel // 2
        self.side = stride  # bases beyond its own that a token sees to each side
        self.first = Convolution(channels, features, kernel=kernel)
        self.down = Convolution(features, width, kernel=3 * stride, stride=stride)
        self.words = KmerEmbedding(kmer, features) if kmer else None

    def features(self, sequence: Resident, start: int, end: int) -> Tensor:
        """Return the features of bases [start, end), zero beyond the sequence: (B, end - start, features)."""
        bases = with_halo(sequence.bases, start - self.reach, end + self.reach).to(self.first.weight)
        x = self.first(bases)
        if self.words is not None:
            first = self.reach - (self.words.k - 1) // 2
            x = x + self.words(bases[:, first : first + end - start + self.words.k - 1, :LETTERS])
        x = functional.gelu(x)
        return kept(x, inside(sequence.bases.shape[1], sequence.base_mask, start, end, x.device))

    def forward(self, sequence: Resident, span: Span) -> Tensor:
        """Return tokens (B, span, width)."""
        start, end = span.start * self.stride, span.end * self.stride
        return self.down(self.features(sequence, start - self.side, end + self.side))


class Block(nn.Module):
    """Pre-norm block: short depthwise convolution and attention, then a feed-forward layer."""

    def __init__(self, width: int, heads: int, attention: Attention, *, conv_kernel: int, expansion: int) -> None:
        super().__init__()
        self.reach = conv_kernel // 2
        self.norm = nn.LayerNorm(width)
        self.mix = DepthwiseConvolution(width, kernel=conv_kernel)
        self.multihead = MultiHead(width, heads, attention)
        self.feed_forward = nn.Sequential(
            nn.LayerNorm(width), nn.Linear(width, expansion * width), nn.GELU(), nn.Linear(expansion * width, width)
        )

    def mixed(self, x: Tensor, span: Span, mask: Tensor | None) -> Tensor:
        """Return what a chunk's attention sees, (B, T, W), from the resident tokens: normalized, neighbours mixed."""
        start, end = span.start - self.reach, span.end + self.reach
        device = self.norm.weight.device
        h = self.norm(with_halo(x, start, end).to(device))
        h = kept(h, inside(x.shape[1], mask, start, end, device))
        return h[:, self.reach : h.shape[1] - self.reach] + self.mix(h)

    def update(self, x: Tensor, mixed: Tensor, summary: Summary, start: int) -> Tensor:
        """Return the chunk's new tokens from its old ones (B, T, W), mixed ones and the finished summary."""
        x = x + in_float(self.multihead.attend(mixed, summary, start=start))
        return x + in_float(self.feed_forward(x))


def recomputed(function: Callable, *arguments: object) -> object:
    """Call a function, keeping only its arguments for the backward pass, which calls it again."""
    return checkpoint(function, *arguments, use_reentrant=False, preserve_rng_state=False)


def called(function: Callable, *arguments: object) -> object:
    """Call a function."""
    return function(*arguments)


def joined(chunks: Sequence[Tensor]) -> Tensor:
    """Put chunks (B, T, C) one behind the other; a single one is not copied."""
    return chunks[0] if len(chunks) == 1 else torch.cat(list(chunks), dim=1)


class Encoder(nn.Module):
    """The stem and the blocks over one resident sequence, chunk by chunk."""

    def __init__(self, stem: Stem, blocks: Sequence[Block]) -> None:
        super().__init__()
        self.stem = stem
        self.blocks = nn.ModuleList(blocks)

    def forward(self, sequence: Resident, *, chunk_size: int | None = None, layers: int | None = None) -> Tensor:
        """Encode: (B, L, C) bases -> (B, T, width) tokens, T = ceil(L / stride), on the sequence's device.

        With ``layers``, the tokens after so many blocks: 0 is what the stem makes, None all of them.

        Every chunk size gives the same answer: the summaries of the chunks are merged before any is used, and
        convolutions take their neighbours from the resident sequence. With gradients and more than one chunk, chunks
        are computed again in the backward pass, so that memory is bounded by the chunk.
        """
        tokens = -(-sequence.bases.shape[1] // self.stem.stride)
        place = sequence.place
        own = place.own(tokens)
        chunks = spans(own.end - own.start, chunk_size, first=own.start)
        call = recomputed if len(chunks) > 1 and torch.is_grad_enabled() else called
        device = sequence.bases.device
        x = joined([in_float(call(self.stem, sequence, span)).to(device) for span in chunks])  # type: ignore[arg-type]
        real = None if sequence.token_mask is None else sequence.token_mask[:, own.start : own.end, None]
        x = kept(x, real)
        for block in list(self.blocks)[:layers]:
            assert isinstance(block, Block)
            x = joined(list(self._through(block, place.around(x), sequence, chunks, call)))
            x = kept(x, real)
        return x

    def _through(
        self, block: Block, x: Tensor, sequence: Resident, chunks: list[Span], call: Callable
    ) -> Iterator[Tensor]:
        """Yield the chunks of x after a block."""
        mask, place = sequence.token_mask, sequence.place
        device = block.norm.weight.device

        is_single = len(chunks) == 1  # then the mixed tokens serve both sides

        def summarize(x: Tensor, span: Span) -> tuple[Tensor | None, Summary]:
            mixed = block.mixed(x, span, mask)
            chunk_mask = None if mask is None else mask[:, span.start : span.end].to(device)
            summary = block.multihead.summarize(
                mixed, start=place.offset + span.start, lengths=sequence.lengths.to(device), mask=chunk_mask
            )
            return mixed if is_single else None, summary

        def update(x: Tensor, span: Span, summary: Summary, mixed: Tensor | None) -> Tensor:
            mixed = block.mixed(x, span, mask) if mixed is None else mixed
            tokens = x[:, span.start : span.end].to(device)
            return block.update(tokens, mixed, summary, place.offset + span.start).to(x.device)

        mixed, summary = call(summarize, x, chunks[0])
        for span in chunks[1:]:
            summary = summary + call(summarize, x, span)[1]
        summary = block.multihead.finish(place.merged(summary, block.multihead.attention))
        for span in chunks:
            yield call(update, x, span, summary, mixed)


def prepare(codes: Tensor, derived: Sequence[Tensor], mask: Tensor | None, stride: int) -> Resident:
    """Make the encoder's input of codes (B, L) uint8 and derived inputs (B, L, c): letters become one-hot, N zeros."""
    if mask is None:
        is_padding = codes == PAD
        mask = ~is_padding if bool(is_padding.any()) else None
    letters = (codes[..., None] == torch.arange(LETTERS, device=codes.device, dtype=codes.dtype)).float()
    bases = torch.cat([letters, *derived], dim=-1)
    batch, length = codes.shape
    tokens = -(-length // stride)
    lengths = torch.full((batch,), tokens, dtype=torch.int64, device=codes.device)
    if mask is None:
        return Resident(bases, None, None, lengths)
    token_mask = tokens_of(mask, stride)
    return Resident(bases * mask[..., None], mask, token_mask, extents(token_mask))


def tokens_of(mask: Tensor, stride: int) -> Tensor:
    """Tell which tokens have a real base: (B, L) -> (B, ceil(L / stride))."""
    return functional.pad(mask, (0, -mask.shape[1] % stride)).unflatten(1, (-1, stride)).any(dim=-1)
