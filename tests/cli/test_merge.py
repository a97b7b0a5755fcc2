"""predict --shard and merge: any number of parts gives the bytes of one run; what is wrong with them is said."""

from __future__ import annotations

import importlib
import json

import h5py
import numpy as np
import pytest
from samples import bases, fasta

from genoformer.formats.sequences import open_sequences
from genoformer.model.checkpoint import load_model
from genoformer.plan import make_plan
from genoformer.predict import Settings, predict_to_store
from genoformer.store import Output, Shard, open_store

RECORDS = {"long": 1500, "a": 60, "b": 200, "c": 70, "d": 61, "e": 199, "f": 64, "g": 10, "h": 63, "i": 420}
OPTIONS = ["--window", 200, "--overlap", 40, "--batch-size", 3, "--genetic-code", 11]


@pytest.fixture
def genome(tmp_path):
    return fasta(tmp_path / "x.fa", **{name: bases(length, length) for name, length in RECORDS.items()}, empty="")


@pytest.fixture
def run(call, tiny, genome, tmp_path):
    def predicted(name, *options, code=0):
        output = tmp_path / name
        result = call("predict", genome, "-o", output, "--model", tiny, *OPTIONS, *options)
        assert result.code == code, result.err
        return output

    return predicted


def values(path):
    with h5py.File(path) as file:
        return file["tracks/coding-frame/values"][:].tobytes(), file["tracks/coding-frame/crc32"][:].tolist()


def test_shards_give_the_bytes_of_one_run(call, tiny, genome, tmp_path):
    sequences, model = open_sequences(genome), load_model(tiny)
    plan = make_plan(sequences, window=200, overlap=40)

    def run(name, shard=None):
        settings = Settings(batch_size=3)
        return predict_to_store(plan, sequences, model, Output(tmp_path / name, shard=shard), settings=settings)

    whole = run("whole.h5")
    for count in (1, 2, 3, 7, 24):
        paths = [run(f"{i}of{count}.h5", Shard(i, count)) for i in range(1, count + 1)]
        result = call("merge", *reversed(paths), "-o", tmp_path / f"m{count}.h5")
        assert (result.code, result.out) == (0, "")
        assert f"m{count}.h5: 2.65 kb of {count} shard" in result.err
        assert values(tmp_path / f"m{count}.h5") == values(whole)
        with open_store(tmp_path / f"m{count}.h5") as merged, open_store(whole) as one:
            assert merged.sequences.status == one.sequences.status
            assert merged.sequences.reason == one.sequences.reason
            assert merged.metadata["identity"] == one.metadata["identity"]
            assert merged.metadata["accounting"] == one.metadata["accounting"]
        assert call("inspect", tmp_path / f"m{count}.h5", "--verify").code == 0


def test_windows_keep_their_company_in_any_shard(tiny, genome, tmp_path, monkeypatch):
    predict = importlib.import_module("genoformer.predict")

    rows_of, seen = predict.rows_of, []

    def noted(batch, plan):
        seen.append(tuple(item.number for item in batch))
        return rows_of(batch, plan)

    monkeypatch.setattr(predict, "rows_of", noted)
    sequences, model = open_sequences(genome), load_model(tiny)
    plan = make_plan(sequences, window=200, overlap=40)
    list(predict.predict_plan(plan, sequences, model, settings=Settings(batch_size=3)))
    whole = set(seen)
    assert sorted(number for batch in whole for number in batch) == list(range(len(plan.owned)))
    assert max(map(len, whole)) > 2
    for left in range(len(plan.owned)):
        seen.clear()
        done = np.arange(len(plan.owned)) != left
        blocks = list(predict.predict_plan(plan, sequences, model, settings=Settings(batch_size=3), done=done))
        assert set(seen) <= whole
        assert len(seen) == len(blocks) == 1
        assert blocks[0].start == plan.owned[left, 1]


def test_an_interrupted_shard_is_resumed_to_the_same_bytes(run, call, tmp_path, monkeypatch):
    from genoformer.store.writer import TrackWriter

    write, left = TrackWriter.write, 0

    def interrupted(self, block):
        nonlocal left
        left -= 1
        if left < 0:
            raise KeyboardInterrupt
        write(self, block)

    expected = [values(run(f"{i}.h5", "--shard", f"{i}/2")) for i in (1, 2)]
    for number, seen in ((1, 3), (2, 5)):
        left = seen
        with monkeypatch.context() as patch:
            patch.setattr(TrackWriter, "write", interrupted)
            run(f"r{number}.h5", "--shard", f"{number}/2", code=130)
        shown = call("inspect", tmp_path / f"r{number}.h5.part").out
        assert f"shard {number}/2: " in shown
        assert "the same command with --resume goes on" in shown
        run(f"r{number}.h5", "--shard", f"{3 - number}/2", "--resume", code=2)
        path = run(f"r{number}.h5", "--shard", f"{number}/2", "--resume")
        assert values(path) == expected[number - 1]
        assert "genoformer merge joins shards" in call("inspect", path).out


