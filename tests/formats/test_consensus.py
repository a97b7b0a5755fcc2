"""The consensus of alignments: the coordinates of the reference, the reads that were asked for, and every base told."""

from __future__ import annotations

import errno
import io
import shutil
import subprocess
import sys
from collections import Counter
from types import SimpleNamespace

import numpy as np
import pysam
import pytest
from alignment_samples import (
    DUPLICATE,
    QCFAIL,
    REVERSE,
    SECONDARY,
    SUPPLEMENTARY,
    Read,
    aligned_pairs,
    random_reads,
    write_alignments,
)

from genoformer.errors import ConfigError, FormatError, InputError, ResourceError
from genoformer.formats import consensus
from genoformer.formats.alignments import ReadFilter
from genoformer.formats.sequences import open_sequences
from genoformer.plan import make_plan
from genoformer.regions import Region

LENGTHS = {"c": 300, "empty:1-9": 40, "x|y": 200}


def opened(path, **options):
    return open_sequences(path, bam_as="consensus", **options)


def sequences_of(path, **options):
    return {record.name: record.bases.decode() for record in opened(path, **options).records()}


def columns(path, length, number):
    """Count what the reads say at every base of a reference, one base of one read after the other."""
    found = [Counter() for _ in range(length)]
    with pysam.AlignmentFile(str(path), check_sq=False) as file:
        for read in file:
            if read.reference_id != number:
                continue
            for on_read, on_reference in aligned_pairs(read):
                if on_reference is not None:
                    found[on_reference]["*" if on_read is None else read.query_sequence[on_read]] += 1
    return found


def random_references(rng):
    return ["".join(rng.choice(list("ACGT"), length)) for length in LENGTHS.values()]


# Laws


@pytest.mark.parametrize("seed", range(4))
def test_unanimous_columns_are_called_and_uncovered_ones_are_n(seed, tmp_path):
    rng = np.random.default_rng(seed)
    references = random_references(rng)
    reads = [read for read in random_reads(rng, references, 60) if read.sequence != 1 and "N" not in read.cigar]
    path = write_alignments(tmp_path / "x.bam", LENGTHS, reads)
    found = sequences_of(path)
    assert {name: len(bases) for name, bases in found.items()} == LENGTHS
    assert set("".join(found.values())) <= set("ACGTN")
    seen = Counter()
    for number, (name, length) in enumerate(LENGTHS.items()):
        for bases, column in zip(found[name], columns(path, length, number), strict=True):
            if not column:
                assert bases == "N"
            elif len(column) == 1 and column.total() >= 3:  # nothing to decide
                (letter,) = column
                assert bases == ("N" if letter == "*" else letter)
                seen[letter] += 1
    assert sum(seen.values()) > 100


@pytest.mark.parametrize("seed", range(4))
def test_every_base_is_told(seed, tmp_path):
    rng = np.random.default_rng(seed)
    references = random_references(rng)
    path = write_alignments(tmp_path / "x.bam", LENGTHS, random_reads(rng, references, 15))
    sequences = opened(path)
    letters = "".join(record.bases.decode() for record in sequences.records())
    told = sequences.made_by["counts"]["consensus"]
    assert sum(told.values()) == sum(LENGTHS.values())
    assert told["called"] == len(letters) - letters.count("N")
    spanned = [set() for _ in LENGTHS]
    with pysam.AlignmentFile(str(path)) as file:
        for read in file:
            spanned[read.reference_id] |= set(range(read.reference_start, read.reference_end))
    assert told["uncovered"] == sum(LENGTHS.values()) - sum(map(len, spanned))
    assert min(told.values()) >= 0
    assert sequences.made_by["versions"] == {"samtools": pysam.__samtools_version__}


