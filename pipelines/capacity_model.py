"""What the workflow costs, and a simulation of it: workers, start-up, queues, stragglers and failures."""

from __future__ import annotations

import heapq
import math
import random
import tomllib
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

import numpy as np

from genoformer.errors import ConfigError, InputError
from genoformer.regions import DEFAULT_OVERLAP, DEFAULT_WINDOW

EXPORTS = ("gff3", "faa", "bigwig", "report")
"""What is made of every merged file; bigwig for each of two strands."""
KINDS = ("scheduler", "queue", "start-up", "plan", "predict", "merge", *EXPORTS, "lost")
"""What time goes into; the first are waits, not work."""
WAITS = 2
SAMPLED = 200_000
"""Bases by which the genetic code is told; of shorter inputs, all."""


@dataclass(frozen=True)
class Costs:
    """Unit costs, as measure_costs.py measures them.

    Attributes
    ----------
    predict : bases a second of one worker, those that windows share counted for each
    contigs : bases a second for contigs of 1,000 to 3,000 bases
    plan, gff3, faa, bigwig, report : bases a second of one process
    merge : megabytes a second
    start : seconds of a process of predict or plan around its bases
    sample : seconds in which it tells the genetic code of an input of 200,000 bases or more
    scan : bases a second of the whole input, which each shard reads
    start_light : the same of a command that needs no torch, as export
    start_workflow : seconds of Snakemake before its first job
    schedule : seconds of Snakemake's own for each job, one after the other
    store_bytes, gff3_bytes, faa_bytes, bigwig_bytes : bytes a base; bigwig for each of two strands
    report_bytes : bytes of a page
    predict_mb : memory of a worker, MB
    threads : CPU threads of a worker
    """

    predict: float
    contigs: float
    plan: float
    gff3: float
    faa: float
    bigwig: float
    report: float
    merge: float
    start: float
    sample: float
    scan: float
    start_light: float
    start_workflow: float
    schedule: float
    store_bytes: float
    gff3_bytes: float
    faa_bytes: float
    bigwig_bytes: float
    report_bytes: float
    predict_mb: float
    threads: float
    about: dict[str, Any] = field(default_factory=dict, compare=False)
    """When, where and on what they were measured, in words."""


def read_costs(path: Path) -> Costs:
    """Read a TOML file with the tables ``costs`` and ``about``.

    Raises
    ------
    InputError : it cannot be read
    ConfigError : a cost is missing, unknown, or no positive number
    """
    try:
        read = tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise InputError(f"{path}: cannot be read as TOML: {error}; measure_costs.py writes one") from None
    costs, names = read.get("costs", {}), {one.name for one in fields(Costs)} - {"about"}
    odd = sorted(names ^ set(costs))
    if odd:
        raise ConfigError(f"{path}: {odd[0]!r} is {'missing' if odd[0] in names else 'no cost'}; measure again")
    for name, value in costs.items():
        if not isinstance(value, int | float) or not 0 < value < math.inf:
            raise ConfigError(f"{path}: {name} = {value!r}: expected a positive number")
    return Costs(**costs, about=read.get("about", {}))


@dataclass(frozen=True)
class Case:
    """What is annotated: so many inputs of so many bases each; ``contigs`` for short sequences."""

    name: str
    samples: int
    bases: int
    contigs: bool = False


@dataclass(frozen=True)
class Setup:
    """Where, and what goes wrong there.

    Attributes
    ----------
    workers : jobs that run at a time
    submitted : jobs that run or wait in the queue at a time
    shard_bases : bases of one job, at most
    queue_minutes : mean wait of a job before it runs, exponential
    failures_a_day : of one worker, at any moment
    spread : standard deviation of the logarithm of a job's time
    slow_share, slow_factor : of jobs land on a worker that is so much slower
    """

    workers: int
    shard_bases: int
    queue_minutes: float = 0.0
    failures_a_day: float = 0.0
    spread: float = 0.0
    slow_share: float = 0.0
    slow_factor: float = 1.0
    submitted: int = 200


