"""genoformer: per-base predictions for long DNA, by exactly streamed linear attention.

>>> import genoformer
>>> model = genoformer.load_model("prokaryote-genes")  # doctest: +SKIP
>>> for block in genoformer.predict("genome.fa", model):  # doctest: +SKIP
...     print(block.sequence, block.start, block.values["coding-frame"].shape)

Predictions in a file are read with ``genoformer.open_store("genome.h5")``. Nothing heavy is imported before it is used.
"""

from __future__ import annotations

import importlib
import sys
from types import ModuleType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from genoformer import plotting
    from genoformer.blocks import collect
    from genoformer.dataset import WindowDataset
    from genoformer.embedding import embed, open_embeddings
    from genoformer.errors import GenoformerError
    from genoformer.evaluate.evaluation import evaluate
    from genoformer.formats.sequences import open_sequences
    from genoformer.formats.vcf import Variant
    from genoformer.genes import call_genes
    from genoformer.genes.stored import stored_genes
    from genoformer.model.checkpoint import load_model
    from genoformer.organism import organism_context
    from genoformer.predict import Settings, predict
    from genoformer.prediction_file import predict_file
    from genoformer.regions import Region
    from genoformer.store import open_store
    from genoformer.variants.score import score_variants
    from genoformer.variants.scoring import Scoring
    from genoformer.workers import Workers

__version__ = "0.1.0"
__all__ = [
    "GenoformerError",
    "Region",
    "Scoring",
    "Settings",
    "Variant",
    "WindowDataset",
    "Workers",
    "__version__",
    "call_genes",
    "collect",
    "embed",
    "evaluate",
    "load_model",
    "open_embeddings",
    "open_sequences",
    "open_store",
    "organism_context",
    "plotting",
    "predict",
    "predict_file",
    "score_variants",
    "stored_genes",
]

_HOMES = {
    "GenoformerError": "genoformer.errors",
    "Region": "genoformer.regions",
    "Scoring": "genoformer.variants.scoring",
    "Settings": "genoformer.predict",
    "Variant": "genoformer.formats.vcf",
    "WindowDataset": "genoformer.dataset",
    "Workers": "genoformer.workers",
    "call_genes": "genoformer.genes",
    "collect": "genoformer.blocks",
    "embed": "genoformer.embedding",
    "evaluate": "genoformer",
    "load_model": "genoformer.model.checkpoint",
    "open_embeddings": "genoformer.embedding",
    "open_sequences": "genoformer.formats.sequences",
    "open_store": "genoformer.store",
    "organism_context": "genoformer.organism",
    "plotting": "genoformer",
    "predict": "genoformer.predict",
    "predict_file": "genoformer.prediction_file",
    "score_variants": "genoformer.variants.score",
    "stored_genes": "genoformer.genes.stored",
}
"""Where each name comes from; what comes from here is a module of that name."""


class _Package(ModuleType):
    """This package: `genoformer.predict` is the function, also once the module of that name was imported."""

    def __setattr__(self, name: str, value: Any) -> None:
        if name == "predict" and isinstance(value, ModuleType):
            value = value.predict
        super().__setattr__(name, value)


sys.modules[__name__].__class__ = _Package


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    home = _HOMES[name]
    if home == __name__:
        return importlib.import_module(f"{home}.{name}")
    value = getattr(importlib.import_module(home), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return __all__
