"""Memory that runs out: batches are halved, then chunks, the values are the same, and an end says what to do."""

from __future__ import annotations

import logging
import subprocess
import sys
import textwrap
import weakref
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from prediction_samples import MIXED, assert_same, joined
from tiny import Memory, random_bases, tiny_model

from genoformer.errors import ConfigError, ResourceError, is_out_of_memory
from genoformer.fitting import Fitting
from genoformer.model.genoformer import Genoformer
from genoformer.predict import Settings, predict

CUT = {"window": 90, "overlap": 9}
SHORTAGES: list[Callable[[], BaseException]] = [
    MemoryError,
    lambda: torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB.\nGPU 0 has more to say"),
    lambda: RuntimeError(
        "[enforce fail at alloc_cpu.cpp:118] err == 0. DefaultCPUAllocator: can't allocate memory: you tried to "
        "allocate 400000000000 bytes. Error code 12 (Cannot allocate memory)"
    ),
    lambda: RuntimeError("CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`"),
    lambda: RuntimeError("could not create a primitive"),  # oneDNN
    lambda: RuntimeError("MPS backend out of memory (MPS allocated: 1 GB, max allowed: 2 GB)"),
]


@pytest.fixture(scope="module")
def model() -> Genoformer:
    torch.manual_seed(0)
    return tiny_model()


@pytest.fixture(autouse=True)
def _said(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING, logger="genoformer")


