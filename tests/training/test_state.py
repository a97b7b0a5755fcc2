"""What a training begins from and goes on from: other weights, the same data, a folder that is whole."""

from __future__ import annotations

import dataclasses
import itertools
import json
import shutil
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest
import torch
from tiny import random_codes, tiny_config, tiny_model, write_gff
from training_samples import log, root, run_config, take

from genoformer.errors import CheckpointError, ConfigError, InputError
from genoformer.model import checkpoint
from genoformer.model.checkpoint import load_model, named_tensors, read_tensors, save_model, write_tensors
from genoformer.training import run as module
from genoformer.training.config import RunConfig, Sample
from genoformer.training.run import STATE
from genoformer.training.state import new_state, start_from, trained_shape
from genoformer.training.validation import Validation

__all__ = ["root"]


def assert_same_state(folder: Path, other: Path) -> None:
    """Compare tensors and all that is written beside them."""
    (one, about_one), (two, about_two) = (read_tensors(path / STATE) for path in (folder, other))
    assert about_one == about_two
    assert one.keys() == two.keys()
    assert all(torch.equal(tensor, two[name]) for name, tensor in one.items())


# ---- the same data


@pytest.mark.parametrize("split", ["train", "validation"])
def test_other_data_are_refused(tmp_path: Path, root: Path, split: str) -> None:
    config = run_config(validation=True, steps=2)
    take(config, tmp_path / "run", root)
    write_gff(root / ("a.gff" if split == "train" else "b.gff"), {"chr": [(0, 300, 1)]})
    with pytest.raises(CheckpointError, match=rf"labels of [ab]\.fa \({split}\)") as caught:
        take(config, tmp_path / "run", root, resume=True)
    assert "\n" not in str(caught.value)


def test_a_checkpoint_without_what_is_new_is_resumed(tmp_path: Path, root: Path) -> None:
    """As one written before there were digests and the newer settings."""
    config = run_config(steps=4)
    take(config, tmp_path / "run", root, steps=3)  # the checkpoint is of step 2
    tensors, about = read_tensors(tmp_path / "run" / STATE)
    saved = json.loads(about["config"])
    for new in ("accumulate", "error_rates", "patience", "pretrain"):
        del saved["train"][new]
    del saved["samples_table"]
    write_tensors(tensors, tmp_path / "run" / STATE, {"step": about["step"], "config": json.dumps(saved)})
    assert [step.step for step in take(config, tmp_path / "run", root, resume=True)] == [3, 4]
    saved["train"]["unheard-of"] = 1
    write_tensors(tensors, tmp_path / "run" / STATE, {"step": about["step"], "config": json.dumps(saved)})
    with pytest.raises(CheckpointError, match=r"another configuration .*unheard-of"):
        take(config, tmp_path / "run", root, resume=True)


@pytest.mark.parametrize("passes", ["0", "-2", "3", str(2 * 5000), str(1 << 70), "two"])
def test_passes_that_no_team_began_with_are_refused(passes: str, tmp_path: Path, root: Path) -> None:
    config = run_config(steps=4, accumulate=2)
    take(config, tmp_path / "run", root, steps=3)
    tensors, about = read_tensors(tmp_path / "run" / STATE)
    assert about["passes"] == "2"
    write_tensors(tensors, tmp_path / "run" / STATE, about | {"passes": passes})
    with pytest.raises(CheckpointError, match="damaged: ") as caught:
        take(config, tmp_path / "run", root, resume=True)
    assert "\n" not in str(caught.value)
    write_tensors(tensors, tmp_path / "run" / STATE, about | {"passes": "6"})
    assert [step.step for step in take(config, tmp_path / "run", root, resume=True)] == [3, 4]


def test_what_differs_is_named(tmp_path: Path, root: Path) -> None:
    take(run_config(steps=2), tmp_path / "run", root)
    with pytest.raises(CheckpointError, match=r"\[train\] configuration \(seed was 0, is 3\)"):
        take(run_config(steps=2, seed=3), tmp_path / "run", root, resume=True)


