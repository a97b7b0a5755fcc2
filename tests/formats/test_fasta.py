"""FASTA means the same however it is written, compressed or read; what is no FASTA is refused with its place."""

from __future__ import annotations

import contextlib
import io
import os
import sys
import threading
import tracemalloc
import zlib

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from strategies import AWKWARD_NAMES, COMPRESSIONS, bgzip, fasta_files

from genoformer.errors import FormatError, GenoformerError, InputError, ResourceError
from genoformer.formats.bytestream import Source, sniff
from genoformer.formats.fasta import FastaSequences, write_fasta
from genoformer.formats.sequences import Record, check_unique, open_sequences
from genoformer.regions import Region

RELAXED = {"deadline": None, "suppress_health_check": [HealthCheck.function_scoped_fixture]}
compressions = pytest.mark.parametrize("compress", COMPRESSIONS.values(), ids=COMPRESSIONS)


def write(path, content):
    path.write_bytes(content)
    return path


def contents(sequences):
    return [(record.name, record.description, record.bases) for record in sequences.records()]


def read(path, content):
    return contents(open_sequences(write(path, content)))


# Laws


@compressions
@settings(max_examples=60, **RELAXED)
@given(file=fasta_files())
def test_every_way_to_write_records_reads_back_the_same(file, compress, tmp_path):
    assert read(tmp_path / "x.fa", compress(file.content)) == file.records


@settings(max_examples=60, **RELAXED)
@given(file=fasta_files(), block_size=st.integers(1, 40))
def test_the_block_size_does_not_matter(file, block_size, tmp_path):
    source = Source(write(tmp_path / "x.fa", file.content))
    assert contents(FastaSequences(source, block_size=block_size)) == file.records


@compressions
@settings(max_examples=40, **RELAXED)
@given(file=fasta_files(), index_block=st.integers(1, 60), data=st.data())
def test_fetch_is_a_slice_of_the_record(file, index_block, data, compress, tmp_path):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("genoformer.formats.fasta._INDEX_BLOCK", index_block)
        sequences = open_sequences(write(tmp_path / "x.fa", compress(file.content)))
        assert sequences.lengths() == {name: len(bases) for name, _, bases in file.records}
        for _ in range(4):
            name, _, bases = data.draw(st.sampled_from(file.records))
            start = data.draw(st.integers(0, len(bases)))
            end = data.draw(st.integers(start, len(bases)))
            assert sequences.fetch(Region(name, start, end)) == bases[start:end]


@settings(max_examples=40, **RELAXED)
@given(file=fasta_files(), width=st.integers(1, 70))
def test_what_is_written_reads_back(file, width, tmp_path):
    stream = io.BytesIO()
    write_fasta([Record(name, words, "linear", bases) for name, words, bases in file.records], stream, width=width)
    assert read(tmp_path / "x.fa", stream.getvalue()) == file.records


@settings(max_examples=150, **RELAXED)
@given(content=st.one_of(st.binary(max_size=80), st.text("A>C\n\r; #@LOCUS", max_size=30).map(str.encode)))
def test_any_bytes_are_read_or_refused_in_one_line(content, tmp_path):
    path = write(tmp_path / "x", content)
    message = str(path)
    try:
        list(open_sequences(path).records())
    except GenoformerError as error:
        message = str(error)
    assert str(path) in message
    assert "\n" not in message


@compressions
@settings(max_examples=20, **RELAXED)
@given(file=fasta_files(min_size=1), data=st.data())
def test_a_compressed_file_cut_short_is_refused(file, compress, data, tmp_path):
    content = compress(file.content)
    if compress is bytes:
        return  # text cut short is text
    path = write(tmp_path / "x.fa", content[: data.draw(st.integers(20, len(content) - 1))])
    whole_members = compress is COMPRESSIONS["members"] and path.stat().st_size == len(first_member(content))
    with contextlib.nullcontext() if whole_members else pytest.raises(FormatError, match=r"x\.fa: "):
        contents(open_sequences(path))


def first_member(content):
    member = zlib.decompressobj(31)
    member.decompress(content)
    return content[: len(content) - len(member.unused_data)]


# Repeatable, lean, safe


@compressions
def test_records_may_be_read_twice_and_side_by_side(compress, tmp_path):
    sequences = open_sequences(write(tmp_path / "x.fa", compress(b">a\nAC\n>b\nGT\n")))
    together = [(left.name, right.name) for left, right in zip(sequences.records(), sequences.records(), strict=True)]
    assert together == [("a", "a"), ("b", "b")]


