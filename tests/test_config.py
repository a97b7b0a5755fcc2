"""Configurations: every key is known, every value possible, every error one line that says where."""

from __future__ import annotations

import dataclasses
import json
import math
from pathlib import Path
from typing import Any, get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from genoformer import config as module
from genoformer.attention import ATTENTION, PROJECTIONS
from genoformer.attention.features import FEATURES
from genoformer.attention.projections import Sharing
from genoformer.config import INPUTS, ModelConfig
from genoformer.errors import ConfigError, InputError
from genoformer.model.genoformer import build
from genoformer.plain import from_dict, read_toml, to_dict
from genoformer.tracks import TRACKS
from genoformer.training.config import RunConfig, Sample, TrainConfig
from genoformer.training.samples_table import read_samples_table

KINDS = [ModelConfig, TrainConfig, Sample, RunConfig]
TINY: dict[str, Any] = {"width": 16, "heads": 2, "stem_channels": 4, "performer_count": 8, "hybrid_local_heads": 1}


def offered(field: str, **others: Any) -> set[str]:
    """Return the names that the message about a wrong one lists."""
    wrong: Any = ("?",) if isinstance(getattr(ModelConfig(), field), tuple) else "?"
    with pytest.raises(ConfigError) as caught:
        ModelConfig(**{field: wrong, **others})
    listed = str(caught.value).split("must be one of ")[1].split("; got")[0]
    return set(listed.split(", "))


def test_the_names_offered_are_those_of_the_tables() -> None:
    assert offered("attention") == set(ATTENTION)
    assert offered("hybrid_global") == set(ATTENTION) - {"local", "hybrid", "joint"}
    assert offered("performer_features") == set(FEATURES)
    assert offered("linformer_projection") == set(PROJECTIONS)
    assert offered("linformer_sharing") == set(get_args(Sharing))
    assert offered("linformer_start") == {"pool", "normal"}
    assert offered("tracks") == set(TRACKS)
    assert offered("inputs") == set(INPUTS)


@pytest.mark.parametrize(
    "choice",
    [
        *({"attention": (name,)} for name in ATTENTION),
        *({"attention": ("hybrid",), "hybrid_global": name} for name in ("softmax", "performer", "linformer")),
        *({"attention": ("performer",), "performer_features": name} for name in FEATURES),
        *({"attention": ("linformer",), "linformer_projection": name} for name in PROJECTIONS),
        *({"tracks": (name,)} for name in TRACKS),
        *({"inputs": (name,)} for name in INPUTS),
    ],
    ids=lambda choice: "-".join(map(str, choice.values())),
)
def test_every_name_builds_a_model(choice: dict[str, Any]) -> None:
    assert build(ModelConfig(**{**TINY, **choice})).tracks


def test_round_trip_of_defaults_and_of_json() -> None:
    config = RunConfig(
        ModelConfig(**TINY, attention=("hybrid", "softmax")),
        TrainConfig(windows=(3, 30), step_bases=30),
        (Sample("a.fa", "a.gff"), Sample("b.fa", "b.gff", split="validation", weight=0.5)),
    )
    for original in (config, RunConfig(), ModelConfig(), TrainConfig()):
        assert from_dict(type(original), json.loads(json.dumps(to_dict(original)))) == original


@given(st.fixed_dictionaries({}, optional={"width": st.integers(1, 9).map(lambda n: 8 * n), "heads": st.just(4)}))
def test_what_is_given_is_kept_and_the_rest_is_default(values: dict[str, int]) -> None:
    built = from_dict(ModelConfig, values)
    assert to_dict(built) == {**to_dict(ModelConfig()), **values}


@pytest.mark.parametrize("kind", KINDS)
def test_every_field_is_described(kind: type) -> None:
    names = [item.name for item in dataclasses.fields(kind)]
    if kind in (ModelConfig, TrainConfig):
        assert all(name in (kind.__doc__ or "") for name in names)


def refuse(kind: type, values: Any, *parts: str) -> str:
    with pytest.raises(ConfigError) as caught:
        from_dict(kind, values, where="x.toml")
    message = str(caught.value)
    assert "\n" not in message
    assert message.count("x.toml") == 1, message
    assert message.startswith("x.toml: ")
    for part in parts:
        assert part in message
    return message


