"""Validation: how good a model in training is on genomes that it does not learn from."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch

from genoformer.augmentation import MIRRORED_STRANDS, STRAND_SIDES, ErrorModel
from genoformer.config import TrainConfig
from genoformer.evaluate import Score, confusion, pooled_score, strand_probabilities
from genoformer.examples import Batch, Genome
from genoformer.model.device import CPU_CHUNK
from genoformer.model.genoformer import Genoformer
from genoformer.tokens import PAD, reverse_complement
from genoformer.tracks import CODING_FRAME, IGNORED, MASKED_NUCLEOTIDE
from genoformer.training_step import hide_letters

READ = 5_000
"""Bases of a read with errors."""
_TOGETHER = 8


class Validation(NamedTuple):
    """What a validation found."""

    entry: dict[str, Any]
    """for the log: scores by genome, and their means"""
    mean: float
    """the one number that a better model has more of, from 0 to 1; NaN if nothing was there to find"""


def measure(model: Genoformer, genomes: Sequence[Genome], config: TrainConfig) -> Validation:
    """Measure a model as its training says: coding strands, of reads with errors too, or hidden letters."""
    if config.pretrain:
        shares = {genome.name: hidden_letters_told(model, genome, config) for genome in genomes}
        mean = _mean(shares.values())
        return Validation(_plain({**shares, "mean_accuracy": mean}), mean)
    scores = validate(model, genomes, bases=config.validate_bases)
    entry: dict[str, Any] = {name: _plain(score._asdict()) for name, score in scores.items()}
    means = [mean_f1(scores)]
    for rate in config.validate_error_rates:
        noisy = validate_reads(model, genomes, bases=config.validate_bases, rate=rate, seed=config.seed)
        entry |= {f"{name} at {rate:g}": _plain(score._asdict()) for name, score in noisy.items()}
        means.append(mean_f1(noisy))
        entry |= _plain({f"mean_f1 at {rate:g}": means[-1]})
    mean = _mean(means)
    return Validation(entry | _plain({"mean_f1": mean}), mean)


@torch.inference_mode()
def validate(model: Genoformer, genomes: Sequence[Genome], *, bases: int, window: int = 100_000) -> dict[str, Score]:
    """Measure a model on the first bases of each genome: score of the coding strand, window by window."""
    model.eval()
    window = min(window, model.most_bases or window)
    scores = {}
    for genome in genomes:
        matrix = np.zeros((3, 3), dtype=np.int64)
        for start, end in pieces(genome, bases, window):
            batch = Batch(genome.codes[None, start:end], genome.strands[None, start:end], np.array([0]))
            matrix += _confusion(model, batch, genome.genetic_code)
        scores[genome.name] = pooled_score(matrix)
    return scores


@torch.inference_mode()
def validate_reads(
    model: Genoformer, genomes: Sequence[Genome], *, bases: int, rate: float, seed: int
) -> dict[str, Score]:
    """Measure a model on the same bases as reads of `READ` bases with errors, every other one of the opposite strand.

    The same seed gives the same reads.
    """
    model.eval()
    scores, errors = {}, ErrorModel((rate,))
    size = min(READ, model.most_bases or READ)
    for genome in genomes:
        rng = np.random.default_rng([seed, round(rate * 1e6)])
        reads = []
        for number, (start, end) in enumerate(pieces(genome, bases, size)):
            drawn = errors.draw(genome.codes[start:end], rate, rng)
            codes, strands = drawn.read()[:size], drawn.carry(genome.strands[start:end], STRAND_SIDES)[:size]
            if number % 2:
                codes, strands = reverse_complement(codes), MIRRORED_STRANDS[strands[::-1]]
            reads.append((codes, strands))
        matrix = np.zeros((3, 3), dtype=np.int64)
        for first in range(0, len(reads), _TOGETHER):
            matrix += _confusion(model, _batched(reads[first : first + _TOGETHER]), genome.genetic_code)
        scores[genome.name] = pooled_score(matrix)
    return scores


@torch.inference_mode()
def hidden_letters_told(model: Genoformer, genome: Genome, config: TrainConfig, window: int = 100_000) -> float:
    """Return the share of hidden letters that a model tells, of the first bases of a genome; NaN if there are none."""
    model.eval()
    rng = np.random.default_rng(config.seed)
    right = hidden = 0
    for start, end in pieces(genome, config.validate_bases, min(window, model.most_bases or window)):
        codes = genome.codes[None, start:end]
        batch = hide_letters(Batch(codes, codes, np.array([genome.genetic_code])), config.mask_rate, rng)
        logits = _logits(model, batch.codes, genome.genetic_code, MASKED_NUCLEOTIDE.name)
        counted = batch.labels != IGNORED
        right += int((logits.argmax(dim=-1).cpu().numpy() == batch.labels)[counted].sum())
        hidden += int(counted.sum())
    return right / hidden if hidden else math.nan


def mean_f1(scores: dict[str, Score]) -> float:
    """Return the mean F1 over the genomes that have one; NaN if none has."""
    return _mean(score.f1 for score in scores.values())


def _mean(numbers: Any) -> float:
    known = [number for number in numbers if not math.isnan(number)]
    return float(np.mean(known)) if known else math.nan


def pieces(genome: Genome, bases: int, size: int) -> Iterator[tuple[int, int]]:
    """Yield the windows of the first bases of a genome, within its sequences."""
    for first, last in zip(genome.offsets[:-1], genome.offsets[1:], strict=True):
        for start in range(first, min(last, bases), size):
            yield start, min(start + size, last, bases)


def _batched(reads: Sequence[tuple[np.ndarray, np.ndarray]]) -> Batch:
    longest = max(len(codes) for codes, _ in reads)
    codes, strands = (np.full((len(reads), longest), fill, dtype=np.uint8) for fill in (PAD, IGNORED))
    for row, (read, labels) in enumerate(reads):
        codes[row, : len(read)], strands[row, : len(read)] = read, labels
    return Batch(codes, strands, np.zeros(len(reads), dtype=np.int64))


def _logits(model: Genoformer, codes: np.ndarray, genetic_code: int, track: str) -> torch.Tensor:
    return model(torch.from_numpy(codes).to(model.device), genetic_code=genetic_code, chunk_size=CPU_CHUNK)[track]


def _confusion(model: Genoformer, batch: Batch, genetic_code: int) -> np.ndarray:
    probabilities = _logits(model, batch.codes, genetic_code, CODING_FRAME.name).softmax(dim=-1).flatten(0, 1)
    strands = strand_probabilities(probabilities.cpu().numpy())
    return confusion(batch.labels.ravel(), strands.argmax(axis=1), 3)


def _plain(numbers: dict[str, float]) -> dict[str, float | None]:
    """Put None for NaN, which JSON has not."""
    return {name: None if math.isnan(number) else number for name, number in numbers.items()}
