"""train: a model from a configuration, gone on with where it stopped."""

from __future__ import annotations

import importlib.util
import json

import pytest
from tiny import made_up_genome, write_fasta, write_gff

CONFIG = """
[model]
width = 16
heads = 2
stem_channels = 8
attention = ["local"]
performer_count = 16
[train]
windows = [300]
step_bases = 600
steps = {steps}
warmup = 1
validate_every = 2
save_every = 2
validate_bases = 1000
[[samples]]
fasta = "{fasta}"
annotation = "x.gff"
[[samples]]
fasta = "{fasta}"
annotation = "x.gff"
split = "validation"
"""


@pytest.fixture
def config(tmp_path):
    sequence, genes = made_up_genome(6)
    write_fasta(tmp_path / "x.fa", {"c": sequence, "other": b"ACGT" * 20})
    write_gff(tmp_path / "x.gff", {"c": genes})

    def make(steps=4, fasta="x.fa", extra=""):
        (tmp_path / "c.toml").write_text(CONFIG.format(steps=steps, fasta=fasta) + extra)
        return tmp_path / "c.toml"

    return make


def test_trains_a_model_that_predicts(config, call, tmp_path):
    folder = tmp_path / "run"
    result = call("train", config(), "-o", folder, "--name", "mine", "--threads", 1)
    assert (result.code, result.out) == (0, "")
    lines = result.err.splitlines()
    assert "4 steps of 600 bases" in lines[0]
    assert "x.fa:" in lines[1]
    assert "1 sequences without annotation ignored" in lines[1]
    said = [line for line in lines if line.startswith("train: ")]
    assert "step 4 of 4" in said[-1]
    assert all(word in said[-1] for word in ("loss", "b/s", "validation F1"))
    if importlib.util.find_spec("matplotlib"):
        assert str(folder / "curve.png") in lines[-2]
        assert (folder / "curve.png").read_bytes().startswith(b"\x89PNG")
    assert str(folder / "model") in lines[-1]
    assert "'mine'" in lines[-1]
    assert len((folder / "log.jsonl").read_text().splitlines()) == 4
    assert call("predict", tmp_path / "x.fa", "-o", tmp_path / "o.h5", "--model", folder / "model").code == 0
    shown = call("models", "show", folder / "model").out
    assert "name: mine" in shown
    assert '"steps": 4' in shown
    assert call("models", "path", folder / "model").out.strip() == str(folder / "model")
    again = call("train", config(), "-o", folder)
    assert again.code != 0
    assert "--resume" in again.complaints[0]
    again = call("train", config(), "-o", folder, "--resume")  # nothing is left to do
    assert (again.code, "model 'mine' after 4 steps" in again.err) == (0, True)
    other = call("train", config(), "-o", folder, "--resume", "--name", "other")
    assert (other.code, "is called 'mine', not 'other'" in other.complaints[0]) == (2, True)


def test_names(config, call, tmp_path):
    result = call("train", config(), "-o", tmp_path / "x", "--name", "my model")
    assert (result.code, "a model cannot be called 'my model'" in result.complaints[0]) == (2, True)
    assert not (tmp_path / "x").exists()
    assert "model 'my-genes' after 1 steps" in call("train", config(1), "-o", tmp_path / "my genes!").err
    assert call("models", "export", tmp_path / "my genes!" / "model", "-o", tmp_path / "m.tar").code == 0


def test_a_table_of_samples_and_no_matplotlib(config, call, tmp_path, monkeypatch):
    toml = config()
    text = toml.read_text()
    toml.write_text('samples_table = "s.tsv"\n' + text[: text.index("[[samples]]")])
    (tmp_path / "s.tsv").write_text("fasta\tannotation\nx.fa\tx.gff\n")
    monkeypatch.setitem(__import__("sys").modules, "matplotlib.figure", None)
    result = call("train", toml, "-o", tmp_path / "run")
    assert result.code == 0
    assert "x.fa:" in result.err
    assert not (tmp_path / "run" / "curve.png").exists()
    assert "curve" not in result.err
    (tmp_path / "s.tsv").write_text("fasta\tannotation\tsplit\nx.fa\tx.gff\ttest\n")
    refused = call("train", toml, "-o", tmp_path / "other")
    assert refused.code == 1
    assert "s.tsv: line 2: split must be one of" in refused.complaints[0]