# ---- a table of samples


def test_a_table_gives_what_samples_give(tmp_path: Path, root: Path) -> None:
    config = run_config(validation=True, steps=2)
    take(config, tmp_path / "listed", root)
    rows = ["fasta\tannotation\tsplit", "# ours", "a.fa\ta.gff\ttrain", "", "b.fa\tb.gff\tvalidation"]
    (root / "samples.tsv").write_text("\n".join(rows))
    tabled = dataclasses.replace(config, samples=(), samples_table="samples.tsv")
    take(tabled, tmp_path / "tabled", root)
    assert_same_state(tmp_path / "listed", tmp_path / "tabled")
    (root / "samples.tsv").write_text("fasta\tannotation\tweight\na.fa\ta.gff\t2\n")
    with pytest.raises(CheckpointError, match=r"another \[samples\]"):
        take(tabled, tmp_path / "tabled", root, resume=True)


@pytest.mark.parametrize(
    ("text", "word"),
    [
        ("", "got nothing"),
        ("fasta,annotation\na,b\n", "first line must name"),
        ("fasta\tannotation\tcolor\na\tb\tred\n", "got fasta, annotation, color"),
        ("fasta\tannotation\tfasta\na\tb\tc\n", "first line must name"),
        ("fasta\tannotation\n", "no samples"),
        ("fasta\tannotation\na.fa\n", "line 2: expected 2 cells"),
        ("fasta\tannotation\na.fa\t\n", "line 2: expected 2 cells"),
        ("fasta\tannotation\tweight\na.fa\ta.gff\tmuch\n", "line 2: weight must be a number, got 'much'"),
        ("fasta\tannotation\tweight\na.fa\ta.gff\tnan\n", "line 2: weight must be above 0"),
        ("fasta\tannotation\tsplit\na.fa\ta.gff\ttest\n", "line 2: split must be one of train, validation"),
        ("fasta\tannotation\n#\na.fa\ta.gff\na.fa\tb.gff\n", "line 4: a.fa is in train already, by line 3"),
        (b"\xff\xfe", "not text in UTF-8"),
        (None, "cannot be read"),
    ],
)
def test_tables_that_cannot_be_used(tmp_path: Path, root: Path, text: str | bytes | None, word: str) -> None:
    if text is not None:
        (root / "s.tsv").write_bytes(text if isinstance(text, bytes) else text.encode())
    with pytest.raises(InputError) as caught:
        take(RunConfig(tiny_config(), samples_table="s.tsv"), tmp_path / "run", root)
    message = str(caught.value)
    assert word in message
    assert str(root / "s.tsv") in message
    assert "\n" not in message


# ---- other weights to start from


def begin(config: RunConfig, source: str, root: Path) -> tuple[Any, list[str]]:
    state, said = new_state(config, torch.device("cpu")), list[str]()
    start_from(state, source, trained_shape(config), root=root, report=said.append)
    return state, said


def test_all_weights_of_an_equal_model_are_taken(tmp_path: Path) -> None:
    saved = tiny_model()
    save_model(tmp_path / "m", saved, tiny_config(), name="first")
    state, said = begin(run_config(), "m", tmp_path)
    for model in (state.model, state.average):
        for name, tensor in named_tensors(saved).items():
            assert torch.equal(named_tensors(model)[name], tensor), name
    count = len(named_tensors(saved))
    assert said == [f"m: {count} of {count} tensors start from it"]
    assert state.origin["name"] == "first"


