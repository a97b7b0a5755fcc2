"""What may be given as sequences: every kind is read as the same records, and what is none is refused."""

from __future__ import annotations

import gzip
import io
from pathlib import Path

import pytest
from Bio.Seq import Seq
from Bio.SeqRecord import SeqRecord

from genoformer.errors import FormatError, InputError
from genoformer.formats.given import HeldSequences, as_sequences
from genoformer.formats.sequences import Record, open_sequences
from genoformer.regions import Region

FASTA = ">a first\nACGTN\nacg\n>b\nTTT\n"
PAIRS = [("a", "ACGTNacg"), ("b", "TTT")]


def found(given) -> list[tuple[str, bytes]]:
    source = as_sequences(given)
    twice = [[(record.name, record.bases) for record in source.records()] for _ in range(2)]
    assert twice[0] == twice[1]  # plans read a source before predictions do
    assert source.lengths() == {name: len(bases) for name, bases in twice[0]}
    for name, bases in twice[0]:
        assert source.fetch(Region(name, 1, len(bases))) == bases[1:]
    return twice[0]


@pytest.fixture
def path(tmp_path) -> Path:
    (tmp_path / "x.fa").write_text(FASTA)
    return tmp_path / "x.fa"


def kinds(path: Path) -> dict[str, object]:
    return {
        "str": str(path),
        "path": path,
        "binary": path.open("rb"),
        "text": path.open("r"),
        "bytesio": io.BytesIO(FASTA.encode()),
        "stringio": io.StringIO(FASTA),
        "gzip": gzip.open(io.BytesIO(gzip.compress(FASTA.encode()))),
        "mapping": dict(PAIRS),
        "pairs": PAIRS,
        "generator": (pair for pair in PAIRS),
        "lists and bytes": [["a", b"ACGT\nNacg"], ("b", bytearray(b"TTT"))],
        "records": [Record("a", "first", "linear", b"ACGTNacg"), Record("b", "", "linear", b"TTT")],
        "biopython": [SeqRecord(Seq(bases), id=name) for name, bases in PAIRS],
        "opened": open_sequences(path),
    }


KINDS = ("str", "path", "binary", "text", "bytesio", "stringio", "gzip", "mapping", "pairs", "generator",
         "lists and bytes", "records", "biopython", "opened")  # fmt: skip


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_is_the_same_records(path, kind):
    given = kinds(path)
    assert tuple(given) == KINDS
    try:
        assert found(given[kind]) == [("a", b"ACGTNacg"), ("b", b"TTT")]
    finally:
        for each in given.values():
            if hasattr(each, "close"):
                each.close()


@pytest.mark.parametrize("bases", [b"ACGT", "ACGT", "ac\ngt\n", bytearray(b"ACGT")])
def test_bases(bases):
    assert [(name, text.upper()) for name, text in found(bases)] == [("sequence", b"ACGT")]


def test_a_file_goes_before_bases(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("ACGT").write_text(FASTA)
    assert found("ACGT") == [("a", b"ACGTNacg"), ("b", b"TTT")]
    with pytest.raises(InputError, match=r"no-such\.fa"):
        as_sequences("no-such.fa")


def test_one_record_of_biopython_keeps_what_it_says():
    given = SeqRecord(Seq("ACGT"), id="p", description="p a plasmid", annotations={"topology": "circular"})
    assert list(as_sequences(given).records()) == [Record("p", "a plasmid", "circular", b"ACGT")]


@pytest.mark.parametrize(
    ("given", "error", "words"),
    [
        ([("a", "AC"), ("a", "GT")], InputError, "'a'"), ([("a b", "AC")], InputError, "white space"),
        ({"": "AC"}, InputError, "''"), (7, TypeError, "got int"), ([7], TypeError, "got int"),
        ([("a", 7)], TypeError, "as str or bytes, got int"), (io.BytesIO(b""), InputError, "is empty"),
        (io.StringIO("##gff-version 3\n"), FormatError, "GFF3"),
    ],
)  # fmt: skip
def test_what_is_none(given, error, words):
    with pytest.raises(error, match=words):
        as_sequences(given)


def test_nothing_is_no_sequence():
    assert found([]) == found({}) == []


def test_regions_must_lie_on_a_sequence():
    held = HeldSequences([Record("a", "", "linear", b"ACGT")])
    for region in (Region("b", 0, 1), Region("a", 2, 5)):
        with pytest.raises(InputError):
            held.fetch(region)


def test_letters_that_are_not_of_ascii():
    for given in ({"r": "ACG\u00e9ACG"}, [("r", "ACG\u00e9ACG")], Record("r", "", "linear", "ACG\u00e9")):
        with pytest.raises(InputError, match="sequence 'r': letter 4 is '\u00e9'; expected letters of ASCII"):
            as_sequences(given)


def test_an_empty_text_is_no_folder():
    with pytest.raises(InputError, match="the text is empty"):
        as_sequences("")
