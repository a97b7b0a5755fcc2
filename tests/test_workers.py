"""Workers: the bytes of one process, whatever the number, the input, what is done and what ends; no orphans."""

from __future__ import annotations

import json
import logging
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from alignment_samples import random_reads, write_alignments
from prediction_samples import MIXED, NAME
from process_tasks import assert_gone
from tiny import Memory, random_bases, tiny_config, tiny_model, write_fasta
from worker_tasks import POISONED, SHORT_OF_MEMORY

from genoformer import Workers
from genoformer.cli import run
from genoformer.errors import ConfigError, InputError, ResourceError
from genoformer.formats.sequences import open_sequences
from genoformer.model.checkpoint import load_model, save_model
from genoformer.model.genoformer import Genoformer
from genoformer.plan import make_plan
from genoformer.predict import Settings, predict, predict_plan, predict_to_store, provenance
from genoformer.projection import project_plan
from genoformer.projection_plan import plan_projection
from genoformer.regions import Block, Region
from genoformer.store import Output, Shard, open_store, part_path

CUT = {"window": 120, "overlap": 30}
LAMBDA = Path(__file__).parent.parent / "data" / "lambda.fa.gz"


@pytest.fixture(scope="module", autouse=True)
def _one_thread() -> Iterator[None]:
    """As many threads here as each worker has: bytes are to be the same."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    torch.manual_seed(0)
    folder = tmp_path_factory.mktemp("models") / "tiny"
    config = tiny_config(attention=("local", "performer", "hybrid"))
    save_model(folder, tiny_model(config), config, name="tiny")
    return folder


@pytest.fixture(scope="module")
def model(folder: Path) -> Genoformer:
    return load_model(folder)


@pytest.fixture(scope="module")
def three(model: Genoformer) -> Iterator[Workers]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Workers, "task", "worker_tasks:begin")
        workers = Workers(model, processes=3, threads=3)
    with workers:
        yield workers


def content(blocks: Any) -> list[tuple[str, int, bytes]]:
    return [(block.sequence, block.start, block.values[NAME].tobytes()) for block in blocks]


def stored(path: Path) -> tuple[bytes, Any]:
    with open_store(path, allow_incomplete=True) as store:
        return store.axis_values(0, store.sequences.total_bases).tobytes(), store.metadata["identity"]


# The same bytes


@pytest.mark.parametrize("batch_size", [1, 3])
def test_blocks_are_those_of_one_process(model: Genoformer, three: Workers, batch_size: int) -> None:
    settings = Settings(batch_size=batch_size)
    for regions in (None, [Region("long", 200, 260), Region("s3", 3, 9)]):
        options: dict[str, Any] = {"settings": settings, "regions": regions, "circular": ["long"], **CUT}
        alone = content(predict(MIXED, model, **options))
        assert content(predict(MIXED, model, workers=three, **options)) == alone


def test_reads_of_many_lengths(model: Genoformer, three: Workers) -> None:
    rng = np.random.default_rng(0)
    lengths = rng.integers(1, 250, 14)
    reads = Memory(*((f"r{n}", random_bases(int(length), n)) for n, length in enumerate(lengths)))
    alone = content(predict(reads, model, **CUT))
    assert content(predict(reads, model, workers=three, **CUT)) == alone
    assert len({len(values) for _, _, values in alone}) > 8


def test_whatever_is_done(model: Genoformer, three: Workers) -> None:
    plan = make_plan(MIXED, **CUT)
    for seed in range(2):
        done = np.random.default_rng(seed).random(len(plan.owned)) < 0.3 + 0.4 * seed
        options: dict[str, Any] = {"settings": Settings(batch_size=2), "done": done}
        alone = content(predict_plan(plan, MIXED, model, **options))
        assert content(predict_plan(plan, MIXED, model, workers=three, **options)) == alone


def test_projections(model: Genoformer, three: Workers, tmp_path: Path) -> None:
    references = {"c": random_bases(900, 1).decode(), "d": random_bases(400, 2).decode()}
    aligned = random_reads(np.random.default_rng(0), list(references.values()), 15)
    path = write_alignments(tmp_path / "x.bam", {name: len(bases) for name, bases in references.items()}, aligned)
    reads = open_sequences(path)
    plan = plan_projection(reads, window=100, overlap=10)

    def blocks(workers: Workers | None) -> list[tuple[str, int, bytes]]:
        return content(project_plan(plan, reads, model, settings=Settings(), workers=workers))

    assert blocks(three) == blocks(None)


def test_stores_and_shards(model: Genoformer, three: Workers, tmp_path: Path) -> None:
    sequences = open_sequences(LAMBDA)
    plan = make_plan(sequences, window=6000, overlap=300)
    settings = Settings(strand_average=False)
    for shard in (None, Shard(2, 3)):
        found = []
        for name, workers in (("one", None), ("many", three)):
            path, seen = tmp_path / f"{name}{shard is None}.h5", []
            options: dict[str, Any] = {"settings": settings, "report": seen.append}
            predict_to_store(plan, sequences, model, Output(path, shard=shard), workers=workers, **options)
            found.append((*stored(path), seen))
        assert found[0] == found[1]
        with open_store(path, allow_incomplete=True) as store:
            assert store.metadata["device"] == "3 processes on cpu, 1 thread each"


def test_a_model_is_sent_as_it_is_now(folder: Path) -> None:
    changed = load_model(folder).double()
    with torch.no_grad():
        changed.heads[NAME].output.bias[2] += 1
    short = Memory(("x", random_bases(50)))
    with Workers(changed, processes=1, threads=1) as workers:
        assert content(predict(short, changed, workers=workers)) == content(predict(short, changed))
        assert str(workers) == "1 process on cpu, 1 thread each"


def test_the_identity_does_not_tell(model: Genoformer, three: Workers) -> None:
    plan = make_plan(MIXED, **CUT)
    one, many = (provenance(plan, model, Settings(), workers=each) for each in (None, three))
    assert one.pop("device") != many.pop("device")
    assert one == many


# What goes wrong


def test_an_error_is_the_one_of_one_process(model: Genoformer, three: Workers) -> None:
    poisoned = Settings(genetic_code=POISONED)
    blocks: list[Block] = []
    with pytest.raises(InputError, match=r"^poison: is bad$"):
        blocks.extend(predict(MIXED, model, settings=poisoned, workers=three, **CUT))
    assert blocks == []  # the first batch is a long one
    short = Memory(*((f"s{n}", random_bases(30 + n, n)) for n in range(9)), ("long", random_bases(300, 1)))
    with pytest.raises(InputError, match=r"^poison: is bad$"):
        blocks.extend(predict(short, model, settings=poisoned, workers=three, **CUT))
    assert len(content(predict(short, model, workers=three, **CUT))) > len(blocks)  # they are still there


def test_numbers_that_are_none_are_found(folder: Path, three: Workers) -> None:
    broken = load_model(folder)
    plan = make_plan(MIXED, **CUT)

    class Broken:
        devices = three.devices

        def values(self, *arguments: Any) -> Iterator[Any]:
            for batch, values in three.values(*arguments):
                yield batch, {name: np.full_like(array, np.nan) for name, array in (values or {}).items()}

    with pytest.raises(ResourceError, match=r"^memory: long:1-\d+: track 'coding-frame': the model gave NaN at"):
        list(predict_plan(plan, MIXED, broken, settings=Settings(), workers=Broken()))  # type: ignore[arg-type]


def test_memory_that_runs_out_there_is_told_here(
    model: Genoformer, three: Workers, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING, logger="genoformer")
    alike = Memory(*((f"s{n}", random_bases(60, n)) for n in range(8)))
    settings = Settings(genetic_code=SHORT_OF_MEMORY, batch_size=4)
    blocks = list(predict(alike, model, settings=settings, workers=three, window=60, overlap=6))
    assert len(blocks) == 8
    assert any("(cpu): out of memory at memory: s0:1-60: batches of 2 instead of 4" in said for said in caplog.messages)


def test_what_cannot_be_sent_or_shared_out(model: Genoformer, folder: Path) -> None:
    nameless = load_model(folder)
    nameless.config = None
    with pytest.raises(ConfigError, match="does not know its configuration"):
        Workers(nameless)
    with pytest.raises(ConfigError, match="only GPUs can be several"):
        Workers(model, device="cpu,cpu")


def test_a_killed_worker_ends_it_and_the_rest_is_resumed(model: Genoformer, three: Workers, tmp_path: Path) -> None:
    sequences = open_sequences(LAMBDA)
    plan = make_plan(sequences, window=1500, overlap=100)
    paths = [tmp_path / name for name in ("whole.h5", "cut.h5")]
    options: dict[str, Any] = {"settings": Settings(strand_average=False)}
    predict_to_store(plan, sequences, model, paths[0], **options)
    with Workers(model, processes=2, threads=2) as workers:
        pids = workers.pids
        calls: list[int] = []

        def killing(bases: int) -> None:
            calls.append(bases)
            if len(calls) == 4:
                os.kill(pids[1], signal.SIGKILL)

        with pytest.raises(
            ResourceError, match=r"^process 2 \(cpu\)( at .*NC_001416.1:[\d-]+)?: the process was killed"
        ):
            predict_to_store(plan, sequences, model, paths[1], report=killing, workers=workers, **options)
    assert_gone(*pids)
    assert part_path(paths[1]).exists()
    assert not paths[1].exists()
    rest = Output(paths[1], resume=True)
    predict_to_store(plan, sequences, model, rest, workers=three, report=calls.append, **options)
    assert sum(calls[-len(plan.owned) :]) >= plan.accounting.predicted - sum(calls[:4])
    assert stored(paths[1]) == stored(paths[0])


# The command line


def children(pid: int) -> list[int]:
    tasks = Path(f"/proc/{pid}/task").iterdir()
    return [int(word) for task in tasks for word in (task / "children").read_text().split()]


def long_input(path: Path) -> Path:
    return write_fasta(path, {"a": random_bases(200_000)})


def words(folder: Path, source: Path, output: Path) -> list[str]:
    cut = ["--window", "400", "--overlap", "40", "--genetic-code", "11", "--no-strand-average"]
    return ["predict", str(source), "-o", str(output), "--model", str(folder), *cut]


STARTED = """
    import signal, sys
    signal.signal(signal.SIGINT, signal.default_int_handler)  # in background jobs it would be ignored
    import genoformer.cli.progress as progress
    progress.LOG_SECONDS = 0
    from genoformer.cli import main
    main()
