"""Examples: labels belong to their bases, on both strands, and a window is drawn the same way every time."""

from __future__ import annotations

import gzip
import itertools
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest
from Bio.Seq import Seq
from tiny import SENSE, made_up_genome, random_bases, write_fasta, write_gff

from genoformer.errors import InputError
from genoformer.tokens import PAD, decode, encode, reverse_complement
from genoformer.tracks import CODING_FRAME, IGNORED
from genoformer.training.augmentation import ErrorModel
from genoformer.training.config import Sample
from genoformer.training.examples import Genome, draw_batch, load_genome, load_split
from genoformer.training.recoding import Recoding

MIRROR = np.array([*CODING_FRAME.reverse_complement, *range(7, 256)])


def save(folder: Path, name: str, genes: int, *, seed: int = 0, genetic_code: int = 11, **sample: object) -> Sample:
    bases, places = made_up_genome(genes, seed=seed)
    write_fasta(folder / f"{name}.fa", {"chr": bases})
    write_gff(folder / f"{name}.gff", {"chr": places}, genetic_code=genetic_code)
    return Sample(f"{name}.fa", f"{name}.gff", **sample)  # type: ignore[arg-type]


def load(folder: Path, records: dict[str, bytes], genes: dict[str, list[tuple[int, int, int]]]) -> Genome:
    write_fasta(folder / "x.fa", records)
    write_gff(folder / "x.gff", genes)
    return load_genome(Sample("x.fa", "x.gff"), root=folder)


def test_labels_are_those_of_the_annotation(tmp_path: Path) -> None:
    genome = load_genome(save(tmp_path, "g", 12, genetic_code=4, weight=2.5), root=tmp_path)
    bases, places = made_up_genome(12)
    frames, strands = np.zeros(len(bases), dtype=int), np.zeros(len(bases), dtype=int)
    for start, end, strand in places:
        for position in range(start, end):
            frames[position] = 1 + (position - start) % 3 if strand == 1 else 4 + (end - 1 - position) % 3
            strands[position] = 1 if strand == 1 else 2
    assert decode(genome.codes) == bases
    assert np.array_equal(genome.frames, frames)
    assert np.array_equal(genome.strands, strands)
    assert (genome.genetic_code, genome.weight, genome.name) == (4, 2.5, "g.fa")
    assert genome.offsets.tolist() == [0, len(bases)]
    assert {strand for _, _, strand in places} == {1, -1}


def test_a_sequence_without_a_word_about_it_is_ignored(tmp_path: Path) -> None:
    records = {"a": random_bases(60), "b": b"", "c": random_bases(30), "d": random_bases(9)}
    genome = load(tmp_path, records, {"a": [(0, 30, 1)], "c": [(0, 9, -1)]})
    assert genome.offsets.tolist() == [0, 60, 60, 90, 99]
    assert genome.frames[:36].tolist() == [1, 2, 3] * 10 + [0] * 6
    assert genome.frames[60:72].tolist() == [6, 5, 4] * 3 + [0] * 3
    assert (genome.frames[90:] == IGNORED).all()
    assert (genome.strands[90:] == IGNORED).all()
    assert "2 sequences without annotation" in genome.dropped


def test_what_an_annotation_names_in_vain_is_counted(tmp_path: Path) -> None:
    genes = [(0, 30, 1)]
    genome = load(tmp_path, {"a": random_bases(60)}, {"a": genes, "x": genes * 2, "y": genes, "z": genes, "w": genes})
    assert "5 CDS of 4 annotated sequences that are not there dropped (x, y, z ...)" in genome.dropped
    assert "dropped" not in load(tmp_path, {"a": random_bases(60)}, {"a": genes}).dropped


def test_an_annotation_of_something_else_is_refused(tmp_path: Path) -> None:
    """Fault 40."""
    with pytest.raises(InputError, match=r"x\.gff: names chr1, and none of these is in .*x\.fa"):
        load(tmp_path, {"1": random_bases(60)}, {"chr1": [(0, 30, 1)]})
    with pytest.raises(InputError, match="does not lie within the 20 bases"):
        load(tmp_path, {"1": random_bases(20)}, {"1": [(0, 30, 1)]})
    with pytest.raises(InputError, match=r"none\.fa: no such file"):
        load_genome(Sample("none.fa", "x.gff"), root=tmp_path)
    with pytest.raises(InputError, match=r"none\.gff: no such file"):
        load_genome(Sample("x.fa", "none.gff"), root=tmp_path)


