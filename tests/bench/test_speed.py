"""The benchmark of attention: its arithmetic, and that every contender does what it says."""

from __future__ import annotations

import json
import math
import re
import subprocess
import sys

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from genoformer.attention import ATTENTION
from genoformer.attention.features import FEATURES
from genoformer.attention.linformer import PROJECTIONS
from genoformer.bench.contenders import CONTENDERS, CORE, FUSED, GROUPS, LAYER, MATRIX, Contender, Shape, why_missing
from genoformer.bench.probe import Job, Limits, Task, can_tell_memory, probe, probe_apart
from genoformer.bench.speed import Report, Setup, describe_crossover, matrix_product_rate, measure, select
from genoformer.errors import ConfigError

SMALL = Shape(heads=2, dim=8, features=16, rank=12, radius=4)
PRESENT = [contender for contender in CONTENDERS.values() if not contender.unavailable()]
every_contender = pytest.mark.parametrize("contender", PRESENT, ids=lambda contender: contender.key)


@pytest.fixture(autouse=True)
def _one_thread():
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


@pytest.fixture
def _in_this_process(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("genoformer.bench.speed.probe_apart", probe)


# What is measured --------------------------------------------------------------------------------------------------


@every_contender
@pytest.mark.parametrize("tokens", [1, 5, 32, 257])
def test_outputs_are_of_the_shape_of_the_inputs(contender: Contender, tokens: int):
    task = Task(contender, SMALL, tokens)
    (output,) = task.run()
    assert output.shape == task.inputs[0].shape
    assert bool(torch.isfinite(output).all())


@every_contender
def test_a_backward_pass_reaches_every_input(contender: Contender):
    task = Task(contender, SMALL, 40, backward=True)
    output, *gradients = task.run()
    assert output.shape == task.inputs[0].shape
    shapes = [gradient.shape for gradient in gradients]
    assert all(shapes.count(x.shape) >= [y.shape for y in task.inputs].count(x.shape) for x in task.inputs)
    assert any(bool(gradient.abs().sum() > 0) for gradient in gradients)


def test_every_mechanism_of_ours_takes_part():
    """A convolution does not: its slots grow with the sequence."""
    names = {contender.name for contender in CONTENDERS.values() if contender.group == CORE}
    for mechanism in ATTENTION:
        assert any(name.startswith(mechanism) for name in names), mechanism
    assert {f"performer-{kind}" for kind in FEATURES} <= names
    assert {f"linformer-{kind}" for kind in PROJECTIONS} - {"linformer-conv"} <= names


def test_exact_contenders_agree():
    results = [Task(CONTENDERS[f"{CORE}/{name}"], SMALL, 33).run()[0] for name in (FUSED, MATRIX, "softmax")]
    for other in results[1:]:
        torch.testing.assert_close(results[0], other, rtol=1e-5, atol=1e-6)


@every_contender
def test_operations_grow_as_time_is_said_to(contender: Contender):
    few, many = (contender.operations(SMALL, tokens) for tokens in (100_000, 200_000))
    assert many / few == pytest.approx(4 if contender.is_quadratic else 2, rel=0.01)


def test_operations_by_hand():
    assert CONTENDERS[f"{CORE}/performer-positive"].operations(Shape(), 1000) == 8 * 1000 * 128 * 128
    assert CONTENDERS[f"{CORE}/{FUSED}"].operations(Shape(), 1000) == 4 * 1000**2 * 128
    assert CONTENDERS[f"{LAYER}/linformer"].operations(Shape(), 1000) == 8 * 1000 * 256 * 128 + 8 * 1000 * 128**2


def test_inputs_are_the_same_for_all():
    first, second = (SMALL.inputs(CORE, 20) for _ in range(2))
    assert len(first) == 3
    assert all(torch.equal(x, y) for x, y in zip(first, second, strict=True))
    assert not torch.equal(first[0], first[1])


# Memory ------------------------------------------------------------------------------------------------------------

tells_memory = pytest.mark.skipif(not can_tell_memory("cpu"), reason="peak memory of a process cannot be told here")


@tells_memory
def test_memory_of_a_materialized_matrix():
    """Scores and weights of all pairs live together at the peak: 2 * 4 bytes * H * n^2, here 64 MB."""
    tokens, shape = 2048, SMALL
    (found,) = probe_apart(Job(f"{CORE}/{MATRIX}", shape, (tokens,)))
    expected = CONTENDERS[f"{CORE}/{MATRIX}"].matrix_bytes(shape, tokens)
    assert found.memory == pytest.approx(expected, rel=0.1)


@tells_memory
def test_memory_of_linear_attention_is_far_below():
    (found,) = probe_apart(Job(f"{CORE}/performer-positive", SMALL, (2048,)))
    assert found.memory is not None
    assert found.memory < CONTENDERS[f"{CORE}/{MATRIX}"].matrix_bytes(SMALL, 2048) / 5


def test_lengths_beyond_the_limits_are_skipped():
    job = Job(f"{CORE}/{MATRIX}", SMALL, (64, 4096), Limits(seconds=1e9, memory=1e6))
    small, large = probe(job)
    assert not small.skipped
    assert re.fullmatch(r"would need about \d+\.\d GB", large.skipped)
    job = Job(f"{CORE}/{FUSED}", SMALL, (64, 1 << 20), Limits(seconds=1e-3))
    small, large = probe(job)
    assert not small.skipped
    assert large.skipped.startswith("one run would take about")


def test_a_process_that_dies_is_told(monkeypatch: pytest.MonkeyPatch):
    class Dead:
        returncode = -9

        def __init__(self, *_: object, **__: object) -> None: ...

        def communicate(self, text: str) -> tuple[str, str]:
            return json.dumps({"tokens": 64, "seconds": 0.1, "memory": 5, "skipped": ""}) + "\n", ""

    monkeypatch.setattr(subprocess, "Popen", Dead)
    first, second = probe_apart(Job(f"{CORE}/{FUSED}", SMALL, (64, 128)))
    assert (first.tokens, first.memory) == (64, 5)
    assert second.skipped == "failed (signal 9; out of memory?)"


def test_a_process_that_fails_says_why():
    (found,) = probe_apart(Job("core/nonsense", SMALL, (64,)))
    assert "KeyError" in found.skipped


# Choosing, crossing, reporting -------------------------------------------------------------------------------------


def test_patterns_choose():
    assert {contender.key for contender in select(["linformer"])} == {"layer/linformer"}
    assert all("linformer" in contender.name for contender in select(["*linformer*"], groups=[CORE]))
    assert {contender.group for contender in select(["exact-fused"])} == set(GROUPS)
    assert [contender.key for contender in select(["core/local"])] == ["core/local"]
    assert all(contender.is_usual for contender in select())
    with pytest.raises(ConfigError, match=r"'nix\*' fits none.*exact-fused"):
        select(["nix*"])


@given(power=st.floats(0.3, 2), meeting=st.floats(150, 90_000), lengths=st.sets(st.integers(1, 100_000), min_size=2))
def test_power_laws_cross_where_they_do(power: float, meeting: float, lengths: set[int]):
    ordered = sorted(lengths)
    said = describe_crossover(ordered, [(meeting / n) ** power for n in ordered])
    if ordered[0] > meeting:
        assert said == f"below {ordered[0]:,}"
    elif ordered[-1] <= meeting:
        assert said == f"beyond {ordered[-1]:,}"
    else:
        assert int(said.replace(",", "")) == pytest.approx(meeting, abs=1, rel=1e-6)


def test_the_last_crossing_counts():
    assert describe_crossover([100, 200, 400], [0.9, 2.0, 0.5]) == "283"


@pytest.fixture(scope="module")
def report() -> Report:
    """The only one whose memory is measured in processes of their own, which take a second or two to start."""
    torch.set_num_threads(1)
    chosen = select(["core/exact-fused", "core/performer-positive"])
    return measure(Setup(SMALL, (64, 16, 64), repeats=2, limits=Limits(seconds=5)), chosen)


def test_everything_is_measured_at_every_length(report: Report):
    keys = [(row.group, row.name, row.tokens) for row in report.measurements]
    assert len(keys) == len(set(keys)) == 2 * 2
    for row in report.measurements:
        assert 0 < row.fastest <= row.seconds <= row.slowest
        assert row.share == pytest.approx(row.rate / report.peak)
        assert row.memory is None or row.memory >= 0


@pytest.mark.usefixtures("_in_this_process")
def test_crossovers_need_exact_attention_of_the_same_group():
    chosen = select(["core/exact-fused", "performer-positive"])
    assert {contender.group for contender in chosen} == set(GROUPS)
    assert list(measure(Setup(SMALL, (16,), repeats=1), chosen).crossovers()) == ["core/performer-positive"]


def test_a_report_is_json(report: Report):
    told = json.loads(json.dumps(report.as_dict(), allow_nan=False))
    assert told["setup"]["lengths"] == [16, 64]
    assert len(told["measurements"]) == 4
    assert told["peak_operations_per_second"] == report.peak


@pytest.mark.usefixtures("_in_this_process")
def test_what_was_skipped_has_no_numbers():
    chosen = select(["core/exact-matrix"])
    report = measure(Setup(SMALL, (16, 8192), repeats=1, limits=Limits(memory=1e7)), chosen)
    first, second = report.measurements
    assert not first.skipped
    assert second.skipped
    assert math.isnan(second.seconds)
    assert report.as_dict()["measurements"][1]["seconds"] is None
    assert report.find(CORE, MATRIX, 8192) is None


@pytest.mark.usefixtures("_in_this_process")
def test_a_missing_library_is_told_and_the_rest_measured(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("genoformer.bench.contenders.importlib.util.find_spec", lambda name: None)
    report = measure(Setup(SMALL, (16,), repeats=1), select(["performer-pytorch", "core/local"]))
    assert [row.name for row in report.measurements] == ["local"]
    assert "pip install 'genoformer[bench]'" in report.missing["performer-pytorch"]


def test_a_library_that_cannot_be_imported_is_told(monkeypatch: pytest.MonkeyPatch, tmp_path):
    (tmp_path / "broken_library.py").write_text("import distutils_of_old", encoding="utf-8")
    monkeypatch.syspath_prepend(tmp_path)
    assert "ModuleNotFoundError: No module named 'distutils_of_old'" in why_missing("broken-library")
    sys.modules.pop("broken_library", None)


def test_bad_setups_are_refused():
    for setup in ({"lengths": ()}, {"lengths": (0,)}, {"repeats": 0}):
        with pytest.raises(ConfigError):
            Setup(**setup)


def test_matrix_products_have_a_rate():
    assert matrix_product_rate(repeats=1) > 1e8
