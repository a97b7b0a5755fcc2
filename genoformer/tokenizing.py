"""Tokenized inputs: codes and the table of windows in HDF5, to be predicted later or read by others."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

import genoformer
from genoformer.errors import FormatError
from genoformer.formats.sequences import (
    BamAs,
    Original,
    Record,
    Sequences,
    check_bam_as,
    check_region,
    open_sequences,
    sniff,
)
from genoformer.plan import Plan, planned_records
from genoformer.regions import Block, Region
from genoformer.store import Output, TrackStore, open_store
from genoformer.tokens import UNKNOWN, Composition, decode, encode
from genoformer.tracks import TOKENS

if TYPE_CHECKING:
    from genoformer.formats.bam import ReadFilter


def tokenize_to_store(
    plan: Plan,
    sequences: Sequences,
    output: str | Path | Output,
    *,
    report: Callable[[int], None] = lambda _: None,
) -> Path:
    """Write the tokens of every sequence, and the windows they are cut into.

    The store has one track, "tokens": a code a base, of `genoformer.tokens.ALPHABET`. Beside it lie two tables:
    ``windows``, with sequence index, start, end, and the start and end of what each owns; and ``letters``, with the
    counts of known, ambiguous, invalid and soft-masked letters of each sequence, see `genoformer.tokens.Composition`.
    """
    windows = [
        (index, window.region.start, window.region.end, window.owned.start, window.owned.end)
        for index in range(len(plan.sequences))
        for window in plan.windows(index)
    ]
    output = Output.of(output)
    what: dict[str, Any] = {
        "sequences": plan.sequences,
        "tracks": [TOKENS],
        "provenance": {
            "identity": {"input-sha256": plan.input_digest(), "window": plan.window, "overlap": plan.overlap},
            "alignments" if plan.made_by else "input": plan.source,
            "letters": plan.letters._asdict(),
            "accounting": plan.accounting._asdict(),
            **({"made-by": plan.made_by} if plan.made_by else {}),
            "versions": {"genoformer": genoformer.__version__, **plan.made_by.get("versions", {})},
        },
        "dtype": "uint8",
    }
    if output.is_done(**what):
        report(plan.accounting.total)
        return Path(output.path)
    with output.create(blocks=_whole_blocks(plan), **what) as writer:
        number = 0
        for index, record in planned_records(plan, sequences):
            for start, end in _spans(int(plan.sequences.lengths[index])):
                if not writer.is_done(number):
                    writer.write(Block(record.name, start, {TOKENS.name: encode(record.bases[start:end])[:, None]}))
                report(end - start)
                number += 1
        writer.add_table(
            "windows",
            ("sequence", "start", "end", "owned_start", "owned_end"),
            np.array(windows, dtype=np.int64).reshape(-1, 5),
        )
        writer.add_table("letters", Composition._fields, plan.compositions)
        return writer.finish()


_SPAN = 1 << 20


def _spans(length: int) -> list[tuple[int, int]]:
    return [(start, min(start + _SPAN, length)) for start in range(0, length, _SPAN)]


def _whole_blocks(plan: Plan) -> np.ndarray:
    offsets = plan.sequences.offsets
    blocks = [
        (offsets[index] + start, offsets[index] + end)
        for index, length in enumerate(plan.sequences.lengths)
        for start, end in _spans(int(length))
    ]
    return np.array(blocks, dtype=np.int64).reshape(-1, 2)


class TokenSequences:
    """The sequences of a tokenized input, see `Sequences`; case and IUPAC letters are no longer in it.

    Attributes
    ----------
    window, overlap : bases that it was cut by
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.source = os.fspath(path)
        with open_store(self.source) as store:
            if list(store.tracks) != [TOKENS.name]:
                raise FormatError(
                    f"{self.source}: holds the tracks {', '.join(store.tracks)}, not tokens; "
                    "expected sequences, or what `genoformer tokenize` writes"
                )
            identity = store.metadata.get("identity", {})
            cut = [identity.get("window"), identity.get("overlap")]
            if not all(isinstance(bases, int) for bases in cut):
                raise FormatError(f"{self.source}: does not say how it was cut into windows; run `genoformer tokenize`")
            self.window, self.overlap = cut

    def records(self) -> Iterator[Record]:
        """Yield every sequence."""
        with open_store(self.source) as store:
            table, letters = store.sequences, _letters(store)
            for index, (name, topology, length) in enumerate(
                zip(table.names, table.topology, table.lengths.tolist(), strict=True)
            ):
                codes = store.values(Region(name, 0, length))[:, 0]
                original = None
                if letters is not None and table.md5[index]:
                    original = Original(table.md5[index], Composition(*letters[index].tolist()))
                    if original.letters.known != np.count_nonzero(codes < UNKNOWN):
                        raise _other_letters(store)
                yield Record(name, "", topology, decode(codes), original)

    def lengths(self) -> dict[str, int]:
        """Return the length in bases of every sequence."""
        with open_store(self.source) as store:
            return dict(zip(store.sequences.names, store.sequences.lengths.tolist(), strict=True))

    def fetch(self, region: Region) -> bytes:
        """Return the bases of a region."""
        check_region(region, self.lengths(), self.source)
        with open_store(self.source) as store:
            return decode(store.values(region)[:, 0])


def _letters(store: TrackStore) -> np.ndarray | None:
    """Return what each sequence was made of, columns of `Composition`, if the store says so."""
    found = store.table("letters", len(Composition._fields))
    if found is not None and ((found < 0).any() or (found[:, :3].sum(axis=1) != store.sequences.lengths).any()):
        raise _other_letters(store)
    return found


def _other_letters(store: TrackStore) -> FormatError:
    return FormatError(f"{store.path}: damaged (its table of letters is not that of its sequences); write it again")


def open_sequences_or_tokens(
    path: str | os.PathLike[str],
    *,
    reference: str | None = None,
    reads: ReadFilter | None = None,
    bam_as: BamAs = "reads",
) -> Sequences:
    """Open sequences as `open_sequences` does, or a tokenized input."""
    if os.fspath(path) != "-" and sniff(path) == "hdf5":
        check_bam_as(bam_as, os.fspath(path))
        return TokenSequences(path)
    return open_sequences(path, reference=reference, reads=reads, bam_as=bam_as)
