"""Linear projections of a Linformer: slot a holds sum_j E[a, j] k_j, up to a scale. README.md, "Linformer"."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional

from genoformer.attention.attention import Summary
from genoformer.attention.projections import Projection, Slots, check_sharing
from genoformer.attention.recompute import over_pieces

BANDED_ROW = 256
"""Numbers a token counts for where a piece reaches few slots: the shorter the pieces, the narrower their bands."""


def pooling(rank: int, tokens: int) -> Tensor:
    """Return the matrix that averages ``rank`` equal stretches of so many tokens (rank, tokens)."""
    slot = torch.arange(tokens) * rank // tokens
    members = functional.one_hot(slot, rank).T.float()
    return members / members.sum(dim=1, keepdim=True).clamp_min(1.0)


def started(pool: Tensor, sides: int, heads: int, start: str) -> nn.Parameter:
    """Return (sides, heads, ...) parameters: all at ``pool`` (..., n), or normal with a variance of 1 / n.

    Raises
    ------
    ValueError : there is no such start
    """
    if start not in ("pool", "normal"):
        raise ValueError(f"start must be pool or normal, got {start!r}")
    shape = (sides, heads, *pool.shape)
    if start == "pool":
        return nn.Parameter(pool.expand(shape).clone(memory_format=torch.contiguous_format))
    return nn.Parameter(torch.randn(shape) * pool.shape[-1] ** -0.5)


@dataclass(frozen=True)
class Sums:
    """Weighted sums over tokens; ``+`` adds them up. S is 2 where keys and values have matrices of their own."""

    keys: Tensor  # (B, H, R, D)
    values: Tensor | None  # (B, H, R, D); None where they are the same sums as the keys'
    ones: Tensor  # (B, S, H or 1, R): sums of the weights of each row
    squares: Tensor  # (B, S, H or 1, R): sums of their squares

    def __add__(self, other: Sums) -> Sums:
        values = None if self.values is None or other.values is None else self.values + other.values
        return Sums(self.keys + other.keys, values, self.ones + other.ones, self.squares + other.squares)


class Lengths:
    """Tokens of each sequence of a batch, as numbers too; one for all where they do not differ."""

    def __init__(self, lengths: Tensor) -> None:
        known = [max(int(n), 1) for n in lengths.tolist()] or [1]
        self.shortest, self.longest = min(known), max(known)
        self.each = lengths.clamp_min(1)[: 1 if self.shortest == self.longest else None, None]  # (B or 1, 1)


@dataclass(frozen=True)
class Band:
    """Columns of a projection's matrix for a piece of tokens, less the rows around that are zero."""

    first: int
    matrix: Tensor  # (B or 1, S, H or 1, R, T)


class Linear(Projection):
    """Base of the linear ones.

    Parameters
    ----------
    sides, heads : matrices of its own for keys and values (2) or the same (1); for each head, or for all (1)
    """

    def __init__(self, sides: int, heads: int) -> None:
        super().__init__()
        self.sides, self.heads = sides, heads

    @property
    def compresses_tokens(self) -> bool:  # type: ignore[override]
        return self.heads == 1

    @property
    def sums_are_alike(self) -> bool:
        """The same weights are summed up for keys and values."""
        return self.sides == 1

    @abstractmethod
    def rows(self, longest: int) -> int:
        """Return how many rows the matrix has for sequences of at most so many tokens."""

    @abstractmethod
    def scale(self, sums: Sums) -> tuple[Tensor, Tensor]:
        """Return what to multiply each slot by, and which are empty, (B, S, H or 1, M) both."""

    def spread(self, tensor: Tensor, side: int) -> Tensor:
        """Make slots (B, H, M, D) of rows (B, H, R, D)."""
        return tensor

    def slots(self, summary: Summary) -> Slots:
        assert isinstance(summary, Sums)
        scale, empty = self.scale(summary)
        keys = self.spread(summary.keys, 0) * scale[:, 0, ..., None]
        sums = summary.keys if summary.values is None else summary.values
        values = keys if summary.values is None and self.sides == 1 else self.spread(sums, -1) * scale[:, -1, ..., None]
        counts = summary.ones.expand(-1, self.sides, -1, -1)
        sides = [self.spread(counts[:, s, ..., None], s)[..., 0] for s in range(self.sides)]
        return Slots.of(keys, values, empty[:, 0], torch.stack(sides, dim=1) * scale)


