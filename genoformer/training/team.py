"""A team: the processes that train one model together, each on its share of a step's windows."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import torch
import torch.distributed as dist
from torch import Tensor


@dataclass(frozen=True)
class Team:
    """This process and how many there are.

    Attributes
    ----------
    rank, size : number of this process, from 0; of all
    """

    rank: int = 0
    size: int = 1

    @property
    def leads(self) -> bool:
        """Whether this is the process that writes."""
        return self.rank == 0

    def add_up(self, tensors: Sequence[Tensor]) -> None:
        """Replace tensors by their sums over all processes, in one exchange for each type of number."""
        if self.size == 1:
            return
        for kind in {tensor.dtype for tensor in tensors}:
            alike = [tensor for tensor in tensors if tensor.dtype == kind]
            flat = torch.cat([tensor.flatten() for tensor in alike])
            dist.all_reduce(flat)
            for tensor, total in zip(alike, flat.split([tensor.numel() for tensor in alike]), strict=True):
                tensor.copy_(total.view_as(tensor))


ALONE = Team()


def join_team() -> Team:
    """Return the team of the default process group, or of this process alone where there is none."""
    if not (dist.is_available() and dist.is_initialized()):
        return ALONE
    return Team(dist.get_rank(), dist.get_world_size())


@contextmanager
def team_of_torchrun(device: torch.device) -> Iterator[tuple[Team, torch.device]]:
    """Join the processes that torchrun started, if it did, and leave them at the end.

    Parameters
    ----------
    device : to compute on; of several GPUs, each process of a machine takes its own

    Yields
    ------
    the team and this process's device
    """
    if int(os.environ.get("WORLD_SIZE", "1")) < 2:
        yield ALONE, device
        return
    if device.type == "cuda":
        device = torch.device("cuda", int(os.environ.get("LOCAL_RANK", "0")))
        torch.cuda.set_device(device)
    dist.init_process_group("nccl" if device.type == "cuda" else "gloo")
    try:
        yield join_team(), device
    finally:
        dist.destroy_process_group()
