"""Hypothesis strategies: names, bases, and files of every shape that mean the same."""

from __future__ import annotations

import gzip
import struct
import zlib
from typing import NamedTuple
from urllib.parse import quote

from hypothesis import strategies as st

BASES = "ACGTacgtNnRYSWKMBDHVryswkmbdhv"
# characters that are special to some tool, none of them white space
AWKWARD_NAMES = (
    "x:1-100",
    "ENA|AB|AB.1",
    "HLA-A*01:01",
    "a/b",
    ".",
    "..",
    "chr1,2",
    "1",
    "é",
    'q"',
    "a;b",
    "a#b",
    "a>b",
)


class FastaFile(NamedTuple):
    """What a FASTA file says, and its bytes."""

    records: list[tuple[str, str, bytes]]  # name, description, bases
    content: bytes


def names() -> st.SearchStrategy[str]:
    plain = st.text("abcdefghijklmnopqrstuvwxyzABCXYZ0123456789_.|:-", min_size=1, max_size=12)
    return st.one_of(plain, st.sampled_from(AWKWARD_NAMES))


def bases(*, min_size: int = 0, max_size: int = 300) -> st.SearchStrategy[bytes]:
    return st.text(BASES, min_size=min_size, max_size=max_size).map(str.encode)


@st.composite
def fasta_files(draw: st.DrawFn, *, min_size: int = 0) -> FastaFile:
    """Draw records and one of the many ways to write them: ragged, blank and comment lines, line ends of all kinds."""
    record_names = draw(st.lists(names(), min_size=1, max_size=5, unique=True))
    description = st.text("abc xyz=1;>,\t|#", max_size=15).map(lambda text: " ".join(text.split()))
    records = [(name, draw(description), draw(bases(min_size=min_size))) for name in record_names]
    newline = draw(st.sampled_from(["\n", "\r\n", "\r"]))
    filler = st.lists(st.sampled_from(["", "; a comment", "#", " \t", ";>x"]), max_size=2)
    lines = draw(filler)
    for name, words, letters in records:
        lines.append(f">{name}{draw(st.sampled_from([' ', chr(9), '  ']))}{words}")
        lines += draw(filler)
        here = 0
        while here < len(letters):
            width = draw(st.integers(1, 80))
            lines.append(letters[here : here + width].decode() + draw(st.sampled_from(["", "", " "])))
            lines += draw(filler)
            here += width
    ending = newline if draw(st.booleans()) else ""
    return FastaFile(records, (newline.join(lines) + ending).encode())


def bgzip(content: bytes, *, block: int = 50) -> bytes:
    """Compress into the blocked gzip format with blocks of a few bytes, so that a small file has many."""
    pieces = [content[start : start + block] for start in range(0, len(content), block)] + [b""]
    return b"".join(_bgzf_block(piece) for piece in pieces)


def _bgzf_block(piece: bytes) -> bytes:
    deflate = zlib.compressobj(6, zlib.DEFLATED, -15)
    body = deflate.compress(piece) + deflate.flush()
    head = struct.pack("<4BI2BHBBHH", 31, 139, 8, 4, 0, 0, 255, 6, 66, 67, 2, len(body) + 25)
    return head + body + struct.pack("<II", zlib.crc32(piece), len(piece))


def members(content: bytes) -> bytes:
    """Compress as gzip in two members, as `cat a.gz b.gz` makes."""
    half = len(content) // 2
    return gzip.compress(content[:half]) + gzip.compress(content[half:])


COMPRESSIONS = {"plain": bytes, "gzip": gzip.compress, "members": members, "bgzip": bgzip}


class Line(NamedTuple):
    """A span of a sequence with a word, as BED has it."""

    sequence: str
    start: int
    end: int
    word: str
    strand: str


