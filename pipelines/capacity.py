"""What an annotation will take, simulated from measured unit costs; without options, the page CAPACITY.md.

python pipelines/capacity.py --write pipelines/CAPACITY.md
python pipelines/capacity.py --samples 20 --bases 5000000 --workers 8
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from statistics import median

import click

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))

from capacity_model import Case, Costs, Outcome, Setup, good_shard, read_costs, simulate  # noqa: E402

COSTS = HERE / "costs.toml"
WORKERS = (1, 8, 64)
CASES = (
    Case("human genome, 3.1 Gb", 1, 3_100_000_000),
    Case("wheat, 17 Gb", 1, 17_000_000_000),
    Case("10,000 bacterial genomes of 4 Mb", 10_000, 4_000_000),
    Case("1 Tb of metagenome contigs, one file", 1, 1_000_000_000_000, contigs=True),
    Case("1 Tb of metagenome contigs, 200 files", 200, 5_000_000_000, contigs=True),
)
CLUSTER = {"queue_minutes": 5.0, "failures_a_day": 0.1, "spread": 0.1, "slow_share": 0.02, "slow_factor": 2.0}
"""What goes wrong where there is more than one worker."""
SEEDS = 3


def outcomes(case: Case, costs: Costs, setup: Setup, *, seeds: int = SEEDS) -> list[Outcome]:
    """Return one outcome for each seed, from the shortest to the longest."""
    return sorted((simulate(case, costs, setup, seed=seed) for seed in range(seeds)), key=lambda one: one.seconds)


def usual(case: Case, costs: Costs, workers: int, *, shard_bases: int | None = None) -> Setup:
    """Return what the page assumes: nothing goes wrong on one worker, some things on a cluster.

    A machine of its own submits what it has a worker for, a cluster what profiles/slurm allows.
    """
    shard = good_shard(case, costs, workers) if shard_bases is None else shard_bases
    return Setup(workers, shard, **CLUSTER) if workers > 1 else Setup(workers, shard, submitted=1)


# ---- words


def rounded(value: float, digits: int = 2) -> str:
    """Write a number with two digits that mean something."""
    return f"{float(f'{value:.{digits - 1}e}'):,.10g}"


def duration(seconds: float) -> str:
    """Write a time in the unit that suits it."""
    for unit, size in (("years", 365.25 * 86_400), ("days", 86_400), ("h", 3600), ("min", 60)):
        if seconds >= 2 * size:
            return f"{rounded(seconds / size)} {unit}"
    return f"{rounded(seconds)} s"


def size(number: float, unit: str = "B") -> str:
    """Write bytes or bases with a prefix."""
    for prefix, scale in (("T", 1e12), ("G", 1e9), ("M", 1e6), ("k", 1e3)):
        if number >= scale:
            return f"{rounded(number / scale)} {prefix}{unit}"
    return f"{rounded(number)} {unit}"


def table(header: list[str], rows: list[list[str]]) -> str:
    """Write a table in Markdown."""
    lines = [header, ["---"] * len(header), *rows]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in lines)


def what_took(outcome: Outcome) -> str:
    """Name what most of the time went into, and the next."""
    first, second = sorted(outcome.shares.items(), key=lambda item: -item[1])[:2]
    return f"{first[0]} {first[1]:.0%}" + (f", {second[0]} {second[1]:.0%}" if second[1] >= 0.1 else "")


def case_rows(costs: Costs) -> Iterator[list[str]]:
    """Yield what each case takes on each number of workers."""
    for case in CASES:
        for workers in WORKERS:
            setup = usual(case, costs, workers)
            found = outcomes(case, costs, setup)
            middle = found[len(found) // 2]
            yield [
                case.name if workers == WORKERS[0] else "",
                str(workers),
                duration(middle.seconds),
                what_took(middle),
                size(setup.shard_bases, "b") if case.bases > setup.shard_bases else "a file",
                f"{middle.jobs:,}",
                size(middle.disk),
            ]


def trouble_rows(case: Case, costs: Costs, workers: int) -> Iterator[list[str]]:
    """Yield what each kind of trouble, and the size of shards, make of one case."""
    base = Setup(workers, good_shard(case, costs, workers))
    troubles = {
        "nothing goes wrong": base,
        "2% of jobs on workers half as fast": replace(base, spread=0.1, slow_share=0.02, slow_factor=2.0),
        "a worker fails every day": replace(base, failures_a_day=1.0),
        "30 minutes in the queue": replace(base, queue_minutes=30.0),
        "all of these": replace(
            base, spread=0.1, slow_share=0.02, slow_factor=2.0, failures_a_day=1.0, queue_minutes=30.0
        ),
    }
    for words, setup in troubles.items():
        times = []
        for factor in (0.1, 1, 4):
            shard = max(1, round(setup.shard_bases * factor))
            times.append(median(o.seconds for o in outcomes(case, costs, replace(setup, shard_bases=shard))))
        yield [words, *map(duration, times)]


PAGE = """# Capacity

