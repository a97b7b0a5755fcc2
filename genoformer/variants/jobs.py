"""Batches of variants sent to other processes, and what they answer: see `genoformer.workers`."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import asdict, replace
from itertools import accumulate
from typing import Any

import numpy as np

from genoformer.formats.vcf import Variant
from genoformer.messages import Message
from genoformer.model.genoformer import Genoformer
from genoformer.predict import Settings
from genoformer.regions import Region
from genoformer.serving import Compute
from genoformer.variants.effects import Change, Effect
from genoformer.variants.placing import Batch, Placed, Window
from genoformer.variants.scorer import Scorer
from genoformer.variants.scoring import Scoring
from genoformer.workers import Workers

SERVICE = f"{__name__}:begin"


def effects_by(
    workers: Workers, batches: Iterable[Batch], scoring: Scoring
) -> Iterator[tuple[Batch, list[Effect | None]]]:
    """Have other processes score batches, and yield each with what its variants change, in order.

    Raises
    ------
    any error of scoring or reading, in its turn; ResourceError : a process was ended
    """
    for batch, result in workers.map((batch, _job(batch, scoring)) for batch in batches):
        found = iter([] if result is None else result.head["effects"])
        yield batch, [None if placed.region is None else _effect(next(found)) for placed in batch.placed]


def begin(model: Genoformer) -> Compute:
    """Return what answers with the effects of a batch."""
    scorers: dict[Scoring, Scorer] = {}

    def answer(job: Message) -> Message:
        told = job.head["scoring"]
        scoring = Scoring(**{**told, "settings": Settings(**told["settings"])})
        scorer = scorers.get(scoring) or scorers.setdefault(scoring, Scorer(model, scoring))
        return Message(head={"effects": scorer.effects(_batch(job))})

    return answer


def _job(batch: Batch, scoring: Scoring) -> Message | None:
    """Write the variants of a batch that have a window; None if there are none."""
    if not batch.windows:
        return None
    number = {region: index for index, region in enumerate(batch.windows)}
    told = [(*variant, number[region]) for variant, region, _ in batch.placed if region is not None]
    first = next(placed for placed in batch.placed if placed.region is not None).variant
    head = {
        "service": SERVICE,
        "scoring": asdict(replace(scoring, settings=replace(scoring.settings, context=None))),  # not for variants
        "regions": list(batch.windows),
        "variants": told,
        "where": f"{first.sequence}:{first.start + 1:,}",
    }
    codes, counts = zip(*batch.windows.values(), strict=True)
    return Message("job", head, {"codes": np.concatenate(codes), "counts": np.concatenate(counts)})


def _batch(job: Message) -> Batch:
    """Read what `_job` wrote."""
    regions = [Region(*region) for region in job.head["regions"]]
    ends = list(accumulate(region.length for region in regions))[:-1]
    parts = (np.split(job.arrays[name], ends) for name in ("codes", "counts"))
    windows = {region: Window(*both) for region, *both in zip(regions, *parts, strict=True)}
    return Batch([Placed(Variant(*variant), regions[number], "") for *variant, number in job.head["variants"]], windows)


def _effect(told: list[Any]) -> Effect:
    """Read what JSON made of an effect."""
    changes, shifts, inserted, deleted = told
    return Effect(
        {name: Change(*change) for name, change in changes.items()},
        {label: (share, place) for label, (share, place) in shifts.items()},
        inserted,
        deleted,
    )
