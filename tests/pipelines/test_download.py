"""Genomes by accession from a made-up Entrez: what is asked, what is kept, and what happens when it fails."""

from __future__ import annotations

import io
import json
import types
from email.message import Message
from pathlib import Path
from urllib.error import HTTPError, URLError
from urllib.parse import parse_qs, urlsplit
from urllib.response import addinfourl

import download
import numpy as np
import pytest
from Bio import Entrez, SeqIO
from Bio.Seq import Seq
from Bio.SeqFeature import BeforePosition, SeqFeature, SimpleLocation
from Bio.SeqRecord import SeqRecord
from common import ACCESSIONS, read_manifest, read_table
from download import Client, read_accessions
from tiny import made_up_genome

from genoformer.annotation import coding_frame_labels
from genoformer.errors import ConfigError, InputError, ResourceError
from genoformer.formats.genbank import read_genbank
from genoformer.formats.gff3 import read_gff3
from genoformer.formats.sequences import open_sequences


def genbank(accession: str, seed: int) -> str:
    """Write a record with genes, one of them cut off, one pseudo, one over the origin."""
    bases, places = made_up_genome(8, seed=seed)
    record = SeqRecord(Seq(bases.decode()), id=accession, name=accession[:9], description="made up, whole")
    record.annotations |= {"molecule_type": "DNA", "topology": "circular"}
    size = len(bases)
    spans = [SimpleLocation(BeforePosition(0), 50, 1), *(SimpleLocation(a, b, s) for a, b, s in places)]
    spans.append(SimpleLocation(size - 20, size, 1) + SimpleLocation(0, 10, 1))
    for number, span in enumerate(spans):
        qualifiers = {"locus_tag": [f"x{number}"], "transl_table": ["11"]} | ({"pseudo": [""]} if number == 3 else {})
        record.features.append(SeqFeature(span, type="CDS", qualifiers=qualifiers))
    out = io.StringIO()
    SeqIO.write(record, out, "genbank")
    return out.getvalue()


class FakeEntrez:
    """Answers as NCBI does; `plan` holds what goes wrong with the next requests."""

    def __init__(self, records: dict[str, str], assemblies: dict[str, list[str]]):
        self.records, self.assemblies = records, assemblies
        self.asked: list[tuple[str, dict[str, str]]] = []
        self.plan: list[object] = []

    def urlopen(self, request: object) -> addinfourl:
        tool = urlsplit(request.full_url).path.rsplit("/", 1)[1].removesuffix(".fcgi")
        query = (request.data or urlsplit(request.full_url).query.encode()).decode()
        asked = {key: values[0] for key, values in parse_qs(query).items()}
        self.asked.append((tool, asked))
        wrong = self.plan.pop(0) if self.plan else None
        if isinstance(wrong, Exception):
            raise wrong
        text = getattr(self, tool)(asked)
        headers = Message()
        headers["Content-Type"] = "application/json" if asked["retmode"] == "json" else "text/plain"
        body = io.BytesIO(text.encode()[: wrong if isinstance(wrong, int) else None])
        return addinfourl(body, headers, request.full_url, 200)

    def efetch(self, asked: dict[str, str]) -> str:
        wanted = asked["id"].split(",")
        if asked["rettype"] == "acc":
            return "\n".join(reversed([self.assemblies["GCA_000000001.1"][int(number)] for number in wanted])) + "\n"
        return "\n".join(text for name, text in self.records.items() if name in wanted or name.split(".")[0] in wanted)

    def esearch(self, asked: dict[str, str]) -> str:
        return json.dumps(
            {"esearchresult": {"idlist": ["7"] if asked["term"].split("[")[0] in self.assemblies else []}}
        )

    def elink(self, asked: dict[str, str]) -> str:
        assert (asked["id"], asked["linkname"]) == ("7", "assembly_nuccore_insdc")
        return json.dumps({"linksets": [{"linksetdbs": [{"links": ["0", "1"]}]}]})


@pytest.fixture
def ncbi(monkeypatch: pytest.MonkeyPatch) -> FakeEntrez:
    records = {f"NC_00000{i}.{i}": genbank(f"NC_00000{i}.{i}", i) for i in range(1, 5)}
    fake = FakeEntrez(records, {"GCA_000000001.1": ["NC_000003.3", "NC_000004.4"]})
    monkeypatch.setattr(Entrez, "urlopen", fake.urlopen)
    monkeypatch.setattr(Entrez, "time", types.SimpleNamespace(time=lambda: 0.0, sleep=lambda _: None))
    for name in ("email", "api_key", "tool", "max_tries"):
        monkeypatch.setattr(Entrez, name, getattr(Entrez, name))
    return fake


@pytest.fixture
def client() -> Client:
    waits: list[float] = []
    made = Client("a@b", tries=4, wait=waits.append)
    made.waits = waits
    return made


def table(path: Path, *rows: str) -> Path:
    path.write_text("\n".join(["split\tname\taccessions\torganism\tbases\tgenetic_code\tlicence", *rows]) + "\n")
    return path


ROWS = ("validation\tone\tNC_000001,NC_000002.2\tA b\t1\t11\tpublic", "test\tset\tGCA_000000001.1\tC d\t\t4\tpublic")


