"""predict, plan and tokenize: every base is accounted for, runs can be interrupted, inputs come from anywhere."""

from __future__ import annotations

import io
import json
import os
import signal
import subprocess
import sys
from contextlib import contextmanager

import h5py
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from samples import bam, bases, fasta, gzipped

from genoformer.plan import Accounting
from genoformer.store import open_store
from genoformer.tokens import Composition, composition

few = settings(max_examples=10, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])

record = st.lists(
    st.one_of(st.text("ACGTacgtRYx", max_size=40), st.integers(40, 90).map(lambda n: "N" * n)), max_size=4
).map("".join)


@st.composite
def inputs(draw):
    records = draw(st.lists(record, min_size=1, max_size=4))
    places = draw(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 300), st.integers(0, 300)), max_size=2))
    regions = [
        f"s{i}:{min(a, b) % len(records[i]) + 1}-{min(a, b) % len(records[i]) + 1 + (abs(a - b) % 9)}"
        for i, a, b in places
        if i < len(records) and min(a, b) % max(len(records[i]), 1) + 9 < len(records[i])
    ]
    return {f"s{i}": text for i, text in enumerate(records)}, regions, draw(st.sampled_from([1, 30]))


@few
@given(inputs())
def test_every_base_is_accounted_for(call, tiny, tmp_path, given_input):
    records, regions, min_length = given_input
    path = fasta(tmp_path / "x.fa", **records)
    options = [word for region in regions for word in ("-r", region)]
    options += ["--min-length", min_length, "--model", tiny, "--window", 50, "--overlap", 10]
    planned = call("plan", path, *options, "--json")
    found = json.loads(planned.out)
    account = Accounting(**found["bases"])
    assert account.total == sum(map(len, records.values())) == sum(account[:4])
    assert min(account) >= 0
    letters = Composition(**found["letters"])
    assert letters == composition("".join(records.values()).encode())
    output = tmp_path / "x.h5"
    result = call("predict", path, "-o", output, *options, "--overwrite")
    assert result.code == planned.code == (0 if account.predicted else 1)
    if result.code:
        assert result.complaints == planned.complaints
        output.unlink(missing_ok=True)
        return
    with open_store(output) as store:
        assert store.metadata["accounting"] == found["bases"]
        assert int(store.predicted_counts().sum()) == account.predicted
        values = np.concatenate([block.values["coding-frame"] for block in store.blocks()])
    known = ~np.isnan(values).any(axis=1)
    assert int(known.sum()) == account.predicted
    assert np.allclose(values[known].astype(float).sum(axis=1), 1, atol=0.01)


def test_plan_lists_every_problem_and_exits_as_predict(call, tiny, tmp_path):
    path = fasta(tmp_path / "x.fa", a=bases(300), b="ACGT")
    arguments = [
        path, "-o", tmp_path / "none" / "o.h5", "--model", tmp_path / "nowhere", "--device", "tpu",
        "-r", "zz:1-3", "-r", "a:1-900", "-r", "b:1-2", "--window", 8, "--overlap", 8,
    ]  # fmt: skip
    planned, predicted = call("plan", *arguments), call("predict", *arguments)
    assert planned.code == predicted.code == 3
    assert [planned.complaints[0]] == predicted.complaints
    for number, word in enumerate(["no such folder", "no such model", "tpu", "overlap", "zz", "a:1-900"]):
        assert word in planned.complaints[number]
    assert len(planned.complaints) == 6
    assert len(json.loads(call("plan", *arguments, "--json").out)["problems"]) == 6


