"""The plan: every base of the input is accounted for, whatever is asked of it."""

from __future__ import annotations

import hashlib
import itertools
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tiny import Memory, write_fasta

from genoformer.errors import ConfigError, InputError
from genoformer.formats.sequences import open_sequences
from genoformer.plan import Accounting, check_predictable, make_plan
from genoformer.regions import Region

RUNS = st.lists(st.tuples(st.sampled_from("ACgtNnRx-"), st.sampled_from([1, 2, 10, 49, 50, 51, 90])), max_size=5)
SEQUENCES = st.lists(RUNS.map(lambda runs: "".join(c * n for c, n in runs).encode()), min_size=1, max_size=5)


def fate_of_bases(bases: bytes, min_length: int, wanted: set[int]) -> Counter[str]:
    """Say base by base what should become of it."""
    if len(bases) < max(min_length, 1):
        return Counter(skipped=len(bases))
    is_known = [byte in b"ACGTUacgtu" for byte in bases]
    fates: list[str] = []
    for known, group in itertools.groupby(is_known):
        run = len(list(group))
        fates += ["predicted" if known or (run < 50 and any(is_known)) else "masked"] * run
    return Counter(fate if i in wanted else "not_requested" for i, fate in enumerate(fates))


@st.composite
def regions_of(draw: st.DrawFn, lengths: list[int]) -> list[Region] | None:
    if draw(st.booleans()):
        return None
    regions = []
    for number, length in enumerate(lengths):
        ends = sorted(draw(st.sets(st.integers(0, length), max_size=4)))
        regions += [Region(f"s{number}", a, b) for a, b in zip(ends[::2], ends[1::2], strict=False)]
    return draw(st.permutations(regions))


