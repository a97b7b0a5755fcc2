"""The shipped example of own tracks, on a made-up genome: its data, its configuration, and that it is learned."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest
import torch
from tiny import random_bases, write_fasta

from genoformer.evaluate.evaluation import evaluate
from genoformer.formats.sequences import open_sequences
from genoformer.labels import read_labels
from genoformer.model.checkpoint import load_model
from genoformer.plain import read_toml
from genoformer.plan import make_plan
from genoformer.predict import Settings, predict_to_store
from genoformer.tokens import decode, encode, reverse_complement
from genoformer.training.config import RunConfig
from genoformer.training.run import train

PIPELINES = Path(__file__).resolve().parents[2] / "pipelines"
CONFIG = PIPELINES / "config" / "own-tracks.toml"
SIZES = {"one": 12_000, "two": 3_000, "three": 4_000}


@pytest.fixture(scope="module")
def script() -> ModuleType:
    spec = importlib.util.spec_from_file_location("own_tracks_data", PIPELINES / "own_tracks_data.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def made_up_genome(script: ModuleType, path: Path) -> dict[str, bytes]:
    """Write random sequences with many more sites than chance would have, and a gap."""
    records, rng = {}, np.random.default_rng(0)
    for number, (name, size) in enumerate(SIZES.items()):
        codes = encode(random_bases(size, seed=number)).copy()
        for start in range(0, size - 40, 80):
            place, motif = start + int(rng.integers(30)), encode(script.MOTIF)
            codes[place : place + len(motif)] = motif if rng.random() < 0.5 else reverse_complement(motif)
        codes[50:170] = 4
        records[name] = decode(codes)
    write_fasta(path, records)
    return records


@pytest.fixture(scope="module")
def data(script: ModuleType, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("example")
    made_up_genome(script, folder / "genome.fa")
    script.make(folder / "genome.fa", folder, validation="two", held_out="three")
    return folder


def test_the_labels_are_those_of_a_loop(script: ModuleType, data: Path) -> None:
    config = read_toml(RunConfig, CONFIG)
    motif, surroundings = config.model.described_tracks
    files = config.samples[0].labels
    classes = read_labels(data / files["motif"], SIZES, motif)
    signals = read_labels({c: data / f for c, f in files["surroundings"].items()}, SIZES, surroundings)
    lines = (data / "genome.fa").read_text().splitlines()
    for name, text in zip(SIZES, lines[1::2], strict=True):
        expected, middles = np.zeros(len(text)), list[int]()
        for number, word in ((1, "TATAAA"), (2, "TTTATA")):
            for place in range(len(text)):
                if text.startswith(word, place):
                    here = expected[place : place + 6]
                    here[:] = np.where((here == 0) | (here == number), number, 255)
                    middles.append(place + 3)
        assert np.array_equal(classes[name], expected)
        for place in (*range(0, len(text), 117), len(text) - 1):
            near = np.exp(-min(abs(place - middle) for middle in middles) / script.DECAY)
            assert signals[name][place, 0] == pytest.approx(near, abs=0.0501)
            first = place // script.STRETCH * script.STRETCH
            stretch = text[first : first + script.STRETCH]
            bases = len(stretch) - stretch.count("N")
            if bases:
                share = sum(map(stretch.count, "GC")) / bases
                assert signals[name][place, 1] == pytest.approx(share, abs=0.0051)
            else:
                assert np.isnan(signals[name][place, 1])


def test_it_is_learned(data: Path, tmp_path: Path) -> None:
    torch.set_num_threads(1)
    config = read_toml(RunConfig, CONFIG)
    shape = replace(config.model, width=16, heads=2, stem_channels=16, attention=("local",), local_radius=16)
    fewer = replace(config.train, windows=(1000,), step_bases=6000, steps=80, learning_rate=0.02, ema=0.9,
                    validate_every=80, save_every=80)  # fmt: skip
    *_, last = train(replace(config, model=shape, train=fewer), tmp_path / "run", root=data)
    assert last.measure == "score"
    model = load_model(tmp_path / "run" / "model")
    sequences = open_sequences(data / "held-out.fa")
    plan = make_plan(sequences, window=100_000, overlap=1_000)
    predict_to_store(plan, sequences, model, tmp_path / "o.h5", settings=Settings())
    found = evaluate(tmp_path / "o.h5", data / "motif.bed", track="motif").levels["class"].numbers()
    assert found.f1 > 0.8
    files = {channel: data / f"{channel}.bedgraph.gz" for channel in ("nearness", "gc")}
    moments = evaluate(tmp_path / "o.h5", files, track="surroundings").signals
    assert moments["nearness"].numbers().pearson > 0.4
    assert moments["gc"].numbers().pearson > 0.5


def test_the_script_runs_and_says_what_it_made(data: Path, tmp_path: Path) -> None:
    command = [sys.executable, "-W", "error", str(PIPELINES / "own_tracks_data.py"), str(data / "genome.fa"), "-o"]
    done = subprocess.run(
        [*command, str(tmp_path / "o"), "--validation", "one", "--held-out", "two"],
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert "sites" in done.stdout
    assert (tmp_path / "o" / "train.fa").read_bytes().startswith(b">three\n")
    assert (tmp_path / "o" / "motif.bed").read_bytes() == (data / "motif.bed").read_bytes()
    wrong = subprocess.run(
        [*command, str(tmp_path / "p"), "--validation", "four", "--held-out", "two"],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert wrong.returncode == 1
    assert "no sequence is left for validation; it has one, two, three" in wrong.stderr
    assert not (tmp_path / "p").exists()
