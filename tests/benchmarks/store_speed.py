"""Time the store: `python tests/benchmarks/store_speed.py [--bases 20000000] [--folder /tmp]`.

On made-up predictions of seven channels that compress about as real ones do: (1) writing as fast as it goes, by HDF5's
own filters, by worker threads with zlib, and with isal, which takes over where zlib is behind; with the size of each;
(2) merging seven shards, beside copying their bytes, with the peak memory of the process that merges; (3) recomputing
all checksums.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import h5py
import numpy as np

from genoformer.regions import Block
from genoformer.store import SequenceTable, Shard, TrackStore, damaged_sequences, deflate, merge_shards, open_store
from genoformer.tracks import CODING_FRAME

WINDOW = 95_000
SHARDS = 7
CHANNELS = len(CODING_FRAME.channels)


def made_up(bases: int) -> np.ndarray:
    """Return probabilities that change slowly, with noise, as those of a model do: float16 (bases, channels)."""
    rng = np.random.default_rng(0)
    coarse = rng.normal(0, 4, (bases // 500 + 2, CHANNELS))
    logits = np.repeat(coarse, 500, axis=0)[:bases] + rng.normal(0, 0.5, (bases, CHANNELS))
    shares = np.exp(logits - logits.max(axis=1, keepdims=True))
    return (shares / shares.sum(axis=1, keepdims=True)).astype(np.float16)


def blocks_of(bases: int) -> np.ndarray:
    starts = np.arange(0, bases, WINDOW)
    return np.stack([starts, np.minimum(starts + WINDOW, bases)], axis=1)


def write(path: Path, values: np.ndarray, total: int, *, shard: Shard | None = None) -> float:
    """Write a store, and return the seconds spent in calls of the writer."""
    table = SequenceTable.build(["s"], [total])
    create = {"provenance": {}, "blocks": blocks_of(total), "overwrite": True, "shard": shard}
    spent = 0.0
    with TrackStore.create(path, table, [CODING_FRAME], **create) as writer:
        for start, end in writer.blocks.tolist():
            low = start % (len(values) - WINDOW)
            began = time.perf_counter()
            writer.write(Block("s", start, {CODING_FRAME.name: values[low : low + end - start]}))
            spent += time.perf_counter() - began
        began = time.perf_counter()
        writer.finish()
    return spent + time.perf_counter() - began


def write_by_filters(path: Path, values: np.ndarray, total: int) -> float:
    """Write the same values through the filters of h5py, without any of what makes a store safe."""
    began = time.perf_counter()
    with h5py.File(path, "w", rdcc_nbytes=64 << 20) as file:
        options = {"chunks": (65_536, 1), "compression": "gzip", "compression_opts": 1, "shuffle": True}
        dataset = file.create_dataset("v", shape=(total, CHANNELS), dtype="float16", **options)
        for start, end in blocks_of(total).tolist():
            low = start % (len(values) - WINDOW)
            dataset[start:end] = values[low : low + end - start]
    return time.perf_counter() - began


def show_writing(folder: Path, values: np.ndarray, total: int) -> None:
    fast = deflate.isal_zlib
    ways: list[tuple[str, Callable[[Path], float], object]] = [
        ("h5py's filters", lambda path: write_by_filters(path, values, total), None),
        ("threads, zlib", lambda path: write(path, values, total), None),
    ]
    if fast is not None:
        ways.append(("with isal too", lambda path: write(path, values, total), fast))
    raw = total * CHANNELS * 2
    for name, run, library in ways:
        deflate.isal_zlib = library  # type: ignore[assignment]
        path = folder / "written.h5"
        seconds = run(path)
        size = path.stat().st_size
        print(f"{name:16} {seconds:7.2f} s  {raw / seconds / 1e6:7.0f} MB/s of values  {size / raw:6.1%} of their size")
        path.unlink()
    deflate.isal_zlib = fast


def show_merging(folder: Path, values: np.ndarray, total: int) -> None:
    paths = [folder / f"{number}.h5" for number in range(1, SHARDS + 1)]
    for number, path in enumerate(paths, start=1):
        write(path, values, total, shard=Shard(number, SHARDS))
    size = sum(path.stat().st_size for path in paths)
    began = time.perf_counter()
    for path in paths:
        with path.open("rb") as source, (folder / "copy").open("wb") as target:
            shutil.copyfileobj(source, target, 1 << 20)
            os.fsync(target.fileno())
    copying = time.perf_counter() - began
    run = [sys.executable, __file__, "--merge", str(folder / "merged.h5"), *map(str, paths)]
    merging, peak = map(float, subprocess.run(run, capture_output=True, text=True, check=True).stdout.split())
    print(f"merging {SHARDS} shards, {size / 1e6:.0f} MB: {size / merging / 1e6:.0f} MB/s, {peak:.0f} MB of memory; "
          f"copying them: {size / copying / 1e6:.0f} MB/s")  # fmt: skip
    with open_store(folder / "merged.h5") as store:
        began = time.perf_counter()
        assert not len(damaged_sequences(store))
        print(f"verifying: {total * CHANNELS * 2 / (time.perf_counter() - began) / 1e6:.0f} MB/s of values")


def merge_alone(output: str, shards: list[str]) -> None:
    """Merge in a process of its own, and print the seconds it took and its peak memory in MB."""
    began = time.perf_counter()
    merge_shards(shards, output)
    seconds = time.perf_counter() - began
    status = Path("/proc/self/status").read_text()  # the peak that getrusage tells is that of the parent, if higher
    print(seconds, int(status.split("VmHWM:")[1].split()[0]) * 1024 / 1e6)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bases", type=int, default=20_000_000, help="of the store that is written")
    parser.add_argument("--folder", type=Path, help="where to write; default: a temporary folder")
    parser.add_argument("--merge", nargs="+", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.merge:
        merge_alone(options.merge[0], options.merge[1:])
        return
    values = made_up(2_000_000)
    with tempfile.TemporaryDirectory(dir=options.folder) as name:
        show_writing(Path(name), values, options.bases)
        show_merging(Path(name), values, options.bases)


if __name__ == "__main__":
    main()
