"""Agreement of predictions with an annotation: base by base, gene by gene, and of confidence with accuracy."""

from genoformer.evaluate.counts import Score, confusion, pooled_score, strand_probabilities

__all__ = ["Score", "confusion", "pooled_score", "strand_probabilities"]
