"""Genes rewritten: their proteins stay, what lies outside stays, and either strand is rewritten alike."""

from __future__ import annotations

import numpy as np
import pytest
from Bio.Seq import Seq
from hypothesis import given, settings
from hypothesis import strategies as st
from tiny import made_up_genome

from genoformer.genes.codons import codon_index, genetic_code
from genoformer.tokens import N, decode, encode, reverse_complement
from genoformer.training.augmentation import opposite
from genoformer.training.examples import Genome, draw_batch
from genoformer.training.recoding import Recoding, draw_preferences, exchange_synonyms, recode_to_4, usage_table

Places = list[tuple[int, int, int]]


def genome(seed: int, genes: int = 6, codons: int = 30) -> tuple[np.ndarray, np.ndarray, Places]:
    bases, places = made_up_genome(genes, seed=seed, codons=codons)
    frames = np.zeros(len(bases), dtype=np.uint8)
    for start, end, strand in places:
        codon = np.resize(np.array([1, 2, 3], dtype=np.uint8), end - start)
        frames[start:end] = codon if strand == 1 else codon[::-1] + 3
    return encode(bases), frames, places


def codons_of(codes: np.ndarray, places: Places) -> list[list[bytes]]:
    genes = [codes[a:b] if strand == 1 else reverse_complement(codes[a:b]) for a, b, strand in places]
    return [[decode(gene[i : i + 3]) for i in range(0, len(gene), 3)] for gene in genes]


def translated(codes: np.ndarray, places: Places, table: int) -> list[str]:
    return [str(Seq(b"".join(gene).decode()).translate(table=table)) for gene in codons_of(codes, places)]


@settings(max_examples=30)
@given(st.integers(0, 10_000))
def test_genes_rewritten_to_table_4_have_the_same_proteins(seed: int) -> None:
    before, frames, places = genome(seed)
    kept = before.copy()
    after = recode_to_4(before, frames)
    proteins = translated(before, places, 11)
    assert all(protein.endswith("*") and "*" not in protein[:-1] for protein in proteins)
    assert translated(after, places, 4) == proteins
    assert np.array_equal(after[frames == 0], before[frames == 0])
    assert np.array_equal(before, kept)
    if any("W" in protein for protein in proteins):
        assert translated(after, places, 11) != proteins
    turned, turned_frames = opposite(before, frames)
    assert np.array_equal(reverse_complement(recode_to_4(turned, turned_frames)), after)


@settings(max_examples=30)
@given(st.integers(0, 10_000), st.sampled_from([1, 4, 11]))
def test_genes_with_another_codon_usage_have_the_same_proteins(seed: int, table: int) -> None:
    before, frames, places = genome(seed)
    kept = before.copy()
    after = exchange_synonyms(before, frames, genetic_code(table), np.random.default_rng(seed))
    assert translated(after, places, table) == translated(before, places, table)
    assert np.array_equal(after[frames == 0], before[frames == 0])
    assert np.array_equal(before, kept)
    for one, two in zip(codons_of(before, places), codons_of(after, places), strict=True):
        assert one[0] == two[0]  # a start keeps its letters
        assert one[-1] == two[-1] or (table == 4 and one[-1] == b"TGA")  # and so does a stop
    assert not np.array_equal(after, before)


def test_codons_are_as_often_as_was_drawn_for_each_strand() -> None:
    code = genetic_code(11)
    codes, frames, places = genome(1, genes=400, codons=300)
    after = exchange_synonyms(codes, frames, code, np.random.default_rng(5))
    again = np.random.default_rng(5)
    preferences, share = draw_preferences(again), again.uniform(0.3, 1.0)
    for strand, odds in zip((1, -1), preferences, strict=True):
        mine = [place for place in places if place[2] == strand]
        new, old = np.zeros((2, 64))
        for counts, text in ((new, after), (old, codes)):
            for gene in codons_of(text, mine):
                np.add.at(counts, [codon_index(codon.decode()) for codon in gene[1:-1]], 1)
        expected = (1 - share) * old + share * old @ usage_table(code, odds)
        assert np.abs(new - expected).max() < 6 * np.sqrt(expected.max())


