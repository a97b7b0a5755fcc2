"""Genomes by accession from NCBI, into a folder with a MANIFEST.tsv that the other scripts and the recipe read.

python pipelines/prokaryote-genes/download.py -o DATA/genomes --email YOU@SOMEWHERE

Each record is fetched as GenBank with its bases, kept in DATA/genomes/records, and becomes FASTA and GFF3. What is
there is not fetched again, so the same command goes on after an interruption.
"""

from __future__ import annotations

import csv
import http.client
import json
import re
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.error import HTTPError, URLError

import click
import numpy as np
from Bio import Entrez
from common import ACCESSIONS, SPLITS, annotation_text, digest, fasta_text, main, read_table, say, whole, write_gzip

from genoformer import __version__
from genoformer.errors import ConfigError, InputError, ResourceError
from genoformer.formats.genbank import GenBankFile, read_genbank
from genoformer.tokens import A, C, G, T, encode

TOGETHER = 20
"""Records asked for at once."""
TRIES = 5
_NAME = re.compile(r"[\w+-][\w.+-]*")
_ACCESSION = re.compile(r"([A-Z]{2}_)?[A-Z]{0,6}\d{5,12}(\.\d+)?")
_ASSEMBLY = re.compile(r"GC[AF]_\d{9}(\.\d+)?")
_VERSION = re.compile(r"^VERSION\s+(\S+)", re.MULTILINE)
_COLUMNS = ("split", "fasta", "annotation", "tier", "accession", "organism", "n_seq", "bp", "GC", "n_CDS",
            "n_pseudo_CDS", "genetic_code", "licence", "sha256_fasta", "sha256_annotation", "note")  # fmt: skip


@dataclass
class Client:
    """Entrez, asked again with growing pauses when it fails; Biopython keeps to NCBI's limits on how often.

    Attributes
    ----------
    email : NCBI wants to know whom to write to
    api_key : allows more requests a second; "" for none
    tries : of each request
    wait : takes seconds, and waits
    """

    email: str
    api_key: str = ""
    tries: int = TRIES
    wait: Callable[[float], None] = field(default=time.sleep, repr=False)

    def __post_init__(self) -> None:
        if "@" not in self.email:
            raise ConfigError(f"NCBI asks for an e-mail address, got {self.email!r}; give --email or set NCBI_EMAIL")
        Entrez.email, Entrez.api_key, Entrez.tool = self.email, self.api_key or None, "genoformer"
        Entrez.max_tries = 1  # the pauses are ours

    def records(self, accessions: Sequence[str]) -> dict[str, str]:
        """Return the GenBank text of each record.

        Raises
        ------
        InputError : there is no such record
        ResourceError : NCBI cannot be reached, or keeps sending what is cut off
        """
        asked = {"db": "nuccore", "id": ",".join(accessions), "rettype": "gbwithparts", "retmode": "text"}

        def complete(text: str) -> dict[str, str]:
            found = dict(_split(text))
            missing = [accession for accession in accessions if accession not in found]
            if missing:
                raise _Incomplete(f"{missing[0]} is not in what NCBI sent ({text.strip()[:80]!r})")
            return {accession: found[accession] for accession in accessions}

        return self._ask(Entrez.efetch, complete, **asked)

    def members(self, assembly: str) -> list[str]:
        """Return the accessions of the sequences of an assembly.

        Raises
        ------
        InputError : there is no such assembly
        ResourceError : NCBI cannot be reached
        """
        term = f"{assembly}[Assembly Accession]"
        found = self._ask(Entrez.esearch, json.loads, db="assembly", term=term, retmode="json")
        ids = found["esearchresult"]["idlist"]
        if not ids:
            raise InputError(f"{assembly}: NCBI has no such assembly")
        kind = "refseq" if assembly.startswith("GCF") else "insdc"
        linked = self._ask(
            Entrez.elink, json.loads, dbfrom="assembly", db="nuccore", id=ids[0], retmode="json",
            linkname=f"assembly_nuccore_{kind}",
        )  # fmt: skip
        numbers = [link for set_ in linked["linksets"] for db in set_.get("linksetdbs", []) for link in db["links"]]
        if not numbers:
            raise InputError(f"{assembly}: NCBI links it to no sequences")
        asked = {"db": "nuccore", "id": ",".join(map(str, numbers)), "rettype": "acc", "retmode": "text"}
        return sorted(self._ask(Entrez.efetch, str.split, **asked))

    def _ask(self, call: Callable[..., Any], use: Callable[[str], Any], **asked: str) -> Any:
        """Ask until the answer is of use."""
        for number in range(self.tries):
            try:
                with call(**asked) as answer:
                    text = answer.read()
                return use(text if isinstance(text, str) else text.decode())
            except (URLError, http.client.HTTPException, OSError, _Incomplete, ValueError) as error:
                if isinstance(error, HTTPError) and error.code in (400, 404):
                    raise InputError(f"{asked.get('id') or asked.get('term')}: NCBI has no such record") from None
                problem = error
            if number + 1 < self.tries:
                pause = 2.0**number
                say(f"NCBI: {problem}; asking again in {pause:g} s")
                self.wait(pause)
        if isinstance(problem, _Incomplete):
            raise InputError(f"{problem}; is there such a record?")
        raise ResourceError(f"NCBI cannot be reached: {problem}; try later, or name a folder that has the genomes")