def test_a_genbank_file_is_both(tmp_path: Path) -> None:
    from Bio.SeqFeature import SeqFeature, SimpleLocation
    from Bio.SeqIO import write
    from Bio.SeqRecord import SeqRecord

    bases, places = made_up_genome(5)
    features = [
        SeqFeature(SimpleLocation(a, b, strand), type="CDS", qualifiers={"locus_tag": [f"g{a}"], "transl_table": ["4"]})
        for a, b, strand in places
    ]
    record = SeqRecord(
        Seq(bases.decode()), id="chr", name="chr", annotations={"molecule_type": "DNA"}, features=features
    )
    write([record], tmp_path / "x.gb", "genbank")
    both = load_genome(Sample("x.gb", "x.gb"), root=tmp_path)
    write_fasta(tmp_path / "x.fa", {"chr": bases})
    write_gff(tmp_path / "x.gff", {"chr": places}, genetic_code=4)
    expected = load_genome(Sample("x.fa", "x.gff"), root=tmp_path)
    for field in ("codes", "frames", "strands"):
        assert np.array_equal(getattr(both, field), getattr(expected, field))
    assert both.genetic_code == 4
    assert both.digest == expected.digest
    (tmp_path / "x.gb.gz").write_bytes(gzip.compress((tmp_path / "x.gb").read_bytes()))
    mixed = load_genome(Sample("x.fa", "x.gb.gz"), root=tmp_path)
    assert mixed.digest == expected.digest