def test_plan_tells_what_it_takes(call, tiny, tmp_path):
    path = fasta(tmp_path / "x.fa", a=bases(12_000) + "n" * 3000, b="")
    output = tmp_path / "o.h5"
    arguments = ["plan", path, "--model", tiny, "--window", 4000, "--overlap", 500, "-o", output]
    found = json.loads(call(*arguments, "--speed", 1000, "--json").out)
    assert found["estimate"]["seconds"] == pytest.approx(12)
    assert found["estimate"]["disk_most"] == 12_000 * 7 * 2
    assert found["skipped"] == [{"name": "b", "status": "skipped", "reason": "no bases"}]
    assert found["output"]["free_bytes"] > 0
    result = call(*arguments)
    assert (result.code, result.err) == (0, "")
    expected = ["15,000 bases", f"{found['windows']} windows", "3,000 masked", "b: no bases", "tiny, there and intact"]
    for words in (*expected, "assuming 60,000 bases/s", "memory: about", "disk: about", "free"):
        assert words in result.out
    assert list(tmp_path.iterdir()) == [path]


def test_plan_tells_what_a_shard_takes(call, tiny, tmp_path):
    path = fasta(tmp_path / "x.fa", a=bases(9000), b=bases(5000, 1))
    arguments = ["plan", path, "--model", tiny, "--window", 1000, "--overlap", 100]
    whole = json.loads(call(*arguments, "--json").out)
    parts = [json.loads(call(*arguments, "--json", "--shard", f"{number}/3").out) for number in (1, 2, 3)]
    assert sum(part["shard"]["windows"] for part in parts) == whole["windows"]
    assert sum(part["shard"]["bases"] for part in parts) == 14_000
    for key in ("seconds", "disk_most"):
        assert sum(part["estimate"][key] for part in parts) == pytest.approx(whole["estimate"][key])
        assert max(part["estimate"][key] for part in parts) < 0.4 * whole["estimate"][key]
    part = parts[1]["shard"]
    said = f"shard 2/3: {part['bases']:,} bases in {part['windows']} windows, of which time and disk are told"
    assert said in call(*arguments, "--shard", "2/3").out
    assert call(*arguments, "--shard", "4/3").code == 2


def test_larger_windows_chunks_and_batches_take_more_memory(call, tiny, tmp_path):
    path = fasta(tmp_path / "x.fa", a=bases(30_000))

    def memory(*options):
        return json.loads(call("plan", path, "--model", tiny, "--json", *options).out)["estimate"]["memory"]

    few_bases = memory("--window", 3000, "--chunk-size", 500)
    assert few_bases < memory("--window", 20_000, "--chunk-size", 500) < memory("--window", 20_000, "--chunk-size", 0)
    assert few_bases < memory("--window", 3000, "--chunk-size", 500, "--batch-size", 4)


# Where it comes from


def values_of(path):
    with open_store(path) as store:
        return {name: store[name] for name in store.sequences.names}


def same(one, other, tolerance=0.0):
    return one.keys() == other.keys() and all(
        np.allclose(one[name], other[name], rtol=0, atol=tolerance, equal_nan=True) for name in one
    )


def test_the_same_sequence_from_anywhere(call, tiny, tmp_path, monkeypatch):
    text = f">a some\n{bases(400)}nnn\n>b\n{bases(100, 1)}\n"
    (tmp_path / "x.fa").write_text(text)
    gzipped(tmp_path / "y", text)
    common = ["--model", tiny, "--window", 200, "--overlap", 40]
    assert call("predict", tmp_path / "x.fa", "-o", tmp_path / "x.h5", *common).code == 0
    expected = values_of(tmp_path / "x.h5")
    assert call("predict", tmp_path / "y", "-o", tmp_path / "y.h5", *common).code == 0
    assert same(values_of(tmp_path / "y.h5"), expected)
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(text.encode())))
    result = call("predict", "-", "-o", tmp_path / "z.h5", *common)
    assert result.code == 0
    assert result.err.startswith("standard input: 2 sequences, 503 bases")
    assert same(values_of(tmp_path / "z.h5"), expected)
    assert call("tokenize", tmp_path / "x.fa", "-o", tmp_path / "t.h5", *common[2:]).code == 0
    assert call("predict", tmp_path / "t.h5", "-o", tmp_path / "w.h5", *common[:2]).code == 0
    assert same(values_of(tmp_path / "w.h5"), expected)
    with open_store(tmp_path / "w.h5") as store:
        assert store.metadata["identity"]["window"] == 200  # as it was tokenized


