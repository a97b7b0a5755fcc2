"""What one contender takes at a length: time, and memory beyond its inputs and outputs, in a process of its own."""

from __future__ import annotations

import ctypes
import json
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path

import torch
from torch import Tensor, nn

from genoformer.bench.contenders import CONTENDERS, Contender, Shape

_STATUS, _CLEAR = Path("/proc/self/status"), Path("/proc/self/clear_refs")
_WARM_TOKENS = 256


@dataclass(frozen=True)
class Limits:
    """What a contender may take at a length; beyond, the length is skipped.

    Attributes
    ----------
    seconds : of one run, as expected from the length before
    memory : bytes, likewise
    """

    seconds: float = 20.0
    memory: float = 4e9


@dataclass(frozen=True)
class Job:
    """A contender and the lengths to run it at."""

    key: str
    shape: Shape
    lengths: tuple[int, ...]
    limits: Limits = Limits()
    backward: bool = False
    threads: int = 1
    device: str = "cpu"


@dataclass(frozen=True)
class Probe:
    """How a first run at a length went.

    Attributes
    ----------
    seconds : of that run, which includes getting memory from the system
    memory : most bytes held at a time beyond inputs, parameters and what is returned; None where it cannot be told
    skipped : why it was not run; empty if it was
    """

    tokens: int
    seconds: float = 0.0
    memory: int | None = None
    skipped: str = ""


class Task:
    """A module with its inputs, to be run again and again.

    Parameters
    ----------
    contender, shape, tokens : which module, and how much it gets
    backward : whether gradients of inputs and parameters are computed, too
    dtype : of the inputs; parameters are in float32
    """

    def __init__(
        self,
        contender: Contender,
        shape: Shape,
        tokens: int,
        *,
        backward: bool = False,
        device: str = "cpu",
        dtype: torch.dtype = torch.float32,
    ) -> None:
        torch.manual_seed(0)
        self.device = torch.device(device)
        self.module: nn.Module = contender.make(shape, tokens).to(self.device).train(backward)
        self.inputs = [x.to(dtype) for x in shape.inputs(contender.group, tokens, device=self.device)]
        self.backward = backward
        if backward:
            self.upstream = torch.ones_like(self.inputs[0])
            self.wanted = [x.requires_grad_() for x in self.inputs] + list(self.module.parameters())

    def run(self) -> list[Tensor]:
        """Run once and return the output, and with a backward pass the gradients."""
        if not self.backward:
            with torch.inference_mode():
                return [self.module(*self.inputs)]
        output = self.module(*self.inputs)
        gradients = torch.autograd.grad(output, self.wanted, self.upstream, allow_unused=True)
        return [output.detach(), *(gradient for gradient in gradients if gradient is not None)]

    def seconds(self, times: int = 1) -> float:
        """Return how long a run takes, the mean of so many in a row."""
        self._wait()
        began = time.perf_counter()
        for _ in range(times):
            self.run()
        self._wait()
        return (time.perf_counter() - began) / times

    def _wait(self) -> None:
        if self.device.type == "cuda":
            torch.cuda.synchronize(self.device)

    def memory(self) -> int | None:
        """Return the most bytes held at a time during a run, without what was there before and what it returns."""
        cuda = self.device.type == "cuda"
        if cuda:
            torch.cuda.reset_peak_memory_stats(self.device)
        elif not _reset_high_water():
            self.run()
            return None
        before = torch.cuda.memory_allocated(self.device) if cuda else _kilobytes("VmRSS") * 1024
        kept = sum(tensor.untyped_storage().nbytes() for tensor in self.run())
        peak = torch.cuda.max_memory_allocated(self.device) if cuda else _kilobytes("VmHWM") * 1024
        return max(0, peak - before - kept)


def can_tell_memory(device: str) -> bool:
    """Whether peak memory can be told: on CUDA, and where Linux resets a process's high-water mark."""
    return torch.device(device).type == "cuda" or _reset_high_water()


def probe(job: Job) -> Iterator[Probe]:
    """Run a contender once at each length, in order, skipping what would exceed the limits."""
    contender, shape, last = CONTENDERS[job.key], job.shape, Probe(0)
    growth = 2 if contender.is_quadratic else 1
    Task(contender, shape, _WARM_TOKENS, backward=job.backward, device=job.device).run()
    for tokens in job.lengths:
        times = (tokens / last.tokens) ** growth if last.tokens else 0.0
        formed = contender.matrix_bytes(shape, tokens)
        needed = max(formed, (last.memory or 0) * (times if formed else tokens / max(last.tokens, 1)))
        if last.seconds * times > job.limits.seconds:
            yield Probe(tokens, skipped=f"one run would take about {last.seconds * times:.0f} s")
        elif needed > job.limits.memory:
            yield Probe(tokens, skipped=f"would need about {needed / 1e9:.1f} GB")
        else:
            last = _probe_at(contender, job, tokens)
            yield last


def _probe_at(contender: Contender, job: Job, tokens: int) -> Probe:
    task = Task(contender, job.shape, tokens, backward=job.backward, device=job.device)
    _give_back()
    began = time.perf_counter()
    memory = task.memory()
    return Probe(tokens, time.perf_counter() - began, memory)


def probe_apart(job: Job) -> Iterator[Probe]:
    """Do the same in a process of its own, which may die of too little memory without harm."""
    command = [sys.executable, "-m", "genoformer.bench.probe"]
    process = subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    out, err = process.communicate(json.dumps(asdict(job)))
    done = [Probe(**json.loads(line)) for line in out.splitlines()]
    yield from done
    if process.returncode:
        said = err.strip().splitlines()[-1:] or ["nothing said"]
        reason = f"signal {-process.returncode}; out of memory?" if process.returncode < 0 else said[0]
        yield from (Probe(tokens, skipped=f"failed ({reason})") for tokens in job.lengths[len(done) :])


def _kilobytes(name: str) -> int:
    for line in _STATUS.read_text(encoding="ascii").splitlines():
        if line.startswith(name):
            return int(line.split()[1])
    raise OSError(f"{_STATUS}: no {name}")


def _reset_high_water() -> bool:
    try:
        _CLEAR.write_text("5", encoding="ascii")
        return bool(_kilobytes("VmHWM"))
    except OSError:
        return False


def _return_memory_at_once() -> None:
    """Have the C library give back every larger block when it is freed, so that the mark shows what is in use."""
    mmap_threshold, trim_threshold = -3, -1  # M_MMAP_THRESHOLD, M_TRIM_THRESHOLD of malloc.h
    with suppress(OSError, AttributeError):
        library = ctypes.CDLL(None)
        library.mallopt(mmap_threshold, 1 << 17)
        library.mallopt(trim_threshold, 1 << 17)


def _give_back() -> None:
    with suppress(OSError, AttributeError):
        ctypes.CDLL(None).malloc_trim(0)


def main() -> None:
    """Read a job from stdin as JSON, and write a line of JSON for each length."""
    given = json.load(sys.stdin)
    job = Job(**given | {"shape": Shape(**given["shape"]), "limits": Limits(**given["limits"])})
    _return_memory_at_once()
    torch.set_num_threads(job.threads)
    for result in probe(job):
        print(json.dumps(asdict(result)), flush=True)


if __name__ == "__main__":
    main()
