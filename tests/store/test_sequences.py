"""Names are data: any of them comes back, and none is a key."""

from __future__ import annotations

from pathlib import Path

import h5py
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from genoformer.errors import InputError
from genoformer.store import SequenceTable, UnknownNameError
from genoformer.store.sequences import STATUSES, TOPOLOGIES, read_sequences, write_sequences

ANY_BYTES = st.binary(max_size=12).map(lambda data: data.replace(b"\0", b"").decode("utf-8", "surrogateescape"))
ROWS = st.lists(
    st.tuples(
        st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), max_size=12) | ANY_BYTES,
        st.integers(0, 2**40),
        st.sampled_from(["", "d41d8cd98f00b204e9800998ecf8427e"]),
        st.sampled_from(TOPOLOGIES),
        st.sampled_from(STATUSES),
        ANY_BYTES,
    ),
    unique_by=lambda row: row[0],
    max_size=6,
)


@given(rows=ROWS)
def test_every_table_comes_back(rows: list[tuple], tmp_path_factory: pytest.TempPathFactory) -> None:
    names, lengths, md5, topology, status, reason = (
        (list(column) for column in zip(*rows, strict=True)) if rows else [[]] * 6
    )
    table = SequenceTable.build(names, lengths, md5=md5, topology=topology, status=status, reason=reason)
    with h5py.File(tmp_path_factory.mktemp("table") / "t.h5", "w") as file:
        write_sequences(file, table)
        again = read_sequences(file)
        plain = [file[key][:].tolist() for key in ("length", "offset")]
    assert (again.names, again.md5, again.topology, again.status, again.reason) == (
        names,
        md5,
        topology,
        status,
        reason,
    )
    assert again.lengths.tolist() == lengths == plain[0]
    assert plain[1] == again.offsets.tolist() == [0, *np.cumsum(lengths, dtype=np.int64).tolist()]
    assert [again.index(name) for name in names] == list(range(len(names)))


@pytest.mark.parametrize(("name", "why"), [("a\0b", "NUL"), ("a\ud800", "UTF-8")])
def test_impossible_names_are_refused(name: str, why: str, tmp_path: Path) -> None:
    with h5py.File(tmp_path / "t.h5", "w") as file, pytest.raises(InputError, match=why):
        write_sequences(file, SequenceTable.build([name], [1]))


def test_repeated_names_are_listed() -> None:
    table = SequenceTable.build(["a", "b", "a", "c", "c"], [1] * 5)
    with pytest.raises(InputError, match=r"2 sequence names are used more than once: 'a', 'c'; make them unique"):
        table.check_unique()


def test_an_unknown_name_is_an_input_error_and_a_key_error() -> None:
    with pytest.raises(UnknownNameError) as caught:
        SequenceTable.build(["a"], [1]).index("b")
    assert isinstance(caught.value, InputError)
    assert isinstance(caught.value, KeyError)
    assert str(caught.value) == "there is no sequence 'b'; the 1 sequences are 'a'"


@pytest.mark.parametrize(
    "columns",
    [{"status": ["lost"]}, {"topology": ["knotted"]}, {"md5": ["0" * 33]}, {"reason": []}],
)
def test_a_wrong_column_is_refused(columns: dict) -> None:
    with pytest.raises(ValueError, match=r"status|topology|md5|length"):
        SequenceTable.build(["a"], [1], **columns)


def test_a_negative_length_is_refused() -> None:
    with pytest.raises(ValueError, match="negative"):
        SequenceTable.build(["a"], [-1])
