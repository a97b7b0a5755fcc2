"""Saturation mutagenesis in silico: what every substitution of a region changes, in a store."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

import genoformer
from genoformer.errors import InputError
from genoformer.formats.sequences import Sequences, check_region
from genoformer.formats.vcf import Variant
from genoformer.model.genoformer import Genoformer
from genoformer.regions import Block, Region
from genoformer.store import Output, SequenceTable
from genoformer.tokens import A, T, encode
from genoformer.tracks import Track
from genoformer.variants.effects import Group, groups_of, label_of
from genoformer.variants.score import Score, score_variants
from genoformer.variants.scoring import Scoring
from genoformer.workers import Workers

LETTERS = "ACGT"
_PIECE = 256
"""Bases of a block."""


def saturate_to_store(
    region: Region,
    sequences: Sequences,
    model: Genoformer,
    output: str | Path | Output,
    *,
    scoring: Scoring | None = None,
    workers: Workers | None = None,
    report: Callable[[int], None] = lambda _: None,
) -> Path:
    """Score all substitutions of a region, as `score_variants` does, into a store.

    Tracks "gain" and "loss" have a channel for each group and letter that is put in, such as "coding_plus:A", "shift"
    one for each class track and letter; a letter that is there already changes nothing: 0. Bases outside the region,
    and unknown ones, are NaN. Beside them lies the table "reference": position and code of each base of the region.

    Parameters
    ----------
    scoring, workers : see `score_variants`
    report : called with the number of bases done

    Raises
    ------
    InputError : the region does not lie on its sequence, or has no known base
    ConfigError : the output exists
    """
    scoring = scoring or Scoring()
    lengths = sequences.lengths()
    check_region(region, lengths, sequences.source)
    codes = encode(sequences.fetch(region))
    if not (codes <= T).any():
        raise InputError(f"{sequences.source}: region {region} has no known base; nothing to substitute")
    starts = range(0, region.length, _PIECE)
    table = SequenceTable.build([region.sequence], [lengths[region.sequence]])
    writer = Output.of(output).create(
        table,
        effect_tracks(model.tracks),
        provenance=provenance("saturation", region, sequences, model, scoring),
        blocks=np.array([(region.start + s, min(region.start + s + _PIECE, region.end)) for s in starts]),
    )
    with writer:
        writer.add_table("reference", ("position", "code"), reference_table(region, codes))
        scores = score_variants(_substitutions(region, codes), sequences, model, scoring=scoring, workers=workers)
        for start in starts:
            piece = codes[start : start + _PIECE]
            writer.write(Block(region.sequence, region.start + start, _values(piece, scores, model.tracks)))
            report(len(piece))
        return writer.finish()


def effect_tracks(tracks: Sequence[Track]) -> list[Track]:
    """Return the tracks of a saturation of a model that predicts these tracks."""
    mirrored = _mirror(tracks)
    names = list(mirrored)
    labels = [label_of(track) for track in tracks if track.kind == "class"]

    def track(name: str, rows: Sequence[str], turned: dict[str, str], units: str) -> Track:
        channels = [f"{row}:{letter}" for row in rows for letter in LETTERS]
        opposite = [
            channels.index(f"{turned[row]}:{letter}") for row in rows for letter in LETTERS[::-1]
        ]  # letters read backward are their complements
        return Track(name, "signal", tuple(channels), units, tuple(opposite))

    made = [
        track("gain", names, mirrored, "largest rise by the letter, over the window"),
        track("loss", names, mirrored, "largest fall by the letter, over the window"),
    ]
    if labels:
        itself = {label: label for label in labels}
        made.append(track("shift", labels, itself, "largest share of probability that changes class"))
    return made


def _mirror(tracks: Sequence[Track]) -> dict[str, str]:
    """Return the names of all groups, and what each is on the opposite strand."""
    found: dict[str, str] = {}
    for track in tracks:
        groups = groups_of(track)
        by_channels = {frozenset(group.channels): group.name for group in groups}
        for group in groups:
            turned = frozenset(track.reverse_complement[channel] for channel in group.channels)
            found[group.name] = by_channels.get(turned, group.name)
    return found


def all_groups(tracks: Sequence[Track]) -> list[Group]:
    """Return the groups of some tracks, one after the other."""
    return [group for track in tracks for group in groups_of(track)]


def _substitutions(region: Region, codes: np.ndarray) -> Iterator[Variant]:
    for place, code in enumerate(codes.tolist()):
        if code <= T:
            for letter in LETTERS:
                if letter != LETTERS[code]:
                    yield Variant(region.sequence, region.start + place, LETTERS[code], letter)


def _values(codes: np.ndarray, scores: Iterator[Score], tracks: Sequence[Track]) -> dict[str, np.ndarray]:
    """Take the scores of the substitutions of some bases."""
    groups = [group.name for group in all_groups(tracks)]
    labels = [label_of(track) for track in tracks if track.kind == "class"]
    shapes = {"gain": len(groups), "loss": len(groups), "shift": len(labels)}
    values = {name: np.full((len(codes), rows, 4), np.nan) for name, rows in shapes.items() if rows}
    for place, code in enumerate(codes.tolist()):
        if code > T:
            continue
        for letter in range(A, T + 1):
            effect = None if letter == code else next(scores).effect
            for row, group in enumerate(groups):
                change = None if effect is None else effect.changes[group]
                values["gain"][place, row, letter] = 0.0 if change is None else change.gain
                values["loss"][place, row, letter] = 0.0 if change is None else change.loss
            for row, label in enumerate(labels):
                values["shift"][place, row, letter] = 0.0 if effect is None else effect.shifts[label][0]
    return {name: array.reshape(len(codes), -1) for name, array in values.items()}


def reference_table(region: Region, codes: np.ndarray) -> np.ndarray:
    """Return position and code of each base of a region: (bases, 2)."""
    return np.stack([np.arange(region.start, region.end), codes.astype(np.int64)], axis=1)


def provenance(kind: str, region: Region, sequences: Sequences, model: Genoformer, scoring: Scoring) -> dict[str, Any]:
    """Return what a store of effects says about how it came about."""
    settings, checkpoint = scoring.settings, model.checkpoint
    return {
        "identity": {
            "kind": kind,
            "region": list(region),
            "model": getattr(checkpoint, "name", ""),
            "model-sha256": getattr(checkpoint, "sha256", ""),
            "window": scoring.window,
            "cell": scoring.cell,
            "genetic-code": settings.genetic_code,
            "strand-average": settings.strand_average,
            "precision": settings.precision,
            "method": scoring.method,
        },
        "groups": [group.name for group in all_groups(model.tracks)],
        "input": sequences.source,
        "versions": {"genoformer": genoformer.__version__},
    }
