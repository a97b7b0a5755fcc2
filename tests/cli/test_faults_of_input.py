"""What users of such programs met, row by row of the list of faults: inputs of every sort, at the command line."""

from __future__ import annotations

import gzip

import h5py
import numpy as np
import pysam
import pytest
from samples import bases, fasta
from strategies import bgzip

from genoformer.store import open_store
from genoformer.tokens import decode, encode, reverse_complement

GOOD = bases(400)


@pytest.fixture
def predicted(call, tiny, tmp_path):
    """Predict a file; return what the command says, and the values of each sequence."""

    def run(path, *arguments, code=0):
        output = tmp_path / "out.h5"
        result = call("predict", path, "-o", output, "--model", tiny, "--overwrite", *arguments)
        assert result.code == code, result.err
        if code:
            return result, {}
        with open_store(output) as store:
            return result, {name: store[name] for name in store}

    return run


def same(one, other):
    return np.array_equal(one, other, equal_nan=True)


def test_faults_01_case_changes_nothing(predicted, tmp_path):
    _, found = predicted(fasta(tmp_path / "x.fa", low=GOOD.lower(), up=GOOD, mixed=GOOD[:99].lower() + GOOD[99:]))
    assert same(found["low"], found["up"])
    assert same(found["mixed"], found["up"])


@pytest.mark.parametrize("command", ["plan", "predict", "tokenize"])
def test_faults_02_odd_letters_are_counted(command, call, tiny, tmp_path):
    path = fasta(tmp_path / "x.fa", a="acgtnM S" + GOOD + "Z")
    model = [] if command == "tokenize" else ["--model", tiny]
    result = call(command, path, "-o", tmp_path / "o.h5", *model)
    assert "3 N or another IUPAC letter, 1 not nucleotide letters" in result.out + result.err


def test_faults_03_iupac_letters_are_n(predicted, tmp_path):
    odd = "RYSWKMBDHV"
    result, found = predicted(fasta(tmp_path / "x.fa", iupac=GOOD + odd + GOOD, n=GOOD + "N" * 10 + GOOD))
    assert same(found["iupac"], found["n"])
    assert "read as N: 20 N or another IUPAC letter" in result.err


@pytest.mark.parametrize("length", [1, 6, 100, 127, 128, 129, 255, 1482])
def test_faults_05_any_length(length, predicted, tmp_path):
    _, found = predicted(fasta(tmp_path / "x.fa", a=bases(length)), "--window", 128)
    assert found["a"].shape == (length, 7)
    assert np.isfinite(found["a"]).all()


def test_faults_06_short_sequences_are_warned_of_or_skipped(predicted, tmp_path):
    path = fasta(tmp_path / "x.fa", short=bases(30), long=GOOD)
    result, found = predicted(path)
    assert "1 sequence shorter than 100 bases; predictions for them are unreliable" in result.err
    assert np.isfinite(found["short"]).all()
    result, found = predicted(path, "--min-length", 31)
    assert "short: shorter than 31 bases" in result.err
    assert np.isnan(found["short"]).all()


@pytest.mark.parametrize("length", [200, 8000, 8001])
def test_faults_07_39_the_opposite_strand_has_the_mirrored_values(length, predicted, tmp_path):
    """Up to the ends, where a window is filled up: those of the start of one are those of the end of the other."""
    letters = bases(length, seed=3)
    turned = decode(reverse_complement(encode(letters.encode()))).decode()
    _, found = predicted(fasta(tmp_path / "x.fa", a=letters, b=turned))
    mirrored = found["b"][::-1][:, [0, 4, 5, 6, 1, 2, 3]].astype(float)
    assert np.abs(found["a"].astype(float) - mirrored).max() < 2e-3  # float16
    assert found["a"][:, 4:].astype(float).mean() > 0.01


def test_faults_08_a_short_contig_among_long_ones(predicted, tmp_path):
    _, found = predicted(fasta(tmp_path / "x.fa", short=bases(200), long=bases(20_000), one="A"))
    assert all(np.isfinite(values).all() for values in found.values())


