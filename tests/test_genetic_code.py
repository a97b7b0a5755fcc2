"""The genetic code is told by the TGA and TGG codons inside genes, and by nothing else."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from tiny import Memory, made_up_genome, random_bases, tiny_model

from genoformer import genetic_code as module
from genoformer import sampling
from genoformer.genetic_code import choose_genetic_code, count_inner, detect_genetic_code
from genoformer.model.genoformer import Genoformer
from genoformer.plan import make_plan
from genoformer.tokens import PAD, decode, encode, reverse_complement
from genoformer.tracks import CODING_FRAME


def naive_count(codes: np.ndarray, frames: np.ndarray, margin: int) -> tuple[int, int, int]:
    def in_frame(start: int) -> bool:
        return 0 <= start <= len(codes) - 3 and frames[start : start + 3].tolist() == [1, 2, 3]

    starts = [i for i in range(len(codes)) if in_frame(i) and in_frame(i - margin) and in_frame(i + margin)]
    found = [codes[i : i + 3].tolist() for i in starts]
    return len(starts), found.count([3, 2, 0]), found.count([3, 2, 2])


@given(st.data(), st.sampled_from([3, 6]), st.integers(0, 60))
def test_codons_inside_genes_are_those_that_a_loop_finds(data: st.DataObject, margin: int, length: int) -> None:
    codes = np.array(data.draw(st.lists(st.sampled_from([3, 2, 0]), min_size=length, max_size=length)), dtype=np.uint8)
    frames = np.resize([1, 2, 3], length).astype(np.uint8)
    for position in data.draw(st.sets(st.integers(0, max(length - 1, 0)), max_size=3)):
        frames[position : position + 1] = data.draw(st.integers(0, 6))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "_MARGIN", margin)
        assert count_inner(codes, frames) == naive_count(codes, frames, margin)


def test_stops_at_the_ends_of_genes_do_not_count() -> None:
    gene = encode(b"ATG" + b"GCA" * 99 + b"TGA")
    frames = np.concatenate([np.zeros(30), np.resize([1, 2, 3], len(gene)), np.zeros(30)])
    codes = np.concatenate([encode(b"A" * 30), gene, encode(b"A" * 30)])
    assert count_inner(codes, frames) == (101 - 20, 0, 0)
    codes[30 + 150 : 30 + 153] = encode(b"TGA")
    codes[30 + 153 : 30 + 156] = encode(b"TGG")
    assert count_inner(codes, frames) == (81, 1, 1)
    assert count_inner(codes[:60], frames[:60]) == (0, 0, 0)
    assert count_inner(codes[:0], frames[:0]) == (0, 0, 0)


class Oracle:
    """Stands in for a model: it knows where the genes are."""

    def __init__(self, bases: bytes, places: list[tuple[int, int, int]]) -> None:
        self.bases = encode(bases)
        frames = np.zeros(len(bases), dtype=np.int64)
        for start, end, strand in places:
            codon = np.resize([1, 2, 3], end - start)
            frames[start:end] = codon if strand == 1 else codon[::-1] + 3
        self.frames = frames

    def __call__(self, _: object, codes: torch.Tensor, **options: object) -> dict[str, torch.Tensor]:
        assert options["genetic_code"] == 11
        frames = np.zeros(codes.shape, dtype=np.int64)
        for row, padded in zip(frames, codes.numpy(), strict=True):
            length = int((padded != PAD).sum())
            start = self.bases.tobytes().find(padded[:length].tobytes())
            assert start >= 0
            row[:length] = self.frames[start : start + length]
        return {CODING_FRAME.name: torch.nn.functional.one_hot(torch.from_numpy(frames), 7).float()}


@pytest.mark.parametrize("flip", [False, True])
@pytest.mark.parametrize(("recoded", "expected"), [(0.0, 11), (0.0045, 11), (0.02, 4)])
def test_codes_are_told_apart_on_both_strands(
    monkeypatch: pytest.MonkeyPatch, flip: bool, recoded: float, expected: int
) -> None:
    bases, places = made_up_genome(60, codons=120)
    array, rng = bytearray(bases), np.random.default_rng(0)
    for start, end, strand in places:
        for codon in range(start + 3, end - 3, 3):
            if rng.random() < recoded:
                array[codon : codon + 3] = b"TGA" if strand == 1 else b"TCA"
    bases = bytes(array)
    if flip:
        places = [(len(bases) - end, len(bases) - start, -strand) for start, end, strand in places]
        bases = bytes(b"ACGT"[code] for code in reverse_complement(encode(bases)))
    monkeypatch.setattr(module, "predict_values", Oracle(bases, places))
    found, why = detect_genetic_code([encode(bases)], None)  # type: ignore[arg-type]
    assert found == expected
    assert "codons TGA and TGG inside genes" in why


@pytest.mark.parametrize(("recoded", "expected"), [(b"GCA", 11), (b"TGA", 4)])
def test_contigs_too_short_to_tell_alone_tell_together(
    monkeypatch: pytest.MonkeyPatch, recoded: bytes, expected: int
) -> None:
    bases, places = made_up_genome(80, codons=150)
    array = bytearray(bases)
    for start, _, strand in places:
        array[start + 150 : start + 153] = recoded if strand == 1 else reverse_complement_of(recoded)
    bases = bytes(array)
    contigs = Memory(*((f"c{i}", bases[i : i + 400 + i % 3]) for i in range(0, len(bases) - 402, 200)))
    monkeypatch.setattr(module, "predict_values", Oracle(bases, places))
    model = tiny_model()
    found, why = choose_genetic_code("auto", make_plan(contigs), contigs, model)
    assert (found, "codons TGA and TGG inside genes" in why) == (expected, True)


def reverse_complement_of(bases: bytes) -> bytes:
    return decode(reverse_complement(encode(bases)))


def test_many_or_long_sequences_are_not_all_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sampling, "MOST_RECORDS", 7)
    many = Memory(*((f"s{n}", random_bases(n)) for n in range(100, 120)))
    assert seen_by(monkeypatch, many, tiny_model()) == list(range(119, 112, -1))
    monkeypatch.setattr(sampling, "SAMPLE_BASES", 300)
    monkeypatch.setattr(module, "SAMPLE_BASES", 300)
    assert seen_by(monkeypatch, Memory(*((f"s{n}", random_bases(299)) for n in range(9))), tiny_model()) == [299] * 5


def test_too_few_codons_give_the_default(monkeypatch: pytest.MonkeyPatch) -> None:
    bases, places = made_up_genome(3)
    monkeypatch.setattr(module, "predict_values", Oracle(bases, places))
    found, why = detect_genetic_code([encode(bases)], None)  # type: ignore[arg-type]
    assert found == 11
    assert why.startswith("the default: too few clear genes ")
    assert detect_genetic_code([], None)[0] == 11  # type: ignore[arg-type]


class Unasked:
    def __getattr__(self, name: str) -> object:
        raise AssertionError(f"asked for {name}")


@pytest.mark.parametrize("choice", ["11", "4", "1"])
def test_an_explicit_choice_is_taken_as_it_is(choice: str) -> None:
    unasked = Unasked()
    assert choose_genetic_code(choice, unasked, unasked, unasked) == (int(choice), "as asked")  # type: ignore[arg-type]


def test_a_model_without_genes_has_the_default() -> None:
    other = SimpleNamespace(heads={})
    assert choose_genetic_code("auto", None, None, other) == (11, "the default")  # type: ignore[arg-type]


def seen_by(monkeypatch: pytest.MonkeyPatch, sequences: Memory, model: Genoformer) -> list[int]:
    lengths: list[int] = []

    def watch(_: object, codes: torch.Tensor, **__: object) -> dict[str, torch.Tensor]:
        lengths.extend((codes != PAD).sum(dim=1).tolist())
        return {CODING_FRAME.name: torch.zeros(*codes.shape, 7)}

    monkeypatch.setattr(module, "predict_values", watch)
    assert choose_genetic_code("auto", make_plan(sequences), sequences, model)[0] == 11
    return lengths


def test_samples_are_the_longest_sequences_and_no_more_than_the_model_sees(monkeypatch: pytest.MonkeyPatch) -> None:
    many = Memory(("u", b"N" * 9000), *((f"s{n}", random_bases(n)) for n in (50, 700, 90, 800, 600, 10)))
    assert seen_by(monkeypatch, many, tiny_model()) == [800, 700, 600, 90, 50, 10]
    learned = tiny_model(attention=("linformer",), linformer_projection="learned", linformer_tokens=100)
    assert seen_by(monkeypatch, Memory(("x", random_bases(2000))), learned) == [300] * 4
    assert seen_by(monkeypatch, Memory(("x", random_bases(70_000))), tiny_model()) == [50_000] * 4


def test_a_whole_choice_runs() -> None:
    sequences = Memory(("x", random_bases(400)))
    number, why = choose_genetic_code("auto", make_plan(sequences), sequences, tiny_model())
    assert number == 11
    assert "codons" in why
