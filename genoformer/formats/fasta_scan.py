"""The text of a FASTA file, cut into headers and stretches of bases, and the checks of a record.

The format is wide: header lines begin with ``>``; the first word is the name. White space and blank lines mean nothing,
lines may have any length, lines beginning with ``;`` or ``#`` are comments. A ``>`` inside a sequence line begins a
record too: that is what joining two files makes when the first one does not end with a new line.
"""

from __future__ import annotations

import io
import logging
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

from genoformer.errors import FormatError, InputError
from genoformer.formats.bytestream import ByteStream
from genoformer.formats.sequences import NO_NAME, Record

_LOG = logging.getLogger(__name__)
BLOCK_SIZE = 1 << 20
"""bytes read at a time"""
_WHITE = b" \t\r\n\v\f"
_NUCLEOTIDES = b"ACGTURYSWKMBDHVNXacgturyswkmbdhvnx-."
_AMINO_ACIDS = b"EFILPQZJOefilpqzjo*"
_MAX_ODD = 0.1
_LONGEST_HEADER = 16 << 20
_BYTE_ORDER_MARK = b"\xef\xbb\xbf"


class Header(NamedTuple):
    """A header line without its ``>``, and its number from 1."""

    line: int
    text: bytes


class Bases(NamedTuple):
    """A stretch of bases, and the offset in decompressed bytes at which it begins."""

    offset: int
    bases: bytes


@dataclass
class OpenRecord:
    """The record being read: its bases so far, and how many of them are no nucleotide letters; "" is no name."""

    source: str
    number: int
    name: str
    description: str
    length: int = 0
    odd: int = 0
    gaps: int = 0
    line: int = 0
    first_odd: tuple[str, int] | None = None
    letters: io.BytesIO = field(default_factory=io.BytesIO)

    @classmethod
    def from_header(cls, header: Header, source: str, number: int) -> OpenRecord:
        text = header.text.strip()
        where = f"{source}: line {header.line}"
        if b"\r" in text or b"\n" in text:
            raise FormatError(f"{where}: has mixed line ends; make them the same with `tr -s '\\r' '\\n'`")
        words = text.split(maxsplit=1) or [b""]
        try:
            name, description = words[0].decode(), words[1].decode() if len(words) > 1 else ""
        except UnicodeDecodeError:
            name, description = words[0].decode("latin-1"), words[1].decode("latin-1") if len(words) > 1 else ""
        return cls(source, number, name, description, line=header.line)

    def add(self, bases: bytes) -> None:
        if self.name:
            self.count(bases)
            self.letters.write(bases)

    def count(self, bases: bytes) -> None:
        odd = bases.translate(None, _NUCLEOTIDES)
        if odd:
            self.odd += len(odd)
            if self.first_odd is None:
                self.first_odd = (chr(odd[0]), self.length + bases.index(odd[0]) + 1)
        self.gaps += bases.count(b"-") + bases.count(b".")
        self.length += len(bases)

    def check(self) -> int:
        """Return the length, or raise InputError if these letters are no nucleotides."""
        if self.first_odd and self.odd > _MAX_ODD * (self.length - self.gaps):
            letter, position = self.first_odd
            what = "looks like protein" if ord(letter) < 128 and letter.encode() in _AMINO_ACIDS else "is no DNA or RNA"
            raise InputError(
                f"{self.source}: record {self.name!r} {what}: {self.odd} of {self.length} letters are no nucleotide "
                f"letters, the first is {letter!r} at position {position}; give nucleotide sequences"
            )
        return self.length

    def close(self) -> Record:
        self.check()
        letters, self.letters = self.letters, io.BytesIO()
        return Record(self.name, self.description, "linear", letters.getvalue())  # getvalue shares, does not copy


