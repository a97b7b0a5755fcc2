"""Checks of windows split over processes, run by test_split.py on each rank of a group."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from attention.distributed_checks import counted, refused
from ranks import main, over
from tiny import CHOICES, random_codes, tiny_model

from genoformer.attention import Local
from genoformer.attention import attention as contract
from genoformer.attention.exchange import Exchange, gather_bounds
from genoformer.model.encoder import prepare
from genoformer.model.genoformer import Genoformer
from genoformer.model.split import add_up_gradients, own_span, reach_of, split_logits, with_neighbors
from genoformer.tokens import PAD

STRIDE = 3
TOLERANCE = {torch.float32: 1e-6, torch.float64: 1e-11}
ALONE = 3.0
"""times that for the gradient of one tensor: one process in float32 is 1.1e-6 off the same model in float64 there"""
LENGTH = 82
SHARES = {2: [[42, 40], [0, 82]], 3: [[48, 3, 31], [60, 22, 0], [30, 0, 52]]}
"""Bases of each rank: many, fewer than a neighbor wants, none."""
contract.PIECE = 40  # joint attention works in cells of a quarter of it


def close(found: Tensor, expected: Tensor, what: str) -> None:
    """Compare to the largest number."""
    assert found.shape == expected.shape, what
    found, expected = found.detach(), expected.detach()
    if found.numel():
        difference = float((found - expected).abs().max())
        scale = max(float(expected.abs().max()), 1e-3)
        assert difference <= TOLERANCE[found.dtype] * scale, f"{what}: differs by {difference:.3g} of {scale:.3g}"


def close_gradients(found: dict[str, Tensor], expected: dict[str, Tensor]) -> None:
    """Compare gradients by their norms, each and all; one that cancels out keeps the rounding of what it is made of."""
    assert found.keys() == expected.keys()
    norms = [float(tensor.norm()) for tensor in expected.values()]
    off = [float((found[name] - tensor).norm()) for name, tensor in expected.items()]
    whole, tolerance = sum(norm**2 for norm in norms) ** 0.5, TOLERANCE[next(iter(expected.values())).dtype]
    assert sum(one**2 for one in off) ** 0.5 <= tolerance * whole
    for name, one, norm in zip(expected, off, norms, strict=True):
        scale = max(norm, 0.01 * max(norms))
        assert one <= ALONE * tolerance * scale, f"gradient of {name}: differs by {one:.3g} of {scale:.3g}"


def weights_of(model: Genoformer, codes: Tensor, mask: Tensor | None = None) -> Tensor:
    shape, generator = (*codes.shape, 7), torch.Generator().manual_seed(3)
    kind = next(model.parameters()).dtype
    real = codes != PAD if mask is None else mask
    return torch.randn(shape, generator=generator, dtype=torch.float64).to(kind) * real[..., None]


def whole(model: Genoformer, codes: Tensor, mask: Tensor | None) -> tuple[Tensor, dict[str, Tensor]]:
    model.zero_grad(set_to_none=True)
    out = model(codes, mask=mask)["coding-frame"]
    (out * weights_of(model, codes, mask)).sum().backward()
    return out, {name: p.grad.clone() for name, p in model.named_parameters()}


def compare(
    model: Genoformer, codes: Tensor, sizes: list[int], *, rank: int, chunk_size: int | None, mask: Tensor | None = None
) -> None:
    expected, gradients = whole(model, codes, mask)
    model.zero_grad(set_to_none=True)
    mine = slice(sum(sizes[:rank]), sum(sizes[: rank + 1]))
    own_mask = None if mask is None else mask[:, mine]
    with counted() as forward:
        out = split_logits(model, codes[:, mine], mask=own_mask, chunk_size=chunk_size)["coding-frame"]
    with counted() as backward:
        (out * weights_of(model, codes, mask)[:, mine]).sum().backward()
    layers = sum(not isinstance(block.multihead.attention, Local) for block in model.encoder.blocks)
    assert forward.get("all_reduce", 0) == layers
    assert backward == {name: count for name, count in forward.items() if name != "all_gather"}
    add_up_gradients(model.parameters())
    real = (codes != PAD if mask is None else mask)[:, mine]
    close(out[real], expected[:, mine][real], "logits")
    close_gradients({name: parameter.grad for name, parameter in model.named_parameters()}, gradients)


MODELS = {**CHOICES, "joint": {"attention": ("joint", "performer")}}


@over({name: (choice,) for name, choice in MODELS.items()})
def check_models(rank: int, size: int, choice: dict[str, Any]) -> None:
    """Logits and all gradients are those of one process, whole and in chunks, with padding and with empty ranks."""
    codes = random_codes(LENGTH, 37)
    for i, (dtype, chunk_size) in enumerate([(torch.float64, None), (torch.float32, 7), (torch.float64, 4)]):
        if i < len(SHARES[size]):
            model = tiny_model(**choice, stem_stride=STRIDE, dtype=dtype)
            compare(model, codes, SHARES[size][i], rank=rank, chunk_size=chunk_size)


@over({str(stride): (stride,) for stride in (1, 2, 5)})
def check_strides_and_masks(rank: int, size: int, stride: int) -> None:
    """Holes in the middle, other strides, one base alone, and rows of padding only."""
    for codes in (random_codes(61, 20), torch.cat([random_codes(33), torch.full((1, 33), PAD, dtype=torch.uint8)])):
        model = tiny_model(attention=("hybrid",), stem_stride=stride, dtype=torch.float64)
        length = codes.shape[1]
        cut = [own_span(length, stride=stride, rank=r, ranks=size) for r in range(size)]
        assert cut[0].start == 0
        assert cut[-1].stop == length
        mask = (torch.rand(codes.shape, generator=torch.Generator().manual_seed(stride)) < 0.7) & (codes != PAD)
        compare(model, codes, [c.stop - c.start for c in cut], rank=rank, chunk_size=None, mask=mask)
    one = random_codes(1)
    sizes = [0] * size
    sizes[size - 1] = 1
    compare(tiny_model(stem_stride=stride, dtype=torch.float64), one, sizes, rank=rank, chunk_size=2)


def check_gradients_of_inputs(rank: int, size: int) -> None:
    """What a rank borrowed from its neighbors sends its gradient home."""
    model, codes = tiny_model(stem_stride=STRIDE, dtype=torch.float64), random_codes(LENGTH, 37)
    sequence = model.sequence(codes)
    bases = sequence.bases.double().requires_grad_()
    weights = weights_of(model, codes)
    (model.logits(sequence._replace(bases=bases))["coding-frame"] * weights).sum().backward()
    sizes = SHARES[size][0]
    bounds = gather_bounds(sizes[rank])
    mine = slice(*bounds[rank])
    own = prepare(codes[:, mine], [sequence.bases[:, mine, 4:]], codes[:, mine] != PAD, STRIDE)
    leaf = own.bases.double().requires_grad_()
    exchange = Exchange(bounds=[(-(-a // STRIDE), -(-b // STRIDE)) for a, b in bounds])
    resident = with_neighbors(own._replace(bases=leaf), exchange, bounds, stride=STRIDE, reach=reach_of(model))
    out = exchange.finish(model.logits(resident)["coding-frame"])
    (out * weights[:, mine]).sum().backward()
    close_gradients({"bases": leaf.grad}, {"bases": bases.grad[:, mine]})


def check_without_gradients(rank: int, size: int) -> None:
    model, codes = tiny_model(stem_stride=STRIDE), random_codes(LENGTH)
    mine = own_span(LENGTH, stride=STRIDE, rank=rank, ranks=size)
    with torch.inference_mode():
        found = split_logits(model, codes[:, mine], genetic_code=4, chunk_size=5)["coding-frame"]
        close(found, model(codes, genetic_code=4)["coding-frame"][:, mine], "logits")


def check_refusals(rank: int, size: int) -> None:
    """Every rank refuses, so that none waits for the others."""
    model = tiny_model(stem_stride=STRIDE)
    refused(lambda: split_logits(model, random_codes(10)), "no multiple of the model's stride")
    refused(lambda: split_logits(model, random_codes(*[9] * (1 + rank))), "same sequences")
    learned = tiny_model(attention=("linformer",), linformer_projection="learned", linformer_tokens=9)
    refused(lambda: split_logits(learned, random_codes(30)), "cut smaller windows")


if __name__ == "__main__":
    main(globals())
