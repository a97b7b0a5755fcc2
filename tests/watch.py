"""What a computation really does: products, exponentials, live bytes, and bytes kept for its backward pass."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

EXPONENTIALS = ("aten.exp.", "aten.exp_.", "aten.exp2.", "aten.exp2_.", "aten.elu.", "aten.cos.", "aten.sin.")


def tensors_in(value: Any) -> Iterator[Tensor]:
    if isinstance(value, Tensor):
        yield value
    elif isinstance(value, list | tuple):
        for item in value:
            yield from tensors_in(item)


class Watch(TorchDispatchMode):
    """Counts what products and exponentials cost, and follows the bytes of storages from their making to their end."""

    def __init__(self) -> None:
        super().__init__()
        self.operations = self.exponentials = self.live = self.most = 0
        self.largest = 0  # numbers of the largest tensor that any operation returned
        self._known: set[int] = set()

    def ignore(self, tensors: Sequence[Tensor]) -> None:
        """Leave out what was there before."""
        self._known.update(t.untyped_storage()._cdata for t in tensors)

    def __torch_dispatch__(self, func: Any, types: object, args: tuple = (), kwargs: dict | None = None) -> object:
        result = func(*args, **(kwargs or {}))
        name = str(func)
        if "scaled_dot_product" in name and "backward" not in name:
            q, k, v = args[:3]
            pairs = q.shape[0] * q.shape[1] * q.shape[2] * k.shape[2]
            self.operations += 2 * pairs * (q.shape[3] + v.shape[3])
            self.exponentials += pairs
        elif name.startswith(("aten.mm", "aten.bmm", "aten.addmm", "aten.baddbmm")):
            a, b = args[-2], args[-1]
            self.operations += 2 * a.numel() * b.shape[-1]
        elif name.startswith(EXPONENTIALS):
            self.exponentials += args[0].numel()
        for tensor in tensors_in(result):
            self._follow(tensor)
            if tensor.untyped_storage().nbytes():  # views and expansions count as what they occupy
                occupied = tensor.untyped_storage().nbytes() // tensor.element_size()
                self.largest = max(self.largest, min(tensor.numel(), occupied))
        return result

    def _follow(self, tensor: Tensor) -> None:
        storage = tensor.untyped_storage()
        key, size = storage._cdata, storage.nbytes()
        if key in self._known:
            return
        self._known.add(key)
        self.live += size
        self.most = max(self.most, self.live)
        weakref.finalize(storage, self._end, key, size)

    def _end(self, key: int, size: int) -> None:
        self._known.discard(key)
        self.live -= size


@dataclass(frozen=True)
class Measured:
    """Products, exponentials, most bytes alive at once beyond the inputs, and bytes kept for the backward pass."""

    operations: int
    exponentials: int
    forward_bytes: int
    training_bytes: int


def measure(function: Callable[..., Tensor], inputs: Sequence[Tensor], known: Sequence[Tensor] = ()) -> Measured:
    """Run a function twice: without gradients, and with; ``known`` are parameters and buffers."""
    with torch.no_grad(), Watch() as watch:
        watch.ignore([*inputs, *known])
        function(*inputs)
    asked = [x.detach().requires_grad_() for x in inputs]
    before = {x.untyped_storage()._cdata for x in (*asked, *known)}
    kept: dict[int, int] = {}

    def pack(tensor: Tensor) -> Tensor:
        storage = tensor.untyped_storage()
        if storage._cdata not in before:
            kept[storage._cdata] = storage.nbytes()
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        output = function(*asked)
    assert output.requires_grad
    return Measured(watch.operations, watch.exponentials, watch.most, sum(kept.values()))
