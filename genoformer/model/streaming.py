"""One attention context over a whole sequence, whatever its length, in device memory that depends on the chunk alone.

The tokens of a layer lie in `Rows`, in memory or in a file. Chunks of them come to the device, twice for a block with
global attention (to be summarized, then to be answered), once for one that looks around itself only. What depends on a
token's neighbors takes them from the rows, and bases are made of codes anew where they are needed. Of several processes
each has consecutive tokens; before each block they swap those at their edges, and then merge their summaries.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import reduce
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch import distributed as dist

from genoformer.attention import Summary
from genoformer.attention.attention import in_float
from genoformer.attention.distributed import merge
from genoformer.attention.exchange import Exchange
from genoformer.attention.nearby import far, looks_far, reach_of, with_near
from genoformer.errors import ResourceError, is_out_of_memory
from genoformer.model.device import CPU_CHUNK
from genoformer.model.encoder import Block, Resident, Span, prepare
from genoformer.model.genoformer import Genoformer
from genoformer.model.inputs import INPUTS, MARGIN, stop_codons
from genoformer.model.rows import Scratch
from genoformer.model.split import own_span
from genoformer.model.stops import Codes, StopTable

DEVICE_CHUNK = 65_536
"""Tokens computed at a time on other devices than a CPU: about 0.7 GB of activations of the bundled model."""
LEAST_CHUNK = 64
"""Tokens of the smallest chunk that is tried where memory runs out."""
_LOG = logging.getLogger(__name__)


@dataclass
class Chunks:
    """How tokens are computed, so many at a time: half as many where memory runs out, and so it stays.

    Attributes
    ----------
    size : tokens
    device : the model's
    precision : "float32", or "bfloat16" for the products of the layers
    """

    size: int
    device: torch.device
    precision: str = "float32"

    def through(self, own: Span, step: Callable[[Span], None]) -> Iterator[Span]:
        """Call ``step`` with one chunk after the other, and yield each that is done.

        Raises
        ------
        ResourceError : not even the smallest chunk fits
        """
        start = own.start
        while start < own.end:
            span = Span(start, min(start + self.size, own.end))
            if self._fits(step, span):
                yield span
                start = span.end

    def _fits(self, step: Callable[[Span], None], span: Span) -> bool:
        """Do a step, and tell whether there was memory for it."""
        try:
            with torch.autocast(self.device.type, torch.bfloat16, enabled=self.precision == "bfloat16"):
                step(span)
            return True
        except (MemoryError, RuntimeError) as error:
            if not is_out_of_memory(error) or isinstance(error, ResourceError):
                raise
            said = (str(error).strip().splitlines() or [type(error).__name__])[0]
        tokens = span.end - span.start
        if tokens <= LEAST_CHUNK:
            raise ResourceError(
                f"out of memory even in chunks of {tokens} tokens ({said}); use a machine or --device with more "
                "memory, or windows instead of --whole-sequence"
            )
        if self.device.type == "cuda":
            torch.cuda.empty_cache()
        self.size = max(tokens // 2, LEAST_CHUNK)
        _LOG.warning("out of memory: chunks of %d tokens instead of %d", self.size, tokens)
        return False


@dataclass(frozen=True)
class Streamed:
    """A sequence to be streamed.

    Attributes
    ----------
    codes : gives the codes of any span of it
    length : bases, at least one
    genetic_code : NCBI translation table
    chunks : how it is computed
    scratch : makes the rows that hold its tokens meanwhile
    exchange : with the other processes that hold tokens of it; None where there are none
    tick : called with the share of this process's work that a chunk was; all of them add up to 1
    """

    codes: Codes
    length: int
    genetic_code: int
    chunks: Chunks
    scratch: Scratch
    exchange: Exchange | None = None
    tick: Callable[[float], None] = field(default=lambda _: None)


def chunks_for(device: torch.device, size: int | None, *, precision: str) -> Chunks:
    """Return chunks of so many tokens: of what suits the device where it is None, of all at once where it is 0."""
    if size is None:
        size = CPU_CHUNK if device.type == "cpu" else DEVICE_CHUNK
    return Chunks(size or 1 << 62, device, precision)


def exchange_for(model: Genoformer, length: int) -> Exchange:
    """Return the exchange of a sequence whose tokens are shared out evenly over the processes of the default group."""
    stride, ranks = model.encoder.stem.stride, dist.get_world_size()
    spans = [own_span(length, stride=stride, rank=rank, ranks=ranks) for rank in range(ranks)]
    return Exchange(bounds=[(-(-span.start // stride), -(-span.stop // stride)) for span in spans])


@torch.inference_mode()
def stream_values(model: Genoformer, sequence: Streamed) -> Iterator[tuple[int, Tensor]]:
    """Yield the values of this process's bases, in chunks: position of the first base, and float32 (bases, channels).

    The channels of all tracks lie side by side. Put together they are what the model's heads predict of the whole
    sequence at once, for the strand that is given. Processes with an exchange must all go through to the end.

    Raises
    ------
    ResourceError : memory, or the disk for rows, is lacking
    """
    yield from _Stream(model, sequence).values()


class _Piece(NamedTuple):
    """Consecutive tokens (1, n, width) on the CPU, the first of which stands at ``start``."""

    start: int
    tokens: Tensor

    def local(self, span: Span) -> Span:
        return Span(span.start - self.start, span.end - self.start)

    def cut(self, start: int, end: int) -> _Piece:
        return _Piece(start, self.tokens[:, start - self.start : end - self.start])


class _Stream:
    """The computation of one sequence."""

    def __init__(self, model: Genoformer, sequence: Streamed) -> None:
        self.model, self.sequence, self.stem = model, sequence, model.encoder.stem
        self.blocks: list[Block] = list(model.encoder.blocks)  # type: ignore[arg-type]
        self.width = self.stem.down.weight.shape[1]
        self.tokens = -(-sequence.length // self.stem.stride)
        self.own = Span(0, self.tokens) if sequence.exchange is None else Span(*sequence.exchange.own)
        count = self.own.end - self.own.start
        self.rows = sequence.scratch.rows(count, self.width)
        self.lengths = torch.tensor([self.tokens], device=model.device)
        self.stops = None
        if model.inputs:
            self.stops = StopTable(sequence.codes, sequence.length, genetic_code=sequence.genetic_code)
        passes = 2 + sum(1 + looks_far(block.multihead.attention) for block in self.blocks)
        self.share = 1 / (passes * max(count, 1))

    def values(self) -> Iterator[tuple[int, Tensor]]:
        for span in self.sequence.chunks.through(self.own, self._embed):
            self._tell(span)
        for block in self.blocks:
            self._through(block)
        yield from self._decoded()

    def _tell(self, span: Span) -> None:
        self.sequence.tick((span.end - span.start) * self.share)

    def _bases(self, start: int, end: int) -> Resident:
        """Make the encoder's input of bases [start, end), as far as there are any."""
        end = min(end, self.sequence.length)
        codes = torch.from_numpy(self.sequence.codes(start - MARGIN, end + MARGIN))[None].to(self.model.device)
        derived: list[Tensor] = []
        if self.stops is not None:
            around, table = self.stops.around(start, end), stop_codons(self.sequence.genetic_code)
            derived = [INPUTS[name].compute(codes, table, around) for name in self.model.inputs]
        return prepare(codes[:, MARGIN:-MARGIN], derived, None, self.stem.stride)

    def _embed(self, span: Span) -> None:
        """Make tokens of bases."""
        stride = self.stem.stride
        margin = -(-(self.stem.side + self.stem.reach) // stride)
        first = max(span.start - margin, 0)
        bases = self._bases(first * stride, (span.end + margin) * stride)
        self._keep(span, self.stem(bases, Span(span.start - first, span.end - first)))

    def _keep(self, span: Span, tokens: Tensor) -> None:
        self.rows.write(span.start - self.own.start, in_float(tokens)[0])

    def _pieces(self, reach: int, step: Callable[[_Piece, Span], None]) -> Iterator[Span]:
        """Call ``step`` with each chunk, and the tokens up to ``reach`` around it as they were before this pass."""
        (first, last), chunks = self.own, self.sequence.chunks
        behind, ahead = self._edges(reach)
        seen = behind

        def look(span: Span) -> None:
            nonlocal seen
            inner = self.rows.read(span.start - first, min(span.end + reach, last) - first)[None]
            more = ahead.tokens[:, : max(span.end + reach - last, 0)]
            seen = _Piece(behind.start, torch.cat([behind.tokens, inner, more], dim=1))
            step(seen, span)

        for span in chunks.through(self.own, look):
            behind = seen.cut(max(span.end - reach, seen.start), span.end)  # the next chunk looks back on these
            yield span

    def _edges(self, reach: int) -> tuple[_Piece, _Piece]:
        """Return up to ``reach`` tokens before and behind this process's own."""
        (first, last), exchange = self.own, self.sequence.exchange
        if exchange is None:
            none = torch.zeros(1, 0, self.width)
            return _Piece(first, none), _Piece(last, none)
        edge, count = min(reach, last - first), last - first
        head, tail = (self.rows.read(*span)[None].to(self.model.device) for span in ((0, edge), (count - edge, count)))
        left, right = (tokens.cpu() for tokens in exchange.halo(head, tail, reach))
        return _Piece(first - left.shape[1], left), _Piece(last, right)

    def _through(self, block: Block) -> None:
        """Take all tokens through a block."""
        attention = block.multihead.attention
        radius = reach_of(attention)
        whole = block.multihead.finish(self._summary(block)) if looks_far(attention) else None

        def update(piece: _Piece, span: Span) -> None:
            wide = Span(max(span.start - radius, 0), min(span.end + radius, self.tokens))
            mixed = block.mixed(piece.tokens, piece.local(wide), None)
            known: Any = whole
            if radius:
                near = block.multihead.summarize(mixed, start=wide.start, lengths=self.lengths)
                known = with_near(whole, near, attention)
            lead = span.start - wide.start
            tokens = piece.cut(*span).tokens.to(self.model.device)
            self._keep(span, block.update(tokens, mixed[:, lead : lead + tokens.shape[1]], known, span.start))

        for span in self._pieces(block.reach + radius, update):
            self._tell(span)

    def _summary(self, block: Block) -> Summary:
        """Return what every query of a block asks for, of the whole sequence."""
        attention, exchange, total = block.multihead.attention, self.sequence.exchange, _Total()

        def add(mixed: Tensor, start: int) -> None:
            total.add(far(block.multihead.summarize(mixed, start=start, lengths=self.lengths), attention))

        def look(piece: _Piece, span: Span) -> None:
            add(block.mixed(piece.tokens, piece.local(span), None), span.start)

        for span in self._pieces(block.reach, look):
            self._tell(span)
        if total.is_empty:
            add(torch.zeros(1, 0, self.width, device=self.model.device), self.own.start)
        return total.sum() if exchange is None else merge(total.sum(), exchange, attention)

    def _decoded(self) -> Iterator[tuple[int, Tensor]]:
        stride, heads = self.stem.stride, self.model.heads
        reach = self.model.decoder.halo + -(-self.stem.reach // stride)
        found = torch.empty(0)

        def decode(piece: _Piece, span: Span) -> None:
            nonlocal found
            bases = self._bases(piece.start * stride, (span.end + reach) * stride)
            logits = self.model.decode(bases, piece.tokens.to(self.model.device), piece.local(span))
            values = [head.predict(logits[name])[0] for name, head in heads.items()]  # type: ignore[operator]
            most = self.sequence.length - span.start * stride
            found = torch.cat(values, dim=-1)[: min((span.end - span.start) * stride, most)].float().cpu()

        for span in self._pieces(reach, decode):
            self._tell(span)
            yield span.start * stride, found


class _Total:
    """A sum of summaries, added up in pairs, pairs of pairs and so on: what grows is copied seldom."""

    def __init__(self) -> None:
        self._parts: list[tuple[int, Any]] = []

    @property
    def is_empty(self) -> bool:
        return not self._parts

    def add(self, summary: Any) -> None:
        parts, count = list(self._parts), 1
        while parts and parts[-1][0] == count:
            summary, count = parts.pop()[1] + summary, 2 * count
        self._parts = [*parts, (count, summary)]

    def sum(self) -> Any:
        return reduce(lambda behind, part: part + behind, [part for _, part in reversed(self._parts)])