@pytest.mark.parametrize("kind", KINDS)
def test_an_unknown_key_is_named_beside_the_known_ones(kind: type) -> None:
    refuse(kind, {"attentoin": 3}, "unknown key 'attentoin'", kind.__name__, dataclasses.fields(kind)[0].name)


def test_an_unknown_key_within_a_table_is_named() -> None:
    refuse(RunConfig, {"model": {"widht": 3}}, "unknown key 'widht' for ModelConfig")
    refuse(RunConfig, {"samples": [{"fasta": "a", "annotation": "b", "splt": "train"}]}, "'splt' for Sample")


@pytest.mark.parametrize(
    ("kind", "values", "parts"),
    [
        (ModelConfig, {"width": "128"}, ["width must be a whole number", "'128'"]),
        (ModelConfig, {"width": 128.0}, ["width must be a whole number"]),
        (ModelConfig, {"width": True}, ["width must be a whole number"]),
        (ModelConfig, {"performer_max_temperature": "hot"}, ["must be a number"]),
        (ModelConfig, {"performer_max_temperature": True}, ["must be a number"]),
        (ModelConfig, {"attention": "local"}, ["attention must be a list"]),
        (ModelConfig, {"attention": [1]}, ["attention must be a text"]),
        (ModelConfig, {"hybrid_global": 1}, ["hybrid_global must be a text"]),
        (TrainConfig, {"windows": [10.5]}, ["windows must be a whole number"]),
        (TrainConfig, {"learning_rate": None}, ["learning_rate must be a number"]),
        (RunConfig, {"model": 3}, ["expected a table for ModelConfig", "3"]),
        (RunConfig, {"samples": ["a.fa"]}, ["expected a table for Sample"]),
        (RunConfig, {"samples": {"fasta": "a"}}, ["samples must be a list"]),
        (RunConfig, [], ["expected a table for RunConfig"]),
        (Sample, {"annotation": "b"}, ["Sample lacks", "fasta"]),
        (RunConfig, {"samples": [{"annotation": "b"}]}, ["Sample lacks", "fasta"]),
    ],
)
def test_wrong_types_are_refused(kind: type, values: Any, parts: list[str]) -> None:
    refuse(kind, values, *parts)


@pytest.mark.parametrize(
    ("values", "part"),
    [
        *(({name: value}, name) for name in ("width", "heads", "stem_stride", "local_radius") for value in (0, -1)),
        ({"performer_max_temperature": math.nan}, "performer_max_temperature"),
        ({"performer_max_temperature": math.inf}, "performer_max_temperature"),
        ({"performer_count": 0}, "performer_count"),
        ({"linformer_rank": 0}, "linformer_rank"),
        ({"linformer_ranks": [3, 0, 3, 3]}, "linformer_ranks must be above 0, got 0"),
        ({"linformer_ranks": [3, 4]}, "linformer_ranks must have one number a block, 4, or none; got 2"),
        ({"expansion": 0}, "expansion"),
        ({"stem_channels": 0}, "stem_channels"),
        ({"heads": 3}, "must divide width"),
        ({"width": 12}, "must be even"),
        ({"conv_kernel": 4}, "conv_kernel must be odd"),
        ({"stem_kernel": 8}, "stem_kernel must be odd"),
        ({"attention": []}, "at least one block"),
        ({"tracks": []}, "at least one track"),
        ({"tracks": ["coding-frame", "coding-frame"]}, "tracks must differ"),
        ({"attention": ["hybrid"], "hybrid_local_heads": 4}, "hybrid_local_heads"),
        ({"performer_features": "hyperbolic", "performer_count": 127}, "must be even"),
        ({"seed": -1}, "seed"),
        ({"seed": 1 << 32}, "seed"),
    ],
)
def test_impossible_models_are_refused(values: dict[str, Any], part: str) -> None:
    refuse(ModelConfig, values, part)