def test_splits_keep_their_order_and_names_differ_by_path(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    samples = []
    for folder, split in (("b", "train"), ("a", "validation"), ("a", "train")):
        save(tmp_path / folder, "genome", 2)
        samples.append(Sample(f"{folder}/genome.fa", f"{folder}/genome.gff", split=split))
    assert [genome.name for genome in load_split(samples, "train", root=tmp_path)] == ["b/genome.fa", "a/genome.fa"]
    assert len(load_split(samples, "validation", root=tmp_path)) == 1


class Drawn(NamedTuple):
    codes: np.ndarray
    labels: np.ndarray
    genetic_codes: np.ndarray


def draw(genomes: list[Genome], seed: int = 0, **options: object) -> Drawn:
    settings = {"window": 50, "count": 8, "length_power": 1.0, **options}
    batch = draw_batch(genomes, rng=np.random.default_rng(seed), **settings)  # type: ignore[arg-type]
    assert list(batch.labels) == [CODING_FRAME.name]
    return Drawn(batch.codes, batch.labels[CODING_FRAME.name], batch.genetic_codes)


@pytest.fixture
def genomes(tmp_path: Path) -> list[Genome]:
    small = load(tmp_path, {"a": random_bases(30), "b": random_bases(7, 1)}, {"a": [(3, 21, 1)], "b": [(0, 6, -1)]})
    return [small, load_genome(save(tmp_path, "g", 8, seed=3, genetic_code=4), root=tmp_path)]


def places_of(genome: Genome, row: np.ndarray) -> list[tuple[int, int, bool]]:
    """Find where in a genome a row of codes comes from: start, end, turned."""
    real = row[row != PAD]
    found = []
    for turned in (False, True):
        wanted = reverse_complement(real) if turned else real
        for first, last in itertools.pairwise(genome.offsets.tolist()):
            for start in range(first, last - len(real) + 1):
                if np.array_equal(genome.codes[start : start + len(real)], wanted):
                    found.append((start, start + len(real), turned))
    return found


def test_windows_are_stretches_of_one_sequence_with_their_labels(genomes: list[Genome]) -> None:
    turned_seen, codes_seen = set(), set()
    for seed in range(4):
        batch = draw(genomes, seed, length_power=0.0)
        assert batch.codes.shape == batch.labels.shape == (8, 50)
        for codes, labels, table in zip(*batch, strict=True):
            genome = genomes[0] if table == 11 else genomes[1]
            size = int((codes != PAD).sum())
            assert size in ((30, 7) if table == 11 else (50,))
            assert (codes[size:] == PAD).all()
            assert (labels[size:] == IGNORED).all()
            candidates = [
                MIRROR[genome.frames[start:end][::-1]] if turned else genome.frames[start:end]
                for start, end, turned in places_of(genome, codes)
            ]
            assert any(np.array_equal(labels[:size], candidate) for candidate in candidates)
            turned_seen |= {turned for *_, turned in places_of(genome, codes)}
            codes_seen.add(int(table))
    assert turned_seen == {True, False}
    assert codes_seen == {11, 4}


def test_windows_of_one_genome_are_of_one_organism(genomes: list[Genome]) -> None:
    """Places differ; genome, genetic code and rate of errors do not."""
    owners, codes, clean = set(), set(), set()
    for seed in range(20):
        batch = draw(genomes, seed, one_genome=True, length_power=0.0)
        found = {number for row in batch.codes for number in (0, 1) if places_of(genomes[number], row)}
        assert len(found) == 1
        owners |= found
        eleven = replace(genomes[1], genetic_code=11)
        batch = draw([eleven], seed, one_genome=True, recoding=Recoding(to_4=0.5))
        assert len(set(batch.genetic_codes.tolist())) == 1
        codes.add(int(batch.genetic_codes[0]))
        batch = draw(genomes[1:], seed, one_genome=True, errors=ErrorModel((0.0, 0.3)))
        is_clean = {bool(places_of(genomes[1], row)) for row in batch.codes}
        assert len(is_clean) == 1
        clean |= is_clean
    assert (owners, codes, clean) == ({0, 1}, {11, 4}, {False, True})


def test_genes_of_one_genome_have_one_codon_usage() -> None:
    codons = np.random.default_rng(0).choice(SENSE, 30_000)
    codes, frames = encode("".join(codons).encode()), np.resize([1, 2, 3], 90_000).astype(np.uint8)

    def thirds(seed: int, organism: int) -> np.ndarray:
        generators = np.random.default_rng(seed), np.random.default_rng(organism)
        found, _ = Recoding(synonyms=1.0).rewrite(codes, frames, 11, generators[0], organism=generators[1])
        return np.bincount(found[2::3], minlength=4) / len(codons)

    assert np.abs(thirds(0, 5) - thirds(1, 5)).max() < 0.01
    assert np.abs(thirds(0, 5) - thirds(0, 6)).max() > 0.03


def test_the_same_seed_draws_the_same_windows(genomes: list[Genome]) -> None:
    for one, two in zip(
        draw(genomes, 5, recoding=Recoding(to_4=0.5, synonyms=0.5)),
        draw(genomes, 5, recoding=Recoding(to_4=0.5, synonyms=0.5)),
        strict=True,
    ):
        assert np.array_equal(one, two)
    assert not np.array_equal(draw(genomes, 5).codes, draw(genomes, 6).codes)


def test_weights_and_lengths_decide_what_is_drawn(tmp_path: Path) -> None:
    sizes = {"one": (2, 3.0, 11), "two": (20, 0.5, 4)}
    pair = [
        load_genome(save(tmp_path, n, genes, genetic_code=table, weight=w), root=tmp_path)
        for n, (genes, w, table) in sizes.items()
    ]
    for power in (0.0, 0.5, 1.0):
        tables = draw(pair, count=4000, window=5, length_power=power).genetic_codes
        shares = np.array([weight * genome.length**power for genome, weight in zip(pair, (3.0, 0.5), strict=True)])
        assert (tables == 4).mean() == pytest.approx(shares[1] / shares.sum(), abs=0.03)


def test_every_base_can_be_drawn(genomes: list[Genome]) -> None:
    """The first and the last base too."""
    rng_codes = draw([genomes[1]], count=600, window=200).codes
    starts = {place[0] for row in rng_codes for place in places_of_fast(genomes[1], row)}
    assert 0 in starts
    assert genomes[1].length - 200 in starts


def places_of_fast(genome: Genome, row: np.ndarray) -> list[tuple[int]]:
    text = decode(genome.codes)
    found = [text.find(decode(row)), text.find(decode(reverse_complement(row)))]
    return [(place,) for place in found if place >= 0]
