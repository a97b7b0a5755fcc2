"""Damaged stores, for test_damage.py: flipped bits, garbage, cuts; each is opened, read, verified, resumed and merged.

Run as a program, so that a crash of HDF5 itself is seen and not suffered. The last line printed is the damage at work.
"""

from __future__ import annotations

import random
import resource
import signal
import sys
from collections.abc import Callable
from pathlib import Path

from store_samples import SIGNAL, begin, block, spans, table, write_all

from genoformer.errors import GenoformerError
from genoformer.store import Shard, TrackStore, damaged_sequences, merge_shards, open_store, part_path

SECONDS = 30
MEMORY = 3 << 30


def make(folder: Path) -> list[Path]:
    """Write a store, a shard, and what a kill leaves."""
    write_all(folder / "store.h5")
    write_all(folder / "shard.h5", shard=Shard(1, 2))
    write_all(folder / "other.h5", shard=Shard(2, 2))
    with begin(folder / "run.h5") as writer:
        for span in writer.blocks[::3]:
            writer.write(block(writer.sequences, span))
    return [folder / "store.h5", folder / "shard.h5", part_path(folder / "run.h5")]


def damage(data: bytes, dice: random.Random) -> bytes:
    """Damage a file in one of the ways that disks, transfers and strangers do."""
    bad = bytearray(data)
    kind = dice.choice(["bits", "bytes", "fields", "garbage", "zeros", "cut", "moved"])
    if kind == "cut":
        return bytes(bad[: dice.randrange(len(bad))])
    size = dice.choice([1, 8, 64, 4096])
    for _ in range(dice.choice([1, 1, 3, 20])):
        place = dice.randrange(len(bad))
        if kind == "bits":
            bad[place] ^= 1 << dice.randrange(8)
        elif kind == "bytes":
            bad[place] = dice.choice([0, 1, 0x7F, 0x80, 0xFF, dice.randrange(256)])
        elif kind == "fields":  # sizes, counts and addresses are 8 bytes, of which most are 0
            number = dice.choice([0, 1, 255, 1 << 31, 1 << 62, (1 << 64) - 1, place, len(bad)])
            bad[place // 8 * 8 : place // 8 * 8 + 8] = number.to_bytes(8, "little")
        elif kind == "moved":
            source = dice.randrange(len(bad))
            bad[place : place + size] = bad[source : source + size]
        else:
            bad[place : place + size] = bytes(size) if kind == "zeros" else dice.randbytes(size)
    return bytes(bad[: len(data)])


def attempt(work: Callable[[], object]) -> str:
    """Do something with a damaged file; only errors of ours, of one line, may come of it."""
    try:
        work()
    except GenoformerError as error:
        if "\n" in str(error):
            raise
        return type(error).__name__
    return "read"


def read(path: Path) -> None:
    with open_store(path, allow_incomplete=True) as store:
        for one in store.blocks():
            assert one.values
        store.predicted_counts()
        damaged_sequences(store)


def resume(path: Path) -> None:
    """Go on with a run; values may be wrong where the file was, but nothing else may happen."""
    final = path.with_name(path.name.removesuffix(".part"))
    provenance = {"identity": {"model": "m"}}
    with TrackStore.create(
        final, table(), [SIGNAL], provenance=provenance, blocks=spans(table(), 1000), resume=True
    ) as writer:
        for number, span in enumerate(writer.blocks):
            if not writer.is_done(number):
                writer.write(block(writer.sequences, span))
        writer.finish()


def main(folder: Path, first: int, rounds: int) -> None:
    """Damage each kind of file so many times."""
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    (folder / "good").mkdir()
    goods = make(folder / "good")
    other = folder / "good" / "other.h5"
    whole = {path: path.read_bytes() for path in goods}
    for seed in range(first, first + rounds):
        for path, data in whole.items():
            bad = folder / f"bad-{path.name}"
            bad.write_bytes(damage(data, random.Random(f"{seed} {path.name}")))
            print(seed, path.name, flush=True)
            signal.alarm(SECONDS)
            attempt(lambda bad=bad: read(bad))  # type: ignore[misc]
            if path.suffix == ".part":
                attempt(lambda bad=bad: resume(bad))  # type: ignore[misc]
                bad.with_name(bad.name.removesuffix(".part")).unlink(missing_ok=True)
            else:
                for shards in ([bad, other], [other, bad]):
                    attempt(lambda shards=shards: merge_shards(shards, folder / "m.h5", overwrite=True))  # type: ignore[misc]
                    (folder / "m.h5").unlink(missing_ok=True)
            signal.alarm(0)


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]))
