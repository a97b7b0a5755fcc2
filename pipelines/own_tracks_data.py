"""Make up tracks on a genome, for trying own tracks: sites of a motif, and two signals.

The motif is TATAAA, on either strand. The signals are how near the nearest site is (1 at its middle, e times less
every 100 bases), and the share of G and C in stretches of 100 bases. One chromosome is set aside for validation in
training, one to be measured on at the end, and the others are for learning:

    python pipelines/own_tracks_data.py yeast.fa.gz -o runs/own-tracks --validation NC_001135.5 --held-out NC_001141.2
"""

from __future__ import annotations

import argparse
import gzip
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from genoformer.formats.sequences import Record, open_sequences
from genoformer.tokens import C, G, N, decode, encode, reverse_complement

MOTIF = b"TATAAA"
DECAY = 100
"""Bases in which the nearness falls by a factor of e."""
STRETCH = 100
"""Bases that have one share of G and C."""
_LINE = 60


def find_sites(codes: np.ndarray, motif: bytes) -> np.ndarray:
    """Return where a motif begins: int64, (sites,)."""
    letters = encode(motif)
    starts = np.arange(max(len(codes) - len(letters) + 1, 0))
    for offset, letter in enumerate(letters):
        starts = starts[codes[starts + offset] == letter]
    return starts


def site_lines(name: str, codes: np.ndarray) -> tuple[list[str], np.ndarray]:
    """Return BED lines of the sites of both strands, and the middle of each site."""
    lines, middles = [], []
    for strand, motif in (("+", MOTIF), ("-", decode(reverse_complement(encode(MOTIF))))):
        for start in find_sites(codes, motif).tolist():
            lines.append(f"{name}\t{start}\t{start + len(MOTIF)}\t{strand}\n")
            middles.append(start + len(MOTIF) // 2)
    return lines, np.sort(np.array(middles, dtype=np.int64))


def nearness(length: int, middles: np.ndarray) -> np.ndarray:
    """Return how near the nearest site is to each base, rounded to tenths: float64, (length,)."""
    if not len(middles):
        return np.zeros(length)
    places = np.arange(length)
    after = np.searchsorted(middles, places)
    left, right = middles[np.maximum(after - 1, 0)], middles[np.minimum(after, len(middles) - 1)]
    return np.exp(-np.minimum(abs(places - left), abs(right - places)) / DECAY).round(1)


def gc_share(codes: np.ndarray) -> np.ndarray:
    """Return the share of G and C among the known bases of the stretch that each base lies in; NaN where none is."""
    starts = np.arange(0, len(codes), STRETCH)
    known = np.add.reduceat(codes < N, starts, dtype=float)
    with np.errstate(invalid="ignore"):
        shares = np.add.reduceat((codes == C) | (codes == G), starts, dtype=float) / known
    return np.repeat(shares, STRETCH)[: len(codes)].round(2)


def bedgraph_lines(name: str, values: np.ndarray) -> Iterator[str]:
    """Yield a line for each run of equal values; unknown ones have none."""
    changes = np.flatnonzero(np.diff(values)) + 1  # NaN differs from everything, itself included
    for start, end in zip([0, *changes.tolist()], [*changes.tolist(), len(values)], strict=True):
        if start < end and not np.isnan(values[start]):
            yield f"{name}\t{start}\t{end}\t{values[start]:g}\n"


def write_fasta(path: Path, records: list[Record]) -> None:
    """Write sequences as FASTA."""
    with path.open("wb") as stream:
        for record in records:
            stream.write(b">" + record.name.encode() + b"\n")
            for start in range(0, len(record.bases), _LINE):
                stream.write(record.bases[start : start + _LINE] + b"\n")


def make(fasta: Path, folder: Path, *, validation: str, held_out: str) -> int:
    """Write three FASTA files, one for each use, and the tracks of all; return the number of sites."""
    records = list(open_sequences(fasta).records())
    uses: dict[str, list[Record]] = {"train": [], "validation": [], "held-out": []}
    for record in records:
        uses[{validation: "validation", held_out: "held-out"}.get(record.name, "train")].append(record)
    for use, found in uses.items():
        if not found:
            raise SystemExit(f"{fasta}: no sequence is left for {use}; it has {', '.join(r.name for r in records[:5])}")
    folder.mkdir(parents=True, exist_ok=True)
    for use, found in uses.items():
        write_fasta(folder / f"{use}.fa", found)
    count = 0
    with (
        (folder / "motif.bed").open("w") as sites,
        gzip.open(folder / "nearness.bedgraph.gz", "wt", compresslevel=1) as near,
        gzip.open(folder / "gc.bedgraph.gz", "wt", compresslevel=1) as shares,
    ):
        for record in records:
            codes = encode(record.bases)
            lines, middles = site_lines(record.name, codes)
            sites.writelines(lines)
            near.writelines(bedgraph_lines(record.name, nearness(len(codes), middles)))
            shares.writelines(bedgraph_lines(record.name, gc_share(codes)))
            count += len(lines)
    return count


def main() -> None:
    """Run from the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("fasta", type=Path, help="the genome, FASTA or GenBank")
    parser.add_argument("-o", "--output", type=Path, required=True, metavar="FOLDER", help="made if missing")
    parser.add_argument("--validation", required=True, metavar="NAME", help="sequence for validation")
    parser.add_argument("--held-out", required=True, metavar="NAME", help="sequence to be measured on at the end")
    options = parser.parse_args()
    count = make(options.fasta, options.output, validation=options.validation, held_out=options.held_out)
    print(f"{options.output}: train.fa, validation.fa, held-out.fa, motif.bed ({count:,} sites), "
          "nearness.bedgraph.gz, gc.bedgraph.gz")  # fmt: skip


if __name__ == "__main__":
    main()
