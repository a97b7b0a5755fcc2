"""Writing: any order, any interruption, one result; what cannot be written is refused before anything is lost."""

from __future__ import annotations

import random
import subprocess
import sys
from pathlib import Path

import h5py
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from store_samples import LENGTHS, NAMES, SIGNAL, begin, block, expected, spans, table, write_all

from genoformer.errors import ConfigError, FormatError, ResourceError
from genoformer.regions import Block, Region
from genoformer.store import SequenceTable, TrackStore, TrackWriter, open_store, part_path
from genoformer.tracks import TOKENS, Track

TOTAL = sum(LENGTHS)


def values_of(path: Path) -> np.ndarray:
    with h5py.File(path) as file:
        return file["tracks/signal/values"][:]


@settings(max_examples=20)
@given(
    size=st.sampled_from([7000, 40_000, 100_000]),
    order=st.randoms(use_true_random=False),
    commit_bytes=st.sampled_from([1, 100_000, 1 << 30]),
    stops=st.lists(st.integers(0, 15), max_size=3),
)
def test_order_batches_and_interruptions_do_not_matter(
    size: int, order: random.Random, commit_bytes: int, stops: list[int], tmp_path_factory: pytest.TempPathFactory
) -> None:
    path = tmp_path_factory.mktemp("store") / "s.h5"
    for stop in [*stops, None]:
        with begin(path, size, resume=True) as writer:
            writer.commit_bytes = commit_bytes
            left = [i for i in range(len(writer.blocks)) if not writer.is_done(i)]
            order.shuffle(left)
            for i in left[:stop]:
                writer.write(block(writer.sequences, writer.blocks[i]))
            if stop is None:
                writer.finish()
    assert np.array_equal(values_of(path), expected(0, TOTAL))
    assert not part_path(path).exists()
    with open_store(path) as store:
        assert store.status == "complete"
        assert store.sequences.status == ["predicted", "predicted", "predicted", "predicted", "pending", "predicted"]


def test_the_part_tells_what_is_done_and_the_rest_is_nan(tmp_path: Path) -> None:
    path = tmp_path / "s.h5"
    with begin(path) as writer:
        for i in (3, 90, 4):
            writer.write(block(writer.sequences, writer.blocks[i]))
        writer.set_status(4, "skipped", "empty: Ünïcode \udcff")
        assert np.flatnonzero(writer.done).tolist() == [3, 4, 90]
    assert not path.exists()
    with h5py.File(part_path(path)) as file:
        assert np.flatnonzero(file["progress/done"][:]).tolist() == [3, 4, 90]
        has = ~np.isnan(file["tracks/signal/values"][:]).any(axis=1)
        planned = np.zeros(TOTAL, dtype=bool)
        for start, end in file["progress/blocks"][:][[3, 4, 90]]:
            planned[start:end] = True
    assert np.array_equal(has, planned)
    with begin(path, resume=True) as writer:
        assert writer.resumed
        assert (writer.sequences.status[4], writer.sequences.reason[4]) == ("skipped", "empty: Ünïcode \udcff")


def test_an_exception_leaves_what_was_written(tmp_path: Path) -> None:
    path = tmp_path / "s.h5"
    with pytest.raises(ZeroDivisionError), begin(path) as writer:  # noqa: PT012
        writer.write(block(writer.sequences, writer.blocks[0]))
        raise ZeroDivisionError
    with begin(path, resume=True) as writer:
        assert np.flatnonzero(writer.done).tolist() == [0]


