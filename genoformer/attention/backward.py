"""Backward passes that are computed by hand, once: what a second derivative through them must meet with."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any, TypeVar

import torch

Result = TypeVar("Result")


def differentiable_once(backward: Callable[..., Result]) -> Callable[..., Result]:
    """Refuse to record a backward pass for second derivatives, which would come out without what passes through it.

    torch's `once_differentiable` refuses only where a derivative runs into it: `torch.autograd.grad` with ``inputs``
    goes around it along other paths to them, without a word.

    Raises
    ------
    RuntimeError : gradients are asked for with ``create_graph=True``
    """

    @wraps(backward)
    def refusing(ctx: Any, *grads: Any) -> Result:
        if torch.is_grad_enabled():
            raise RuntimeError(
                "attention has first derivatives only, since its backward pass is computed from its inputs again; "
                "ask for gradients without create_graph=True"
            )
        return backward(ctx, *grads)

    return refusing