class _Incomplete(Exception):
    """An answer that lacks something."""


def _split(text: str) -> Iterator[tuple[str, str]]:
    """Yield the whole records of a GenBank text under their accessions, with and without version."""
    for record in re.split(r"(?<=\n)//[ \t]*\r?\n", text)[:-1]:
        version = _VERSION.search(record)
        if version and "\nORIGIN" in record:
            yield version[1], f"{record.lstrip()}//\n"
            yield version[1].partition(".")[0], f"{record.lstrip()}//\n"


def fetch(row: dict[str, str], client: Client, folder: Path) -> GenBankFile:
    """Return the records of a genome, fetched where they are not in ``folder`` yet."""
    wanted = []
    for accession in row["accessions"].split(","):
        wanted += client.members(accession) if _ASSEMBLY.fullmatch(accession) else [accession]
    paths = {accession: folder / f"{accession}.gb" for accession in wanted}
    missing = [accession for accession, path in paths.items() if not path.exists()]
    for start in range(0, len(missing), TOGETHER):
        for accession, text in client.records(missing[start : start + TOGETHER]).items():
            with whole(paths[accession]) as part:
                part.write_text(text)
    joined = folder / f"{row['name']}.genbank"
    with whole(joined) as part, part.open("w") as stream:
        stream.writelines(path.read_text() for path in paths.values())
    try:
        return read_genbank(joined)
    finally:
        joined.unlink()


def make_genome(row: dict[str, str], found: GenBankFile, folder: Path) -> dict[str, str]:
    """Write a genome as FASTA and GFF3; return its row of the MANIFEST."""
    base = folder / row["split"] / row["name"]
    fasta, annotation = base.with_name(f"{base.name}.fa.gz"), base.with_name(f"{base.name}.gff.gz")
    records = [(record.name, record.description, record.bases) for record in found.records]
    write_gzip(fasta, b"".join(fasta_text(records)))
    comments = [f"genoformer {__version__}, from the GenBank records of NCBI"]
    write_gzip(annotation, "".join(annotation_text(found.annotation, comments=comments)).encode())
    letters = np.bincount(encode(b"".join(bases for _, _, bases in records)), minlength=256)
    coding = [cds for cdss in found.annotation.coding_sequences.values() for cds in cdss]
    size, known = int(letters.sum()), int(letters[[A, C, G, T]].sum())
    pseudo = sum(cds.pseudo for cds in coding)
    if row.get("bases") and int(row["bases"]) != size:
        say(f"{row['name']}: {size:,} bases, not {int(row['bases']):,} as when the model was trained")
    made = {"fasta": fasta.name, "annotation": annotation.name, "accession": row["accessions"], "n_seq": len(records),
            "bp": size, "GC": f"{letters[[C, G]].sum() / max(known, 1):.4f}", "n_CDS": len(coding) - pseudo,
            "n_pseudo_CDS": pseudo, "sha256_fasta": digest(fasta), "sha256_annotation": digest(annotation)}  # fmt: skip
    return {column: str(made.get(column, row.get(column, ""))) for column in _COLUMNS}


