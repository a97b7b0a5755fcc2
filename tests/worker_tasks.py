"""A worker that behaves as told by the genetic code: 11 as always, 4 with little memory, 1 poisoned by a long batch."""

from __future__ import annotations

import sys
from typing import Any

import genoformer.predict
import genoformer.workers
from genoformer.errors import InputError
from genoformer.messages import Message
from genoformer.serving import Compute

SHORT_OF_MEMORY, POISONED = 4, 1
LONG = 100
module = sys.modules["genoformer.predict"]
predict_values = module.predict_values


def begin(setup: Message) -> Compute:
    module.predict_values = _told  # type: ignore[attr-defined]
    return genoformer.workers.begin(setup)


def _told(model: Any, codes: Any, *, genetic_code: int, **options: Any) -> Any:
    if genetic_code == SHORT_OF_MEMORY and len(codes) > 1:
        raise MemoryError
    if genetic_code == POISONED:
        if codes.shape[1] >= LONG:
            raise InputError("poison: is bad")
        genetic_code = 11
    return predict_values(model, codes, genetic_code=genetic_code, **options)
