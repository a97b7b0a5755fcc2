"""Prediction: chunks, batches, order, regions, interruptions and strands leave every value as it is."""

from __future__ import annotations

import contextlib
import json
import multiprocessing
import random
import sys
import time
from collections.abc import Callable
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from prediction_samples import FINE, MIXED, NAME, assert_same, joined
from tiny import Memory, random_bases, tiny_config, tiny_model, write_fasta

from genoformer.errors import ConfigError, InputError, ResourceError
from genoformer.formats.sequences import open_sequences
from genoformer.model.checkpoint import load_model, save_model
from genoformer.model.genoformer import Genoformer
from genoformer.plan import make_plan
from genoformer.predict import Settings, predict, predict_plan, predict_to_store, provenance
from genoformer.regions import Region
from genoformer.store import Output, open_store, part_path, writer
from genoformer.tokens import decode, encode, reverse_complement
from genoformer.tracks import CODING_FRAME

MIRROR = list(CODING_FRAME.reverse_complement)


@pytest.fixture(scope="module")
def model() -> Genoformer:
    torch.manual_seed(0)
    return tiny_model(attention=("local", "performer", "hybrid"))


def run(sequences: Memory, model: Genoformer, *, settings: dict[str, Any] | None = None, **cut: Any) -> dict:
    blocks = list(predict(sequences, model, settings=Settings(**settings or {}), **cut))
    return joined(blocks, sequences)


CUT = {"window": 120, "overlap": 30}


def test_chunks_and_batches_do_not_matter(model: Genoformer) -> None:
    """Fault 31."""
    pending = Memory(*(record for record in MIXED.held if record[0] not in ("unknown", "empty")))
    expected = run(pending, model, settings={"chunk_size": 0}, **CUT)
    for chunk_size, batch_size in [(None, 1), (3, 2), (13, 3), (0, 8), (40, 1)]:
        found = run(pending, model, settings={"chunk_size": chunk_size, "batch_size": batch_size}, **CUT)
        assert_same(found, expected)


def test_sequences_alone_equal_themselves_among_others(model: Genoformer) -> None:
    """Faults 5, 6, 8 and 9: short sequences share a batch and do not see each other."""
    together = run(MIXED, model, settings={"batch_size": 5}, **CUT)
    for name, bases in MIXED.held:
        if name in ("long", "short", "gapped", "one", "s4"):
            alone = Memory((name, bases))
            assert_same(run(alone, model, **CUT), {name: together[name]})


def test_gaps_and_nothing_else_are_nan(model: Genoformer) -> None:
    values = run(MIXED, model, **CUT)
    for name, _ in MIXED.held:
        expected = np.zeros(len(values[name]), dtype=bool)
        if name == "gapped":
            expected[90:210] = True
        rows = np.isnan(values[name])
        if name == "unknown":  # masked as a whole: no window at all
            assert np.isinf(values[name]).all()
            continue
        assert np.array_equal(rows.any(axis=1), expected)
        assert np.array_equal(rows.all(axis=1), expected)
        np.testing.assert_allclose(values[name][~expected].astype(float).sum(axis=1), 1, atol=4e-3)


@pytest.mark.parametrize("batch_size", [1, 4])
def test_windows_of_unknown_bases_only(model: Genoformer, batch_size: int) -> None:
    """Runs shorter than a gap are predicted, even where a window holds nothing else."""
    bases = random_bases(37, 1) + b"N" * 45 + random_bases(40, 2) + b"N" * 200 + random_bases(30, 3)
    sequences = Memory(("x", bases))
    for window, overlap in [(15, 5), (100, 20)]:
        settings = {"batch_size": batch_size}
        values = run(sequences, model, window=window, overlap=overlap, settings=settings)["x"]
        in_gap = np.zeros(len(bases), dtype=bool)
        in_gap[122:322] = True
        assert np.array_equal(np.isnan(values).any(axis=1), in_gap)
        plan = make_plan(sequences, window=window, overlap=overlap)
        assert plan.accounting.predicted == (~in_gap).sum()


def test_windows_in_gaps_are_not_computed(model: Genoformer, monkeypatch: pytest.MonkeyPatch) -> None:
    module = sys.modules["genoformer.predict"]
    seen = []
    computed = module.predict_values
    monkeypatch.setattr(
        module, "predict_values", lambda m, rows, **o: seen.append(rows.shape) or computed(m, rows, **o)
    )
    run(Memory(("x", random_bases(100) + b"N" * 800 + random_bases(100))), model, window=100, overlap=0)
    assert len(seen) == 2