def test_an_early_end_and_pretraining_are_said(config, call, tmp_path):
    toml = config(steps=9)
    text = toml.read_text()
    toml.write_text(text.replace("[train]", "[train]\npatience = 1\npretrain = true\nlearning_rate = 1e-9"))
    result = call("train", toml, "-o", tmp_path / "run")
    assert result.code == 0
    assert "validation accuracy" in result.err
    assert "stopped at step 4: no validation was better than that of step 2" in result.err
    assert "after 4 steps" in result.err.splitlines()[-1]


def test_stopped_and_resumed_is_as_never_stopped(config, call, tmp_path, monkeypatch):
    assert call("train", config(), "-o", tmp_path / "whole", "--name", "m").code == 0
    from genoformer.training import run

    step = run.train_step

    def stop(state, *arguments):
        if state.step == 2:
            raise KeyboardInterrupt
        return step(state, *arguments)

    with monkeypatch.context() as patch:
        patch.setattr(run, "train_step", stop)
        assert call("train", config(), "-o", tmp_path / "cut", "--name", "m").code == 130
    assert call("train", config(), "-o", tmp_path / "cut", "--name", "m", "--resume").code == 0
    weights = "model/model.safetensors"
    assert (tmp_path / "cut" / weights).read_bytes() == (tmp_path / "whole" / weights).read_bytes()


def test_samples_lie_where_data_says(config, call, tmp_path):
    (tmp_path / "elsewhere").mkdir()
    toml = config().rename(tmp_path / "elsewhere" / "c.toml")
    result = call("train", toml, "-o", tmp_path / "run")
    assert result.code == 1
    assert str(tmp_path / "elsewhere" / "x.fa") in result.complaints[0]
    assert call("train", toml, "-o", tmp_path / "run2", "--data", tmp_path).code == 0


@pytest.mark.parametrize(
    ("extra", "code", "word"),
    [
        ("\n[train.more]\nx = 1\n", 2, "more"),
        ("\n[unknown]\nx = 1\n", 2, "unknown key 'unknown'"),
        ("\nthis is no TOML", 2, "not valid TOML"),
        ("\n[[samples]]\nfasta = 'none.fa'\nannotation = 'x.gff'\n", 1, "none.fa"),
    ],
)
def test_configurations_that_cannot_be_used(extra, code, word, config, call, tmp_path):
    result = call("train", config(extra=extra), "-o", tmp_path / "runs" / "run")
    assert result.code == code
    assert len(result.complaints) == 1
    assert word in result.complaints[0]
    assert not (tmp_path / "runs").exists()


def test_a_configuration_that_is_not_there(call, tmp_path):
    result = call("train", tmp_path / "none.toml", "-o", tmp_path / "run")
    assert result.code == 2
    assert "none.toml" in result.complaints[0]


def test_a_folder_that_cannot_be_made(config, call, tmp_path):
    (tmp_path / "file").write_text("")
    result = call("train", config(), "-o", tmp_path / "file" / "run")
    assert result.code == 3
    assert "cannot be made" in result.complaints[0]


def test_the_log_is_json(config, call, tmp_path):
    assert call("train", config(steps=2), "-o", tmp_path / "run").code == 0
    entries = [json.loads(line) for line in (tmp_path / "run" / "log.jsonl").read_text().splitlines()]
    assert [entry["step"] for entry in entries] == [1, 2]
    assert 0 <= entries[-1]["validation"]["mean_f1"] <= 1


