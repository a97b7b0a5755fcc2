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
