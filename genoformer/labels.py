"""Labels of every base from any annotation: one door for coding sequences, BED classes and signals."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from pathlib import Path

import numpy as np

from genoformer.annotation import Annotation, coding_frame_labels
from genoformer.errors import InputError
from genoformer.formats.annotated import check_fits, read_annotation, some_names
from genoformer.formats.bigwig import BigWig, is_bigwig
from genoformer.formats.spans import Spans, check_disjoint, read_bed_spans, read_bedgraph
from genoformer.tracks import CODING_FRAME, IGNORED, Track

Files = str | os.PathLike[str] | Mapping[str, str | os.PathLike[str]]


class Labels(Mapping[str, np.ndarray]):
    """What is true of every base of each sequence, made when asked for.

    A class track gives uint8 (bases,): the number of the class, IGNORED where it is not known. A signal track gives
    float32 (bases, channels), NaN where it is not known.

    Attributes
    ----------
    track : what the labels are of
    source : file or files, for messages
    notes : what was left out, in words
    """

    def __init__(self, track: Track, lengths: Mapping[str, int], source: str):
        self.track, self.source, self.notes = track, source, list[str]()
        self._lengths = dict(lengths)

    def __getitem__(self, name: str) -> np.ndarray:
        raise NotImplementedError

    def __iter__(self) -> Iterator[str]:
        return iter(self._lengths)

    def __len__(self) -> int:
        return len(self._lengths)


def read_labels(files: Files, lengths: Mapping[str, int], track: Track, *, sequences: str = "the input") -> Labels:
    """Read the labels of a track from annotation files.

    - Track coding-frame: GFF3 or GenBank; see `coding_frame_labels`. Sequences that it does not name are IGNORED.
    - Other class tracks: BED whose names (column 4) are the track's channels; or a mapping of channels to BED files,
      whose names do not matter; or, for two channels, BED without names. Bases that no line covers are of the first
      channel. Where lines of different classes overlap, the base is IGNORED.
    - Signal tracks: bedGraph or bigWig, told by content; for several channels a mapping of channels to such files.
      Bases without a value are NaN.

    Parameters
    ----------
    files : path, or a path for each channel
    lengths : bases of every sequence, by name
    track : what is labeled
    sequences : what the file with the sequences is called in messages

    Returns
    -------
    Labels : of all the sequences in ``lengths``

    Raises
    ------
    InputError : a file cannot be read, or none of its sequences is among these; a span off the end; a name that is
        not one of the classes; a channel that the track does not have
    FormatError : a file is damaged, or in another format
    """
    if track.name == CODING_FRAME.name:
        if isinstance(files, Mapping):
            raise InputError(f"track {track.name!r} takes one annotation, not a file for each channel")
        return _CodingLabels(read_annotation(files), lengths, track, source=str(files), sequences=sequences)
    by_channel = _by_channel(files, track)
    if track.kind == "class":
        return _ClassLabels(by_channel, lengths, track, sequences)
    return _SignalLabels(by_channel, lengths, track, sequences)


def _by_channel(files: Files, track: Track) -> dict[str, Path]:
    """Return the file of each channel; "" stands for one file of all channels."""
    if not isinstance(files, Mapping):
        if track.kind == "signal" and len(track.channels) > 1:
            raise InputError(
                f"{files}: track {track.name!r} has the channels {', '.join(track.channels)}; give a file for each"
            )
        return {track.channels[0] if track.kind == "signal" else "": Path(files)}
    unknown = [name for name in files if name not in track.channels]
    if unknown or not files:
        raise InputError(
            f"track {track.name!r} has no channel {unknown[0] if unknown else ''!r}; it has {', '.join(track.channels)}"
        )
    return {name: Path(path) for name, path in files.items()}


class _CodingLabels(Labels):
    def __init__(
        self, annotation: Annotation, lengths: Mapping[str, int], track: Track, *, source: str, sequences: str
    ):
        super().__init__(track, lengths, source)
        self._annotation = annotation
        shared = check_fits(annotation, lengths, source=source, sequences=sequences)
        self._note_others(annotation.coding_sequences, shared, sequences)

    def __getitem__(self, name: str) -> np.ndarray:
        known = self._annotation.coding_sequences.get(name)
        if known is None:
            return np.full(self._lengths[name], IGNORED, dtype=np.uint8)
        return coding_frame_labels(self._lengths[name], known).frames

    def _note_others(self, named: Mapping, shared: list[str], sequences: str) -> None:
        for count, where, other in (
            (len(named) - len(shared), self.source, sequences),
            (len(self._lengths) - len(shared), sequences, self.source),
        ):
            if count:
                self.notes.append(f"{where}: {count:,} sequences are not in {other} and left out")


class _ClassLabels(Labels):
    def __init__(self, files: Mapping[str, Path], lengths: Mapping[str, int], track: Track, sequences: str):
        super().__init__(track, lengths, ", ".join(map(str, files.values())))
        self._spans: list[tuple[dict[str, Spans], int | None]] = []
        for channel, path in files.items():
            spans = read_bed_spans(path)
            self.notes += check_spans(spans, lengths, str(path), sequences)
            fixed = track.channels.index(channel) if channel else None
            if fixed is None:
                fixed = self._check_names(spans, str(path))
            self._spans.append((spans, fixed))

    def _check_names(self, spans: dict[str, Spans], path: str) -> int | None:
        """Return the class of all lines if they need no name, else None."""
        channels = self.track.channels
        if len(channels) == 2 and not any(spans_.values.any() for spans_ in spans.values()):
            return 1
        for name, spans_ in spans.items():
            for start, word in zip(spans_.starts.tolist(), spans_.values, strict=True):
                if word not in channels:
                    raise InputError(
                        f"{path}: {name}:{start + 1}: {word!r} in column 4 is no class of track {self.track.name!r}; "
                        f"expected one of {', '.join(channels)}"
                    )
        return None

    def __getitem__(self, name: str) -> np.ndarray:
        labels = np.zeros(self._lengths[name], dtype=np.uint8)
        number = {channel: index for index, channel in enumerate(self.track.channels)}
        covered = np.zeros(len(labels), dtype=bool)
        for spans, fixed in self._spans:
            if name in spans:
                starts, ends, words = spans[name]
                for start, end, word in zip(starts.tolist(), ends.tolist(), words, strict=True):
                    new = number[word] if fixed is None else fixed
                    clash = covered[start:end] & (labels[start:end] != new)
                    labels[start:end] = new
                    labels[start:end][clash] = IGNORED
                    covered[start:end] = True
        return labels


class _SignalLabels(Labels):
    def __init__(self, files: Mapping[str, Path], lengths: Mapping[str, int], track: Track, sequences: str):
        super().__init__(track, lengths, ", ".join(map(str, files.values())))
        self._channels: dict[str, dict[str, Spans] | BigWig] = {}
        for channel, path in files.items():
            if is_bigwig(path):
                wig = BigWig(path)
                self.notes += _check_lengths(wig.lengths, lengths, str(path), sequences)
                self._channels[channel] = wig
            else:
                spans = read_bedgraph(path)
                self.notes += check_spans(spans, lengths, str(path), sequences)
                self._channels[channel] = spans

    def __getitem__(self, name: str) -> np.ndarray:
        values = np.full((self._lengths[name], len(self.track.channels)), np.nan, dtype=np.float32)
        for channel, source in self._channels.items():
            column = values[:, self.track.channels.index(channel)]
            if isinstance(source, BigWig):
                if name not in source.lengths:
                    continue
                spans = source.spans(name)
                check_disjoint(spans, f"{self.source}: sequence {name!r}")
            elif name in source:
                spans = source[name]
            else:
                continue
            _paint(column, spans)
        return values


def _paint(column: np.ndarray, spans: Spans) -> None:
    """Write the value of each span to its bases; no two overlap."""
    widths = spans.ends - spans.starts
    firsts = np.repeat(spans.starts - np.concatenate([[0], np.cumsum(widths)[:-1]]), widths)
    column[firsts + np.arange(int(widths.sum()))] = np.repeat(spans.values, widths)


def check_spans(spans: Mapping[str, Spans], lengths: Mapping[str, int], path: str, sequences: str) -> list[str]:
    """Check that spans lie on these sequences; return a note on those that are left out.

    Raises
    ------
    InputError : no name in common, or a span off the end
    """
    for name in spans:
        if name in lengths:
            last = int(spans[name].ends.argmax())
            start, end = int(spans[name].starts[last]), int(spans[name].ends[last])
            if end > lengths[name]:
                raise InputError(
                    f"{path}: {name}:{start + 1}-{end} does not lie within the {lengths[name]} bases that {name!r} has "
                    f"in {sequences}; give the labels of these very sequences"
                )
    lines = sum(len(spans[name].starts) for name in spans if name not in lengths)
    return _check_names(spans, lengths, path, sequences, f", with {lines:,} lines,")


def _check_lengths(stated: Mapping[str, int], lengths: Mapping[str, int], path: str, sequences: str) -> list[str]:
    for name in stated:
        if name in lengths and stated[name] != lengths[name]:
            raise InputError(
                f"{path}: sequence {name!r} has {stated[name]} bases, but {lengths[name]} in {sequences}; "
                "give the signal of this very sequence"
            )
    return _check_names(stated, lengths, path, sequences, "")


def _check_names(
    named: Mapping[str, object], lengths: Mapping[str, int], path: str, sequences: str, lines: str
) -> list[str]:
    others = [name for name in named if name not in lengths]
    if len(others) == len(named):
        raise InputError(
            f"{path}: names {some_names(named)}, and none of these is in {sequences}, which has {some_names(lengths)}; "
            "give the labels of these sequences, or rename"
        )
    return [f"{path}: {len(others):,} of its sequences{lines} are not in {sequences} and left out"] if others else []
