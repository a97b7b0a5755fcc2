"""The simulation of capacity: laws of queues, what trouble costs, and the page that is written from it."""

from __future__ import annotations

from dataclasses import asdict, replace
from pathlib import Path

import capacity
import measure_costs
import numpy as np
import pytest
from capacity_model import KINDS, Case, Setup, computed, disk, good_shard, make_jobs, read_costs, simulate
from click.testing import CliRunner
from workflow_runs import ROOT, find_snakemake

from genoformer.errors import ConfigError, InputError
from genoformer.regions import DEFAULT_OVERLAP, DEFAULT_WINDOW, plan_windows

PAGE = Path(capacity.__file__).with_name("CAPACITY.md")
COSTS = read_costs(capacity.COSTS)
CASES = [Case("one", 1, 40_000_000), Case("many", 9, 3_000_000), Case("contigs", 2, 20_000_000, contigs=True)]
TROUBLE = {"queue_minutes": 3.0, "failures_a_day": 20.0, "spread": 0.2, "slow_share": 0.1, "slow_factor": 3.0}


def work(case: Case, shard_bases: int) -> float:
    """Seconds of all jobs one after the other."""
    return sum(COSTS.schedule + job.start + job.work for job in make_jobs(case, COSTS, shard_bases))


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_one_worker_without_trouble_takes_the_sum_of_all(case: Case) -> None:
    outcome = simulate(case, COSTS, Setup(1, 5_000_000, submitted=1))
    assert outcome.seconds == pytest.approx(COSTS.start_workflow + work(case, 5_000_000))


@pytest.mark.parametrize("trouble", [{}, TROUBLE], ids=["calm", "trouble"])
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_more_workers_are_no_slower_and_no_faster_than_can_be(case: Case, trouble: dict[str, float]) -> None:
    def seconds(workers: int) -> float:
        """Mean of several seeds, which differ in what they draw for the same job."""
        return np.mean([simulate(case, COSTS, Setup(workers, 2_000_000, **trouble), seed=n).seconds for n in range(20)])

    times = [seconds(workers) for workers in (1, 4, 64)]
    assert times[0] > times[1]
    assert times[1] > 0.9 * times[2]
    if not trouble:
        schedule = COSTS.schedule * len(make_jobs(case, COSTS, 2_000_000))
        for workers, time in zip((1, 4, 64), times, strict=True):
            assert time >= (work(case, 2_000_000) - schedule) / workers


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_shares_add_up_and_a_seed_says_everything(case: Case) -> None:
    setup = Setup(4, 2_000_000, **(TROUBLE | {"failures_a_day": 1000.0}))
    one, again, other = (simulate(case, COSTS, setup, seed=seed) for seed in (1, 1, 2))
    assert one == again
    assert one.seconds != other.seconds
    assert set(one.shares) == set(KINDS)
    assert sum(one.shares.values()) == pytest.approx(1, abs=1e-6)
    assert one.shares["lost"] > 0
    assert one.shares["queue"] > 0


def test_a_prediction_that_fails_goes_on_and_an_export_starts_anew() -> None:
    """What predict computes is the same however often it fails; what others lose they do again."""
    case, calm = Case("one", 1, 40_000_000), Setup(1, 40_000_000, submitted=1)
    busy = replace(calm, failures_a_day=1000.0)
    quiet, troubled = simulate(case, COSTS, calm), simulate(case, COSTS, busy, seed=3)
    computed = [outcome.shares["predict"] * outcome.seconds for outcome in (quiet, troubled)]
    assert computed[0] == pytest.approx(computed[1])
    assert troubled.seconds > quiet.seconds
    lost = troubled.seconds - quiet.seconds
    assert lost == pytest.approx(troubled.shares["lost"] * troubled.seconds, rel=0.05)


def test_what_trouble_costs_is_what_it_is_said_to_be() -> None:
    """Two in ten jobs half as fast, and five minutes of queue: means of many."""
    case = Case("many", 400, 1_000_000)
    base = Setup(1, 1_000_000, submitted=1)
    calm = simulate(case, COSTS, base)
    slow = simulate(case, COSTS, replace(base, slow_share=0.2, slow_factor=2.0))
    starts = sum(job.start for job in make_jobs(case, COSTS, 1_000_000))
    worked = calm.seconds - starts - calm.jobs * COSTS.schedule - COSTS.start_workflow
    assert slow.seconds - calm.seconds == pytest.approx(0.2 * worked, rel=0.3)  # sd of some 10%
    waiting = simulate(case, COSTS, replace(base, queue_minutes=5.0))
    assert waiting.seconds - calm.seconds == pytest.approx(300 * calm.jobs, rel=0.1)


def test_disk_holds_shards_and_merged_file_together() -> None:
    case, setup = Case("one", 1, 10_000_000), Setup(8, 1_000_000)
    apart = disk(case, COSTS, replace(setup, shard_bases=10_000_000))
    assert disk(case, COSTS, setup) - apart == pytest.approx(10_000_000 * COSTS.store_bytes)


