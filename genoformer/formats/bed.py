"""Regions as a user names them: a BED file, or text such as ``chr1:1,000-2,000`` counted from 1, both ends included.

BED counts from 0 and leaves the end out, as everything inside genoformer does.
"""

from __future__ import annotations

import difflib
import os
import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

from genoformer.errors import FormatError, InputError
from genoformer.formats.bytestream import STDIN, Source
from genoformer.formats.gff3 import open_text
from genoformer.formats.numbers import whole
from genoformer.formats.sequences import Sequences, example_names
from genoformer.regions import Region

_NUMBER = r"[0-9]{1,3}(?:,[0-9]{3}){1,5}|[0-9]{1,18}"
_REGION = re.compile(rf"(?P<name>.+):(?:(?P<start>{_NUMBER})(?P<open>-)?|-)(?P<end>(?<=-)(?:{_NUMBER}))?", re.DOTALL)
_SKIPPED_LINES = re.compile(r"\s*$|#|(?:track|browser)(?:\s|$)")
_MOST_NAMES_COMPARED = 10_000


def parse_regions(spec: str | os.PathLike[str] | Iterable[str], lengths: Mapping[str, int]) -> list[Region]:
    """Turn what the user wrote into regions, in the order of the sequences, merged so that no base comes twice.

    A text is, in this order: the name of a sequence (all of it); ``{name}:start-end``, ``name:start-end``,
    ``name:start`` and ``name:start-`` (to the end), ``name:-end``; the path of a BED file, plain or gzip (``-`` is
    standard input). Names may hold colons; numbers may hold commas, count from 1 and include both ends.

    Parameters
    ----------
    spec : one such text or path, or several
    lengths : length in bases of every sequence, by name

    Returns
    -------
    list of Region : 0-based half-open

    Raises
    ------
    InputError : no such sequence or file, a region that does not lie on its sequence, or no region at all
    FormatError : a line of the BED file is damaged
    """
    specs = [spec] if isinstance(spec, str | os.PathLike) else list(spec)
    regions = [region for one in specs for region in _parse(os.fspath(one), lengths)]
    merged = merge_regions(regions, lengths)
    if not merged:
        raise InputError(f"regions {', '.join(map(str, specs)) or '(none)'}: hold no base; give at least one region")
    return merged


def as_regions(given: str | os.PathLike[str] | Iterable[Region | str], sequences: Sequences) -> list[Region]:
    """Return regions as they are, or, where any is text, what `parse_regions` makes of all of them."""
    listed = [given] if isinstance(given, str | os.PathLike) else list(given)
    regions = [one for one in listed if isinstance(one, Region)]
    if len(regions) == len(listed):
        return regions
    lengths = sequences.lengths()
    told = parse_regions([os.fspath(one) for one in listed if not isinstance(one, Region)], lengths)
    return merge_regions([*regions, *told], lengths)


def merge_regions(regions: Iterable[Region], names: Iterable[str]) -> list[Region]:
    """Sort regions in the order of the names, join those that overlap or touch, drop empty ones."""
    rank = {name: number for number, name in enumerate(names)}
    merged: list[Region] = []
    for region in sorted(regions, key=lambda region: (rank[region.sequence], region.start)):
        if region.length == 0:
            continue
        if merged and merged[-1].sequence == region.sequence and region.start <= merged[-1].end:
            merged[-1] = merged[-1]._replace(end=max(merged[-1].end, region.end))
        else:
            merged.append(region)
    return merged


def _parse(text: str, lengths: Mapping[str, int]) -> Iterator[Region]:
    if text in lengths:
        yield Region(text, 0, lengths[text])
        return
    match = _REGION.fullmatch(text)
    is_region = match is not None and (match["name"] in lengths or _bare(match["name"]) in lengths)
    if text == STDIN or (_exists(text) and not is_region):
        yield from read_bed(text, lengths)
    elif match:
        yield _region_of(match, lengths)
    elif _bare(text) in lengths:
        yield Region(_bare(text), 0, lengths[_bare(text)])
    elif os.sep in text or text.endswith((".bed", ".bed.gz")):
        raise InputError(f"{text}: no such BED file; check the path")
    else:
        raise InputError(f"region {text!r}: {_unknown(text, lengths)}")