def test_what_does_not_fit_is_told(tmp_path: Path) -> None:
    save_model(tmp_path / "m", tiny_model(attention=("local",)), tiny_config(attention=("local",)), name="x")
    _, said = begin(run_config(model={"expansion": 3}), "m", tmp_path)
    assert "start afresh: encoder.blocks.0.feed_forward" in said[1]
    assert said[1].endswith("...")
    letters = tiny_config(tracks=("masked-nucleotide",))
    save_model(tmp_path / "p", tiny_model(letters), letters, name="p")
    _, said = begin(run_config(), "p", tmp_path)
    assert said[1:] == [
        "  2 start afresh: heads.coding-frame.output.weight, heads.coding-frame.output.bias",
        "  2 of it have no place: heads.masked-nucleotide.output.bias, heads.masked-nucleotide.output.weight",
    ]
    other = tiny_config(width=8, stem_channels=4, stem_kernel=3, attention=("local",), tracks=("masked-nucleotide",))
    save_model(tmp_path / "o", tiny_model(other), other, name="o")
    with pytest.raises(CheckpointError, match="nothing of it fits"):
        begin(run_config(), "o", tmp_path)
    with pytest.raises(CheckpointError, match="no such model"):
        begin(run_config(), "none", tmp_path)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (("open-frames",), ("open-frames", "stop-distances")),
        (("open-frames",), ("stop-distances", "open-frames")),
        ((), ("stop-distances",)),
    ],
)
def test_new_inputs_change_nothing_at_first(tmp_path: Path, old: tuple[str, ...], new: tuple[str, ...]) -> None:
    saved, codes = tiny_model(inputs=old), random_codes(90, 40)
    save_model(tmp_path / "m", saved, tiny_config(inputs=old), name="x")
    state, said = begin(run_config(model={"inputs": new}), "m", tmp_path)
    torch.testing.assert_close(state.average(codes)["coding-frame"], saved(codes)["coding-frame"])
    assert "inputs were" in said[0]
    assert len(said) == 2


def test_fine_tuning_from_what_was_pretrained(tmp_path: Path, root: Path) -> None:
    take(run_config(steps=2, pretrain=True, validation=True), tmp_path / "before", root, name="letters")
    first = load_model(tmp_path / "before" / "model")
    assert [track.name for track in first.tracks] == ["masked-nucleotide"]
    assert 0 < log(tmp_path / "before")[-1]["validation"]["mean_accuracy"] < 1
    said: list[str] = []
    config = run_config(steps=3, save_every=1, init_from=str(tmp_path / "before" / "model"))
    take(config, tmp_path / "after", root, report=said.append)
    assert any("tensors start from it" in line for line in said)
    tuned = load_model(tmp_path / "after" / "model")
    assert tuned.checkpoint.training["init-from"] == {
        "name": "letters",
        "weights-sha256": first.checkpoint.sha256,
    }
    take(config, tmp_path / "cut", root, steps=2)
    shutil.rmtree(tmp_path / "before")  # whoever goes on needs it no more
    take(config, tmp_path / "cut", root, resume=True)
    assert_same_state(tmp_path / "cut", tmp_path / "after")


# ---- patience


def scripted(numbers: list[float]) -> Callable[..., Validation]:
    left = iter(numbers)
    return lambda *_: Validation({"mean_f1": 0.0}, next(left))


