"""Labels through one door: BED classes, bedGraph and bigWig signals, coding sequences; and what must be refused."""

from __future__ import annotations

import gzip
from pathlib import Path

import numpy as np
import pytest
from evaluation_samples import LENGTHS, gff3, true_frames
from hypothesis import given
from hypothesis import strategies as st

from genoformer.errors import FormatError, GenoformerError, InputError
from genoformer.labels import read_labels
from genoformer.tracks import CODING_FRAME, IGNORED, Track

MOTIF = Track("motif", "class", ("none", "one", "two"), "probability", (0, 2, 1))
SITE = Track("site", "class", ("none", "site"), "probability", (0, 1))
COVER = Track("cover", "signal", ("x",), "reads", (0,))
BOTH = Track("both", "signal", ("+", "-"), "reads", (1, 0))
SIZES = {"a": 100, "b": 40}


def write(path: Path, *lines: str) -> Path:
    path.write_text("".join(f"{line}\n" for line in lines))
    return path


def test_coding_sequences(tmp_path: Path) -> None:
    labels = read_labels(gff3(tmp_path / "t.gff"), {**LENGTHS, "c": 7}, CODING_FRAME)
    assert list(labels) == ["a", "b", "c"]
    for name, frames in true_frames().items():
        assert np.array_equal(labels[name], frames)
    assert labels["c"].tolist() == [IGNORED] * 7
    assert labels.notes == [f"the input: 1 sequences are not in {tmp_path / 't.gff'} and left out"]


SPANS = st.lists(
    st.tuples(st.sampled_from("ab"), st.integers(0, 39), st.integers(1, 20), st.sampled_from(["one", "two"])),
    min_size=1, max_size=12,
)  # fmt: skip


@given(SPANS)
def test_classes_are_those_of_a_loop(tmp_path_factory: pytest.TempPathFactory, spans: list) -> None:
    lines = [f"{name}\t{start}\t{min(start + width, 40)}\t{word}" for name, start, width, word in spans]
    labels = read_labels(write(tmp_path_factory.mktemp("x") / "t.bed", *lines), SIZES, MOTIF)
    for name, size in SIZES.items():
        for place in range(size):
            there = {w for n, s, k, w in spans if n == name and s <= place < min(s + k, 40)}
            wanted = {0: 0, 1: MOTIF.channels.index(next(iter(there), "none")), 2: IGNORED}[len(there)]
            assert labels[name][place] == wanted


def test_classes_by_file_and_without_names(tmp_path: Path) -> None:
    one = write(tmp_path / "1.bed", "track name=x", "# words", "", "a 10 20 anything", "a 15 30")
    two = write(tmp_path / "2.bed", "a\t28\t35\tone\t0\t+", "zz\t0\t5")
    labels = read_labels({"one": one, "two": two}, SIZES, MOTIF)
    assert labels["a"][10:35].tolist() == [1] * 18 + [IGNORED] * 2 + [2] * 5
    assert not labels["b"].any()
    assert labels.notes == [f"{two}: 1 of its sequences, with 1 lines, are not in the input and left out"]
    plain = write(tmp_path / "3.bed", "b\t0\t3")
    assert read_labels(plain, SIZES, SITE)["b"][:5].tolist() == [1, 1, 1, 0, 0]


def test_signal_of_bedgraph(tmp_path: Path) -> None:
    path = tmp_path / "x.bedgraph.gz"
    path.write_bytes(gzip.compress(b"track type=bedGraph\nb\t0\t2\t1.5\na\t5\t9\t-2e1\na\t2\t5\t7\n"))
    labels = read_labels(path, SIZES, COVER)
    assert labels["a"].dtype == np.float32
    assert labels["a"].shape == (100, 1)
    assert labels["a"][2:9, 0].tolist() == [7] * 3 + [-20] * 4
    assert np.isnan(labels["a"]).sum() == 93
    assert labels["b"][:2, 0].tolist() == [1.5, 1.5]


