"""What the scripts of this recipe share: the table of genomes, files that appear whole, programs run, errors told."""

from __future__ import annotations

import csv
import gzip
import hashlib
import json
import os
import subprocess
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click

from genoformer.annotation import Annotation
from genoformer.cli import exit_code
from genoformer.errors import GenoformerError, InputError, ResourceError
from genoformer.formats.gff3_write import CodingFeature, coding_lines, header, sequence_lines

HERE = Path(__file__).resolve().parent
ACCESSIONS = HERE / "accessions.tsv"
WORK = HERE / "work"
SPLITS = ("train", "validation", "test")


@dataclass(frozen=True)
class Genome:
    """A row of a MANIFEST.tsv.

    Attributes
    ----------
    name : file name without extensions
    split : train, validation or test
    fasta, annotation : files
    genetic_code : NCBI translation table
    organism : in words
    """

    name: str
    split: str
    fasta: Path
    annotation: Path
    genetic_code: int = 11
    organism: str = ""


def read_table(path: Path, *, needed: Sequence[str]) -> list[dict[str, str]]:
    """Read a tab-separated table with a header.

    Raises
    ------
    InputError : it cannot be read, lacks a column, or a line has more or fewer cells than the header
    """
    try:
        with path.open(newline="", encoding="utf-8-sig") as stream:
            lines = list(csv.reader(stream, delimiter="\t", quoting=csv.QUOTE_NONE))
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"{path}: cannot be read: {error}") from None
    names = lines[0] if lines else []
    lacking = [name for name in needed if name not in names]
    if lacking:
        raise InputError(f"{path}: expected a header with the columns {', '.join(needed)}; there is no {lacking[0]}")
    for number, cells in enumerate(lines[1:], 2):
        if cells and len(cells) != len(names):
            raise InputError(f"{path}: line {number}: expected {len(names)} cells divided by tabs, got {len(cells)}")
    return [dict(zip(names, cells, strict=True)) for cells in lines[1:] if cells]


def read_manifest(folder: Path, split: str, *, only: Sequence[str] = ()) -> list[Genome]:
    """Return the genomes of one split of a folder with a MANIFEST.tsv; the files of others are not touched.

    Parameters
    ----------
    folder : holds MANIFEST.tsv, and the files in a folder named as the split
    split : train, validation or test
    only : if any, names of the genomes wanted

    Raises
    ------
    InputError : no such genomes, or a file is missing
    """
    table = folder / "MANIFEST.tsv"
    rows = [row for row in read_table(table, needed=("split", "fasta", "annotation")) if row["split"] == split]
    genomes = []
    for row in rows:
        name = row["fasta"].split(".fa")[0]
        if only and name not in only:
            continue
        fasta, annotation = folder / split / row["fasta"], folder / split / row["annotation"]
        for path in (fasta, annotation):
            if not path.is_file():
                raise InputError(f"{path}: no such file, though {table} lists it")
        genomes.append(
            Genome(name, split, fasta, annotation, int(row.get("genetic_code") or 11), row.get("organism", ""))
        )
    missing = [name for name in only if name not in {genome.name for genome in genomes}]
    if missing or not genomes:
        what = f"no genome {missing[0]!r}" if missing else "no genome"
        raise InputError(f"{table}: {what} in split {split}; it has {', '.join(r['fasta'] for r in rows) or 'none'}")
    return genomes


@contextmanager
def whole(path: Path) -> Iterator[Path]:
    """Give a path to write; what was written there appears under its name when done, and goes when not."""
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_name(f"{path.name}.part")
    try:
        yield part
        part.replace(path)
    except BaseException:
        with suppress(OSError):
            part.unlink()
        raise


def write_gzip(path: Path, text: bytes) -> None:
    """Write a gzip file; equal text gives equal bytes."""
    with whole(path) as part, part.open("wb") as raw, gzip.GzipFile("", "wb", fileobj=raw, mtime=0) as stream:
        stream.write(text)


def write_json(path: Path, data: Mapping[str, Any]) -> None:
    """Write plain data."""
    with whole(path) as part:
        part.write_text(json.dumps(data, indent=1, allow_nan=False) + "\n")


def read_json(path: Path) -> Any:
    """Read plain data.

    Raises
    ------
    InputError : it cannot be read, or is no JSON
    """
    try:
        return json.loads(path.read_text())
    except (OSError, ValueError) as error:
        raise InputError(f"{path}: cannot be read as JSON: {error}") from None


def digest(path: Path) -> str:
    """Return the SHA-256 of a file."""
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def fasta_text(records: Iterable[tuple[str, str, bytes]], *, width: int = 80) -> Iterator[bytes]:
    """Yield name, description and bases as FASTA."""
    for name, description, bases in records:
        yield f">{name} {description}".rstrip().encode() + b"\n"
        yield b"".join(bases[start : start + width] + b"\n" for start in range(0, len(bases), width))


def annotation_text(annotation: Annotation, *, comments: Iterable[str] = ()) -> Iterator[str]:
    """Yield the coding sequences of an annotation as GFF3, which reads back as the same."""
    yield header(comments)
    number = 0
    for name, coding_sequences in annotation.coding_sequences.items():
        is_circular = annotation.topology.get(name) == "circular"
        yield sequence_lines(name, annotation.lengths.get(name, 0), circular=is_circular)
        for cds in coding_sequences:
            number += 1
            flags = {"partial": cds.partial, "pseudo": cds.pseudo}
            attributes = {tag: "true" for tag, is_set in flags.items() if is_set}
            if cds.name:
                attributes["Name"] = cds.name
            if cds.genetic_code:
                attributes["transl_table"] = str(cds.genetic_code)
            feature = CodingFeature(f"cds{number}", cds.strand, cds.parts, None, attributes, cds.phase)
            yield coding_lines(name, feature)


def run_program(command: Sequence[str | os.PathLike[str]], *, what: str) -> None:
    """Run a program to its end; what it says is shown only if it fails.

    Raises
    ------
    ResourceError : it is not there, or fails
    """
    words = [str(word) for word in command]
    try:
        done = subprocess.run(words, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
    except OSError as error:
        raise ResourceError(f"{what}: {words[0]} cannot be run: {error.strerror}") from None
    if done.returncode == 130 or done.returncode < 0:
        raise KeyboardInterrupt
    if done.returncode:
        said = (done.stderr.strip() or done.stdout.strip() or "nothing").splitlines()[-1]
        raise ResourceError(f"{what}: {' '.join(words)} ended with {done.returncode}: {said}")


def say(text: str) -> None:
    """Tell what is going on, on stderr."""
    click.echo(text, err=True)


def main(command: click.Command) -> None:
    """Run the command of a script; an error of ours becomes one line and the exit code that genoformer has for it."""
    name = Path(sys.argv[0]).name
    try:
        sys.exit(command.main(standalone_mode=False) or 0)
    except click.ClickException as error:
        error.show()
        sys.exit(exit_code(error))
    except (KeyboardInterrupt, click.Abort):
        say(f"{name}: interrupted; the same command goes on")
        sys.exit(130)
    except GenoformerError as error:
        say(f"{name}: {type(error).__name__}: {error}")
        sys.exit(exit_code(error))
    except OSError as error:
        say(f"{name}: ResourceError: {error.filename or 'a file'}: {error.strerror or error}")
        sys.exit(exit_code(ResourceError()))
