"""What users of such programs met, row by row of the list of faults: runs, outputs, and where which row is tested."""

from __future__ import annotations

import ast
import re
import tomllib
from pathlib import Path

import h5py
import numpy as np
import pytest
from samples import bases, fasta

from genoformer.store import open_store

TESTS = Path(__file__).resolve().parents[1]
LIST = TESTS.parents[1] / "shared" / "faults.md"
GOOD = bases(400)

ELSEWHERE = {
    22: ["store/test_crashes.py::test_another_writer_is_waited_for",
         "store/test_crashes.py::test_locks_can_be_switched_off_for_network_file_systems"],
    23: ["cli/test_predict.py::test_a_full_disk", "store/test_crashes.py::test_full_disks",
         "cli/test_bad_input.py::test_too_little_space_is_told_before_any_work"],
    24: ["store/test_crashes.py::test_killed_anywhere_and_resumed",
         "cli/test_predict.py::test_interrupted_and_resumed"],
    25: ["store/test_crashes.py::test_an_error_in_a_worker_ends_the_write",
         "cli/test_predict.py::test_a_real_interrupt"],
    27: ["test_fitting.py::test_real_memory_that_runs_out", "test_fitting.py::test_a_failed_attempt_holds_no_memory"],
    28: ["cli/test_bad_input.py::test_devices_that_are_lacking"],
    30: ["cli/test_models.py::test_doctor_notices_other_predictions",
         "test_predict.py::test_a_number_that_is_none_stops_the_run_and_says_where"],
    31: ["test_predict.py::test_chunks_and_batches_do_not_matter", "store/test_shards.py"],
    32: ["cli/test_export.py::test_three_formats_say_the_same", "cli/test_export.py::test_genometools_agrees"],
    33: ["cli/test_export.py::test_identifiers_are_unique_where_names_look_like_genes"],
    41: ["cli/test_circular.py::test_a_rotated_plasmid_has_the_same_genes"],
    43: ["cli/test_startup.py::test_exit_code_of_each_error",
         "export/test_files.py::test_what_cannot_be_leaves_nothing"],
}  # fmt: skip
"""Rows that need more than a command line: the tests of each."""


def functions(path: Path) -> set[str]:
    return {node.name for node in ast.parse(path.read_text()).body if isinstance(node, ast.FunctionDef)}


@pytest.mark.parametrize("row", ELSEWHERE)
def test_faults_tested_elsewhere(row):
    for test in ELSEWHERE[row]:
        file, _, name = test.partition("::")
        assert not name or name in functions(TESTS / file), test


def test_faults_have_a_test_each():
    if not LIST.is_file():
        pytest.skip(f"the list is not here: {LIST}")
    rows = {int(number) for number in re.findall(r"(?m)^\| (\d+) \|", LIST.read_text())}
    here = [
        name
        for file in ("test_faults_of_input.py", "test_faults_of_runs.py")
        for name in functions(TESTS / "cli" / file)
    ]
    named = {int(number) for name in here for number in re.findall(r"_(\d\d)(?=_)", name.partition("test_faults")[2])}
    assert rows <= named | set(ELSEWHERE), sorted(rows - named - set(ELSEWHERE))


def test_faults_26_every_record_is_accounted_for(call, tiny, tmp_path):
    path = fasta(tmp_path / "x.fa", a=GOOD, n="N" * 90, empty="", gap=GOOD + "N" * 60 + GOOD, short="AC")
    output = tmp_path / "x.h5"
    assert call("predict", path, "-o", output, "--model", tiny, "--min-length", 5).code == 0
    with open_store(output) as store:
        account = store.metadata["accounting"]
        assert account["total"] == sum(account[key] for key in account if key != "total") == store.sequences.total_bases
        assert account["predicted"] == store.predicted_counts().sum() == 1200
        assert dict(zip(store, store.sequences.status, strict=True)) == {
            "a": "predicted", "n": "masked", "empty": "skipped", "gap": "predicted", "short": "skipped",
        }  # fmt: skip
    shown = call("inspect", output).out
    assert all(name in shown for name in ("a", "n", "empty", "gap", "short"))
    table = call("export", output, "--to", "tsv", "-o", "-").out
    assert len(table.splitlines()) == 1 + 1200


