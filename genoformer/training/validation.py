"""Validation: how good a model in training is on genomes that it does not learn from."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch

from genoformer.evaluate import Score, confusion, pooled_score, strand_probabilities
from genoformer.model.device import CPU_CHUNK
from genoformer.model.genoformer import Genoformer
from genoformer.tokens import PAD, reverse_complement
from genoformer.tracks import CODING_FRAME, IGNORED, MASKED_NUCLEOTIDE
from genoformer.training.augmentation import MIRRORED_STRANDS, STRAND_SIDES, ErrorModel
from genoformer.training.config import TrainConfig
from genoformer.training.examples import Batch, Genome, pieces
from genoformer.training.step import hide_letters
from genoformer.training.validation_own import READ, Validation, measure_own, plain

_TOGETHER = 8


def measure(model: Genoformer, genomes: Sequence[Genome], config: TrainConfig) -> Validation:
    """Measure a model as its training says: coding strands and own tracks, of reads with errors too, or hidden letters.

    With several tracks, the one number is the mean over them.
    """
    if config.pretrain:
        shares = {genome.name: hidden_letters_told(model, genome, config) for genome in genomes}
        mean = _mean(shares.values())
        return Validation(plain({**shares, "mean_accuracy": mean}), mean, "accuracy")
    found = measure_own(model, genomes, config)
    if CODING_FRAME.name in model.heads:
        found[CODING_FRAME.name] = _measure_coding(model, genomes, config)
    if len(found) == 1:
        return next(iter(found.values()))
    entry: dict[str, Any] = {}
    for track, part in found.items():
        means = {name: f"{name} {track}" for name in part.entry if name.startswith("mean_")}
        entry |= {means.get(name, name): numbers for name, numbers in part.entry.items()}
    kinds, mean = {part.measure for part in found.values()}, _mean(part.mean for part in found.values())
    kind = kinds.pop() if len(kinds) == 1 else "score"
    return Validation(entry | plain({f"mean_{kind.lower()}": mean}), mean, kind)


def _measure_coding(model: Genoformer, genomes: Sequence[Genome], config: TrainConfig) -> Validation:
    scores = validate(model, genomes, bases=config.validate_bases)
    entry: dict[str, Any] = {name: plain(score._asdict()) for name, score in scores.items()}
    means = [mean_f1(scores)]
    for rate in config.validate_error_rates:
        noisy = validate_reads(model, genomes, bases=config.validate_bases, rate=rate, seed=config.seed)
        entry |= {f"{name} at {rate:g}": plain(score._asdict()) for name, score in noisy.items()}
        means.append(mean_f1(noisy))
        entry |= plain({f"mean_f1 at {rate:g}": means[-1]})
    mean = _mean(means)
    return Validation(entry | plain({"mean_f1": mean}), mean)


@torch.inference_mode()
def validate(model: Genoformer, genomes: Sequence[Genome], *, bases: int, window: int = 100_000) -> dict[str, Score]:
    """Measure a model on the first bases of each genome: score of the coding strand, window by window."""
    model.eval()
    window = min(window, model.most_bases or window)
    scores = {}
    for genome in genomes:
        matrix = np.zeros((3, 3), dtype=np.int64)
        for start, end in pieces(genome, bases, window):
            matrix += _confusion(model, (genome.codes[None, start:end], genome.strands[None, start:end]), genome)
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
            matrix += _confusion(model, _batched(reads[first : first + _TOGETHER]), genome)
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
        batch = hide_letters(Batch(codes, {}, np.array([genome.genetic_code])), config.mask_rate, rng)
        labels = batch.labels[MASKED_NUCLEOTIDE.name]
        logits = _logits(model, batch.codes, genome.genetic_code, MASKED_NUCLEOTIDE.name)
        counted = labels != IGNORED
        right += int((logits.argmax(dim=-1).cpu().numpy() == labels)[counted].sum())
        hidden += int(counted.sum())
    return right / hidden if hidden else math.nan


def mean_f1(scores: dict[str, Score]) -> float:
    """Return the mean F1 over the genomes that have one; NaN if none has."""
    return _mean(score.f1 for score in scores.values())


def _mean(numbers: Any) -> float:
    known = [number for number in numbers if not math.isnan(number)]
    return float(np.mean(known)) if known else math.nan


def _batched(reads: Sequence[tuple[np.ndarray, np.ndarray]]) -> tuple[np.ndarray, np.ndarray]:
    longest = max(len(codes) for codes, _ in reads)
    codes, strands = (np.full((len(reads), longest), fill, dtype=np.uint8) for fill in (PAD, IGNORED))
    for row, (read, labels) in enumerate(reads):
        codes[row, : len(read)], strands[row, : len(read)] = read, labels
    return codes, strands


def _logits(model: Genoformer, codes: np.ndarray, genetic_code: int, track: str) -> torch.Tensor:
    return model(torch.from_numpy(codes).to(model.device), genetic_code=genetic_code, chunk_size=CPU_CHUNK)[track]


def _confusion(model: Genoformer, reads: tuple[np.ndarray, np.ndarray], genome: Genome) -> np.ndarray:
    """Count the bases of some reads, their codes and strands (B, L), by true and called strand."""
    codes, true = reads
    probabilities = _logits(model, codes, genome.genetic_code, CODING_FRAME.name).softmax(dim=-1).flatten(0, 1)
    strands = strand_probabilities(probabilities.cpu().numpy())
    return confusion(true.ravel(), strands.argmax(axis=1), 3)
