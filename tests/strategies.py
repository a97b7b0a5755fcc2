"""Hypothesis strategies: names, bases, and files of every shape that mean the same."""

from __future__ import annotations

import gzip
import struct
import zlib
from typing import NamedTuple

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
