"""Projected reads: every value where the CIGAR puts its base, means and depth as a plain loop finds them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pysam
import pytest
import torch
from alignment_samples import (
    DUPLICATE,
    REVERSE,
    SECONDARY,
    SUPPLEMENTARY,
    Read,
    aligned_pairs,
    random_reads,
    write_alignments,
)
from prediction_samples import FINE, NAME
from tiny import Memory, random_bases, tiny_config, tiny_model

from genoformer import pileup, projection, projection_plan
from genoformer.errors import ConfigError, FormatError, InputError
from genoformer.formats.alignments import ReadFilter
from genoformer.formats.placed import aligned_runs, places_of
from genoformer.formats.sequences import open_sequences
from genoformer.model.checkpoint import load_model, save_model
from genoformer.model.genoformer import Genoformer
from genoformer.plan import make_plan
from genoformer.predict import Settings, predict_to_store
from genoformer.projection import DEPTH, project_plan, project_to_store
from genoformer.projection_plan import Projection, plan_projection
from genoformer.regions import Region
from genoformer.store import Shard, merge_shards, open_store, part_path
from genoformer.tracks import CODING_FRAME

LENGTHS = {"c": 900, "empty:1-9": 70, "x/y": 500}
CUT = {"window": 40, "overlap": 10}
MIRROR = list(CODING_FRAME.reverse_complement)
Values = dict[str, tuple[np.ndarray, np.ndarray]]


@pytest.fixture(autouse=True)
def _small(monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory) -> None:
    """Make cells and groups small, so that reads reach over their borders."""
    monkeypatch.setattr(pileup, "CELL", 64)
    monkeypatch.setattr(projection, "_GROUP_BASES", 400)
    monkeypatch.setattr(projection, "_GROUP_SPAN", 150)
    monkeypatch.setenv("GENOFORMER_CACHE", str(tmp_path_factory.getbasetemp() / "cache"))


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    torch.manual_seed(0)
    folder = tmp_path_factory.mktemp("model")
    config = tiny_config()
    save_model(folder, tiny_model(config), config, name="tiny")
    return folder


@pytest.fixture(scope="module")
def model(folder: Path) -> Genoformer:
    return load_model(folder)


def some_reads(seed: int, count: int = 40, **options: Any) -> list[Read]:
    rng = np.random.default_rng(seed)
    references = [random_bases(length, seed + number).decode() for number, length in enumerate(LENGTHS.values())]
    drawn = [read for read in random_reads(rng, references, count, **options) if read.sequence != 1]
    drawn[3] = drawn[3]._replace(bases="N" * len(drawn[3].bases or ""))
    gapped = Read("gapped", REVERSE, "ACGTA" + "N" * 60 + "TTGCAACG", 2, 300, "2S40M3I15M5N10M3S")
    return sorted([*drawn, gapped], key=lambda read: (read.sequence, read.start))


def naive(path: Path, model: Genoformer, *, taken: Any = lambda read: True) -> Values:
    """Predict each read alone, as it was sequenced, and add up its values along its CIGAR, base by base."""
    from genoformer.predict import predict

    sums = {name: np.zeros((length, 7)) for name, length in LENGTHS.items()}
    depth = {name: np.zeros(length) for name, length in LENGTHS.items()}
    with pysam.AlignmentFile(str(path), check_sq=False) as file:
        for read in file:
            wrong = read.flag & (4 | SECONDARY | SUPPLEMENTARY)
            if wrong or not read.query_sequence or not taken(read):
                continue
            values = np.full((read.query_length, 7), np.nan)
            for block in predict(Memory(("r", read.get_forward_sequence().encode())), model, **CUT):
                values[block.start : block.end] = block.values[NAME]
            for on_read, on_reference in aligned_pairs(read):
                if on_read is None or on_reference is None or on_reference >= LENGTHS[read.reference_name]:
                    continue
                value = values[-1 - on_read][MIRROR] if read.is_reverse else values[on_read]
                if not np.isnan(value).any():
                    sums[read.reference_name][on_reference] += value
                    depth[read.reference_name][on_reference] += 1
    with np.errstate(invalid="ignore"):
        return {
            name: (sums[name] / depth[name][:, None], np.where(depth[name], depth[name], np.nan)) for name in LENGTHS
        }


def project(path: Path, model: Genoformer, *, reads: ReadFilter | None = None, **cut: Any) -> tuple[Values, Projection]:
    sequences = open_sequences(path, reads=reads)
    plan = plan_projection(sequences, **{**CUT, **cut})
    found = {name: (np.full((length, 7), np.nan), np.full(length, np.nan)) for name, length in LENGTHS.items()}
    for block in project_plan(plan, sequences, model, settings=Settings(batch_size=3)):
        assert list(block.values) == [NAME, DEPTH.name]
        values, depth = (part[block.start : block.end] for part in found[block.sequence])
        assert np.isnan(depth).all()
        values[:], depth[:] = block.values[NAME], block.values[DEPTH.name][:, 0]
    return found, plan


def assert_close(found: Values, expected: Values) -> None:
    for name in LENGTHS:
        assert np.array_equal(found[name][1], expected[name][1], equal_nan=True)
        np.testing.assert_allclose(found[name][0], expected[name][0], rtol=0, atol=FINE)


def account(plan: Projection) -> dict[str, int]:
    return plan.made_by["counts"]["bases of reads"]


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


def test_runs_are_where_a_walk_along_the_cigar_comes_to() -> None:
    rng = np.random.default_rng(0)
    ends = [[(5, 3), (4, 2)], [(4, 5)], [], [(5, 1)]]
    read = pysam.AlignedSegment(pysam.AlignmentHeader.from_dict({"SQ": [{"SN": "c", "LN": 10_000}]}))
    for _ in range(300):
        read.reference_id, read.reference_start = 0, int(rng.integers(1000))
        inner = [(int(rng.choice([0, 1, 2, 3, 6, 7, 8])), int(rng.integers(1, 9))) for _ in range(rng.integers(1, 12))]
        read.cigartuples = [*ends[rng.integers(4)], *inner, *ends[rng.integers(4)][::-1]]
        operations, lengths = np.array(read.cigartuples).T
        found = np.stack(places_of(aligned_runs(operations, lengths, read.reference_start)), axis=1)
        expected = [pair for pair in aligned_pairs(read) if None not in pair]
        assert found.tolist() == [list(pair) for pair in expected]


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


# Stores


def project_file(path: Path, model: Genoformer, output: Path, **options: Any) -> Path:
    sequences = open_sequences(path)
    plan = plan_projection(sequences, **CUT)
    return project_to_store(plan, sequences, model, output, settings=Settings(batch_size=3), **options)


def stored(path: Path) -> Iterator[np.ndarray]:
    with open_store(path) as store:
        for track in store.tracks:
            yield store.axis_values(0, store.sequences.total_bases, track=track)


def test_interrupted_anywhere_and_resumed_it_is_the_same(model: Genoformer, tmp_path: Path) -> None:
    path = write_alignments(tmp_path / "x.bam", LENGTHS, some_reads(0, 60))
    expected = list(stored(project_file(path, model, tmp_path / "whole.h5")))
    blocks = len(plan_projection(open_sequences(path), **CUT).owned)
    assert blocks > 12
    for stop in range(1, blocks, 5):
        left = stop

        def interrupt(bases: int) -> None:
            nonlocal left
            left -= bases > 0
            if left == 0:
                raise KeyboardInterrupt

        output = tmp_path / f"{stop}.h5"
        with pytest.raises(KeyboardInterrupt):
            project_file(path, model, output, report=interrupt)
        assert part_path(output).exists()
        project_file(path, model, output, resume=True)
        for found, values in zip(stored(output), expected, strict=True):
            assert found.tobytes() == values.tobytes()


@pytest.mark.parametrize("count", [1, 2, 7])
def test_shards_join_to_the_same(count: int, model: Genoformer, tmp_path: Path) -> None:
    path = write_alignments(tmp_path / "x.bam", LENGTHS, some_reads(0, 60))
    expected = list(stored(project_file(path, model, tmp_path / "whole.h5")))
    parts = [
        project_file(path, model, tmp_path / f"{number}.h5", shard=Shard(number, count))
        for number in range(1, count + 1)
    ]
    merge_shards(parts, tmp_path / "merged.h5")
    for found, values in zip(stored(tmp_path / "merged.h5"), expected, strict=True):
        assert found.tobytes() == values.tobytes()


def test_another_file_is_not_resumed_and_a_changed_one_is_noticed(model: Genoformer, tmp_path: Path) -> None:
    path = write_alignments(tmp_path / "x.bam", LENGTHS, some_reads(0))
    sequences = open_sequences(path)
    plan = plan_projection(sequences, **CUT)
    reads = some_reads(0)
    moved = reads[5]._replace(cigar="1D" + (reads[5].cigar or ""))
    write_alignments(path, LENGTHS, [*reads[:5], moved, *reads[6:]])
    assert plan_projection(open_sequences(path), **CUT).digest != plan.digest
    with pytest.raises(InputError, match=r"x\.bam: has changed since it was planned"):
        project_to_store(plan, sequences, model, tmp_path / "x.h5", settings=Settings())
    assert not (tmp_path / "x.h5").exists()
    with pytest.raises(ConfigError, match="another run"):
        project_file(path, model, tmp_path / "x.h5", resume=True)


def test_the_store_tells_the_references(model: Genoformer, tmp_path: Path) -> None:
    digest = "0123456789abcdef" * 2
    lines = {"TP": "circular", "M5": digest.upper()}
    path = write_alignments(tmp_path / "x.bam", LENGTHS, some_reads(0), lines=lines)
    with open_store(project_file(path, model, tmp_path / "x.h5")) as store:
        table = store.sequences
        assert dict(zip(table.names, table.lengths.tolist(), strict=True)) == LENGTHS
        assert set(table.topology) == {"circular"}
        assert set(table.md5) == {digest}
        assert table.status == ["predicted", "skipped", "predicted"]
        assert table.reason == ["", "no read is aligned to it", ""]
        assert store.tracks["depth"] == DEPTH
        assert np.isnan(store["empty:1-9"]).all()
        assert store.metadata["made-by"]["counts"]["bases of reads"]["inserted"] > 0


def test_great_depths_are_stored_as_the_greatest_number() -> None:
    sums = projection._Sums({NAME: np.full((3, 7), 2e5)}, np.array([2e5, 0, 1]))
    with np.errstate(over="ignore"):
        block = sums.block("c", 0)
    assert block.values["depth"][0, 0] == projection.MOST_DEPTH
    assert np.isnan(block.values["depth"][1, 0])
    assert (block.values[NAME][0] == 1).all()


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