def test_bad_standard_input(call, tiny, tmp_path, monkeypatch):
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(b"")))
    result = call("predict", "-", "-o", tmp_path / "z.h5", "--model", tiny)
    assert result.code == 1
    assert "standard input: is empty" in result.complaints[0]


def test_reads_and_what_is_left_out(call, tiny, tmp_path):
    path = bam(tmp_path / "x.bam", 6)
    result = call("predict", path, "-o", tmp_path / "x.h5", "--model", tiny, "-r", "c:100-160", "--exclude-flags", 4)
    assert result.code == 0
    whole, chosen = tmp_path / "whole.h5", values_of(tmp_path / "x.h5")
    assert call("predict", path, "-o", whole, "--model", tiny).code == 0
    assert list(chosen) == ["r1", "r2", "r3"]  # r0 ends at 60, r4 begins at 201
    assert same(chosen, {name: values for name, values in values_of(whole).items() if name in chosen})
    assert call("tokenize", path, "-o", tmp_path / "t.h5", "-r", "c:100-160").code == 0
    assert list(values_of(tmp_path / "t.h5")) == ["r1", "r2", "r3"]
    result = call("predict", path, "-o", tmp_path / "y.h5", "--model", tiny, "--min-mapq", 5)
    assert result.code == 1
    assert "no sequence that is wanted (6 reads left out: mapping quality below 5)" in result.complaints[0]


def test_no_read_overlaps_a_region(call, tiny, tmp_path):
    result = call("plan", bam(tmp_path / "x.bam"), "--model", tiny, "-r", "c:490-500")
    assert result.code == 1
    assert "x.bam: holds no read that overlaps a region" in result.complaints[0]


def test_regions_hold_the_values_of_the_whole(call, tiny, tmp_path):
    path = fasta(tmp_path / "x.fa", a=bases(400), b=bases(50, 1))
    (tmp_path / "r.bed").write_text("a\t100\t200\n")
    common = ["--model", tiny, "--window", 400]
    assert call("predict", path, "-o", tmp_path / "x.h5", *common).code == 0
    whole = values_of(tmp_path / "x.h5")
    for number, regions in enumerate([["-r", "a:101-200"], ["-r", tmp_path / "r.bed"]]):
        assert call("predict", path, "-o", tmp_path / f"{number}.h5", *common, *regions).code == 0
        part = values_of(tmp_path / f"{number}.h5")
        assert np.array_equal(part["a"][100:200], whole["a"][100:200])
        assert np.isnan(part["a"][:100]).all()
        assert np.isnan(part["a"][200:]).all()
        assert np.isnan(part["b"]).all()


# Tokens


def test_tokens_windows_and_letters_are_in_the_file(call, tmp_path):
    records = {"a": bases(95) + "nRxacgt!", "e": "", "b": "ACGTU"}
    path = fasta(tmp_path / "x.fa", **records)
    result = call("tokenize", path, "-o", tmp_path / "t.h5", "--window", 40, "--overlap", 10)
    assert result.code == 0
    assert "4 unknown (3 ambiguous, 1 invalid)" in result.err
    with h5py.File(tmp_path / "t.h5") as file:
        letters, windows = file["letters"], file["windows"]
        assert list(letters.attrs["columns"]) == list(Composition._fields)
        assert letters[:].tolist() == [list(composition(text.encode())) for text in records.values()]
        assert list(windows.attrs["columns"]) == ["sequence", "start", "end", "owned_start", "owned_end"]
        owned = windows[:][windows[:, 0] == 0][:, 3:]
        assert owned[0, 0] == 0
        assert owned[-1, 1] == len(records["a"])
        assert (owned[1:, 0] == owned[:-1, 1]).all()
        metadata = json.loads(file.attrs["metadata"])
    assert "command" in metadata
    result = call("tokenize", path, "-o", tmp_path / "u.h5", "-r", "a:1-9")
    assert result.code == 2
    assert "--regions" in result.complaints[0]


# Interruption


