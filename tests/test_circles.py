"""Circular sequences: windows go over the origin, and where a file cuts the circle does not matter."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st
from prediction_samples import MIXED, NAME, assert_same, joined
from tiny import Memory, random_bases, tiny_config, tiny_model, write_fasta

from genoformer.circles import own_origin, wrapped
from genoformer.errors import ConfigError, GenoformerError, InputError
from genoformer.formats.sequences import open_sequences
from genoformer.model.checkpoint import load_model, save_model
from genoformer.model.genoformer import Genoformer
from genoformer.plan import make_plan
from genoformer.predict import Settings, predict, predict_plan, predict_to_store
from genoformer.regions import Region, Window, place_in_window, plan_circle, plan_windows
from genoformer.store import Output, Shard, merge_shards, open_store, part_path
from genoformer.tokenizing import TokenSequences, tokenize_to_store
from genoformer.tokens import encode, gaps


@pytest.fixture(scope="module")
def model() -> Genoformer:
    torch.manual_seed(0)
    return tiny_model(attention=("local", "performer", "hybrid"))


def run(bases: bytes, model: Genoformer, *, settings: dict[str, Any] | None = None, **cut: Any) -> np.ndarray:
    """Predict one circle."""
    sequences = Memory(("x", bases))
    blocks = list(predict(sequences, model, circular=("all",), settings=Settings(**settings or {}), **cut))
    return joined(blocks, sequences)["x"]


# ---- letters


@given(st.text("ACGT", min_size=1, max_size=12).map(str.encode), st.integers(-30, 30), st.integers(0, 40))
def test_wrapped_goes_round_and_round(bases: bytes, start: int, count: int) -> None:
    assert wrapped(bases, start, start + count) == bytes(bases[i % len(bases)] for i in range(start, start + count))


@given(st.text("AC", min_size=1, max_size=60), st.integers(0, 60))
@example("A" * 300, 7)
@example("ACG" * 50, 1)
def test_a_circle_is_cut_at_the_same_base_wherever_it_was_cut(text: str, by: int) -> None:
    codes = encode(text.encode())
    turned = np.roll(codes, -by)
    assert np.array_equal(np.roll(codes, -own_origin(codes)), np.roll(turned, -own_origin(turned)))


def test_pieces_of_a_long_circle_do_not_matter(monkeypatch: pytest.MonkeyPatch) -> None:
    codes = encode(random_bases(1000) + b"A" * 30)
    expected = own_origin(codes)
    for piece in (1, 7, 999, 1030):
        monkeypatch.setattr("genoformer.circles._PIECE", piece)
        assert own_origin(codes) == expected
    assert own_origin(codes[:0]) == 0


@given(st.text("AN", min_size=1, max_size=40), st.integers(0, 40), st.integers(1, 9))
def test_gaps_go_over_the_origin(text: str, by: int, least: int) -> None:
    by %= len(text)
    turned = text[by:] + text[:by]

    def in_gap(letters: str) -> list[bool]:
        places = {p for start, end in gaps(letters.encode(), least=least, circular=True) for p in range(start, end)}
        return [p in places for p in range(len(letters))]

    expected = in_gap(text)
    assert in_gap(turned) == expected[by:] + expected[:by]
    linear = {p for start, end in gaps(text.encode(), least=least) for p in range(start, end)}
    assert linear <= {p for p, yes in enumerate(expected) if yes}


# ---- windows


@st.composite
def cuts(draw: st.DrawFn) -> tuple[int, int, int, int]:
    length, size = draw(st.integers(1, 120)), draw(st.integers(1, 60))
    return length, size, draw(st.integers(0, size - 1)), draw(st.integers(0, length - 1))


@given(cuts())
@example((300, 1000, 250, 17))
@example((98, 100, 10, 50))  # shorter than a window, but not with its surroundings
def test_every_base_of_a_circle_is_owned_once_with_context_on_both_sides(cut: tuple[int, int, int, int]) -> None:
    length, size, overlap, origin = cut
    margin = overlap // 2
    windows = list(plan_circle("s", length, size=size, overlap=overlap, origin=origin))
    owned = [position for w in windows for position in range(w.owned.start, w.owned.end)]
    assert owned == list(range(length))
    for window in windows:
        assert window.region.length == min(size, length + 2 * margin)
        places = place_in_window(window, length=length, overlap=overlap)
        inside = [window.region.start + p for start, end in places for p in range(start, end)]
        assert [p % length for p in inside] == list(range(window.owned.start, window.owned.end))
        assert min(inside) - window.region.start >= margin
        assert window.region.end - 1 - max(inside) >= margin


@given(cuts(), st.integers(0, 120))
def test_windows_of_a_circle_are_the_same_from_any_cut(cut: tuple[int, int, int, int], by: int) -> None:
    length, size, overlap, origin = cut
    seen = [
        {(w.region.start + turned) % length for w in plan_circle("s", length, size=size, overlap=overlap, origin=o)}
        for turned, o in ((0, origin), (by, (origin - by) % length))
    ]
    assert seen[0] == seen[1]


@given(cuts(), st.data())
def test_a_region_of_a_circle_is_plain_and_its_context_is_not(
    cut: tuple[int, int, int, int], data: st.DataObject
) -> None:
    length, size, overlap, start = cut
    end = data.draw(st.integers(start + 1, length))
    windows = list(plan_windows("s", length, size=size, overlap=overlap, start=start, end=end, circular=True))
    assert [p for w in windows for p in range(w.owned.start, w.owned.end)] == list(range(start, end))
    for window in windows:
        assert window.region.covers(window.owned)
        ((first, until),) = place_in_window(window, length=length, overlap=overlap)
        assert (first, until) == tuple(p - window.region.start for p in window.owned[1:])
        assert min(first, window.region.length - until) >= overlap // 2
        assert window.region.length <= min(size, length + 2 * (overlap // 2))


def test_a_circle_by_hand() -> None:
    (window,) = plan_circle("s", 10, size=100, overlap=6, origin=4)
    assert window == Window(Region("s", 1, 17), Region("s", 0, 10))
    assert place_in_window(window, length=10, overlap=6) == [(9, 13), (3, 9)]
    two = [(w.region.start, w.region.end, w.owned.start, w.owned.end)
           for w in plan_circle("s", 20, size=14, overlap=4, origin=15)]  # fmt: skip
    assert two == [(-7, 7, 0, 5), (3, 17, 5, 15), (13, 27, 15, 20)]


# ---- values


@settings(max_examples=12)
@given(st.integers(1, 400), st.integers(0, 400), st.sampled_from([(120, 30), (60, 0), (1000, 200)]), st.integers(0, 9))
@example(300, 150, (100_000, 5_000), 0)
@example(1, 0, (50, 40), 0)
def test_a_circle_has_the_same_values_wherever_it_was_cut(
    model: Genoformer, length: int, by: int, cut: tuple[int, int], seed: int
) -> None:
    """Fault 41, before any gene is called; equal to the last bit, as the same windows are computed."""
    bases = random_bases(length, seed)
    by %= length
    window, overlap = cut
    one = run(bases, model, window=window, overlap=overlap)
    two = run(bases[by:] + bases[:by], model, window=window, overlap=overlap)
    assert np.isfinite(one).all()
    np.testing.assert_array_equal(np.roll(one, -by, axis=0), two)


def test_values_are_those_of_the_circle_unrolled(model: Genoformer) -> None:
    bases = random_bases(90, 3)
    values = run(bases, model, window=400, overlap=60)
    origin = own_origin(encode(bases))
    unrolled = Memory(("u", wrapped(bases, origin - 30, origin + 120)))
    alone = joined(list(predict(unrolled, model, window=400, overlap=60)), unrolled)["u"]
    np.testing.assert_array_equal(np.roll(values, -origin, axis=0), alone[30:120])
    linear = Memory(("x", bases))
    assert not np.array_equal(values, joined(list(predict(linear, model, window=400, overlap=60)), linear)["x"])


def test_a_gap_over_the_origin_is_masked(model: Genoformer) -> None:
    bases = b"N" * 30 + random_bases(200) + b"N" * 30
    values = run(bases, model, window=120, overlap=30)
    in_gap = np.isnan(values).all(axis=1)
    assert np.array_equal(np.flatnonzero(~in_gap), np.arange(30, 230))
    assert make_plan(Memory(("x", bases)), circular=["x"]).accounting.masked == 60
    assert make_plan(Memory(("x", bases))).accounting.masked == 0


@pytest.mark.parametrize("options", [{"chunk_size": 3, "batch_size": 2}, {"chunk_size": 0, "batch_size": 5}])
def test_chunks_and_batches_do_not_matter(model: Genoformer, options: dict[str, Any]) -> None:
    pending = Memory(*(record for record in MIXED.held if record[0] not in ("unknown", "empty")))
    cut = {"window": 120, "overlap": 30, "circular": ["long", "gapped", "one", "s1"]}
    expected = joined(list(predict(pending, model, settings=Settings(chunk_size=0), **cut)), pending)
    assert_same(joined(list(predict(pending, model, settings=Settings(**options), **cut)), pending), expected)


def test_what_is_done_is_not_predicted_again(model: Genoformer) -> None:
    sequences = Memory(("a", random_bases(400)), ("b", random_bases(50)))
    plan = make_plan(sequences, window=120, overlap=30, circular=["all"])
    everything = list(predict_plan(plan, sequences, model, settings=Settings()))
    done = np.arange(len(plan.owned)) % 2 == 0
    rest = list(predict_plan(plan, sequences, model, settings=Settings(), done=done))
    assert [block.start for block in rest] == [block.start for block in everything][1::2]
    for block, expected in zip(rest, everything[1::2], strict=True):
        np.testing.assert_array_equal(block.values[NAME], expected.values[NAME])


def test_regions_see_over_the_origin(model: Genoformer) -> None:
    bases = random_bases(500, 1)
    sequences = Memory(("x", bases))
    regions = [Region("x", 0, 20), Region("x", 470, 500)]
    cut = {"window": 100, "overlap": 40}
    blocks = list(predict(sequences, model, regions=regions, circular=["x"], **cut))
    assert [(block.start, block.end) for block in blocks] == [(0, 20), (470, 500)]
    turned = Memory(("x", bases[250:] + bases[:250]))
    moved = list(predict(turned, model, regions=[Region("x", 220, 250), Region("x", 250, 270)], **cut))
    for one, two in zip(blocks, moved[::-1], strict=True):
        np.testing.assert_array_equal(one.values[NAME], two.values[NAME])


# ---- who is circular


def test_names_of_circles(model: Genoformer) -> None:
    sequences = Memory(("a", b"ACGT" * 20), ("b", b"ACGA" * 20), ("c", b""), ("d", b"N" * 60))
    plan = make_plan(sequences, circular=["b", "c", "d"])
    assert plan.sequences.topology == ["linear", "circular", "circular", "circular"]
    assert list(plan.origins) == [1]  # there is nothing to predict in the others
    assert make_plan(sequences, circular=["all"]).sequences.topology == ["circular"] * 4
    with pytest.raises(InputError, match=r"memory: has no sequence 'e' to be circular; it has 'a', 'b'"):
        make_plan(sequences, circular=["a", "e"])
    digests = {make_plan(sequences, circular=names).input_digest() for names in ([], ["a"], ["b"], ["all"])}
    assert len(digests) == 4


def test_reads_are_not_circular() -> None:
    reads = Memory(("r", b"ACGT"))
    reads.hard_clipped = 0  # type: ignore[attr-defined]
    with pytest.raises(ConfigError, match="reads are not circular"):
        make_plan(reads, circular=["all"])


def genbank(path: Path, bases: bytes, topology: str) -> Path:
    letters = bases.decode().lower()
    rows = "".join(f"{i + 1:>9} {letters[i : i + 60]}\n" for i in range(0, len(letters), 60))
    path.write_text(
        f"LOCUS       P1         {len(letters):>11} bp    DNA     {topology:<8} BCT 01-JAN-2000\n"
        f"DEFINITION  .\nACCESSION   P1\nVERSION     P1.1\nORIGIN\n{rows}//\n"
    )
    return path


def test_genbank_says_it_itself(tmp_path: Path, model: Genoformer) -> None:
    bases = random_bases(300)
    cut = {"window": 120, "overlap": 30}
    for topology in ("circular", "linear"):
        sequences = open_sequences(genbank(tmp_path / "p.gb", bases, topology))
        assert make_plan(sequences).sequences.topology == [topology]
        values = joined(list(predict(sequences, model, **cut)), sequences)["P1.1"]
        assert np.array_equal(values, run(bases, model, **cut)) == (topology == "circular")


def test_tokens_keep_it(tmp_path: Path, model: Genoformer) -> None:
    records = Memory(("a", random_bases(300)), ("b", random_bases(200)))
    plan = make_plan(records, window=120, overlap=30, circular=["b"])
    tokens = TokenSequences(tokenize_to_store(plan, records, tmp_path / "t.h5"))
    again = make_plan(tokens, window=tokens.window, overlap=tokens.overlap)
    assert again.sequences.topology == ["linear", "circular"]
    assert np.array_equal(again.owned, plan.owned)
    assert again.origins == plan.origins
    with open_store(tmp_path / "t.h5") as store:
        assert store.sequences.topology == ["linear", "circular"]


Stored = Callable[..., Path]


@pytest.fixture
def to_store(tmp_path: Path) -> Stored:
    """Predict two sequences, those of ``circular`` as circles."""
    path = write_fasta(tmp_path / "x.fa", {"a": random_bases(400), "b": random_bases(90, 1)})
    save_model(tmp_path / "model", tiny_model(), tiny_config(), name="tiny")
    model = load_model(tmp_path / "model")

    def stored(
        name: str, circular: list[str], *, report: Callable[[int], None] = lambda _: None, **options: Any
    ) -> Path:
        sequences = open_sequences(path)
        plan = make_plan(sequences, window=120, overlap=30, circular=circular)
        predict_to_store(plan, sequences, model, Output(tmp_path / name, **options), settings=Settings(), report=report)
        return tmp_path / name

    return stored


def assert_same_store(one: Path, two: Path) -> None:
    with open_store(one) as first, open_store(two) as second:
        assert first.sequences.topology == second.sequences.topology
        for name in ("a", "b"):
            np.testing.assert_array_equal(first[name], second[name])


def test_an_interrupted_run_goes_on_only_with_the_same_circles(tmp_path: Path, to_store: Stored) -> None:
    class StopError(Exception):
        pass

    def stop(bases: int) -> None:
        if bases:
            raise StopError

    with pytest.raises(StopError):
        to_store("x.h5", ["a"], report=stop)
    assert part_path(tmp_path / "x.h5").exists()
    with pytest.raises(ConfigError, match=r"sequence 1 has topology .circular., in the input .linear."):
        to_store("x.h5", [], resume=True)
    assert_same_store(to_store("x.h5", ["a"], resume=True), to_store("whole.h5", ["a"]))


def test_shards_of_circles_are_the_whole(tmp_path: Path, to_store: Stored) -> None:
    whole = to_store("whole.h5", ["all"])
    shards = [to_store(f"{k}.h5", ["all"], shard=Shard(k, 3)) for k in (1, 2, 3)]
    merge_shards(shards, tmp_path / "merged.h5")
    assert_same_store(tmp_path / "merged.h5", whole)
    with pytest.raises(GenoformerError):
        merge_shards([*shards[:2], to_store("other.h5", ["a"], shard=Shard(3, 3))], tmp_path / "no.h5")