def test_the_opposite_strand_gets_mirrored_values(model: Genoformer) -> None:
    """Fault 7: also for sequences that are padded, and with odd lengths."""
    opposite = Memory(*((name, decode(reverse_complement(encode(bases)))) for name, bases in MIXED.held))
    one = run(MIXED, model, window=2000, overlap=10)
    two = run(opposite, model, window=2000, overlap=10)
    for name, bases in MIXED.held:
        if name != "unknown" and bases:
            mirrored = two[name][::-1][:, MIRROR]
            assert np.array_equal(np.isnan(mirrored), np.isnan(one[name]))
            np.testing.assert_allclose(mirrored, one[name], rtol=0, atol=FINE)


def test_regions_have_the_values_of_their_windows(model: Genoformer) -> None:
    bases = random_bases(700, 1)
    regions = [Region("long", 650, 700), Region("long", 200, 230), Region("long", 300, 520)]
    sequences = Memory(("long", bases))
    values = run(sequences, model, regions=regions, **CUT)["long"]
    plan = make_plan(sequences, regions=regions, **CUT)
    wanted = np.zeros(700, dtype=bool)
    for window in plan.windows(0):
        seen = window.region
        alone = run(Memory(("w", bases[seen.start : seen.end])), model, window=120, overlap=30)["w"]
        own = slice(window.owned.start, window.owned.end)
        wanted[own] = True
        kept = alone[window.owned.start - seen.start : window.owned.end - seen.start]
        np.testing.assert_allclose(values[own], kept, rtol=0, atol=FINE)
    assert np.array_equal(np.isfinite(values).all(axis=1), wanted)
    assert wanted.sum() == 300


def test_a_number_that_is_none_stops_the_run_and_says_where() -> None:
    """Fault 30."""
    broken = tiny_model()
    with torch.no_grad():
        broken.heads[NAME].output.bias[2] = float("nan")
    said = r"^memory: x:1-30: track 'coding-frame': the model gave NaN at 30 of these bases, from position 1 to 30; try"
    with pytest.raises(ResourceError, match=said):
        run(Memory(("x", random_bases(30))), broken)
    gap_first = Memory(("x", b"N" * 60 + random_bases(30)))
    with pytest.raises(ResourceError, match=r"^memory: x:1-90: .* NaN at 30 of these bases, from position 61 to 90;"):
        run(gap_first, broken)


def test_what_float16_cannot_hold_stops_the_run(monkeypatch: pytest.MonkeyPatch) -> None:
    module, large = sys.modules["genoformer.predict"], torch.full((1, 200, 7), 1.0)
    large[0, 70, 3] = -7e4
    monkeypatch.setattr(module, "predict_values", lambda *_, **__: {NAME: large})
    with pytest.raises(
        ResourceError, match=r"^memory: x:1-200: .* infinity, .* at 1 of these bases, from position 71 to 71"
    ):
        run(Memory(("x", random_bases(200))), tiny_model())


def test_what_is_done_is_not_predicted_again(model: Genoformer) -> None:
    plan = make_plan(MIXED, **CUT)
    everything = list(predict_plan(plan, MIXED, model, settings=Settings()))
    assert len(everything) == len(plan.owned)
    order = {(plan.sequences.names[i], start): n for n, (i, start, _) in enumerate(plan.owned.tolist())}
    assert sorted(order[block.sequence, block.start] for block in everything) == list(range(len(plan.owned)))
    done = np.random.default_rng(0).random(len(plan.owned)) < 0.5
    rest = list(predict_plan(plan, MIXED, model, settings=Settings(batch_size=3), done=done))
    assert {order[block.sequence, block.start] for block in rest} == set(np.flatnonzero(~done).tolist())
    by_place = {(block.sequence, block.start): block for block in everything}
    for block in rest:
        expected = by_place[block.sequence, block.start].values[NAME]
        np.testing.assert_allclose(block.values[NAME], expected, rtol=0, atol=FINE)
    assert list(predict_plan(plan, MIXED, model, settings=Settings(), done=np.ones_like(done))) == []


