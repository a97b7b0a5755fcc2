"""Genes from probabilities: against plain twins, and the laws of strands, rotation, batches and proteins."""

from __future__ import annotations

import itertools
import warnings

import numpy as np
import pytest
from Bio.Data import CodonTable
from Bio.Seq import Seq
from gene_twins import (
    Genome,
    chains,
    complement,
    gene_bases,
    genome,
    mirrored,
    naive_candidates,
    naive_path,
    path_worth,
    probabilities,
    rotated,
    spacer,
)
from hypothesis import given, settings
from hypothesis import strategies as st

from genoformer.errors import ConfigError
from genoformer.genes import Called, CallSettings, Rules, Scoring, call_genes, call_many, genetic_code
from genoformer.genes.calls import UNROLL
from genoformer.genes.candidates import Candidates, both_strands, find_candidates, lay_out, log_odds
from genoformer.genes.chain import best_chain, posteriors
from genoformer.genes.codons import codon_index, codon_text, codons, translate
from genoformer.genes.frameshifts import call_shifted
from genoformer.genes.paths import PathCosts, best_path, marks_of
from genoformer.genes.signals import learn
from genoformer.tokens import encode

PLAIN = CallSettings()
EVERYTHING = Scoring(margin=-1e6, starts=1000, least=30, least_open=18, rare=1e7)


def places(genes):
    return [(gene.start, gene.end, gene.strand) for gene in genes]


def call(made: Genome, **options):
    return call_genes(encode(made.bases), made.values, settings=CallSettings(**options.pop("settings", {})), **options)


def wrapped(found, length):
    return sorted((start % length, start % length + end - start, strand) for start, end, strand in found)


@pytest.mark.parametrize("number", sorted(CodonTable.unambiguous_dna_by_id))
def test_every_codon_of_every_table(number):
    table, code = CodonTable.unambiguous_dna_by_id[number], genetic_code(number)
    for index in range(64):
        codon = codon_text(index)
        assert codon_index(codon) == index
        assert code.stops[index] == (codon in table.stop_codons)
        assert code.starts[index] == (codon in {*table.start_codons, "ATG", "GTG", "TTG"} - {*table.stop_codons})
        assert chr(code.letters[index]) == ("*" if code.stops[index] else table.forward_table[codon])
    assert not code.stops[64]
    assert not code.starts[64]


def test_a_table_that_is_none():
    with pytest.raises(ConfigError, match="genetic code 7 is not one of NCBI's"):
        genetic_code(7)


