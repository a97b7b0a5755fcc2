"""Bad input, through every command that reads it: one line that names the place, the right exit code, no output."""

from __future__ import annotations

import json
import shutil

import numpy as np
import pytest
from samples import bam, bases, cram, cut, fasta, gzipped

GOOD = bases(300)


def text(content):
    def make(folder):
        (folder / "x.fa").write_text(content)
        return [folder / "x.fa"]

    return make


def region(*regions):
    def make(folder):
        fasta(folder / "x.fa", a=GOOD)
        (folder / "x.bed").write_text("a\t0\t10\na\t5\t900\n")
        named = [folder / "x.bed" if name == "x.bed" else name for name in regions]
        return [folder / "x.fa", *(word for name in named for word in ("--regions", name))]

    return make


CASES = {
    "empty file": (text(""), 1, ["x.fa", "is empty"]),
    "empty record": (text(">a\n"), 1, ["x.fa", "nothing to predict", "no bases"]),
    "only N": (text(">a\n" + "N" * 90 + "\n"), 1, ["x.fa", "nothing to predict", "no known base"]),
    "no records": (text("\n\n  \n"), 1, ["x.fa", "record"]),
    "only comments": (text("; nothing\n"), 1, ["x.fa", "record"]),
    "no FASTA": (text("Dear reader,\nthis is a letter.\n"), 1, ["x.fa", "1"]),
    "FASTQ": (text("@r\nACGT\n+\nIIII\n"), 1, ["x.fa", "FASTQ"]),
    "GFF3": (text("##gff-version 3\n"), 1, ["x.fa", "GFF3"]),
    "no name": (text(">\nACGT\n>\nACGT\n"), 1, ["x.fa", "name"]),
    "duplicate names": (text(">a 1\nACGTACGT\n>b\nACGT\n>a 2\nACGT\n"), 1, ["x.fa", "'a'"]),
    "protein": (text(">p\nMKVLLEFSPQWERTIPMKLEFQ\n"), 1, ["x.fa", "'p'", "protein"]),
    "no such file": (lambda folder: [folder / "none.fa"], 1, ["none.fa", "no such file"]),
    "a folder": (lambda folder: [folder], 1, ["is a folder"]),
    "truncated gzip": (
        lambda folder: [cut(gzipped(folder / "x.fa.gz", f">a\n{bases(9000)}\n"), 0.5)], 1, ["x.fa.gz", "too early"]),
    "truncated BAM": (lambda folder: [cut(bam(folder / "x.bam", 2000), 0.7)], 1, ["x.bam", "cut short"]),
    "CRAM without reference": (lambda folder: [cram(folder / "x.cram")], 1, ["x.cram", "--reference"]),
    "CRAM, no such reference": (
        lambda folder: [cram(folder / "x.cram"), "--reference", folder / "none.fa"], 1, ["none.fa"]),
    "unknown region": (region("zz:1-10"), 1, ["zz"]),
    "region past the end": (region("a:200-301"), 1, ["a:200-301", "300"]),
    "region from 0": (region("a:0-10"), 1, ["a:0-10", "from 1"]),
    "bad line of a BED": (region("x.bed"), 1, ["x.bed:2", "300"]),
    "HDF5 of others": (lambda folder: [foreign(folder / "x.h5")], 1, ["x.h5", "genoformer"]),
    "overlap too large": (
        lambda folder: [fasta(folder / "x.fa", a=GOOD), "--window", 9, "--overlap", 9], 2, ["overlap"]),
}  # fmt: skip


def foreign(path):
    import h5py

    with h5py.File(path, "w") as file:
        file["x"] = np.arange(3)
    return path


@pytest.mark.parametrize("command", ["predict", "plan", "tokenize"])
@pytest.mark.parametrize("case", CASES)
def test_input_that_cannot_be_used(case, command, call, tiny, tmp_path):
    make, code, words = CASES[case]
    output = tmp_path / "out.h5"
    model = [] if command == "tokenize" else ["--model", tiny]
    result = call(command, *make(tmp_path), "-o", output, *model)
    assert result.code == code
    assert len(result.complaints) == 1, result.err
    assert all(word in result.complaints[0] for word in words), result.err
    assert result.err.splitlines()[-1] == result.complaints[0]
    assert not output.exists()
    assert not output.with_name("out.h5.part").exists()
    if command == "plan" or "nothing to predict" not in result.err:
        assert result.err.count("\n") == 1, "words beside the error"


def test_an_older_output_survives(call, tiny, tmp_path):
    output = tmp_path / "out.h5"
    output.write_text("precious")
    bad = fasta(tmp_path / "x.fa", a="MKVLLEFSPQWERTIPMKLEFQ")
    assert call("predict", bad, "-o", output, "--model", tiny, "--overwrite").code == 1
    assert output.read_text() == "precious"


def test_some_bad_records_do_not_stop_the_good(call, tiny, tmp_path):
    path = fasta(tmp_path / "x.fa", a=GOOD, empty="", n="N" * 70, short="ACG")
    result = call("predict", path, "-o", tmp_path / "o.h5", "--model", tiny, "--min-length", 5)
    assert result.code == 0
    assert "empty: no bases" in result.err
    assert "n: no known base" in result.err
    assert "short: shorter than 5 bases" in result.err
    shown = call("inspect", tmp_path / "o.h5").out
    assert [line.split()[0] for line in shown.splitlines() if "skipped " in line and "%" in line] == ["short"]
    assert "no known base" in shown


# Outputs