@pytest.mark.parametrize(
    ("wanted", "view"),
    [
        ({}, ["-F", str(0x704)]),
        ({"exclude_flags": 0}, ["-F", str(0x104)]),
        ({"min_mapq": 30}, ["-F", str(0x104), "-q", "30"]),
        ({"include_flags": 3}, ["-F", str(0x104), "-f", "3"]),
        ({"exclude_flags": REVERSE | SUPPLEMENTARY}, ["-F", str(0x104 | REVERSE | SUPPLEMENTARY)]),
        ({"include_flags": 1, "min_mapq": 1, "exclude_flags": DUPLICATE}, ["-F", "0x504", "-f", "1", "-q", "1"]),
    ],
)
def test_filters_take_what_samtools_view_takes(wanted, view, tmp_path):
    rng = np.random.default_rng(3)
    flags = [0, 1, 2, 3, REVERSE, SECONDARY, SUPPLEMENTARY, QCFAIL, DUPLICATE, DUPLICATE | 3]
    reads = [
        read._replace(mapq=int(rng.integers(0, 60)))
        for read in random_reads(rng, random_references(rng), 80, flags=flags)
    ]
    path = write_alignments(tmp_path / "x.bam", LENGTHS, reads)
    sequences = opened(path, reads=ReadFilter(**wanted) if wanted else None)
    found = {record.name: record.bases.decode() for record in sequences.records()}
    chosen = tmp_path / "chosen.bam"
    pysam.view("-b", "-o", str(chosen), *view, str(path), catch_stdout=False)
    assert found == sequences_of(chosen, reads=ReadFilter(exclude_flags=0))
    with pysam.AlignmentFile(str(chosen)) as file:
        assert sum(1 for _ in file) + sum(sequences.counts.values()) == len(reads)


def test_regions_and_fetch_give_parts_of_the_same(tmp_path):
    rng = np.random.default_rng(0)
    reads = [read for read in random_reads(rng, random_references(rng), 60) if read.sequence != 1]
    sequences = opened(write_alignments(tmp_path / "x.bam", LENGTHS, reads))
    assert sequences.fetch(Region("empty:1-9", 3, 9)) == b"N" * 6
    whole = {record.name: record.bases for record in sequences.records()}
    for name, length in LENGTHS.items():
        start, end = sorted(rng.integers(0, length + 1, 2).tolist())
        assert sequences.fetch(Region(name, start, end)) == whole[name][start:end]
    plan = make_plan(sequences, window=100, overlap=10, regions=[Region("c", 50, 100)])
    assert plan.accounting.not_requested == 490
    with pytest.raises(InputError, match="no sequence 'z'"):
        sequences.fetch(Region("z", 0, 1))


def test_circles_of_the_header_are_circles(tmp_path):
    rng = np.random.default_rng(0)
    reads = random_reads(rng, random_references(rng), 20)
    path = write_alignments(tmp_path / "x.bam", LENGTHS, reads, lines={"TP": "circular"})
    assert {record.topology for record in opened(path).records()} == {"circular"}


# Faults


def test_single_reads_at_the_ends_and_what_has_no_place(tmp_path):  # faults 26
    reads = [
        Read("first", 0, "A", 0, 0, "1M"),
        Read("over", 0, "ACGTACGTAC", 0, 295, "10M"),
        Read("no sequence", 0, None, 2, 10, "20M"),
        Read("insertion", 0, "GGGGG", 2, 199, "2S1M2I"),
        Read("unmapped", 4, "ACGT", -1, -1, None),
    ]
    sequences = opened(write_alignments(tmp_path / "x.bam", LENGTHS, reads))
    found = {record.name: record.bases.decode() for record in sequences.records()}
    assert found["c"] == "A" + "N" * 294 + "ACGTA"
    assert found["x|y"] == "N" * 199 + "G"
    assert sequences.counts == {"without sequence": 1, "not mapped": 1}
    assert sequences.made_by["counts"]["consensus"] == {
        "called": 7, "uncovered": 533, "deleted": 0, "undecided": 0
    }  # fmt: skip


def test_unmapped_reads_only_give_n(tmp_path):
    path = write_alignments(tmp_path / "x.bam", LENGTHS, [Read("u", 4, "ACGT", -1, -1, None)])
    assert sequences_of(path) == {name: "N" * length for name, length in LENGTHS.items()}


def test_positions_that_bai_cannot_index(tmp_path):  # faults 21
    path = write_alignments(tmp_path / "x.bam", {"b": 600_000_000}, [])
    assert opened(path).fetch(Region("b", 599_999_990, 600_000_000)) == b"N" * 10


def test_what_has_no_consensus_is_refused(tmp_path):
    path = write_alignments(tmp_path / "u.bam", {}, [Read("u", 4, "ACGT", -1, -1, None)])
    with pytest.raises(InputError, match=r"u\.bam: names no reference sequences.*--bam-as"):
        sequences_of(path)
    some = [Read("a", 0, "ACGT", 0, 50, "4M"), Read("b", 0, "ACGT", 0, 5, "4M")]
    for order in ("unsorted", "coordinate"):
        path = write_alignments(tmp_path / "x.bam", LENGTHS, some, order=order)
        with pytest.raises(InputError, match=r"x\.bam: is not sorted by position.*samtools sort"):
            sequences_of(path)
    for name, content in (("x.fa", ">a\nACGT\n"), ("x.gb", "LOCUS       x\n")):
        (tmp_path / name).write_text(content)
        with pytest.raises(ConfigError, match=rf"{name[:1]}\.{name[2:]}: is no BAM.*--bam-as"):
            opened(tmp_path / name)