"""


def stopped(number: signal.Signals, *arguments: str) -> tuple[int, str, list[int]]:
    """Run a command until it is well underway, send it a signal; return exit code, words, and its processes."""
    code = "\n".join(line.strip() for line in STARTED.splitlines())
    with subprocess.Popen([sys.executable, "-c", code, *arguments], stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        lines = []
        for line in process.stderr:
            lines.append(line)
            if "b/s" in line or '"progress"' in line:
                break
        pids = children(process.pid)
        process.send_signal(number)
        lines.append(process.stderr.read())
        return process.wait(120), "".join(lines), pids


def test_sigterm_finishes_what_is_underway(folder: Path, tmp_path: Path) -> None:
    source = long_input(tmp_path / "x.fa")
    given = words(folder, source, tmp_path / "x.h5")
    code, said, pids = stopped(signal.SIGTERM, *given, "--processes", "2", "--threads", "2")
    assert code == 130, said
    assert "on 2 processes on cpu, 1 thread each, genetic code 11" in said
    assert "SIGTERM: stops after what is underway; a second signal ends it at once" in said
    assert "goes on where it stopped: genoformer predict --resume" in said
    assert len(pids) == 2
    assert_gone(*pids)
    with open_store(tmp_path / "x.h5.part", allow_incomplete=True) as store:
        assert 360 < int(store.predicted_counts().sum()) < 200_000


@pytest.mark.slow
def test_a_killed_command_leaves_no_process_and_goes_on(folder: Path, tmp_path: Path) -> None:
    source = long_input(tmp_path / "x.fa")
    given = words(folder, source, tmp_path / "x.h5")
    code, _, pids = stopped(signal.SIGKILL, *given, "--processes", "2", "--threads", "2")
    assert code == -signal.SIGKILL
    assert len(pids) == 2
    assert_gone(*pids)
    assert run([*given, "--resume", "--processes", "2", "--threads", "2"]) == 0
    assert run([*words(folder, source, tmp_path / "y.h5"), "--threads", "1"]) == 0
    assert stored(tmp_path / "x.h5") == stored(tmp_path / "y.h5")


@pytest.mark.slow
def test_sigint_as_well_and_json(folder: Path, tmp_path: Path) -> None:
    source = long_input(tmp_path / "x.fa")
    given = words(folder, source, tmp_path / "x.h5")
    code, said, pids = stopped(signal.SIGINT, *given, "--processes", "2", "--log-json")
    assert code == 130
    events = [json.loads(line) for line in said.splitlines()]
    assert events[-1] == {**events[-1], "event": "end", "exit_code": 130}
    assert_gone(*pids)


@pytest.mark.slow
@pytest.mark.parametrize("count", [2, 3])
def test_the_command_writes_the_same_values(
    folder: Path, tmp_path: Path, count: int, capsys: pytest.CaptureFixture[str]
) -> None:
    given = words(folder, LAMBDA, tmp_path / "one.h5")
    assert run([*given, "--threads", "1"]) == 0
    many = words(folder, LAMBDA, tmp_path / "many.h5")
    before = time.monotonic()
    assert run([*many, "--processes", str(count), "--threads", str(count), "--log-json"]) == 0
    assert time.monotonic() - before < 600
    assert stored(tmp_path / "many.h5") == stored(tmp_path / "one.h5")
    lines = [json.loads(line) for line in capsys.readouterr().err.splitlines() if line.startswith("{")]
    assert [line["done"] for line in lines if line["event"] == "progress"][-1] == 48502
