"""Tokenized inputs: the same codes and windows, read back as sequences, give the same plan."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import h5py
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tiny import Memory, random_bases, write_fasta

from genoformer import tokenizing
from genoformer.errors import ConfigError, FormatError, InputError
from genoformer.formats.sequences import open_sequences
from genoformer.plan import make_plan
from genoformer.regions import Region
from genoformer.store import Output, open_store
from genoformer.tokenizing import TokenSequences, open_sequences_or_tokens, tokenize_to_store
from genoformer.tokens import composition, decode, encode

RECORDS = [("a", b"acgtnRYacgtACGTU" * 7), ("b", b""), ("c/1", b"N" * 60), ("d", random_bases(500))]


def tokenized(
    path: Path,
    records: list[tuple[str, bytes]] = RECORDS,
    *,
    report: Callable[[int], None] = lambda _: None,
    **options: bool,
) -> Path:
    sequences = Memory(*records)
    plan = make_plan(sequences, window=40, overlap=10)
    return tokenize_to_store(plan, sequences, Output(path, **options), report=report)


def test_codes_come_back(tmp_path: Path) -> None:
    tokens = TokenSequences(tokenized(tmp_path / "t.h5"))
    assert [(r.name, r.bases) for r in tokens.records()] == [(n, decode(encode(b))) for n, b in RECORDS]
    assert [(r.name, r.bases) for r in tokens.records()] == [(n, decode(encode(b))) for n, b in RECORDS]  # again
    assert tokens.lengths() == {name: len(bases) for name, bases in RECORDS}
    assert list(tokens.lengths()) == [name for name, _ in RECORDS]
    assert (tokens.window, tokens.overlap) == (40, 10)
    assert tokens.fetch(Region("d", 3, 77)) == RECORDS[3][1][3:77]
    for region in (Region("d", 400, 501), Region("x", 0, 1)):
        with pytest.raises(InputError, match=r"t\.h5"):
            tokens.fetch(region)


def test_the_plan_of_tokens_is_that_of_the_sequences(tmp_path: Path) -> None:
    tokens = TokenSequences(tokenized(tmp_path / "t.h5"))
    ours = make_plan(tokens, window=tokens.window, overlap=tokens.overlap)
    theirs = make_plan(Memory(*RECORDS), window=40, overlap=10)
    assert np.array_equal(ours.owned, theirs.owned)
    assert ours.accounting == theirs.accounting
    assert ours.sequences.names == theirs.sequences.names
    assert ours.gaps.keys() == theirs.gaps.keys()
    assert ours.letters == theirs.letters  # lower case and IUPAC letters, which are no longer in the tokens
    assert ours.sequences.md5 == theirs.sequences.md5
    assert ours.input_digest() == theirs.input_digest()


@pytest.mark.parametrize(("row", "column", "value"), [(0, 0, 1), (3, 0, -1), (1, 1, 1), (0, 0, 2**62)])
def test_letters_that_are_not_those_of_the_tokens(tmp_path: Path, row: int, column: int, value: int) -> None:
    path = tokenized(tmp_path / "t.h5")
    with h5py.File(path, "r+") as file:
        file["letters"][row, column] = value
    with pytest.raises(FormatError, match=r"t.h5: damaged \(its table of letters"):
        list(TokenSequences(path).records())
    with h5py.File(path, "r+") as file:
        known = file["letters"][3, 0]
        file["letters"][3] = [known - 1, 1, 0, 0]
        file["letters"][:3] = [composition(bases) for _, bases in RECORDS[:3]]
    with pytest.raises(FormatError, match="letters"):
        list(TokenSequences(path).records())


@pytest.mark.parametrize("shape", [(4, 3), (5, 4), (4,), (1 << 40, 4)])
def test_a_table_of_letters_of_another_shape(tmp_path: Path, shape: tuple[int, ...]) -> None:
    path = tokenized(tmp_path / "t.h5")
    with h5py.File(path, "r+") as file:
        del file["letters"]
        file.create_dataset("letters", shape=shape, dtype=np.int64, chunks=(1, 3) if len(shape) > 1 else None)
    with pytest.raises(FormatError, match=r"t.h5: .*letters has shape"):
        list(TokenSequences(path).records())


def test_tokens_that_do_not_tell_of_letters(tmp_path: Path) -> None:
    path = tokenized(tmp_path / "t.h5")
    with h5py.File(path, "r+") as file:
        del file["letters"]
    plan = make_plan(TokenSequences(path), window=40, overlap=10)
    assert plan.letters.soft_masked == 0


def test_tables_of_windows_and_letters_lie_beside_the_tokens(tmp_path: Path) -> None:
    path = tokenized(tmp_path / "t.h5")
    plan = make_plan(Memory(*RECORDS), window=40, overlap=10)
    expected = [(i, *w.region[1:], *w.owned[1:]) for i in range(len(RECORDS)) for w in plan.windows(i)]
    with h5py.File(path) as file:
        assert [tuple(row) for row in file["windows"][:].tolist()] == expected
        assert list(file["windows"].attrs["columns"]) == ["sequence", "start", "end", "owned_start", "owned_end"]
        assert [tuple(row) for row in file["letters"][:].tolist()] == [composition(b) for _, b in RECORDS]
        assert file["tracks/tokens/values"].dtype == np.uint8


@settings(max_examples=10, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.text("ACGTacgtNRn", max_size=60).map(str.encode), min_size=1, max_size=4), st.integers(1, 20))
def test_pieces_do_not_matter(tmp_path: Path, bases: list[bytes], span: int) -> None:
    records = [(f"s{i}", letters) for i, letters in enumerate(bases)]
    reported: list[int] = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tokenizing, "_SPAN", span)
        path = tokenized(tmp_path / "t.h5", records, overwrite=True, report=reported.append)
    assert [r.bases for r in TokenSequences(path).records()] == [decode(encode(letters)) for letters in bases]
    assert sum(reported) == sum(map(len, bases))


def test_an_interrupted_run_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tokenizing, "_SPAN", 50)
    calls: list[int] = []

    class StopError(Exception):
        pass

    def stop(_: int) -> None:
        calls.append(1)
        if len(calls) == 5:
            raise StopError

    with pytest.raises(StopError):
        tokenized(tmp_path / "t.h5", report=stop)
    assert not (tmp_path / "t.h5").exists()
    with pytest.raises(ConfigError, match="--resume"):
        tokenized(tmp_path / "t.h5")
    with pytest.raises((ConfigError, InputError)):
        tokenized(tmp_path / "t.h5", [("a", b"A")], resume=True)
    tokenized(tmp_path / "t.h5", resume=True)
    assert [r.bases for r in TokenSequences(tmp_path / "t.h5").records()] == [decode(encode(b)) for _, b in RECORDS]


def test_an_input_that_changed_since_it_was_planned_is_noticed(tmp_path: Path) -> None:
    plan = make_plan(Memory(*RECORDS))
    for held in (RECORDS[:-1], [*RECORDS, ("more", b"A")], [(RECORDS[0][0], RECORDS[0][1] + b"A"), *RECORDS[1:]]):
        with pytest.raises(InputError, match="has changed since it was planned"):
            tokenize_to_store(plan, Memory(*held), Output(tmp_path / "x.h5", overwrite=True))
        assert not (tmp_path / "x.h5").exists()


def test_inputs_are_told_by_their_content(tmp_path: Path) -> None:
    fasta = write_fasta(tmp_path / "x.h5", {"a": b"ACGT"})  # named as what it is not
    assert [r.bases for r in open_sequences_or_tokens(fasta).records()] == [b"ACGT"]
    tokens = tokenized(tmp_path / "t.fa")
    assert isinstance(open_sequences_or_tokens(tokens), TokenSequences)
    with pytest.raises(FormatError, match="is HDF5"):
        open_sequences(tokens)


def test_a_store_of_something_else_is_refused(tmp_path: Path) -> None:
    archived = Path(__file__).parent / "store" / "archive" / "v1" / "store.h5"
    with pytest.raises(FormatError, match="not tokens; expected sequences"):
        open_sequences_or_tokens(archived)
    (tmp_path / "cut.h5").write_bytes(tokenized(tmp_path / "t.h5").read_bytes()[:3000])
    with pytest.raises(FormatError, match=r"cut\.h5"):
        open_sequences_or_tokens(tmp_path / "cut.h5")


def test_tokens_that_do_not_say_how_they_were_cut_are_refused(tmp_path: Path) -> None:
    path = tokenized(tmp_path / "t.h5")
    with h5py.File(path, "r+") as file:
        file.attrs["metadata"] = "{}"
    with pytest.raises(FormatError, match="does not say how it was cut"):
        TokenSequences(path)
    with open_store(path) as store:
        assert list(store.tracks) == ["tokens"]
