"""Tracks: what is predicted or annotated at every base."""

from __future__ import annotations

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
    reverse_complement : for each channel, the channel it becomes on the opposite strand
    """

    name: str
    kind: Literal["class", "signal"]
    channels: tuple[str, ...]
    units: str
    reverse_complement: tuple[int, ...]

    def __post_init__(self) -> None:
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
