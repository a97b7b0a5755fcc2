"""genoformer: per-base predictions for long DNA, by exactly streamed linear attention."""

__version__ = "0.1.0"
