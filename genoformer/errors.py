"""The errors genoformer raises on purpose; anything else is a defect and keeps its traceback."""

from __future__ import annotations

import re

_LONGEST, _KEPT = 2000, (1500, 400)
_LONG_WORD = re.compile(r"\S{250,}")


def printable(text: str) -> str:
    """Return a text as one line that a terminal shows and does not obey: what cannot be printed is escaped.

    >>> printable("a\x1b[31m")
    'a\\x1b[31m'
    """
    if text.isprintable():
        return text
    return "".join(letter if letter.isprintable() else ascii(letter)[1:-1] for letter in text)


class GenoformerError(Exception):
    """Base of every error raised on purpose. The message says what, where, what was expected and what to do.

    It is one line, whatever a file put into it: what cannot be printed is escaped, what is very long is cut.
    """

    def __str__(self) -> str:
        text = printable(str(self.args[0]) if len(self.args) == 1 else Exception.__str__(self))
        text = _LONG_WORD.sub(lambda word: f"{word[0][:100]}...{word[0][-40:]}", text)
        return text if len(text) <= _LONGEST else f"{text[: _KEPT[0]]} ... {text[-_KEPT[1] :]}"


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
