"""The errors genoformer raises on purpose; anything else is a defect and keeps its traceback."""

from __future__ import annotations


class GenoformerError(Exception):
    """Base of every error raised on purpose. The message says what, where, what was expected and what to do."""


class InputError(GenoformerError, ValueError):
    """Sequences, annotations or regions given by the user cannot be used."""


class ConfigError(GenoformerError, ValueError):
    """A configuration or a combination of options makes no sense."""


class FormatError(GenoformerError, ValueError):
    """A file is not in the format it should be in, is damaged, or is of a version not known here."""


class CheckpointError(GenoformerError, ValueError):
    """A model is missing, damaged, or does not fit its configuration."""


class ResourceError(GenoformerError, RuntimeError):
    """Memory, disk, device or a writable place is lacking."""


_SHORT_OF_MEMORY = (
    "out of memory",
    "can't allocate memory",
    "alloc_failed",
    "bad alloc",
    "could not create a primitive",
)
"""Words of Python, of torch for CPU, CUDA and MPS, and of oneDNN."""


def is_out_of_memory(error: BaseException) -> bool:
    """Tell whether an error of Python, numpy or torch says that memory ran out, of the machine or of a device."""
    if isinstance(error, MemoryError) or type(error).__name__ == "OutOfMemoryError":
        return True
    return isinstance(error, RuntimeError) and any(words in str(error).lower() for words in _SHORT_OF_MEMORY)
