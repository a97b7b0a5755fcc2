"""Measure a model beside other programs: whole genomes, contigs, and reads with errors, all by `genoformer evaluate`.

python pipelines/prokaryote-genes/measure.py --genomes FOLDER

FOLDER has a MANIFEST.tsv as download.py writes it. Results go to work/SPLIT.json, with 95% intervals; predictions,
simulated sequences and environments of other programs lie beside it. What is there is not done again. Test genomes
are read with --split test only: once, when everything is decided.
"""

from __future__ import annotations

import io
import shlex
from collections.abc import Iterator
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import click
from common import WORK, Genome, digest, main, read_json, read_manifest, say, whole, write_json
from peers import ORFORISE, PEERS, Peer, orforise
from simulate import BASES, LENGTHS, RATES, READ, AnnotatedGenome, Design, simulate
from tables import ONE_GENOME, OURS, OURS_GENES, show

from genoformer import __version__
from genoformer.cli import exit_code, run
from genoformer.errors import ResourceError
from genoformer.model.checkpoint import DEFAULT_MODEL, load_model, read_checkpoint
from genoformer.model.shared import sees_context

FORMAT = "genoformer-measurements"
OURS_SHIFTS = f"{OURS_GENES}, frameshifts"
KINDS = ("genome", "contigs", "reads")


class Dataset(NamedTuple):
    """What is predicted, and what is true of it."""

    name: str
    kind: str
    fasta: Path
    truth: Path


@dataclass(frozen=True)
class Setup:
    """How it is measured.

    Attributes
    ----------
    name, model : of the model, and its folder
    sha256 : of its weights
    output : folder of everything that is written
    design : what is simulated
    kinds : genome, contigs, reads
    peers : other programs, with the interpreter of each
    orforise : the interpreter of ORForise, None: it is left out
    predict : options of `genoformer predict`
    one_genome : whether contigs and reads are also predicted as of one organism, which not all models can
    """

    name: str
    model: Path
    sha256: str
    output: Path
    design: Design
    kinds: tuple[str, ...] = KINDS
    peers: tuple[tuple[Peer, Path], ...] = ()
    orforise: Path | None = None
    predict: tuple[str, ...] = field(default=())
    one_genome: bool = False


def datasets(genome: Genome, setup: Setup) -> list[Dataset]:
    """Return everything that is measured of one genome; contigs and reads are made first."""
    found = [Dataset("genome", "genome", genome.fasta, genome.annotation)] if "genome" in setup.kinds else []
    if {"contigs", "reads"} & set(setup.kinds):
        design = setup.design
        if "contigs" not in setup.kinds:
            design = design._replace(lengths=())
        if "reads" not in setup.kinds:
            design = design._replace(rates=())
        read = AnnotatedGenome.read(genome.fasta, genome.annotation)
        folder = setup.output / genome.split / genome.name / "data"
        for path in simulate(read, design, folder, name=genome.name):
            kind = path.name.partition("-")[0]
            found.append(Dataset(path.stem, kind, path, path.with_suffix(".gff" if kind == "contigs" else ".bed")))
    return found


def genoformer(*words: object) -> None:
    """Run a command of genoformer in this process; what it says is shown only if it fails.

    Raises
    ------
    ResourceError : it fails
    """
    arguments = [str(word) for word in words]
    said = io.StringIO()
    with redirect_stdout(said), redirect_stderr(said):
        code = run(arguments)
    if code == exit_code(KeyboardInterrupt()):
        raise KeyboardInterrupt
    if code:
        last = (said.getvalue().strip() or "nothing").splitlines()[-1]
        raise ResourceError(f"genoformer {shlex.join(arguments)} ended with {code}: {last}")


def is_made(path: Path, *sources: Path) -> bool:
    """Tell whether a file is there and none of what it is made of is newer."""
    return path.exists() and path.stat().st_mtime_ns >= max(source.stat().st_mtime_ns for source in sources)


def evaluated(prediction: Path, data: Dataset, *options: str) -> dict[str, Any]:
    """Return what `genoformer evaluate` says of a prediction."""
    path = prediction.with_name(f"{prediction.name}.json")
    if not is_made(path, prediction, data.fasta, data.truth):
        with whole(path) as part:
            words = ("evaluate", prediction, "--truth", data.truth, "--fasta", data.fasta, "--intervals", "--json")
            genoformer(*words, part, *options)
    return read_json(path)


