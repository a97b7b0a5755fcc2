"""Embeddings: the hidden states of a layer for whole sequences, window by window, into an HDF5 file of their own."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from types import TracebackType
from typing import Any, NamedTuple

import numpy as np
import torch

import genoformer
from genoformer.errors import FormatError, InputError, ResourceError
from genoformer.formats.given import Given, as_sequences
from genoformer.formats.sequences import Sequences, check_region
from genoformer.model.device import default_chunk_size
from genoformer.model.genoformer import Genoformer
from genoformer.plan import Plan, make_plan, planned_records
from genoformer.predict import Settings, check_fits
from genoformer.regions import DEFAULT_WINDOW, Region, Window, plan_windows
from genoformer.store.heaps import check_heaps
from genoformer.store.schema import DAMAGE, EMBEDDINGS, LIBVER, one_line, read_metadata
from genoformer.store.sequences import SequenceTable, read_sequences, write_sequences
from genoformer.tokens import PAD, encode

FORMAT, FORMAT_VERSION = EMBEDDINGS, 1
_CHUNK = 1024  # tokens; a chunk holds whole vectors


class Embedding(NamedTuple):
    """Hidden states of consecutive tokens of a sequence."""

    sequence: str
    start: int
    """number of the first token; it begins at base ``start * stride``"""
    values: np.ndarray
    """(tokens, width) float16, NaN for tokens all of whose bases are in gaps"""


def embed(
    sequences: Given,
    model: Genoformer,
    *,
    layer: int = -1,
    window: int = DEFAULT_WINDOW,
    overlap: int | None = None,
    settings: Settings | None = None,
) -> Iterator[Embedding]:
    """Compute the hidden states of a layer, in order, a window at a time.

    A token stands for ``model.encoder.stem.stride`` bases: token i of a sequence for bases [i stride, (i + 1) stride).
    States are those of the strand as it is given: a sequence and its reverse complement have others.

    Parameters
    ----------
    sequences : a path, an open file, bases, or records, see `genoformer.formats.given.as_sequences`; taken as linear
    model : of `genoformer.load_model`
    layer : 0 for what the stem makes, n for what block n returns; negative ones count from the last
    window, overlap : bases, see `genoformer.predict`; made multiples of the stride
    settings : chunk size, genetic code and precision are heeded

    Raises
    ------
    ConfigError : there is no such layer, or the model cannot see windows of this size
    InputError, FormatError : the input cannot be used
    """
    sequences = as_sequences(sequences)
    plan = make_plan(sequences, window=window, overlap=overlap)
    yield from embed_plan(plan, sequences, model, layer=layer, settings=settings or Settings())


def embed_plan(
    plan: Plan, sequences: Sequences, model: Genoformer, *, layer: int = -1, settings: Settings
) -> Iterator[Embedding]:
    """Compute the hidden states of what a plan says; see `embed`."""
    check_fits(model, plan)
    layer = model.layer(layer)
    stride = model.encoder.stem.stride
    chunk = default_chunk_size(model.device) if settings.chunk_size is None else settings.chunk_size or None
    batch: list[tuple[Window, np.ndarray]] = []
    most = settings.batch_size * plan.window

    def computed() -> Iterator[Embedding]:
        rows = np.full((len(batch), max(len(codes) for _, codes in batch)), PAD, dtype=np.uint8)
        for row, (_, codes) in zip(rows, batch, strict=True):
            row[: len(codes)] = codes
        with torch.autocast(model.device.type, torch.bfloat16, enabled=settings.precision == "bfloat16"):
            states = model.embed(
                torch.from_numpy(rows), layer=layer, genetic_code=settings.genetic_code, chunk_size=chunk
            )
        for (window, _), tokens in zip(batch, states.float().cpu().numpy(), strict=True):
            first = window.owned.start - window.region.start
            values = tokens[first : first + window.owned.length].astype(np.float16)
            if not np.isfinite(values).all():
                raise ResourceError(f"layer {layer}: a state of {window.owned.sequence!r} is no number of float16")
            yield Embedding(window.owned.sequence, window.owned.start, values)
        batch.clear()

    for index, record in planned_records(plan, sequences):
        for window in token_windows(plan, index, stride):
            region = window.region
            codes = encode(record.bases[region.start * stride : region.end * stride])
            if batch and (len(batch) + 1) * max(len(codes), *(len(row) for _, row in batch)) > most:
                yield from computed()
            batch.append((window, codes))
    if batch:
        yield from computed()


def token_windows(plan: Plan, index: int, stride: int) -> Iterator[Window]:
    """Yield the windows of a sequence, counted in tokens: what they own partitions what is asked for."""
    if plan.sequences.status[index] != "pending":
        return
    name, length = plan.sequences.names[index], int(plan.sequences.lengths[index])
    size = max(plan.window // stride, 1)
    asked = [(0, length)] if plan.regions is None else [(r.start, r.end) for r in plan.regions if r.sequence == name]
    done = 0
    for start, end in asked:
        first, last = max(start // stride, done), -(-end // stride)
        if first < last:
            yield from plan_windows(
                name,
                -(-length // stride),
                size=size,
                overlap=min(plan.overlap // stride, size - 1),
                start=first,
                end=last,
            )
        done = max(done, last)


def embed_to_store(  # noqa: PLR0913 - a run is a plan, a model and a layer
    plan: Plan,
    sequences: Sequences,
    model: Genoformer,
    output: str | Path,
    *,
    layer: int = -1,
    settings: Settings | None = None,
    command: str = "",
    report: Callable[[int], None] = lambda _: None,
) -> Path:
    """Write the hidden states of a layer to HDF5, which appears at ``output`` once it is whole.

    The layout is in FORMAT.md; read it with `open_embeddings`, or with plain h5py. Memory is that of a window.

    Parameters
    ----------
    report : called with the number of bases done

    Raises
    ------
    ResourceError : the disk is too small or refuses
    """
    import h5py

    output, settings = Path(output), settings or Settings()
    stride, width = model.encoder.stem.stride, model.decoder.up.in_features
    layer = model.layer(layer)
    tokens = -(-plan.sequences.lengths // stride)
    offsets = np.concatenate([[0], np.cumsum(tokens)]).astype(np.int64)
    _check_space(output, 2 * int(offsets[-1]) * width if plan.regions is None else 0)
    part = output.with_name(f"{output.name}.{os.getpid()}.part")
    try:
        with h5py.File(part, "w", libver=LIBVER) as file:
            _write_header(file, plan, model, settings, layer=layer, command=command)
            write_sequences(file.create_group("sequences"), plan.sequences)
            file.create_dataset("embedding/offset", data=offsets)
            values = file.create_dataset(
                "embedding/values", (int(offsets[-1]), width), np.float16,
                chunks=(_CHUNK, width), fillvalue=np.float16(np.nan), maxshape=(None, width),
            )  # fmt: skip
            values.attrs["layer"], values.attrs["stride"] = layer, stride
            values.attrs["units"] = f"hidden states of layer {layer}: a row for every {stride} bases, forward strand"
            for found in embed_plan(plan, sequences, model, layer=layer, settings=settings):
                index = plan.sequences.index(found.sequence)
                first = int(offsets[index]) + found.start
                values[first : first + len(found.values)] = _without_gaps(found, plan.gaps.get(index), stride)
                report(len(found.values) * stride)
            file.attrs["status"] = "complete"
        with part.open("rb") as stream:
            os.fsync(stream.fileno())
        part.replace(output)
    except OSError as error:
        raise ResourceError(f"{output}: cannot be written: {error.strerror or error}") from error
    finally:
        part.unlink(missing_ok=True)
    return output


def _check_space(output: Path, needed: int) -> None:
    free = shutil.disk_usage(output.parent).free
    if free < needed:
        raise ResourceError(
            f"{output.parent}: {free / 1e9:.1f} GB are free, {needed / 1e9:.1f} GB are needed; "
            "free some space, name an output elsewhere, or give --regions"
        )


def _write_header(file: Any, plan: Plan, model: Genoformer, settings: Settings, *, layer: int, command: str) -> None:
    checkpoint = model.checkpoint
    metadata = {
        "model": getattr(checkpoint, "name", ""),
        "model-sha256": getattr(checkpoint, "sha256", ""),
        "input": plan.source,
        "input-sha256": plan.input_digest(),
        "layer": layer,
        "window": plan.window,
        "overlap": plan.overlap,
        "genetic-code": settings.genetic_code,
        "precision": settings.precision,
        "command": command,
    }
    file.attrs["format"], file.attrs["format-version"] = FORMAT, np.int64(FORMAT_VERSION)
    file.attrs["generated-by"] = f"genoformer-{genoformer.__version__}"
    file.attrs["creation-date"] = datetime.now(UTC).isoformat(timespec="seconds")
    file.attrs["status"], file.attrs["metadata"] = "incomplete", json.dumps(metadata)


def _without_gaps(found: Embedding, gaps: np.ndarray | None, stride: int) -> np.ndarray:
    """Put NaN where all bases of a token are in a gap."""
    for start, end in () if gaps is None else gaps:
        first, last = -(-start // stride) - found.start, end // stride - found.start
        found.values[max(first, 0) : max(last, 0)] = np.nan
    return found.values


class Embeddings:
    """A file of embeddings, read lazily; made by `open_embeddings`.

    Attributes
    ----------
    sequences : names and lengths in bases
    layer, stride, width : which layer, bases a token, states a token
    metadata : how it came about
    """

    def __init__(self, path: Path, file: Any) -> None:
        self.path, self._file = path, file
        self._values, self._offsets = file["embedding/values"], file["embedding/offset"][:]
        self.sequences: SequenceTable = read_sequences(file["sequences"])
        self.layer, self.stride = int(self._values.attrs["layer"]), int(self._values.attrs["stride"])
        self.width = int(self._values.shape[1])
        tokens = -(-self.sequences.lengths // self.stride) if self.stride > 0 else self.sequences.lengths
        if not np.array_equal(self._offsets, np.concatenate([[0], np.cumsum(tokens)])):
            raise ValueError("its offsets are not those of its sequences")
        if len(self._values) != self._offsets[-1]:
            raise ValueError("it holds the states of fewer tokens, or more, than its sequences have")
        self.metadata = read_metadata(file)

    def tokens(self, region: Region) -> np.ndarray:
        """Return the states of the tokens that a region of bases touches: (tokens, width) float16."""
        lengths = dict(zip(self.sequences.names, self.sequences.lengths.tolist(), strict=True))
        check_region(region, lengths, str(self.path))
        offset = int(self._offsets[self.sequences.index(region.sequence)])
        first = offset + region.start // self.stride
        return self._read(first, max(offset - (-region.end // self.stride), first))

    def __getitem__(self, name: str) -> np.ndarray:
        """Return the states of a whole sequence: (tokens, width) float16."""
        index = self.sequences.index(name)
        return self._read(int(self._offsets[index]), int(self._offsets[index + 1]))

    def _read(self, first: int, last: int) -> np.ndarray:
        try:
            return self._values[first:last]
        except DAMAGE as error:
            raise FormatError(f"{self.path}: damaged ({one_line(error)}); write it again") from error

    def close(self) -> None:
        """Close the file."""
        self._file.close()

    def __enter__(self) -> Embeddings:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def open_embeddings(path: str | os.PathLike[str]) -> Embeddings:
    """Open a file that `embed_to_store` or ``genoformer embed`` wrote.

    Raises
    ------
    InputError : there is no such file
    FormatError : it is another file, or damaged
    """
    import h5py

    path = Path(path)
    if not path.is_file():
        raise InputError(f"{path}: no such file; expected embeddings (HDF5)")
    try:
        check_heaps(path)
        file = h5py.File(path, "r")
        if file.attrs.get("format") != FORMAT or file.attrs["status"] != "complete":
            raise FormatError(f"{path}: holds no embeddings; expected a file of `genoformer embed`")
        if int(file.attrs["format-version"]) > FORMAT_VERSION:
            raise FormatError(f"{path}: was written by a newer genoformer; update this one")
        return Embeddings(path, file)
    except DAMAGE as error:
        if isinstance(error, FormatError):
            raise
        raise FormatError(f"{path}: not HDF5, or damaged ({one_line(error)}); write it again") from error
