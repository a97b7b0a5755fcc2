"""Tracks: what is predicted or annotated at every base."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal

from genoformer.errors import ConfigError

IGNORED = 255
"""Class label of a base that must not count: ambiguous, pseudo or outside the annotation."""


@dataclass(frozen=True)
class Track:
    """One kind of value per base, with one or more channels.

    Attributes
    ----------
    name : identifier, also the name of its group in an HDF5 store
    kind : "class" (probabilities of exclusive classes) or "signal" (real values)
    channels : name of each channel
    units : what a value is, for people
    reverse_complement : for each channel, the channel it becomes on the opposite strand; none: each stays what it is
    """

    name: str
    kind: Literal["class", "signal"]
    channels: tuple[str, ...]
    units: str = ""
    reverse_complement: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        if not self.units:
            object.__setattr__(self, "units", "probability" if self.kind == "class" else "value")
        if not self.reverse_complement:
            object.__setattr__(self, "reverse_complement", tuple(range(len(self.channels))))
        if self.kind not in ("class", "signal"):
            raise ConfigError(f"track {self.name!r}: kind must be 'class' or 'signal', got {self.kind!r}")
        if not self.channels:
            raise ConfigError(f"track {self.name!r} has no channels")
        if sorted(self.reverse_complement) != list(range(len(self.channels))):
            raise ConfigError(
                f"track {self.name!r}: reverse_complement must name each of its {len(self.channels)} channels once, "
                f"got {list(self.reverse_complement)}"
            )


CODING_FRAME = Track(
    name="coding-frame",
    kind="class",
    channels=("none", "+0", "+1", "+2", "-0", "-1", "-2"),
    units="probability",
    reverse_complement=(0, 4, 5, 6, 1, 2, 3),
)
"""Which codon position (0, 1, 2) of a coding sequence on which strand a base is, or none."""

TOKENS = Track(name="tokens", kind="class", channels=("code",), units="code", reverse_complement=(0,))
"""The tokenized bases themselves, one code a base."""

MASKED_NUCLEOTIDE = Track(
    name="masked-nucleotide",
    kind="class",
    channels=("A", "C", "G", "T"),
    units="probability",
    reverse_complement=(3, 2, 1, 0),
)
"""Which base it is where it was hidden: what pre-training learns, from the bases around it."""

TRACKS: dict[str, Track] = {CODING_FRAME.name: CODING_FRAME, MASKED_NUCLEOTIDE.name: MASKED_NUCLEOTIDE}
"""The tracks that models here can be trained to predict, by name."""

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,59}")
_RESERVED = {*TRACKS, TOKENS.name, "fasta", "annotation", "split", "weight"}


def check_own(track: Track) -> None:
    """Check that a track that a user describes can be labeled, learned and stored.

    Raises
    ------
    ConfigError : a name cannot be used, there are too few or too many channels, or the strands do not fit
    """
    name, channels, turned = track.name, track.channels, track.reverse_complement
    if not _NAME.fullmatch(name):
        raise ConfigError(f"track {name!r}: a name has up to 60 letters of the English alphabet, digits, '-' and '_', "
                          "and begins with a letter or a digit")  # fmt: skip
    if name in _RESERVED:
        raise ConfigError(f"track {name!r}: this name is taken; choose another one")
    for channel in channels:
        if not channel.strip() or not channel.isprintable():
            raise ConfigError(f"track {name!r}: a channel must have a name that can be printed, got {channel!r}")
    if len(set(channels)) < len(channels):
        raise ConfigError(f"track {name!r}: channels must differ, got {', '.join(channels)}")
    if track.kind == "class" and not 2 <= len(channels) <= IGNORED:
        raise ConfigError(
            f"track {name!r}: classes need 2 to {IGNORED} channels, the first for bases that no line covers, "
            f"got {len(channels)}"
        )
    if any(turned[turned[index]] != index for index in range(len(channels))):
        raise ConfigError(
            f"track {name!r}: reverse_complement must lead back when it is taken twice, got {list(turned)}"
        )
