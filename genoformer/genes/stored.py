"""Genes of a store: its probabilities, and the bases they belong to, which a store does not hold."""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Callable, Collection, Iterator
from typing import NamedTuple

import numpy as np

from genoformer.errors import FormatError, InputError
from genoformer.formats.sequences import Record, Sequences, checksum
from genoformer.genes.calls import Called, CallSettings, call_many
from genoformer.genes.gene import Gene
from genoformer.plan import ALL, check_circular
from genoformer.regions import Block
from genoformer.store import TrackStore
from genoformer.store.sequences import SequenceTable
from genoformer.tokens import encode
from genoformer.tracks import CODING_FRAME

_NUMBERED = re.compile(r"(.+)_\d+")


class SequenceGenes(NamedTuple):
    """A sequence and its genes."""

    name: str
    codes: np.ndarray
    is_circular: bool
    genes: list[Gene]
    identifiers: list[str]
    """of the genes, unique over all sequences"""


def stored_code(store: TrackStore) -> int:
    """Return the genetic code that a store was predicted with, 11 where it does not say."""
    return int(store.metadata.get("identity", {}).get("genetic-code", 11))


def stored_genes(
    store: TrackStore,
    sequences: Sequences,
    *,
    settings: CallSettings | None = None,
    circular: Collection[str] = (),
    report: Callable[[int], None] = lambda _: None,
) -> Iterator[SequenceGenes]:
    """Call the genes of every sequence of a store, one sequence or a batch of short ones in memory at a time.

    Parameters
    ----------
    store : with the track coding-frame
    sequences : what was predicted, in the same order; more records may lie between
    settings : how; default: with the genetic code of the store
    circular : names of sequences whose ends are joined, beside those the store knows of; ``all`` for every one
    report : called with the number of bases done

    Raises
    ------
    FormatError : the store has no track coding-frame
    InputError : the sequences are not those that were predicted, or ``circular`` names none of them
    """
    if CODING_FRAME.name not in store.tracks:
        has = ", ".join(store.tracks)
        raise FormatError(f"{store.path}: genes need a track {CODING_FRAME.name!r}, it has {has}; predict with a model "
                          "of genes, such as prokaryote-genes")  # fmt: skip
    table = store.sequences
    check_circular(circular, table, str(store.path))
    settings = settings or CallSettings(stored_code(store))
    waiting: deque[tuple[str, Called]] = deque()

    def queued() -> Iterator[Called]:
        for record, values, topology in _joined(store, sequences):
            is_circular = topology == "circular" or ALL in circular or record.name in circular
            called = Called(encode(record.bases), values, is_circular)
            waiting.append((record.name, called))
            yield called

    indexed = _needs_index(table)
    for number, genes in enumerate(call_many(queued(), settings=settings), 1):
        name, called = waiting.popleft()
        stem = str(number) if indexed else name
        identifiers = [f"{stem}_{k}" for k in range(1, len(genes) + 1)]
        yield SequenceGenes(name, called.codes, called.is_circular, genes, identifiers)
        report(len(called.codes))


def _needs_index(table: SequenceTable) -> bool:
    """Tell whether NAME_1 could be a gene of two sequences, as one is called like the other with a number behind."""
    names = set(table.names)
    matches = (_NUMBERED.fullmatch(name) for name in table.names)
    return any(match is not None and match[1] in names for match in matches)


def _joined(store: TrackStore, sequences: Sequences) -> Iterator[tuple[Record, np.ndarray, str]]:
    """Yield each sequence of the store with its bases, values and topology."""
    blocks = store.blocks(CODING_FRAME.name)
    for record, topology in matched_records(store, sequences):
        yield record, _gather(blocks, len(record.bases)), topology


def matched_records(store: TrackStore, sequences: Sequences) -> Iterator[tuple[Record, str]]:
    """Yield the record of each sequence of a store, in order, and its topology.

    Parameters
    ----------
    store : of any track
    sequences : what was predicted, in the same order; more records may lie between

    Raises
    ------
    InputError : the sequences are not those that were predicted
    """
    table = store.sequences
    records = sequences.records()
    known = set(table.names)
    for name, length, md5, topology in zip(table.names, table.lengths.tolist(), table.md5, table.topology, strict=True):
        record = next((record for record in records if record.name in known), None)
        if record is None or record.name != name:
            found = "it ends before" if record is None else f"there is {record.name!r}"
            raise InputError(f"{sequences.source}: expected sequence {name!r} next, as in {store.path}, but {found}; "
                             "give the file that was predicted with --fasta")  # fmt: skip
        _check_same(record, length, md5, sequences.source, store)
        yield record, topology


def _check_same(record: Record, length: int, md5: str, source: str, store: TrackStore) -> None:
    is_same = len(record.bases) == length
    if is_same and md5:
        is_same = checksum(record) == md5
    if not is_same:
        raise InputError(f"{source}: sequence {record.name!r} ({len(record.bases)} bases) is not the one that "
                         f"{store.path} was predicted from ({length} bases, MD5 {md5 or 'unknown'}); give that with "
                         "--fasta, or predict this one")  # fmt: skip


def _gather(blocks: Iterator[Block], length: int) -> np.ndarray:
    """Join the next blocks, which are those of one sequence: (bases, 7) float16."""
    values = np.empty((length, len(CODING_FRAME.channels)), dtype=np.float16)
    done = 0
    while done < length:
        block = next(blocks)
        values[block.start : block.end] = block.values[CODING_FRAME.name]
        done = block.end
    return values