def test_an_interrupt_inside_hdf5_keeps_the_last_commit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "s.h5"
    with pytest.raises(KeyboardInterrupt), begin(path) as writer:  # noqa: PT012
        writer.write(block(writer.sequences, writer.blocks[0]))
        writer.commit()
        writer.write(block(writer.sequences, writer.blocks[1]))

        def interrupt(*_: object) -> None:
            raise KeyboardInterrupt

        monkeypatch.setattr(writer._file, "commit", interrupt)
        writer.commit()
    with begin(path, resume=True) as writer:
        assert np.flatnonzero(writer.done).tolist() == [0]


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"start": 1}, "not one of the planned"),
        ({"start": -1000}, "not one of the planned"),
        ({"sequence": "."}, "not one of the planned"),
        ({"values": {"other": expected(0, 700)}}, "tracks"),
        ({"values": {"signal": expected(0, 700)[:, :1]}}, "shape"),
        ({"values": {"signal": expected(0, 700).astype(np.float64) + 1e6}}, "float16"),
        ({"sequence": "a/b", "start": 701 + 1000}, "not one of the planned"),
    ],
)
def test_blocks_that_do_not_fit_are_refused(change: dict, why: str, tmp_path: Path) -> None:
    with begin(tmp_path / "s.h5") as writer:
        good = block(writer.sequences, writer.blocks[0])
        with pytest.raises(ValueError, match=why):
            writer.write(good._replace(**change))
        writer.write(good)
        with pytest.raises(ValueError, match="written before"):
            writer.write(good)


@pytest.mark.parametrize(
    "plan", [[(5, 5)], [(0, 10), (5, 20)], [(10, 20), (0, 5)], [(699, 702)], [(-1, 3)], [(0, TOTAL + 1)]]
)
def test_a_plan_that_cannot_be_is_refused(plan: list, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="planned"):
        begin(tmp_path / "s.h5", blocks=np.array(plan))
    assert list(tmp_path.iterdir()) == []


def test_finish_counts_what_is_missing(tmp_path: Path) -> None:
    path = tmp_path / "s.h5"
    writer = begin(path)
    writer.write(block(writer.sequences, writer.blocks[0]))
    with pytest.raises(ResourceError, match=r"93 of 94 planned blocks were not written; run again with --resume"):
        writer.finish()
    assert part_path(path).exists()
    assert not path.exists()


def test_nothing_is_overwritten_unasked(tmp_path: Path) -> None:
    path = tmp_path / "s.h5"
    begin(path).close()
    with pytest.raises(
        ConfigError, match=r"s.h5.part: an interrupted run; use --resume to continue it, or --overwrite"
    ):
        begin(path)
    part_path(path).unlink()
    path.write_bytes(b"precious")
    for resume in (False, True):
        with pytest.raises(ConfigError, match=r"s.h5: exists already; use --overwrite"):
            begin(path, resume=resume)
    with begin(path, overwrite=True) as writer:
        writer.write(block(writer.sequences, writer.blocks[0]))
    assert path.read_bytes() == b"precious"  # until the new one is whole
    with begin(path, overwrite=True, resume=True) as writer:
        assert writer.is_done(0)
    with begin(path, overwrite=True) as writer:
        assert not writer.is_done(0)
    with pytest.raises(ConfigError, match="folder"):
        begin(tmp_path, overwrite=True)
    with pytest.raises(ConfigError, match="device"):
        begin(Path("/dev/null"), overwrite=True)


@pytest.mark.parametrize(
    ("options", "why"),
    [
        ({"provenance": {"identity": {"model": "other"}}}, "model was 'm', now 'other'"),
        ({"provenance": {"identity": {"model": "m", "window": 5}}}, "window was None, now 5"),
        ({"blocks": spans(table(), 999)}, "the planned blocks differ"),
        ({"sequences": SequenceTable.build(["a", *NAMES[1:]], LENGTHS)}, "sequence 1 has name 'a/b', in the input 'a'"),
        ({"sequences": table(md5=["0" * 32] * 6)}, "sequence 1 has md5"),
        ({"sequences": SequenceTable.build(NAMES[:5], LENGTHS[:5])}, "has 6 sequences, the input 5"),
        ({"dtype": "uint8"}, "values are float16, now uint8"),
    ],
)
def test_only_the_same_run_is_continued(options: dict, why: str, tmp_path: Path) -> None:
    path = tmp_path / "s.h5"
    begin(path).close()
    before = part_path(path).read_bytes()
    with pytest.raises(ConfigError, match=why) as caught:
        begin(path, resume=True, **options)
    assert "s.h5.part: was begun by another run" in str(caught.value)
    assert part_path(path).read_bytes() == before
    begin(path, resume=True, provenance={"identity": {"model": "m"}, "date": "later"}).close()


