"""Reads: each primary read once, as sequenced, under a name of its own; damage and missing references are refused."""

from __future__ import annotations

import io
import os
import sys
from collections import Counter

import pysam
import pytest
from bam_samples import (
    DUPLICATE,
    FIRST,
    LAST,
    LENGTHS,
    PAIRED,
    QCFAIL,
    REVERSE,
    SECONDARY,
    SUPPLEMENTARY,
    contents,
    header,
    reverse_complement,
    write,
)
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from genoformer.errors import ConfigError, FormatError, GenoformerError, InputError
from genoformer.formats.bam import ReadFilter
from genoformer.formats.sequences import open_sequences, sniff
from genoformer.regions import Region

fast = settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
bases = st.text("ACGTNRYSWKMBDHV", min_size=1, max_size=30)
kinds = st.sampled_from([0, 0, 0, 0, SECONDARY, SUPPLEMENTARY])
flags = st.builds(lambda flag, kind: flag & 0x6FB | kind, st.integers(0, 0x7FF), kinds)  # no unmapped ones
reads = st.tuples(
    st.sampled_from(["r", "s", "r#2", "r/1", "*"]), flags, bases, st.sampled_from([0, 1]), st.integers(0, 370)
)


# Laws


@fast
@given(some=st.lists(reads, max_size=12))
def test_each_primary_read_once_as_sequenced(some, tmp_path):
    sequences = open_sequences(write(tmp_path / "x.bam", some, head=header("unsorted")))
    got = contents(sequences)
    primary = [read for read in some if not read[1] & (SECONDARY | SUPPLEMENTARY)]
    assert [text for _, text in got] == [
        reverse_complement(text) if flag & REVERSE else text for _, flag, text, *_ in primary
    ]
    assert len({name for name, _ in got}) == len(got)
    assert all(name.startswith(read[0]) for (name, _), read in zip(got, primary, strict=True))
    assert len(got) + sum(sequences.counts.values()) == len(some)
    assert contents(sequences) == got  # again the same


@fast
@given(
    some=st.lists(reads, max_size=12),
    places=st.lists(st.tuples(st.integers(0, 1), st.integers(0, 70), st.integers(1, 9)), min_size=1, max_size=4),
)
def test_regions_choose_the_reads_that_overlap_once(some, places, tmp_path):
    some = sorted(
        [(f"n{i}", flag & ~(SECONDARY | SUPPLEMENTARY), *rest) for i, (_, flag, *rest) in enumerate(some)],
        key=lambda read: read[3:],
    )
    sequences = open_sequences(write(tmp_path / "x.bam", some))
    names = list(LENGTHS)
    regions = [Region(names[number], start, min(400, start + size)) for number, start, size in places]
    expected = [
        read[0] for read in some
        if any(Region(names[read[3]], read[4], read[4] + len(read[2])).overlaps(region) for region in regions)
    ]  # fmt: skip
    got = [name.partition("/")[0] for name, _ in contents(sequences, regions=regions)]
    assert got == expected


@fast
@given(
    some=st.lists(st.tuples(st.just("r"), flags, bases, st.just(0), st.just(9), st.integers(0, 255)), max_size=9),
    wanted=st.builds(
        ReadFilter,
        min_mapq=st.integers(0, 60), min_length=st.integers(0, 20),
        include_flags=st.sampled_from([0, 1, 3]), exclude_flags=st.sampled_from([0, QCFAIL, QCFAIL | DUPLICATE]),
    ),
)  # fmt: skip
def test_filters_take_what_samtools_takes(some, wanted, tmp_path):
    path = write(tmp_path / "x.bam", some, head=header("unsorted"))
    sequences = open_sequences(path, reads=wanted)
    got = [text for _, text in contents(sequences)]
    text = pysam.view(
        "-q", str(wanted.min_mapq), "-m", str(wanted.min_length), "-f", str(wanted.include_flags),
        "-F", str(wanted.exclude_flags | SECONDARY | SUPPLEMENTARY), str(path),
    )  # fmt: skip
    lines = [line.split("\t") for line in text.splitlines()]
    # samtools view -m judges the aligned bases, here all of a read
    assert got == [reverse_complement(line[9]) if int(line[1]) & REVERSE else line[9] for line in lines]
    assert len(got) + sum(sequences.counts.values()) == len(some)