@pytest.mark.parametrize("bases", [1, 4_000, 100_000, 100_001, 195_000, 195_001, 1_234_567])
def test_what_windows_compute(bases: int) -> None:
    windows = [window.region for window in plan_windows("s", bases, size=DEFAULT_WINDOW, overlap=DEFAULT_OVERLAP)]
    assert computed(bases) == sum(region.end - region.start for region in windows)


@pytest.mark.parametrize("workers", [1, 8, 64, 10_000])
@pytest.mark.parametrize("case", [*CASES, *capacity.CASES], ids=lambda case: case.name)
def test_good_shards_are_round_and_take_minutes_to_hours(case: Case, workers: int) -> None:
    shard = good_shard(case, COSTS, workers)
    assert str(shard).rstrip("0") in ("1", "2", "5")
    speed = COSTS.contigs if case.contigs else COSTS.predict
    assert shard / speed >= 200  # ten minutes, rounded down
    assert shard / speed <= max(4 * 3600, 10 * case.bases / COSTS.scan)


def test_costs_are_checked(tmp_path: Path) -> None:
    path = tmp_path / "costs.toml"
    with pytest.raises(InputError, match=r"costs\.toml: cannot be read"):
        read_costs(path)
    text = capacity.COSTS.read_text()
    for old, new, said in [("predict =", "predicted =", "'predict(ed)?' is"), ("scan =", "scan = 0 #", "scan = 0")]:
        path.write_text(text.replace(f"\n{old}", f"\n{new}"))
        with pytest.raises(ConfigError, match=said):
            read_costs(path)


def test_costs_are_written_as_they_are_read(tmp_path: Path) -> None:
    path = tmp_path / "costs.toml"
    measure_costs.write_costs(replace(COSTS, about={"Processor": "a \"b\" 'c'"}), path)
    found = read_costs(path)
    assert found == COSTS
    assert found.about["Processor"] == "a \"b\" 'c'"
    for name, value in asdict(found).items():
        assert name == "about" or value > 0


def test_data_to_measure_on_is_cut_as_said(tmp_path: Path) -> None:
    (tmp_path / "x.fa").write_text(">a\nACGTACGTAC\n>b\nTTTTT\n>c\n\n>d\nGG\n")
    assert measure_costs.bases_of(tmp_path / "x.fa", 4, skip=8) == b"ACTT"
    assert measure_costs.bases_of(tmp_path / "x.fa", 100, skip=10) == b"TTTTTGG"
    (tmp_path / "y.fna").write_text(">y\nACG\n")
    assert list(measure_costs.stretches(tmp_path, 4)) == [b"ACGT", b"ACGT", b"ACTT", b"TTTG"]
    assert list(measure_costs.cut(b"ACGTACGTA", (2, 3))) == [b"AC", b"GTA", b"CG"]


def test_a_case_of_ones_own() -> None:
    words = ["--bases", "5000000", "--samples", "3", "--workers", "2"]
    said = CliRunner().invoke(capacity.command, words)
    faster = CliRunner().invoke(capacity.command, [*words, "--gpu-bases-per-second", "1e6"])
    assert said.exit_code == faster.exit_code == 0
    assert said.output.startswith("2 workers: ")
    assert said.output != faster.output
    assert CliRunner().invoke(capacity.command, ["--gpu-bases-per-second", "1e6"]).exit_code == 2


def test_the_page_says_what_was_not_measured() -> None:
    text = PAGE.read_text()
    assert "GPUs: none was measured by us" in text
    assert "nan" not in text.lower().replace("nanopore", "")
    for name, value in COSTS.about.items():
        assert f"{name}: {value}." in text


@pytest.mark.slow
def test_the_page_is_what_the_script_writes() -> None:
    assert capacity.page(COSTS) == PAGE.read_text(), "python pipelines/capacity.py --write pipelines/CAPACITY.md"


def test_numbers_are_written_to_be_read() -> None:
    times = [capacity.duration(seconds) for seconds in (3, 119, 121, 7300, 3e5, 1e8)]
    assert times == ["3 s", "120 s", "2 min", "2 h", "3.5 days", "3.2 years"]
    assert [capacity.size(n) for n in (0.051, 999, 1234, 3.1e9)] == ["0.051 B", "1,000 B", "1.2 kB", "3.1 GB"]
    assert np.isfinite(float(capacity.rounded(123456).replace(",", "")))


@pytest.mark.slow
def test_costs_are_measured_and_checked(tmp_path: Path) -> None:
    """The whole script on phage lambda; what it finds says nothing of the machine."""
    find_snakemake()
    written = tmp_path / "costs.toml"
    data = ROOT / "data"
    words = ["--bases", "20000", "--workers", "2"]
    said = CliRunner().invoke(measure_costs.command, [str(data / "lambda.fa.gz"), "-o", str(written), *words])
    assert said.exit_code == 0, said.exception
    assert read_costs(written).about["Data"] == "40,000 bases of lambda.fa.gz"
    words = ["--count", "2", "--bases", "20000", "--workers", "2", "--within", "1000", "--costs", str(written)]
    said = CliRunner().invoke(measure_costs.command, [str(data), "--check", *words], standalone_mode=False)
    assert said.return_value == 0, said.exception
    assert said.output.startswith("2 inputs on 2 workers: predicted ")