def ours(data: Dataset, genome: Genome, setup: Setup) -> Iterator[tuple[str, Path, dict[str, Any]]]:
    """Yield what our model says of bases, and its genes."""
    folder = setup.output / genome.split / genome.name / f"genoformer-{setup.sha256[:12]}"
    folder.mkdir(parents=True, exist_ok=True)
    yield from _ours(data, folder / f"{data.name}.h5", setup)
    if setup.one_genome and data.kind != "genome":
        for name, path, found in _ours(data, folder / f"{data.name}.one-genome.h5", setup, "--one-genome"):
            yield f"{name}{ONE_GENOME}", path, found


def _ours(data: Dataset, store: Path, setup: Setup, *how: str) -> Iterator[tuple[str, Path, dict[str, Any]]]:
    """Yield what our model says of bases, with these options of predict beside those of all, and its genes."""
    if not is_made(store, data.fasta):
        store.unlink(missing_ok=True)
        genoformer("predict", data.fasta, "-o", store, "--model", setup.model, "--resume", *setup.predict, *how)
    yield OURS, store, evaluated(store, data, "--no-genes")
    ways = [(OURS_GENES, ".gff", ())]
    if data.kind == "reads":
        ways.append((OURS_SHIFTS, ".frameshifts.gff", ("--frameshifts",)))
    for name, suffix, options in ways:
        genes = store.with_name(f"{store.stem}{suffix}")
        if not is_made(genes, store):
            words = ("export", store, "--to", "gff3", "-o", genes, "--overwrite", "--fasta", data.fasta)
            genoformer(*words, *options)
        yield name, genes, evaluated(genes, data)


def others(data: Dataset, genome: Genome, setup: Setup) -> Iterator[tuple[str, Path, dict[str, Any]]]:
    """Yield the genes of the other programs that are made for such data."""
    for peer, python in setup.peers:
        if data.kind in peer.kinds:
            genes = setup.output / genome.split / genome.name / peer.name.replace(" ", "-") / f"{data.name}.gff"
            if not is_made(genes, data.fasta):
                peer.call(python, data.fasta, genes, genetic_code=genome.genetic_code)
            yield peer.name, genes, evaluated(genes, data)


def measure(genome: Genome, setup: Setup) -> Iterator[dict[str, Any]]:
    """Yield a row for each caller on each data set of a genome."""
    for data in datasets(genome, setup):
        for call in (ours, others):
            for caller, prediction, evaluation in call(data, genome, setup):
                row = {"genome": genome.name, "organism": genome.organism, "data": data.name, "kind": data.kind}
                row |= {"caller": caller, **_numbers(evaluation)}
                if setup.orforise and data.kind == "genome" and prediction.suffix == ".gff":
                    row["orforise"] = _orforise(setup.orforise, data, prediction)
                yield row


def _numbers(evaluation: dict[str, Any]) -> dict[str, Any]:
    """Return the main numbers of an evaluation."""
    kept: dict[str, Any] = {"bases": evaluation["bases"]}
    for name, level in evaluation["levels"].items():
        kept[name] = level["numbers"] | {"intervals": level["intervals"], "classes": level["classes"]}
        kept[name]["calibration"] = level["calibration"]
    kept["genes"] = evaluation["genes"]
    return kept


def _orforise(python: Path, data: Dataset, prediction: Path) -> dict[str, float]:
    path = prediction.with_name(f"{prediction.name}.orforise.json")
    if not is_made(path, prediction):
        folder = prediction.with_name("orforise")
        write_json(path, orforise(python, data.fasta, data.truth, prediction, folder=folder))
    return read_json(path)