# Names


def test_mates_and_repeats_are_told_apart(tmp_path):
    some = [
        ("p", PAIRED | FIRST, "A", 0, 0), ("p", PAIRED | LAST, "C", 0, 0), ("p", PAIRED | FIRST, "G", 0, 0),
        ("s", 0, "A", 0, 0), ("s", 0, "C", 0, 0), ("s#2", 0, "G", 0, 0), ("s#3", 0, "G", 0, 0), ("s", 0, "T", 0, 0),
        ("t", PAIRED | FIRST | LAST, "A", 0, 0), ("u", FIRST, "A", 0, 0),
    ]  # fmt: skip
    got = contents(open_sequences(write(tmp_path / "x.bam", some)))
    assert [name for name, _ in got] == ["p/1", "p/2", "p/1#2", "s", "s#2", "s#2#2", "s#3", "s#4", "t", "u"]


@pytest.mark.parametrize("name", ["x:1-100", "a|b", "a/b", ".", "m54006/42/0_10000"])
def test_awkward_names(name, tmp_path):  # faults 12, 13
    assert contents(open_sequences(write(tmp_path / "x.bam", [(name, 0, "ACGT", 0, 0)]))) == [(name, "ACGT")]


def test_names_of_other_letters_are_kept_and_those_that_are_no_text_refused(tmp_path):
    path = write(tmp_path / "x.sam", [("XX", 0, "ACGT", 0, 0)], mode="w")
    whole = path.read_bytes()
    path.write_bytes(whole.replace(b"XX", "é\u4e2d".encode()))
    assert contents(open_sequences(path)) == [("é\u4e2d", "ACGT")]
    path.write_bytes(whole.replace(b"XX", b"\xff\xfe"))
    with pytest.raises(InputError, match=r"x\.sam: a name in it is not UTF-8.*samtools reheader"):
        contents(open_sequences(path))
    path.write_bytes(whole.replace(b"SN:c\t", b"SN:\xff\t").replace(b"\tc\t", b"\t\xff\t"))
    with pytest.raises(InputError, match=r"x\.sam: a name in it is not UTF-8"):
        open_sequences(path).lengths()


# What the file lacks


def test_reads_without_sequence_are_given_empty(tmp_path):
    some = [("none", 0, None, 0, 5), ("short", 0, "AC", 0, 6)]
    sequences = open_sequences(write(tmp_path / "x.bam", some), reads=ReadFilter(min_length=3))
    assert contents(sequences) == [("none", "")]
    assert sequences.counts == {"shorter than 3 bases": 1}


def test_hard_clipped_reads_keep_what_is_left_and_are_counted(tmp_path):
    some = [("r", 0, "ACGT", 0, 5, 60, "4M6H"), ("s", 0, "ACGT", 0, 5, 60, "2S2M")]
    sequences = open_sequences(write(tmp_path / "x.bam", some))
    assert contents(sequences) == [("r", "ACGT"), ("s", "ACGT")]
    assert sequences.hard_clipped == 1


def test_quality_failures_and_duplicates_are_kept_unless_excluded(tmp_path):
    path = write(tmp_path / "x.bam", [("a", QCFAIL, "A", 0, 0), ("b", DUPLICATE, "C", 0, 0)])
    assert [name for name, _ in contents(open_sequences(path))] == ["a", "b"]
    sequences = open_sequences(path, reads=ReadFilter(exclude_flags=QCFAIL))
    assert [name for name, _ in contents(sequences)] == ["b"]
    assert sequences.counts == {"flags not wanted": 1}


def test_filters_that_make_no_sense_are_refused():
    for options in ({"min_mapq": -1}, {"min_mapq": 256}, {"min_length": -1}, {"exclude_flags": 1 << 16}):
        with pytest.raises(ConfigError, match=next(iter(options))):
            ReadFilter(**options)


# Kinds of file


@pytest.mark.parametrize(
    ("mode", "kind"), [("wb", "bam"), ("wbu", "bam"), ("wb0", "bam"), ("w", "sam"), ("wc", "cram")]
)
def test_unaligned_reads_of_every_kind(mode, kind, tmp_path):
    path = write(tmp_path / "x", [("r", 4, "ACGT", -1, -1)], mode=mode, head={"HD": {"VN": "1.6"}})
    assert sniff(path) == kind
    sequences = open_sequences(path)
    assert contents(sequences) == contents(sequences) == [("r", "ACGT")]
    assert sequences.lengths() == {}


