"""Other programs, each in an environment of its own: none is imported here, as their licences are not ours (GPL)."""

from __future__ import annotations

import csv
import shutil
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

from common import HERE, run_program, say, whole

from genoformer.errors import FormatError, ResourceError
from genoformer.formats.bytestream import Source
from genoformer.formats.gff3 import open_text


@dataclass(frozen=True)
class Environment:
    """What is installed where a program runs.

    Attributes
    ----------
    name : of the folder
    packages : with versions, as pip takes them
    pythons : interpreters to try, the first that is there; "" is the one that runs this
    """

    name: str
    packages: tuple[str, ...]
    pythons: tuple[str, ...] = ("",)

    @property
    def version(self) -> str:
        return self.packages[0].replace("==", " ")

    def python(self, folder: Path, *, given: str = "") -> Path:
        """Return the interpreter of the environment under ``folder``, made first if it is not there.

        Raises
        ------
        ResourceError : it cannot be made
        """
        home = folder / self.name
        ready = home / "ready.txt"
        if not ready.is_file() or ready.read_text() != " ".join(self.packages):
            shutil.rmtree(home, ignore_errors=True)
            say(f"{home}: installing {', '.join(self.packages)}")
            run_program([self._interpreter(given), "-m", "venv", home], what=f"environment of {self.name}")
            pip = [home / "bin" / "python", "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
            run_program([*pip, *self.packages], what=f"environment of {self.name}")
            with whole(ready) as part:
                part.write_text(" ".join(self.packages))
        return home / "bin" / "python"

    def _interpreter(self, given: str) -> str:
        tried = (given,) if given else self.pythons
        found = next((sys.executable if not name else shutil.which(name) for name in tried), None)
        if found is None:
            raise ResourceError(f"{self.name} needs {' or '.join(tried)}, which is not there; name it by its option")
        return found


PRODIGAL = Environment("prodigal", ("pyrodigal==3.7.1",))
FRAGGENESCAN = Environment("fraggenescan", ("pyfgs==0.0.3", "numpy"), ("python3.12",))
"""Of pyfgs there are builds for some versions of Python only."""
ORFORISE = Environment("orforise", ("orforise==1.4.3", "numpy"))


@dataclass(frozen=True)
class Peer:
    """A program that calls genes, set in one way.

    Attributes
    ----------
    name : as tables have it
    environment : where it runs
    script : that runs it
    arguments : of the script, before the input; CODE stands for the genetic code of the genome
    kinds : of the data that it is made for: genome, contigs, reads
    """

    name: str
    environment: Environment
    script: str
    arguments: tuple[str, ...]
    kinds: tuple[str, ...]

    def call(self, python: Path, fasta: Path, output: Path, *, genetic_code: int) -> None:
        """Write the genes of a FASTA file as GFF3."""
        words = [str(genetic_code) if word == "CODE" else word for word in self.arguments]
        with whole(output) as part:
            run_program([python, HERE / self.script, *words, fasta, part], what=f"{self.name} on {fasta}")


PEERS = (
    Peer("Prodigal", PRODIGAL, "call_prodigal.py", ("single", "CODE"), ("genome", "contigs")),
    Peer("Prodigal meta", PRODIGAL, "call_prodigal.py", ("meta", "CODE"), ("contigs", "reads")),
    Peer("FragGeneScan", FRAGGENESCAN, "call_fraggenescan.py", ("complete", "parts"), ("contigs",)),
    *(
        Peer(f"FragGeneScan {model}", FRAGGENESCAN, "call_fraggenescan.py", (model, "parts"), ("reads",))
        for model in ("sanger_10", "454_10", "454_30")
    ),
)

_ORFORISE_NUMBERS = {
    "Percentage_of_Genes_Detected": "genes detected, %",
    "Percentage_of_ORFs_that_Detected_a_Gene": "calls that detect a gene, %",
    "Percentage_of_Perfect_Matches": "perfect matches, %",
}


def orforise(python: Path, fasta: Path, truth: Path, prediction: Path, *, folder: Path) -> dict[str, float]:
    """Return what ORForise says of the genes of a genome: another evaluator, with rules of its own.

    Raises
    ------
    ResourceError : it fails
    FormatError : it says something else than expected
    """
    folder.mkdir(parents=True, exist_ok=True)
    plain = [folder / "genome.fa", folder / "truth.gff"]
    for source, target in zip((fasta, truth), plain, strict=True):
        with open_text(Source(source)) as lines, target.open("w") as stream:
            stream.writelines(lines)
    table = folder / "metrics.csv"
    command = [python.with_name("Annotation-Compare"), "-dna", plain[0], "-ref", plain[1], "-t", "GFF"]
    run_program([*command, "-tp", prediction, "-o", table], what=f"ORForise on {prediction}")
    rows = list(csv.reader(table.read_text().splitlines()))
    return _numbers(rows, str(table))


def _numbers(rows: Sequence[Sequence[str]], source: str) -> dict[str, float]:
    for names, values in pairwise(rows):
        if set(_ORFORISE_NUMBERS) <= set(names) and len(names) == len(values):
            found = dict(zip(names, values, strict=True))
            return {word: float(found[name]) for name, word in _ORFORISE_NUMBERS.items()}
    raise FormatError(f"{source}: lacks {', '.join(_ORFORISE_NUMBERS)}; expected the metrics of {ORFORISE.version}")
