"""What is checked before a model is loaded: by predict up to the first problem, by plan to the last."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from genoformer.errors import GenoformerError, ResourceError

if TYPE_CHECKING:
    import torch

    from genoformer.cli.options import InputOptions, OutputOptions, WindowOptions
    from genoformer.formats.sequences import Sequences
    from genoformer.model.checkpoint import Checkpoint
    from genoformer.plan import Plan
    from genoformer.regions import Region
    from genoformer.store import Shard
    from genoformer.tracks import Track

LEAST_SHARE = 0.4
"""Share of the uncompressed size below which no prediction was seen to be compressed."""


@dataclass
class Checks:
    """The outcome: what was found, None where a problem kept it from being found.

    Attributes
    ----------
    collect : keep going after a problem, and keep it in ``problems``, instead of raising it
    project : plan where the values of aligned reads come to lie, instead of the reads
    whole : each sequence is one window
    """

    collect: bool = False
    problems: list[GenoformerError] = field(default_factory=list)
    checkpoint: Checkpoint | None = None
    device: torch.device | None = None
    sequences: Sequences | None = None
    plan: Plan | None = None
    project: bool = False
    whole: bool = False

    @contextmanager
    def step(self) -> Iterator[None]:
        """Check one thing; other errors than ours are never kept."""
        try:
            yield
        except GenoformerError as error:
            if not self.collect:
                raise
            if str(error) not in map(str, self.problems):
                self.problems.append(error)

    def read(self, source: InputOptions, cut: WindowOptions) -> None:
        """Open the input and plan its windows."""
        from genoformer.plan import make_plan
        from genoformer.projection_plan import plan_projection
        from genoformer.regions import check_window

        make = plan_projection if self.project else partial(make_plan, whole=self.whole)
        with self.step():
            self.sequences = source.open()
        known = len(self.problems)
        window, overlap = cut.sizes(None if self.whole else self.sequences)
        with self.step():
            check_window(window, overlap)
        if self.sequences is None:
            return
        regions = self._regions(source.regions)
        if len(self.problems) > known:  # still read the input, for its own problems
            window, overlap = type(cut)(None, None).sizes(self.sequences)
        with self.step():
            plan: Plan = make(
                self.sequences,
                window=window,
                overlap=overlap,
                regions=regions,
                min_length=source.min_length,
                circular=source.circular,
            )
            self.plan = plan if len(self.problems) == known else None

    def _regions(self, texts: tuple[str, ...]) -> list[Region] | None:
        from genoformer.formats.bed import parse_regions

        if not texts or self.sequences is None:
            return None
        if self.collect and len(texts) > 1:
            for text in texts:
                with self.step():
                    parse_regions([text], self.sequences.lengths())
        with self.step():
            return parse_regions(texts, self.sequences.lengths())
        return None


def check_run(
    source: InputOptions,
    cut: WindowOptions,
    *,
    model: str,
    device: str,
    processes: int | None = None,
    target: OutputOptions,
    collect: bool = False,
    shard: Shard | None = None,
    project: bool = False,
    whole: bool = False,
    show: Callable[[Plan], None] = lambda _: None,
) -> Checks:
    """Check all that a prediction needs; see `Checks`.

    Parameters
    ----------
    device, processes : see `choose_devices`
    shard : the part that is to be predicted, of which only the space it takes is judged
    project, whole : see `Checks`
    show : called with the plan before it is judged

    Raises
    ------
    GenoformerError : the first problem, unless they are collected
    """
    from genoformer.model.checkpoint import read_checkpoint
    from genoformer.model.device import choose_devices
    from genoformer.plan import check_predictable
    from genoformer.predict import check_config_fits

    checks = Checks(collect=collect, project=project, whole=whole)
    can_write = False
    if target.output is not None:
        with checks.step():
            target.check(source)
            can_write = True
    with checks.step():
        checks.checkpoint = read_checkpoint(model)
    with checks.step():
        checks.device = choose_devices(device, processes=processes)[0]
    checks.read(source, cut)
    if checks.plan is None:
        return checks
    show(checks.plan)
    with checks.step():
        check_predictable(checks.plan)
    if checks.checkpoint is not None:
        with checks.step():
            check_config_fits(checks.checkpoint.config, checks.plan)
        if can_write and not target.may_be_done:
            with checks.step():
                check_space(target.output, checks.plan, model_tracks(checks.checkpoint), shard=shard)
    return checks


def model_tracks(checkpoint: Checkpoint) -> list[Track]:
    """Return the tracks that a model predicts."""
    return list(checkpoint.config.described_tracks)


def value_bytes(plan: Plan, tracks: list[Track]) -> int:
    """Return the uncompressed size of the predictions, two bytes a value."""
    return 2 * plan.accounting.predicted * sum(len(track.channels) for track in tracks)


def free_bytes(path: Path) -> int | None:
    """Return the free space where a file is to be written; None if there is no such folder."""
    try:
        return shutil.disk_usage(path.parent).free
    except OSError:
        return None


def check_space(path: Path, plan: Plan, tracks: list[Track], *, shard: Shard | None = None) -> None:
    """Raise ResourceError if the predictions cannot fit on the disk, however well they compress."""
    from genoformer.cli.progress import size

    free, least = free_bytes(path), LEAST_SHARE * value_bytes(plan, tracks) / (1 if shard is None else shard.count)
    part = path.with_name(path.name + ".part")
    if part.exists():
        least -= part.stat().st_size  # what an interrupted run has written already
    if free is not None and free < least:
        raise ResourceError(
            f"{path.parent}: {size(free)} are free, at least {size(least)} are needed; "
            "free some space, or name an output elsewhere"
        )