class Small:
    """A device with memory for so many bases at once, and so many tokens a chunk."""

    def __init__(
        self, monkeypatch: pytest.MonkeyPatch, *, bases: int, tokens: int, kind: Callable = MemoryError
    ) -> None:
        self.module, self.bases, self.tokens, self.kind = sys.modules["genoformer.predict"], bases, tokens, kind
        self.computed, self.refused = [], 0
        self._compute = self.module.predict_values
        monkeypatch.setattr(self.module, "predict_values", self)

    def __call__(self, model: Genoformer, codes: torch.Tensor, *, chunk_size: int | None, **options: Any) -> dict:
        rows, length = codes.shape
        chunk = min(-(-length // 3), chunk_size or length)
        if rows * length > self.bases or chunk > self.tokens:
            self.refused += 1
            raise self.kind()
        self.computed.append((rows, length, chunk_size))
        return self._compute(model, codes, chunk_size=chunk_size, **options)


@pytest.mark.parametrize("kind", SHORTAGES)
def test_errors_that_say_so(kind: Callable[[], BaseException]) -> None:
    assert is_out_of_memory(kind())


def test_other_errors_do_not() -> None:
    for error in (
        RuntimeError("shapes do not match; cannot be allocated"),
        OSError(12, "Cannot allocate memory"),
        ValueError(),
    ):
        assert not is_out_of_memory(error)
    for make in (torch.empty, np.empty):  # what they say today, whatever that is
        with pytest.raises((RuntimeError, MemoryError)) as caught:
            make(1 << 55)
        assert is_out_of_memory(caught.value)


def run(model: Genoformer, sequences: Memory, **options: Any) -> dict[str, np.ndarray]:
    return joined(list(predict(sequences, model, settings=Settings(**options), **CUT)), sequences)


LONG = Memory(("a", random_bases(300)), ("b", random_bases(90, 1)), *((f"s{i}", random_bases(20, i)) for i in range(9)))


@pytest.fixture(scope="module")
def expected(model: Genoformer) -> dict[str, np.ndarray]:
    return run(model, LONG, chunk_size=0)


@pytest.mark.parametrize("kind", SHORTAGES[:3])
def test_the_batch_is_halved_first_and_the_values_stay(
    model: Genoformer, expected: dict, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, kind: Callable
) -> None:
    small = Small(monkeypatch, bases=2 * 90, tokens=10_000, kind=kind)
    assert_same(run(model, LONG, batch_size=4, chunk_size=0), expected)
    assert [record.getMessage() for record in caplog.records] == [
        "out of memory at memory: a:1-85: batches of 2 instead of 4",
    ]
    assert {chunk for _, _, chunk in small.computed} == {None}
    assert (9, 20, None) in small.computed  # as many short ones as have the bases of two windows


def test_then_the_chunk(
    model: Genoformer, expected: dict, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("genoformer.fitting.LEAST_CHUNK", 4)
    small = Small(monkeypatch, bases=90, tokens=8)
    assert_same(run(model, LONG, batch_size=4, chunk_size=0), expected)
    said = [record.getMessage().partition("a:1-85: ")[2] for record in caplog.records]
    assert said == [
        "batches of 2 instead of 4",
        "batches of 1 instead of 2",
        "chunks of 15 tokens instead of 30",
        "chunks of 8 tokens instead of 15",
    ]
    assert small.refused == len(said)  # once found out, it is never tried again
    assert max(rows * length for rows, length, _ in small.computed) <= 90


def test_nothing_left_to_halve(model: Genoformer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("genoformer.fitting.LEAST_CHUNK", 11)
    Small(monkeypatch, bases=10**9, tokens=10, kind=SHORTAGES[1])
    with pytest.raises(ResourceError) as caught:
        run(model, LONG, batch_size=2, chunk_size=200)
    said = str(caught.value)
    assert said.startswith(
        "memory: a:1-85: out of memory even with one window of 90 bases in chunks of 11 tokens (CUDA"
    )
    assert "(CUDA out of memory. Tried to allocate 2.00 GiB.)" in said
    assert "smaller --window" in said
    assert "\n" not in said


def test_other_errors_end_it_at_once(model: Genoformer, monkeypatch: pytest.MonkeyPatch) -> None:
    for kind in (lambda: RuntimeError("a defect"), lambda: ConfigError("x")):
        with monkeypatch.context() as patch:
            small = Small(patch, bases=0, tokens=0, kind=kind)
            with pytest.raises((RuntimeError, ConfigError), match=r"a defect|x"):
                run(model, LONG)
            assert small.refused == 1


def test_a_failed_attempt_holds_no_memory() -> None:
    fitting, alive, seen = Fitting(chunk_size=None, stride=3), [], []

    def compute(rows: np.ndarray, chunk_size: int | None) -> dict[str, np.ndarray]:
        seen.append(sum(reference() is not None for reference in alive))
        array = np.zeros(10)
        alive.append(weakref.ref(array))
        if len(rows) > 1:
            raise MemoryError
        return {"x": rows[..., None]}

    rows = np.arange(12, dtype=np.uint8).reshape(4, 3)
    np.testing.assert_array_equal(fitting.values(rows, compute, where="x")["x"][..., 0], rows)
    assert seen == [0] * 6  # 4 and 2 rows fail, then 1 at a time


def test_mixed_lengths_keep_their_order(model: Genoformer, monkeypatch: pytest.MonkeyPatch) -> None:
    pending = Memory(*(record for record in MIXED.held if record[0] not in ("unknown", "empty")))
    expected = run(model, pending)
    Small(monkeypatch, bases=100, tokens=1000)
    assert_same(run(model, pending, batch_size=16), expected)


REAL = """
    import resource, sys
    import numpy, torch
    from tiny import Memory, random_bases, tiny_model
    from genoformer.errors import ResourceError
    from genoformer.predict import Settings, predict
    torch.set_num_threads(1)
    model, sequences = tiny_model(width=32, stem_channels=64), Memory(("a", random_bases(90_000)))

    def values(sequences):
        settings = Settings(batch_size=4, chunk_size=0)
        blocks = predict(sequences, model, window=30_000, overlap=3_000, settings=settings)
        return numpy.concatenate([block.values["coding-frame"] for block in blocks])

    values(Memory(("a", random_bases(300))))
    used = int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize()
    _, most = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (used + int(sys.argv[1]) * 10**6, most))
    try:
        found = values(sequences)
    except ResourceError as error:
        sys.exit(f"lacking: {error}")
    resource.setrlimit(resource.RLIMIT_AS, (most, most))
    numpy.save(sys.argv[2], found)
"""


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="needs Linux")
def test_real_memory_that_runs_out(tmp_path: Path) -> None:
    """Less and less of the address space for torch and numpy."""

    def called(megabytes: int) -> tuple[int, str]:
        script = f"import sys; sys.path.insert(0, {str(Path(__file__).parent)!r})\n{textwrap.dedent(REAL)}"
        program = [sys.executable, "-c", script, str(megabytes), str(tmp_path / f"{megabytes}.npy")]
        done = subprocess.run(program, capture_output=True, text=True, check=False, timeout=300)
        return done.returncode, done.stderr

    assert called(64_000) == (0, "")
    for megabytes, words in ((200, "batches of"), (80, "tokens instead of")):
        code, said = called(megabytes)
        assert (code, words in said) == (0, True), said
        one, two = (np.load(tmp_path / f"{name}.npy") for name in (64_000, megabytes))
        np.testing.assert_allclose(one, two, rtol=0, atol=2e-3)
    code, said = called(8)
    assert code == 1
    assert "lacking: memory: a:1-28500: out of memory even with one window" in said, said