@pytest.mark.parametrize("command", ["predict", "plan", "tokenize"])
def test_outputs_that_cannot_be_written(command, call, tiny, tmp_path, monkeypatch):
    path = fasta(tmp_path / "x.fa", a=GOOD)
    model = [] if command == "tokenize" else ["--model", tiny]
    (tmp_path / "there.h5").write_text("old")
    (tmp_path / "begun.h5.part").write_text("half")
    for output, code, word in [
        (tmp_path / "none" / "o.h5", 3, "no such folder"),
        (tmp_path, 2, "is a folder"),
        (tmp_path / "there.h5", 2, "--overwrite"),
        (tmp_path / "begun.h5", 2, "--resume"),
    ]:
        result = call(command, path, "-o", output, *model)
        assert (result.code, len(result.complaints)) == (code, 1)
        assert str(output) in result.complaints[0] or str(output.parent) in result.complaints[0]
        assert word in result.complaints[0]
    monkeypatch.setattr("os.access", lambda *_, **__: False)
    result = call(command, path, "-o", tmp_path / "o.h5", *model)
    assert result.code == 3
    assert "cannot be written" in result.complaints[0]
    assert (tmp_path / "there.h5").read_text() == "old"


@pytest.mark.parametrize("command", ["predict", "plan", "tokenize"])
def test_what_is_read_is_never_replaced(command, call, tiny, tmp_path):
    path, bed = fasta(tmp_path / "x.fa", a=GOOD), tmp_path / "x.bed"
    bed.write_text("a\t0\t10\n")
    (tmp_path / "link.h5").symlink_to(path)
    model = [] if command == "tokenize" else ["--model", tiny]
    before = {file: file.read_bytes() for file in (path, bed)}
    for output in (path, bed, tmp_path / "link.h5"):
        result = call(command, path, "-o", output, "--overwrite", "--regions", bed, *model)
        assert result.code == 2
        assert str(output) in result.complaints[0]
        assert "is what is to be read" in result.complaints[0]
    assert {file: file.read_bytes() for file in before} == before


@pytest.mark.parametrize("command", ["predict", "plan", "tokenize"])
def test_names_that_no_output_can_have(command, call, tiny, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    path = fasta(tmp_path / "x.fa", a=GOOD)
    model = [] if command == "tokenize" else ["--model", tiny]
    for output, code, word in [("o" * 300, 3, "too long"), ("-", 2, "standard output")]:
        result = call(command, path, "-o", output, *model)
        assert (result.code, len(result.complaints)) == (code, 1)
        assert word in result.complaints[0]
    assert list(tmp_path.iterdir()) == [path]


def test_a_region_whose_name_no_file_can_have(call, tmp_path):
    path = fasta(tmp_path / "x.fa", **{"n" * 1000: GOOD})
    (tmp_path / "o.h5").write_text("old")
    result = call("plan", path, "-o", tmp_path / "o.h5", "--overwrite", "--regions", f"{'n' * 1000}:1-10")
    assert "10 to predict" in result.out


@pytest.mark.parametrize("command", ["predict", "plan"])
def test_too_little_space_is_told_before_any_work(command, call, tiny, tmp_path, monkeypatch):
    path = fasta(tmp_path / "x.fa", a=bases(3000))
    monkeypatch.setattr("shutil.disk_usage", lambda _: shutil._ntuple_diskusage(10**9, 10**9, 1000))
    result = call(command, path, "-o", tmp_path / "o.h5", "--model", tiny)
    assert result.code == 3
    assert "1 kB are free, at least 16.8 kB are needed" in result.complaints[0]
    assert list(tmp_path.iterdir()) == [path]


# Models


def spoil(folder, **changes):
    described = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(described | changes))


BAD_MODELS = {
    "missing": (shutil.rmtree, "no such model"),
    "truncated": (lambda folder: cut(folder / "model.safetensors", 0.6), "model.safetensors"),
    "no weights": (lambda folder: (folder / "model.safetensors").unlink(), "model.safetensors"),
    "other version": (lambda folder: spoil(folder, **{"format-version": 99}), "format version 99"),
    "other format": (lambda folder: spoil(folder, format="bert"), "config.json"),
    "unknown key": (lambda folder: spoil(folder, model={"widht": 3}), "widht"),
    "no JSON": (lambda folder: (folder / "config.json").write_text("{"), "JSON"),
}


@pytest.mark.parametrize("command", ["predict", "plan", "doctor", "models show", "models path"])
@pytest.mark.parametrize("case", BAD_MODELS)
def test_models_that_cannot_be_used(case, command, call, tiny, tmp_path):
    folder = tmp_path / "model"
    shutil.copytree(tiny, folder)
    damage, word = BAD_MODELS[case]
    damage(folder)
    path = fasta(tmp_path / "x.fa", a=GOOD)
    if command in ("predict", "plan"):
        arguments = [command, path, "-o", tmp_path / "o.h5", "--model", folder]
    else:
        arguments = [*command.split(), *(["--model"] if command == "doctor" else []), folder]
    result = call(*arguments)
    assert result.code == 1
    assert len(result.complaints) == 1
    assert word in result.complaints[0]
    assert not (tmp_path / "o.h5").exists()


@pytest.mark.parametrize(("device", "code"), [("cuda:99", 3), ("tpu", 2), ("cpu:x", 2)])
@pytest.mark.parametrize("command", ["predict", "plan", "doctor"])
def test_devices_that_are_lacking(command, device, code, call, tiny, tmp_path):
    path = fasta(tmp_path / "x.fa", a=GOOD)
    arguments = [] if command == "doctor" else [path, "-o", tmp_path / "o.h5"]
    result = call(command, *arguments, "--model", tiny, "--device", device)
    assert result.code == code
    assert repr(device) in result.complaints[0]
