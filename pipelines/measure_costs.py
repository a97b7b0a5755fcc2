"""Measure the unit costs that capacity.py reckons with, on data given, or compare its prediction with a run.

python pipelines/measure_costs.py GENOME.fa.gz -o pipelines/costs.toml
python pipelines/measure_costs.py --check FOLDER_OF_GENOMES

Give it a quiet machine: it uses as many processes as --workers, a core or --threads of them each. Needs snakemake.
"""

from __future__ import annotations

import json
import os
import platform
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from datetime import UTC, datetime
from itertools import islice
from pathlib import Path
from typing import NamedTuple

import click

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE / "prokaryote-genes")]

from capacity import COSTS, duration  # noqa: E402
from capacity_model import Case, Costs, Setup, computed, read_costs, simulate  # noqa: E402
from common import fasta_text, main, say, whole  # noqa: E402

import genoformer  # noqa: E402
from genoformer.errors import InputError, ResourceError  # noqa: E402

CONTIGS = (1000, 3000)
TINY = 1000
CHUNK = 100_000
PIECE = 20_000
LONG = 20_000_000
JOBS = 50


class Run(NamedTuple):
    """What processes took that ran at the same time: seconds until the last one ended, MB of the largest."""

    seconds: float
    megabytes: float


def program(name: str) -> list[str]:
    """Return the words that start genoformer or snakemake.

    Raises
    ------
    ResourceError : it is not there
    """
    if name == "genoformer":
        return [sys.executable, "-m", "genoformer"]
    found = shutil.which(name, path=f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', '')}")
    if found is None:
        raise ResourceError(f"{name}: no such program on the PATH; install it: pip install {name}")
    return [found]


def run_together(commands: Sequence[Sequence[object]], *, folder: Path, threads: int = 1) -> Run:
    """Run commands at the same time.

    Raises
    ------
    ResourceError : one of them fails; what it said is shown
    """
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', '')}"  # jobs run this genoformer
    environment = os.environ | {"OMP_NUM_THREADS": str(threads), "PATH": path}
    logs = [folder / f"command{number}.log" for number in range(len(commands))]
    began, processes = time.monotonic(), []
    for command, log in zip(commands, logs, strict=True):
        with log.open("wb") as stream:
            words = [str(word) for word in command]
            quiet = {"stdin": subprocess.DEVNULL, "stdout": stream, "stderr": stream}
            processes.append(subprocess.Popen(words, env=environment, cwd=folder, **quiet))
    largest, failed = 0.0, None
    for process, log in zip(processes, logs, strict=True):
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        largest = max(largest, usage.ru_maxrss / 1024)
        if process.returncode:
            failed = failed or f"{process.args}: {(log.read_text().strip() or 'said nothing').splitlines()[-1]}"
    if failed:
        raise ResourceError(failed)
    return Run(time.monotonic() - began, largest)


# ---- data


def bases_of(path: Path, number: int, *, skip: int = 0) -> bytes:
    """Return so many bases of a file, after some others, its sequences one behind the other."""
    found, gone = bytearray(), 0
    for record in genoformer.open_sequences(str(path)).records():
        found += record.bases[max(skip - gone, 0) :][: number - len(found)]
        gone += len(record.bases)
        if len(found) == number:
            break
    return bytes(found)


def stretches(folder: Path, bases: int) -> Iterator[bytes]:
    """Yield stretches of so many bases, one of each FASTA in turn, as long as there are any."""
    files, skip = [path for path in sorted(folder.iterdir()) if ".fa" in path.name or ".fna" in path.name], 0
    while files:
        found = {path: bases_of(path, bases, skip=skip) for path in files}
        files = [path for path in files if len(found[path]) == bases]
        yield from (found[path] for path in files)
        skip += bases


def write_fasta(path: Path, sequences: Iterator[bytes]) -> Path:
    """Write sequences under made-up names."""
    path.write_bytes(b"".join(fasta_text((f"s{number}", "", bases) for number, bases in enumerate(sequences))))
    return path


def cut(bases: bytes, sizes: Sequence[int]) -> Iterator[bytes]:
    """Cut bases into pieces of these sizes, over and over; the rest is left out."""
    start, number = 0, 0
    while start + sizes[number % len(sizes)] <= len(bases):
        size = sizes[number % len(sizes)]
        yield bases[start : start + size]
        start, number = start + size, number + 1


# ---- costs


class Bench(NamedTuple):
    """Where commands are timed: a folder, so many processes at a time, of so many threads each."""

    folder: Path
    workers: int
    threads: int

    def predict(self, name: str, output: str, *more: object) -> list[object]:
        """Return the command that predicts a FASTA of the folder."""
        files = [self.folder / f"{name}.fa", "-o", self.folder / f"{output}.h5"]
        return [*program("genoformer"), "predict", *files, "--threads", self.threads, "--device", "cpu", *more]

    def took(self, *commands: list[object]) -> Run:
        """Run commands at the same time."""
        return run_together(commands, folder=self.folder, threads=self.threads)

    def rest(self, whole: float, less: float) -> float:
        """Return seconds less those of something else, but never nothing: a twentieth at least."""
        return max(whole - less, 0.05 * whole)


def measure(source: Path, bench: Bench, *, bases: int) -> Costs:
    """Measure every unit cost.

    Parameters
    ----------
    source : FASTA or GenBank with genes
    bench : where to work, and by how many processes
    bases : of each worker

    Raises
    ------
    InputError : the source has fewer bases
    """
    parts = max(bench.workers, 2)
    genomic = bases_of(source, bases * parts)
    if len(genomic) < bases * parts:
        raise InputError(f"{source}: has {len(genomic):,} bases, and {bases * parts:,} are needed; give fewer --bases")
    write_fasta(bench.folder / "tiny.fa", iter([genomic[:TINY]]))
    write_fasta(bench.folder / "genome.fa", iter([genomic]))
    write_fasta(bench.folder / "contigs.fa", cut(genomic[:bases], CONTIGS))
    repeats = -(-LONG // len(genomic))
    write_fasta(bench.folder / "long.fa", iter([genomic * repeats]))
    say("snakemake")
    workflow, schedule = measure_snakemake(bench.folder)
    say(f"predict: {bench.workers} at a time")
    found = predict_costs(bench, genomic, bases=bases, parts=parts)
    say("what each shard reads")
    found |= reading_costs(bench, repeats * len(genomic), predict=found["predict"])
    say("merge, exports")
    found |= export_costs(bench, len(genomic), parts=parts)
    return Costs(
        **found,
        start_workflow=workflow,
        schedule=schedule,
        threads=bench.threads,
        about=about(source, bases * parts, bench.workers, bench.threads),
    )


def predict_costs(bench: Bench, genomic: bytes, *, bases: int, parts: int) -> dict[str, float]:
    """Measure starting, long sequences and contigs, with all workers busy; shards 1 to ``parts`` are kept."""
    told = ("--genetic-code", 11)
    start = bench.took(*(bench.predict("tiny", f"tiny{n}", *told) for n in range(bench.workers))).seconds
    shards = [bench.predict("genome", f"shard{n}", "--shard", f"{n}/{parts}", *told) for n in range(1, parts + 1)]
    runs = [bench.took(*shards[first : first + bench.workers]) for first in range(0, parts, bench.workers)]
    busy = sum(bench.rest(run.seconds, start) for run in runs) * min(bench.workers, parts)
    contigs = [bench.predict("contigs", f"contigs{n}", "--batch-size", 8, *told) for n in range(bench.workers)]
    return {
        "start": start,
        "predict": computed(len(genomic)) / busy,
        "contigs": bases / bench.rest(bench.took(*contigs).seconds, start),
        "predict_mb": max(run.megabytes for run in runs),
    }


def reading_costs(bench: Bench, size: int, *, predict: float) -> dict[str, float]:
    """Measure what a process reads before it computes: all of long.fa, of which it predicts next to nothing."""
    last = ("--shard", f"{size // PIECE}/{size // PIECE}", "--window", PIECE, "--genetic-code")
    start = bench.took(bench.predict("tiny", "alone", "--genetic-code", 11)).seconds
    told = bench.took(bench.predict("long", "told", *last, 11)).seconds
    auto = bench.took(bench.predict("long", "auto", *last, "auto")).seconds
    plan = [
        bench.took([*program("genoformer"), "plan", bench.folder / f"{name}.fa", "--device", "cpu"]).seconds
        for name in ("tiny", "long")
    ]
    return {
        "sample": bench.rest(auto, told),
        "scan": size / bench.rest(told, start + PIECE / predict),
        "plan": size / bench.rest(plan[1], plan[0]),
    }


def export_costs(bench: Bench, bases: int, *, parts: int) -> dict[str, float]:
    """Measure what is made of shards 1 to ``parts``: seconds beyond those of a tiny input, and bytes."""
    export, store = [*program("genoformer"), "export"], bench.folder / "whole.h5"
    tiny, light_output = bench.folder / "tiny0.h5", bench.folder / "tiny.gff"
    light = bench.took([*export, tiny, "--to", "gff3", "-o", light_output]).seconds
    shards = [bench.folder / f"shard{n}.h5" for n in range(1, parts + 1)]
    merge = bench.took([*program("genoformer"), "merge", *shards, "-o", store]).seconds
    size = store.stat().st_size
    found = {"start_light": light, "merge": size / 1e6 / bench.rest(merge, light), "store_bytes": size / bases}
    ways = {
        "gff3": ("x.gff.gz", [*export, store, "--to", "gff3"]),
        "faa": ("x.faa.gz", [*export, store, "--to", "faa"]),
        "bigwig": ("x.bw", [*export, store, "--to", "bigwig", "--channel", "+"]),
        "report": ("x.html", [*program("genoformer"), "report", store]),
    }
    for name, (output, command) in ways.items():
        path = bench.folder / output
        found[name] = bases / bench.rest(bench.took([*command, "-o", path]).seconds, light)
        found[f"{name}_bytes"] = path.stat().st_size / (1 if name == "report" else bases)
    return found


def measure_snakemake(folder: Path) -> tuple[float, float]:
    """Return seconds before the first job of a workflow, and of each job beside its own work."""
    rules = 'rule all:\n    input: [f"done{n}" for n in range(config["jobs"])]\n\n'
    rules += 'rule one:\n    output: touch("done{n}")\n    log: "{n}.log"\n    benchmark: "{n}.tsv"\n'
    rules += '    shell: "true 2> {log}"\n'
    (folder / "Snakefile").write_text(rules)
    times = []
    for number, jobs in enumerate((1, 1, 1 + JOBS)):  # the first reads programs from the disk
        command = [*program("snakemake"), "--cores", 1, "--snakefile", folder / "Snakefile", "--config", f"jobs={jobs}"]
        times.append(run_together([[*command, "--directory", folder / str(number)]], folder=folder).seconds)
    schedule = max((times[2] - times[1]) / JOBS, 0.001)
    return max(times[1] - schedule, schedule), schedule


def about(source: Path, bases: int, workers: int, threads: int) -> dict[str, str]:
    """Say when, where and on what costs are measured."""
    cpu = platform.processor() or platform.machine()
    with Path("/proc/cpuinfo").open() as stream:
        cpu = next((line.partition(":")[2].strip() for line in stream if line.startswith("model name")), cpu)
    return {
        "Measured": f"{datetime.now(UTC):%Y-%m-%d}, with genoformer {genoformer.__version__}",
        "Processor": f"{cpu}, {os.cpu_count()} cores",
        "Load": f"{workers} at a time, of {threads} thread{'' if threads == 1 else 's'} each",
        "Data": f"{bases:,} bases of {source.name}",
    }


def write_costs(costs: Costs, path: Path, *, digits: int = 3) -> None:
    """Write costs as TOML."""
    values = asdict(costs)
    known = values.pop("about")
    lines = ["# Unit costs, by measure_costs.py; capacity_model.py tells what each is.", "[costs]"]
    lines += [f"{name} = {float(f'{value:.{digits - 1}e}')!r}" for name, value in values.items()]
    lines += ["", "[about]", *(f"{name} = {json.dumps(value)}" for name, value in known.items())]
    with whole(path) as part:
        part.write_text("\n".join(lines) + "\n", encoding="utf-8")


# ---- check


def check(source: Path, costs: Costs, folder: Path, *, count: int, bases: int, workers: int) -> tuple[float, float]:
    """Annotate inputs cut from genomes by the workflow; return the seconds predicted and measured.

    Raises
    ------
    InputError : there are not so many bases
    """
    threads = int(costs.threads)
    (folder / "config").mkdir()
    lines = ["sample\tinput"]
    for number, found in enumerate(islice(stretches(source, bases), count)):
        write_fasta(folder / f"input{number}.fa", iter([found]))
        lines.append(f"g{number}\tinput{number}.fa")
    if len(lines) <= count:
        raise InputError(f"{source}: FASTA there has {len(lines) - 1} times {bases:,} bases, not {count} times")
    (folder / "config" / "samples.tsv").write_text("\n".join(lines) + "\n")
    text = f"results: results\npredict:\n  threads: {threads}\n  shard_bases: {max(bases, CHUNK)}\n"
    (folder / "config" / "config.yaml").write_text(text)
    command = [*program("snakemake"), "--snakefile", HERE / "workflow" / "Snakefile", "--directory", folder]
    measured = run_together([[*command, "--cores", workers * threads]], folder=folder, threads=threads).seconds
    setup = Setup(workers, max(bases, CHUNK), submitted=workers)
    return simulate(Case("check", count, bases), costs, setup).seconds, measured


@click.command(help=__doc__.splitlines()[0])
@click.argument("source", type=click.Path(exists=True, path_type=Path), metavar="GENOME|FOLDER")
@click.option("-o", "--output", type=click.Path(dir_okay=False, path_type=Path), metavar="TOML", help="Costs to write.")
@click.option("--note", default="", metavar="TEXT", help="To write with the costs, as what else the machine did.")
@click.option("--check", "compare", is_flag=True, help="Compare a run with what the costs say; of a folder of genomes.")
@click.option("--costs", type=click.Path(dir_okay=False, path_type=Path), default=COSTS, metavar="TOML",
              help="To check.  [default: costs.toml, beside this script]")  # fmt: skip
@click.option("--count", type=click.IntRange(1), default=50, show_default=True, help="Inputs to check with.")
@click.option("--within", type=click.FloatRange(0), default=0.2, show_default=True,
              help="How far off a prediction may be, as a share of what is measured.")  # fmt: skip
@click.option(
    "--bases", type=click.IntRange(10_000), help="Of each worker, or input.  [default: 2000000; check: 200000]"
)
@click.option("--workers", type=click.IntRange(1), help="Processes at a time.  [default: cores by threads]")
@click.option(
    "--threads", type=click.IntRange(1), default=1, show_default=True, help="Of each; a check takes the costs'."
)
def command(
    source: Path,
    output: Path | None,
    note: str,
    compare: bool,
    costs: Path,
    count: int,
    within: float,
    bases: int | None,
    workers: int | None,
    threads: int,
) -> int:
    """Measure."""
    if compare == (output is not None) or compare != source.is_dir():
        raise click.UsageError("give GENOME -o COSTS.toml, or --check FOLDER")
    program("snakemake")
    with tempfile.TemporaryDirectory() as made:
        folder = Path(made)
        if output is not None:
            workers = workers or max(1, (os.cpu_count() or 1) // threads)
            found = measure(source.resolve(), Bench(folder, workers, threads), bases=bases or 2_000_000)
            if note:
                found.about["Note"] = note
            write_costs(found, output)
            say(f"{output}: written")
            return 0
        known = read_costs(costs)
        workers = workers or max(1, (os.cpu_count() or 1) // int(known.threads))
        said, took = check(source, known, folder, count=count, bases=bases or 200_000, workers=workers)
        off = said / took - 1
        click.echo(
            f"{count} inputs on {workers} workers: predicted {duration(said)}, measured {duration(took)}: {off:+.0%}"
        )
        return 0 if abs(off) <= within else 1


if __name__ == "__main__":
    main(command)
