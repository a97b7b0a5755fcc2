"""The store: values of tracks at every base, in one self-describing HDF5 file (FORMAT.md)."""

from genoformer.store.create import create_store
from genoformer.store.sequences import SequenceTable, UnknownNameError
from genoformer.store.store import TrackStore, open_store
from genoformer.store.writer import TrackWriter, part_path

__all__ = ["SequenceTable", "TrackStore", "TrackWriter", "UnknownNameError", "create_store", "open_store", "part_path"]
