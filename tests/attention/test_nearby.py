"""What is kept of a whole sequence, with the tokens near some queries put back, is as good as all of it."""

from __future__ import annotations

import naive
import pytest
import torch

from genoformer.attention import Joint, Local, Softmax
from genoformer.attention import attention as contract
from genoformer.attention.nearby import far, looks_far, reach_of, with_near

from .cases import CASES, DIM, HEADS, RADIUS, Case, close, draw

TOKENS, SIZE = 90, 17
TOLERANCE = 1e-12  # as of chunks: sums in another order


@pytest.mark.parametrize("case", CASES.values(), ids=list(CASES))
def test_chunks_with_their_surroundings_equal_the_whole(case: Case, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(contract, "PIECE", 40)  # joint attention works in cells of a quarter of it
    module = case.module(dtype=torch.float64)
    q, k, v = draw(1, HEADS, TOKENS, DIM)
    expected = module(q, k, v)
    lengths, reach = torch.tensor([TOKENS]), reach_of(module)
    cuts = [(start, min(start + SIZE, TOKENS)) for start in range(0, TOKENS, SIZE)]

    def summary(start: int, end: int):
        return module.summarize(k[:, :, start:end], v[:, :, start:end], start=start, lengths=lengths)

    whole = None
    if looks_far(module):
        whole, *rest = [far(summary(*cut), module) for cut in cuts]
        for one in rest:
            whole = whole + one
        whole = module.finish(whole)
    for start, end in cuts:
        near = summary(max(start - reach, 0), min(end + reach, TOKENS))
        known = with_near(whole, near, module) if reach else whole
        close(module.attend(q[:, :, start:end], known, start=start), expected[:, :, start:end], TOLERANCE)


@pytest.mark.parametrize("name", [name for name, case in CASES.items() if case.linear])
def test_what_is_kept_does_not_grow_with_the_sequence(name: str) -> None:
    """But for exact softmax, whose queries ask for every key, and joint attention, which keeps sums for each cell."""
    module = CASES[name].module(dtype=torch.float64)
    if any(isinstance(part, Softmax | Joint) for part in module.modules()):
        return
    sizes = []
    for tokens in (60, 240):
        _, k, v = draw(1, HEADS, tokens, DIM)
        kept = far(module.summarize(k, v, lengths=torch.tensor([tokens])), module)
        sizes.append(numbers_in(kept))
    assert sizes[0] == sizes[1]


def numbers_in(value: object) -> int:
    if isinstance(value, torch.Tensor):
        return value.numel()
    return sum(numbers_in(part) for part in vars(value).values()) if hasattr(value, "__dict__") else 0


def test_reach() -> None:
    reaches = {name: reach_of(case.module(dtype=torch.float64)) for name, case in CASES.items()}
    assert reaches["local"] == RADIUS
    assert reaches["hybrid-performer"] == RADIUS
    assert reaches["softmax"] == 0


@pytest.mark.parametrize("tokens", [1, 31, 33, 129, 300])
@pytest.mark.parametrize("radius", [40, 70, 128])
@pytest.mark.parametrize("is_training", [True, False])
def test_blocks_smaller_than_the_radius(radius: int, tokens: int, is_training: bool) -> None:
    """Of batches, with hidden keys and without, at both ends, as the naive twin has it."""
    module = Local(radius=radius)
    q, k, v = draw(2, HEADS, tokens, DIM)
    shown = torch.ones(2, tokens, dtype=torch.bool)
    shown[1, tokens // 3 : tokens // 2] = False
    for mask in (None, shown):
        with torch.set_grad_enabled(is_training):
            got = module(q, k, v, mask=mask)
        close(got, naive.local(q, k, v, radius=radius, mask=mask), TOLERANCE)