def test_translation_is_biopythons():
    rng = np.random.default_rng(0)
    bases = bytes(rng.choice(list(b"ACGTN"), size=3001, p=[0.24, 0.24, 0.24, 0.24, 0.04]).tolist())
    whole = bases[: 3 * (len(bases) // 3)].decode()
    split = [str(Seq(whole[i : i + 3]).translate(table=11)) if "N" not in whole[i : i + 3] else "X"
             for i in range(0, len(whole), 3)]  # fmt: skip
    assert translate(encode(bases), genetic_code(11), first_is_start=False).decode() == "".join(split)
    assert len(codons(encode(b"AC"))) == 0


@settings(max_examples=30)
@given(st.integers(0, 2**32 - 1), st.integers(0, 400), st.sampled_from([4, 11]))
def test_candidates_are_those_of_the_twin(seed, length, number):
    rng = np.random.default_rng(seed)
    bases = bytes(rng.choice(list(b"ACGTN"), size=length, p=[0.3, 0.2, 0.19, 0.3, 0.01]).tolist())
    values = rng.dirichlet(np.full(7, 0.3), size=length).astype(np.float16)
    before = encode(b"ATGAAACCCGGGTTT" * 5)  # other stretches change nothing
    layout = lay_out([before, encode(bases), before])
    odds = np.zeros((len(layout.codes), 6), dtype=np.float32)
    own = log_odds(values, EVERYTHING)
    odds[layout.starts[1] : layout.ends[1]] = own
    strands = both_strands(layout, odds)
    found = find_candidates(strands, code=genetic_code(number), scoring=EVERYTHING)
    found = found.take((found.stretch == 1) & (found.score > -1e5))
    first = layout.starts[1]
    got = {
        (int(a - first), int(b - first), int(s), bool(x), bool(y)): score
        for a, b, s, x, y, score in zip(
            found.start, found.end, found.strand, found.open_start, found.open_end, found.score, strict=True
        )
    }
    expected = naive_candidates(bases, own.astype(np.float64), EVERYTHING, number)
    assert set(got) == set(expected)
    assert len(got) == len(found.start)
    for key, score in expected.items():
        assert got[key] == pytest.approx(score, abs=1e-4)  # log-odds are float32


CANDIDATE = st.tuples(st.integers(0, 300), st.integers(20, 200), st.sampled_from([1, -1]), st.integers(-80, 160))


@settings(max_examples=60)
@given(st.lists(CANDIDATE, max_size=8, unique_by=lambda c: (c[0], c[1], c[2])))
def test_the_best_chain_and_its_posteriors_are_those_of_all_chains(given_candidates):
    rules, temperature = Rules(), 20.0
    spots = sorted(((a, a + n, s, w / 4) for a, n, s, w in given_candidates), key=lambda c: (c[1], c[0], c[2]))
    start, end, strand, score = (np.array(column) for column in zip(*spots, strict=True)) if spots else np.zeros((4, 0))
    zero = np.zeros(len(spots), dtype=bool)
    found = Candidates(np.zeros(len(spots), np.int64), start.astype(np.int64), end.astype(np.int64),
                       strand.astype(np.int8), zero, zero, zero.astype(np.uint8), score.astype(float))  # fmt: skip
    every = [(chosen, worth + sum(spots[i][3] for i in chosen)) for chosen, worth in chains(spots, rules)]
    best = best_chain(found, rules).tolist()
    value = next(total for chosen, total in every if list(chosen) == best)
    assert value == pytest.approx(max(total for _, total in every), abs=1e-9)
    weights = {chosen: np.exp(total / temperature) for chosen, total in every}
    stops = list(zip(found.stop.tolist(), found.strand.tolist(), strict=True))
    expected = [
        sum(w for chosen, w in weights.items() for j in chosen if stops[j] == stop) / sum(weights.values())
        for stop in stops
    ]
    got = posteriors(found, rules, temperature=temperature)
    np.testing.assert_allclose(got, np.minimum(expected, 1.0), atol=1e-9)


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("code", [11, 4])
def test_genes_are_found_where_they_are(seed, code):
    made = genome(seed, code=code)
    assert places(call(made, settings={"genetic_code": code})) == made.genes


@pytest.mark.parametrize("seed", range(5))
def test_the_other_strand_has_the_same_genes(seed):
    made = genome(seed, sure=0.7)
    there = call(made)
    back = call(mirrored(made))
    length = len(made.bases)
    assert sorted((length - b, length - a, -s) for a, b, s in places(back)) == places(there)
    assert sorted(gene.score for gene in back) == pytest.approx(sorted(gene.score for gene in there), abs=1e-3)
    assert sorted(gene.posterior for gene in back) == pytest.approx(sorted(gene.posterior for gene in there), abs=1e-4)


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("share", [0.1, 0.33, 0.5, 0.77])
def test_a_circle_has_the_same_genes_wherever_it_begins(seed, share):
    made = genome(seed, genes=5)
    length = len(made.bases)
    turned = rotated(made, int(share * length))
    assert wrapped(places(call(made, circular=True)), length) == made.genes
    found = call(turned, circular=True)
    assert sorted(places(found)) == turned.genes
    assert all(gene.partial == "00" for gene in found)


def test_a_circle_cut_within_a_gene_gives_it_once_and_a_line_gives_its_ends():
    made = genome(3, genes=3, codons=(150, 200))
    a, b, _ = made.genes[1]
    turned = rotated(made, (a + b) // 2)
    assert len(call(turned, circular=True)) == 3
    linear = call(turned)
    assert len(linear) == 4
    assert linear[0].partial == "10"
    assert linear[-1].partial == "01"


def test_a_circle_without_any_stop_has_no_gene_longer_than_itself():
    bases = b"GCC" * 100
    made = Genome(bases, probabilities(300, [(0, 300, 1)]), [])
    assert call(made, circular=True) == []
    assert places(call(made)) == [(0, 300, 1)]
    assert UNROLL > 300


@pytest.mark.parametrize("frameshifts", [False, True])
def test_sequences_together_give_what_each_gives_alone(frameshifts):
    options = CallSettings(frameshifts=frameshifts)
    made = [genome(seed, genes=seed % 4) for seed in range(12)]
    sequences = [Called(encode(m.bases), m.values, is_circular=k % 3 == 0) for k, m in enumerate(made)]
    sequences += [Called(encode(b""), np.empty((0, 7), np.float16), True), Called(encode(b"AC"), made[0].values[:2])]
    together = list(call_many(sequences, settings=options))
    alone = [call_genes(s.codes, s.values, circular=s.is_circular, settings=options) for s in sequences]
    assert [places(genes) for genes in together] == [places(genes) for genes in alone]
    for a, b in zip(itertools.chain(*together), itertools.chain(*alone), strict=True):
        assert (a.score, a.posterior) == pytest.approx((b.score, b.posterior), abs=1e-4)


@pytest.mark.parametrize("code", [11, 4])
def test_proteins_are_what_biopython_translates(code):
    made = genome(7, code=code, genes=10)
    codes, table = encode(made.bases), genetic_code(code)
    for gene in call(made, settings={"genetic_code": code}):
        text = made.bases[gene.start : gene.end].decode()
        text = text if gene.strand > 0 else complement(text)
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            expected = str(Seq(text).translate(table=code, cds=True))
        assert gene.protein(codes, table).decode() == expected + "*"
        assert gene.start_type == text[:3]


@pytest.mark.parametrize("frameshifts", [False, True])
@pytest.mark.parametrize("bases", [b"", b"A", b"ATGTAA", b"N" * 500, b"ACGT" * 25, b"TAA" * 100])
@pytest.mark.parametrize("circular", [False, True])
def test_where_there_are_no_genes_none_are_called(bases, circular, frameshifts):
    values = probabilities(len(bases), [])
    assert call(Genome(bases, values, []), circular=circular, settings={"frameshifts": frameshifts}) == []
    nothing = np.full((len(bases), 7), np.nan, dtype=np.float16)
    assert call(Genome(bases, nothing, []), circular=circular, settings={"frameshifts": frameshifts}) == []


def test_a_gap_cuts_a_gene_in_two():
    rng = np.random.default_rng(1)
    orf = gene_bases(rng, 200)
    left, right = spacer(rng), spacer(rng)
    a = len(left)
    bases = (left + orf[:300] + "N" * 60 + orf[300:] + right).encode()
    values = probabilities(len(bases), [(a, a + 300, 1), (a + 360, a + 660, 1)])
    values[a + 300 : a + 360] = np.nan
    first, second = call(Genome(bases, values, []))
    assert (first.start, first.end, first.partial) == (a, a + 300, "01")
    assert (second.start, second.end, second.partial) == (a + 360, a + 660, "10")
    assert second.start_type == "Edge"


@pytest.mark.parametrize("cut", range(90, 100))
def test_a_piece_of_a_gene_on_a_short_contig_is_in_frame(cut):
    orf = gene_bases(np.random.default_rng(5), 150)
    made = Genome(orf.encode(), probabilities(len(orf), [(0, len(orf), 1)]), [])
    piece = Genome(made.bases[cut : cut + 103], made.values[cut : cut + 103], [])
    (gene,) = call(piece)
    assert (gene.start, gene.partial, gene.start_type) == (-cut % 3, "11", "Edge")
    assert gene.end - gene.start == 3 * ((103 - gene.start) // 3)
    assert b"*" not in gene.protein(encode(piece.bases), genetic_code(11))


@pytest.mark.parametrize("strand", [1, -1])
@pytest.mark.parametrize("end", ["first", "last"])
def test_a_gene_cut_off_to_a_few_codons_is_called_but_no_whole_one_so_short(strand, end):
    """A whole gene of 100 bases is unlikely; what is left of one at an edge may be of a long one."""
    rng = np.random.default_rng(4)
    gene = gene_bases(rng, 100)
    piece = gene[-99:] if end == "first" else gene[:99]  # its stop, or its start, is there
    around = spacer(rng) * 10
    bases, start = (piece + around, 0) if end == "first" else (around + piece, len(around))
    if strand < 0:
        bases, start = complement(bases), len(bases) - start - 99
    values = probabilities(len(bases), [(start, start + 99, strand)])
    assert places(call_genes(bases, values)) == [(start, start + 99, strand)]
    whole = around + gene_bases(rng, 33) + around
    values = probabilities(len(whole), [(len(around), len(around) + 99, 1)])
    assert not call_genes(whole, values)


def test_signals_tell_the_start_that_a_motif_marks():
    """Of two starts that the probabilities do not tell apart, the one behind the motif that other genes have wins."""
    rng = np.random.default_rng(2)
    text, genes = "", []
    for k in range(300):
        motif = "AGGAGG" + "".join(rng.choice(list("ACT"), size=7))
        orf = gene_bases(rng, 120)
        inner = orf[:33] + "ATG" + orf[36:] if k < 10 else orf
        text += spacer(rng) + motif
        genes.append((len(text), len(text) + len(inner), 1))
        text += inner
    made = Genome(text.encode(), probabilities(len(text), genes), genes)
    for start, *_ in genes[:10]:
        made.values[start : start + 33, 0] = 0.5
        for j in range(3):
            made.values[start + j : start + 33 : 3, 1 + j] = 0.5
    signals = _learned(made)
    assert signals is not None
    assert signals.motifs[_motif("AGGAG")] > 2
    assert signals.kinds[codon_index("ATG")] > signals.kinds[codon_index("GTG")]
    found = places(call(made))
    assert found[:10] == genes[:10]
    assert found == genes


def _motif(text):
    value = 0
    for letter in text:
        value = 4 * value + "ACGT".index(letter)
    return value


def _learned(made):
    layout = lay_out([encode(made.bases)])
    odds = np.zeros((len(layout.codes), 6), dtype=np.float32)
    odds[layout.starts[0] : layout.ends[0]] = log_odds(made.values, Scoring())
    strands = both_strands(layout, odds)
    found = find_candidates(strands, code=genetic_code(11), scoring=Scoring())
    return learn(strands, found.take(best_chain(found, Rules())))


def test_a_few_genes_teach_nothing():
    assert _learned(genome(0)) is None


@settings(max_examples=25)
@given(st.integers(0, 2**32 - 1), st.integers(1, 150), st.integers(0, 40))
def test_the_best_path_is_the_twins_however_it_is_cut(seed, length, block):
    rng = np.random.default_rng(seed)
    codes = rng.integers(0, 5, size=length).astype(np.uint8)
    worth = np.log(rng.dirichlet(np.full(7, 0.2), size=length) + 1e-3).astype(np.float32)
    first = np.unique(np.append(rng.integers(0, length, size=3), 0))
    marks = marks_of(codes, first, genetic_code(11))
    path = best_path(worth, marks, PathCosts(), block=block)
    assert path_worth(path, worth, marks, PathCosts()) == pytest.approx(naive_path(worth, marks, PathCosts()), abs=1e-2)


@pytest.mark.parametrize("strand", [1, -1])
@pytest.mark.parametrize(
    "errors", [(), ((200, "+"),), ((200, "-"),), ((150, "+"), (300, "-")), ((150, "-"), (250, "-"))]
)
def test_a_gene_is_read_through_insertions_and_deletions(strand, errors):
    rng = np.random.default_rng(4)
    left, orf, right = spacer(rng), gene_bases(rng, 200), spacer(rng)
    text = left + orf + right
    values = probabilities(len(text), [(len(left), len(left) + len(orf), 1)], sure=0.98)
    for place, kind in sorted(errors, reverse=True):
        at = len(left) + place
        text = text[:at] + "C" + text[at:] if kind == "+" else text[:at] + text[at + 1 :]
        values = np.insert(values, at, values[at - 1], axis=0) if kind == "+" else np.delete(values, at, axis=0)
    made = Genome(text.encode(), values, [])
    made = made if strand > 0 else mirrored(made)
    (gene,) = call(made, settings={"frameshifts": True})
    assert [shift for _, shift in gene.shifts] == [1 if kind == "+" else -1 for _, kind in errors]
    assert gene.partial == "00"
    protein = gene.protein(encode(made.bases), genetic_code(11)).decode()
    true = str(Seq(orf).translate(table=11))
    true = "M" + true[1:]
    assert len(protein) == len(true)
    assert sum(a != b for a, b in zip(protein, true, strict=True)) <= len(errors)


def test_genes_that_overlap_are_no_frameshift():
    """ATGA: the stop of one gene within the start of the next."""
    rng = np.random.default_rng(9)
    first, second, left = gene_bases(rng, 100)[:-4] + "ATGA", gene_bases(rng, 100), spacer(rng)
    second = "ATGA" + second[4:]
    text = left + first + second[4:] + spacer(rng)
    a, b = len(left), len(left) + len(first) - 4
    values = probabilities(len(text), [(a, a + len(first), 1)], sure=0.98)
    values[b:] = probabilities(len(text), [(b, b + len(second), 1)], sure=0.98)[b:]
    genes = call(Genome(text.encode(), values, []), settings={"frameshifts": True})
    assert all(gene.shifts == () for gene in genes)
    assert places(genes) == [(a, b + 4, 1), (b, b + len(second), 1)]


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 10_000), st.integers(1, 600), st.floats(0.5, 8.0))
def test_whatever_the_path_parts_of_genes_hold_bases_and_whole_codons(seed, length, noise):
    """Changes of frame close to each other, and at the very ends of genes and of sequences."""
    rng = np.random.default_rng(seed)
    codes = rng.integers(0, 4, size=length).astype(np.uint8)
    values = rng.normal(0, noise, size=(length, 7))
    frame = np.resize(np.array([1, 2, 3]), length) if seed % 2 else np.resize(np.array([6, 5, 4]), length)
    values[np.arange(length), frame] += 4.0
    values = np.exp(values - values.max(axis=1, keepdims=True))
    values /= values.sum(axis=1, keepdims=True)
    (genes,) = call_shifted([(codes, values)], genetic_code(11), Scoring(least=6, least_open=6))
    for gene in genes:
        assert all(0 <= start < end <= length for start, end in gene.parts)
        assert len(gene.bases(codes)) % 3 == 0
        assert gene.start == min(start for start, _ in gene.parts)
        assert gene.end == max(end for _, end in gene.parts)


@pytest.mark.parametrize("shape", [(3, 3), (2, 7), (3,), (3, 7, 1)])
def test_values_of_another_shape(shape: tuple[int, ...]) -> None:
    with pytest.raises(ValueError, match=r"expected values of 3 bases in 7 classes, got shape"):
        call_genes("ACG", np.zeros(shape, dtype=np.float16))
