"""Working piece by piece: the same results and gradients as in one go, and only the inputs are kept."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from genoformer.attention import attention, recompute
from genoformer.attention.recompute import Workspace, over_pieces, piece_size

from .cases import draw

TOKENS = 23


def softened(piece: slice, x: Tensor, y: Tensor, w: Tensor) -> tuple[Tensor, Tensor]:
    """Something not linear in anything, with two results."""
    h = torch.tanh(x @ w) * y
    return h, h.exp()


def totals(piece: slice, x: Tensor, y: Tensor, w: Tensor) -> tuple[Tensor, Tensor]:
    h, e = softened(piece, x, y, w)
    return h.sum(dim=2), e.sum(dim=2)


def mean(piece: slice, x: Tensor, y: Tensor, w: Tensor) -> tuple[Tensor, Tensor]:
    """A softmax mean over tokens, with the logarithm of its weights' sum."""
    scores = (torch.tanh(x) @ w).transpose(2, 3)  # (B, H, M, T)
    return scores.logsumexp(dim=-1), scores.softmax(dim=-1) @ y


def means(piece: slice, x: Tensor, y: Tensor, w: Tensor) -> tuple[Tensor, ...]:
    """Two of them, of different weights."""
    return *mean(piece, x, y, w), *mean(piece, y, x, w)


def inputs() -> list[Tensor]:
    x, y = draw(2, 3, TOKENS, 4, count=2)
    (w,) = draw(4, 4, seed=2, count=1)
    return [t.requires_grad_() for t in (x, y, w)]


@pytest.mark.parametrize("size", [1, 5, TOKENS - 1, TOKENS, 100])
@pytest.mark.parametrize(("function", "join"), [(softened, "cat"), (totals, "sum"), (mean, "log"), (means, "log")])
def test_pieces_do_not_show(function: object, join: str, size: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("genoformer.attention.attention.PIECE", size)
    x, y, w = inputs()
    got = over_pieces(function, [x, y], [w], join=join, row=1)  # type: ignore[arg-type]
    expected = function(slice(0, TOKENS), x, y, w)  # type: ignore[operator]
    weights = [draw(*out.shape, seed=seed, count=1)[0] for seed, out in enumerate(got)]
    for a, b in zip(got, expected, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-12, atol=1e-12)
    pairs = zip(
        *(
            torch.autograd.grad(sum((o * v).sum() for o, v in zip(r, weights, strict=True)), [x, y, w])
            for r in (got, expected)
        ),
        strict=True,
    )
    for a, b in pairs:
        torch.testing.assert_close(a, b, rtol=1e-12, atol=1e-12)


def test_inputs_without_gradients_get_none() -> None:
    x, y, w = inputs()
    (out, _) = over_pieces(softened, [x, y.detach()], [w.detach()], join="cat", row=1)
    out.sum().backward()
    assert x.grad is not None
    assert y.grad is None
    assert w.grad is None


def test_no_tokens() -> None:
    x, y, w = (t.detach() for t in inputs())
    out, _ = over_pieces(softened, [x[:, :, :0], y[:, :, :0]], [w], join="cat", row=1)
    assert out.shape == (2, 3, 0, 4)
    total, _ = over_pieces(totals, [x[:, :, :0], y[:, :, :0]], [w], join="sum", row=1)
    assert torch.equal(total, torch.zeros(2, 3, 4, dtype=torch.float64))


def test_only_inputs_are_kept() -> None:
    x, y, w = inputs()
    kept: list[Tensor] = []
    with torch.autograd.graph.saved_tensors_hooks(lambda t: kept.append(t) or t, lambda t: t):
        over_pieces(softened, [x, y], [w], join="cat", row=1)
    assert {t.data_ptr() for t in kept} == {t.data_ptr() for t in (x, y, w)}


def test_pieces_are_smaller_where_a_token_needs_more() -> None:
    cpu = torch.device("cpu")
    assert piece_size(512, cpu) * 512 == recompute._ROOM["cpu"]
    assert piece_size(1 << 30, cpu) == 256
    assert piece_size(1, cpu) == attention.PIECE
    assert piece_size(512, torch.device("cuda")) > attention.PIECE


def test_a_workspace_is_made_once_and_not_for_gradients() -> None:
    x = torch.zeros(2, 3, 10, 4)
    work = Workspace(x, torch.zeros(3, 7, 4))
    assert work.of(x) is None
    with torch.no_grad():
        first, second = work.of(x), work.of(x[:, :, :4])
    assert first is not None
    assert second is not None
    assert first.shape == (6, 10, 7)
    assert second.shape == (6, 4, 7)
    assert first.data_ptr() == second.data_ptr()


def test_results_written_in_place_are_the_same() -> None:
    written = []

    def scaled(piece: slice, x: Tensor, factor: Tensor, out: Tensor | None = None) -> tuple[Tensor]:
        written.append(None if out is None else out.data_ptr())
        return (torch.mul(x, factor, out=out),)

    x, factor = torch.randn(2, 3, 9000, 4, requires_grad=True), torch.randn(4, requires_grad=True)
    expected = over_pieces(scaled, [x], [factor], join="cat", row=1)[0]
    written.clear()
    given = over_pieces(scaled, [x], [factor], join="cat", row=1, width=4)[0]
    assert written == [given[:, :, start:].data_ptr() for start in range(0, 9000, attention.PIECE)]
    assert torch.equal(given, expected)
    wanted = torch.autograd.grad(expected.square().sum(), [x, factor])
    for got, grad in zip(torch.autograd.grad(given.square().sum(), [x, factor]), wanted, strict=True):
        assert torch.equal(got, grad)
