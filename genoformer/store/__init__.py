"""The store: values of tracks at every base, in one self-describing HDF5 file (FORMAT.md)."""

from genoformer.store.create import create_store
from genoformer.store.merge import merge_shards
from genoformer.store.output import Output
from genoformer.store.sequences import SequenceTable, UnknownNameError
from genoformer.store.shard_checks import Merge, check_shards
from genoformer.store.shards import Shard
from genoformer.store.store import TrackStore, open_store
from genoformer.store.verify import damaged_sequences
from genoformer.store.writer import TrackWriter, part_path

__all__ = [
    "Merge",
    "Output",
    "SequenceTable",
    "Shard",
    "TrackStore",
    "TrackWriter",
    "UnknownNameError",
    "check_shards",
    "create_store",
    "damaged_sequences",
    "merge_shards",
    "open_store",
    "part_path",
]
