"""Measure attention mechanisms side by side: time, peak memory, arithmetic rate, and where one overtakes another.

All contenders of a length are timed in turns, so that they see the same machine; memory is measured before, each in a
process of its own.
"""

from __future__ import annotations

import fnmatch
import math
import statistics
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import torch

from genoformer.bench.contenders import CONTENDERS, FUSED, Contender, Shape
from genoformer.bench.probe import Job, Limits, Probe, Task, can_tell_memory, probe, probe_apart
from genoformer.errors import ConfigError

LENGTHS = (256, 1024, 4096, 16_384, 65_536)
_LEAST_SECONDS = 0.05
"""Faster runs of few tokens are repeated until a sample takes about that long, after one that warms the caches."""
_FEW_TOKENS = 4096
Tell = Callable[[str], None]


@dataclass(frozen=True)
class Setup:
    """How to measure.

    Attributes
    ----------
    shape : sizes of the attention layer
    lengths : tokens of a sequence, ascending
    repeats : samples, of which the median counts
    backward : whether a run includes the backward pass
    device : as torch names it
    limits : what a contender may take at a length
    """

    shape: Shape = field(default_factory=Shape)
    lengths: tuple[int, ...] = LENGTHS
    repeats: int = 5
    backward: bool = False
    device: str = "cpu"
    limits: Limits = field(default_factory=Limits)

    def __post_init__(self) -> None:
        if not self.lengths or min(self.lengths) < 1:
            raise ConfigError(f"lengths must be at least one number of tokens, each 1 or more, got {self.lengths}")
        if self.repeats < 1:
            raise ConfigError(f"repeats must be at least 1, got {self.repeats}")
        object.__setattr__(self, "lengths", tuple(sorted(set(self.lengths))))


class Measurement(NamedTuple):
    """One contender at one length."""

    group: str
    name: str
    tokens: int
    seconds: float
    """median; NaN if it was skipped"""
    fastest: float
    slowest: float
    memory: int | None
    """bytes at the peak, beyond inputs, parameters and outputs; None if not known"""
    operations: float
    """floating-point operations of the matrix products, by formula"""
    share: float
    """of the rate that a large matrix product reached in the same run"""
    skipped: str = ""

    @property
    def rate(self) -> float:
        """Floating-point operations a second."""
        return self.operations / self.seconds


@dataclass(frozen=True)
class Report:
    """What was measured.

    Attributes
    ----------
    peak : floating-point operations a second of a large matrix product, the best seen in this run
    missing : why contenders of other libraries could not be measured, by package
    """

    setup: Setup
    measurements: tuple[Measurement, ...]
    peak: float
    threads: int
    processor: str
    torch_version: str
    missing: dict[str, str]

    def find(self, group: str, name: str, tokens: int) -> Measurement | None:
        """Return a measurement that was made, or None."""
        for row in self.measurements:
            if (row.group, row.name, row.tokens) == (group, name, tokens) and not row.skipped:
                return row
        return None

    def crossovers(self) -> dict[str, str]:
        """Say for each mechanism that takes linear time, as "group/name", where it overtakes exact attention."""
        found = {}
        for key in dict.fromkeys(f"{row.group}/{row.name}" for row in self.measurements):
            contender = CONTENDERS[key]
            if not contender.is_quadratic:
                mine, exact = self._times(contender.group, contender.name), self._times(contender.group, FUSED)
                common = sorted(mine.keys() & exact.keys())
                if common:
                    found[key] = describe_crossover(common, [mine[n] / exact[n] for n in common])
        return found

    def _times(self, group: str, name: str) -> dict[int, float]:
        rows = (row for row in self.measurements if (row.group, row.name) == (group, name) and not row.skipped)
        return {row.tokens: row.seconds for row in rows}

    def as_dict(self) -> dict[str, Any]:
        """Return everything, ready for JSON; numbers that are not known, or infinite, are None."""
        rows = [measurement._asdict() for measurement in self.measurements]
        about = {
            "setup": asdict(self.setup),
            "peak_operations_per_second": self.peak,
            "threads": self.threads,
            "processor": self.processor,
            "torch": self.torch_version,
            "missing": self.missing,
        }
        return _known({**about, "crossovers": self.crossovers(), "measurements": rows})


