"""Projected reads: every value where the CIGAR puts its base, means and depth as a plain loop finds them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pysam
import pytest
from alignment_samples import (
    DUPLICATE,
    REVERSE,
    SECONDARY,
    SUPPLEMENTARY,
    Read,
    aligned_pairs,
    write_alignments,
)
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from prediction_samples import FINE
from projection_samples import (
    CUT,
    LENGTHS,
    _small,
    account,
    assert_close,
    folder,
    model,
    naive,
    project,
    project_file,
    some_reads,
)
from strategies import Aligned, alignments
from tiny import Memory, random_bases

from genoformer import pileup, projection_plan
from genoformer.errors import ConfigError, FormatError, InputError
from genoformer.formats.alignments import ReadFilter
from genoformer.formats.placed import aligned_runs, places_of
from genoformer.formats.sequences import open_sequences
from genoformer.model.genoformer import Genoformer
from genoformer.plan import make_plan
from genoformer.predict import Settings, predict_to_store
from genoformer.projection import project_plan
from genoformer.projection_plan import plan_projection
from genoformer.regions import Region
from genoformer.store import open_store

__all__ = ["_small", "folder", "model"]


# Laws


@pytest.mark.parametrize("seed", range(4))
def test_means_and_depth_are_those_of_a_plain_loop(seed: int, model: Genoformer, tmp_path: Path) -> None:
    path = write_alignments(tmp_path / "x.bam", LENGTHS, some_reads(seed))
    found, plan = project(path, model)
    assert_close(found, naive(path, model))
    depth = np.concatenate([depth for _, depth in found.values()])
    assert plan.accounting.predicted == np.isfinite(depth).sum() > 300
    assert account(plan)["projected"] == np.nansum(depth)
    assert sum(plan.accounting[:4]) == plan.accounting.total == sum(LENGTHS.values())
    with pysam.AlignmentFile(str(path)) as file:
        assert sum(account(plan).values()) == sum(read.query_length for read in file)
    assert account(plan)["masked"] > 50


@settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(drawn=alignments(), start=st.integers(0, 1000), flag=st.sampled_from([0, REVERSE]))
def test_any_cigar_puts_bases_where_a_walk_along_it_comes_to(
    drawn: Aligned, start: int, flag: int, tmp_path: Path
) -> None:
    words = "".join(f"{size}{'MIDNSHP=X'[operation]}" for operation, size in drawn.cigar)
    path = write_alignments(tmp_path / "x.bam", {"c": 10_000}, [Read("r", flag, drawn.bases or None, 0, start, words)])
    with pysam.AlignmentFile(str(path)) as file:
        (read,) = file
    operations, lengths = np.array(read.cigartuples).T
    found = np.stack(places_of(aligned_runs(operations, lengths, read.reference_start)), axis=1)
    assert found.tolist() == [list(pair) for pair in aligned_pairs(read) if None not in pair]
    taken = [record.bases.decode() for record in open_sequences(path).records()]
    assert taken == [read.get_forward_sequence() or ""]


def test_the_opposite_strand_gives_the_mirrored_projection(model: Genoformer, tmp_path: Path) -> None:
    """Strands are averaged, so a read says the same of the reference whichever was sequenced; windows differ."""
    reads = some_reads(1)
    turned = [read._replace(flag=read.flag ^ REVERSE) for read in reads]
    one, _ = project(write_alignments(tmp_path / "x.bam", LENGTHS, reads), model, window=1000)
    other, _ = project(write_alignments(tmp_path / "y.bam", LENGTHS, turned), model, window=1000)
    assert_close(one, other)


def test_a_read_aligned_as_a_whole_gives_its_own_prediction(model: Genoformer, tmp_path: Path) -> None:
    bases = random_bases(LENGTHS["c"], 3)
    path = write_alignments(tmp_path / "x.bam", LENGTHS, [Read("r", 0, bases.decode(), 0, 0, "900M")])
    project_file(path, model, tmp_path / "x.h5")
    plan = make_plan(Memory(("c", bases)), **CUT)
    predict_to_store(plan, Memory(("c", bases)), model, tmp_path / "y.h5", settings=Settings())
    with open_store(tmp_path / "x.h5") as one, open_store(tmp_path / "y.h5") as other:
        np.testing.assert_allclose(one["c"].astype(float), other["c"].astype(float), rtol=0, atol=FINE)
        assert (one.values(Region("c", 0, 900), "depth") == 1).all()


@pytest.mark.parametrize(
    "wanted",
    [{"min_mapq": 30}, {"min_length": 50}, {"include_flags": 1}, {"exclude_flags": DUPLICATE}, {"exclude_flags": 1}],
)
def test_filters_are_those_of_plain_reads(wanted: dict[str, int], model: Genoformer, tmp_path: Path) -> None:
    rng = np.random.default_rng(5)
    flags = [0, 1, REVERSE, SECONDARY, SUPPLEMENTARY, DUPLICATE | 1]
    reads = [read._replace(mapq=int(rng.integers(60))) for read in some_reads(5, 60, flags=flags)]
    path = write_alignments(tmp_path / "x.bam", LENGTHS, reads)
    reads_filter = ReadFilter(**wanted)
    found, plan = project(path, model, reads=reads_filter)
    assert_close(found, naive(path, model, taken=lambda read: reads_filter.reason_against(read) is None))
    plain = make_plan(open_sequences(path, reads=reads_filter))
    assert plan.left_out == plain.left_out
    assert plan.made_by["how"].startswith(f"mean of the predictions of {len(plain.sequences)} reads")


def test_regions_have_the_values_of_the_whole(model: Genoformer, tmp_path: Path) -> None:
    path = write_alignments(tmp_path / "x.bam", LENGTHS, some_reads(2))
    whole, _ = project(path, model)
    regions = [Region("c", 50, 51), Region("c", 60, 300), Region("x/y", 400, 500)]
    found, plan = project(path, model, regions=regions)
    for region in regions:
        for part, expected in zip(found[region.sequence], whole[region.sequence], strict=True):
            span = slice(region.start, region.end)
            np.testing.assert_allclose(part[span], expected[span], rtol=0, atol=FINE)
            part[span] = np.nan
    assert all(np.isnan(part).all() for parts in found.values() for part in parts)
    assert account(plan)["elsewhere"] > 0
    assert plan.accounting.not_requested == sum(LENGTHS.values()) - 341


# Faults


def test_first_and_last_bases_and_reads_beyond_the_end(model: Genoformer, tmp_path: Path) -> None:  # faults 26
    reads = [
        Read("first", 0, "A", 0, 0, "1M"),
        Read("over", REVERSE, "ACGTACGTAC", 0, 895, "10M"),
        Read("insertion", 0, "GGGG", 2, 499, "1S1M2I"),
        Read("nothing aligned", 0, "GGGG", 2, 499, "4S"),
    ]
    path = write_alignments(tmp_path / "x.bam", LENGTHS, reads)
    found, plan = project(path, model)
    assert_close(found, naive(path, model))
    assert account(plan) == {"projected": 7, "masked": 0, "inserted": 2, "clipped": 5, "elsewhere": 5}


def test_reads_without_a_place_or_a_sequence_are_counted(model: Genoformer, tmp_path: Path) -> None:
    reads = [
        Read("r", 0, "ACGT", 0, 5, "4M"),
        Read("none", 0, None, 0, 7, "4M"),
        Read("second", SECONDARY, None, 0, 8, "4M"),
        Read("u", 4, "ACGT", -1, -1, None),
    ]
    found, plan = project(write_alignments(tmp_path / "x.bam", LENGTHS, reads), model)
    assert plan.left_out == {"without sequence": 2, "not mapped": 1}
    assert np.nansum(found["c"][1]) == 4


def test_beyond_what_bai_can_index(model: Genoformer, tmp_path: Path) -> None:  # faults 21
    path = write_alignments(tmp_path / "x.bam", {"b": 600_000_000}, [Read("r", 0, "ACGTAC", 0, 590_000_000, "6M")])
    sequences = open_sequences(path)
    for regions in (None, [Region("b", 590_000_002, 600_000_000)]):
        plan = plan_projection(sequences, regions=regions)
        (block,) = project_plan(plan, sequences, model, settings=Settings())
        depth = block.values["depth"][:, 0]
        assert block.start + np.flatnonzero(depth == 1)[0] == 590_000_000 + 2 * (regions is not None)
        assert np.nansum(depth) == 6 - 2 * (regions is not None)


@pytest.mark.parametrize("kind", ["cram", "sam", "unsorted header"])
def test_other_kinds_of_files_give_the_same(kind: str, model: Genoformer, tmp_path: Path) -> None:  # faults 17
    reads = some_reads(4)
    expected, _ = project(write_alignments(tmp_path / "x.bam", LENGTHS, reads), model)
    if kind == "cram":
        options = {"mode": "wc", "format_options": [b"no_ref=1"]}
    else:
        options = {"mode": "w"} if kind == "sam" else {"order": "unsorted"}
    found, _ = project(write_alignments(tmp_path / "y", LENGTHS, reads, **options), model)
    assert_close(found, expected)


def test_what_cannot_be_projected_is_refused(tmp_path: Path) -> None:
    some = [Read("a", 0, "ACGT", 0, 50, "4M"), Read("b", 0, "ACGT", 0, 5, "4M")]
    path = write_alignments(tmp_path / "x.bam", LENGTHS, some)
    with pytest.raises(InputError, match=r"x\.bam: is not sorted by position, which --project needs.*samtools sort"):
        plan_projection(open_sequences(path))
    path = write_alignments(tmp_path / "u.bam", LENGTHS, [Read("u", 4, "ACGT", -1, -1, None)])
    with pytest.raises(InputError, match=r"u\.bam: no read to project is aligned \(1 not mapped\)"):
        plan_projection(open_sequences(path))
    with pytest.raises(ConfigError, match="not circular"):
        plan_projection(open_sequences(path), circular=["c"])
    with pytest.raises(ConfigError, match="--project"):
        plan_projection(open_sequences(path, bam_as="consensus"))
    with pytest.raises(ConfigError, match="--project"):
        plan_projection(Memory(("a", b"ACGT")))


def test_a_cigar_that_does_not_fit_is_refused(tmp_path: Path) -> None:
    path = write_alignments(tmp_path / "x.bam", LENGTHS, [Read("r", 0, "ACGT", 0, 5, "2M1B2M")])
    with pytest.raises(FormatError, match=r"x\.bam: .*CIGAR|damaged"):
        plan_projection(open_sequences(path))


def test_an_end_may_come_between_blocks(model: Genoformer, tmp_path: Path) -> None:
    path = write_alignments(tmp_path / "x.bam", LENGTHS, some_reads(0))
    ticks = []

    def interrupt(bases: int) -> None:
        ticks.append(bases)
        if len(ticks) == 5:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        project_file(path, model, tmp_path / "x.h5", report=interrupt)
    assert 0 in ticks[1:]
    project_file(path, model, tmp_path / "x.h5", resume=True)


def test_the_longest_reads_are_kept_and_no_more() -> None:
    longest, lengths = projection_plan._Longest(), np.random.default_rng(0).integers(1, 90_000, 3000)
    for length in lengths:
        longest.add(b"A" * length)
    kept = [len(bases) for bases in longest.reads()]
    assert kept == sorted(lengths, reverse=True)[: len(kept)]
    assert sum(kept[:-1]) < 200_000 or len(kept) <= 4
    for _ in range(3000):
        longest.add(b"A" * 90)
    assert len(longest.reads()) <= 500


def test_memory_is_that_of_what_reads_still_reach() -> None:
    cells = pileup.Cells({"a": 10_000, "b": 10_000})
    most = 0
    gathered = pileup.Pileup(cells, lambda cell: np.zeros(cell.end - cell.start))
    closed = []
    for sequence in (0, 1):
        for start in range(0, 9_900, 7):
            closed += [cell for cell, _ in gathered.before(sequence, start)]
            for sums, within, _ in gathered.at(sequence, np.array([start, start + 1, start + 90])):
                sums[within] += 1
            most = max(most, len(gathered._open))
    closed += [cell for cell, _ in gathered.rest()]
    assert most <= 3
    assert closed == sorted(closed)
    assert len(closed) == len(set(closed)) == 2 * len(cells.of(0))
