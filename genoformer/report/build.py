"""From a store to a page: what is read in which order, and how the room of the page is shared out."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np

from genoformer import __version__
from genoformer.errors import FormatError, InputError
from genoformer.formats.annotated import check_fits, read_annotation
from genoformer.formats.bed import parse_regions
from genoformer.genes import CallSettings
from genoformer.genes.stored import stored_code
from genoformer.labels import Files
from genoformer.regions import Region
from genoformer.report import sections
from genoformer.report.accuracy import accuracy
from genoformer.report.detail import BYTES_A_BASE, LEVELS, read_tiles
from genoformer.report.distributions import distributions
from genoformer.report.gather import Gathered, gather
from genoformer.report.markup import Markup, element, join, shown
from genoformer.report.page import render
from genoformer.report.payload import (
    gene_columns,
    limits_of,
    overview,
    packed_json,
    sequence_columns,
    truth_columns,
)  # fmt: skip
from genoformer.report.selection import TILE, Selection, select, tiles
from genoformer.report.truth import Truth, read_truth
from genoformer.report.values import Values, drawn_channels, read_values
from genoformer.report.walk import Walk
from genoformer.store import TrackStore, open_store
from genoformer.tokenizing import open_sequences_or_tokens
from genoformer.tracks import CODING_FRAME, Track

SIZE = 4.0
_WORDS = 500
"""Characters that the page says more when it says what it leaves out."""


@dataclass(frozen=True)
class ReportSettings:
    """What a report is made of.

    Attributes
    ----------
    track : of the store; None: its first
    truth : annotation, or what `read_labels` takes for other tracks
    fasta : what was predicted; None: where it was then
    genes : GFF3 or GenBank file with genes to show; None: they are called as `genoformer export` does
    circular : names of sequences whose ends are joined, or "all"
    genetic_code : NCBI translation table; None: that of the prediction
    detail : regions to be shown base by base before all others, as `parse_regions` takes them
    size : megabytes that the page may have; what is left after all else goes to values base by base
    """

    track: str | None = None
    truth: Files | None = None
    fasta: str | None = None
    genes: str | None = None
    circular: Collection[str] = ()
    genetic_code: int | None = None
    detail: tuple[str, ...] = ()
    size: float = SIZE


def build_report(
    path: str | Path,
    settings: ReportSettings = ReportSettings(),
    *,
    date: str | None = None,
    report: Callable[[int], None] = lambda _: None,
) -> bytes:
    """Return a page of HTML about a store, with everything it needs inside.

    Memory is that of the largest sequence with its values, of the genes, and of the page.

    Parameters
    ----------
    path : of the store
    settings : what to show
    date : when the report was made; None: now. Two pages of the same input differ in this only
    report : called with the number of bases done; twice for each base

    Raises
    ------
    InputError : a file cannot be read, or does not belong to the store
    FormatError : the store holds tokens, or is damaged
    """
    with open_store(path) as store:
        made = _Made.of(store, settings, report)
        return made.page(datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC") if date is None else date)


@dataclass
class _Made:
    """All parts of a report."""

    store: TrackStore
    track: Track
    selection: Selection
    values: Values
    gathered: Gathered
    truth: Truth | None
    genes_from: str
    notes: list[str]
    regions: list[Region]
    room: int

    @classmethod
    def of(cls, store: TrackStore, settings: ReportSettings, report: Callable[[int], None]) -> _Made:
        track = _chosen_track(store, settings.track)
        regions = _regions(store, settings.detail)
        room = int(settings.size * 1e6)
        signals = 3 if track.kind == "signal" else 1
        selection = select(store.sequences, channels=signals * len(drawn_channels(track)))
        wanted = tiles(selection, regions=regions, most=int(room / BYTES_A_BASE))
        walk, genes_from, notes = _walk(store, track, settings)
        gathered = gather(walk.steps(report), selection, wanted, keep_calls=settings.truth is not None)
        values = read_values(store, track, selection, report=report)
        truth = None
        if settings.truth is not None:
            truth = read_truth(store, values, settings.truth, selection=selection, gathered=gathered)
        return cls(store, track, selection, values, gathered, truth, genes_from, notes, regions, room)

    def page(self, date: str) -> bytes:
        """Return the page: all else first, then as many bases in detail as there is room for."""
        data = self._data()
        used = len(render(self._parts(date, 0), data | {"tiles": []}))
        limits = limits_of(self.values)
        wanted = tiles(self.selection, regions=self.regions, most=int(self.room / BYTES_A_BASE))
        data["tiles"] = read_tiles(
            self.store, self.track, self.selection, wanted,
            room=self.room - used - _WORDS, letters=self.gathered.letters, limits=limits,
        )  # fmt: skip
        return render(self._parts(date, sum(tile["bases"] for tile in data["tiles"])), data)

    def _data(self) -> dict[str, Any]:
        limits = limits_of(self.values)
        table = sequence_columns(self.store, self.selection, self.values, self.gathered, self.truth)
        genes = gene_columns(self.gathered, self.truth) if self.gathered.has_genes else None
        true = None if self.truth is None else truth_columns(self.truth)
        return {
            "track": {
                "kind": self.track.kind,
                "units": shown(self.track.units),
                "channels": [shown(channel) for channel in drawn_channels(self.track)],
                "frames": self.track.name == CODING_FRAME.name,
            },
            "bin": self.selection.bin_size,
            "tile": TILE,
            "limits": limits,
            "levels": LEVELS,
            "overview": overview(self.values, self.gathered, self.truth, limits),
            "sequences": packed_json(table),
            "genes": None if genes is None else packed_json(genes),
            "truth": packed_json(true) if true is not None and true["place"] else None,
        }

    def _parts(self, date: str, detailed: int) -> dict[str, Markup | str]:
        name = shown(Path(self.store.path).name)
        measured = Markup("") if self.truth is None else section(
            "accuracy", "Agreement with the truth", accuracy(self.truth.evaluation)
        )  # fmt: skip
        return {
            "title": f"{name}: genoformer report",
            "name": name,
            "version": __version__,
            "date": date,
            "key_numbers": sections.key_numbers(self.store, self.values, self.gathered),
            "run": join(sections.what_was_run(self.store, self.genes_from), sections.account(self.store, self.values)),
            "distributions": distributions(self.selection, self.values, self.gathered),
            "accuracy": measured,
            "accuracy_link": Markup('<a href="#accuracy">Accuracy</a>') if self.truth else Markup(""),
            "genes_link": Markup('<a href="#genes">Genes</a>') if self.gathered.has_genes else Markup(""),
            "limits": self._limits(detailed),
        }

    def _limits(self, detailed: int) -> Markup:
        """Say what a page of this size does not hold."""
        said = list(self.notes)
        listed, total = len(self.selection.indices), len(self.store.sequences)
        bases = int(self.selection.lengths.sum())
        if listed < total:
            said.append(f"Listed and drawn are the {listed:,} longest of {total:,} sequences, with {bases:,} of "
                        f"{self.store.sequences.total_bases:,} bases; numbers and charts are of all.")  # fmt: skip
        genes = int(self.gathered.genes.sum())
        if len(self.gathered.listed) < genes:
            said.append(f"Listed and drawn are {len(self.gathered.listed):,} of {genes:,} genes, "
                        "those of the longest sequences.")  # fmt: skip
        predicted = int(self.values.predicted[self.selection.indices].sum())
        if detailed < predicted:
            said.append(f"Base by base are {detailed:,} bases, {sections.share(detailed, bases)} of what is drawn; all "
                        f"else is drawn as means of {self.selection.bin_size} bases. A larger --size or --detail "
                        "shows more.")  # fmt: skip
        if not said:
            said.append("Everything is here, base by base.")
        return element("ul", *[element("li", one) for one in said], attributes={"class": "notes"})


def section(identifier: str, title: str, *parts: Markup) -> Markup:
    """Return a section of the page."""
    return element("section", element("h2", title), *parts, attributes={"id": identifier})


def _chosen_track(store: TrackStore, name: str | None) -> Track:
    name = next(iter(store.tracks)) if name is None else name
    if name not in store.tracks:
        raise InputError(f"{store.path}: has no track {name!r}; it has {', '.join(store.tracks)}")
    if store.dtype == np.uint8:
        raise FormatError(f"{store.path}: track {name!r} holds codes, not predictions; give what predict wrote")
    return store.tracks[name]


def _regions(store: TrackStore, texts: tuple[str, ...]) -> list[Region]:
    if not texts:
        return []
    table = store.sequences
    return list(parse_regions(texts, dict(zip(table.names, table.lengths.tolist(), strict=True))))


def _walk(store: TrackStore, track: Track, settings: ReportSettings) -> tuple[Walk, str, list[str]]:
    """Return how to walk over the sequences, where genes are from, and what could not be had."""
    source = settings.fasta or str(store.metadata.get("input", ""))
    is_there = settings.fasta is not None or bool(source and Path(source).is_file())
    sequences = open_sequences_or_tokens(source) if is_there else None
    notes = []
    if sequences is None:
        missing = f"{source!r} is not there" if source else "the store does not say what was predicted"
        notes.append(f"No bases, GC content or called genes, as {missing}; --fasta gives it.")
    if settings.genes is not None:
        annotation = read_annotation(settings.genes)
        lengths = dict(zip(store.sequences.names, store.sequences.lengths.tolist(), strict=True))
        check_fits(annotation, lengths, source=settings.genes, sequences=str(store.path))
        others = len([name for name in annotation.coding_sequences if name not in lengths])
        if others:
            notes.append(f"{settings.genes}: {others:,} of its sequences are not in the store and left out.")
        return Walk(store, sequences, annotation), f"from {settings.genes}", notes
    if track.name != CODING_FRAME.name or sequences is None:
        return Walk(store, sequences), "", notes
    code = stored_code(store) if settings.genetic_code is None else settings.genetic_code
    calls = CallSettings(genetic_code=code)
    _ = calls.code  # unknown ones are refused before anything is read
    return Walk(store, sequences, None, calls, settings.circular), f"called as export does, genetic code {code}", notes