@pytest.mark.parametrize(
    ("values", "part"),
    [
        *(({name: 0}, name) for name in ("steps", "learning_rate", "gradient_clip", "validate_every", "save_every")),
        ({"validate_bases": -5}, "validate_bases"),
        ({"learning_rate": math.nan}, "learning_rate"),
        ({"windows": []}, "windows"),
        ({"windows": [0, 5]}, "windows"),
        ({"windows": [96_001]}, "step_bases must be at least"),
        ({"ema": 1.0}, "ema"),
        ({"ema": -0.1}, "ema"),
        ({"ema": math.nan}, "ema"),
        ({"recode": 1.1}, "recode"),
        ({"synonyms": -0.1}, "synonyms"),
        ({"warmup": -1}, "warmup"),
        ({"final_rate": 1.5}, "final_rate"),
        ({"chunk_size": -1}, "chunk_size"),
        ({"precision": "float16"}, "float32, bfloat16"),
        ({"weight_decay": -0.1}, "weight_decay"),
        ({"weight_decay": math.nan}, "weight_decay"),
        ({"length_power": math.inf}, "length_power"),
        ({"seed": -1}, "seed"),
    ],
)
def test_impossible_trainings_are_refused(values: dict[str, Any], part: str) -> None:
    refuse(TrainConfig, values, part)


@pytest.mark.parametrize("values", [{"split": "test"}, {"weight": 0}, {"weight": -1.0}])
def test_impossible_samples_are_refused(values: dict[str, Any]) -> None:
    refuse(Sample, {"fasta": "a", "annotation": "b", **values}, next(iter(values)))


def test_a_learned_projection_limits_what_a_model_sees() -> None:
    learned = {"linformer_projection": "learned", "linformer_tokens": 100}
    assert ModelConfig(attention=("linformer",), **learned).most_bases == 300
    assert ModelConfig(attention=("hybrid",), hybrid_global="linformer", **learned).most_bases == 300
    assert ModelConfig(attention=("local",), hybrid_global="linformer", **learned).most_bases is None
    assert ModelConfig(attention=("linformer",), linformer_tokens=100).most_bases is None
    table = {"model": {"attention": ["linformer"], **learned}}
    refuse(RunConfig, {**table, "train": {"windows": [300, 301]}}, "windows must be at most", "300 bases")
    assert from_dict(RunConfig, {**table, "train": {"windows": [300]}})


def test_toml_is_read(tmp_path: Path) -> None:
    path = tmp_path / "run.toml"
    path.write_text('[model]\nwidth = 64\n[train]\nlearning_rate = 1\n[[samples]]\nfasta = "a"\nannotation = "b"\n')
    config = read_toml(RunConfig, path)
    assert config.model.width == 64
    assert config.train.learning_rate == 1.0
    assert isinstance(config.train.learning_rate, float)
    assert config.samples == (Sample("a", "b"),)


@pytest.mark.parametrize(
    ("content", "part"),
    [
        (b"[model\n", "not valid TOML"),
        (b"\xff\xfe", "not valid TOML"),
        (b"[model]\nwidth = 0\n", "width must be above 0"),
        (b"[model]\nwidth = 'x'\n", "width must be a whole number"),
        (b"[train]\nsteps = 10\nstep = 1\n", "unknown key 'step'"),
        (b"[[samples]]\nannotation = 'a'\n", "Sample lacks"),
        (b"[[samples]]\nfasta = 'a'\nannotation = 'b'\nsplit = 'x'\n", "split must be one of"),
    ],
)
def test_errors_of_a_file_name_it_once(tmp_path: Path, content: bytes, part: str) -> None:
    path = tmp_path / "run.toml"
    path.write_bytes(content)
    with pytest.raises(ConfigError) as caught:
        read_toml(RunConfig, path)
    message = str(caught.value)
    assert "\n" not in message
    assert part in message
    assert message.count(str(path)) == 1


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"none.toml: cannot be read: No such file"):
        read_toml(RunConfig, tmp_path / "none.toml")
    with pytest.raises(ConfigError, match="cannot be read"):
        read_toml(RunConfig, tmp_path)


def test_shipped_configurations_are_valid() -> None:
    shipped = sorted((Path(module.__file__).parents[1] / "pipelines").rglob("config/*.toml"))
    for path in shipped:
        assert read_toml(RunConfig, path).samples


@pytest.mark.skipif(not Path("/dev/zero").exists(), reason="no /dev/zero here")
def test_what_never_ends_is_no_recipe_and_no_table_of_samples() -> None:
    with pytest.raises(ConfigError, match=r"^/dev/zero: not valid TOML: it has more than 16,777,216 letters$"):
        read_toml(RunConfig, "/dev/zero")
    with pytest.raises(InputError, match=r"^/dev/zero: no table of samples: it has more than 16,777,216 letters$"):
        read_samples_table(Path("/dev/zero"))