How long, how much disk, what to set: for an annotation by the [workflow](README.md), from the FASTA to GFF3, proteins,
two bigWig files and a report of each input. This page is written by a script; do not edit it:

```sh
python pipelines/measure_costs.py GENOME.fa.gz -o pipelines/costs.toml    # on quiet cores: measures what follows
python pipelines/capacity.py --write pipelines/CAPACITY.md                # simulates, writes this page
python pipelines/measure_costs.py --check FOLDER_OF_GENOMES               # 50 inputs: predicted against measured
python pipelines/capacity.py --samples 20 --bases 5000000 --workers 8     # your own case
```

## Unit costs

{about}

{costs}

**GPUs: none was measured by us, and no number on this page is of one.** Predicting is the only step that uses them.
Tell what yours computes, `--gpu-bases-per-second`, after `genoformer predict ... --device cuda` on a genome of some Mb;
what follows it stays as slow as it is here, and is the bottleneck so much sooner.

## Cases

A worker is {threads} CPU thread{s}. On one, nothing goes wrong; on more, jobs wait 5 minutes in the queue on average,
each worker fails every 10 days, times vary by 10%, and 2% of the jobs get a worker that is half as fast. Each time is
the median of {seeds} simulations. "Took the time" divides the time from beginning to end among what the workers did; of
those that had nothing to do, it tells whether jobs were in the queue. Up to 200 jobs are submitted at a time. The
bundled model is made for bacteria: human and wheat stand for their sizes, with a model of that cost.

{cases}

**Where the bottleneck moves.**

- A genome of some Gb: predicting, until there are so many workers that what comes after it weighs as much: merging,
  exports and report of one input are each one process, and do not get faster with more workers. Leave out what is not
  needed: `report: {{make: false}}` first, which reads every value, then tracks.
- Thousands of small genomes: predicting as well; then, since each is several short jobs, start-up, and the queue: with
  many workers it cannot hand out jobs as fast as they end. Let more of them wait (`jobs` of the profile), or let one do
  several: `groups` and `group-components` in [profiles/slurm](profiles/slurm/config.yaml); or join the genomes of one
  genetic code in one FASTA file, as names are kept, and shard that.
- A metagenome in one file: each shard reads the whole input, to know which part is its own, and merging and exports of
  1 Tb are single processes. Do not merge what nobody reads as one: divide the contigs into files of a few Gb, a sample
  each.

## What to set

- **Shards** (`shard_bases`): so that a job takes between 10 minutes and 4 hours, ten times as long as it reads the
  input, with some four jobs for each worker; the table above uses that. Shorter ones wait and start more than they
  compute. Longer ones leave workers idle at the end and meet time limits; a failure costs little, since a shard goes on
  where it was.
- **Window and overlap**: the defaults, 100,000 and 5,000; memory of a worker was {memory} with them. A smaller window
  sees less around a base, which is a question of accuracy and not of capacity: time is linear in bases.
- **Batch** (`batch_size`): 1 on CPUs for long sequences. For short contigs, and on a GPU, raise it until the speed
  stays the same. Values change by rounding at most. Contigs were measured with 8.
- **Threads**: measure both ways, `measure_costs.py --threads 1` and `2`: several processes of one thread each need no
  thread to wait for another, but each has its own memory.
- **Disk**: shards and merged file are there at once while a sample is merged.

What trouble does to the human genome on 64 workers, by size of shards ({shard} is what is set above):