def test_an_empty_bam_holds_no_reads(tmp_path):
    assert contents(open_sequences(write(tmp_path / "x.bam", []))) == []


def test_bam_from_standard_input(tmp_path, monkeypatch, private_cache):
    path = write(tmp_path / "x.bam", [("r", 0, "ACGT", 0, 5)])
    with path.open("rb") as stream:
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(stream))
        sequences = open_sequences("-")
    assert contents(sequences) == contents(sequences) == [("r", "ACGT")]
    assert contents(sequences, regions=[Region("c", 5, 6)]) == [("r", "ACGT")]
    assert list(private_cache.iterdir()) == []


def test_many_reads_pass_the_batches(tmp_path):
    some = [(f"r{number}", 0, "ACGT", 0, 0) for number in range(2500)]
    assert [name for name, _ in contents(open_sequences(write(tmp_path / "x.bam", some)))] == [read[0] for read in some]


# Regions and indexes


def test_places_beyond_what_bai_can_index(tmp_path, private_cache):  # faults 21
    path = write(tmp_path / "x.bam", [("r", 0, "ACGT", 1, 590_000_000)])
    sequences = open_sequences(path)
    assert sequences.lengths() == LENGTHS
    assert contents(sequences, regions=[Region("d:1-9", 589_999_999, 590_000_001)]) == [("r", "ACGT")]
    assert contents(sequences, regions=[Region("d:1-9", 590_000_004, 590_000_009)]) == []
    assert list(tmp_path.iterdir()) == [path]
    assert [index.suffix for index in private_cache.iterdir()] == [".csi"]


def test_an_index_beside_is_used_unless_older_or_damaged(tmp_path, private_cache):
    head = {"HD": {"VN": "1.6"}, "SQ": [{"SN": "c", "LN": 1_000_000}]}
    path = write(tmp_path / "x.bam", [("r", 0, "ACGT", 0, 5)], head=head)
    pysam.index(str(path))
    beside = tmp_path / "x.bam.bai"
    assert contents(open_sequences(path), regions=[Region("c", 5, 6)]) == [("r", "ACGT")]
    assert list(private_cache.iterdir()) == []
    whole = beside.read_bytes()
    beside.write_bytes(whole[:10])
    assert contents(open_sequences(path), regions=[Region("c", 5, 6)]) == [("r", "ACGT")]
    assert len(list(private_cache.iterdir())) == 1
    beside.write_bytes(whole)
    os.utime(beside, (1, 1))
    write(path, [("new", 0, "GG", 0, 500_000)], head=head)
    assert contents(open_sequences(path), regions=[Region("c", 500_000, 500_001)]) == [("new", "GG")]
    assert len(list(private_cache.iterdir())) == 1  # the old one is gone


def test_regions_that_cannot_be_had(tmp_path):
    some = [("r", 0, "ACGT", 0, 50), ("s", 0, "ACGT", 0, 5)]
    for order, text in (("unsorted", "header says 'unsorted'.*samtools sort"), ("coordinate", "samtools sort")):
        path = write(tmp_path / "x.bam", some, head=header(order))
        with pytest.raises(GenoformerError, match=text):
            contents(open_sequences(path), regions=[Region("c", 0, 9)])
    path = write(tmp_path / "x.sam", some, mode="w")
    with pytest.raises(InputError, match="SAM text"):
        contents(open_sequences(path), regions=[Region("c", 0, 9)])
    path = write(tmp_path / "y.bam", [])
    with pytest.raises(InputError, match=r"no sequence 'chrc'; it has 'c', 'd:1-9'"):  # faults 40
        contents(open_sequences(path), regions=[Region("chrc", 0, 9)])
    with pytest.raises(InputError, match=r"region c:1-401 .* 400 bases"):
        contents(open_sequences(path), regions=[Region("c", 0, 401)])
    with pytest.raises(InputError, match="holds reads"):
        open_sequences(path).fetch(Region("c", 0, 9))


