"""Contigs and reads: their truth is that of the genome, cut, turned and carried through errors."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from common import annotation_text, fasta_text, read_manifest
from recipe_samples import random_annotation, write_folder
from simulate import AnnotatedGenome, Cut, Design, bed_lines, clip, contigs, cuts, reads, simulate

from genoformer.annotation import coding_frame_labels
from genoformer.errors import ConfigError, InputError
from genoformer.evaluate.evaluation import evaluate
from genoformer.evaluate.truth import StrandTruth
from genoformer.formats.gff3 import read_gff3
from genoformer.formats.sequences import open_sequences
from genoformer.tokens import encode, reverse_complement
from genoformer.training.augmentation import MIRRORED_FRAMES, MIRRORED_STRANDS

LENGTHS = {"a": 700, "b:1-5": 150}


def genome(seed: int = 0) -> AnnotatedGenome:
    rng = np.random.default_rng(seed)
    codes = {name: rng.integers(0, 4, size).astype(np.uint8) for name, size in LENGTHS.items()}
    return AnnotatedGenome(codes, random_annotation(LENGTHS, seed=seed))


@pytest.mark.parametrize("seed", range(8))
def test_annotation_reads_back_the_same(tmp_path: Path, seed: int) -> None:
    annotation = random_annotation(LENGTHS, seed=seed)
    (tmp_path / "x.gff").write_text("".join(annotation_text(annotation)))
    back = read_gff3(tmp_path / "x.gff")
    assert (back.lengths, back.topology) == (annotation.lengths, annotation.topology)
    for name, size in LENGTHS.items():
        found, given = back.coding_sequences[name], annotation.coding_sequences[name]
        kept = [(c.strand, c.parts, c.phase, c.pseudo, c.partial, c.genetic_code) for c in found]
        assert kept == [(c.strand, c.parts, c.phase, c.pseudo, c.partial, c.genetic_code) for c in given]
        labels = [coding_frame_labels(size, cdss).frames.tolist() for cdss in (found, given)]
        assert labels[0] == labels[1]


@pytest.mark.parametrize("is_reverse", [False, True])
@pytest.mark.parametrize("seed", range(6))
def test_labels_of_a_cut_are_those_of_the_genome(seed: int, is_reverse: bool) -> None:
    whole = genome(seed)
    rng = np.random.default_rng(seed)
    spans = [(0, 700), (0, 1), (699, 700), (0, 350), *((x, x + y) for x, y in rng.integers(1, 350, (40, 2)))]
    known = whole.annotation.coding_sequences["a"]
    truth = coding_frame_labels(700, known)
    for start, end in spans:
        cut = Cut("a", int(start), int(end), is_reverse)
        pieces = [piece for cds in known for piece in clip(cds, cut, "x")]
        found = coding_frame_labels(cut.end - cut.start, pieces)
        frames, strands = truth.frames[start:end], truth.strands[start:end]
        if is_reverse:
            frames, strands = MIRRORED_FRAMES[frames[::-1]], MIRRORED_STRANDS[strands[::-1]]
        assert found.frames.tolist() == frames.tolist()
        assert found.strands.tolist() == strands.tolist()
        assert all(piece.partial or piece.pseudo or piece.length % 3 == piece.phase for piece in pieces)


def test_what_a_cut_keeps_whole_stays_whole() -> None:
    whole = genome(3)
    for cds in (cds for cds in whole.annotation.coding_sequences["a"] if cds.name[0] != "o"):  # not over the origin
        low, high = min(a for a, _ in cds.parts), max(b for _, b in cds.parts)
        (piece,) = clip(cds, Cut("a", low, high, False), "a")
        moved = tuple((a + low, b + low) for a, b in piece.parts)
        assert (moved, piece.phase, piece.partial) == (cds.parts, cds.phase, cds.partial)


def test_contigs_are_stretches_of_both_strands() -> None:
    whole = genome()
    turned = set()
    for name, description, codes, pieces in contigs(whole, 90, 60, np.random.default_rng(0)):
        source, span, sign = description.rsplit(" ", 2)
        start, end = map(int, span.split("-"))
        there = whole.codes[source][start - 1 : end]
        assert (reverse_complement(there) if sign == "-" else there).tolist() == codes.tolist()
        assert {piece.sequence for piece in pieces} <= {name}
        turned.add((source, sign))
    assert len(turned) == 4


def test_places_are_drawn_alike_and_first_and_last_too() -> None:
    drawn = cuts({"a": 12, "short": 9, "b": 10}, 10, 4000, np.random.default_rng(1))
    counts = {(cut.sequence, cut.start): 0 for cut in drawn}
    for cut in drawn:
        counts[cut.sequence, cut.start] += 1
    assert set(counts) == {("a", 0), ("a", 1), ("a", 2), ("b", 0)}
    assert min(counts.values()) > 850
    with pytest.raises(InputError, match="the longest has 12"):
        cuts({"a": 12}, 13, 1, np.random.default_rng(0))


def test_reads_without_errors_have_the_labels_of_their_stretch() -> None:
    whole = genome(5)
    design = Design(read_length=120, bases=3000)
    for _, description, codes, strands in reads(whole, design, 0.0, np.random.default_rng(2)):
        source, span, sign = description.rsplit(" ", 2)
        start, end = (int(x) for x in span.split("-"))
        truth = coding_frame_labels(LENGTHS[source], whole.annotation.coding_sequences[source]).strands[start - 1 : end]
        expected = truth if sign == "+" else MIRRORED_STRANDS[truth[::-1]]
        assert expected[:120].tolist() == strands.tolist()
        assert len(codes) == 120


def test_files_are_kept_and_fit_evaluate(tmp_path: Path) -> None:
    """Genes called as the truth has them score 1, for contigs and for reads; a second run changes nothing."""
    row = read_manifest(write_folder(tmp_path / "g"), "validation", only=["two"])[0]
    whole = AnnotatedGenome.read(row.fasta, row.annotation)
    design = Design((300, 1000), (0.05,), 500, 5000, seed=3)
    paths = simulate(whole, design, tmp_path / "d", name="two")
    assert [path.name for path in paths] == ["contigs-300.fa", "contigs-1000.fa", "reads-0.05.fa"]
    before = {path.name: path.read_bytes() for path in (tmp_path / "d").iterdir()}
    for path in paths[:2]:
        found = evaluate(path.with_suffix(".gff"), path.with_suffix(".gff"), fasta=path)
        assert found.levels["strand"].numbers().f1 == 1
        assert found.genes.score(exact=True).f1 == 1
    lengths = open_sequences(paths[2]).lengths()
    assert list(lengths.values()) == [500] * 10
    truth = StrandTruth(paths[2].with_suffix(".bed"), lengths, sequences="reads")
    drawn = {name: strands for name, _, _, strands in reads(whole, design, 0.05, _rng(3, "two", 0.05))}
    assert all(truth.labels(name)["strand"].tolist() == strands.tolist() for name, strands in drawn.items())
    simulate(whole, design, tmp_path / "d", name="two")
    paths[0].unlink()
    simulate(whole, design, tmp_path / "d", name="two")
    assert {path.name: path.read_bytes() for path in (tmp_path / "d").iterdir()} == before
    with pytest.raises(ConfigError, match="other settings"):
        simulate(whole, design._replace(seed=4), tmp_path / "d", name="two")


def test_what_is_too_long_is_left_out_and_said(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert simulate(genome(), Design((100, 701), (), bases=500), tmp_path) == [tmp_path / "contigs-100.fa"]
    assert "contigs-701.fa is left out: no sequence has 701 bases: the longest has 700" in capsys.readouterr().err
    assert sorted(path.name for path in tmp_path.iterdir()) == ["contigs-100.fa", "contigs-100.gff", "simulation.json"]
    with pytest.raises(InputError, match="too short for any"):
        simulate(genome(), Design((701,), (0.01,)), tmp_path / "b")


def _rng(seed: int, name: str, what: float) -> np.random.Generator:
    from simulate import _generator

    return _generator(seed, name, what)


def test_bed_of_strands() -> None:
    strands = np.array([1, 1, 0, 255, 2, 2, 1], dtype=np.uint8)
    columns = [line.split("\t") for line in bed_lines("x", strands).splitlines()]
    assert [(c[0], c[1], c[2], c[5]) for c in columns] == [
        ("x", "0", "2", "+"), ("x", "3", "4", "."), ("x", "4", "6", "-"), ("x", "6", "7", "+"),
    ]  # fmt: skip
    assert bed_lines("x", np.zeros(0, dtype=np.uint8)) == bed_lines("x", np.zeros(5, dtype=np.uint8)) == ""


def test_fasta_of_any_length() -> None:
    text = b"".join(fasta_text([("a", "", b"ACGT" * 30), ("b", "c d", b"")], width=60))
    assert text == b">a\n" + b"ACGT" * 15 + b"\n" + b"ACGT" * 15 + b"\n>b c d\n"
    assert encode(b"acgt").tolist() == [0, 1, 2, 3]