@st.composite
def bed_files(draw: st.DrawFn) -> tuple[list[Line], bytes]:
    """Draw spans, and a way to write them as BED: comments, blank lines, tabs or spaces, line ends of two kinds."""
    position = st.one_of(st.integers(0, 50), st.integers(0, 1 << 40))
    spans = st.tuples(position, st.integers(1, 99))
    words, strands = st.text("abcXYZ019_.|:-", min_size=1, max_size=6), st.sampled_from("+-.")
    drawn = draw(st.lists(st.tuples(names(), spans, words, strands), min_size=1, max_size=8))
    rows = [Line(name, start, start + size, word, strand) for name, (start, size), word, strand in drawn]
    rows = [row for row in rows if not row.sequence.startswith(("#", "track", "browser"))]
    newline, tab = draw(st.sampled_from(["\n", "\r\n"])), draw(st.sampled_from(["\t", " "]))
    lines = draw(st.lists(st.sampled_from(["# words", "", "track name=x", "browser position 1"]), max_size=2))
    for row in rows:
        lines.append(tab.join([row.sequence, str(row.start), str(row.end), row.word, "0", row.strand]))
        lines += draw(st.lists(st.sampled_from(["", "#x"]), max_size=1))
    return rows, (newline.join(lines) + draw(st.sampled_from([newline, ""]))).encode()


class Coding(NamedTuple):
    """A coding sequence as GFF3 has it."""

    sequence: str
    strand: int
    parts: tuple[tuple[int, int], ...]  # in the order in which they are read
    phase: int


@st.composite
def gff3_files(draw: st.DrawFn) -> tuple[list[Coding], bytes]:
    """Draw coding sequences of some parts, and GFF3 that holds their lines in any order, among others."""
    found, lines = [], []
    for number in range(draw(st.integers(1, 4))):
        name, strand, phase = draw(names()), draw(st.sampled_from([1, -1])), draw(st.integers(0, 2))
        edges = sorted(draw(st.sets(st.integers(1, 500), min_size=2, max_size=8)))
        parts = tuple(zip(edges[::2], edges[1::2], strict=False))
        parts = parts if strand == 1 else parts[::-1]
        found.append(Coding(name, strand, parts, phase))
        sign, done = "+" if strand == 1 else "-", -phase
        written = quote(name, safe="")
        for start, end in parts:
            columns = [written, "x", "CDS", str(start + 1), str(end), ".", sign, str(-done % 3), f"ID=c{number};Note=a"]
            lines.append("\t".join(columns))
            done += end - start
        lines.append("\t".join([written, "x", "gene", "1", "500", ".", sign, ".", f"ID=g{number}"]))
    lines = ["##gff-version 3", *draw(st.permutations(lines)), *draw(st.sampled_from([[], ["###"], ["##FASTA", ">x"]]))]
    return found, ("\n".join(lines) + "\n").encode()


class Aligned(NamedTuple):
    """A read along a reference: operation and length of each part of its CIGAR, and its bases as they are in a BAM."""

    cigar: list[tuple[int, int]]
    bases: str


@st.composite
def alignments(draw: st.DrawFn) -> Aligned:
    """Draw a CIGAR of every operation but B, in any order that the specification allows, and bases that it fits."""
    length = st.integers(1, 9)
    inner = draw(st.lists(st.tuples(st.sampled_from([0, 1, 2, 3, 6, 7, 8]), length), min_size=1, max_size=12))
    ends = [draw(st.lists(length, max_size=2)) for _ in range(2)]  # soft clips within hard ones
    first, last = ([(operation, size) for operation, size in zip((4, 5), end, strict=False)] for end in ends)
    cigar = [*first[::-1], *inner, *last]
    count = sum(size for operation, size in cigar if operation in (0, 1, 4, 7, 8))
    return Aligned(cigar, draw(st.text("ACGTN", min_size=count, max_size=count)))


@st.composite
def train_tables(draw: st.DrawFn) -> dict[str, object]:
    """Draw settings of a training that go together."""
    windows = draw(st.lists(st.integers(1, 10**6), min_size=1, max_size=4))
    shares = draw(st.one_of(st.just([]), st.lists(st.floats(0.01, 1e6), min_size=len(windows), max_size=len(windows))))
    return {
        "windows": windows,
        "window_shares": shares,
        "step_bases": draw(st.integers(max(windows), 1 << 62)),
        "learning_rate": draw(st.one_of(st.floats(1e-9, 1e9), st.integers(1, 1 << 62))),
        "ema": draw(st.floats(0, 0.999)),
        "init_from": draw(st.text(st.characters(exclude_categories=["Cs"]), max_size=10)),
        "pretrain": draw(st.booleans()),
        "seed": draw(st.integers(0, (1 << 32) - 1)),
    }