def test_a_run_that_has_ended_is_known_when_it_is_to_be_resumed(run, call, tiny, genome, tmp_path, monkeypatch):
    shards = [run(f"{i}.h5", "--shard", f"{i}/2") for i in (1, 2)]
    assert call("merge", *shards, "-o", tmp_path / "all.h5").code == 0
    assert call("merge", shards[0], "-o", tmp_path / "half.h5", "--allow-missing").code == 0
    from genoformer.store.writer import TrackWriter

    monkeypatch.delattr(TrackWriter, "write")  # nothing is computed from here on
    run("1.h5", "--shard", "1/2", "--resume")
    run("all.h5", "--resume")
    (tmp_path / "note.h5").write_text("a note")
    for name, words, complaint in (
        ("1.h5", ["--shard", "2/2"], "exists already, and is not what this run writes: shard was '1/2', now '2/2'"),
        ("1.h5", [], "exists already, and is not what this run writes: shard was '1/2', now None"),
        ("all.h5", ["--shard", "1/2"], "exists already, and is not what this run writes: shard was None, now '1/2'"),
        ("half.h5", [], "exists already, and is not what this run writes: it was merged without all shards"),
        ("note.h5", [], "nothing to resume: use --overwrite"),
    ):
        path = tmp_path / name
        before = path.read_bytes()
        result = call("predict", genome, "-o", path, "--model", tiny, *OPTIONS, *words, "--resume")
        assert result.code == 2
        assert complaint in result.complaints[0]
        assert path.read_bytes() == before


def test_what_is_missing_is_said(run, call, tmp_path):
    paths = [run(f"{i}.h5", "--shard", f"{i}/4") for i in (1, 4)]
    result = call("merge", *paths, "-o", tmp_path / "m.h5")
    assert result.code == 1
    assert "2 shards: 2/4, 3/4 not given" in result.complaints[0]
    result = call("merge", *paths, "-o", tmp_path / "m.h5", "--allow-missing")
    assert result.code == 0
    assert "missing: 1,231 of 2,647 bases (2 shards: 2/4, 3/4); they will have no values" in result.err
    assert "(2 shards: 2/4, 3/4)" in result.err
    shown = call("inspect", tmp_path / "m.h5").out
    assert "missing: 1,231 bases" in shown
    assert "a shard was not there when the others were merged" in shown
    with open_store(tmp_path / "m.h5") as store:
        known = np.concatenate([~np.isnan(store[name][:, 0]) for name in store])
        assert known.sum() == 2647 - store.metadata["missing"]["bases"]
        account, whole = store.metadata["accounting"], json.loads(call("inspect", paths[0], "--json").out)["metadata"]
        assert account["predicted"] == known.sum()
        assert account["skipped"] == whole["accounting"]["skipped"] + store.metadata["missing"]["bases"]
        assert sum(value for key, value in account.items() if key != "total") == account["total"]
    assert "bases of the whole run: " in call("inspect", paths[0]).out


def test_gaps_are_not_missing(tiny, call, tmp_path):
    fasta = tmp_path / "gaps.fa"
    fasta.write_text(">a\n" + "ACGTTGCA" * 40 + "N" * 300 + "ACGGTCA" * 40 + "\n>b\n" + "GATTACA" * 90 + "\n")
    paths = [tmp_path / f"{i}.h5" for i in (1, 2)]
    for i, path in enumerate(paths, start=1):
        assert call("predict", fasta, "-o", path, "--model", tiny, "--shard", f"{i}/2", "--window", 200).code == 0
    for given, missing in (([paths[1]], 450), ([paths[0]], 780)):
        out = tmp_path / f"without{missing}.h5"
        result = call("merge", *given, "-o", out, "--allow-missing")
        assert f"missing: {missing} of 1,230 bases" in result.err
        with open_store(out) as store:
            account = store.metadata["accounting"]
            assert account == {"predicted": 1230 - missing, "masked": 300, "skipped": missing, "not_requested": 0,
                               "total": 1530}  # fmt: skip
            assert store.predicted_counts().sum() == 1230 - missing
    assert "1.23 kb of 2 shards" in call("merge", *paths, "-o", tmp_path / "all.h5").err


def test_other_runs_and_wrong_words(run, call, tmp_path):
    one, two = run("1.h5", "--shard", "1/2"), run("2.h5", "--shard", "2/2", "--no-strand-average")
    result = call("merge", one, two, "-o", tmp_path / "m.h5")
    assert result.code == 2
    assert "2.h5: is of another run than" in result.complaints[0]
    assert "strand-average was True, now False" in result.complaints[0]
    assert call("merge", "-o", tmp_path / "m.h5").code == 2
    assert call("merge", one).code == 2
    assert call("merge", one, one, "-o", tmp_path / "m.h5").code == 1
    for command in (["export", one, "--to", "gff3", "-o", "-"], ["evaluate", one, "--truth", one]):
        result = call(*command)
        assert result.code == 1
        assert "shard 1/2 of a run; join the shards by genoformer merge first" in result.complaints[0]
    run("3.h5", "--shard", "3/2", code=2)
    assert not (tmp_path / "m.h5").exists()


def test_a_note_where_shards_come_from_different_programs(run, call, tmp_path):
    one, two = run("1.h5", "--shard", "1/2"), run("2.h5", "--shard", "2/2")
    with h5py.File(two, "r+") as file:
        file.attrs["metadata"] = file.attrs["metadata"].replace('"device": "cpu"', '"device": "cuda:0"')
    result = call("merge", one, two, "-o", tmp_path / "m.h5")
    assert result.code == 0
    assert "note: shards were predicted by different programs or devices" in result.err
    assert "on cuda:0 (first in shard 2/2)" in result.err
