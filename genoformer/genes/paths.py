"""Genes through insertions and deletions: the best path of codon positions along the bases, exact and block by block.

States are the seven classes of CODING_FRAME. Stretches lie one behind the other; at their first bases a path may begin
in any state. The recursion runs over all blocks at once: first from every state a block may be entered in, then, once
the states between blocks are known, from that one (a max-plus product of matrices, evaluated in two passes).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from genoformer.genes.codons import GeneticCode, codons, common_starts
from genoformer.tokens import reverse_complement

STATES = 7
NONE = 0
"""The state of a base outside genes."""
_FORBIDDEN = -1e9


@dataclass(frozen=True)
class PathCosts:
    """Costs in nats, of a path whose bases are worth the logarithm of their probability times ``weight``.

    Chosen on reads with 1 and 5% errors of the validation genomes, by the F1 of bases.

    Attributes
    ----------
    weight : of a base; below 1, as neighbors say much the same
    floor : least probability of a base
    insertion, deletion : a base too many or too few within a gene
    enter, leave : begin or end a gene at a start or stop codon
    anywhere : begin or end it elsewhere, on top
    through : read through a stop codon
    """

    weight: float = 0.15
    floor: float = 1e-3
    insertion: float = 1.5
    deletion: float = 1.5
    enter: float = 1.0
    leave: float = 1.0
    anywhere: float = 3.0
    through: float = 2.0


def step_costs(costs: PathCosts) -> tuple[np.ndarray, np.ndarray]:
    """Return the worth of steps between states, and what marks add to it: (7, 7), (5, 7, 7), from and to.

    On + codon positions follow as 0 1 2, on - as 2 1 0. Codons that a gene may begin or end with take the cost of
    doing so anywhere off; a stop within a gene costs. Marks are in the order of `marks_of`.
    """
    matrix = np.full((STATES, STATES), _FORBIDDEN)
    matrix[NONE, NONE] = 0.0
    for first, ahead in ((1, 1), (4, -1)):
        for j in range(3):
            state = first + j
            matrix[NONE, state] = -costs.enter - costs.anywhere
            matrix[state, NONE] = -costs.leave - costs.anywhere
            matrix[state, first + (j + ahead) % 3] = 0.0
            matrix[state, state] = -costs.insertion
            matrix[state, first + (j - ahead) % 3] = -costs.deletion
    matrix[1:4, 4:7] = matrix[4:7, 1:4] = -costs.enter - costs.leave - 2 * costs.anywhere
    extra = np.zeros((5, STATES, STATES))
    plus, minus = slice(1, 4), slice(4, 7)
    extra[0, 3, 1] = -costs.through
    extra[0, 3, NONE] = extra[0, 3, minus] = costs.anywhere
    extra[1, NONE, 1] = extra[1, minus, 1] = costs.anywhere
    extra[2, 4, 6] = -costs.through
    extra[2, NONE, 6] = extra[2, plus, 6] = costs.anywhere
    extra[3, 4, NONE] = extra[3, 4, plus] = costs.anywhere
    return matrix, extra


def marks_of(codes: np.ndarray, first: np.ndarray, code: GeneticCode) -> np.ndarray:
    """Return the marks of each base: bool, (bases, 5).

    They are: a stop of + ends before it, a start of + begins with it, a stop of - begins with it (as its lowest base),
    a start of - ends before it, it is the first of a stretch.

    Parameters
    ----------
    codes : uint8, (bases,), of all stretches
    first : where stretches begin
    code : genetic code
    """
    marks = np.zeros((len(codes), 5), dtype=bool)
    marks[first, 4] = True
    if len(codes) >= 3:
        plus = codons(codes)
        minus = codons(reverse_complement(codes))[::-1]  # codon of the - strand whose lowest base is here
        whole = np.ones(len(plus), dtype=bool)  # no codon lies in two stretches
        for back in (1, 2):
            across = first[first >= back] - back
            whole[across[across < len(plus)]] = False
        common = common_starts() & ~code.stops
        marks[3:, 0] = (code.stops[plus] & whole)[:-1]
        marks[:-2, 1] = common[plus] & whole
        marks[:-2, 2] = code.stops[minus] & whole
        marks[3:, 3] = (common[minus] & whole)[:-1]
    marks[marks[:, 4], :4] = False
    return marks


def best_path(worth: np.ndarray, marks: np.ndarray, costs: PathCosts, *, block: int = 0) -> np.ndarray:
    """Return the best state of each base, exactly, however it is cut into blocks.

    Parameters
    ----------
    worth : float32, (bases, 7), of each state at each base
    marks : bool, (bases, 5), of `marks_of`
    costs : of steps
    block : bases of a block; 0: what is fast

    Returns
    -------
    ndarray of uint8, (bases,)
    """
    count = len(worth)
    if count == 0:
        return np.empty(0, dtype=np.uint8)
    block = block or max(64, int(count**0.5 / 2))
    blocks = -(-count // block)
    matrix, extra = step_costs(costs)
    padded = np.zeros((blocks * block, STATES), dtype=np.float32)
    padded[:count] = worth
    marked = np.full(blocks * block, 16, dtype=np.uint8)  # behind the end, anything at no cost
    marked[:count] = np.packbits(marks, axis=1, bitorder="little")[:, 0]
    bits = np.arange(32)[:, None] >> np.arange(5) & 1
    steps = (matrix + np.einsum("kn,nij->kij", bits, extra)).astype(np.float32)
    steps[16:] = 0.0  # a new stretch: any state after any
    values = padded.reshape(blocks, block, STATES)
    kinds = marked.reshape(blocks, block)
    entry = _entries(values, kinds, steps)
    return _trace(values, kinds, steps, entry).reshape(-1)[:count]


def _entries(values: np.ndarray, kinds: np.ndarray, steps: np.ndarray) -> np.ndarray:
    """Return the state on the best path just before each block, and behind the last: (blocks + 1,)."""
    blocks, block, _ = values.shape
    if blocks == 1:
        return np.zeros(2, dtype=np.int64)
    best = np.full((blocks, STATES, STATES), np.float32(_FORBIDDEN))  # entered in, now in
    best[:, np.arange(STATES), np.arange(STATES)] = 0.0
    for k in range(block):
        step = steps[kinds[:, k]]
        best = (best[:, :, :, None] + step[:, None]).max(axis=2) + values[:, k, None, :]
    reach = np.zeros(STATES)
    via = np.zeros((blocks, STATES), dtype=np.int64)
    for b in range(blocks):
        through = reach[:, None] + best[b]
        via[b] = through.argmax(axis=0)
        reach = through.max(axis=0)
    entry = np.empty(blocks + 1, dtype=np.int64)
    entry[blocks] = reach.argmax()
    for b in range(blocks - 1, -1, -1):
        entry[b] = via[b, entry[b + 1]]
    return entry


def _trace(values: np.ndarray, kinds: np.ndarray, steps: np.ndarray, entry: np.ndarray) -> np.ndarray:
    """Return the best path between the states at the borders of blocks: uint8, (blocks, block)."""
    blocks, block, _ = values.shape
    best = np.full((blocks, STATES), np.float32(_FORBIDDEN))
    best[np.arange(blocks), entry[:-1]] = 0.0
    via = np.empty((block, blocks, STATES), dtype=np.uint8)
    for k in range(block):
        through = best[:, :, None] + steps[kinds[:, k]]
        via[k] = through.argmax(axis=1)
        best = through.max(axis=1) + values[:, k]
    path = np.empty((blocks, block), dtype=np.uint8)
    here = best.argmax(axis=1) if blocks == 1 else entry[1:]
    every = np.arange(blocks)
    for k in range(block - 1, -1, -1):
        path[:, k] = here
        here = via[k, every, here]
    return path
