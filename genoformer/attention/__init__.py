"""Attention whose key/value side is a mergeable summary. Torch only; knows nothing of DNA. See README.md."""

from __future__ import annotations

from genoformer.attention.attention import Attention, Summary
from genoformer.attention.distributed import all_reduce_summary
from genoformer.attention.graph import GraphPerformer
from genoformer.attention.hybrid import Hybrid
from genoformer.attention.joint import Joint
from genoformer.attention.layer import MultiHead
from genoformer.attention.linformer import PROJECTIONS, Linformer
from genoformer.attention.local import Local
from genoformer.attention.performer import Performer
from genoformer.attention.softmax import Softmax

ATTENTION: dict[str, type[Attention]] = {
    "softmax": Softmax,
    "local": Local,
    "performer": Performer,
    "linformer": Linformer,
    "hybrid": Hybrid,
    "joint": Joint,
}
"""Every mechanism, by the name that configurations use."""

__all__ = [
    "ATTENTION",
    "PROJECTIONS",
    "Attention",
    "GraphPerformer",
    "Hybrid",
    "Joint",
    "Linformer",
    "Local",
    "MultiHead",
    "Performer",
    "Softmax",
    "Summary",
    "all_reduce_summary",
]