def test_another_length_or_track_is_another_run(tmp_path: Path) -> None:
    path = tmp_path / "s.h5"
    plan = np.array([[0, 10]])
    begin(path, blocks=plan).close()
    with pytest.raises(ConfigError, match="sequence 'HLA-A\\*01:01' has 333 bases, in the input 334"):
        begin(path, blocks=plan, resume=True, sequences=SequenceTable.build(NAMES, [*LENGTHS[:-1], 334]))
    with pytest.raises(ConfigError, match="its tracks are signal, now tokens"):
        TrackStore.create(path, table(), [TOKENS], provenance={}, blocks=plan, resume=True)


@pytest.mark.parametrize("content", [b"", b"not HDF5" * 100, "hdf5", "truncated"])
def test_a_part_that_is_none_is_refused_with_a_remedy(content: bytes | str, tmp_path: Path) -> None:
    path = tmp_path / "s.h5"
    if content == "hdf5":
        with h5py.File(part_path(path), "w") as file:
            file["x"] = 1
    elif content == "truncated":
        begin(path).close()
        part_path(path).write_bytes(part_path(path).read_bytes()[:3000])
    else:
        part_path(path).write_bytes(bytes(content))  # type: ignore[arg-type]
    with pytest.raises(FormatError, match=r"s\.h5\.part: .*; delete it, or use --overwrite") as caught:
        begin(path, resume=True)
    assert "\n" not in str(caught.value)
    begin(path, overwrite=True).close()


def test_a_kill_just_before_the_rename_is_finished_by_resume(tmp_path: Path) -> None:
    path = write_all(tmp_path / "s.h5")
    path.rename(part_path(path))
    with begin(path, resume=True) as writer:
        assert writer.done.all()
        writer.finish()
    assert np.array_equal(values_of(path), expected(0, TOTAL))


def test_two_runs_do_not_write_one_file(tmp_path: Path) -> None:
    path = tmp_path / "s.h5"
    with begin(path):
        for options in ({"resume": True}, {"overwrite": True}):
            with pytest.raises(ResourceError, match="in use by another process"):
                begin(path, **options)
        with pytest.raises(ResourceError, match="in use by another process"):
            open_store(part_path(path), allow_incomplete=True)


def test_no_such_folder(tmp_path: Path) -> None:
    with pytest.raises(ResourceError, match=r"s.h5.part: cannot open: No such file or directory; create the folder"):
        begin(tmp_path / "none" / "s.h5")


def test_codes_are_stored_as_bytes(tmp_path: Path) -> None:
    path = tmp_path / "s.h5"
    sequences = SequenceTable.build(["a"], [300])
    plan = np.array([[100, 200]])
    with TrackStore.create(path, sequences, [TOKENS], provenance={}, blocks=plan, dtype="uint8") as writer:
        for bad in (np.full(100, 256), np.full(100, -1), np.full(100, 0.5)):
            with pytest.raises(ValueError, match="integers from 0 to 255"):
                writer.write(Block("a", 100, {"tokens": bad}))
        writer.write(Block("a", 100, {"tokens": np.arange(100, dtype=np.uint8)}))
        writer.finish()
    with open_store(path) as store:
        assert store["a"][:, 0].tolist() == [255] * 100 + list(range(100)) + [255] * 100


@pytest.mark.parametrize("name", ["a/b", ".", "", "a\n"])
def test_track_names_are_groups(name: str, tmp_path: Path) -> None:
    track = Track(name=name, kind="signal", channels=("x",), units="", reverse_complement=(0,))
    with pytest.raises(ConfigError, match="track"):
        TrackStore.create(tmp_path / "s.h5", table(), [track], provenance={}, blocks=np.empty((0, 2)))


def test_a_huge_axis_costs_what_is_written(tmp_path: Path) -> None:
    path = tmp_path / "s.h5"
    sequences = SequenceTable.build(["chr1"], [3_000_000_000])
    with begin(path, sequences=sequences, blocks=np.array([[2_000_000_000, 2_000_001_000]])) as writer:
        writer.write(block(sequences, writer.blocks[0]))
        writer.finish()
    assert path.stat().st_size < 100_000
    with open_store(path) as store:
        assert np.array_equal(store["chr1", 2_000_000_000:2_000_001_000], expected(2_000_000_000, 2_000_001_000))
        assert np.isnan(store["chr1", -5:]).all()


