"""genoformer variants: every allele is in the output, whatever is wrong with it; errors are a line, leave nothing."""

from __future__ import annotations

import re

import pysam
import pytest
from samples import bases, fasta

from genoformer.cli import scoring
from genoformer.variants import windows
from genoformer.workers import Workers

HEADER = "##fileformat=VCFv4.2\n#CHROM\tPOS\tID\tREF\tALT\tQUAL\tFILTER\tINFO\n"


@pytest.fixture
def made(tmp_path):
    sequence = bases(400)
    fasta(tmp_path / "r.fa", a=sequence.lower(), b="ACGT" * 20)
    rows = [
        ("b", 2, "C", "A"), ("a", 9, sequence[8], f"{sequence[8]}TT"), ("a", 9, sequence[8:12], sequence[8]),
        ("a", 400, sequence[399], "<DEL>"),
        ("a", 1, sequence[0], ",".join(letter for letter in "ACGT" if letter != sequence[0])), ("a", 5, "N", "A"),
    ]  # fmt: skip
    text = HEADER + "".join(f"{name}\t{place}\t.\t{ref}\t{alt}\t.\t.\tDP=7\n" for name, place, ref, alt in rows)
    (tmp_path / "x.vcf").write_text(text)
    return tmp_path


def test_every_allele_is_in_the_output(made, call, tiny):
    output = made / "o.vcf.gz"
    result = call("variants", made / "x.vcf", "-f", made / "r.fa", "-o", output, "--model", tiny, "--window", 60)
    assert result.code == 0, result.err
    assert "6 of 8 alleles (in 6 records) scored" in result.err
    assert "1 symbolic" in result.err
    assert "1 ambiguous" in result.err
    assert sorted(path.name for path in made.iterdir()) == ["o.vcf.gz", "o.vcf.gz.tbi", "r.fa", "x.vcf"]
    with pysam.VariantFile(str(output)) as file:
        records = list(file)
        assert all(record.info["DP"] == "7" for record in records)
        scored = [record for record in records if "GF_SKIPPED" not in record.info]
        assert len(records) == 8
        assert len(scored) == 6
        for record in scored:
            assert 0 <= record.info["GF_CODING_PLUS_LOSS"][0] <= 1
            assert -60 <= record.info["GF_CODING_SHIFT_AT"][0] <= 60
            assert ("GF_CODING_MINUS_INSERTED" in record.info) == (len(record.alts[0]) == 3)
            assert ("GF_CODING_PLUS_DELETED" in record.info) == (len(record.ref) > 1)
        for name, field in file.header.info.items():
            if name.startswith("GF_"):
                assert len(field.description) > 10
        assert [str(record.chrom) for record in file.fetch("b")] == ["b"]
        assert re.search("##genoformerModel=tiny,sha256=[0-9a-f]{64}", str(file.header))


def test_several_processes_write_what_one_does(made, call, tiny, monkeypatch):
    asked, original = [], Workers.map
    monkeypatch.setattr(Workers, "map", lambda self, jobs: asked.append(self) or original(self, jobs))
    options = ["-f", made / "r.fa", "--model", tiny, "--window", 60, "-t", 2]
    assert call("variants", made / "x.vcf", "-o", made / "one.vcf", *options).code == 0
    result = call("variants", made / "x.vcf", "-o", made / "two.vcf", *options, "--processes", 2)
    assert result.code == 0, result.err
    assert len(asked) == 1
    assert "model tiny on 2 processes, genetic code" in result.err
    lines = [(made / f"{name}.vcf").read_text().splitlines() for name in ("one", "two")]
    one, two = ([line for line in each if not line.startswith("##genoformerCommand")] for each in lines)
    number = re.compile(r"(?<==)[\d.e-]+")
    assert [number.sub("", line) for line in one] == [number.sub("", line) for line in two]
    values = [[float(value) for line in lines[-8:] for value in number.findall(line)] for lines in (one, two)]
    assert values[0] == pytest.approx(values[1], abs=1e-4)