def test_faults_09_many_contigs_are_predicted_together(predicted, tmp_path, monkeypatch):
    from genoformer.model.genoformer import Genoformer

    calls, forward = [], Genoformer.forward
    monkeypatch.setattr(Genoformer, "forward", lambda self, codes, **k: calls.append(1) or forward(self, codes, **k))
    records = {f"c{number}": bases(300, number) for number in range(200)}
    _, found = predicted(fasta(tmp_path / "x.fa", **records), "--batch-size", 1)
    assert len(calls) <= 20
    _, alone = predicted(fasta(tmp_path / "y.fa", c7=records["c7"]))
    assert np.abs(found["c7"].astype(float) - alone["c7"].astype(float)).max() < 2e-3


def test_faults_10_the_name_is_the_first_word(predicted, call, tmp_path):
    path = tmp_path / "x.fa"
    path.write_text(f">chr1 Homo sapiens chr1, whole\n{GOOD}\n>chr2\tx\n{GOOD}\n")
    _, found = predicted(path, "--regions", "chr1:1-400", "--regions", "chr2")
    assert list(found) == ["chr1", "chr2"]
    table = call("export", tmp_path / "out.h5", "--to", "tsv", "-o", "-").out
    assert {line.split("\t")[0] for line in table.splitlines()[1:]} == {"chr1", "chr2"}


def test_faults_11_repeated_names_are_refused_before_a_model_is_loaded(call, tiny, tmp_path, monkeypatch):
    monkeypatch.delattr("genoformer.model.checkpoint.load_model")
    path = tmp_path / "x.fa"
    path.write_text(f">a 1\n{GOOD}\n>a 2\n{GOOD}\n>b\nA\n>b\nC\n")
    result = call("predict", path, "-o", tmp_path / "o.h5", "--model", tiny)
    assert (result.code, len(result.complaints)) == (1, 1)
    assert "'a', 'b'" in result.complaints[0]


NAMES = (
    "x:1-100",
    "ENA|AB|AB.1",
    "HLA-A*01:01",
    "a/b",
    ".",
    "..",
    "-",
    "é",
    "a:dna:b",
    "[red]x",
    "chr1;y=1",
    "%00",
    "'q\"",
)


@pytest.mark.parametrize("command", ["tsv", "bed", "bedgraph", "bigwig", "npz", "inspect", "region", "report"])
def test_faults_12_13_any_name_is_only_a_name(command, predicted, call, tmp_path):
    _, found = predicted(fasta(tmp_path / "x.fa", **{name: bases(120, seed) for seed, name in enumerate(NAMES)}))
    assert list(found) == list(NAMES)
    store = tmp_path / "out.h5"
    if command == "inspect":
        shown = call("inspect", store).out
        assert [line.split()[0] for line in shown.splitlines() if "linear" in line] == list(NAMES)
    elif command == "region":
        for name in NAMES:
            result = call("inspect", store, "--region", f"{{{name}}}:5-6")
            assert [line.split("\t")[:2] for line in result.out.splitlines()[1:]] == [[name, "5"], [name, "6"]]
    elif command == "report":
        assert call("report", store, "-o", tmp_path / "x.html").code == 0
    else:
        channel = ["--channel", "+0"] if command in ("bigwig", "bedgraph") else []
        assert call("export", store, "--to", command, *channel, "-o", tmp_path / f"x.{command}").code == 0
        if command == "tsv":
            names = [line.split("\t")[0] for line in (tmp_path / "x.tsv").read_text().splitlines()[1:]]
            assert list(dict.fromkeys(names)) == list(NAMES)


def test_faults_14_empty_and_nameless_records_are_skipped_with_a_reason(predicted, call, tmp_path):
    path = tmp_path / "x.fa"
    path.write_text(f">\nACGT\n>e\n>f\n{GOOD}\n>g")
    result, found = predicted(path)
    assert "records left out: 1 (no name)" in result.err
    assert "1 record has no name after '>' (line 1) and is left out" in result.err
    assert "e: no bases" in result.err
    assert {name: len(values) for name, values in found.items()} == {"e": 0, "f": 400, "g": 0}
    assert "records left out: 1 (no name)" in call("inspect", tmp_path / "out.h5").out
    path.write_bytes(b"")
    assert "is empty" in predicted(path, code=1)[0].complaints[0]