def test_many_small_blocks_cost_few_commits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "s.h5"
    commits = 0
    commit = TrackWriter.commit

    def counted(writer: TrackWriter) -> None:
        nonlocal commits
        commits += 1
        commit(writer)

    monkeypatch.setattr(TrackWriter, "commit", counted)
    sequences = SequenceTable.build([f"s{i}" for i in range(2000)], [300] * 2000)
    with begin(path, sequences=sequences, size=300) as writer:
        writer.commit_seconds = 1e9
        for span in writer.blocks:
            writer.write(block(sequences, span))
        writer.finish()
    assert commits == 0
    assert np.array_equal(values_of(path), expected(0, 600_000))


def test_an_input_without_bases_makes_a_valid_empty_store(tmp_path: Path) -> None:
    for i, lengths in enumerate(([], [0, 0])):
        sequences = SequenceTable.build([f"s{j}" for j in range(len(lengths))], np.array(lengths, dtype=np.int64))
        with begin(tmp_path / f"{i}.h5", sequences=sequences) as writer:
            writer.finish()
        with open_store(tmp_path / f"{i}.h5") as store:
            assert list(store.blocks()) == []
            assert len(store.sequences) == len(lengths)


FULL_DISK = """
import resource, sys
sys.path[:0] = [{tests!r}]
from store_samples import *
from genoformer.errors import ResourceError
from pathlib import Path
path = Path(sys.argv[1])
begin(path).close()
resource.setrlimit(resource.RLIMIT_FSIZE, (int(sys.argv[2]), int(sys.argv[2])))
try:
    with begin(path, resume=True) as writer:
        writer.commit_bytes = 50_000
        for i, span in enumerate(writer.blocks):
            if not writer.is_done(i):
                writer.write(block(writer.sequences, span))
        writer.finish()
except ResourceError as error:
    print(error)
    raise SystemExit(3)
"""


@pytest.mark.parametrize("limit", [27_000, 36_000])
def test_a_full_disk_ends_with_a_message_and_can_be_resumed(limit: int, tmp_path: Path) -> None:
    path = tmp_path / "s.h5"
    script = FULL_DISK.format(tests=str(Path(__file__).parents[1]))
    run = subprocess.run(
        [sys.executable, "-c", script, str(path), str(limit)], capture_output=True, text=True, timeout=60, check=False
    )
    assert (run.returncode, run.stderr) == (3, "")
    assert run.stdout.startswith(f"{part_path(path)}: cannot write: File too large; raise the limit")
    assert run.stdout.count("\n") == 1
    with begin(path, resume=True) as writer:
        for i, span in enumerate(writer.blocks):
            if not writer.is_done(i):
                writer.write(block(writer.sequences, span))
        writer.finish()
    assert np.array_equal(values_of(path), expected(0, TOTAL))


def test_a_full_disk_at_the_start_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> int:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.pwrite", full)
    with pytest.raises(ResourceError, match=r"s.h5.part: cannot write: No space left on device"):
        begin(tmp_path / "s.h5")
    assert list(tmp_path.iterdir()) == []


def test_the_order_of_tracks_and_long_provenance_are_kept(tmp_path: Path) -> None:
    names = ["z", "a", "m"]
    tracks = [SIGNAL.__class__(**{**SIGNAL.__dict__, "name": name}) for name in names]
    provenance = {"identity": {}, "command": "x" * 300_000, "name": "\udcff"}
    path = tmp_path / "s.h5"
    sequences = SequenceTable.build(["s"], [10])
    with TrackStore.create(path, sequences, tracks, provenance=provenance, blocks=np.array([[0, 10]])) as writer:
        writer.write(Block("s", 0, {name: expected(0, 10) + i for i, name in enumerate(names)}))
        writer.finish()
    with open_store(path) as store:
        assert list(store.tracks.values()) == tracks
        assert store.metadata == provenance
        assert [float(store.values(Region("s", 0, 1), name)[0, 0]) for name in names] == [0, 1, 2]
