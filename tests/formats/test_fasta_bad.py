"""What is no FASTA is refused with its place; what can be made sense of is read, and what is left out is told."""

from __future__ import annotations

import gzip
import logging
import os
import pty
from pathlib import Path

import pytest
from strategies import COMPRESSIONS, bgzip

from genoformer.errors import FormatError, InputError
from genoformer.formats.bed import parse_regions
from genoformer.formats.bytestream import sniff
from genoformer.formats.gff3 import read_gff3
from genoformer.formats.sequences import open_sequences
from genoformer.regions import Region


def write(path, content):
    path.write_bytes(content)
    return path


def contents(sequences):
    return [(record.name, record.description, record.bases) for record in sequences.records()]


def read(path, content):
    return contents(open_sequences(write(path, content)))


# Bad input: the error says where

BAD = {
    "zero bytes": (b"", InputError, "is empty"),
    "only blank lines": (b"\n\n", InputError, "no FASTA record"),
    "only comments": (b"; x\n", InputError, "no FASTA record"),
    "text": (b"\nhello world\n>a\nACGT\n", FormatError, "line 2 begins with 'hello'"),
    "bare bases": (b"ACGT\n", FormatError, "line 1 begins with 'ACGT'"),
    "no name": (b">\nACGT\n>  \t\nACGT\n", InputError, "has no FASTA record with a name"),
    "protein": (b">x\nACGT\n>p\nMKVILLFVLA\n", InputError, "'p' looks like protein: .* 'I' at position 4"),
    "short protein": (b">p\nME*\n", InputError, "'p' looks like protein: .* 'E' at position 2"),
    "figures": (b">p\n1234567890\n", InputError, "'p' is no DNA or RNA: .* '1' at position 1"),
    "latin letters": (b">p\n\xe9\xe9A\n", InputError, "'p' is no DNA or RNA"),
    "NUL bytes": (b">a\nAC\0GT\n", FormatError, "NUL byte at byte 6"),
    "binary": (bytes(range(256)), FormatError, "NUL byte"),
    "mixed line ends": (b">a\rACGT\r>b\nACGT\n", FormatError, "line 1: has mixed line ends"),
    "FASTQ": (b"@r1\nACGT\n+\nIIII\n", FormatError, "FASTQ"),
    "gzip FASTQ": (gzip.compress(b"@r1\nACGT\n+\nIIII\n"), FormatError, "FASTQ"),
    "GFF3": (b"##gff-version 3\nchr1\tx\n", FormatError, "GFF3"),
    "zip": (b"PK\x03\x04rest", FormatError, "zip"),
    "UTF-16": (">a\nACGT\n".encode("utf-16"), FormatError, "UTF-16"),
    "HDF5": (b"\x89HDF\r\n\x1a\n" + bytes(100), FormatError, "HDF5"),
    "half a gzip header": (b"\x1f\x8b\x08", FormatError, "gzip data ends too early"),
    "damaged gzip": (gzip.compress(b">a\nACGT\n")[:-8] + bytes(8), FormatError, "damaged gzip"),
    "gzip with a tail": (gzip.compress(b">a\nACGT\n") + b"tail", FormatError, "damaged gzip"),
    "bgzip without end": (bgzip(b">a\nACGT\n")[:-28], FormatError, "end-of-file block is missing"),
}


@pytest.mark.parametrize(("content", "error", "message"), BAD.values(), ids=BAD)
def test_bad_input_is_refused_with_its_place(content, error, message, tmp_path):
    path = write(tmp_path / "x.fa", content)
    with pytest.raises(error, match=message) as caught:
        list(open_sequences(path).records())
    assert str(caught.value).startswith(str(path))
    assert "\n" not in str(caught.value)


def test_a_few_odd_letters_are_let_through(tmp_path):
    assert read(tmp_path / "x.fa", b">a\n" + b"A" * 90 + b"Z" * 9) == [("a", "", b"A" * 90 + b"Z" * 9)]
    with pytest.raises(InputError, match="looks like protein"):
        read(tmp_path / "x.fa", b">a\n" + b"A" * 80 + b"Z" * 9 + b"-" * 100)  # gaps are no letters


def test_a_comment_begins_its_line(tmp_path):
    text = b">a;b\nACGTACGTACGT;ACGTACGT\n;gone\nAC#GT\n#gone\n"
    assert read(tmp_path / "x.fa", text) == [("a;b", "", b"ACGTACGTACGT;ACGTACGTAC#GT")]