@pytest.mark.parametrize("visible", ["", "0", "0,1"])
def test_faults_28_29_the_device_is_said_or_lacking(visible, call, tiny, tmp_path, monkeypatch):
    import torch

    if torch.cuda.is_available():
        pytest.skip("for machines without a GPU")
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    path = fasta(tmp_path / "x.fa", a=GOOD)
    result = call("predict", path, "-o", tmp_path / "o.h5", "--model", tiny)
    assert result.code == 0
    assert " on cpu" in result.err
    result = call("predict", path, "-o", tmp_path / "p.h5", "--model", tiny, "--device", "cuda")
    assert (result.code, len(result.complaints)) == (3, 1)


def test_faults_37_plain_h5py_rebuilds_a_bed(call, tiny, tmp_path):
    path, output = fasta(tmp_path / "x.fa", a=bases(900), b=bases(800, 1)), tmp_path / "x.h5"
    assert call("predict", path, "-o", output, "--model", tiny).code == 0
    assert not {"loss", "accuracy", "f1"} & set(re.findall(r"\w+", call("inspect", output).out.lower()))
    with h5py.File(output) as file:
        names, offsets = file["sequences/name"].asstr()[:].tolist(), file["sequences/offset"][:]
        channels = list(file["tracks/coding-frame"].attrs["channels"])
        assert file["tracks/coding-frame"].attrs["units"] == "probability"
        likely = file["tracks/coding-frame/values"][:, channels.index("+0")] >= 0.15
    rows = []
    for name, first, last in zip(names, offsets[:-1], offsets[1:], strict=True):
        edges = np.flatnonzero(np.diff(np.concatenate([[0], likely[first:last].astype(int), [0]])))
        rows += [[name, str(start), str(end)] for start, end in edges.reshape(-1, 2)]
    bed = call("export", output, "--to", "bed", "--channel", "+0", "--threshold", 0.15, "-o", "-")
    assert bed.code == 0, bed.err
    assert [line.split("\t")[:3] for line in bed.out.splitlines()] == rows


def test_faults_38_versions_have_bounds_and_are_told(call, tiny):
    project = tomllib.loads((TESTS.parent / "pyproject.toml").read_text())["project"]
    assert all(">=" in needed for needed in project["dependencies"])
    assert re.search(r"torch>=[\d.]+,<[\d.]+", " ".join(project["dependencies"]))
    shown = call("doctor", "--model", tiny).out
    assert all(re.search(rf"{name}:? +\S*\d", shown) for name in ("torch", "numpy", "h5py", "pysam"))


def test_faults_43_a_failure_is_no_success(call, tiny, tmp_path, monkeypatch):
    path, output = fasta(tmp_path / "x.fa", a=GOOD), tmp_path / "x.h5"
    for word, error, code in [("memory", MemoryError(), 3), ("disk", OSError(28, "No space left on device"), 3)]:
        monkeypatch.setattr("genoformer.model.genoformer.Genoformer.forward", raising(error))
        result = call("predict", path, "-o", output, "--model", tiny, "--overwrite")
        assert result.code == code, word
        assert len(result.complaints) == 1
        assert not output.exists()
    monkeypatch.setattr("genoformer.model.genoformer.Genoformer.forward", raising(KeyboardInterrupt()))
    assert call("predict", path, "-o", output, "--model", tiny, "--overwrite").code == 130
    assert not output.exists()
    assert call("predict", path, "-o", output, "--model", tiny, "--no-such-option").code == 2


def raising(error):
    def forward(*_, **__):
        raise error

    return forward


def test_faults_44_bigwig_of_many_contigs_in_the_order_of_the_file(call, tiny, tmp_path):
    from genoformer.formats.bigwig import BigWig

    records = {f"c{number}": bases(30, number) for number in range(400, 0, -1)}
    path, output = fasta(tmp_path / "x.fa", **records), tmp_path / "x.h5"
    assert call("predict", path, "-o", output, "--model", tiny, "--batch-size", 32).code == 0
    assert call("export", output, "--to", "bigwig", "--channel", "+0", "-o", tmp_path / "x.bw").code == 0
    held = BigWig(tmp_path / "x.bw")
    assert held.lengths == dict.fromkeys(records, 30)
    with open_store(output) as store:
        for name in ("c1", "c10", "c400"):
            spans = held.spans(name)
            found = np.repeat(spans.values, spans.ends - spans.starts)
            assert np.array_equal(found.astype(np.float16), store[name][:, 1])
