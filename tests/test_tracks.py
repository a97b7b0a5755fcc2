"""Tracks: what a track may be, and that the opposite strand is reached by going there twice."""

from __future__ import annotations

import pytest

from genoformer.errors import ConfigError
from genoformer.tracks import CODING_FRAME, IGNORED, TOKENS, TRACKS, Track


@pytest.mark.parametrize("track", [*TRACKS.values(), TOKENS], ids=lambda track: track.name)
def test_the_opposite_of_the_opposite_strand_is_the_same(track: Track) -> None:
    there = track.reverse_complement
    assert [there[there[channel]] for channel in range(len(track.channels))] == list(range(len(track.channels)))


def test_tracks_are_known_by_their_names() -> None:
    assert all(TRACKS[name].name == name for name in TRACKS)
    assert all(len(set(track.channels)) == len(track.channels) <= IGNORED for track in TRACKS.values())


def test_a_codon_position_keeps_its_number_on_the_opposite_strand() -> None:
    for channel, opposite in zip(CODING_FRAME.channels, CODING_FRAME.reverse_complement, strict=True):
        assert CODING_FRAME.channels[opposite] == channel.translate(str.maketrans("+-", "-+"))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"kind": "rank"}, "kind must be"),
        ({"channels": (), "reverse_complement": ()}, "has no channels"),
        ({"reverse_complement": (0,)}, "each of its 2 channels once"),
        ({"reverse_complement": (0, 0)}, "each of its 2 channels once"),
        ({"reverse_complement": (1, 2)}, "each of its 2 channels once"),
    ],
)
def test_impossible_tracks_are_refused(change: dict, message: str) -> None:
    good = {
        "name": "t",
        "kind": "signal",
        "channels": ("a", "b"),
        "units": "counts",
        "reverse_complement": (1, 0),
    }
    assert Track(**good).channels == ("a", "b")
    with pytest.raises(ConfigError, match=message):
        Track(**{**good, **change})