def _exists(path: str) -> bool:
    try:
        return path != "" and Path(path).exists()
    except (OSError, ValueError):  # too long for a file name, or a NUL byte in it
        return False


def _bare(name: str) -> str:
    """Take off the braces with which samtools tells a name from a region."""
    return name[1:-1] if name.startswith("{") and name.endswith("}") else name


def _region_of(match: re.Match[str], lengths: Mapping[str, int]) -> Region:
    text = match.string
    name = match["name"] if match["name"] in lengths else _bare(match["name"])
    if name not in lengths:
        raise InputError(f"region {text!r}: {_unknown(name, lengths)}")
    start = int((match["start"] or "1").replace(",", ""))
    end = int(match["end"].replace(",", "")) if match["end"] else max(lengths[name], start)
    if start < 1:
        raise InputError(f"region {text!r}: positions count from 1, got {start}")
    if end < start:
        raise InputError(f"region {text!r}: ends before it starts; give start-end")
    return _checked(Region(name, start - 1, end), lengths, f"region {text!r}")


def _checked(region: Region, lengths: Mapping[str, int], where: str) -> Region:
    length = lengths[region.sequence]
    if region.end > length:
        raise InputError(f"{where}: goes past the end of {region.sequence!r}, which has {length} bases")
    return region


def read_bed(path: str | os.PathLike[str], lengths: Mapping[str, int]) -> Iterator[Region]:
    """Yield the regions of a BED file in its own order; of each line the first three columns are read.

    Raises
    ------
    InputError : the file cannot be read, or names a sequence or a place that is not there
    FormatError : a line does not begin with name, start and end
    """
    source = Source(path)
    with open_text(source) as lines:
        yield from _regions(lines, source.name, lengths)


def _regions(lines: Iterable[str], name: str, lengths: Mapping[str, int]) -> Iterator[Region]:
    for number, line in enumerate(lines, 1):
        if _SKIPPED_LINES.match(line):
            continue
        where = f"{name}:{number}"
        if "\ufffd" in line:
            raise FormatError(f"{where}: is not BED text; expected name, start and end, by tabs")
        line = line.rstrip("\r\n")
        columns = line.split("\t") if "\t" in line else line.split()
        region = _bed_region(columns, where)
        if region.sequence not in lengths:
            raise InputError(f"{where}: {_unknown(region.sequence, lengths)}")
        yield _checked(region, lengths, where)


def _bed_region(columns: list[str], where: str) -> Region:
    start, end = (whole(cell.strip()) for cell in columns[1:3]) if len(columns) >= 3 else (None, None)
    if start is None or end is None:
        shown = "\t".join(columns)[:40]
        raise FormatError(f"{where}: is no BED line: {shown!r}; expected name, start and end (numbers), parted by tabs")
    if start > end:
        raise FormatError(f"{where}: start {start} and end {end} are no span; expected 0 <= start <= end")
    return Region(columns[0].strip(), start, end)


def _unknown(name: str, lengths: Mapping[str, int]) -> str:
    likely = _likely_name(name, lengths)
    hint = f"; did you mean {likely!r}?" if likely else ""
    return f"there is no sequence {name!r} in the input{hint}{example_names(lengths)}"


def _likely_name(name: str, lengths: Mapping[str, int]) -> str | None:
    for candidate in (f"chr{name}", name.removeprefix("chr"), name.rpartition(".")[0], f"{name}.1"):
        if candidate in lengths and candidate != name:
            return candidate
    if len(lengths) > _MOST_NAMES_COMPARED:
        return None
    folded = {known.casefold().partition(".")[0]: known for known in lengths}
    same = folded.get(name.casefold().partition(".")[0])
    close = difflib.get_close_matches(name, lengths, n=1, cutoff=0.8)
    return same or (close[0] if close else None)
