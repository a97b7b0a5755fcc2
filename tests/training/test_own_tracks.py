"""Own tracks from the training file to the prediction: described, learned, resumed, saved and read; or refused."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

import pytest
import torch
from own_track_samples import AMOUNT, LABELS, OWN, PURINE, own_config, own_model, write_genomes
from tiny import random_codes, tiny_model
from training_samples import take

from genoformer.config import ModelConfig
from genoformer.errors import CheckpointError, ConfigError, InputError
from genoformer.model.checkpoint import CONFIG, load_model, read_checkpoint, read_tensors, save_model
from genoformer.model.heads import SignalHead
from genoformer.model.strands import predict_values, reverse_complement_rows
from genoformer.plain import from_dict, to_dict
from genoformer.tracks import CODING_FRAME, TRACKS, Track
from genoformer.training.config import RunConfig, Sample, TrackLoss, TrainConfig
from genoformer.training.run import STATE, train

WORDS = ("type", "train", "forward", "values", "a-b_1")
"""Names of tracks that a torch module has for itself, but the last."""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return write_genomes(tmp_path)


# ---- described


def test_defaults_of_a_track() -> None:
    values = {"tracks": ["m"], "own_tracks": [{"name": "m", "kind": "class", "channels": ["no", "yes"]}]}
    (track,) = from_dict(ModelConfig, values).described_tracks
    assert track == Track("m", "class", ("no", "yes"), "probability", (0, 1))
    assert Track("s", "signal", ("x",)).units == "value"
    mixed = own_model("amount", "coding-frame", "purine")
    assert mixed.described_tracks == (AMOUNT, CODING_FRAME, PURINE)
    assert from_dict(ModelConfig, json.loads(json.dumps(to_dict(mixed)))) == mixed


def described(**changes: Any) -> dict[str, Any]:
    track = {"name": "m", "kind": "class", "channels": ["no", "yes"], **changes}
    return {"model": {"tracks": [track["name"]], "own_tracks": [track]}}


@pytest.mark.parametrize(
    ("values", "word"),
    [
        *((described(name=name), "a name has up to 60") for name in ("", "a/b", ".", "a.b", "ä", "-x", "x" * 61)),
        *((described(name=name), "this name is taken") for name in (*TRACKS, "tokens", "split")),
        (described(kind="both"), "kind must be 'class' or 'signal', got 'both'"),
        (described(kind=3), "kind must be 'class' or 'signal', got 3"),
        (described(channels=[]), "has no channels"),
        (described(channels=["a"]), "classes need 2 to 255 channels"),
        (described(channels=["a", "a"]), "channels must differ"),
        (described(channels=["a", "b\tc"]), "must have a name that can be printed"),
        (described(channels=["a", " "]), "must have a name that can be printed"),
        (described(reverse_complement=[0, 0]), "each of its 2 channels once"),
        (described(channels=["a", "b", "c"], reverse_complement=[1, 2, 0]), "lead back when it is taken twice"),
        (described(color="red"), "unknown key 'color' for Track"),
        ({"model": {"tracks": ["m"]}}, "tracks must be one of coding-frame, masked-nucleotide; got 'm'"),
        ({"model": described()["model"] | {"tracks": ["coding-frame"]}}, "own track 'm' is not among tracks"),
        ({"model": {"tracks": ["m"], "own_tracks": described()["model"]["own_tracks"] * 2}}, "own_tracks must differ"),
    ],
)  # fmt: skip
def test_tracks_that_cannot_be_described(values: dict[str, Any], word: str) -> None:
    with pytest.raises(ConfigError, match=word) as caught:
        from_dict(RunConfig, values, where="x.toml")
    assert str(caught.value).startswith("x.toml: ")
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("train_table", "samples", "word"),
    [
        ({"losses": [{"track": "q"}]}, [], "losses: track must be one of purine, amount; got 'q'"),
        ({"losses": [{"track": "purine"}] * 2}, [], "losses: tracks must differ"),
        ({"losses": [{"track": "purine", "weight": 0.0}]}, [], "weight must be above 0"),
        ({"losses": [{"track": "purine", "class_weights": [1.0]}]}, [], "each channel of the class track purine"),
        ({"losses": [{"track": "purine", "class_weights": [-1.0, 1.0]}]}, [], "must not be negative"),
        ({"losses": [{"track": "amount", "class_weights": [1.0, 1.0]}]}, [], "amount is a signal"),
        ({"class_weights": [1.0, 1.0, 1.0]}, [], "each channel of the class track purine"),
        ({}, [{"fasta": "a.fa"}], "a.fa: neither annotation nor labels"),
        ({}, [{"fasta": "a.fa", "labels": {"q": "x"}}], "a.fa: labels of 'q', which is none of the model's own tracks"),
        ({}, [{"fasta": "a.fa", "labels": {"coding-frame": "x"}}], "labels of coding-frame are given as annotation"),
        ({}, [{"fasta": "a.fa", "labels": "x.bed"}], "labels must be a table"),
        ({}, [{"fasta": "a.fa", "labels": {"purine": 3}}], "labels must be a table whose 'purine' is a text"),
        ({}, [{"fasta": "a.fa", "labels": {"amount": {"of A": 3}}}], "'amount' is a table whose 'of A' is a text"),
    ],
)
def test_trainings_that_do_not_fit_their_tracks(train_table: dict, samples: list, word: str) -> None:
    model = to_dict(own_model())
    with pytest.raises(ConfigError, match=word):
        from_dict(RunConfig, json.loads(json.dumps({"model": model, "train": train_table, "samples": samples})))


def test_weights_are_those_of_the_track() -> None:
    config = TrainConfig(class_weights=(1.0, 2.0), losses=(TrackLoss("x", 3.0), TrackLoss("y", 1.0, (5.0, 6.0))))
    assert config.loss_of(Track("x", "class", ("a", "b"))) == TrackLoss("x", 3.0, (1.0, 2.0))
    assert config.loss_of(Track("y", "class", ("a", "b"))) == TrackLoss("y", 1.0, (5.0, 6.0))
    assert config.loss_of(PURINE) == TrackLoss("purine", 1.0, (1.0, 2.0))
    assert config.loss_of(AMOUNT) == TrackLoss("amount")
    assert config.loss_of(TRACKS["masked-nucleotide"]).class_weights == ()


# ---- saved and read


def test_any_name_is_saved_and_read(tmp_path: Path) -> None:
    own = tuple(Track(name, "class" if n % 2 else "signal", ("x", "y")) for n, name in enumerate(WORDS))
    config = own_model("coding-frame", *WORDS, own=own)
    model, codes = tiny_model(config), random_codes(40)
    head = model.heads["type"]
    assert isinstance(head, SignalHead)
    head.standardize([3.0, -2.0], [10.0, 0.5])
    save_model(tmp_path / "m", model, config, name="x")
    loaded = load_model(tmp_path / "m")
    assert loaded.tracks == [CODING_FRAME, *own]
    one, two = predict_values(model, codes), predict_values(loaded, codes)
    assert list(one) == ["coding-frame", *WORDS]
    assert all(torch.equal(one[name], two[name]) for name in one)
    assert loaded.train().training  # what a module has for itself is still there


def test_both_strands_are_predicted_alike() -> None:
    model, codes = tiny_model(own_model()), random_codes(60, unknown=0.0)
    there, back = predict_values(model, codes), predict_values(model, reverse_complement_rows(codes))
    for track in OWN:
        mirrored = back[track.name].flip(1)[..., list(track.reverse_complement)]
        torch.testing.assert_close(there[track.name], mirrored, rtol=1e-4, atol=1e-5)


def test_a_model_whose_track_is_not_described_is_refused(tmp_path: Path) -> None:
    save_model(tmp_path / "m", tiny_model(own_model()), own_model(), name="x")
    file = tmp_path / "m" / CONFIG
    saved = json.loads(file.read_text())
    saved["model"]["own_tracks"].pop()
    file.write_text(json.dumps(saved))
    with pytest.raises(CheckpointError, match=r"config\.json: tracks must be one of .*, purine; got 'amount'"):
        read_checkpoint(tmp_path / "m")
    del saved["model"]["own_tracks"]
    saved["model"]["tracks"] = ["coding-frame"]
    file.write_text(json.dumps(saved))
    assert read_checkpoint(tmp_path / "m").config.own_tracks == ()  # as older versions wrote it


# ---- learned


def test_a_resumed_run_is_the_same_to_the_last_bit(folder: Path) -> None:
    model = own_model("coding-frame", "purine", "amount")
    both = tuple(Sample(f"{x}.fa", f"{x}.gff", split=split, labels=LABELS)
                 for x, split in (("a", "train"), ("b", "validation")))  # fmt: skip
    losses = (TrackLoss("purine", 0.5, (1.0, 3.0)), TrackLoss("amount", 2.0))
    config = own_config(model, both, losses=losses, error_rates=(0.0, 0.05), validate_error_rates=(0.05,), patience=9)
    whole = take(config, folder / "whole", folder)
    take(config, folder / "cut", folder, steps=3)  # the checkpoint is of step 2
    take(config, folder / "cut", folder, steps=5, resume=True)
    rest = take(config, folder / "cut", folder, resume=True)
    assert [(p.step, p.loss, p.validation) for p in rest] == [(p.step, p.loss, p.validation) for p in whole[4:]]
    for file in ("model/model.safetensors", "model/config.json"):
        assert (folder / "whole" / file).read_bytes() == (folder / "cut" / file).read_bytes(), file
    (one, about_one), (two, about_two) = (read_tensors(folder / name / STATE) for name in ("whole", "cut"))
    assert about_one == about_two
    assert one.keys() == two.keys()
    assert all(torch.equal(tensor, two[name]) for name, tensor in one.items())
    (folder / "t.bedgraph").write_text("chr-a\t0\t9\t1\nchr-a\t9\t20\t4\nchr-b\t0\t9\t1\n")
    with pytest.raises(CheckpointError, match=r"labels of a\.fa \(train\)"):
        take(config, folder / "cut", folder, resume=True)


def test_a_signal_keeps_its_units_when_another_training_begins_from_it(folder: Path) -> None:
    amount = own_config(own_model(own=(AMOUNT,)), steps=2)
    take(amount, folder / "one", folder)
    first = load_model(folder / "one" / "model").heads["amount"]
    assert isinstance(first, SignalHead)
    assert (first.scale < 1).all()
    said: list[str] = []
    both = own_config(steps=2, save_every=1, init_from="one/model")
    for progress in train(both, folder / "two", root=folder, report=said.append):
        assert progress.step in (1, 2)
    second = load_model(folder / "two" / "model").heads["amount"]
    assert torch.equal(first.scale, second.scale)  # type: ignore[arg-type]
    assert any("heads.purine.output" in line for line in said)


def test_classes_are_calibrated(folder: Path) -> None:
    config = own_config(own_model("coding-frame", "purine", "amount"), (
        Sample("a.fa", "a.gff", labels=LABELS), Sample("b.fa", split="validation", labels=LABELS)
    ), steps=2)  # fmt: skip
    take(config, folder / "run", folder)
    found = read_checkpoint(folder / "run" / "model").training["calibration"]
    assert list(found) == ["purine"]  # of coding-frame nothing is known in b
    assert found["purine"]["bases"] == 500
    assert found["purine"]["loss"] <= found["purine"]["loss_before"]


def test_what_hides_letters_needs_no_labels(folder: Path) -> None:
    config = own_config(samples=(Sample("a.fa"),), pretrain=True, steps=2)
    assert len(take(config, folder / "run", folder)) == 2
    assert read_checkpoint(folder / "run" / "model").config.own_tracks == ()
    tuned = own_config(steps=2, init_from="run/model")
    assert len(take(tuned, folder / "tuned", folder)) == 2


def test_samples_may_know_different_tracks(folder: Path) -> None:
    samples = (
        Sample("a.fa", "a.gff", labels={"purine": "purine.bed"}),
        Sample("b.fa", labels={"amount": {"of A": "a.bedgraph", "of T": "t.bedgraph"}}),
    )
    said: list[str] = []
    config = own_config(own_model("coding-frame", "purine", "amount"), samples, steps=2)
    assert len(take(config, folder / "run", folder, report=said.append)) == 2
    assert "  amount: no labels given" in said
    assert "  purine: no labels given" in said


@pytest.mark.parametrize(
    ("samples", "word"),
    [
        ((Sample("a.fa", labels={"purine": "purine.bed"}),), "'amount': no sample to train on has labels of it"),
        ((Sample("a.fa", labels={**LABELS, "purine": "none.bed"}),), "of another class than 'no'"),
        ((Sample("a.fa", labels={**LABELS, "amount": {"of A": "a.bedgraph"}}),), "'of T' has no value"),
    ],
)
def test_what_teaches_nothing_is_refused(folder: Path, samples: tuple[Sample, ...], word: str) -> None:
    (folder / "none.bed").write_text("chr-a\t5\t9\tno\n")
    with pytest.raises(InputError, match=word):
        take(own_config(samples=samples), folder / "run", folder)


def test_genes_need_an_annotation(folder: Path) -> None:
    config = own_config(own_model("coding-frame", "purine", own=(PURINE,)))
    with pytest.raises(InputError, match="'coding-frame': no sample to train on has an annotation"):
        take(config, folder / "run", folder)


def test_a_table_gives_what_samples_give(folder: Path) -> None:
    config = own_config(steps=2)
    take(config, folder / "listed", folder)
    rows = ["fasta\tsplit\tpurine\tamount.of A\tamount.of T"]
    rows += [
        f"{x}.fa\t{split}\tpurine.bed\ta.bedgraph\tt.bedgraph" for x, split in (("a", "train"), ("b", "validation"))
    ]
    (folder / "s.tsv").write_text("\n".join(rows))
    take(dataclasses.replace(config, samples=(), samples_table="s.tsv"), folder / "tabled", folder)
    (one, about_one), (two, about_two) = (read_tensors(folder / name / STATE) for name in ("listed", "tabled"))
    assert about_one == about_two
    assert all(torch.equal(tensor, two[name]) for name, tensor in one.items())