@dataclass(frozen=True)
class Outcome:
    """What a simulation took.

    Attributes
    ----------
    seconds : from the first job's submission to the last one's end
    shares : of that time, by what was going on, adding up to 1; where several things were, in parts
    jobs : how many
    disk : most bytes at a time
    """

    seconds: float
    shares: dict[str, float]
    jobs: int
    disk: float

    @property
    def bottleneck(self) -> str:
        return max(self.shares, key=lambda kind: self.shares[kind])


@dataclass
class _Job:
    kind: str
    start: float
    work: float
    keeps: bool = False  # what was done before a failure
    needs: int = 0
    then: list[int] = field(default_factory=list)


def computed(bases: int) -> int:
    """Return what the windows of a sequence add up to: they overlap, and the last is as long as all others."""
    windows = max(1, math.ceil((bases - DEFAULT_OVERLAP) / (DEFAULT_WINDOW - DEFAULT_OVERLAP)))
    return windows * min(bases, DEFAULT_WINDOW)


def make_jobs(case: Case, costs: Costs, shard_bases: int) -> list[_Job]:
    """Return the jobs of the workflow, each knowing which come after it; those that come first need none."""
    jobs: list[_Job] = []

    def add(kind: str, work: float, after: list[int], *, start: float = costs.start_light) -> int:
        jobs.append(_Job(kind, start, work, kind == "predict", len(after)))
        for number in after:
            jobs[number].then.append(len(jobs) - 1)
        return len(jobs) - 1

    seconds = case.bases / costs.contigs if case.contigs else computed(case.bases) / costs.predict
    plans = [add("plan", case.bases / costs.plan, [], start=costs.start) for _ in range(case.samples)]
    table = add("plan", 0.0, plans, start=0.0)
    parts = max(1, math.ceil(case.bases / shard_bases))
    start = costs.start + costs.sample * min(1, case.bases / SAMPLED) + case.bases / costs.scan
    for _ in range(case.samples):
        shards = [add("predict", seconds / parts, [table], start=start) for _ in range(parts)]
        size = case.bases * costs.store_bytes / 1e6
        merged = add("merge", size / costs.merge, shards) if parts > 1 else add("merge", 0.0, shards, start=0.0)
        genes = add("gff3", case.bases / costs.gff3, [merged])
        add("faa", case.bases / costs.faa, [merged])
        for _ in "+-":
            add("bigwig", case.bases / costs.bigwig, [merged])
        add("report", case.bases / costs.report, [genes])
    return jobs


def simulate(case: Case, costs: Costs, setup: Setup, *, seed: int = 0) -> Outcome:
    """Run the jobs of a case on workers; of those that can run, the first comes first.

    Jobs are submitted one after the other by one scheduler, as far as `Setup.submitted` allows, and wait in the queue
    before they may have a worker. A failed job waits again; a prediction goes on where it was, all else starts anew.
    """
    run = _Run(make_jobs(case, costs, setup.shard_bases), costs, setup, random.Random(seed))
    seconds = run.until_done()
    return Outcome(seconds, _shares(run.spans, seconds, setup.workers), len(run.jobs), disk(case, costs, setup))


