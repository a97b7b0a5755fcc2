"""Processes that torchrun started to do one thing: the first one speaks, and an error in one ends all."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, NoReturn, TypeVar

from genoformer.errors import GenoformerError, ResourceError

if TYPE_CHECKING:
    import torch

    from genoformer.cli.interrupts import Stop
    from genoformer.cli.options import DeviceOptions, OutputOptions
    from genoformer.training.team import Team

T = TypeVar("T")
_LOST = ("connection closed by peer", "connection reset by peer", "gloo", "nccl", "broken pipe")
"""Words of torch where another process is gone."""


def started_together() -> int:
    """Return how many processes torchrun started, 1 without it."""
    count = os.environ.get("WORLD_SIZE", "1")
    return int(count) if count.isdecimal() else 1


@dataclass(frozen=True)
class Crew:
    """This process, and those that it works with, if any.

    Attributes
    ----------
    team : they
    use : chooses and sets up this process's device
    """

    team: Team
    use: Callable[[], torch.device]

    @property
    def is_many(self) -> bool:
        return self.team.size > 1

    def target(self, target: OutputOptions) -> OutputOptions:
        """Return where this process writes, nowhere if it is not the first."""
        return target if self.team.leads else replace(target, output=None)  # type: ignore[arg-type]

    def agreed(self, step: Callable[[], T]) -> T:
        """Do something that every process does, and go on only if none of them found an error.

        Raises
        ------
        GenoformerError : in the first process, that of any; the others end without a word
        """
        if not self.is_many:
            return step()
        found: T | None = None
        error: GenoformerError | None = None
        try:
            found = step()
        except GenoformerError as caught:
            error = caught
        errors = _told_to_all(error, self.team.size)
        if any(errors):
            if not self.team.leads:
                _leave()
            if error is not None:
                raise error
            rank, (kind, text) = next((rank, told) for rank, told in enumerate(errors) if told)
            raise _kinds()[kind](f"process {rank} of {self.team.size}: {text}")
        return found  # type: ignore[return-value]

    def same(self, make: Callable[[], T]) -> T:
        """Make something in the first process, and return it in all."""
        if not self.is_many:
            return make()
        from torch import distributed as dist

        made: list[Any] = [self.agreed(make if self.team.leads else lambda: None)]
        dist.broadcast_object_list(made, 0)
        return made[0]

    @contextmanager
    def resumable(self, target: OutputOptions) -> Iterator[Stop]:
        """Let a signal end the work, and say how to go on; see `OutputOptions.resumable`."""
        from genoformer.cli.interrupts import Stop

        if not self.team.leads:
            yield Stop("block")
            return
        with target.resumable() as stop:
            try:
                yield stop
            except RuntimeError as error:
                if stop.asked and self.is_many and _is_loss(error):  # the others were told to end, too
                    raise KeyboardInterrupt from error
                raise


@contextmanager
def crew_of_torchrun(hardware: DeviceOptions) -> Iterator[Crew]:
    """Join the processes that torchrun started, if it did, and leave them at the end. All but the first are quiet.

    Raises
    ------
    ResourceError : in the first process, that another one is gone; the others end without a word, but for errors of
        their own
    """
    from genoformer.training.team import ALONE, team_of_torchrun

    if started_together() == 1:
        yield Crew(ALONE, hardware.use)
        return
    with team_of_torchrun(hardware.use()) as (team, device):
        crew = Crew(team, lambda: device)
        if not team.leads:
            _hush()
        try:
            yield crew
        except KeyboardInterrupt:
            if team.leads:
                raise
            _leave()
        except RuntimeError as error:
            if not _is_loss(error):
                raise
            if not team.leads:
                _leave()
            raise ResourceError(
                f"one of the {team.size} processes is gone; it said why, or was killed, as systems do where memory "
                "runs out. What was written before is kept, for --resume"
            ) from error


def _told_to_all(error: GenoformerError | None, size: int) -> list[Any]:
    from torch import distributed as dist

    errors: list[Any] = [None] * size
    dist.all_gather_object(errors, None if error is None else (type(error).__name__, str(error)))
    return errors


def _kinds() -> dict[str, type[GenoformerError]]:
    return {kind.__name__: kind for kind in GenoformerError.__subclasses__()}


def _is_loss(error: RuntimeError) -> bool:
    """Tell whether an error says that another process is gone."""
    from torch import distributed as dist

    if isinstance(error, GenoformerError):
        return False
    return isinstance(error, dist.DistError) or any(words in str(error).lower() for words in _LOST)


def _hush() -> None:
    """Say nothing from now on but errors."""
    from genoformer.cli import events
    from genoformer.cli.progress import console

    events.forget()
    console.quiet = True


def _leave() -> NoReturn:
    """End this process without a word or an exit code of its own, which torchrun would end the others for: the first
    one says why, and has the code.
    """
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(0)
