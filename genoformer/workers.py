"""Workers: processes that predict, each with the whole model, on devices of their own or with a share of the threads.

Only this process reads and writes. Batches of codes go out to whichever worker has the least to do, values come back in
order, so that neither files nor genomes are held more than once, and every input can be predicted so.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import asdict, replace
from typing import TypeVar

import numpy as np
import safetensors.torch
import torch

from genoformer.batches import Item, rows_of
from genoformer.config import ModelConfig
from genoformer.errors import ConfigError
from genoformer.fitting import Fitting
from genoformer.messages import Message
from genoformer.model.checkpoint import named_tensors, restore
from genoformer.model.device import choose_devices, keep_freed_memory
from genoformer.model.genoformer import Genoformer, build
from genoformer.model.shared import Context
from genoformer.plain import from_dict, to_dict
from genoformer.plan import Plan
from genoformer.predict import Settings, compute, new_fitting, place_of
from genoformer.processes import Processes
from genoformer.serving import Compute, named

K = TypeVar("K")

Values = dict[str, np.ndarray]


class Workers:
    """Processes that compute for `predict`, `score_variants` and their kin; a context manager, or use `close`.

    Values are the same bytes as those of one process with as many threads as each of these. What is set in torch
    beyond threads is not passed on.

    Parameters
    ----------
    model : is sent to each, as it is now
    processes : how many; None: one for each device
    device : as on the command line, such as "cuda:0,1" or "all", processes are dealt out to these; None: the model's
    threads : of all together, each has an equal share, at least one; None: as many as torch uses here

    Raises
    ------
    ConfigError : these are no devices, more than processes, or the model was not made by `load_model` or `build`
    ResourceError : no such device is here, or processes cannot be started

    Examples
    --------
    >>> with genoformer.Workers(model, processes=4) as workers:  # doctest: +SKIP
    ...     for block in genoformer.predict("genome.fa", model, workers=workers):
    ...         print(block.sequence, block.start)
    """

    task = f"{__name__}:begin"
    """What each begins with, see `genoformer.serving`."""

    def __init__(
        self,
        model: Genoformer,
        *,
        processes: int | None = None,
        device: str | torch.device | None = None,
        threads: int | None = None,
    ) -> None:
        self.devices = choose_devices(str(device or model.device), processes=processes)
        """of each process, all of one kind"""
        self.threads = max(1, (threads or torch.get_num_threads()) // len(self.devices))
        """of each"""
        if model.config is None:
            raise ConfigError("this model does not know its configuration, and cannot be sent; save it, and load it")
        weights = safetensors.torch.save({k: v.detach().cpu().contiguous() for k, v in named_tensors(model).items()})
        told = {
            "task": self.task,
            "config": to_dict(model.config),
            "dtype": str(next(model.parameters()).dtype).removeprefix("torch."),
            "threads": self.threads,
            "seed": torch.initial_seed(),
        }
        arrays = {"weights": np.frombuffer(weights, dtype=np.uint8)}
        self._processes = Processes(
            [Message("setup", {**told, "device": str(each)}, arrays) for each in self.devices],
            labels=[f"process {number} ({each})" for number, each in enumerate(self.devices, start=1)],
            environment={name: str(self.threads) for name in ("OMP_NUM_THREADS", "MKL_NUM_THREADS")},
        )

    def __enter__(self) -> Workers:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __str__(self) -> str:
        count, where = len(self.devices), ", ".join(dict.fromkeys(map(str, self.devices)))
        each = f"{self.threads} thread{'s' if self.threads > 1 else ''} each"
        return f"{count} process{'es' if count > 1 else ''} on {where}, {each}"

    @property
    def pids(self) -> list[int]:
        """Return the numbers of the processes, by the system."""
        return self._processes.pids

    def hold(self) -> None:
        """Begin nothing more: `values` ends with KeyboardInterrupt once it has yielded what is underway."""
        self._processes.hold()

    def close(self) -> None:
        """End the processes, whatever they are doing."""
        self._processes.close()

    def values(
        self, batches: Iterable[list[Item]], plan: Plan, settings: Settings
    ) -> Iterator[tuple[list[Item], Values | None]]:
        """Yield each batch with its values, see `genoformer.predict.compute`; None for one that is all in gaps.

        Raises
        ------
        any error of computing or reading, in its turn; ResourceError : a worker was ended
        """
        for batch, result in self._processes.map(_jobs(batches, plan, settings)):
            yield batch, None if result is None else result.arrays

    def map(self, jobs: Iterable[tuple[K, Message | None]]) -> Iterator[tuple[K, Message | None]]:
        """Have other jobs computed with the model, see `genoformer.processes.Processes.map`.

        The head of each names its "service": ``module:function`` of what is called with the model and returns what
        computes.
        """
        return self._processes.map(jobs)


def _jobs(batches: Iterable[list[Item]], plan: Plan, settings: Settings) -> Iterator[tuple[list[Item], Message | None]]:
    """Yield each batch and what is to compute of it."""
    context = {} if settings.context is None else settings.context.arrays
    told = asdict(replace(settings, context=None))
    for batch in batches:
        rows = rows_of(batch, plan)
        head = {"settings": told, "where": place_of(batch, plan)}
        yield batch, None if rows is None else Message("job", head, {"rows": rows, **context})


def begin(setup: Message) -> Compute:
    """Make the model in a process that serves, and return what computes with it; see `genoformer.serving`."""
    head = setup.head
    keep_freed_memory()
    torch.set_num_threads(head["threads"])
    torch.manual_seed(head["seed"])
    model = build(from_dict(ModelConfig, head["config"], where="model")).to(getattr(torch, head["dtype"]))
    restore(model, safetensors.torch.load(setup.arrays["weights"].tobytes()), where="model")
    device = torch.device(head["device"])
    if device.index is not None:
        torch.cuda.set_device(device)
    model = model.eval().to(device)
    services: dict[str, Compute] = {"": _predicting(model)}

    def answer(job: Message) -> Message:
        name = job.head.get("service", "")
        if name not in services:
            services[name] = named(name)(model)
        return services[name](job)

    return answer


def _predicting(model: Genoformer) -> Compute:
    """Return what answers with the values of a batch."""
    fittings: dict[Settings, Fitting] = {}

    def answer(job: Message) -> Message:
        settings = Settings(**job.head["settings"])
        fitting = fittings.setdefault(settings, new_fitting(model, settings))
        arrays = dict(job.arrays)
        rows = arrays.pop("rows")
        if arrays:
            settings = replace(settings, context=Context.of_arrays(arrays, model.device))
        return Message(arrays=compute(rows, model, settings, fitting, where=job.head["where"]))

    return answer