{trouble}
"""


def page(costs: Costs) -> str:
    """Write CAPACITY.md."""
    about = costs.about
    rows = [
        ["predict, windows of 100 kb", f"{size(costs.predict, 'b')}/s of a worker", size(costs.store_bytes, "B/base")],
        ["predict, contigs of 1 to 3 kb", f"{size(costs.contigs, 'b')}/s of a worker", ""],
        [
            "start of predict and plan; of other commands",
            f"{rounded(costs.start)} s; {rounded(costs.start_light)} s",
            "",
        ],
        ["telling the genetic code, in each predict", f"{rounded(costs.sample)} s", ""],
        ["reading the whole input, in each shard", f"{size(costs.scan, 'b')}/s", ""],
        ["plan", f"{size(costs.plan, 'b')}/s", ""],
        ["merge", f"{rounded(costs.merge)} MB/s", ""],
        ["export to GFF3", f"{size(costs.gff3, 'b')}/s", size(costs.gff3_bytes, "B/base")],
        ["export to proteins", f"{size(costs.faa, 'b')}/s", size(costs.faa_bytes, "B/base")],
        ["export to bigWig, a strand", f"{size(costs.bigwig, 'b')}/s", size(costs.bigwig_bytes, "B/base")],
        ["report", f"{size(costs.report, 'b')}/s", f"{size(costs.report_bytes)} in all"],
        ["Snakemake", f"{rounded(costs.start_workflow)} s, and {rounded(costs.schedule)} s a job", ""],
    ]
    human = CASES[0]
    shard = good_shard(human, costs, 64)
    headers = ["case", "workers", "time", "took the time", "shards of", "jobs", "disk"]
    sizes = [size(shard / 10, "b"), size(shard, "b"), size(4 * shard, "b")]
    return PAGE.format(
        about=" ".join(f"{name}: {value}." for name, value in about.items()),
        costs=table(["what", "takes", "writes"], rows),
        threads=f"{costs.threads:g}",
        s="" if costs.threads == 1 else "s",
        seeds=SEEDS,
        cases=table(headers, list(case_rows(costs))),
        memory=size(costs.predict_mb * 1e6),
        shard=size(shard, "b"),
        trouble=table(["trouble", *(f"shards of {one}" for one in sizes)], list(trouble_rows(human, costs, 64))),
    )


@click.command(help=__doc__.splitlines()[0])
@click.option("--costs", type=click.Path(dir_okay=False, path_type=Path), default=COSTS, metavar="TOML",
              help="Of measure_costs.py.  [default: costs.toml, beside this script]")  # fmt: skip
@click.option("--write", type=click.Path(dir_okay=False, path_type=Path), metavar="FILE",
              help="Write the page there.  [default: print it]")  # fmt: skip
@click.option("--samples", type=click.IntRange(1), default=1, show_default=True, help="Inputs of a case of yours.")
@click.option("--bases", type=click.IntRange(1), help="Bases of each; with it, that case is told instead of the page.")
@click.option("--contigs", is_flag=True, help="They are contigs of a few kb.")
@click.option(
    "--workers", type=click.IntRange(1), multiple=True, default=WORKERS, show_default=True, help="Repeatable."
)
@click.option("--shard-bases", type=click.IntRange(1), help="Bases of a job.  [default: what seems good]")
@click.option("--gpu-bases-per-second", type=click.FloatRange(0, min_open=True),
              help="What a worker with a GPU computes, as you measured it.")  # fmt: skip
def command(
    costs: Path,
    write: Path | None,
    samples: int,
    bases: int | None,
    contigs: bool,
    workers: tuple[int, ...],
    shard_bases: int | None,
    gpu_bases_per_second: float | None,
) -> None:
    """Simulate."""
    known = read_costs(costs)
    if gpu_bases_per_second is not None:
        if bases is None:
            raise click.UsageError("--gpu-bases-per-second is for a case of yours; give --bases too")
        known = replace(known, predict=gpu_bases_per_second, contigs=gpu_bases_per_second)
    if bases is None:
        text = page(known)
        if write is None:
            click.echo(text, nl=False)
        else:
            write.write_text(text, encoding="utf-8")
        return
    case = Case("", samples, bases, contigs)
    for number in workers:
        setup = usual(case, known, number, shard_bases=shard_bases)
        found = outcomes(case, known, setup)
        middle, last = found[len(found) // 2], found[-1]
        click.echo(
            f"{number} workers: {duration(middle.seconds)} (longest of {len(found)}: {duration(last.seconds)}); "
            f"{what_took(middle)}; shards of {size(setup.shard_bases, 'b')}, {middle.jobs:,} jobs, "
            f"{size(middle.disk)} of disk"
        )


if __name__ == "__main__":
    sys.path.insert(0, str(HERE / "prokaryote-genes"))
    from common import main

    main(command)
