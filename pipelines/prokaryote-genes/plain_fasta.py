"""FASTA for the environments of other programs, where genoformer is not."""

import gzip
from pathlib import Path
from urllib.parse import quote


def records(path):
    """Yield name and bases."""
    with Path(path).open("rb") as raw:
        is_gzip = raw.read(2) == b"\x1f\x8b"
    name, lines = None, []
    with gzip.open(path, "rb") if is_gzip else Path(path).open("rb") as stream:
        for line in stream:
            if line.startswith(b">"):
                if name is not None:
                    yield name, b"".join(lines)
                name, lines = (line[1:].split() or [b""])[0].decode(), []
            else:
                lines.append(line.strip())
    if name is not None:
        yield name, b"".join(lines)


def region(name, bases):
    """Return the name as GFF3 has it, and its ##sequence-region line."""
    seqid = quote(name, safe=".:^*$@!+_?-|")
    return seqid, f"##sequence-region {seqid} 1 {len(bases)}\n" if bases else ""