@pytest.mark.parametrize(
    "change",
    [
        lambda held: held[:-1],
        lambda held: [*held, ("more", b"ACGT")],
        lambda held: [("renamed", held[0][1]), *held[1:]],
        lambda held: [(held[0][0], held[0][1] + b"A"), *held[1:]],
    ],
    ids=["fewer", "more", "renamed", "longer"],
)
def test_an_input_that_changed_since_it_was_planned_is_noticed(model: Genoformer, change: Any) -> None:
    plan = make_plan(MIXED, **CUT)
    with pytest.raises(InputError, match="memory: has changed since it was planned"):
        list(predict_plan(plan, Memory(*change(MIXED.held)), model, settings=Settings()))


@pytest.mark.parametrize("options", [{"chunk_size": -1}, {"batch_size": 0}, {"precision": "float16"}])
def test_impossible_settings_are_refused(options: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match=next(iter(options)).split("_")[0]):
        Settings(**options)


def test_windows_beyond_a_learned_projection_are_refused_at_once(model: Genoformer) -> None:
    learned = tiny_model(attention=("linformer",), linformer_projection="learned", linformer_tokens=20)
    sequences = Memory(("x", random_bases(100)))
    with pytest.raises(ConfigError, match="at most 60 bases at once, the window is 61; use --window 60"):
        run(sequences, learned, window=61, overlap=5)
    assert np.isfinite(run(sequences, learned, window=60, overlap=5)["x"]).all()


def test_genetic_code_and_strands_are_settings(model: Genoformer) -> None:
    sequences = Memory(("x", random_bases(200, 5)))
    default = run(sequences, model)["x"]
    assert not np.allclose(default, run(sequences, model, settings={"genetic_code": 4})["x"], atol=FINE)
    assert not np.allclose(default, run(sequences, model, settings={"strand_average": False})["x"], atol=FINE)


# ---- into a store


def to_store(
    folder: Path,
    output: Path,
    *,
    settings: Settings | None = None,
    report: Callable[[int], None] = lambda _: None,
    **options: Any,
) -> None:
    """Predict folder/x.fa with folder/model."""
    sequences = open_sequences(folder / "x.fa")
    plan = make_plan(sequences, window=60, overlap=10)
    model, where = load_model(folder / "model"), Output(output, **options)
    predict_to_store(plan, sequences, model, where, settings=settings or Settings(), report=report)


def predict_slowly(folder: Path, output: Path, sender: Connection) -> None:
    """Predict with a pause after each window, committing each; say when the first is done."""
    torch.set_num_threads(1)
    writer.COMMIT_SECONDS = 0.0

    def report(bases: int) -> None:
        if bases:
            sender.send(bases)
        time.sleep(0.1)

    to_store(folder, output, resume=True, report=report)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    records = {"a": random_bases(900, 1), "b": random_bases(50, 2) + b"N" * 70 + random_bases(300, 3), "c": b"N" * 60}
    write_fasta(tmp_path / "x.fa", records)
    save_model(tmp_path / "model", tiny_model(), tiny_config(), name="tiny")
    return tmp_path


def contents(path: Path) -> dict[str, np.ndarray]:
    with open_store(path) as store:
        assert store.status == "complete"
        return {name: store[name] for name in store.sequences.names}


def test_a_store_holds_what_was_predicted_and_how(folder: Path) -> None:
    to_store(folder, folder / "x.h5", command="genoformer predict x.fa")
    sequences = open_sequences(folder / "x.fa")
    model = load_model(folder / "model")
    memory = Memory(*((record.name, record.bases) for record in sequences.records()))
    expected = run(memory, model, window=60, overlap=10)
    found = contents(folder / "x.h5")
    for name in ("a", "b"):
        np.testing.assert_array_equal(found[name], expected[name])
    assert np.isnan(found["c"]).all()
    with open_store(folder / "x.h5") as store:
        assert store.sequences.status == ["predicted", "predicted", "masked"]
        plan = make_plan(sequences, window=60, overlap=10)
        said = store.metadata
        assert said["identity"]["model-sha256"] == model.checkpoint.sha256
        assert said["identity"]["input-sha256"] == plan.input_digest()
        assert said["accounting"] == plan.accounting._asdict()
        assert said["command"] == "genoformer predict x.fa"
    json.dumps(provenance(plan, model, Settings()))
    assert [path.name for path in folder.iterdir() if ".h5" in path.name] == ["x.h5"]