class Banded(Linear):
    """Base of those that add up a matrix product for each piece of tokens."""

    row = 1
    """numbers in between that a token counts for, which decides the pieces' size"""

    def held(self, start: int, tokens: int) -> tuple[Sequence[Tensor], Sequence[Tensor]]:
        """Return the tensors that `band` takes: those with tokens along dimension 2, cut to a chunk, and whole ones.

        Raises
        ------
        ValueError : the projection does not reach so far
        """
        return [], []

    @abstractmethod
    def band(self, start: int, tokens: int, lengths: Lengths, held: Sequence[Tensor], like: Tensor) -> Band:
        """Return the columns of tokens [start, start + tokens)."""

    def compress(self, keys: Tensor, values: Tensor, start: int, lengths: Tensor, mask: Tensor | None) -> Sums:
        tokens, known = keys.shape[2], Lengths(lengths)
        count = self.rows(known.longest)
        sliced, whole = self.held(start, tokens)
        inputs = [keys] if values is keys else [keys, values]
        is_one = values is keys and self.sums_are_alike
        valid = [] if mask is None else [mask[:, None].to(keys.dtype)]  # (B, 1, T)

        def sums(piece: slice, *tensors: Tensor) -> tuple[Tensor, ...]:
            x, rest = tensors[: len(inputs)], tensors[len(inputs) :]
            shown, held = rest[: len(valid)], rest[len(valid) :]
            band = self.band(start + piece.start, piece.stop - piece.start, known, held, x[0])
            matrix = band.matrix
            products = [product(matrix[:, 0], x[0])]
            if not is_one:
                products.append(product(matrix[:, -1], x[-1]))
            if shown:
                seen = shown[0][:, None, None]  # (B, 1, 1, 1, T)
                ones, squares = (matrix * seen).sum(-1), (matrix.square() * seen).sum(-1)
            else:
                ones, squares = matrix.sum(-1), row_squares(matrix)
            before, after = band.first, count - band.first - matrix.shape[3]
            if before or after:
                products = [functional.pad(p, (0, 0, before, after)) for p in products]
                ones, squares = (functional.pad(p, (before, after)) for p in (ones, squares))
            return *products, ones, squares

        *found, ones, squares = over_pieces(
            sums, [*inputs, *valid, *sliced], whole, join="sum", row=self.row * keys.shape[0]
        )
        batch = keys.shape[0]
        ones, squares = (x.expand(batch, -1, -1, -1) for x in (ones, squares))
        return Sums(found[0], None if is_one else found[1], ones, squares)


def product(matrix: Tensor, x: Tensor) -> Tensor:
    """Multiply (B or 1, H or 1, R, T) by (B, H, T, D), all heads in one product where they share it."""
    if matrix.shape[1] == x.shape[1]:
        return matrix @ x
    flat = x.transpose(1, 2).flatten(2)  # (B, T, H D)
    single = len(x) == 1  # then not a batched product: it uses the cores better
    joined = (matrix[0, 0] @ flat[0])[None] if single else torch.bmm(matrix[:, 0].expand(len(x), -1, -1), flat)
    return joined.unflatten(2, (x.shape[1], x.shape[3])).transpose(1, 2)


def restored(sums: Sums, squares: Tensor) -> tuple[Tensor, Tensor]:
    """Return the scale that brings rows to their full sums of squares where tokens are missing, and which are empty."""
    empty = sums.squares <= 0
    ratio = squares / sums.squares.masked_fill(empty, 1.0)
    return ratio.masked_fill(empty, 1.0).sqrt(), empty


def row_squares(matrix: Tensor) -> Tensor:
    """Sum the squares of rows (..., T) without a matrix of them."""
    return torch.linalg.vector_norm(matrix, dim=-1).square()


