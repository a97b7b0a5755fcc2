"""Calibration: probabilities that say how often they are right, by one temperature a track.

Guo et al. 2017, "On calibration of modern neural networks", section 4.2.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from genoformer.model.device import CPU_CHUNK
from genoformer.model.genoformer import Genoformer
from genoformer.model.heads import ClassHead
from genoformer.model.strands import reverse_complement_rows, reverse_rows
from genoformer.tracks import CODING_FRAME, IGNORED, Track
from genoformer.training.examples import Genome
from genoformer.training.validation import pieces

MOST = 2_000_000
"""Bases that a temperature is fitted on, evenly spaced; fewer for a track of more classes than coding-frame."""
_WINDOW = 100_000
_LOWEST, _HIGHEST = 0.25, 8.0
_HALVINGS = 40


class Calibration(NamedTuple):
    """How a track's logits were scaled, and what that changed on the bases it was fitted on."""

    temperature: float
    """what the logits were divided by"""
    bases: int
    loss_before: float
    """mean of -ln of the probability of the true class"""
    loss: float


class Outputs(NamedTuple):
    """Logits of both strands at some bases, and the true classes."""

    forward: Tensor  # (n, classes)
    backward: Tensor  # (n, classes): of the opposite strand, in the classes of this one
    truth: Tensor  # (n,) int64

    def loss(self, temperature: float) -> float:
        """Return the mean loss of the probabilities as `predict` averages them over the strands."""
        both = torch.stack([self.forward, self.backward]) / temperature
        chosen = both.log_softmax(dim=-1).gather(2, self.truth.expand(2, -1)[..., None])[..., 0]
        return -float(chosen.logsumexp(dim=0).mean(dtype=torch.float64)) + float(np.log(2.0))


def fit_temperature(outputs: Outputs) -> Calibration:
    """Return the temperature of the least loss, by golden section on its logarithm."""
    low, high = np.log(_LOWEST), np.log(_HIGHEST)
    share = (np.sqrt(5.0) - 1.0) / 2.0
    inner = [high - share * (high - low), low + share * (high - low)]
    losses = [outputs.loss(float(np.exp(x))) for x in inner]
    for _ in range(_HALVINGS):
        if high - low < 1e-4:
            break
        if losses[0] <= losses[1]:
            high, inner[1], losses[1] = inner[1], inner[0], losses[0]
            inner[0] = high - share * (high - low)
            losses[0] = outputs.loss(float(np.exp(inner[0])))
        else:
            low, inner[0], losses[0] = inner[0], inner[1], losses[1]
            inner[1] = low + share * (high - low)
            losses[1] = outputs.loss(float(np.exp(inner[1])))
    temperature = float(np.exp((low + high) / 2))
    return Calibration(temperature, len(outputs.truth), outputs.loss(1.0), outputs.loss(temperature))


def calibrate(model: Genoformer, genomes: Sequence[Genome], *, bases: int) -> dict[str, Calibration]:
    """Fit a temperature for each class track and build it into the model: its output layer is divided by it.

    So whoever predicts with the model gets calibrated probabilities, and the digest of the weights covers them.

    Parameters
    ----------
    model : whose output layers of class tracks are changed
    genomes : that it did not learn from
    bases : of each genome's beginning to look at

    Returns
    -------
    dict from track to Calibration; empty if there is not one labeled base
    """
    found = {}
    for name, head in model.heads.items():
        if not isinstance(head, ClassHead):
            continue
        outputs = _outputs(model, genomes, head.track, bases)
        if outputs is None:
            continue
        found[name] = fit_temperature(outputs)
        with torch.no_grad():
            for parameter in head.output.parameters():
                parameter.div_(found[name].temperature)
    return found


@torch.inference_mode()
def _outputs(model: Genoformer, genomes: Sequence[Genome], track: Track, bases: int) -> Outputs | None:
    """Compute the logits of labeled bases, at most `MOST` of them, as `predict` does by default."""
    model.eval()
    window = min(_WINDOW, model.most_bases or _WINDOW)
    places = [(genome, *place) for genome in genomes for place in pieces(genome, bases, window)]
    most = max(MOST * len(CODING_FRAME.channels) // len(track.channels), 1)  # as many numbers for any track
    every = -(-sum(end - start for _, start, end in places) // most)
    kept: list[Outputs] = []
    for genome, start, end in places:
        labels = genome.classes(track.name)[start:end]
        counted = torch.from_numpy(np.flatnonzero(labels != IGNORED)[::every])
        if len(counted):
            ahead, back = _both_strands(model, genome.codes[start:end], genome.genetic_code, track)
            kept.append(Outputs(ahead[counted], back[counted], torch.from_numpy(labels.astype(np.int64))[counted]))
    if not kept:
        return None
    forward, backward, truth = (torch.cat(part) for part in zip(*kept, strict=True))
    return Outputs(forward, backward, truth)


def _both_strands(model: Genoformer, codes: np.ndarray, genetic_code: int, track: Track) -> tuple[Tensor, Tensor]:
    """Return the logits of a window, of the strand and of the opposite one laid along it: (bases, classes) each."""
    rows = torch.from_numpy(codes.copy())[None].to(model.device)
    forward, backward = (
        model(each, genetic_code=genetic_code, chunk_size=CPU_CHUNK)[track.name].float().cpu()
        for each in (rows, reverse_complement_rows(rows))
    )
    return forward[0], reverse_rows(backward[..., list(track.reverse_complement)], torch.tensor([len(codes)]))[0]