def test_usages_differ_and_keep_to_the_genetic_code() -> None:
    code = genetic_code(4)
    drawn = [draw_preferences(np.random.default_rng(seed)) for seed in range(20)]
    tables = [usage_table(code, preferences[0]) for preferences in drawn]
    for table in tables:
        assert table.sum(axis=1) == pytest.approx(np.ones(64))
        one, other = np.nonzero(table)
        assert (code.letters[one] == code.letters[other]).all()
        assert (one[code.stops[one]] == other[code.stops[one]]).all()
    gc = [table[codon_index("CTG"), [codon_index("CTC"), codon_index("CTG")]].sum() for table in tables]
    assert max(gc) > 0.7
    assert min(gc) < 0.3


def test_strands_differ_by_g_and_t() -> None:
    forward, backward = draw_preferences(np.random.default_rng(0))
    skew = (forward - backward).reshape(16, 4)
    assert skew == pytest.approx(np.tile(skew[:1, :], (16, 1)))  # A, C, G, T
    assert skew[0, 0] == pytest.approx(skew[0, 1])
    assert skew[0, 2] == pytest.approx(-skew[0, 0])
    assert skew[0, 3] == pytest.approx(-skew[0, 0])
    assert skew[0, 0] != 0


def test_codons_with_unknown_bases_stay() -> None:
    before, frames, places = genome(2)
    before = before.copy()
    before[::5] = N
    after = exchange_synonyms(before, frames, genetic_code(11), np.random.default_rng(0))
    changed = 0
    for one, two in zip(codons_of(before, places), codons_of(after, places), strict=True):
        for codon, new in zip(one, two, strict=True):
            assert codon == new or b"N" not in codon
            changed += codon != new
    assert changed


@pytest.mark.parametrize("length", [0, 1, 2, 3, 4])
def test_the_shortest_windows_are_rewritten(length: int) -> None:
    codes, frames = encode(b"TGGT")[:length], np.array([1, 2, 3, 1], dtype=np.uint8)[:length]
    assert decode(recode_to_4(codes, frames)) == (b"TGAT" if length >= 3 else b"TGGT")[:length]
    same = exchange_synonyms(codes, frames, genetic_code(11), np.random.default_rng(0))
    assert np.array_equal(same, codes)  # the first codon there is stays


def windows(recoding: Recoding, count: int, code: int = 11) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    codes, frames, _ = genome(3, genes=20)
    made_up = Genome("g", codes, frames, frames, np.array([0, len(codes)]), code, 1.0, "", "")
    batch = draw_batch(
        [made_up], window=90, count=count, length_power=1.0, rng=np.random.default_rng(0), recoding=recoding
    )
    return batch.codes, batch.labels["coding-frame"], batch.genetic_codes


def test_a_share_of_windows_of_code_11_is_recoded() -> None:
    codes, labels, tables = windows(Recoding(to_4=0.3), 2000)
    assert (tables == 4).mean() == pytest.approx(0.3, abs=0.04)
    for row, label, table in zip(codes, labels, tables, strict=True):
        in_frame = (label[:-2] == 1) & (label[1:-1] == 2) & (label[2:] == 3)
        found = {decode(row[i : i + 3]) for i in np.flatnonzero(in_frame)}
        assert b"TGG" not in found or table == 11
    assert (windows(Recoding(), 500)[2] == 11).all()
    assert (windows(Recoding(to_4=1.0), 50, code=4)[2] == 4).all()


def test_a_share_of_windows_has_another_codon_usage() -> None:
    def gone(recoding: Recoding) -> float:
        """Return the share of windows that is nowhere in the genome, on neither strand."""
        codes, _, _ = genome(3, genes=20)
        text = decode(codes) + b"-" + decode(reverse_complement(codes))
        return float(np.mean([decode(row) not in text for row in windows(recoding, 400)[0]]))

    assert gone(Recoding()) == 0.0
    assert gone(Recoding(synonyms=0.5)) == pytest.approx(0.5, abs=0.1)
    assert gone(Recoding(synonyms=1.0)) > 0.9