def _known(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _known(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_known(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def describe_crossover(lengths: Sequence[int], ratios: Sequence[float]) -> str:
    """Say where a time relative to that of exact attention falls below 1 for good.

    Between lengths, the ratio is taken to be a power of the length.

    >>> describe_crossover([1000, 4000], [2.0, 0.5])
    '2,000'
    >>> describe_crossover([1000, 4000], [0.5, 0.1])
    'below 1,000'
    """
    last = max((index for index, ratio in enumerate(ratios) if ratio >= 1), default=-1)
    if last == -1:
        return f"below {lengths[0]:,}"
    if last == len(lengths) - 1:
        return f"beyond {lengths[-1]:,}"
    (a, b), (x, y) = lengths[last : last + 2], (math.log(ratio) for ratio in ratios[last : last + 2])
    return f"{round(a * (b / a) ** (x / (x - y))):,}"


def select(only: Iterable[str] = (), *, groups: Sequence[str] = ()) -> list[Contender]:
    """Return contenders by shell patterns of "name" or "group/name"; the usual ones if no pattern is given.

    Raises
    ------
    ConfigError : a pattern fits none
    """
    patterns = list(only)
    within = [contender for contender in CONTENDERS.values() if not groups or contender.group in groups]
    if not patterns:
        return [contender for contender in within if contender.is_usual]

    def fits(contender: Contender, pattern: str) -> bool:
        return any(fnmatch.fnmatchcase(text, pattern) for text in (contender.name, contender.key))

    for pattern in patterns:
        if not any(fits(contender, pattern) for contender in within):
            names = ", ".join(dict.fromkeys(contender.name for contender in within))
            raise ConfigError(f"{pattern!r} fits none of the mechanisms; there are: {names}")
    return [contender for contender in within if any(fits(contender, pattern) for pattern in patterns)]


def measure(setup: Setup, contenders: Sequence[Contender], *, tell: Tell = lambda words: None) -> Report:
    """Measure contenders at all lengths; ``tell`` is called with what is being done.

    Memory that was freed is to be kept alike for all of them: call `keep_freed_memory` before.
    """
    missing = {contender.package: contender.unavailable() for contender in contenders if contender.package}
    present = [contender for contender in contenders if not missing.get(contender.package)]
    probes = {contender.key: _probes(contender, setup, tell) for contender in present}
    peak = 0.0
    samples: dict[tuple[str, int], list[float]] = {}
    for tokens in setup.lengths:
        running = [contender for contender in present if not probes[contender.key][tokens].skipped]
        tell(f"time at {tokens:,} tokens")
        for key, seconds in _timed(running, setup, tokens).items():
            samples[key, tokens] = seconds
        peak = max(peak, matrix_product_rate(setup.device, repeats=setup.repeats))
    rows = []
    for contender in present:
        for tokens in setup.lengths:
            operations = contender.operations(setup.shape, tokens) * (3 if setup.backward else 1)
            rows.append(_row(contender, probes[contender.key][tokens], samples.get((contender.key, tokens)), peak=peak,
                             operations=operations))  # fmt: skip
    return Report(
        setup=setup,
        measurements=tuple(rows),
        peak=peak,
        threads=torch.get_num_threads(),
        processor=processor(setup.device),
        torch_version=torch.__version__,
        missing={package: reason for package, reason in missing.items() if reason},
    )


def _row(
    contender: Contender, found: Probe, samples: list[float] | None, *, peak: float, operations: float
) -> Measurement:
    nothing = float("nan")
    common = (contender.group, contender.name, found.tokens)
    if not samples:
        return Measurement(*common, nothing, nothing, nothing, None, operations, nothing, found.skipped)
    median = statistics.median(samples)
    share = operations / median / peak
    return Measurement(*common, median, min(samples), max(samples), found.memory, operations, share)


def _probes(contender: Contender, setup: Setup, tell: Tell) -> dict[int, Probe]:
    tell(f"memory of {contender.key}")
    job = Job(
        contender.key, setup.shape, setup.lengths, setup.limits, setup.backward, torch.get_num_threads(), setup.device
    )
    on_cpu = torch.device(setup.device).type == "cpu"
    run = probe_apart if on_cpu and can_tell_memory(setup.device) else probe
    return {result.tokens: result for result in run(job)}


def _timed(contenders: Sequence[Contender], setup: Setup, tokens: int) -> dict[str, list[float]]:
    """Return the samples of each contender, taken in turns."""
    tasks = {
        contender.key: Task(contender, setup.shape, tokens, backward=setup.backward, device=setup.device)
        for contender in contenders
    }
    is_short = tokens <= _FEW_TOKENS
    times = {}
    for key, task in tasks.items():
        task.seconds()  # warms up
        times[key] = max(1, round(_LEAST_SECONDS / task.seconds())) if is_short else 1
    samples: dict[str, list[float]] = {key: [] for key in tasks}
    for _ in range(setup.repeats):
        for key, task in tasks.items():
            if is_short:
                task.run()
            samples[key].append(task.seconds(times[key]))
    return samples


def matrix_product_rate(device: str = "cpu", *, repeats: int = 5) -> float:
    """Return the floating-point operations a second of a large square product in float32, the best of some."""
    size = 2048 if torch.device(device).type == "cpu" else 8192
    a, b = (torch.randn(size, size, device=device) for _ in range(2))
    return 2.0 * size**3 / min(_product_seconds(a, b) for _ in range(repeats + 1))


def _product_seconds(a: torch.Tensor, b: torch.Tensor) -> float:
    began = time.perf_counter()
    (a @ b).sum().item()  # waits for the device
    return time.perf_counter() - began


def processor(device: str) -> str:
    """Return the name of a processor, as far as it is known."""
    if torch.device(device).type == "cuda":
        return torch.cuda.get_device_name(device)
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        lines = []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return f"{names[0] if names else 'cpu'}, {torch.backends.cpu.get_cpu_capability()}"