class Learned(Banded):
    """A learned (rank, tokens) matrix (Wang et al. 2020, arXiv 2006.04768).

    A shorter sequence uses its first columns, with each row's norm restored; a longer one is refused.

    Parameters
    ----------
    rank, tokens : slots; tokens of the longest sequence
    heads, sharing : heads, of account where they share nothing; see `Sharing`
    start : "pool", means of equal stretches, or "normal", rows of about unit norm
    """

    def __init__(
        self, rank: int, tokens: int, *, heads: int = 1, sharing: str = "layerwise", start: str = "pool"
    ) -> None:
        super().__init__(*check_sharing(sharing, heads))
        self.row = rank
        self.matrix = started(pooling(rank, tokens), self.sides, self.heads, start)  # (S, H or 1, M, tokens)

    def rows(self, longest: int) -> int:
        return self.matrix.shape[2]

    def held(self, start: int, tokens: int) -> tuple[Sequence[Tensor], Sequence[Tensor]]:
        trained = self.matrix.shape[3]
        if start + tokens > trained:
            raise ValueError(
                f"this learned Linformer projection covers {trained} tokens, but the sequence reaches token "
                f"{start + tokens}; use a smaller window, or another projection (interpolated, seeded, mean, max, "
                "conv, dynamic)"
            )
        return [self.matrix[..., start : start + tokens].transpose(2, 3)], []

    def band(self, start: int, tokens: int, lengths: Lengths, held: Sequence[Tensor], like: Tensor) -> Band:
        return Band(0, held[0].transpose(2, 3)[None].to(like.dtype))

    def scale(self, sums: Sums) -> tuple[Tensor, Tensor]:
        return restored(sums, row_squares(self.matrix.to(sums.squares.dtype)))


class Seeded(Banded):
    """Random normal rows of unit norm, made again for each position from a saved seed and never stored."""

    _BLOCK = 1024

    def __init__(self, rank: int, *, seed: int = 0, heads: int = 1, sharing: str = "layerwise") -> None:
        super().__init__(*check_sharing(sharing, heads))
        self.rank = self.row = rank
        self.seed: Tensor
        self.register_buffer("seed", torch.tensor(seed, dtype=torch.int64))

    def rows(self, longest: int) -> int:
        return self.rank

    def band(self, start: int, tokens: int, lengths: Lengths, held: Sequence[Tensor], like: Tensor) -> Band:
        first, last = start // self._BLOCK, max(start + tokens - 1, start) // self._BLOCK
        columns = torch.cat([self._block(index) for index in range(first, last + 1)], dim=-1)
        offset = start - first * self._BLOCK
        return Band(0, columns[None, ..., offset : offset + tokens].to(like))

    def _block(self, index: int) -> Tensor:
        generator = torch.Generator().manual_seed(int(self.seed) * 1_000_003 + index)
        return torch.randn(self.sides, self.heads, self.rank, self._BLOCK, generator=generator)

    def scale(self, sums: Sums) -> tuple[Tensor, Tensor]:
        return restored(sums, sums.squares.new_ones(1))