OWN_TRACKS = """
[model]
tracks = ["purine", "amount"]
inputs = []
width = 16
heads = 2
stem_channels = 8
attention = ["local"]
[[model.own_tracks]]
name = "purine"
kind = "class"
channels = ["no", "yes"]
reverse_complement = [1, 0]
[[model.own_tracks]]
name = "amount"
kind = "signal"
channels = ["of A", "of T"]
units = "share"
reverse_complement = [1, 0]
[train]
windows = [300]
step_bases = 600
steps = 4
warmup = 1
validate_every = 2
validate_bases = 1000
[[train.losses]]
track = "purine"
class_weights = [1.0, 2.0]
[[samples]]
fasta = "a.fa"
labels = { purine = "purine.bed", amount = { "of A" = "a.bedgraph", "of T" = "t.bedgraph" } }
[[samples]]
fasta = "b.fa"
split = "validation"
labels = { purine = "purine.bed", amount = { "of A" = "a.bedgraph", "of T" = "t.bedgraph" } }
"""


def test_own_tracks_are_trained_predicted_shown_and_evaluated(call, tmp_path):
    from own_track_samples import write_genomes

    write_genomes(tmp_path)
    (tmp_path / "c.toml").write_text(OWN_TRACKS)
    result = call("train", tmp_path / "c.toml", "-o", tmp_path / "run")
    assert result.code == 0, result.err
    assert "  purine: bases of " in result.err
    assert "are not in" in result.err
    assert "validation score" in result.err
    model = tmp_path / "run" / "model"
    shown = call("models", "show", model)
    assert shown.code == 0
    assert "tracks: purine, amount" in shown.out
    assert '"of T"' in shown.out
    assert call("predict", tmp_path / "b.fa", "-o", tmp_path / "b.h5", "--model", model).code == 0
    about = call("inspect", tmp_path / "b.h5").out
    assert "track: amount, signal (share), channels of A of T" in about
    values = call("inspect", tmp_path / "b.h5", "--region", "chr-b:1-3", "--track", "amount").out.splitlines()
    assert values[0] == "sequence\tposition\tof A\tof T"
    assert len(values) == 4
    found = call("evaluate", tmp_path / "b.h5", "--track", "purine", "--truth", tmp_path / "purine.bed")
    assert found.code == 0, found.err
    truths = [f"--truth=of A={tmp_path / 'a.bedgraph'}", f"--truth=of T={tmp_path / 't.bedgraph'}"]
    found = call("evaluate", tmp_path / "b.h5", "--track", "amount", *truths, "--json", tmp_path / "b.json")
    assert found.code == 0, found.err
    assert "of T" in found.out
    assert call("export", tmp_path / "b.h5", "--to", "gff3", "-o", tmp_path / "genes.gff").code == 1


@pytest.mark.parametrize(
    ("old", "new", "code", "word"),
    [
        (
            'tracks = ["purine", "amount"]',
            'tracks = ["purine", "amuont"]',
            2,
            "own track 'amount' is not among tracks, purine, amuont",
        ),
        ('purine = "purine.bed"', 'purin = "purine.bed"', 2, "labels of 'purin'"),
        ('"purine.bed"', '"c.toml"', 1, "is no BED line"),
        ('"purine.bed"', '"nothing.bed"', 1, "nothing.bed: no such file"),
        ('"a.fa"', '"c.toml"', 1, "c.toml"),
    ],
)
def test_own_tracks_that_cannot_be_used(call, tmp_path, old, new, code, word):
    from own_track_samples import write_genomes

    write_genomes(tmp_path)
    (tmp_path / "c.toml").write_text(OWN_TRACKS.replace(old, new, 1))
    result = call("train", tmp_path / "c.toml", "-o", tmp_path / "run")
    assert result.code == code, result.err
    assert len(result.complaints) == 1
    assert word in result.complaints[0]
    assert not (tmp_path / "run").exists()