@settings(max_examples=150)
@given(st.data(), SEQUENCES, st.integers(1, 60), st.integers(5, 70))
def test_every_base_is_accounted_for(data: st.DataObject, bases: list[bytes], min_length: int, window: int) -> None:
    sequences = Memory(*((f"s{number}", letters) for number, letters in enumerate(bases)))
    regions = data.draw(regions_of([len(b) for b in bases]))
    plan = make_plan(sequences, window=window, overlap=window // 3, regions=regions, min_length=min_length)
    expected: Counter[str] = Counter()
    for number, letters in enumerate(bases):
        wanted = range(len(letters))
        if regions is not None:
            wanted = [p for r in regions if r.sequence == f"s{number}" for p in range(r.start, r.end)]
        expected += fate_of_bases(letters, min_length, set(wanted))
    assert plan.accounting == Accounting(
        *(expected[field] for field in Accounting._fields[:4]), total=sum(map(len, bases))
    )
    assert sum(plan.accounting[:4]) == plan.accounting.total
    check_owned(plan, bases, regions)


def check_owned(plan, bases: list[bytes], regions: list[Region] | None) -> None:
    """Owned spans are what was asked of pending sequences, in order, each once; blocks are the same on one axis."""
    asked = regions or [] if regions is not None else [Region(f"s{i}", 0, len(b)) for i, b in enumerate(bases)]
    asked = sorted(asked, key=lambda r: (r.sequence, r.start))
    expected = [
        (int(r.sequence[1:]), position)
        for r in asked
        for position in range(r.start, r.end)
        if plan.sequences.status[int(r.sequence[1:])] == "pending"
    ]
    assert [(i, position) for i, start, end in plan.owned.tolist() for position in range(start, end)] == expected
    offsets = np.concatenate([[0], np.cumsum([len(b) for b in bases])])
    assert [p for start, end in plan.blocks.tolist() for p in range(start, end)] == [
        offsets[i] + p for i, p in expected
    ]
    assert plan.owned.dtype == plan.blocks.dtype == np.int64
    from_windows = [(index, w.owned.start, w.owned.end) for index in range(len(bases)) for w in plan.windows(index)]
    assert from_windows == [tuple(row) for row in plan.owned.tolist()]


def test_status_and_reason_of_each_sequence() -> None:
    sequences = Memory(("a", b"ACGT" * 30), ("b", b""), ("c", b"N" * 70), ("d", b"ACG"), ("e", b"A" + b"N" * 60))
    plan = make_plan(sequences, min_length=4)
    assert plan.sequences.status == ["pending", "skipped", "masked", "skipped", "pending"]
    assert plan.sequences.reason == ["", "no bases", "no known base", "shorter than 4 bases", ""]
    assert plan.short == 1
    assert plan.gaps.keys() == {4}
    assert plan.gaps[4].tolist() == [[1, 61]]
    assert plan.accounting == (121, 130, 3, 0, 254)
    assert plan.letters == (124, 130, 0, 0)
    assert plan.compositions.shape == (5, 4)
    assert list(plan.windows(1)) == list(plan.windows(2)) == []


def test_checksums_are_of_upper_case_letters_and_the_digest_is_of_names_and_sequences() -> None:
    one = make_plan(Memory(("a", b"acgtn"), ("b", b"TT")))
    assert one.sequences.md5 == [hashlib.md5(b"ACGTN").hexdigest(), hashlib.md5(b"TT").hexdigest()]
    others = [
        make_plan(Memory(*records)).input_digest()
        for records in (
            [("a", b"ACGTN"), ("b", b"TT")],
            [("a", b"ACGTA"), ("b", b"TT")],
            [("a", b"ACGTN"), ("c", b"TT")],
            [("b", b"TT"), ("a", b"ACGTN")],
            [("a", b"ACGTN")],
        )
    ]
    assert one.input_digest() == others[0]
    assert len(set(others)) == 5
    assert one.input_digest() == make_plan(Memory(("a", b"acgtn"), ("b", b"TT")), window=3, overlap=1).input_digest()


def test_the_digest_takes_names_of_any_bytes() -> None:
    assert make_plan(Memory(("\udcff", b"A"))).input_digest()


def test_repeated_names_are_refused_and_listed(tmp_path: Path) -> None:
    """Fault 11: before any model is loaded."""
    path = tmp_path / "twice.fa"
    path.write_text(">a 1\nACGT\n>b\nA\n>a 2\nACGT\n")
    with pytest.raises(InputError, match=r"twice.fa: .*more than once: 'a'"):
        make_plan(open_sequences(path))


def test_no_record_and_no_window(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="memory: holds no sequence"):
        make_plan(Memory())
    with pytest.raises(ConfigError, match="overlap must be"):
        make_plan(Memory(("a", b"A")), window=5, overlap=5)


@pytest.mark.parametrize(
    ("regions", "message"),
    [
        ([Region("chr1", 0, 3)], "has no sequence 'chr1'"),
        ([Region("1", 5, 11)], "does not lie on '1', which has 10 bases"),
        ([Region("1", -1, 3)], "does not lie on"),
        ([Region("1", 4, 8), Region("1", 0, 5)], "overlap"),
        ([Region("1", 4, 8), Region("1", 4, 8)], "overlap"),
    ],
)
def test_regions_that_make_no_sense_are_refused(regions: list[Region], message: str) -> None:
    with pytest.raises(InputError, match=message) as caught:
        make_plan(Memory(("1", b"ACGTACGTAC")), regions=regions)
    assert "\n" not in str(caught.value)


def test_regions_come_in_the_order_of_the_input() -> None:
    sequences = Memory(("b", b"A" * 50), ("a", b"C" * 50))
    regions = [Region("a", 30, 40), Region("a", 5, 9), Region("b", 2, 3), Region("b", 0, 2)]
    plan = make_plan(sequences, regions=regions, window=20, overlap=4)
    assert plan.owned.tolist() == [[0, 0, 2], [0, 2, 3], [1, 5, 9], [1, 30, 40]]
    assert plan.accounting.not_requested == 100 - 17


def test_nothing_to_predict_says_why() -> None:
    for records, regions, reason in [
        ([("a", b"NN"), ("b", b"")], None, "no bases; no known base"),
        ([("a", b"A" + b"N" * 60)], [Region("a", 1, 61)], "only gaps in what was asked for"),
    ]:
        with pytest.raises(InputError, match=f"memory: nothing to predict in {len(records)} .*{reason}"):
            check_predictable(make_plan(Memory(*records), regions=regions))
    check_predictable(make_plan(Memory(("a", b"A"))))


def test_short_sequences_are_planned_as_they_are(tmp_path: Path) -> None:
    """Faults 5 and 8: no length is impossible."""
    lengths = (1, 6, 99, 100, 101, 200, 1482)
    path = write_fasta(tmp_path / "x.fa", {f"s{n}": b"A" * n for n in lengths})
    plan = make_plan(open_sequences(path), window=100, overlap=10)
    assert plan.accounting.predicted == sum(lengths)
    assert plan.short == 3