@pytest.mark.parametrize("command", ["predict", "tokenize"])
def test_interrupted_and_resumed(command, call, tiny, tmp_path, monkeypatch):
    path = fasta(tmp_path / "x.fa", a=bases(900), b=bases(500, 1))
    options = ["--window", 200, "--overlap", 40, *(["--model", tiny] if command == "predict" else [])]
    assert call(command, path, "-o", tmp_path / "whole.h5", *options).code == 0
    from genoformer.store.writer import TrackWriter

    write, written = TrackWriter.write, []

    def interrupted(self, block):
        if len(written) == 1:
            raise KeyboardInterrupt
        written.append(block)
        write(self, block)

    output, part = tmp_path / "x.h5", tmp_path / "x.h5.part"
    with monkeypatch.context() as patch:
        patch.setattr(TrackWriter, "write", interrupted)
        result = call(command, path, "-o", output, *options)
    assert result.code == 130
    assert result.err.splitlines()[-1].startswith("genoformer: interrupted; the same command with --resume goes on")
    assert part.exists()
    assert not output.exists()
    shown = call("inspect", part)
    assert "progress:" in shown.out
    assert shown.code == 0
    assert call(command, path, "-o", output, *options).code == 2  # neither --resume nor --overwrite
    other = call(command, path, "-o", output, "--window", 100, *options[2:], "--resume")
    assert other.code == 2
    assert "another run" in other.complaints[0]
    part.rename(output)
    renamed = call(command, path, "-o", output, *options, "--resume")
    assert (renamed.code, "it is not whole; call it x.h5.part to go on" in renamed.complaints[0]) == (2, True)
    output.rename(part)
    assert call(command, path, "-o", output, *options, "--resume").code == 0
    assert not part.exists()
    assert same(values_of(output), values_of(tmp_path / "whole.h5"))
    written = output.stat()
    again = call(command, path, "-o", output, *options, "--resume")  # as a cluster does that starts a job once more
    assert again.code == 0
    assert (output.stat().st_ino, output.stat().st_mtime_ns) == (written.st_ino, written.st_mtime_ns)
    assert not part.exists()
    for change in (["--window", 100], ["--min-length", 600]):
        other = call(command, path, "-o", output, *[*options, *change], "--resume")
        assert other.code == 2
        assert "exists already, and is not what this run writes" in other.complaints[0]
    assert call(command, path, "-o", output, *options).code == 2
    assert call(command, path, "-o", output, *options, "--overwrite").code == 0
    assert same(values_of(output), values_of(tmp_path / "whole.h5"))


@contextmanager
def started(first, *arguments, **options):
    """Run a command in a process of its own, after some Python."""
    code = f"import resource, signal; {first}; from genoformer.cli import main; main()"
    words = [sys.executable, "-c", code, *map(str, arguments)]
    with subprocess.Popen(words, stderr=subprocess.PIPE, text=True, **options) as process:
        try:
            yield process
        finally:
            process.kill()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM], ids=["SIGINT", "SIGTERM"])
def test_a_real_interrupt(tmp_path, number):
    first = "signal.signal(signal.SIGINT, signal.default_int_handler)"  # in background jobs it would be ignored
    with started(first, "tokenize", "-", "-o", tmp_path / "x.h5", stdin=subprocess.PIPE) as process:
        os.write(process.stdin.fileno(), b">a\n" + b"ACGT" * 100_000)  # returns once somebody reads: no pipe holds it
        process.send_signal(number)
        process.stdin.close()  # wakes a read that began just after the signal
        assert process.wait(60) == 130
        assert process.stderr.read().splitlines()[-1] == "genoformer: interrupted"
    assert list(tmp_path.iterdir()) == []


def test_a_full_disk(tmp_path):
    path = fasta(tmp_path / "x.fa", a=bases(400_000))
    first = "resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, 100_000))"
    with started(first, "tokenize", path, "-o", tmp_path / "x.h5") as process:
        assert process.wait(60) == 3
        words = process.stderr.read().splitlines()
    assert "x.h5" in words[-1]
    assert words[-1].startswith("genoformer: ResourceError")
    assert not (tmp_path / "x.h5").exists()