def test_patience_ends_a_training_and_keeps_the_best(
    tmp_path: Path, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = run_config(validation=True, steps=40, validate_every=1, save_every=2, patience=3)
    said: list[str] = []
    nan = float("nan")
    monkeypatch.setattr(module, "measure", scripted([0.1, nan, 0.3, 0.3, 0.2, 0.1, 0.9]))
    steps = take(config, tmp_path / "run", root, report=said.append)
    assert [step.step for step in steps] == [1, 2, 3, 4, 5, 6]
    assert "stopped at step 6: no validation was better than that of step 3 (0.3000) in 3" in said
    assert load_model(tmp_path / "run" / "model").checkpoint.training["steps"] == 3
    assert take(config, tmp_path / "run", root, resume=True) == []
    monkeypatch.setattr(module, "measure", scripted([0.1, nan, 0.3, 0.3]))
    take(config, tmp_path / "cut", root, steps=3)  # the checkpoint is of step 2
    monkeypatch.setattr(module, "measure", scripted([0.3, 0.3, 0.2, 0.1]))
    assert [step.step for step in take(config, tmp_path / "cut", root, resume=True)] == [3, 4, 5, 6]
    assert_same_state(tmp_path / "cut", tmp_path / "run")
    for file in ("model/model.safetensors", "model/config.json"):
        assert (tmp_path / "cut" / file).read_bytes() == (tmp_path / "run" / file).read_bytes(), file


def test_patience_without_any_score_keeps_the_last(tmp_path: Path, root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    nan = float("nan")
    monkeypatch.setattr(module, "measure", scripted([nan] * 9))
    take(run_config(validation=True, validate_every=1, patience=2), tmp_path / "run", root)
    assert load_model(tmp_path / "run" / "model").checkpoint.training["steps"] == 2
    with pytest.raises(ConfigError, match="patience needs validations"):
        take(run_config(patience=2), tmp_path / "other", root)


# ---- a save that dies


class Died(BaseException):
    pass


def dying(when: int, *, after: bool) -> Callable[[Path, Path], Path]:
    """Return `Path.replace` for a process that dies before or after its so-manieth rename."""
    original, calls = Path.replace, itertools.count(1)

    def replace(self: Path, target: Path) -> Path:
        dies = next(calls) == when
        if not dies or after:
            original(self, target)
        if dies:
            raise Died
        return target

    return replace


MOMENTS = list(itertools.product(range(1, 5), (False, True)))


@pytest.mark.parametrize(("when", "after"), [moment for moment in MOMENTS if moment[0] < 4])
def test_a_save_that_dies_leaves_the_old_model_or_the_new_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, when: int, after: bool
) -> None:
    """At every rename, before and after; so does another one after it, and one that does not die puts all right."""
    widths = {"old": 16, "new": 32, "third": 8, "fourth": 24}
    models = {name: tiny_model(width=width) for name, width in widths.items()}
    seen = {"new": set[str](), "third": set[str]()}

    def save(folder: Path, name: str, moment: tuple[int, bool] | None = None) -> None:
        with monkeypatch.context() as patch, pytest.raises(Died) if moment else nullcontext():
            if moment:
                patch.setattr(Path, "replace", dying(moment[0], after=moment[1]))
            save_model(folder, models[name], tiny_config(width=widths[name]), name=name)

    for again in MOMENTS if (when, after) in ((2, True), (3, False)) else MOMENTS[:6]:
        folder = tmp_path / f"{again[0]}{again[1]}"
        save(folder, "old")
        for name, moment in (("new", (when, after)), ("third", again)):
            save(folder, name, moment)
            loaded = load_model(folder).checkpoint
            assert loaded.config.width == widths[loaded.name]
            seen[name].add(loaded.name)
        save(folder, "fourth")
        assert load_model(folder).checkpoint.name == "fourth"
        assert sorted(path.name for path in folder.iterdir()) == [checkpoint.CONFIG, checkpoint.WEIGHTS]
    before = "new" if (when, after) >= (2, True) else "old"
    assert seen == {"new": {before}, "third": {before, "third"}}


def test_the_model_is_saved_before_the_state(tmp_path: Path, root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Else a run that dies in between would not save it again."""
    config = run_config(steps=2)
    with monkeypatch.context() as patch:
        patch.setattr(module, "save_state", lambda *_: (_ for _ in ()).throw(Died))
        with pytest.raises(Died):
            take(config, tmp_path / "run", root)
    assert load_model(tmp_path / "run" / "model").checkpoint.training["steps"] == 2
    assert len(take(config, tmp_path / "run", root, resume=True)) == 2


def test_the_same_genome_with_two_annotations_is_told_apart(tmp_path: Path, root: Path) -> None:
    config = dataclasses.replace(run_config(steps=2), samples=(Sample("a.fa", "a.gff"), Sample("a.fa", "a.gff")))
    take(config, tmp_path / "run", root)
    assert take(config, tmp_path / "run", root, resume=True) == []