def test_faults_16_ragged_lines_and_files_joined_without_a_line_end(predicted, tmp_path):
    letters = bases(60 + 61 + 59)
    ragged = f">a\n{letters[:60]}\n{letters[60:121]}\n\n{letters[121:]}"
    (tmp_path / "x.fa").write_bytes(f"{ragged}>b\r\n{GOOD}".encode())
    _, found = predicted(tmp_path / "x.fa")
    _, plain = predicted(fasta(tmp_path / "y.fa", a=letters, b=GOOD))
    assert all(same(found[name], plain[name]) for name in ("a", "b"))


def test_faults_17_compression_is_told_by_content(predicted, tmp_path):
    content = f">a\n{GOOD}\n>b\n{bases(300)}\n".encode()
    files = {
        "x.fa": content,
        "x.fa.gz": gzip.compress(content),
        "x.bgz": bgzip(content),
        "y.fa": gzip.compress(content),
    }
    results = []
    for name, data in files.items():
        (tmp_path / name).write_bytes(data)
        results.append(predicted(tmp_path / name, "--regions", "b:100-200")[1])
    assert all(same(results[0]["b"], other["b"]) for other in results[1:])


def test_faults_19_no_home_and_no_cache(predicted, tmp_path, monkeypatch):
    monkeypatch.delenv("GENOFORMER_CACHE")
    monkeypatch.setenv("HOME", "/proc/none")
    folder = tmp_path / "read-only"
    folder.mkdir()
    path = fasta(folder / "x.fa", a=GOOD)
    folder.chmod(0o555)
    try:
        _, found = predicted(path, "--regions", "a:11-20")
        assert np.isfinite(found["a"][10:20]).all()
        assert [item.name for item in folder.iterdir()] == ["x.fa"]
    finally:
        folder.chmod(0o755)


def test_faults_21_a_reference_beyond_512_mb(predicted, tmp_path):
    path, header = tmp_path / "x.bam", {"HD": {"VN": "1.6", "SO": "coordinate"}, "SQ": [{"SN": "c", "LN": 600_000_000}]}
    with pysam.AlignmentFile(str(path), "wb", header=header) as file:
        for number, start in enumerate((1000, 590_000_000)):
            read = pysam.AlignedSegment(file.header)
            read.query_name, read.query_sequence = f"r{number}", bases(60, number)
            read.reference_id, read.reference_start, read.cigarstring = 0, start, "60M"
            file.write(read)
    _, found = predicted(path, "--regions", "c:590,000,001-590,000,100")
    assert list(found) == ["r1"]


def test_faults_40_names_that_do_not_match(predicted, tmp_path):
    path, bed = fasta(tmp_path / "x.fa", chr1=GOOD), tmp_path / "x.bed"
    bed.write_text("1\t0\t10\n")
    result, _ = predicted(path, "--regions", bed, code=1)
    assert "x.bed:1: there is no sequence '1' in the input; did you mean 'chr1'?" in result.complaints[0]


def test_names_that_steer_a_terminal_reach_it_escaped(predicted, call, tmp_path):
    evil = "x\x1b[31m\x07\u202e"
    path = tmp_path / "x.fa"
    path.write_text(f">{evil}\n{GOOD}\n>{evil}2\n\n>{evil}3\n{'N' * 60}\n")
    result, _ = predicted(path)
    said = [result.err, call("inspect", tmp_path / "out.h5").out, call("plan", path).out]
    said.append(call("inspect", tmp_path / "out.h5", "--region", "y\x1b[2J:1-2").err)
    path.write_text(f">{evil}\nMKVLLEFSPQWERTIPMKLEFQ\n")
    said.append(predicted(path, code=1)[0].err)
    path.write_text(f"\x1b[31m{GOOD}\n")
    said.append(predicted(path, code=1)[0].err)
    for text in said:
        assert not set("\x1b\x07\u202e") & set(text), text
        assert "\\x1b[" in text or "\\u202e" in text or "31m" in text


def test_names_are_written_to_files_as_they_are(predicted, tmp_path):
    path = tmp_path / "x.fa"
    path.write_text(f">a\x1b[31m\n{GOOD}\n")
    predicted(path)
    with h5py.File(tmp_path / "out.h5") as file:
        assert file["sequences/name"].asstr()[0] == "a\x1b[31m"