def test_the_settings_of_htslib_are_left_as_found(tmp_path, monkeypatch):
    monkeypatch.delenv("REF_PATH", raising=False)
    before = pysam.get_verbosity()
    reading = open_sequences(write(tmp_path / "x.bam", [("a", 0, "A", 0, 0), ("b", 0, "A", 0, 0)])).records()
    next(reading)
    assert (pysam.get_verbosity(), os.environ.get("REF_PATH")) == (before, None)
    assert before > 0


# Damage


@pytest.mark.parametrize("mode", ["wb", "wb0", "wc"])
@fast
@given(data=st.data())
def test_a_file_cut_short_is_refused(mode, data, tmp_path):
    path = tmp_path / "x"
    if not path.exists():
        some = [(f"r{number}", 4, "ACGT" * 30, -1, -1) for number in range(300)]
        write(tmp_path / "whole", some, mode=mode)
    whole = (tmp_path / "whole").read_bytes()
    path.write_bytes(whole[: data.draw(st.integers(30, len(whole) - 1))])
    with pytest.raises(FormatError, match=r"x: ") as caught:
        contents(open_sequences(path))
    assert "\n" not in str(caught.value)


def test_damage_in_the_middle_is_refused(tmp_path, capfd):
    some = [(f"r{number}", 4, "ACGTTGCAAG"[number % 7 :] * 30, -1, -1) for number in range(3000)]
    path = write(tmp_path / "x.bam", some)
    content = bytearray(path.read_bytes())
    content[len(content) // 2 : len(content) // 2 + 40] = bytes(40)
    path.write_bytes(content)
    with pytest.raises(FormatError, match=r"x\.bam: damaged BAM data"):
        contents(open_sequences(path))
    assert capfd.readouterr() == ("", "")


def test_a_damaged_line_of_sam_is_refused(tmp_path):
    path = write(tmp_path / "x.sam", [("r", 0, "ACGT", 0, 5)], mode="w")
    path.write_text(path.read_text() + "s\tflag\tc\n")
    with pytest.raises(FormatError, match=r"x\.sam: damaged SAM data"):
        contents(open_sequences(path))


# Real files


def test_conformance_files_that_must_be_read(real_inputs):
    reference = real_inputs / "bam" / "test" / "cram" / "ce.fa"
    for path in sorted((real_inputs / "bam" / "test").glob("**/passed/*.[bcs]*am")):
        if path.stat().st_size == 0:
            continue
        got = contents(open_sequences(path, reference=reference))
        assert len({name for name, _ in got}) == len(got)
        twin = path.with_suffix(".sam")
        if path.suffix == ".cram" and twin.exists() and twin.stat().st_size:
            expected = Counter(text for _, text in contents(open_sequences(twin)))
            assert Counter(text for _, text in got) == expected, path


def test_conformance_files_that_are_wrong_never_break(real_inputs):
    paths = sorted((real_inputs / "bam" / "test").glob("**/failed/*.[bcs]*am"))
    refused = 0
    for path in paths:
        try:
            contents(open_sequences(path))
        except GenoformerError:
            refused += 1  # the rest htslib reads: what is wrong is in no field that matters here
    assert refused >= len(paths) // 4
    with pytest.raises(FormatError, match="cut short"):
        contents(open_sequences(real_inputs / "bam" / "test" / "cram" / "3.0" / "failed" / "0000_empty_noeof.cram"))


def test_real_files_hold_what_the_list_says(real_inputs):
    lines = [line.split("\t") for line in (real_inputs / "bam" / "INDEX.tsv").read_text().splitlines()]
    for row in (dict(zip(lines[0], line, strict=False)) for line in lines[1:]):
        path = real_inputs / "bam" / row["file"]
        if "ERROR" in row.get("note", ""):
            with pytest.raises(FormatError):
                contents(open_sequences(path))
            continue
        reference = real_inputs / "bam" / "artemis_NV.fasta.gz" if path.suffix == ".cram" else None
        sequences = open_sequences(path, reference=reference)
        got = [(record.name, len(record.bases)) for record in sequences.records()]
        assert len({name for name, _ in got}) == len(got)
        assert len(got) == int(row["reads"]) - sum(sequences.counts.values())
        assert sequences.counts["secondary alignment"] == int(row["secondary"])
        assert sequences.counts["supplementary alignment"] == int(row["supplementary"])