def test_damage_and_cut_files_are_refused(tmp_path, capfd):
    rng = np.random.default_rng(0)
    path = write_alignments(tmp_path / "x.bam", LENGTHS, random_reads(rng, random_references(rng), 60))
    path.write_bytes(path.read_bytes()[:-40])
    with pytest.raises(FormatError, match="cut short"):
        sequences_of(path)
    assert capfd.readouterr() == ("", "")


def test_sam_and_standard_input(tmp_path, monkeypatch):
    rng = np.random.default_rng(0)
    reads = random_reads(rng, random_references(rng), 30)
    expected = sequences_of(write_alignments(tmp_path / "x.bam", LENGTHS, reads))
    path = write_alignments(tmp_path / "x.sam", LENGTHS, reads, mode="w")
    assert sequences_of(path) == expected
    with path.open("rb") as stream:
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(stream))
        assert sequences_of("-") == expected


def test_cram_with_and_without_its_reference(tmp_path):  # faults 17
    rng = np.random.default_rng(0)
    references = random_references(rng)
    fasta = tmp_path / "ref.fa"
    fasta.write_text("".join(f">{name}\n{bases}\n" for name, bases in zip(LENGTHS, references, strict=True)))
    reads = random_reads(rng, references, 40)
    expected = sequences_of(write_alignments(tmp_path / "x.bam", LENGTHS, reads))
    path = write_alignments(tmp_path / "x.cram", LENGTHS, reads, mode="wc", reference_filename=str(fasta))
    moved = shutil.move(fasta, tmp_path / "moved.fa")
    with pytest.raises(InputError, match=r"x\.cram: .*--reference REF\.fa"):
        sequences_of(path)
    assert sequences_of(path, reference=moved) == expected


@pytest.mark.parametrize("name", ["a b", "é", ">", "-x", "x*", "{c}", "a,b"])
def test_awkward_names(name, tmp_path):  # faults 10, 12, 13
    reads = [Read("r", 0, "ACGTACGT", 1, 3, "8M"), Read("s", 0, "ACGTACGT", 1, 3, "8M")]
    path = write_alignments(tmp_path / "-x y.bam", {"first": 9, name: 20}, reads)
    assert sequences_of(path) == {"first": "N" * 9, name: "NNNACGTACGT" + "N" * 9}


def test_names_that_are_no_text_are_refused(tmp_path):
    path = write_alignments(tmp_path / "x.sam", {"XX": 9}, [Read("r", 0, "AC", 0, 3, "2M")], mode="w")
    path.write_bytes(path.read_bytes().replace(b"XX", b"\xff\xfe"))
    with pytest.raises(InputError, match=r"x\.sam: a name in it is not UTF-8.*samtools reheader"):
        sequences_of(path)


def test_no_room_for_the_consensus(tmp_path, monkeypatch):  # faults 23
    path = write_alignments(tmp_path / "x.bam", LENGTHS, [Read("r", 0, "ACGT", 0, 3, "4M")])
    with monkeypatch.context() as patch:
        patch.setattr(consensus.shutil, "disk_usage", lambda _: SimpleNamespace(free=299))
        with pytest.raises(ResourceError, match=r"299 bytes are free.* needs 300.*TMPDIR"):
            sequences_of(path)

    class Full(io.BytesIO):
        def write(self, _):
            raise OSError(errno.ENOSPC, "No space left on device")

    sequences = opened(path)
    with pytest.raises(ResourceError, match=r"x\.bam: its consensus cannot be written .*No space left"):
        sequences._call(Full(), LENGTHS)


def test_the_process_ends_with_an_interrupt(tmp_path, monkeypatch):
    path = write_alignments(tmp_path / "x.bam", LENGTHS, [Read("r", 0, "ACGT", 0, 3, "4M")])
    started = []

    class Watched(subprocess.Popen):
        def __init__(self, *arguments, **options):
            super().__init__(*arguments, **options)
            started.append(self)

    def interrupt(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(consensus.subprocess, "Popen", Watched)
    sequences = opened(path)
    monkeypatch.setattr(sequences, "_take", interrupt)
    with pytest.raises(KeyboardInterrupt):
        list(sequences.records())
    assert started[0].returncode is not None
