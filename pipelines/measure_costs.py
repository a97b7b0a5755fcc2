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
from pathlib import Path
from typing import NamedTuple

import click

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE / "prokaryote-genes")]

from capacity import COSTS, duration  # noqa: E402
from capacity_model import Case, Costs, Setup, read_costs, simulate  # noqa: E402
from common import fasta_text, main, say, whole  # noqa: E402

import genoformer  # noqa: E402
from genoformer.errors import InputError, ResourceError  # noqa: E402

CONTIGS = (1000, 3000)
TINY = 1000
CHUNK = 100_000
PIECE = 20_000
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


def measure(source: Path, folder: Path, *, bases: int, workers: int, threads: int) -> Costs:
    """Measure every unit cost.

    Parameters
    ----------
    source : FASTA or GenBank with genes
    folder : to work in
    bases : of each worker
    workers : processes at a time
    threads : of each
    """
    genomic, parts = bases_of(source, bases * max(workers, 2)), max(workers, 2)
    if len(genomic) < bases * parts:
        raise InputError(f"{source}: has {len(genomic):,} bases, and {bases * parts:,} are needed; give fewer --bases")
    tiny = write_fasta(folder / "tiny.fa", iter([genomic[:TINY]]))
    genome = write_fasta(folder / "genome.fa", iter([genomic]))
    contigs = write_fasta(folder / "contigs.fa", cut(genomic[:bases], CONTIGS))
    options = ["--threads", threads, "--device", "cpu"]

    def predicted(path: Path, name: str, *more: object) -> list[object]:
        return [*program("genoformer"), "predict", path, "-o", folder / f"{name}.h5", *options, *more]

    def took(*commands: list[object]) -> Run:
        return run_together(commands, folder=folder, threads=threads)

    say("start of processes")
    start = took(*(predicted(tiny, f"tiny{n}", "--genetic-code", 11) for n in range(workers))).seconds
    export = [*program("genoformer"), "export"]
    light = took([*export, folder / "tiny0.h5", "--to", "gff3", "-o", folder / "tiny.gff"]).seconds
    say(f"predict: {workers} at a time")
    part = [f"{number}/{parts}" for number in range(1, parts + 1)]
    shards = [predicted(genome, f"shard{n}", "--shard", one, "--genetic-code", 11) for n, one in enumerate(part, 1)]
    runs = [took(*shards[first : first + workers]) for first in range(0, parts, workers)]
    speed = len(genomic) / min(workers, parts) / sum(run.seconds - start for run in runs)
    packed = took(
        *(predicted(contigs, f"contigs{n}", "--batch-size", 8, "--genetic-code", 11) for n in range(workers))
    ).seconds
    say("what each shard reads")
    pieces = len(genomic) // PIECE
    last = {code: took(predicted(genome, f"last{code}", "--shard", f"{pieces}/{pieces}", "--window", PIECE,
                                 "--genetic-code", code)).seconds for code in ("auto", 11)}  # fmt: skip
    say("plan, merge, exports")
    store = folder / "whole.h5"
    paths = [folder / f"shard{n}.h5" for n in range(1, parts + 1)]
    merge = took([*program("genoformer"), "merge", *paths, "-o", store]).seconds

    def rate(*words: object, whole: Path = store, start: float = light) -> tuple[float, float]:
        run = took([*program("genoformer"), words[0], whole, *words[1:]])
        made = [Path(word).stat().st_size for word in words if isinstance(word, Path) and word.exists()]
        return len(genomic) / max(run.seconds - start, 0.1 * run.seconds), sum(made) / len(genomic)

    plan, _ = rate("plan", "--device", "cpu", whole=genome, start=start)
    gff3, gff3_bytes = rate("export", "--to", "gff3", "-o", folder / "x.gff.gz")
    faa, faa_bytes = rate("export", "--to", "faa", "-o", folder / "x.faa.gz")
    bigwig, bigwig_bytes = rate("export", "--to", "bigwig", "--channel", "+", "-o", folder / "x.bw")
    report, report_share = rate("report", "-o", folder / "x.html")
    say("snakemake")
    workflow, schedule = measure_snakemake(folder)
    return Costs(
        predict=speed,
        contigs=bases / max(packed - start, 0.1 * packed),
        plan=plan,
        gff3=gff3,
        faa=faa,
        bigwig=bigwig,
        report=report,
        merge=store.stat().st_size / 1e6 / max(merge - light, 0.1 * merge),
        start=start,
        sample=max(last["auto"] - last[11], 0.01),
        scan=len(genomic) / max(last[11] - start - PIECE / speed, 0.02 * last[11]),
        start_light=light,
        start_workflow=workflow,
        schedule=schedule,
        store_bytes=store.stat().st_size / len(genomic),
        gff3_bytes=gff3_bytes,
        faa_bytes=faa_bytes,
        bigwig_bytes=bigwig_bytes,
        report_bytes=report_share * len(genomic),
        predict_mb=max(run.megabytes for run in runs),
        threads=threads,
        about=about(source, bases * parts, workers, threads),
    )


def measure_snakemake(folder: Path) -> tuple[float, float]:
    """Return seconds before the first job of a workflow, and of each job beside its own work."""
    rules = 'rule all:\n    input: [f"done{n}" for n in range(config["jobs"])]\n\n'
    rules += 'rule one:\n    output: touch("done{n}")\n    log: "{n}.log"\n    shell: "true 2> {log}"\n'
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
    files = sorted(path for path in source.iterdir() if ".fa" in path.name or ".fna" in path.name)
    if not files:
        raise InputError(f"{source}: holds no FASTA (.fa, .fna, .fasta, or with .gz)")
    threads = int(costs.threads)
    (folder / "config").mkdir()
    lines = ["sample\tinput"]
    for number in range(count):
        path, skip = files[number % len(files)], number // len(files) * bases
        found = bases_of(path, bases, skip=skip)
        if len(found) < bases:
            raise InputError(f"{path}: has no {bases:,} bases after {skip:,}; give fewer --bases, or more genomes")
        write_fasta(folder / f"input{number}.fa", iter([found]))
        lines.append(f"g{number}\tinput{number}.fa")
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
            found = measure(source.resolve(), folder, bases=bases or 2_000_000, workers=workers, threads=threads)
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