def test_standard_input_is_read_again_from_a_private_copy(tmp_path, monkeypatch):
    path = write(tmp_path / "x.fa", bgzip(b">a one\nACGT\n>b\nGG"))
    with path.open("rb") as stream:
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(stream))
        assert sniff("-") == "fasta"  # takes nothing
        sequences = open_sequences("-")
        assert sequences.source == "standard input"
        assert contents(sequences) == contents(sequences) == [("a", "one", b"ACGT"), ("b", "", b"GG")]
        assert sequences.fetch(Region("a", 1, 3)) == b"CG"
        copy = sequences._input.path
        assert copy.stat().st_mode & 0o077 == 0
        del sequences
        assert not copy.exists()


def test_no_room_for_a_copy_of_standard_input_is_said(tmp_path, monkeypatch):
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b">a\nACGT\n")))
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "absent"))
    with pytest.raises(ResourceError, match=r"^standard input: .*absent.* TMPDIR"):
        open_sequences("-")


def test_a_named_pipe_is_read_again_too(tmp_path):
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    writer = threading.Thread(target=pipe.write_bytes, args=(b">a\nACGT\n",))
    writer.start()
    sequences = open_sequences(pipe)
    writer.join(10)
    assert contents(sequences) == contents(sequences) == [("a", "", b"ACGT")]
    assert sequences.fetch(Region("a", 0, 2)) == b"AC"