def is_done(row: dict[str, str], manifest: dict[str, dict[str, str]], folder: Path) -> bool:
    """Tell whether a genome is there as the MANIFEST says."""
    made = manifest.get(f"{row['name']}.fa.gz")
    if made is None or made["accession"] != row["accessions"] or made["split"] != row["split"]:
        return False
    files = {made["fasta"]: made["sha256_fasta"], made["annotation"]: made["sha256_annotation"]}
    paths = {folder / row["split"] / name: sha256 for name, sha256 in files.items()}
    return all(path.is_file() and digest(path) == sha256 for path, sha256 in paths.items())


def read_accessions(path: Path, *, splits: Sequence[str], names: Sequence[str]) -> list[dict[str, str]]:
    """Return the genomes wanted of a table with the columns split, name and accessions.

    Raises
    ------
    InputError : a name, split or accession is none, a name comes twice, or nothing is wanted
    """
    rows = read_table(path, needed=("split", "name", "accessions"))
    seen: set[str] = set()
    for row in rows:
        where = f"{path}: {row['name'] or 'a genome without a name'}"
        if not _NAME.fullmatch(row["name"]) or row["name"] in seen:
            raise InputError(f"{where}: names of genomes are those of files, and come once")
        if row["split"] not in SPLITS:
            raise InputError(f"{where}: split must be one of {', '.join(SPLITS)}, got {row['split']!r}")
        for accession in row["accessions"].split(","):
            if not _ACCESSION.fullmatch(accession) and not _ASSEMBLY.fullmatch(accession):
                raise InputError(f"{where}: {accession!r} is no accession; divide several by commas, without spaces")
        seen.add(row["name"])
    unknown = [name for name in names if name not in seen]
    chosen = [row for row in rows if row["split"] in splits and (not names or row["name"] in names)]
    if unknown or not chosen:
        raise InputError(f"{path}: has no genome {unknown[0] if unknown else 'in ' + ', '.join(splits)!r}")
    return chosen


def download(rows: Sequence[dict[str, str]], client: Client, folder: Path) -> int:
    """Fetch genomes and list them in MANIFEST.tsv, one after the other; return how many were new."""
    table = folder / "MANIFEST.tsv"
    manifest = {row["fasta"]: row for row in read_table(table, needed=_COLUMNS)} if table.exists() else {}
    new = 0
    for number, row in enumerate(rows, 1):
        where = f"{number} of {len(rows)}, {row['name']}"
        if is_done(row, manifest, folder):
            say(f"{where}: there")
            continue
        made = make_genome(row, fetch(row, client, folder / "records"), folder)
        manifest[made["fasta"]] = made
        with whole(table) as part, part.open("w", newline="") as stream:
            writer = csv.DictWriter(stream, _COLUMNS, delimiter="\t", quoting=csv.QUOTE_NONE, lineterminator="\n")
            writer.writeheader()
            writer.writerows(manifest.values())
        say(f"{where}: {int(made['bp']):,} bases, {made['n_CDS']} CDS")
        new += 1
    return new


@click.command(help=__doc__.splitlines()[0])
@click.option("-o", "--output", type=click.Path(file_okay=False, path_type=Path), required=True, metavar="FOLDER")
@click.option("--accessions", type=click.Path(dir_okay=False, path_type=Path), default=ACCESSIONS, metavar="TSV",
              help="Table with split, name and accessions.  [default: that of the bundled model]")  # fmt: skip
@click.option("--split", "splits", type=click.Choice(SPLITS), multiple=True, default=SPLITS, show_default=True)
@click.option("--name", "names", multiple=True, help="Of a genome; repeatable.  [default: all]")
@click.option("--email", envvar="NCBI_EMAIL", default="", show_envvar=True, help="NCBI wants to know whom to write to.")
@click.option("--api-key", envvar="NCBI_API_KEY", default="", show_envvar=True, help="Of NCBI: ten requests a second.")
def command(
    output: Path, accessions: Path, splits: tuple[str, ...], names: tuple[str, ...], email: str, api_key: str
) -> None:
    """Download."""
    rows = read_accessions(accessions, splits=splits, names=names)
    new = download(rows, Client(email, api_key), output)
    say(f"{output / 'MANIFEST.tsv'}: {len(rows)} genomes, {new} of them new")


if __name__ == "__main__":
    main(command)
