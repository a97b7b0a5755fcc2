"""Attention on graphs: equal to its twin, to a Performer where all are neighbors, and indifferent to order and pieces.

Tolerances as in test_twins.py and test_laws.py: 1e-9 against another formula, 1e-12 where sums change their order.
"""

from __future__ import annotations

import doctest
import gc

import naive
import pytest
import torch
from torch import Tensor

from genoformer.attention import Performer, graph
from genoformer.attention.graph import GraphPerformer

from .cases import CASES, DIM, HEADS, Case, close, draw, gradients

POSITIVE = {
    name: case for name, case in CASES.items() if case.features is not None and case.features != "trigonometric"
}
every_kind = pytest.mark.parametrize("case", POSITIVE.values(), ids=list(POSITIVE))
NODES = 11


def performer(case: Case) -> Performer:
    module = case.module(dtype=torch.float64).eval()
    assert isinstance(module, Performer)
    return module


def random_edges(count: int, *, sources: int = NODES, targets: int = NODES, seed: int = 0) -> Tensor:
    """Some doubled, some from a node to itself, the last target without any."""
    generator = torch.Generator().manual_seed(seed)
    ends = [torch.randint(0, most, (count,), generator=generator) for most in (sources, targets - 1)]
    edges = torch.stack(ends)
    return torch.cat([edges, edges[:, : count // 3]], dim=1)


def complete(nodes: int) -> Tensor:
    return torch.cartesian_prod(torch.arange(nodes), torch.arange(nodes)).T


@pytest.fixture
def small_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(graph, "piece_size", lambda row, device: 4)


def check_twin(case: Case, edges: Tensor, *, mask: Tensor | None, weighted: bool, scale: float = 1.0) -> None:
    module = performer(case)
    attend = GraphPerformer(module)
    q, k, v = (x.requires_grad_() for x in draw(2, HEADS, NODES, DIM, seed=1))
    weights = torch.rand(edges.shape[1], dtype=torch.float64, generator=torch.Generator().manual_seed(4))
    doubled = edges.shape[1] // 4
    weights[:doubled:2] = 0.0  # their doubles keep their weights: a target without any has no gradient for them
    inputs = [q, k, v, *module.parameters(), *([weights.requires_grad_()] if weighted else [])]
    given = weights if weighted else None
    got = attend(scale * q, scale * k, v, edges, weights=given, mask=mask)

    def twin(q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None) -> Tensor:
        return case.twin(module, q, k, v, mask)

    expected = naive.graph(scale * q, scale * k, v, edges, twin=twin, weights=given, mask=mask)
    close(got, expected, 1e-9, "output")
    assert not got[:, :, -1].any()  # it has no neighbor
    for i, (mine, theirs) in enumerate(zip(gradients(got, inputs), gradients(expected, inputs), strict=True)):
        close(mine, theirs, 1e-9, f"gradient {i}")


@pytest.mark.parametrize("weighted", [False, True], ids=["plain", "weighted"])
@every_kind
def test_equals_its_twin(case: Case, weighted: bool, small_pieces: None) -> None:
    holes = torch.rand(2, NODES, generator=torch.Generator().manual_seed(2)) < 0.6
    for mask in (None, holes):
        check_twin(case, random_edges(30), mask=mask, weighted=weighted)


@every_kind
def test_sharp_scores(case: Case) -> None:
    check_twin(case, random_edges(30), mask=None, weighted=False, scale=3.0)


@every_kind
def test_on_a_complete_graph_it_is_the_performer(case: Case) -> None:
    module, (q, k, v) = performer(case), draw(2, HEADS, NODES, DIM)
    mask = torch.rand(2, NODES, generator=torch.Generator().manual_seed(2)) < 0.6
    close(GraphPerformer(module)(q, k, v, complete(NODES)), module(q, k, v), 1e-12)
    close(GraphPerformer(module)(q, k, v, complete(NODES), mask=mask), module(q, k, v, mask=mask), 1e-12)


def default() -> GraphPerformer:
    return GraphPerformer(performer(POSITIVE["performer-positive"]))


def test_pieces_and_the_order_of_edges_do_not_matter(monkeypatch: pytest.MonkeyPatch) -> None:
    attend, edges = default(), random_edges(40)
    inputs = [x.requires_grad_() for x in draw(2, HEADS, NODES, DIM)]
    whole = attend(*inputs, edges)
    expected = gradients(whole, inputs)
    order = torch.randperm(edges.shape[1], generator=torch.Generator().manual_seed(3))
    for size in (1, 3, 7, 100):
        monkeypatch.setattr(graph, "piece_size", lambda row, device, size=size: size)
        for shown in (edges, edges[:, order]):
            got = attend(*inputs, shown)
            close(got, whole, 1e-12)
            for mine, theirs in zip(gradients(got, inputs), expected, strict=True):
                close(mine, theirs, 1e-12)


def test_numbering_of_nodes_does_not_matter() -> None:
    attend, edges, (q, k, v) = default(), random_edges(40), draw(2, HEADS, NODES, DIM)
    order = torch.randperm(NODES, generator=torch.Generator().manual_seed(3))
    renamed = order.argsort()[edges]
    expected = attend(q, k, v, edges)[:, :, order]
    close(attend(*(x[:, :, order] for x in (q, k, v)), renamed), expected, 1e-12)


def test_doubled_edges_count_twice_as_a_weight_of_two_does() -> None:
    attend, (q, k, v) = default(), draw(2, HEADS, NODES, DIM)
    edges = torch.tensor([[0, 1, 2, 2], [5, 5, 5, 6]])
    doubled = attend(q, k, v, torch.cat([edges, edges[:, :1]], dim=1))
    close(doubled, attend(q, k, v, edges, weights=torch.tensor([2.0, 1.0, 1.0, 1.0])), 1e-12)
    assert not torch.allclose(doubled[:, :, 5], attend(q, k, v, edges)[:, :, 5])
    close(doubled[:, :, 6], v[:, :, 2], 1e-12)  # a single neighbor is copied


def test_a_weight_of_zero_is_no_edge_whatever_its_score() -> None:
    attend = GraphPerformer(performer(POSITIVE["performer-positive-natural"]))
    q, k, v = (x.float() for x in draw(1, HEADS, NODES, DIM, scale=30.0))
    attend.float()
    edges = random_edges(40)
    weights = (torch.arange(edges.shape[1]) % 2).float()
    close(attend(q, k, v, edges, weights=weights), attend(q, k, v, edges[:, weights > 0]), 1e-5)


def test_hidden_nodes_have_no_influence_not_even_nan() -> None:
    attend, edges, (q, k, v) = default(), random_edges(40), draw(1, HEADS, NODES, DIM)
    mask = torch.ones(1, NODES, dtype=torch.bool)
    mask[0, 3:6] = False
    kept = mask[0, edges[0]]
    expected = attend(q, k, v, edges[:, kept])
    k[:, :, 3:6], v[:, :, 3:6] = float("nan"), float("inf")
    close(attend(q, k, v, edges, mask=mask), expected, 1e-12)


def test_sources_need_not_be_targets_and_there_may_be_no_edges() -> None:
    attend, (q,), (k, v) = default(), draw(2, HEADS, 3, DIM, count=1), draw(2, HEADS, 9, DIM, count=2)
    everything = torch.cartesian_prod(torch.arange(9), torch.arange(3)).T
    close(attend(q, k, v, everything), attend.performer(q, k, v), 1e-12)
    leaves = [x.requires_grad_() for x in (q, k, v)]
    out = attend(*leaves, torch.zeros(2, 0, dtype=torch.int64))
    assert out.shape == q.shape
    assert not out.any()
    assert not any(g.any() for g in gradients(out, leaves))


def test_sigma_is_applied_last() -> None:
    module, edges, (q, k, v) = default().performer, random_edges(9), draw(1, HEADS, NODES, DIM)
    plain = GraphPerformer(module)(q, k, v, edges)
    assert torch.equal(GraphPerformer(module, activation=torch.sigmoid)(q, k, v, edges), plain.sigmoid())


@pytest.mark.parametrize("features", ["positive", "relu", "saderf"])
def test_float32_is_close_to_float64(features: str) -> None:
    attend, edges = GraphPerformer(performer(POSITIVE[f"performer-{features}"])), random_edges(40)
    inputs = draw(2, HEADS, NODES, DIM)
    expected = attend(*inputs, edges)
    close(attend.float()(*(x.float() for x in inputs), edges), expected.float(), 1e-5)


def test_no_tensor_holds_the_features_of_all_edges_or_nodes() -> None:
    """Nothing that is kept or formed is larger than the values of all edges of a piece, or a number a head and edge."""
    nodes, count, features = 3000, 9000, 64
    attend = GraphPerformer(Performer(2, 8, count=features))
    inputs = [x.requires_grad_() for x in draw(1, 2, nodes, 8, dtype=torch.float32)]
    largest = 0
    kept = 0

    class Watch(torch.utils._python_dispatch.TorchDispatchMode):
        def __torch_dispatch__(self, func, types, args=(), kwargs=None):  # type: ignore[no-untyped-def]
            nonlocal largest
            out = func(*args, **(kwargs or {}))
            for tensor in out if isinstance(out, tuple | list) else (out,):
                if isinstance(tensor, Tensor):
                    largest = max(largest, tensor.untyped_storage().nbytes() // 4)
            return out

    def keep(tensor: Tensor) -> Tensor:
        nonlocal kept
        kept += tensor.numel()
        return tensor

    gc.collect()
    shown = random_edges(count, sources=nodes, targets=nodes)
    with Watch():
        with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
            out = attend(*inputs, shown)
        out.sum().backward()
    edges = count + count // 3
    assert largest <= max(1 << 19, 2 * nodes * 8, 2 * 2 * edges)
    assert kept <= 6 * 2 * nodes * 8 + 8 * 2 * edges  # queries, keys, values, outputs; a few numbers an edge


@pytest.mark.parametrize(
    ("edges", "words"),
    [
        (torch.tensor([[0, NODES], [0, 0]]), f"edge 1 has source {NODES}, but there are {NODES} nodes"),
        (torch.tensor([[0, 0, 0], [0, 1, -1]]), "edge 2 has target -1"),
        (torch.zeros(3, 2, dtype=torch.int64), "edges must be int64"),
        (torch.zeros(2, 2), "edges must be int64"),
    ],
)
def test_edges_that_lead_nowhere_are_refused(edges: Tensor, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        default()(*draw(1, HEADS, NODES, DIM), edges)


def test_other_refusals() -> None:
    inputs, edges = draw(1, HEADS, NODES, DIM), torch.zeros(2, 2, dtype=torch.int64)
    for weights in (torch.ones(3), torch.tensor([1.0, -1.0])):
        with pytest.raises(ValueError, match="one an edge, none negative"):
            default()(*inputs, edges, weights=weights)
    with pytest.raises(ValueError, match="positive, got 'trigonometric'"):
        GraphPerformer(Performer(1, 4, count=8, features="trigonometric"))


def test_the_example_of_a_bubble() -> None:
    assert doctest.testmod(graph).attempted
    assert doctest.testmod(graph).failed == 0