def test_a_record_costs_about_its_own_size(tmp_path):
    size = 20_000_000
    path = write(tmp_path / "x.fa", b">a\n" + b"\n".join([b"ACGT" * 25] * (size // 100)))
    tracemalloc.start()
    (record,) = open_sequences(path).records()
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert len(record.bases) == size
    assert peak < 1.6 * size  # twice would be 2.0


@compressions
def test_threads_fetch_their_own_bases(compress, tmp_path, monkeypatch):
    monkeypatch.setattr("genoformer.formats.fasta._PIECES_KEPT", 1)
    names = [f"s{number}" for number in range(20)]
    whole = {name: ("ACGT"[number % 4] * 500).encode() for number, name in enumerate(names)}
    path = write(tmp_path / "x.fa", compress(b"".join(b">%s\n%s\n" % (n.encode(), b) for n, b in whole.items())))
    sequences = open_sequences(path)
    wrong = []

    def fetch(offset):
        for name in (names[offset:] + names[:offset]) * 5:
            if sequences.fetch(Region(name, 100, 200)) != whole[name][100:200]:
                wrong.append(name)

    threads = [threading.Thread(target=fetch, args=(offset,)) for offset in range(0, 20, 5)]
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(30)
    finally:
        sys.setswitchinterval(interval)
    assert wrong == []


# The index


def test_a_changed_file_gets_a_new_index(tmp_path, private_cache):
    path = write(tmp_path / "x.fa", b">a\nAAAACCCC\n")
    assert open_sequences(path).fetch(Region("a", 4, 8)) == b"CCCC"
    before = path.stat()
    write(path, b">ab\nAAATTTT\n")
    assert path.stat().st_size == before.st_size
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))  # as cp -p and rsync -t do
    assert open_sequences(path).fetch(Region("ab", 3, 7)) == b"TTTT"
    assert len(list(private_cache.iterdir())) == 1


def test_a_damaged_index_is_built_again(tmp_path, private_cache):
    path = write(tmp_path / "x.fa", b">a\nACGT\n")
    open_sequences(path).lengths()
    (index,) = private_cache.iterdir()
    index.write_bytes(index.read_bytes()[:-30])
    assert open_sequences(path).fetch(Region("a", 1, 3)) == b"CG"


def test_nothing_is_written_beside_the_input(tmp_path, private_cache):
    path = write(tmp_path / "x.fa", b">a\nACGT\n")
    open_sequences(path).fetch(Region("a", 0, 4))
    assert list(tmp_path.iterdir()) == [path]
    assert len(list(private_cache.iterdir())) == 1


def test_an_unusable_cache_folder_does_no_harm(tmp_path, monkeypatch):  # faults 19
    monkeypatch.setenv("GENOFORMER_CACHE", str(write(tmp_path / "file", b"") / "folder"))
    path = write(tmp_path / "x.fa", b">a\nACGT\n")
    assert open_sequences(path).fetch(Region("a", 0, 4)) == b"ACGT"


# Faults that users met


def test_case_and_iupac_letters_are_kept(tmp_path):  # faults 1, 2, 3
    assert read(tmp_path / "x.fa", b">a\nacgtACGT\n>b\nACGRYSWKMBDHVN\n>c\nacgtnM S\n") == [
        ("a", "", b"acgtACGT"), ("b", "", b"ACGRYSWKMBDHVN"), ("c", "", b"acgtnMS"),
    ]  # fmt: skip


def test_the_name_is_the_first_word(tmp_path):  # faults 10
    assert read(tmp_path / "x.fa", b">chr1 Homo sapiens chr1, whole\nA\n>chr2\ttab\tand more\nC\n") == [
        ("chr1", "Homo sapiens chr1, whole", b"A"), ("chr2", "tab\tand more", b"C"),
    ]  # fmt: skip


def test_duplicate_names_are_listed():  # faults 11
    check_unique(["a", "b", "A"], "x.fa")
    with pytest.raises(InputError, match=r"^x\.fa: .*'a', 'b'; rename"):
        check_unique(["a", "b", "c", "a", "b", "a"], "x.fa")
    with pytest.raises(InputError, match="and 3 more"):
        check_unique([str(number) for number in range(8)] * 2, "x.fa")


def test_duplicate_names_are_never_fetched(tmp_path):  # faults 11
    sequences = open_sequences(write(tmp_path / "x.fa", b">a 1\nA\n>a 2\nC\n"))
    assert [record.description for record in sequences.records()] == ["1", "2"]
    with pytest.raises(InputError, match="'a'"):
        sequences.fetch(Region("a", 0, 1))


@pytest.mark.parametrize("name", AWKWARD_NAMES)
def test_awkward_names_are_only_names(name, tmp_path):  # faults 12, 13
    sequences = open_sequences(write(tmp_path / "x.fa", f">{name} x\nACGT\n".encode()))
    assert contents(sequences) == [(name, "x", b"ACGT")]
    assert sequences.fetch(Region(name, 1, 3)) == b"CG"


def test_an_empty_record_is_given_empty(tmp_path):  # faults 14
    assert read(tmp_path / "x.fa", b">e\n>f\nACGT\n\n>g") == [("e", "", b""), ("f", "", b"ACGT"), ("g", "", b"")]


def test_ragged_lines_and_joined_files(tmp_path):  # faults 16
    lines = [b"A" * 60, b"C" * 61, b"G" * 59]
    one = b">a\n" + b"\n".join(lines)
    two = one + one.replace(b">a", b">b")  # cat: the first has no new line at its end
    assert read(tmp_path / "x.fa", two) == [("a", "", b"".join(lines)), ("b", "", b"".join(lines))]


@pytest.mark.parametrize("name", ["x.fa", "x.fa.gz", "x.bgz", "x.bam", "x"])
@compressions
def test_content_tells_not_the_name(name, compress, tmp_path):  # faults 17
    path = write(tmp_path / name, compress(b">a\n" + b"ACGT" * 40))
    assert sniff(path) == "fasta"
    assert open_sequences(path).fetch(Region("a", 100, 104)) == b"ACGT"


def test_regions_that_do_not_fit_are_named(tmp_path):  # faults 40
    sequences = open_sequences(write(tmp_path / "x.fa", b">chr1\nACGT\n"))
    with pytest.raises(InputError, match=r"no sequence '1'; it has 'chr1'"):
        sequences.fetch(Region("1", 0, 1))
    with pytest.raises(InputError, match=r"region chr1:3-5 .* 4 bases"):
        sequences.fetch(Region("chr1", 2, 5))


# Real files

PROTEINS = {
    "AAC12660", "EFTU_BACSU", "P02456", "alnfile", "amino", "aster", "cysprot", "cysprot1", "cysprot1a", "cysprot1b",
    "dnaE-bsub-prot", "ecolitst", "f001", "fa01", "loveliesbleeding", "multi_1", "multi_2", "rose", "rosemary", "test",
    "testaln", "testaln2", "f003",
}  # fmt: skip


def test_real_files_are_read_or_refused_for_being_protein(real_inputs):
    for path in sorted((real_inputs / "fasta" / "FASTA").glob("*.fasta")):
        if path.stem in PROTEINS:
            with pytest.raises(InputError, match="looks like protein"):
                contents(open_sequences(path))
            continue
        content = path.read_text().replace("\r", "")
        expected = ["".join(part.split("\n")[1:]).replace(" ", "") for part in ("\n" + content).split("\n>")[1:]]
        assert [bases.decode() for _, _, bases in contents(open_sequences(path))] == expected, path
