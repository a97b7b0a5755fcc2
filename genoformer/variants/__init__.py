"""What changes of the sequence do to predictions: variants of a VCF, every substitution of a region, gradients."""