class Nameless:
    """Counts the records of a file that have no name, which are left out, and says so once."""

    def __init__(self, source: str) -> None:
        self.source, self.counts = source, Counter[str]()
        self._first, self._is_told = 0, False

    def begin(self) -> None:
        """Count anew."""
        self.counts = Counter()

    def leaves_out(self, record: OpenRecord) -> bool:
        """Tell whether a record has no name, and count it."""
        if not record.name:
            self._first = self._first if self.counts[NO_NAME] else record.line
            self.counts[NO_NAME] += 1
        return not record.name

    def end(self, named: int) -> None:
        """Say how many there were; InputError if there was no other."""
        count = self.counts[NO_NAME]
        if not named:
            what = (
                "no FASTA record with a name, such as '>chr1'" if count else "no FASTA record, no line begins with '>'"
            )
            raise InputError(f"{self.source}: has {what}")
        if count and not self._is_told:
            said = f"1 record has no name after '>' (line {self._first}) and is"
            if count > 1:
                said = f"{count:,} records have no name after '>' (the first in line {self._first}) and are"
            _LOG.warning("%s: %s left out", self.source, said)
            self._is_told = True


def begin(stream: ByteStream) -> tuple[bytes, int]:
    """Return how lines end, and go to the first byte of text, returned too."""
    head = stream.read(BLOCK_SIZE)
    stream.seek(0)
    mark = _BYTE_ORDER_MARK if head.startswith(_BYTE_ORDER_MARK) else b""
    stream.read(len(mark))
    return b"\r" if b"\r" in head and b"\n" not in head else b"\n", len(mark)


def scan(
    stream: ByteStream, source: str, *, newline: bytes | None = None, block_size: int = BLOCK_SIZE
) -> Iterator[Header | Bases]:
    """Cut FASTA into headers and stretches of bases; with ``newline``, from within a record on."""
    line, offset, at_line_start = 1, 0, newline is None
    in_record = newline is not None
    pending: list[bytes] | None = None  # of a header or comment whose end is not seen yet
    is_header, size = False, 0
    if newline is None:
        newline, offset = begin(stream)
    while block := stream.read(block_size):
        if b"\0" in block:
            raise FormatError(f"{source}: is not FASTA text, there is a NUL byte at byte {offset + block.index(0) + 1}")
        here = 0
        while here < len(block):
            if pending is not None:
                end = block.find(newline, here)
                pending.append(block[here : end if end >= 0 else None] if is_header else b"")
                size = size + len(pending[-1]) if len(pending) > 1 else len(pending[-1])
                if size > _LONGEST_HEADER:
                    raise FormatError(f"{source}: line {line}: a header of more than {_LONGEST_HEADER >> 20} MiB")
                if end < 0:
                    break
                if is_header:
                    yield Header(line, b"".join(pending))
                pending, here, at_line_start, line = None, end + 1, True, line + 1
                continue
            stop = _next_marker(block, here, newline, at_line_start)
            if stop > here:
                bases = block[here:stop].translate(None, _WHITE)
                if bases and not in_record:
                    raise _not_fasta(source, line, block[here:stop], newline)
                if bases:
                    yield Bases(offset + here, bases)
                line += block.count(newline, here, stop)
                at_line_start = block.endswith(newline, here, stop)
            if stop < len(block):
                pending, is_header = [], block.startswith(b">", stop)
                in_record = in_record or is_header
            here = stop + 1
        offset += len(block)
    if pending is not None and is_header:
        yield Header(line, b"".join(pending))


def _next_marker(block: bytes, start: int, newline: bytes, at_line_start: bool) -> int:
    """Return where the next header or comment begins, or the end of the block."""
    stop = block.find(b">", start)
    stop = len(block) if stop < 0 else stop
    for comment in (b";", b"#"):
        here = block.find(comment, start, stop)
        while here >= 0:
            if at_line_start if here == start else block.startswith(newline, here - 1):
                stop = here
                break
            here = block.find(comment, here + 1, stop)
    return stop


def _not_fasta(source: str, line: int, text: bytes, newline: bytes) -> FormatError:
    blank = text[: len(text) - len(text.lstrip())]
    shown = text.split(maxsplit=1)[0][:20].decode("ascii", "replace")
    number = line + blank.count(newline)
    return FormatError(
        f"{source}: is not FASTA: line {number} begins with {shown!r}, expected a header such as '>chr1'"
    )