class _Run:
    """One simulation: heaps of jobs that can be submitted, that can have a worker, and of what happens when."""

    def __init__(self, jobs: list[_Job], costs: Costs, setup: Setup, dice: random.Random) -> None:
        self.jobs, self.costs, self.setup, self.dice = jobs, costs, setup, dice
        self.ready = [number for number, job in enumerate(jobs) if not job.needs]
        self.waiting: list[int] = []
        self.events: list[tuple[float, int, str]] = []
        self.now = self.scheduled = costs.start_workflow
        self.spans: list[tuple[float, float, int]] = [(0.0, self.now, KINDS.index("scheduler"))]
        self.free, self.flying = setup.workers, 0
        for job in jobs:
            job.work *= dice.lognormvariate(0.0, setup.spread)
            job.work *= setup.slow_factor if dice.random() < setup.slow_share else 1.0

    def until_done(self) -> float:
        """Go from event to event; return when the last one was."""
        while self.ready or self.waiting or self.events:
            while self.ready and self.flying < self.setup.submitted:
                self._submit(heapq.heappop(self.ready))
            while self.waiting and self.free:
                self._begin(heapq.heappop(self.waiting))
            self.now, number, what = heapq.heappop(self.events)
            if what == "may run":
                heapq.heappush(self.waiting, number)
                continue
            self.free += 1
            if what == "failed":
                self._queue(number, self.now)
            else:
                self._end(number)
        return self.now

    def _say(self, kind: str, start: float, seconds: float) -> float:
        if seconds > 0:
            self.spans.append((start, start + seconds, KINDS.index(kind)))
        return start + seconds

    def _submit(self, number: int) -> None:
        self.flying += 1
        begun = max(self.now, self.scheduled)
        self.scheduled = self._say("scheduler", begun, self.costs.schedule)
        self._queue(number, self.scheduled)

    def _queue(self, number: int, since: float) -> None:
        mean = 60 * self.setup.queue_minutes
        until = self._say("queue", since, self.dice.expovariate(1 / mean) if mean else 0.0)
        heapq.heappush(self.events, (until, number, "may run"))

    def _begin(self, number: int) -> None:
        job, rate = self.jobs[number], self.setup.failures_a_day / 86_400
        self.free -= 1
        failure = self.dice.expovariate(rate) if rate else math.inf
        if failure >= job.start + job.work:
            end = self._say(job.kind, self._say("start-up", self.now, job.start), job.work)
            heapq.heappush(self.events, (end, number, "done"))
            return
        done = max(failure - job.start, 0.0) if job.keeps else 0.0
        job.work -= done
        end = self._say("lost", self._say(job.kind, self.now, done), failure - done)
        heapq.heappush(self.events, (end, number, "failed"))

    def _end(self, number: int) -> None:
        self.flying -= 1
        for later in self.jobs[number].then:
            self.jobs[later].needs -= 1
            if not self.jobs[later].needs:
                heapq.heappush(self.ready, later)


def _shares(spans: list[tuple[float, float, int]], total: float, workers: int) -> dict[str, float]:
    """Divide each moment: a worker that idles while jobs wait is the queue's, or the scheduler's; the rest goes to what
    others do. Return shares of the whole time.
    """
    times = np.array([(start, end) for start, end, _ in spans])
    kinds = np.array([kind for _, _, kind in spans])
    moments = np.concatenate([times[:, 0], times[:, 1]])
    order = np.argsort(moments, kind="stable")
    steps = np.zeros((len(moments), len(KINDS)))
    steps[np.arange(len(spans)), kinds] = 1
    steps[len(spans) + np.arange(len(spans)), kinds] = -1
    counts = np.cumsum(steps[order], axis=0)[:-1]
    lengths = np.diff(moments[order])
    waits, works = counts[:, :WAITS], counts[:, WAITS:]
    waiting, working = waits.sum(axis=1), works.sum(axis=1)
    idle = np.where(working > 0, np.minimum(workers - working, waiting) / workers, 1.0)
    parts = np.concatenate([waits / np.maximum(waiting, 1)[:, None] * idle[:, None],
                            works / np.maximum(working, 1)[:, None] * (1 - idle)[:, None]], axis=1)  # fmt: skip
    return {kind: float(part / total) for kind, part in zip(KINDS, lengths @ parts, strict=True)}


def disk(case: Case, costs: Costs, setup: Setup) -> float:
    """Return the most bytes at a time: merged files and exports of all, and the shards of those in work."""
    whole = case.samples * case.bases
    made = whole * (costs.store_bytes + costs.gff3_bytes + costs.faa_bytes + 2 * costs.bigwig_bytes)
    in_work = min(setup.workers, case.samples) * case.bases if case.bases > setup.shard_bases else 0
    return made + case.samples * costs.report_bytes + in_work * costs.store_bytes


def good_shard(case: Case, costs: Costs, workers: int) -> int:
    """Return bases of a shard, rounded to 1, 2 or 5 and zeros: some four for each worker, of 10 minutes to 4 hours.

    Where each shard reads a large input, it computes ten times as long.
    """
    speed = costs.contigs if case.contigs else costs.predict
    wanted = min(case.samples * case.bases / (4 * workers), speed * 4 * 3600)
    wanted = max(wanted, speed * 600, 10 * speed * case.bases / costs.scan)
    scale = 10 ** math.floor(math.log10(wanted))
    return int(scale * max(step for step in (1, 2, 5) if step * scale <= wanted * 1.0001))