def test_a_byte_order_mark_is_no_text(tmp_path):
    path = write(tmp_path / "x.fa", b"\xef\xbb\xbf>a\r\nACGT\r\n")
    assert sniff(path) == "fasta"
    assert contents(open_sequences(path)) == [("a", "", b"ACGT")]
    assert open_sequences(path).fetch(Region("a", 3, 4)) == b"T"


def test_what_cannot_be_opened_is_named(tmp_path):
    for opener in (open_sequences, sniff):
        with pytest.raises(InputError, match="no such file"):
            opener(tmp_path / "absent.fa")
        with pytest.raises(InputError, match="is a folder"):
            opener(tmp_path)


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_a_file_that_may_not_be_read_is_named(tmp_path):
    path = write(tmp_path / "x.fa", b">a\nA\n")
    path.chmod(0)
    with pytest.raises(InputError, match=r"x\.fa: cannot be read"):
        open_sequences(path)


@pytest.mark.parametrize(
    ("content", "kind"),
    [
        (b"LOCUS       NC_1 10 bp\n", "genbank"),
        (b"\nLOCUS x", "genbank"),
        (b"BAM\x01", "bam"),
        (bgzip(b"BAM\x01" + bytes(60)), "bam"),
        (b"CRAM\x03\x00", "cram"),
        (b"@HD\tVN:1.6\n", "sam"),
        (b"r\t4\t*\t0\t0\t*\t*\t0\t0\tACGT\t*\n", "sam"),
        (b"@read1\nACGT\n", "unknown"),
        (gzip.compress(b"", mtime=0), "empty"),
        (gzip.compress(b"", mtime=0) + gzip.compress(b">a", mtime=0), "fasta"),
        (bytes(512) + b"\x89HDF\r\n\x1a\n", "hdf5"),
        (b"; old style\n# comment\n>a", "fasta"),
    ],
)
def test_sniff_knows(content, kind, tmp_path):
    assert sniff(write(tmp_path / "x", content)) == kind


@pytest.mark.parametrize("compress", COMPRESSIONS.values(), ids=COMPRESSIONS)
def test_records_without_a_name_are_left_out_and_told(compress, tmp_path, caplog):  # faults 14
    text = b">\nAC\nGT\n>b c\nGGG\nAA\n> \t\n" + b"MKVLLEFSPQWE\n" * 9 + b">d\n>\n>\n"
    path = write(tmp_path / "x.fa", compress(text))
    sequences = open_sequences(path)
    with caplog.at_level(logging.WARNING):
        assert sequences.lengths() == {"b": 5, "d": 0}
        assert contents(sequences) == [("b", "c", b"GGGAA"), ("d", "", b"")]
        assert contents(sequences) == [("b", "c", b"GGGAA"), ("d", "", b"")]
    assert sequences.counts == {"no name": 4}
    assert sequences.fetch(Region("b", 1, 5)) == b"GGAA"
    assert caplog.messages == [f"{path}: 4 records have no name after '>' (the first in line 1) and are left out"]


@pytest.mark.parametrize("device", ["zero", "full", "random", "urandom"])
@pytest.mark.parametrize("read", [open_sequences, sniff, read_gff3, lambda path: parse_regions(path, {"c": 9})])
def test_devices_that_never_end_are_refused(device, read):
    path = f"/dev/{device}"
    if not Path(path).exists():
        pytest.skip(f"no {path} here")
    with pytest.raises(InputError, match=f"^{path}: is a device, which may never end; give a file or a pipe$"):
        read(path)


@pytest.mark.skipif(not Path("/dev/zero").exists(), reason="no /dev/zero here")
def test_standard_input_that_never_ends_is_refused(monkeypatch):
    with Path("/dev/zero").open() as stream:
        monkeypatch.setattr("sys.stdin", stream)
        with pytest.raises(InputError, match=r"^standard input: is a device, which may never end"):
            open_sequences("-")


def test_terminals_and_dev_null_are_read():
    with pytest.raises(InputError, match="is empty"):
        contents(open_sequences("/dev/null"))
    typed, terminal = pty.openpty()
    try:
        os.write(typed, b">a\nACGT\n\x04")
        assert contents(open_sequences(os.ttyname(terminal))) == [("a", "", b"ACGT")]
    finally:
        os.close(typed)
        os.close(terminal)