def test_an_output_that_exists_is_kept_unless_told_otherwise(folder: Path) -> None:
    output = folder / "x.h5"
    to_store(folder, output)
    before = output.read_bytes()
    with pytest.raises(ConfigError, match="exists already; use --overwrite"):
        to_store(folder, output)
    with pytest.raises(ConfigError, match="is not what this run writes: strand-average was True, now False"):
        to_store(folder, output, resume=True, settings=Settings(strand_average=False))
    to_store(folder, output, resume=True)
    assert output.read_bytes() == before
    to_store(folder, output, overwrite=True, settings=Settings(strand_average=False))
    assert output.read_bytes() != before


def interrupted(folder: Path, output: Path, *, after: int) -> None:
    class StopError(Exception):
        pass

    calls = []

    def stop(_: int) -> None:
        calls.append(1)
        if len(calls) > after:
            raise StopError

    sequences = open_sequences(folder / "x.fa")
    plan = make_plan(sequences, window=60, overlap=10)
    with pytest.raises(StopError):
        predict_to_store(plan, sequences, load_model(folder / "model"), output, settings=Settings(), report=stop)


def test_an_interrupted_run_goes_on_only_as_the_same_run(folder: Path) -> None:
    output = folder / "x.h5"
    interrupted(folder, output, after=7)
    assert not output.exists()
    assert part_path(output).exists()
    with pytest.raises(ConfigError, match="--resume"):
        to_store(folder, output)
    for settings in (Settings(genetic_code=4), Settings(strand_average=False), Settings(precision="bfloat16")):
        with pytest.raises(ConfigError, match=r"x.h5") as caught:
            to_store(folder, output, resume=True, settings=settings)
        assert "\n" not in str(caught.value)
    save_model(folder / "model", tiny_model(width=32), tiny_config(width=32), name="tiny")
    with pytest.raises(ConfigError, match=r"x.h5"):
        to_store(folder, output, resume=True)
    save_model(folder / "model", tiny_model(), tiny_config(), name="tiny")
    original = (folder / "x.fa").read_bytes()
    (folder / "x.fa").write_bytes(original.replace(b"ACG", b"AAG"))
    with pytest.raises((ConfigError, InputError), match=r"x.h5"):
        to_store(folder, output, resume=True)
    (folder / "x.fa").write_bytes(original)
    to_store(folder, output, resume=True, settings=Settings(batch_size=3, chunk_size=5))
    to_store(folder, folder / "whole.h5")
    for name, values in contents(folder / "whole.h5").items():
        np.testing.assert_allclose(contents(output)[name], values, rtol=0, atol=FINE)


def test_a_resumed_run_reports_what_was_done_before_and_computes_the_rest(folder: Path) -> None:
    output = folder / "x.h5"
    interrupted(folder, output, after=7)
    reported: list[int] = []
    sequences = open_sequences(folder / "x.fa")
    plan = make_plan(sequences, window=60, overlap=10)
    model = load_model(folder / "model")
    where = Output(output, resume=True)
    predict_to_store(plan, sequences, model, where, settings=Settings(), report=reported.append)
    assert sum(reported) == int((plan.owned[:, 2] - plan.owned[:, 1]).sum())
    assert reported[0] > 0
    assert len(reported) == 1 + len(plan.owned) - int(
        (np.cumsum(plan.owned[:, 2] - plan.owned[:, 1]) <= reported[0]).sum()
    )


def test_killed_five_times_and_resumed_the_values_are_those_of_one_run(folder: Path) -> None:
    """Fault 24: kill -9 at random moments."""
    output = folder / "x.h5"
    context = multiprocessing.get_context("forkserver")  # one that has imported everything, so that children start fast
    context.set_forkserver_preload(["test_predict"])
    progress = []
    for attempt in range(5):
        receiver, sender = context.Pipe(duplex=False)
        process = context.Process(target=predict_slowly, args=(folder, output, sender))
        process.start()
        sender.close()
        if attempt:
            with contextlib.suppress(EOFError):
                receiver.recv()
        time.sleep(random.uniform(0.02, 0.3))
        process.kill()
        process.join()
        process.close()
        receiver.close()
        if output.exists():  # a machine so busy that the kill came late
            break
        if part_path(output).exists():
            with open_store(part_path(output), allow_incomplete=True) as store:
                progress.append(int(np.isfinite(store["a"]).all(axis=1).sum()))
    assert progress == sorted(progress)
    assert progress[-1] > 0
    if not output.exists():
        to_store(folder, output, resume=True)
    to_store(folder, folder / "whole.h5")
    for name, values in contents(folder / "whole.h5").items():
        np.testing.assert_array_equal(contents(output)[name], values)