def test_genomes_of_several_records_and_an_assembly(ncbi: FakeEntrez, client: Client, tmp_path: Path, capsys) -> None:
    rows = read_accessions(table(tmp_path / "t.tsv", *ROWS), splits=("validation", "test"), names=())
    assert download.download(rows, client, tmp_path / "g") == 2
    assert "bases, not 1 as when the model was trained" in capsys.readouterr().err
    for split, accessions in (("validation", ["NC_000001.1", "NC_000002.2"]), ("test", ["NC_000003.3", "NC_000004.4"])):
        (genome,) = read_manifest(tmp_path / "g", split)
        found = {record.name: record for record in open_sequences(genome.fasta).records()}
        annotation = read_gff3(genome.annotation)
        assert list(found) == list(annotation.coding_sequences) == accessions
        for accession in accessions:
            path = tmp_path / f"{accession}.gb"
            path.write_text(ncbi.records[accession])
            given = read_genbank(path)
            bases = given.records[0].bases
            assert found[accession].bases == bases
            known = given.annotation.coding_sequences[accession]
            labels = [coding_frame_labels(len(bases), cdss) for cdss in (annotation.coding_sequences[accession], known)]
            assert np.array_equal(labels[0].frames, labels[1].frames)
            assert labels[0].pseudo == labels[1].pseudo == 1
            assert annotation.topology[accession] == "circular"
    listed = {row["fasta"]: row for row in read_table(tmp_path / "g" / "MANIFEST.tsv", needed=("sha256_fasta",))}
    assert (listed["one.fa.gz"]["n_seq"], listed["one.fa.gz"]["n_pseudo_CDS"]) == ("2", "2")
    assert listed["set.fa.gz"]["genetic_code"] == "4"
    assert {asked["email"] for _, asked in ncbi.asked} == {"a@b"}
    assert sum(tool == "efetch" for tool, _ in ncbi.asked) == 3


def test_the_same_command_goes_on(ncbi: FakeEntrez, client: Client, tmp_path: Path) -> None:
    rows = read_accessions(table(tmp_path / "t.tsv", *ROWS), splits=("validation",), names=["one"])
    folder = tmp_path / "g"
    download.download(rows, client, folder)
    ncbi.asked.clear()
    before = {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    assert download.download(rows, client, folder) == 0
    (folder / "validation" / "one.gff.gz").write_bytes(b"cut")
    assert download.download(rows, client, folder) == 1
    assert not ncbi.asked  # the records are there
    (folder / "records" / "NC_000002.2.gb").unlink()
    (folder / "validation" / "one.fa.gz").unlink()
    assert download.download(rows, client, folder) == 1
    assert [asked["id"] for _, asked in ncbi.asked] == ["NC_000002.2"]
    assert {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()} == before


@pytest.mark.parametrize(
    "wrong",
    [URLError("down"), HTTPError("u", 500, "x", Message(), None), HTTPError("u", 429, "x", Message(), None), 400, 0],
)
def test_what_passes_is_asked_again(ncbi: FakeEntrez, client: Client, wrong: object) -> None:
    """Refused, or cut off in the middle of a record."""
    ncbi.plan = [wrong, wrong]
    assert client.records(["NC_000001.1"]) == {"NC_000001.1": ncbi.records["NC_000001.1"]}
    assert client.waits == [1.0, 2.0]


def test_what_stays_wrong_is_one_error(ncbi: FakeEntrez, client: Client, tmp_path: Path) -> None:
    ncbi.plan = [URLError("down")] * 4
    with pytest.raises(ResourceError, match=r"NCBI cannot be reached: .urlopen error down"):
        client.records(["NC_000001.1"])
    with pytest.raises(InputError, match="NC_999999 is not in what NCBI sent"):
        client.records(["NC_000001.1", "NC_999999"])
    ncbi.plan = [HTTPError("u", 400, "x", Message(), None)]
    with pytest.raises(InputError, match="NC_000001: NCBI has no such record"):
        client.records(["NC_000001"])
    with pytest.raises(InputError, match="GCF_000000009: NCBI has no such assembly"):
        client.members("GCF_000000009")
    with pytest.raises(ConfigError, match="e-mail"):
        Client("nobody")
    rows = read_accessions(table(tmp_path / "t.tsv", ROWS[0]), splits=("validation",), names=())
    ncbi.plan = [100] * 4
    with pytest.raises(InputError):
        download.download(rows, client, tmp_path / "g")
    assert not [path for path in (tmp_path / "g").rglob("*") if path.is_file()]


@pytest.mark.parametrize(
    ("row", "words"),
    [
        ("validation\t../one\tNC_000001\t\t\t\t", "names of genomes are those of files"),
        ("validation\t.one\tNC_000001\t\t\t\t", "names of genomes are those of files"),
        ("eval\tone\tNC_000001\t\t\t\t", "got 'eval'"),
        ("test\tone\tNC_000001, NC_000002\t\t\t\t", "' NC_000002' is no accession"),
        ("test\tone\t\t\t\t\t", "'' is no accession"),
        ("test\tone\tNC_000001", "line 2: expected 7 cells"),
        ("train\tone\tNC_000001\t\t\t\t", "has no genome 'in test'"),
    ],
)
def test_tables_that_are_wrong(tmp_path: Path, row: str, words: str) -> None:
    with pytest.raises(InputError, match=words):
        read_accessions(table(tmp_path / "t.tsv", row), splits=("test",), names=())


def test_the_table_of_the_bundled_model() -> None:
    rows = read_accessions(ACCESSIONS, splits=("train", "validation", "test"), names=())
    assert len(rows) == 58
    assert {row["genetic_code"] for row in rows} == {"11", "4"}
    assert all(int(row["bases"]) > 1000 and row["licence"] and row["organism"] for row in rows)
