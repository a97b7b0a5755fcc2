"""Layout version 1 of a store in HDF5 (FORMAT.md): what is written where, and the checks of a file being opened."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np

from genoformer.errors import FormatError
from genoformer.store.checksums import crcs_of_fill
from genoformer.store.metadata import check_metadata
from genoformer.store.sequences import SequenceTable, write_sequences
from genoformer.store.shards import Shard, write_shard, write_spans
from genoformer.tracks import Track

FORMAT = "genoformer"
FORMAT_VERSION = 1
EMBEDDINGS = "genoformer-embeddings"
"""What files of embeddings have in place of `FORMAT`."""
CHUNK = 65_536
"""Bases in a chunk of values; a chunk holds one channel."""
DTYPES = {"float16": np.dtype("float16"), "uint8": np.dtype("uint8")}
FILL: dict[str, Any] = {"float16": np.float16(np.nan), "uint8": np.uint8(255)}
"""The value of a base that was not predicted."""
LIBVER = ("v108", "v108")
"""Structures of HDF5 1.8: unlike the oldest, most of them have checksums, so that damage is found and not followed."""
DAMAGE = (OSError, RuntimeError, KeyError, ValueError, TypeError, AttributeError, IndexError)
"""What h5py, or code that trusts a file, raises where the file is damaged."""
CRC, CHUNK_CRC = "crc32", "chunk_crc32"
"""Datasets beside the values: a checksum of each sequence, and of each chunk as it is stored."""
_CHUNK_CRCS = 1 << 12  # at most in a chunk of their own


def write_header(file: Any, *, provenance: dict[str, Any], status: str) -> None:
    """Write the attributes of the root."""
    from genoformer import __version__

    file.attrs["format"] = FORMAT
    file.attrs["format-version"] = np.int64(FORMAT_VERSION)
    file.attrs["generated-by"] = f"genoformer-{__version__}"
    file.attrs["creation-date"] = datetime.now(UTC).isoformat(timespec="seconds")
    file.attrs["status"] = status
    file.attrs["metadata"] = json.dumps(provenance)


def write_tracks(file: Any, tracks: list[Track], *, sequences: SequenceTable, dtype: str) -> None:
    """Create the values of all tracks, without allocating a single chunk, and their checksums."""
    total, fill = sequences.total_bases, FILL[dtype].tobytes()
    group = file.create_group("tracks", track_order=True)
    for track in tracks:
        values = group.create_group(track.name).create_dataset(
            "values",
            shape=(total, len(track.channels)),
            maxshape=(None, len(track.channels)),
            dtype=DTYPES[dtype],
            chunks=(CHUNK, 1),
            compression="gzip",
            compression_opts=1,
            shuffle=dtype != "uint8",
            fillvalue=FILL[dtype],
        )
        attrs = group[track.name].attrs
        attrs["kind"], attrs["channels"], attrs["units"] = track.kind, list(track.channels), track.units
        attrs["reverse_complement"] = np.array(track.reverse_complement, dtype=np.int64)
        assert values.chunks == (CHUNK, 1)
        crcs = crcs_of_fill(fill, sequences.lengths * len(track.channels))
        group[track.name].create_dataset(CRC, data=crcs)
        shape = (-(-total // CHUNK), len(track.channels))
        some = (min(max(_CHUNK_CRCS // shape[1], 1), shape[0]), shape[1])
        chunks = some if total else None  # so that only what is used takes space
        group[track.name].create_dataset(CHUNK_CRC, shape=shape, chunks=chunks, dtype=np.uint32)


def write_progress(file: Any, blocks: np.ndarray) -> None:
    """Write the planned blocks and their bitmap, nothing done."""
    group = file.create_group("progress")
    write_spans(group, "blocks", blocks)
    group.create_dataset("done", data=np.zeros(len(blocks), dtype=np.uint8))


def write_skeleton(
    file: Any,
    *,
    sequences: SequenceTable,
    tracks: list[Track],
    provenance: dict[str, Any],
    blocks: np.ndarray,
    dtype: str,
    shard: Shard | None,
) -> None:
    """Write everything but values into an empty file; ``blocks`` are those of the whole run."""
    write_header(file, provenance=provenance, status="incomplete")
    write_sequences(file.create_group("sequences"), sequences)
    write_tracks(file, tracks, sequences=sequences, dtype=dtype)
    if shard is not None:
        write_shard(file, shard, blocks)
    write_progress(file, blocks if shard is None else blocks[shard.select(blocks)])


def read_tracks(file: Any) -> dict[str, Track]:
    """Read the description of every track, in the order of writing."""
    tracks = {}
    for name, group in file["tracks"].items():
        attrs = group.attrs
        tracks[name] = Track(
            name=name,
            kind=_text(attrs["kind"]),  # type: ignore[arg-type]
            channels=tuple(_text(channel) for channel in attrs["channels"]),
            units=_text(attrs["units"]),
            reverse_complement=tuple(int(channel) for channel in attrs["reverse_complement"]),
        )
    return tracks


def read_crcs(file: Any, track: str, name: str) -> np.ndarray | None:
    """Read the checksums CRC or CHUNK_CRC of a track; None where an earlier version wrote none."""
    group = file["tracks"][track]
    if name not in group:
        return None
    total, channels = group["values"].shape
    shape = (len(file["sequences/length"]),) if name == CRC else (-(-total // CHUNK), channels)
    if group[name].shape != shape:
        raise ValueError(f"tracks/{track}/{name} has shape {group[name].shape}, expected {shape}")
    return group[name][:].astype(np.uint32)


def read_metadata(file: Any) -> dict[str, Any]:
    """Read the provenance; ValueError unless what programs look at is of the kind that it should be."""
    metadata = json.loads(_text(file.attrs["metadata"]))
    check_metadata(metadata)
    return metadata


def read_status(file: Any) -> str:
    """Return "complete", "shard" (a part of a run, whole in itself) or "incomplete"."""
    return _text(file.attrs["status"])


def read_created(file: Any) -> str:
    """Return when a file was begun."""
    return _text(file.attrs.get("creation-date", ""))


def read_version(file: Any) -> tuple[str, int]:
    """Return which program wrote a file, and the version of its layout."""
    return _text(file.attrs["generated-by"]), int(file.attrs["format-version"])


def check_header(file: Any, path: Path) -> None:
    """Raise FormatError unless the root says that this is a store of a version known here."""
    name = file.attrs.get("format")
    if name is not None and _text(name) == EMBEDDINGS:
        raise FormatError(f"{path}: holds embeddings, not predictions; genoformer.open_embeddings reads them in Python")
    if name is None or _text(name) != FORMAT:
        raise FormatError(
            f"{path}: an HDF5 file, but not written by genoformer; expected the attribute format='{FORMAT}'"
        )
    version = int(file.attrs["format-version"])
    if version > FORMAT_VERSION:
        raise FormatError(
            f"{path}: layout version {version} is newer than version {FORMAT_VERSION}, the newest known here; "
            "update genoformer"
        )


def check_layout(file: Any) -> None:
    """Raise ValueError or KeyError unless groups, shapes and types are those of FORMAT.md."""
    n = len(file["sequences/length"])
    total = int(file["sequences/offset"][n])
    for name in ("name", "md5", "topology", "status", "reason"):
        if file["sequences"][name].shape != (n,):
            raise ValueError(f"sequences/{name} has shape {file['sequences'][name].shape}, expected {(n,)}")
    tracks = read_tracks(file)
    if not tracks:
        raise ValueError("it has no tracks")
    for name, track in tracks.items():
        values = file["tracks"][name]["values"]
        if values.shape != (total, len(track.channels)) or values.dtype.name not in DTYPES:
            raise ValueError(f"tracks/{name}/values has shape {values.shape} and type {values.dtype}")


def one_line(error: BaseException) -> str:
    """Say what a library complained about in one line."""
    return " ".join(str(error.args[0] if error.args else error).split()) or type(error).__name__


def _text(value: Any) -> str:
    return value.decode("utf-8") if isinstance(value, bytes) else str(value)
