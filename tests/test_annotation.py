"""Labels of every base: laws against a naive twin and under the symmetries of DNA, then examples of each rule."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from genoformer.annotation import Annotation, CodingSequence, coding_frame_labels
from genoformer.errors import InputError
from genoformer.tracks import CODING_FRAME, IGNORED

LENGTH = 60


@st.composite
def coding_sequences(draw, length: int = LENGTH) -> CodingSequence:
    spans = st.tuples(st.integers(0, length - 1), st.integers(1, 20)).map(lambda s: (s[0], min(length, sum(s))))
    return CodingSequence(
        "s",
        draw(st.sampled_from([1, -1])),
        tuple(draw(st.lists(spans, min_size=1, max_size=3))),
        phase=draw(st.integers(0, 2)),
        name="c",
        pseudo=draw(st.sampled_from([False, False, False, True])),
        partial=draw(st.sampled_from([True, True, False])),
    )


def naive_labels(length: int, cds_list: list[CodingSequence]) -> tuple[list[int], list[int]]:
    """Say base by base what labels each CDS asks for, then decide."""
    frames: list[set[int]] = [set() for _ in range(length)]
    strands: list[set[int]] = [set() for _ in range(length)]
    masked = [False] * length
    for cds in cds_list:
        read = [i for start, end in cds.parts for i in range(start, end)[:: cds.strand]]
        dropped = cds.pseudo or (not cds.partial and (len(read) - cds.phase) % 3)
        for position, base in enumerate(read):
            if dropped:
                masked[base] = True
            else:
                codon = (position - cds.phase) % 3
                frames[base].add(CODING_FRAME.channels.index("+-"[cds.strand == -1] + str(codon)))
                strands[base].add(1 if cds.strand == 1 else 2)

    def decide(wanted: set[int], is_masked: bool) -> int:
        if len(wanted) > 1:
            return IGNORED
        return wanted.pop() if wanted else (IGNORED if is_masked else 0)

    return (
        [decide(w, m) for w, m in zip(frames, masked, strict=True)],
        [decide(w, m) for w, m in zip(strands, masked, strict=True)],
    )


def opposite(cds: CodingSequence, length: int) -> CodingSequence:
    parts = tuple((length - end, length - start) for start, end in cds.parts)
    return CodingSequence(cds.sequence, -cds.strand, parts, cds.phase, cds.name, cds.pseudo, cds.partial)


def permute(labels: np.ndarray, permutation: tuple[int, ...]) -> np.ndarray:
    table = np.full(256, IGNORED, dtype=np.uint8)
    table[: len(permutation)] = permutation
    return table[labels]


@given(st.lists(coding_sequences(), max_size=5))
def test_labels_equal_a_naive_twin(cds_list):
    labels = coding_frame_labels(LENGTH, cds_list)
    frames, strands = naive_labels(LENGTH, cds_list)
    assert labels.frames.tolist() == frames
    assert labels.strands.tolist() == strands
    assert labels.frames.dtype == labels.strands.dtype == np.uint8


@given(st.lists(coding_sequences(), max_size=5))
def test_opposite_strand_gives_permuted_reversed_labels(cds_list):
    labels = coding_frame_labels(LENGTH, cds_list)
    other = coding_frame_labels(LENGTH, [opposite(cds, LENGTH) for cds in cds_list])
    np.testing.assert_array_equal(other.frames, permute(labels.frames[::-1], CODING_FRAME.reverse_complement))
    np.testing.assert_array_equal(other.strands, permute(labels.strands[::-1], (0, 2, 1)))


@given(st.lists(coding_sequences(), max_size=4), st.integers(0, 9), st.integers(0, 9))
def test_shifting_shifts_the_labels(cds_list, before, after):
    labels = coding_frame_labels(LENGTH, cds_list)
    moved = [
        CodingSequence(
            c.sequence,
            c.strand,
            tuple((s + before, e + before) for s, e in c.parts),
            c.phase,
            c.name,
            c.pseudo,
            c.partial,
        )
        for c in cds_list
    ]
    shifted = coding_frame_labels(before + LENGTH + after, moved)
    np.testing.assert_array_equal(shifted.frames, np.pad(labels.frames, (before, after)))
    np.testing.assert_array_equal(shifted.strands, np.pad(labels.strands, (before, after)))


@given(st.lists(coding_sequences(), max_size=4), st.randoms())
def test_order_and_repeats_do_not_matter(cds_list, random):
    labels = coding_frame_labels(LENGTH, cds_list)
    again = [*cds_list, *cds_list[:1]]
    random.shuffle(again)
    other = coding_frame_labels(LENGTH, again)
    np.testing.assert_array_equal(other.frames, labels.frames)
    np.testing.assert_array_equal(other.strands, labels.strands)


@given(st.lists(coding_sequences(), max_size=6))
def test_every_cds_is_accounted_for(cds_list):
    labels = coding_frame_labels(LENGTH, cds_list)
    assert labels.used + labels.pseudo + labels.broken == len(cds_list)
    assert labels.pseudo == sum(cds.pseudo for cds in cds_list)


def spell(labels: np.ndarray) -> str:
    """Write labels as letters: '.' none, 012 on +, abc on -, '!' ignored."""
    return "".join({IGNORED: "!"}.get(label) or ".012abc"[label] for label in labels.tolist())


@pytest.mark.parametrize(
    ("strand", "parts", "phase", "expected"),
    [
        (1, [(1, 7)], 0, ".012012..."),
        (-1, [(1, 7)], 0, ".cbacba..."),
        (1, [(0, 7)], 1, "2012012..."),
        (1, [(0, 8)], 2, "12012012.."),
        (-1, [(3, 10)], 1, "...cbacbac"),
        (1, [(0, 2), (4, 8)], 0, "01..2012.."),
        (-1, [(6, 10), (1, 3)], 0, ".cb...acba"),  # two exons: the one at the right is read first
        (1, [(0, 4), (5, 10)], 0, "0120.12012"),  # slippage by +1: a base is skipped
        (1, [(0, 4), (3, 8)], 0, "012!2012.."),  # slippage by -1: a base is read twice
        (-1, [(5, 9), (1, 6)], 0, ".cbac!cba."),
        (1, [(8, 10), (0, 4)], 0, "2012....01"),  # over the origin
        (-1, [(0, 4), (8, 10)], 0, "acba....cb"),
    ],
)
def test_codon_positions(strand, parts, phase, expected):
    cds = CodingSequence("s", strand, tuple(parts), phase=phase, name="c")
    labels = coding_frame_labels(10, [cds])
    assert spell(labels.frames) == expected
    assert labels.strands.tolist() == [0 if letter == "." else 1 if strand == 1 else 2 for letter in expected]
    assert labels.used == 1


def on(strand: int, start: int, end: int, **more) -> CodingSequence:
    return CodingSequence("s", strand, ((start, end),), **more)


@pytest.mark.parametrize(
    ("cds_list", "frames", "strands"),
    [
        ([on(1, 0, 6), on(1, 3, 9)], "012012012.", "111111111."),
        ([on(1, 0, 6), on(1, 4, 10)], "0120!!2012", "1111111111"),
        ([on(1, 0, 6), on(-1, 3, 9)], "012!!!cba.", "111!!!222."),
        ([on(1, 0, 6), on(1, 4, 10), on(1, 0, 6)], "0120!!2012", "1111111111"),
        ([on(1, 0, 6, pseudo=True)], "!!!!!!....", "!!!!!!...."),
        ([on(1, 3, 6), on(-1, 0, 9, pseudo=True)], "!!!012!!!.", "!!!111!!!."),
        ([on(1, 0, 5)], "!!!!!.....", "!!!!!....."),  # broken
        ([on(1, 0, 5, partial=True)], "01201.....", "11111....."),
        ([on(1, 0, 5, phase=2)], "12012.....", "11111....."),
    ],
)
def test_overlaps_pseudo_and_broken(cds_list, frames, strands):
    labels = coding_frame_labels(10, cds_list)
    assert spell(labels.frames) == frames
    assert "".join({0: ".", IGNORED: "!"}.get(label) or str(label) for label in labels.strands.tolist()) == strands


def test_counts_say_what_was_masked():
    labels = coding_frame_labels(30, [on(1, 0, 6), on(1, 9, 14), on(1, 18, 23, pseudo=True), on(-1, 24, 30)])
    assert (labels.used, labels.pseudo, labels.broken) == (2, 1, 1)


@pytest.mark.parametrize("length", [0, 1, 2, 3, 4])
def test_tiny_sequences(length):
    assert coding_frame_labels(length, []).frames.tolist() == [0] * length
    if length:
        whole = on(-1, 0, length, partial=True)
        assert spell(coding_frame_labels(length, [whole]).frames) == "acba"[-length:]


@pytest.mark.parametrize("part", [(5, 11), (9, 12), (20, 30), (-1, 5)])
def test_annotation_of_another_sequence_is_refused(part):
    cds = CodingSequence("chr 1|x", 1, (part,), name="gene/7", pseudo=part[0] == 20)
    with pytest.raises(InputError, match=rf"'chr 1\|x'.*'gene/7' at {part[0] + 1}-{part[1]} .*10 bases") as error:
        coding_frame_labels(10, [cds])
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    "wrong",
    [
        {"strand": 0},
        {"strand": 2},
        {"phase": 3},
        {"phase": -1},
        {"parts": ()},
        {"parts": ((4, 4),)},
        {"parts": ((5, 4),)},
    ],
)
def test_impossible_coding_sequences_are_refused(wrong):
    with pytest.raises(InputError):
        CodingSequence(**{"sequence": "s", "strand": 1, "parts": ((0, 3),), **wrong})


def test_length_and_description():
    cds = CodingSequence("chr1", -1, ((10, 16), (0, 5)), name="g", phase=2)
    assert cds.length == 11
    assert not cds.is_broken
    assert str(cds) == "sequence 'chr1': CDS 'g' at 11-16,1-5 (-)"


def test_annotations_do_not_share_their_contents():
    Annotation().lengths["a"] = 1
    assert Annotation().lengths == {}
