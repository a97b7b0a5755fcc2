"""Agreement of predictions with an annotation: base by base, gene by gene, and of confidence with accuracy.

The package can be called: ``genoformer.evaluate(...)`` is `genoformer.evaluate.evaluation.evaluate`.
"""

from __future__ import annotations

import sys
from types import ModuleType
from typing import Any

from genoformer.evaluate.counts import Score, confusion, pooled_score, strand_probabilities

__all__ = ["Score", "confusion", "pooled_score", "strand_probabilities"]


class _Callable(ModuleType):
    def __call__(self, *arguments: Any, **options: Any) -> Any:
        from genoformer.evaluate.evaluation import evaluate

        return evaluate(*arguments, **options)


sys.modules[__name__].__class__ = _Callable