def test_again_on_its_own_output(made, call, tiny):
    options = ["-f", made / "r.fa", "--model", tiny, "--window", 60]
    assert call("variants", made / "x.vcf", "-o", made / "one.vcf", *options).code == 0
    assert call("variants", made / "one.vcf", "-o", made / "two.vcf", *options).code == 0
    one, two = ((made / name).read_text().splitlines() for name in ("one.vcf", "two.vcf"))
    strip = re.compile("GF_ORIGINAL=[^;\t]*;?")
    keep = [
        [strip.sub("", line) for line in lines if not line.startswith("##genoformerCommand")] for lines in (one, two)
    ]
    assert keep[0] == keep[1]


def test_standard_output(made, tiny, capfdbinary):
    from genoformer.cli import run

    options = ["-f", made / "r.fa", "-o", "-", "--model", tiny, "--window", 60]
    assert run([str(word) for word in ("variants", made / "x.vcf", *options)]) == 0
    lines = capfdbinary.readouterr().out.splitlines()
    assert lines[0] == b"##fileformat=VCFv4.2"
    assert len([line for line in lines if line[:1] != b"#"]) == 8


def test_no_variants_is_an_empty_output(made, call, tiny):
    (made / "x.vcf").write_text(HEADER)
    result = call("variants", made / "x.vcf", "-f", made / "r.fa", "-o", made / "o.vcf.gz", "--model", tiny)
    assert result.code == 0, result.err
    with pysam.VariantFile(str(made / "o.vcf.gz")) as file:
        assert list(file) == []


@pytest.mark.parametrize(
    ("change", "code", "words"),
    [
        ({"x.vcf": HEADER + "zz\t1\t.\tA\tC\t.\t.\t.\n"}, 1, "not one of its sequences"),
        ({"x.vcf": HEADER + "b\t1\t.\tC\tG\t.\t.\t.\n"}, 1, "1 reference_mismatch"),
        ({"x.vcf": HEADER + "b\t1\n"}, 1, "record 1"), ({"x.vcf": ""}, 1, "is empty"),
        ({"x.vcf": None}, 1, "no such file"),
        ({"r.fa": None}, 1, "no such file"), ({"r.fa": ">a\nACGT\n>a\nACGT\n"}, 1, "'a'"),
        ({"o.vcf.gz": "old"}, 2, "--overwrite"),
    ],
)  # fmt: skip
def test_what_cannot_be_used(change, code, words, made, call, tiny):
    for name, text in change.items():
        (made / name).unlink(missing_ok=True) if text is None else (made / name).write_text(text)
    before = sorted(made.iterdir())
    result = call("variants", made / "x.vcf", "-f", made / "r.fa", "-o", made / "o.vcf.gz", "--model", tiny)
    assert result.code == code, result.err
    assert len(result.complaints) == 1
    assert words in result.complaints[0]
    assert sorted(made.iterdir()) == before


@pytest.mark.parametrize(
    ("options", "code", "words"),
    [
        (["-o", "x.txt"], 2, ".vcf.gz"), (["-o", "none/x.vcf"], 3, "no such folder"),
        (["-o", "o.vcf", "--share", "999", "--window", "100"], 2, "100"),
        (["-o", "o.vcf", "--device", "cuda:99"], 3, "cuda:99"),
        (["-o", "x.vcf", "--overwrite"], 2, "is what is to be read"),
    ],
)  # fmt: skip
def test_options_that_make_no_sense(options, code, words, made, call, tiny, monkeypatch):
    monkeypatch.chdir(made)
    before = {path: path.read_bytes() for path in made.iterdir()}
    result = call("variants", "x.vcf", "-f", "r.fa", "--model", tiny, *options)
    assert result.code == code, result.err
    assert words in result.complaints[0]
    assert {path: path.read_bytes() for path in made.iterdir()} == before


def test_defaults_are_those_of_the_library():
    assert (scoring._WINDOW, scoring._CELLS) == (windows.DEFAULT_WINDOW, windows.CELLS)
