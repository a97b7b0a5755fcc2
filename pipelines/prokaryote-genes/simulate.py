"""Contigs and reads with errors cut from an annotated genome, with what is true of them.

python pipelines/prokaryote-genes/simulate.py GENOME.fa.gz GENOME.gff.gz -o FOLDER

FOLDER/contigs-LENGTH.fa and .gff: contigs without errors; genes that a cut goes through are partial.
FOLDER/reads-RATE.fa and .bed: reads with substitutions, insertions and deletions in equal parts, as training draws
them; the truth is the strand of each base (BED, column 6; "." where a base does not count). Both are what
`genoformer evaluate --truth` takes.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import NamedTuple

import click
import numpy as np
from common import annotation_text, fasta_text, main, read_json, say, whole, write_json

from genoformer import __version__
from genoformer.annotation import Annotation, CodingSequence, coding_frame_labels
from genoformer.cli.progress import counted
from genoformer.errors import ConfigError, InputError
from genoformer.formats.annotated import check_fits
from genoformer.tokens import decode, encode, reverse_complement
from genoformer.tracks import IGNORED
from genoformer.training.augmentation import MIRRORED_STRANDS, STRAND_SIDES, ErrorModel, spare_bases
from genoformer.training.examples import read_annotated

LENGTHS = (300, 1_000, 3_000, 10_000)
RATES = (0.01, 0.03, 0.05)
READ = 5_000
BASES = 1_000_000
_STRANDS = {1: "+", 2: "-", IGNORED: "."}
_FORMAT = "genoformer-simulation"


class Cut(NamedTuple):
    """A stretch of a sequence, read on one of its strands."""

    sequence: str
    start: int
    end: int
    is_reverse: bool

    @property
    def description(self) -> str:
        return f"{self.sequence} {self.start + 1}-{self.end} {'-' if self.is_reverse else '+'}"


class Design(NamedTuple):
    """What is cut from a genome.

    Attributes
    ----------
    lengths : bases of contigs
    rates : errors per base of reads
    read_length : bases of a read
    bases : of each length and rate, together
    seed : int
    """

    lengths: Sequence[int] = LENGTHS
    rates: Sequence[float] = RATES
    read_length: int = READ
    bases: int = BASES
    seed: int = 0


class AnnotatedGenome(NamedTuple):
    """A genome in memory."""

    codes: dict[str, np.ndarray]
    """uint8, by sequence"""
    annotation: Annotation

    @classmethod
    def read(cls, fasta: Path, annotation: Path) -> AnnotatedGenome:
        """Read a genome; sequences that the annotation does not name are left out, and that is said.

        Raises
        ------
        InputError : the annotation is not of these sequences
        """
        sequences, annotated = read_annotated(fasta, annotation)
        codes = {record.name: encode(record.bases) for record in sequences.records()}
        lengths = {name: len(bases) for name, bases in codes.items()}
        names = check_fits(annotated, lengths, source=str(annotation), sequences=str(fasta))
        if len(names) < len(codes):
            say(f"{fasta}: {counted(len(codes) - len(names), 'sequence')} left out, not in {annotation}")
        return cls({name: codes[name] for name in names}, annotated)


def clip(cds: CodingSequence, cut: Cut, name: str) -> Iterator[CodingSequence]:
    """Yield what a cut leaves of a coding sequence, in the coordinates of the new sequence ``name``.

    That is one piece at most, but two where a gene over the origin of a circular sequence lies at both ends of the cut.
    """
    size = cut.end - cut.start
    groups: list[tuple[int, list[tuple[int, int]]]] = []
    done = 0
    for start, end in cds.parts:
        low, high = max(start, cut.start), min(end, cut.end)
        if low < high:
            skipped = done + (low - start if cds.strand == 1 else end - high)
            part = (cut.end - high, cut.end - low) if cut.is_reverse else (low - cut.start, high - cut.start)
            if groups and _continues(groups[-1], skipped, part, forward=(cds.strand == 1) != cut.is_reverse):
                groups[-1][1].append(part)
            else:
                groups.append((skipped, [part]))
        done += end - start
    for skipped, parts in groups:
        assert all(0 <= low < high <= size for low, high in parts)
        yield replace(
            cds,
            sequence=name,
            strand=-cds.strand if cut.is_reverse else cds.strand,
            parts=tuple(parts),
            phase=(cds.phase - skipped) % 3,
            partial=cds.partial or sum(high - low for low, high in parts) < cds.length,
            pseudo=cds.pseudo or cds.is_broken,
        )


def _continues(group: tuple[int, list[tuple[int, int]]], skipped: int, part: tuple[int, int], *, forward: bool) -> bool:
    """Tell whether a part follows the others without a loss, and lies beyond the last in reading direction."""
    before, parts = group
    is_next = before + sum(high - low for low, high in parts) == skipped
    return is_next and (part[0] > parts[-1][0] if forward else part[1] < parts[-1][1])


def cuts(lengths: dict[str, int], size: int, count: int, rng: np.random.Generator) -> list[Cut]:
    """Draw stretches of one size, every place alike, each strand half of the time.

    Raises
    ------
    InputError : no sequence is as long
    """
    names = list(lengths)
    places = np.array([max(0, lengths[name] - size + 1) for name in names], dtype=np.int64)
    if not places.sum():
        raise InputError(f"no sequence has {size:,} bases: the longest has {max(lengths.values(), default=0):,}")
    ends = np.cumsum(places)
    found = []
    for place in rng.integers(ends[-1], size=count).tolist():
        index = int(np.searchsorted(ends, place, side="right"))
        start = place - int(ends[index] - places[index])
        found.append(Cut(names[index], start, start + size, bool(rng.random() < 0.5)))
    return found


def contigs(genome: AnnotatedGenome, size: int, count: int, rng: np.random.Generator) -> Iterator[tuple]:
    """Yield name, description, codes and coding sequences of contigs without errors."""
    lengths = {name: len(codes) for name, codes in genome.codes.items()}
    spans = {name: _Overlaps(genome.annotation.coding_sequences[name]) for name in lengths}
    for number, cut in enumerate(cuts(lengths, size, count, rng), 1):
        name = f"contig{number:06d}"
        codes = genome.codes[cut.sequence][cut.start : cut.end]
        pieces = [piece for cds in spans[cut.sequence].of(cut) for piece in clip(cds, cut, name)]
        yield name, cut.description, reverse_complement(codes) if cut.is_reverse else codes, pieces


class _Overlaps:
    """The coding sequences that a cut touches."""

    def __init__(self, coding_sequences: Sequence[CodingSequence]):
        self._all = list(coding_sequences)
        parts = [(i, *part) for i, cds in enumerate(self._all) for part in cds.parts]
        self._index, self._starts, self._ends = np.array(parts, dtype=np.int64).reshape(-1, 3).T

    def of(self, cut: Cut) -> list[CodingSequence]:
        touched = (self._starts < cut.end) & (self._ends > cut.start)
        return [self._all[i] for i in np.unique(self._index[touched])]


def reads(genome: AnnotatedGenome, design: Design, rate: float, rng: np.random.Generator) -> Iterator[tuple]:
    """Yield name, description, codes and the strand of each base (0 none, 1 +, 2 -, IGNORED) of reads with errors."""
    lengths = {name: len(codes) for name, codes in genome.codes.items()}
    known = genome.annotation.coding_sequences
    strands = {name: coding_frame_labels(size, known[name]).strands for name, size in lengths.items()}
    size = design.read_length
    count = -(-design.bases // size)
    errors = ErrorModel((rate,))
    for number, cut in enumerate(cuts(lengths, size + spare_bases(size, rate), count, rng), 1):
        codes, labels = genome.codes[cut.sequence][cut.start : cut.end], strands[cut.sequence][cut.start : cut.end]
        if cut.is_reverse:
            codes, labels = reverse_complement(codes), MIRRORED_STRANDS[labels[::-1]]
        drawn = errors.draw(codes, rate, rng)
        read, truth = drawn.read()[:size], drawn.carry(labels, STRAND_SIDES)[:size]
        yield f"read{number:06d}", cut.description, read, truth


def bed_lines(name: str, strands: np.ndarray) -> str:
    """Return the stretches of equal strand as BED, those of no strand left out, and "." where bases do not count."""
    bounds = np.concatenate([[0], np.flatnonzero(np.diff(strands)) + 1, [len(strands)]])
    lines = []
    for start, end in zip(bounds[:-1].tolist(), bounds[1:].tolist(), strict=True):
        if start < end and strands[start]:
            strand = _STRANDS[int(strands[start])]
            lines.append(f"{name}\t{start}\t{end}\t{'unknown' if strand == '.' else 'coding'}\t0\t{strand}\n")
    return "".join(lines)


def simulate(genome: AnnotatedGenome, design: Design, folder: Path, *, name: str = "") -> list[Path]:
    """Write contigs and reads of every length and rate with their truth; what is there already is kept.

    Parameters
    ----------
    genome : what is cut
    design : how
    folder : made if need be
    name : of the genome; other names have other places

    Returns
    -------
    list of Path : the FASTA files

    Raises
    ------
    ConfigError : the folder holds what another design gave
    InputError : no sequence is long enough for any of them
    """
    settings = {"format": _FORMAT, "generated-by": f"genoformer-{__version__}", "name": name, "seed": design.seed}
    settings |= {"bases": design.bases, "read-length": design.read_length}
    record = folder / "simulation.json"
    if record.exists() and read_json(record) != settings:
        raise ConfigError(f"{record}: was made with other settings: {read_json(record)}; name another folder")
    if not record.exists():
        write_json(record, settings)
    makers: dict[Path, Callable[[Path], None]] = {}
    for size in design.lengths:
        rng, count = _generator(design.seed, name, size), -(-design.bases // size)
        makers[folder / f"contigs-{size}.fa"] = partial(_write_contigs, genome, size=size, count=count, rng=rng)
    for rate in design.rates:
        rng = _generator(design.seed, name, rate)
        makers[folder / f"reads-{rate:g}.fa"] = partial(_write_reads, genome, design=design, rate=rate, rng=rng)
    written = []
    for path, make in makers.items():
        try:
            if not path.exists():
                make(path)
            written.append(path)
        except InputError as error:
            say(f"{path} is left out: {error}")
    if makers and not written:
        raise InputError(f"{name}: too short for any of the contigs and reads wanted; ask for shorter ones")
    return written


def _generator(seed: int, name: str, what: float) -> np.random.Generator:
    return np.random.default_rng([seed, zlib.crc32(name.encode()), round(what * 1e6)])


def _write_contigs(genome: AnnotatedGenome, path: Path, *, size: int, count: int, rng: np.random.Generator) -> None:
    truth = Annotation()
    with whole(path) as part, part.open("wb") as stream:
        for name, description, codes, coding_sequences in contigs(genome, size, count, rng):
            stream.writelines(fasta_text([(name, description, decode(codes))]))
            truth.coding_sequences[name], truth.lengths[name] = coding_sequences, size
        with whole(path.with_suffix(".gff")) as gff, gff.open("w") as lines:  # before the FASTA has its name
            lines.writelines(annotation_text(truth))


def _write_reads(genome: AnnotatedGenome, path: Path, *, design: Design, rate: float, rng: np.random.Generator) -> None:
    bed = path.with_suffix(".bed")
    with whole(path) as part, part.open("wb") as stream, whole(bed) as truth, truth.open("w") as lines:
        for name, description, codes, strands in reads(genome, design, rate, rng):
            stream.writelines(fasta_text([(name, description, decode(codes))]))
            lines.write(bed_lines(name, strands))


@click.command(help=__doc__.splitlines()[0], epilog="Both strands, every place alike.")
@click.argument("fasta", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.argument("annotation", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.option("-o", "--output", type=click.Path(file_okay=False, path_type=Path), required=True, metavar="FOLDER")
@click.option("--length", "lengths", type=click.IntRange(1), multiple=True, default=LENGTHS, show_default=True,
              metavar="BASES", help="Of contigs; repeatable.")  # fmt: skip
@click.option("--rate", "rates", type=click.FloatRange(0, 0.5), multiple=True, default=RATES, show_default=True,
              metavar="RATE", help="Errors per base of reads; repeatable.")  # fmt: skip
@click.option("--read-length", type=click.IntRange(1), default=READ, show_default=True, metavar="BASES")
@click.option("--bases", type=click.IntRange(1), default=BASES, show_default=True, metavar="BASES",
              help="Of each length and rate.")  # fmt: skip
@click.option("--seed", type=click.IntRange(0), default=0, show_default=True)
def command(
    fasta: Path,
    annotation: Path,
    output: Path,
    lengths: tuple[int, ...],
    rates: tuple[float, ...],
    read_length: int,
    bases: int,
    seed: int,
) -> None:
    """Cut a genome."""
    design = Design(lengths, rates, read_length, bases, seed)
    for path in simulate(AnnotatedGenome.read(fasta, annotation), design, output, name=fasta.name):
        say(str(path))


if __name__ == "__main__":
    main(command)
