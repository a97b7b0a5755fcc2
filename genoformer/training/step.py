"""One step of training: windows drawn from seed and step, a loss, gradients, new weights and their running mean."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from functools import partial

import numpy as np
import torch
from torch import Tensor, nn

from genoformer.attention.performer import redraw_features, settle_moments
from genoformer.model.genoformer import Genoformer
from genoformer.model.shared import shared_logits
from genoformer.model.split import own_span, split_logits
from genoformer.tokens import MASK, N
from genoformer.tracks import IGNORED, MASKED_NUCLEOTIDE
from genoformer.training.augmentation import ErrorModel
from genoformer.training.config import TrainConfig
from genoformer.training.examples import Batch, Genome, draw_batch
from genoformer.training.loss import labels_that_count, step_loss
from genoformer.training.recoding import Recoding
from genoformer.training.state import State
from genoformer.training.team import ALONE, Team

_MOMENTUM = 0.99
"""Of the running mean of queries' and keys' moments, which tuned features follow."""


def learning_rate(step: int, config: TrainConfig) -> float:
    """Return the rate of a step: linear warm-up, then cosine decay to ``final_rate`` of the peak."""
    if step < config.warmup:
        return config.learning_rate * (step + 1) / config.warmup
    done = (step - config.warmup) / max(config.steps - config.warmup, 1)
    floor = config.final_rate
    return config.learning_rate * (floor + (1 - floor) * 0.5 * (1 + math.cos(math.pi * min(done, 1.0))))


def draw_window(config: TrainConfig, rng: np.random.Generator) -> int:
    """Choose the length of a step's windows."""
    if not config.window_shares:
        return int(rng.choice(config.windows))
    shares = np.array(config.window_shares)
    return int(rng.choice(config.windows, p=shares / shares.sum()))


def draw_windows(genomes: Sequence[Genome], config: TrainConfig, *, step: int, passes: int) -> Batch:
    """Draw the windows of a step, for so many passes through the model: all of one length."""
    rng = np.random.default_rng([config.seed, step])
    window = draw_window(config, rng)
    is_one = config.one_genome > 0 and rng.random() < config.one_genome
    batch = draw_batch(
        genomes,
        window=window,
        count=passes * rows_of(window, config),
        recoding=Recoding(config.recode, config.synonyms),
        length_power=config.length_power,
        rng=rng,
        errors=ErrorModel(config.error_rates, config.error_shares, config.homopolymer_indels),
        one_genome=is_one,
    )
    if config.pretrain:
        batch = hide_letters(batch, config.mask_rate, rng)
    return batch


def rows_of(window: int, config: TrainConfig) -> int:
    """Return how many windows go through the model in one pass."""
    return max(1, config.step_bases // window)


def own_passes(batch: Batch, config: TrainConfig, team: Team) -> Iterator[Batch]:
    """Yield the windows of a step that a process takes, pass by pass, however many processes there are."""
    count, window = batch.codes.shape
    first, end = (count * rank // team.size for rank in (team.rank, team.rank + 1))
    rows = rows_of(window, config)
    for start in range(first, end, rows):
        yield batch.rows(start, min(start + rows, end))


def hide_letters(batch: Batch, rate: float, rng: np.random.Generator) -> Batch:
    """Hide a share of the known letters; they, and nothing else, become the labels."""
    hidden = (rng.random(batch.codes.shape, dtype=np.float32) < rate) & (batch.codes < N)
    labels = np.where(hidden, batch.codes, np.uint8(IGNORED))
    return batch._replace(codes=np.where(hidden, np.uint8(MASK), batch.codes), labels={MASKED_NUCLEOTIDE.name: labels})


def train_step(state: State, genomes: Sequence[Genome], config: TrainConfig) -> Tensor:
    """Draw the windows of this step and take it; return the loss, NaN if its gradient was none, not yet waited for.

    The loss is that of `step_loss`, in however many passes and processes it is computed.
    """
    model, team = state.model.train(), state.team
    windows = draw_windows(genomes, config, step=state.step, passes=state.passes)
    counted = labels_that_count(model, windows, config)
    for group in state.optimizer.param_groups:
        group["lr"] = learning_rate(state.step, config) * group["factor"]
    state.optimizer.zero_grad(set_to_none=True)
    total = torch.zeros((), device=model.device)
    is_split = config.split_windows and team.size > 1
    for batch in own_passes(windows, config, ALONE if is_split else team):
        own = own_positions(batch, model, team) if is_split else batch
        forward = partial(split_logits, model) if is_split else model
        if batch.one_genome:
            forward = partial(shared_logits, model)
        with torch.autocast(model.device.type, torch.bfloat16, enabled=config.precision == "bfloat16"):
            logits = forward(
                torch.from_numpy(own.codes).to(model.device),
                genetic_code=torch.from_numpy(own.genetic_codes),
                chunk_size=config.chunk_size or None,
            )
        loss = step_loss(model, logits, own.labels, counted=counted, config=config)
        loss.backward()
        total += loss.detach()
    _add_up(state, total)
    norm = nn.utils.clip_grad_norm_(model.parameters(), config.gradient_clip)
    state.optimizer.step()
    state.step += 1
    settle_moments(model, momentum=min(_MOMENTUM, state.step / (state.step + 10.0)))
    if config.redraw_every and state.step % config.redraw_every == 0 and state.step < config.steps:
        redraw_features(model, 1_000_003 * config.seed + state.step)
    _average(state, config.ema)
    return torch.where(torch.isfinite(norm), total, torch.nan)


def own_positions(batch: Batch, model: Genoformer, team: Team) -> Batch:
    """Return the part of some windows whose positions a process computes."""
    stride = model.encoder.stem.stride
    span = own_span(batch.codes.shape[1], stride=stride, rank=team.rank, ranks=team.size)
    labels = {name: np.ascontiguousarray(values[:, span]) for name, values in batch.labels.items()}
    return Batch(np.ascontiguousarray(batch.codes[:, span]), labels, batch.genetic_codes)


def _add_up(state: State, total: Tensor) -> None:
    """Have every process hold the sum of all gradients and of the loss; `settle_moments` sees to the moments."""
    if state.team.size == 1:
        return
    for parameter in state.model.parameters():  # one that had no part in the loss has one elsewhere, or none anywhere
        if parameter.grad is None:
            parameter.grad = torch.zeros_like(parameter)
    state.team.add_up([total, *(p.grad for p in state.model.parameters() if p.grad is not None)])


@torch.no_grad()
def _average(state: State, decay: float) -> None:
    decay = min(decay, state.step / (state.step + 10.0))  # young weights are forgotten soon
    own: list[Tensor] = list(state.average.parameters())
    new: list[Tensor] = list(state.model.parameters())
    torch._foreach_lerp_(own, new, 1.0 - decay)
    for own_buffer, buffer in zip(state.average.buffers(), state.model.buffers(), strict=True):
        own_buffer.copy_(buffer)