def big_wig(path: Path, lengths: dict[str, int], records: list) -> Path:
    pybigtools = pytest.importorskip("pybigtools")
    writer = pybigtools.open(str(path.with_suffix(".bw")), "w")
    writer.write(lengths, iter(records))
    path.with_suffix(".bw").rename(path)
    return path


def test_signals_of_two_strands_by_file(tmp_path: Path) -> None:
    plus = big_wig(tmp_path / "plus", {"a": 100, "b": 40}, [("a", 1, 3, 0.5), ("a", 3, 6, 2.0), ("b", 0, 40, 1.0)])
    minus = write(tmp_path / "minus.bg", "a\t1\t2\t-1")
    labels = read_labels({"+": plus, "-": minus}, {**SIZES, "c": 3}, BOTH)
    assert labels["a"][1:6, 0].tolist() == [0.5, 0.5, 2, 2, 2]
    assert np.isnan(labels["a"][:, 0]).sum() == 95
    assert labels["a"][1, 1] == -1
    assert np.isnan(labels["c"]).all()
    assert not np.isnan(labels["b"][:, 0]).any()


def test_big_wig_of_other_sequences_or_damaged(tmp_path: Path) -> None:
    other = big_wig(tmp_path / "x.bw", {"a": 99, "b": 40}, [("a", 1, 3, 0.5)])
    with pytest.raises(InputError, match=r"x\.bw: sequence 'a' has 99 bases, but 100 in the input"):
        read_labels(other, SIZES, COVER)
    with pytest.raises(InputError, match=r"x\.bw: names 'a', and none of these is in the input, which has 'q'"):
        read_labels(other, {"q": 5}, COVER)
    cut = tmp_path / "cut.bw"
    cut.write_bytes(other.read_bytes()[:200])
    with pytest.raises(FormatError, match=r"cut\.bw: cannot be read as bigWig"):
        read_labels(cut, SIZES, COVER)


@pytest.mark.parametrize(
    ("track", "lines", "words"),
    [
        (MOTIF, ["a\t1\t5\tthree"], r"x: a:2: 'three' in column 4 is no class of track 'motif'; expected one of none"),
        (MOTIF, ["a\t1\t5"], "'' in column 4"),
        (MOTIF, ["a\t1\t101\tone"], r"x: a:2-101 does not lie within the 100 bases"),
        (MOTIF, ["q\t1\t10\tone"], r"x: names 'q', and none of these is in the input, which has 'a', 'b'"),
        (MOTIF, ["# nothing"], "names no sequence"),
        (MOTIF, ["a\tx\t5\tone"], r"x: line 1: is no BED line"),
        (MOTIF, ["a\t9\t5\tone"], "no span"),
        (COVER, ["a\t1\t5"], r"x: line 1: is no bedGraph line"),
        (COVER, ["a\t1\t5\tnan"], "must be a finite number, got 'nan'"),
        (COVER, ["a\t1\t5\t1", "a\t4\t6\t1"], "spans overlap at position 5"),
        (COVER, ["a\t99\t101\t1"], "does not lie within"),
        (BOTH, ["a\t1\t5\t1"], r"has the channels \+, -; give a file for each"),
        (CODING_FRAME, ["##gff-version 3"], "names no sequence"),
    ],
)
def test_what_is_refused(tmp_path: Path, track: Track, lines: list, words: str) -> None:
    with pytest.raises(GenoformerError, match=words):
        read_labels(write(tmp_path / "x", *lines), SIZES, track)


def test_channels_and_files_that_are_not_there(tmp_path: Path) -> None:
    bed = write(tmp_path / "x", "a\t1\t5\tone")
    with pytest.raises(InputError, match="has no channel 'tree'; it has none, one, two"):
        read_labels({"tree": bed}, SIZES, MOTIF)
    with pytest.raises(InputError, match="one annotation, not a file for each"):
        read_labels({"+0": bed}, SIZES, CODING_FRAME)
    for track in (MOTIF, COVER):
        with pytest.raises(InputError, match="no such file"):
            read_labels(tmp_path / "no", SIZES, track)
