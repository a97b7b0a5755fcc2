"""What a mechanism takes: operations, exponentials and memory, from its sizes alone; tested against measurements."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch

from genoformer.attention import attention as contract
from genoformer.attention.attention import Attention
from genoformer.attention.hybrid import Hybrid
from genoformer.attention.joint import Joint
from genoformer.attention.linear_projections import Banded, Convolution, Interpolated, Learned, Linear, Mean
from genoformer.attention.linformer import Linformer
from genoformer.attention.local import Local
from genoformer.attention.performer import Performer
from genoformer.attention.projections import Dynamic, Max
from genoformer.attention.recompute import at_once, piece_size
from genoformer.attention.softmax import Softmax

_BYTES = 4


@dataclass(frozen=True)
class Estimate:
    """What one sequence takes in float32 on a CPU, queries, keys and values given and not counted.

    Attributes
    ----------
    operations : floating-point operations of matrix products, forward; the backward pass takes 2 to 2.5 times as many,
        and where pieces are computed again, once more these
    exponentials : exponentials, sines and cosines, forward
    forward_bytes : most that is held at once without gradients, outputs and summary included
    training_bytes : kept from the forward for the backward pass
    state_bytes : the summary of all tokens, which is what streams and what is sent between devices
    """

    operations: int
    exponentials: int
    forward_bytes: int
    training_bytes: int
    state_bytes: int


@dataclass(frozen=True)
class _Numbers:
    """The same, in numbers rather than bytes, all heads together."""

    operations: float
    exponentials: float
    forward: float
    training: float
    state: float


def usual(name: str, heads: int, dim: int) -> Attention:
    """Return a mechanism by its name in ATTENTION, with the sizes that models have unless told otherwise."""
    makers: dict[str, Callable[[], Attention]] = {
        "softmax": lambda: Softmax(rotary=True),
        "local": Local,
        "performer": lambda: Performer(heads, dim),
        "linformer": lambda: Linformer(Mean(128)),
        "hybrid": lambda: Hybrid(Local(), Performer(heads - heads // 2, dim), first_heads=heads // 2),
        "joint": lambda: Joint(Performer(heads, dim)),
    }
    if name not in makers:
        raise ValueError(f"a mechanism is one of {', '.join(makers)}, got {name!r}")
    return makers[name]()


def estimate(tokens: int, dim: int, heads: int, mechanism: Attention | str) -> Estimate:
    """Estimate what attention among so many tokens takes.

    Parameters
    ----------
    tokens, dim, heads : of a sequence, of a head, of a layer
    mechanism : a module, or one of ATTENTION by its name: see `usual`

    >>> from genoformer.attention import Performer
    >>> linear, exact = (estimate(100_000, 32, 4, how) for how in (Performer(4, 32, count=128), "softmax"))
    >>> linear.operations / exact.operations
    0.00258
    """
    module = usual(mechanism, heads, dim) if isinstance(mechanism, str) else mechanism
    found = _numbers(module, tokens, dim, heads)
    sizes = (_BYTES * found.forward, _BYTES * found.training, _BYTES * found.state)
    return Estimate(round(found.operations), round(found.exponentials), *(round(size) for size in sizes))


def _numbers(module: Attention, n: int, d: int, h: int) -> _Numbers:
    if isinstance(module, Softmax):
        return _softmax(module, n, d, h)
    if isinstance(module, Local):
        return _local(module, n, d, h)
    if isinstance(module, Performer):
        return _performer(module, n, d, h)
    if isinstance(module, Linformer):
        return _linformer(module, n, d, h)
    if isinstance(module, Hybrid):
        return _hybrid(module, n, d, h)
    if isinstance(module, Joint):
        return _joint(module, n, d, h)
    raise ValueError(f"no estimate is known for {type(module).__name__}")


def _piece(n: int, row: float) -> int:
    """Tokens worked on at a time."""
    return min(n, piece_size(max(1, round(row)), torch.device("cpu")), contract.PIECE)


def _answers(n: int, d: int, piece: int, working: int) -> int:
    """Numbers held while pieces are answered: the first alone, later ones beside all outputs and those just copied."""
    last = min(piece, n - piece)
    later = n * d + piece * d + last * working
    return max(piece * working, later if last else 0)


def _softmax(module: Softmax, n: int, d: int, h: int) -> _Numbers:
    held = n * h * (2 * d + 1 + (2 * d if module.rotary else 0))  # scaled queries, outputs, log-sum-exp; rotated ones
    turns = 2 * n * d if module.rotary else 0
    return _Numbers(4 * n**2 * d * h, n**2 * h + turns, held, held, 2 * n * d * h)


def _local(module: Local, n: int, d: int, h: int) -> _Numbers:
    size = min(module.block, n)
    cut = [piece.stop - piece.start for piece in module.pieces(n, h * d, torch.device("cpu"))]
    blocks = [-(-piece // size) for piece in cut]
    pairs = size * (size + 2 * module.radius)  # of a block, those out of reach among them
    edges = (blocks[0] + blocks[-1]) if len(blocks) > 1 else blocks[0]  # where hidden keys are a dimension more
    turned = n * d if module.rotary else 0
    # Of a piece: queries, keys and values, rotated or not, and with hidden keys beside them; outputs.
    working = 6 * (d + 1) + (d if module.rotary else 0)
    return _Numbers(
        h * 4 * pairs * (sum(blocks) * d + edges),
        h * pairs * sum(blocks) + 2 * turned,
        h * _answers(n, d, cut[0], working),
        0,
        2 * n * d * h,
    )


def _performer(module: Performer, n: int, d: int, h: int) -> _Numbers:
    rows, kind = module.projection.shape[1], module.kind
    features = 2 * rows if kind.rows == "waves" else rows
    state = features * (d + 1)
    if not module.is_bounded:
        is_unit = module.max_temperature is not None
        piece = _piece(n, 0)
        held = max(_answers(n, d, piece, (2 if is_unit else 1) * d + 1), piece * (3 * d + 1 if is_unit else d + 1))
        saved = state + (4 if kind.is_tuned and is_unit else 2) * rows * d
        return _Numbers(
            8 * n * features * d * h, 2 * n * features * h, h * (held + state + rows * d), h * saved, h * state
        )
    is_relu = kind.function is not None and module.features.startswith("relu")
    exponentials = 0 if is_relu else 2 * n * features
    unit = 0 if module.max_temperature is None else d
    making = unit + (5 * rows if kind.rows == "waves" else rows * (1 if kind.function is None else 2 if is_relu else 3))
    using = rows + (0 if kind.is_exponential else features + 1) + d + 1
    held = n * d + _piece(n, h * features) * max(making, using)
    return _Numbers(
        h * n * (4 * rows * d + 4 * features * d + 2 * features),
        h * exponentials,
        h * (held + rows * d + 2 * state),  # the second one with the sums beside the values
        h * ((4 if kind.is_tuned else 2) * rows * d + state),
        h * state,
    )


def _linformer(module: Linformer, n: int, d: int, h: int) -> _Numbers:
    projection = module.projection
    if isinstance(projection, Max):
        slots, products, exponentials, held, state = projection.rank, 0.0, 0, 0.0, 2.0 * projection.rank * d
        kept = float(n)
    elif isinstance(projection, Dynamic):
        slots = projection.latents.shape[2]
        products, exponentials, held, kept = 8.0 * n * slots * d, 2 * n * slots, 0.0, 0.0
        state = 2 * slots * (d + 1)
    elif isinstance(projection, Linear):
        slots, products, held = _linear(projection, n, d, h)
        exponentials, state = 0, 2 * projection.rows(n) * (d + projection.sides * projection.heads / h)
        kept = 1.0 * slots * projection.rows(n) if isinstance(projection, Interpolated) else 0.0
    else:
        raise ValueError(f"no estimate is known for {type(projection).__name__}")
    answer = n * (d + 1)  # and the log-sum-exp of the kernel
    return _Numbers(
        h * (products + 4 * n * slots * d),
        h * (exponentials + n * slots),
        h * (max(answer + 2 * slots * d, held) + state),
        h * (answer + kept + 4 * slots * d),
        h * state,
    )


def _linear(projection: Linear, n: int, d: int, h: int) -> tuple[int, float, float]:
    """Return slots, operations to compress to them, and numbers held meanwhile, the last two for each head."""
    rows = projection.rows(n)
    if isinstance(projection, Mean):
        return rows, 0.0, min(n, contract.PIECE) * 1.0 * d  # flat copies of keys, then of values
    assert isinstance(projection, Banded)
    piece = _piece(n, projection.row)
    mean = (n // piece * piece**2 + (n % piece) ** 2) / n  # size of the piece that a token is in
    if isinstance(projection, Convolution):
        band = mean * rows / n + 0.5  # rows that a piece reaches
        return rows, 4.0 * n * d * band, piece * max(d, 2.5 * band / h)
    if isinstance(projection, Interpolated):
        slots, band = projection.matrix.shape[2], mean * rows / n + 2
        return slots, 4.0 * d * (n * band + slots * rows), piece * max(d, 6.3 * band / h)
    made = 1 if isinstance(projection, Learned) else 2  # its squares; random numbers, and what is cut from them
    return rows, 4.0 * n * rows * d, piece * max(d, made * rows / h)


def _hybrid(module: Hybrid, n: int, d: int, h: int) -> _Numbers:
    split = module.first_heads
    first, second = _numbers(module.first, n, d, split), _numbers(module.second, n, d, h - split)
    return _Numbers(
        first.operations + second.operations,
        first.exponentials + second.exponentials,
        max(first.forward + second.state, n * d * split + second.forward, 2 * n * d * h),
        first.training + second.training,
        first.state + second.state,
    )


def _joint(module: Joint, n: int, d: int, h: int) -> _Numbers:
    m, r, c = module.performer.count, module.radius, module.cell
    cells, blocks = -(-n // c), -(-n // r)
    padded = (blocks + 2 * cells) * r  # keys of all cells, with a block to each side
    strip = m * (d + 1)
    features = 2 * m * (d + 2) * (2 * n + padded)
    summed = 2 * m * (d + 1) * (n + padded)
    others = 2 * strip * blocks * (min(c, n) // r + 2)  # sums of a cell's blocks, for each of its blocks
    edges = 4 * r * (m + d + 1)  # of two blocks at the edge of reach, a query
    at_hand = min(c, n)
    group = min(h, at_once(at_hand * m, torch.device("cpu")))  # heads whose features are there at once
    working = at_hand * 7 * d + group / h * (at_hand * (2.1 * m + 1.5 * r) + 3 * at_hand / r * strip)
    return _Numbers(
        h * (features + summed + others + blocks * r * (edges + 2 * strip) + 12 * blocks * r**2 * d),
        h * ((2 * n + padded) * m + n * (3 * r + 1)),
        h * (n * d + 4 * cells * strip + working),
        h * cells * strip,
        h * (2 * n * d + 3 * cells * strip),
    )
