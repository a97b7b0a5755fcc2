"""Tables of samples: what a training learns from and is measured on, a genome a line."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from genoformer.errors import ConfigError, InputError
from genoformer.plain import read_small
from genoformer.tracks import Track
from genoformer.training.config import LabelFiles, Sample

_COLUMNS = ("fasta", "annotation", "split", "weight")


def read_samples_table(path: Path, *, tracks: Sequence[Track] = ()) -> tuple[Sample, ...]:
    """Read a table of samples: tab-separated, with a header; lines that are empty or begin with # are skipped.

    Columns are fasta and annotation, split and weight if they are not the defaults, and one for the label files of each
    own track, named as it is, or TRACK.CHANNEL for one channel; there, a cell may be empty. Where there is a column of
    labels, annotation may be missing or empty.

    Parameters
    ----------
    tracks : the user's own

    Raises
    ------
    InputError : there is no such file, it has no samples, or a line says something else
    """
    try:
        lines = read_small(path, encoding="utf-8-sig").splitlines()
    except OSError as error:
        raise InputError(f"{path}: cannot be read: {error.strerror}") from None
    except UnicodeDecodeError as error:
        raise InputError(
            f"{path}: not text in UTF-8: {error}; save the table of samples as tab-separated text"
        ) from None
    except ValueError as error:
        raise InputError(f"{path}: no table of samples: {error}") from None
    rows = [(number, line.split("\t")) for number, line in enumerate(lines, 1) if line.strip() and line[0] != "#"]
    header = [column.strip() for column in rows[0][1]] if rows else []
    _check_header(path, header, tracks)
    samples: list[Sample] = []
    seen: dict[tuple[str, str], int] = {}
    for number, row in rows[1:]:
        sample = _sample(f"{path}: line {number}", header, [cell.strip() for cell in row])
        first = seen.setdefault((sample.fasta, sample.split), number)
        if first != number:
            raise InputError(f"{path}: line {number}: {sample.fasta} is in {sample.split} already, by line {first}")
        samples.append(sample)
    if not samples:
        raise InputError(f"{path}: no samples below the header")
    return tuple(samples)


def _check_header(path: Path, header: Sequence[str], tracks: Sequence[Track]) -> None:
    known = [track.name for track in tracks]
    known += [f"{track.name}.{channel}" for track in tracks for channel in track.channels]
    needed = {"fasta"} if set(header) & set(known) else {"fasta", "annotation"}
    if not needed <= set(header) <= {*_COLUMNS, *known} or len(set(header)) < len(header):
        own = f", and for labels {', '.join(track.name for track in tracks)} (or TRACK.CHANNEL)" if tracks else ""
        raise InputError(
            f"{path}: the first line must name, tab-separated, the columns fasta, annotation and, if wanted, split and "
            f"weight{own}; got {', '.join(header) or 'nothing'}"
        )
    for track in tracks:
        if track.name in header and any(f"{track.name}.{channel}" in header for channel in track.channels):
            raise InputError(f"{path}: labels of {track.name} come in one column, or in one for each channel, not both")


def _sample(where: str, header: Sequence[str], row: Sequence[str]) -> Sample:
    labeled = set(header) - set(_COLUMNS)
    optional = labeled | {"annotation"} if labeled else labeled
    if len(row) != len(header) or not all(cell or name in optional for name, cell in zip(header, row, strict=True)):
        full = [name for name in header if name not in optional]
        raise InputError(
            f"{where}: expected {len(header)} cells that are not empty ({', '.join(full)}), got {row}"
            if not labeled
            else f"{where}: expected {len(header)} cells, of which {', '.join(full)} must not be empty, got {row}"
        )
    cells = dict(zip(header, row, strict=True))
    try:
        weight = float(cells.get("weight", 1.0))
    except ValueError:
        raise InputError(f"{where}: weight must be a number, got {cells['weight']!r}") from None
    labels = _labels({name: cells[name] for name in header if name in labeled and cells[name]})
    split = cells.get("split", "train")
    try:
        return Sample(cells["fasta"], cells.get("annotation", ""), split=split, weight=weight, labels=labels)
    except ConfigError as error:
        raise InputError(f"{where}: {error}") from None


def _labels(cells: dict[str, str]) -> dict[str, LabelFiles]:
    """Return the label files of each track from the cells of TRACK or TRACK.CHANNEL."""
    labels: dict[str, LabelFiles] = {}
    for column, file in cells.items():
        track, dot, channel = column.partition(".")
        if not dot:
            labels[track] = file
            continue
        files = labels.setdefault(track, {})
        assert isinstance(files, dict)
        files[channel] = file
    return labels
