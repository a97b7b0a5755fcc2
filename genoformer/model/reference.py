"""Self-test: what a model predicted for a fixed sequence when it was made, to compare with what it predicts here."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from genoformer.errors import CheckpointError
from genoformer.model.checkpoint import read_tensors, write_tensors
from genoformer.model.genoformer import Genoformer
from genoformer.model.strands import predict_values
from genoformer.tokens import encode

REFERENCE = "reference.safetensors"
BASES = 1000
TOLERANCE = 2e-3
"""Largest difference of a probability that another machine, library or device may make: as in float16 outputs."""


def reference_codes(seed: int = 0) -> np.ndarray:
    """Return the codes of a test sequence, uint8 (1000,): random bases around a gene of 200 random sense codons."""
    rng = np.random.default_rng(seed)
    codons = [a + b + c for a in "ACGT" for b in "ACGT" for c in "ACGT" if a + b + c not in ("TAA", "TAG", "TGA")]
    gene = "ATG" + "".join(rng.choice(codons, 200)) + "TAA"
    around = "".join(rng.choice(list("ACGT"), BASES - len(gene)))
    half = len(around) // 2
    return encode((around[:half] + gene + around[half:]).encode())


def compute(model: Genoformer, codes: np.ndarray) -> dict[str, Tensor]:
    """Predict codes (bases,) in float32, averaged over strands, with genetic code 11: (bases, channels) a track."""
    values = predict_values(model, torch.from_numpy(codes.copy())[None])
    return {name: tensor[0].float().cpu() for name, tensor in values.items()}


def write_reference(model: Genoformer, folder: str | Path) -> Path:
    """Write the reference of a model into its folder, and return the file."""
    path, codes = Path(folder) / REFERENCE, reference_codes()
    tensors = {f"values.{name}": tensor for name, tensor in compute(model, codes).items()}
    write_tensors({"codes": torch.from_numpy(codes.copy()), **tensors}, path, {"model-sha256": model.checkpoint.sha256})
    return path


def compare_with_reference(model: Genoformer) -> float:
    """Return the largest difference of any value from the reference in the model's folder; NaN if a value is none.

    Raises
    ------
    CheckpointError : there is no reference, it is damaged, or it is of another model
    """
    path = model.checkpoint.path / REFERENCE
    if not path.exists():
        raise CheckpointError(f"{path}: no such file; a model without its reference cannot be tested")
    tensors, metadata = read_tensors(path)
    if metadata.get("model-sha256") != model.checkpoint.sha256 or "codes" not in tensors:
        raise CheckpointError(f"{path}: belongs to another model; copy the model's folder again, as a whole")
    predicted = compute(model, tensors["codes"].numpy())
    if set(tensors) != {"codes", *(f"values.{name}" for name in predicted)}:
        raise CheckpointError(f"{path}: has not the tracks of the model; copy the model's folder again, as a whole")
    differences = [(values - tensors[f"values.{name}"]).abs().max() for name, values in predicted.items()]
    return float(torch.stack(differences).max())
