"""Attribution: gradients of what is predicted for a region, with respect to the letters of the sequence around it.

The gradient sees what the model computes from the letters themselves. Inputs that are derived from them by rules, such
as the distances to stop codons, have no gradient and are held fixed: what a letter does by making a stop codon is not
in it. Saturation has that, at 3 predictions a base.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from genoformer.errors import ConfigError
from genoformer.formats.sequences import Sequences, check_region
from genoformer.model.device import default_chunk_size
from genoformer.model.genoformer import LETTERS as CHANNELS
from genoformer.model.genoformer import Genoformer
from genoformer.regions import Block, Region
from genoformer.store import Output, SequenceTable
from genoformer.tokens import T, encode, reverse_complement
from genoformer.tracks import Track
from genoformer.variants.effects import groups_of
from genoformer.variants.saturation import LETTERS, all_groups, effect_tracks, provenance, reference_table
from genoformer.variants.scoring import Scoring


class Attribution(NamedTuple):
    """Gradients over a window."""

    window: Region
    codes: np.ndarray
    """(bases,) uint8"""
    groups: list[str]
    """what was differentiated, see `genoformer.variants.effects.groups_of`"""
    gradients: np.ndarray
    """(bases, groups, 4) float32: with respect to A, C, G and T"""

    @property
    def values(self) -> np.ndarray:
        """Gradient times input, (bases, groups): the gradient at the letter that is there, 0 where it is unknown."""
        there = np.minimum(self.codes, T).astype(np.int64)[:, None, None]
        picked = np.take_along_axis(self.gradients, np.broadcast_to(there, (*self.gradients.shape[:2], 1)), axis=2)
        return picked[:, :, 0] * (self.codes <= T)[:, None]


def attribute(
    region: Region, sequences: Sequences, model: Genoformer, *, scoring: Scoring | None = None
) -> Attribution:
    """Differentiate what is predicted for a region: the sum over its bases of each group's log-odds, or of a signal.

    Parameters
    ----------
    region : whose predictions are explained
    scoring : ``window`` is what the model sees, the region in its middle; mean over both strands if so set

    Raises
    ------
    InputError : the region does not lie on its sequence
    ConfigError : the region is longer than the window, or the model cannot see windows of this size
    """
    scoring = scoring or Scoring()
    lengths = sequences.lengths()
    check_region(region, lengths, sequences.source)
    if not 0 < region.length <= scoring.window:
        raise ConfigError(f"region {region} has {region.length} bases, and must fit into the window: {scoring.window}")
    if model.most_bases is not None and scoring.window > model.most_bases:
        raise ConfigError(f"this model sees at most {model.most_bases} bases; use --window {model.most_bases}")
    flank, length = (scoring.window - region.length) // 2, lengths[region.sequence]
    width = min(region.length + 2 * flank, length)
    start = min(max(region.start - flank, 0), length - width)
    window = Region(region.sequence, start, start + width)
    codes = encode(sequences.fetch(window))
    span = slice(region.start - start, region.end - start)
    found = _gradients(model, codes, span, scoring, mirrored=False)
    if scoring.settings.strand_average:
        turned = slice(len(codes) - span.stop, len(codes) - span.start)
        other = _gradients(model, reverse_complement(codes), turned, scoring, mirrored=True)
        found = (found + other[::-1, :, ::-1]) / 2
    return Attribution(window, codes, [group.name for group in all_groups(model.tracks)], found)


def _gradients(model: Genoformer, codes: np.ndarray, span: slice, scoring: Scoring, *, mirrored: bool) -> np.ndarray:
    """Differentiate the groups, or what they are on the opposite strand: (bases, groups, 4)."""
    settings = scoring.settings
    chunk = default_chunk_size(model.device) if settings.chunk_size is None else settings.chunk_size or None
    with torch.inference_mode(False), torch.enable_grad():
        sequence = model.sequence(torch.from_numpy(codes.copy())[None], genetic_code=settings.genetic_code)
        letters = sequence.bases[..., :CHANNELS].clone().requires_grad_()
        bases = torch.cat([letters, sequence.bases[..., CHANNELS:]], dim=-1)
        logits = model.logits(sequence._replace(bases=bases), chunk_size=chunk)
        gradients = []
        for track in model.tracks:
            for group in groups_of(track):
                turned = track.reverse_complement
                channels = [turned[channel] if mirrored else channel for channel in group.channels]
                target = _target(logits[track.name][0, span], channels, track).sum()
                gradients.append(torch.autograd.grad(target, letters, retain_graph=True)[0][0])
    return torch.stack(gradients, dim=1).cpu().numpy()


def _target(logits: Tensor, channels: Sequence[int], track: Track) -> Tensor:
    """Return what is explained of each base: the log-odds of some classes, or the signal."""
    chosen = logits[:, list(channels)]
    if track.kind != "class":
        return chosen.sum(dim=1)
    rest = [channel for channel in range(logits.shape[1]) if channel not in channels]
    return chosen.logsumexp(dim=1) - logits[:, rest].logsumexp(dim=1)


def attribute_to_store(
    region: Region,
    sequences: Sequences,
    model: Genoformer,
    output: str | Path | Output,
    *,
    scoring: Scoring | None = None,
) -> Path:
    """Write the attribution of a region to a store, over the whole window that the model sees.

    Track "attribution" has gradient times input, a channel for each group; track "gradient" the gradient with respect
    to each letter, such as "coding_plus:A". See `attribute`.
    """
    scoring = scoring or Scoring()
    found = attribute(region, sequences, model, scoring=scoring)
    told = provenance("gradient", region, sequences, model, scoring)
    told["held-fixed"] = list(model.held_fixed)
    like = effect_tracks(model.tracks)[0]
    turned = tuple(like.reverse_complement[row * 4 + 3] // 4 for row in range(len(found.groups)))
    tracks = [
        Track("attribution", "signal", tuple(found.groups), "gradient x input of the region's log-odds", turned),
        Track(
            "gradient", "signal", like.channels, "gradient of the region's log-odds by letter", like.reverse_complement
        ),
    ]
    window = found.window
    table = SequenceTable.build([window.sequence], [sequences.lengths()[window.sequence]])
    blocks = np.array([(window.start, window.end)])
    with Output.of(output).create(table, tracks, provenance=told, blocks=blocks) as writer:
        writer.add_table("reference", ("position", "code"), reference_table(window, found.codes))
        values = {"attribution": found.values, "gradient": found.gradients.reshape(window.length, -1)}
        assert values["gradient"].shape[1] == len(found.groups) * len(LETTERS)
        writer.write(Block(window.sequence, window.start, values))
        return writer.finish()