class Convolution(Banded):
    """A strided convolution, kernel equal to stride: a slot a stride, so attending costs O(T^2 / stride) time."""

    row = 4 * BANDED_ROW  # strides may be short

    def __init__(self, stride: int, *, heads: int = 1, sharing: str = "layerwise", start: str = "pool") -> None:
        super().__init__(*check_sharing(sharing, heads))
        self.taps = started(torch.full((stride,), 1.0 / stride), self.sides, self.heads, start)  # (S, H or 1, stride)

    def rows(self, longest: int) -> int:
        return -(-longest // self.taps.shape[-1])

    def held(self, start: int, tokens: int) -> tuple[Sequence[Tensor], Sequence[Tensor]]:
        return [], [self.taps]

    def band(self, start: int, tokens: int, lengths: Lengths, held: Sequence[Tensor], like: Tensor) -> Band:
        stride, most = self.taps.shape[-1], self.rows(lengths.longest) - 1
        first, last = min(start // stride, most), min((start + max(tokens, 1) - 1) // stride, most)
        positions = torch.arange(start, start + tokens, device=like.device)
        slot = (positions // stride).clamp_max(most)
        members = slot == torch.arange(first, last + 1, device=like.device)[:, None]  # (R, T)
        taps = held[0].to(like.dtype)[..., positions % stride]  # (S, H or 1, T)
        return Band(first, (members * taps[:, :, None])[None])

    def scale(self, sums: Sums) -> tuple[Tensor, Tensor]:
        return restored(sums, self.taps.to(sums.squares.dtype).square().sum(-1, keepdim=True))


class Mean(Linear):
    """The mean of each of ``rank`` equal stretches of the sequence. Nothing to share."""

    def __init__(self, rank: int) -> None:
        super().__init__(1, 1)
        self.rank = rank

    def rows(self, longest: int) -> int:
        return self.rank

    def compress(self, keys: Tensor, values: Tensor, start: int, lengths: Tensor, mask: Tensor | None) -> Sums:
        batch, _, tokens, _ = keys.shape
        each = Lengths(lengths).each
        shown = keys.new_ones(()).expand(batch, 1, tokens, 1) if mask is None else mask[:, None, :, None].to(keys.dtype)

        def sums(piece: slice, *tensors: Tensor) -> tuple[Tensor, ...]:
            positions = torch.arange(start + piece.start, start + piece.stop, device=keys.device)
            slot = (positions * self.rank // each).clamp_max(self.rank - 1)  # (B or 1, T)
            return tuple(added_up(x, slot, self.rank) for x in tensors)

        inputs = [keys] if values is keys else [keys, values]
        *found, counts = over_pieces(sums, [*inputs, shown], join="sum", row=1)
        ones = counts[:, None, :, :, 0]  # (B, 1, 1, R)
        return Sums(found[0], None if values is keys else found[1], ones, ones)

    def scale(self, sums: Sums) -> tuple[Tensor, Tensor]:
        return 1.0 / sums.ones.clamp_min(1.0), sums.ones <= 0


def added_up(x: Tensor, slot: Tensor, count: int) -> Tensor:
    """Add up the tokens of each slot: (B, H, T, D), (B or 1, T) -> (B, H, count, D)."""
    batch, heads, tokens, dim = x.shape
    index = slot + count * torch.arange(batch, device=x.device)[:, None]  # (B, T)
    flat = x.transpose(1, 2).reshape(batch * tokens, heads * dim)
    sums = x.new_zeros(batch * count, heads * dim).index_add(0, index.flatten(), flat)
    return sums.view(batch, count, heads, dim).transpose(1, 2)


class Interpolated(Banded):
    """A learned (rank, grid) matrix, stretched linearly over the sequence whatever its length.

    Token j of n stands at (j + 1/2) grid / n - 1/2 on the grid. Tokens are shared out to their two neighbours there
    first, so that the matrix is applied once, and never formed for the sequence. A row keeps its L1 norm: weights are
    divided by what |row| comes to over the tokens present, so that a mean stays one.

    Parameters
    ----------
    rank, grid : slots; points of the grid, at least as many
    heads, sharing, start : as of `Learned`
    """

    row = BANDED_ROW

    def __init__(
        self, rank: int, grid: int, *, heads: int = 1, sharing: str = "layerwise", start: str = "pool"
    ) -> None:
        super().__init__(*check_sharing(sharing, heads))
        if grid < rank:
            raise ValueError(f"an interpolated projection needs a grid of at least its {rank} slots, got {grid}")
        self.matrix = started(pooling(rank, grid), self.sides, self.heads, start)  # (S, H or 1, M, grid)

    @property
    def sums_are_alike(self) -> bool:
        return True  # they are sums on the grid

    def rows(self, longest: int) -> int:
        return self.matrix.shape[3]

    def band(self, start: int, tokens: int, lengths: Lengths, held: Sequence[Tensor], like: Tensor) -> Band:
        # Places are whole numbers over 2 n, so that a token on a point of the grid leaves the others empty.
        last = start + max(tokens, 1) - 1
        first = self._place(start, lengths.longest) // (2 * lengths.longest)
        last = -(-self._place(last, lengths.shortest) // (2 * lengths.shortest))
        positions, twice = torch.arange(start, start + tokens, device=like.device), 2 * lengths.each  # (B or 1, 1)
        most = self.matrix.shape[3] - 1
        place = torch.minimum(((2 * positions + 1) * (most + 1) - lengths.each).clamp_min(0), twice * most)
        points = torch.arange(first, last + 1, device=like.device)[:, None]
        away = (place[:, None] - twice[..., None] * points).abs()  # (B or 1, R, T)
        weights = (twice[..., None] - away).clamp_min(0).to(like.dtype) / twice[..., None]
        return Band(first, weights[:, None, None])

    def _place(self, position: int, length: int) -> int:
        grid = self.matrix.shape[3]
        return min(max((2 * position + 1) * grid - length, 0), 2 * length * (grid - 1))

    def scale(self, sums: Sums) -> tuple[Tensor, Tensor]:
        size = self.matrix.to(sums.ones.dtype).abs()  # (S, H or 1, M, grid)
        met = (size @ sums.ones[..., None])[..., 0]  # (B, S, H or 1, M)
        empty = met <= 0
        return size.sum(-1) / met.masked_fill(empty, 1.0), empty

    def spread(self, tensor: Tensor, side: int) -> Tensor:
        return self.matrix[side].to(tensor.dtype) @ tensor
