"""Training: examples from annotated genomes, steps that resume exactly, validation, calibration; begins in `run`."""