def collect(genomes: list[Genome], setup: Setup, *, split: str) -> dict[str, Any]:
    """Measure every genome.

    Returns
    -------
    dict of plain data : what was measured, of what, and how
    """
    rows = []
    for genome in genomes:
        for row in measure(genome, setup):
            rows.append(row)
            say(f"{genome.name} {row['data']}: {row['caller']}: F1 of bases {row['strand']['f1']:.4f}")
    programs = {peer.name: peer.environment.version for peer, _ in setup.peers}
    if setup.orforise:
        programs["ORForise"] = ORFORISE.version
    return {
        "format": FORMAT,
        "format-version": 1,
        "generated-by": f"genoformer-{__version__}",
        "split": split,
        "model": {"name": setup.name, "weights-sha256": setup.sha256},
        "predict": list(setup.predict),
        "simulation": setup.design._asdict(),
        "programs": programs,
        "genomes": {one.name: {"fasta": digest(one.fasta), "annotation": digest(one.annotation)} for one in genomes},
        "rows": rows,
    }


def _peers(output: Path, wanted: tuple[str, ...], kinds: tuple[str, ...], python: str) -> list[tuple[Peer, Path]]:
    """Return the programs wanted that are made for such data, each with its interpreter; say which cannot be had."""
    found = []
    for peer in PEERS:
        if peer.environment.name in wanted and set(peer.kinds) & set(kinds):
            given = python if peer.environment.name == "fraggenescan" else ""
            try:
                found.append((peer, peer.environment.python(output / "environments", given=given)))
            except ResourceError as error:
                say(f"{peer.name} is left out: {error}")
    return found


@click.command(help=__doc__.splitlines()[0])
@click.option("--genomes", type=click.Path(file_okay=False, path_type=Path), required=True, metavar="FOLDER",
              help="With MANIFEST.tsv.")  # fmt: skip
@click.option("--split", type=click.Choice(["validation", "test"]), default="validation", show_default=True,
              help="test: once, at the end.")  # fmt: skip
@click.option("--genome", "only", multiple=True, metavar="NAME", help="Of the split; repeatable.  [default: all]")
@click.option("--model", default=DEFAULT_MODEL, show_default=True, metavar="NAME|FOLDER")
@click.option("-o", "--output", type=click.Path(file_okay=False, path_type=Path), default=WORK, metavar="FOLDER",
              help="[default: work, beside this script]")  # fmt: skip
@click.option("--kind", "kinds", type=click.Choice(KINDS), multiple=True, default=KINDS, show_default=True)
@click.option("--peer", "wanted", type=click.Choice(["prodigal", "fraggenescan", "orforise", "none"]), multiple=True,
              default=("prodigal", "fraggenescan", "orforise"), show_default=True,
              help="Other programs; installed by pip into environments of their own.")  # fmt: skip
@click.option("--fraggenescan-python", default="", metavar="PYTHON",
              help="To install pyfgs with.  [default: python3.12]")  # fmt: skip
@click.option("--bases", type=click.IntRange(1), default=BASES, show_default=True, metavar="BASES",
              help="Of contigs of each length, and of reads of each rate.")  # fmt: skip
@click.option("--seed", type=click.IntRange(0), default=0, show_default=True, help="Of contigs and reads.")
@click.option("--predict", "options", multiple=True, metavar="OPTION",
              help="Of genoformer predict, as --predict=--threads=2; repeatable.")  # fmt: skip
def command(
    genomes: Path,
    split: str,
    only: tuple[str, ...],
    model: str,
    output: Path,
    kinds: tuple[str, ...],
    wanted: tuple[str, ...],
    fraggenescan_python: str,
    bases: int,
    seed: int,
    options: tuple[str, ...],
) -> None:
    """Measure."""
    chosen = read_manifest(genomes, split, only=only)
    output.mkdir(parents=True, exist_ok=True)
    checkpoint = read_checkpoint(model)
    peers = _peers(output, wanted, kinds, fraggenescan_python)
    python = ORFORISE.python(output / "environments") if "orforise" in wanted and "genome" in kinds else None
    design = Design(LENGTHS, RATES, READ, bases, seed)
    setup = Setup(
        checkpoint.name, checkpoint.path, checkpoint.sha256, output, design, kinds, tuple(peers), python, options,
        sees_context(load_model(model)),
    )  # fmt: skip
    found = collect(chosen, setup, split=split)
    write_json(output / f"{split}.json", found)
    say(f"{output / f'{split}.json'}: {len(found['rows'])} measurements")
    click.echo(show(found))


if __name__ == "__main__":
    main(command)
