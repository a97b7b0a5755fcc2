"""Stores and other programs' genes against annotations: perfect, shifted, empty, and what must be refused."""

from __future__ import annotations

import json
import math
import re
from pathlib import Path

import numpy as np
import pytest
from evaluation_samples import GENES, LENGTHS, gff3, one_hot, true_frames, write_store

from genoformer.annotation import CodingSequence, coding_frame_labels
from genoformer.errors import FormatError, InputError
from genoformer.evaluate.evaluation import Evaluation, evaluate
from genoformer.evaluate.predictions import as_coding_sequence, painted_frames
from genoformer.evaluate.summary import summarize
from genoformer.genes import Gene
from genoformer.tracks import IGNORED, Track


def perfect(folder: Path) -> Path:
    return write_store(folder / "p.h5", {name: one_hot(frames) for name, frames in true_frames().items()})


def noisy(seed: int = 0, lengths: dict[str, int] = LENGTHS) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(seed)
    return {
        name: (0.45 * one_hot(frames) + 0.55 * rng.dirichlet(np.full(7, 0.2), size=len(frames))).astype(np.float16)
        for name, frames in true_frames(lengths=lengths).items()
    }


def test_perfect_is_one(tmp_path: Path) -> None:
    found = evaluate(perfect(tmp_path), gff3(tmp_path / "t.gff"))
    for result in found.levels.values():
        numbers = result.numbers()
        assert numbers[:5] == (1, 1, 1, 1, 1)
        assert numbers[5:] == (0, 0)
        for index in range(len(result.level.classes)):
            assert result.histogram.average_precision(index) == result.histogram.auroc(index) == 1
    assert (found.bases, found.missing) == (2300, 0)
    assert found.levels["frame"].tally.bases == 2300 - 1  # where the ribosome slips, a base is read twice
    assert found.levels["strand"].tally.bases == 2300
    assert found.genes is None
    assert any("--fasta" in note for note in found.notes)


def test_a_shifted_frame_is_wrong_but_on_its_strand(tmp_path: Path) -> None:
    turn = np.array([0, 2, 3, 1, 5, 6, 4, *[0] * 249])
    turn[IGNORED] = 0
    values = {name: one_hot(turn[frames].astype(np.uint8)) for name, frames in true_frames().items()}
    found = evaluate(write_store(tmp_path / "p.h5", values), gff3(tmp_path / "t.gff"))
    assert found.levels["frame"].numbers()[:3] == (0, 0, 0)
    assert found.levels["strand"].numbers()[:2] == (1, pytest.approx(1, abs=1e-2))  # the slipping base is none here


def test_numbers_are_those_of_a_loop(tmp_path: Path) -> None:
    values = noisy()
    found = evaluate(write_store(tmp_path / "p.h5", values), gff3(tmp_path / "t.gff"))
    strand_of = np.array([0, 1, 1, 1, 2, 2, 2])
    matrices = {"frame": np.zeros((7, 7)), "strand": np.zeros((3, 3))}
    for name, rows in values.items():
        labels = coding_frame_labels(LENGTHS[name], [g for g in GENES if g.sequence == name])
        for row, frame, strand in zip(rows.astype(np.float32), labels.frames, labels.strands, strict=True):
            if frame != IGNORED:
                matrices["frame"][frame, row.argmax()] += 1
            if strand != IGNORED:
                matrices["strand"][strand, [row[strand_of == k].sum() for k in range(3)].index(
                    max(row[strand_of == k].sum() for k in range(3)))] += 1  # fmt: skip
    for name, matrix in matrices.items():
        assert np.array_equal(found.levels[name].tally.matrix, matrix)
    assert 0.5 < found.levels["frame"].numbers().f1 < 1


def test_sequences_add_up_and_pieces_do_not_show(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path, truth = write_store(tmp_path / "p.h5", noisy()), gff3(tmp_path / "t.gff")
    whole = evaluate(path, truth)
    monkeypatch.setattr("genoformer.evaluate.predictions.PIECE", 70)
    monkeypatch.setattr("genoformer.evaluate.evaluation.UNIT", 33)
    cut = evaluate(path, truth)
    for name, result in whole.levels.items():
        assert np.array_equal(result.tally.matrix, cut.levels[name].tally.matrix)
        assert np.array_equal(result.histogram.counts, cut.levels[name].histogram.counts)
        np.testing.assert_allclose(result.numbers(), cut.levels[name].numbers(), rtol=1e-5)
    assert [one.name for one in whole.sequences] == ["a", "b"]


def test_bases_without_a_prediction_do_not_count(tmp_path: Path) -> None:
    values = {name: one_hot(frames) for name, frames in true_frames().items()}
    values["a"][:600] = np.nan
    found = evaluate(write_store(tmp_path / "p.h5", values), gff3(tmp_path / "t.gff"))
    assert found.missing == 600
    assert found.levels["strand"].tally.bases == 1700
    assert found.levels["frame"].numbers().f1 == 1
    assert "600 bases without a prediction" in found.notes[-1]


def test_genes_of_another_program(tmp_path: Path) -> None:
    truth = gff3(tmp_path / "t.gff")
    found = evaluate(gff3(tmp_path / "p.gff"), truth)
    assert found.genes.score(exact=True) == (1, 1, 1)
    assert found.levels["frame"].numbers()[:4] == (1, 1, 1, 1)
    assert math.isnan(found.levels["frame"].numbers().calibration_error)
    assert found.levels["frame"].histogram is None
    fewer = evaluate(gff3(tmp_path / "p.gff", GENES[:1]), truth)
    assert fewer.genes.counts(exact=False) == (1, 1, 4)
    assert fewer.levels["strand"].numbers().recall == pytest.approx(300 / (300 + 600 + 200 + 150))
    assert fewer.levels["strand"].numbers().precision == 1


@pytest.mark.parametrize("lengths", [LENGTHS, {}])
def test_no_genes_called_is_a_recall_of_zero(tmp_path: Path, lengths: dict) -> None:
    found = evaluate(gff3(tmp_path / "p.gff", [], lengths), gff3(tmp_path / "t.gff"))
    numbers = found.levels["strand"].numbers()
    assert math.isnan(numbers.precision)
    assert numbers[1:4] == (0, 0, 0)
    assert found.genes.score(exact=False)[1:] == (0, 0)
    assert any("0 genes" in note for note in found.notes)


def test_lengths_from_a_fasta(tmp_path: Path) -> None:
    truth, called = gff3(tmp_path / "t.gff", lengths=None), gff3(tmp_path / "p.gff", lengths=None)
    with pytest.raises(InputError, match=r"p\.gff: no annotation states the length of sequence 'a'.*--fasta"):
        evaluate(called, truth)
    fasta = tmp_path / "x.fa"
    fasta.write_text(f">a\n{'A' * 2000}\n>b\n{'C' * 300}\n>c\nGG\n")
    found = evaluate(called, truth, fasta=fasta)
    assert found.bases == 2300
    assert any("1 sequences are not in" in note for note in found.notes)


def test_overlapping_calls_count_for_the_longest() -> None:
    long, short = CodingSequence("s", 1, ((0, 30),)), CodingSequence("s", -1, ((20, 41),))
    frames = painted_frames(50, [long, short])
    assert np.array_equal(frames, painted_frames(50, [short, long]))
    assert frames[:30].tolist() == [1, 2, 3] * 10
    assert frames[30:41].tolist() == ([6, 5, 4] * 7)[10:]
    assert frames[41:].tolist() == [0] * 9


@pytest.mark.parametrize(("strand", "parts"), [(1, ((90, 100), (0, 20))), (-1, ((0, 20), (90, 100)))])
def test_called_genes_over_the_origin(strand: int, parts: tuple) -> None:
    gene = Gene(90, 120, strand, False, False, "ATG", 1.0, 1.0, 1.0)
    assert as_coding_sequence(gene, "s", 100).parts == parts


def test_genes_of_a_store(tmp_path: Path) -> None:
    bases = np.array(list("C" * 2000))
    bases[99:102], bases[396:399] = list("ATG"), list("TAA")
    bases[500:503], bases[1097:1100] = list("TTA"), list("CAT")
    fasta = tmp_path / "x.fa"
    fasta.write_text(f">a\n{''.join(bases)}\n")
    genes = GENES[:2]
    values = {"a": 0.99 * one_hot(true_frames(genes, {"a": 2000})["a"]) + 0.01 / 7}
    truth = gff3(tmp_path / "t.gff", genes, {"a": 2000})
    path = write_store(tmp_path / "p.h5", values)
    found = evaluate(path, truth, fasta=fasta)
    assert found.genes.counts(exact=True) == (2, 2, 2)
    assert found.levels["frame"].histogram is not None
    assert evaluate(path, truth, fasta=fasta, call_genes=False).genes is None


MOTIF = Track("motif", "class", ("none", "one", "two"), "probability", (0, 2, 1))


def test_any_class_track_against_bed(tmp_path: Path) -> None:
    labels = np.zeros(100, dtype=np.uint8)
    labels[10:20], labels[50:55] = 1, 2
    path = write_store(tmp_path / "p.h5", {"a": one_hot(labels, 3)}, MOTIF)
    bed = tmp_path / "t.bed"
    bed.write_text("a\t10\t20\tone\na\t50\t56\ttwo\n")
    found = evaluate(path, bed)
    assert list(found.levels) == ["class"]
    assert found.levels["class"].tally.matrix.tolist() == [[84, 0, 0], [0, 10, 0], [1, 0, 5]]


BED = """# reads
track name=reads
a	99	399	gene one	0	+
a	500	1100	a2	0	-
a	1090	1200	.	0	.
b	0	150	cut	0	+
b	140	160	both	0	-
"""


def test_strands_of_bed(tmp_path: Path) -> None:
    """A store and the genes of another program against stretches with a strand; there are no genes to count."""
    bed = tmp_path / "t.bed"
    bed.write_text(BED)
    truth = {name: np.zeros(length, dtype=int) for name, length in LENGTHS.items()}
    truth["a"][99:399], truth["a"][500:1100], truth["a"][1100:1200] = 1, 2, 255
    truth["b"][:150], truth["b"][150:160], truth["b"][140:150] = 1, 2, 255
    values = noisy()
    matrix = np.zeros((3, 3), dtype=int)
    for name, frames in values.items():
        wide = frames.astype(np.float32)
        strands = np.stack([wide[:, 0], wide[:, 1:4].sum(axis=1), wide[:, 4:].sum(axis=1)]).argmax(axis=0)
        for true, mine in zip(truth[name], strands, strict=True):
            if true != 255:
                matrix[true, mine] += 1
    found = evaluate(write_store(tmp_path / "p.h5", values), bed)
    assert list(found.levels) == ["strand"]
    assert found.levels["strand"].tally.matrix.tolist() == matrix.tolist()
    assert found.genes is None
    assert json.dumps(summarize(found, intervals=True))
    other = evaluate(gff3(tmp_path / "p.gff", GENES[:2]), bed)
    assert other.levels["strand"].numbers()[:2] == (1, pytest.approx(900 / (900 + 140 + 10)))
    assert other.genes is None


@pytest.mark.parametrize(
    ("line", "words", "kind"),
    [
        ("a\t1\t9\tx\t0\n", "column 6, got no such column", FormatError),
        ("a\t1\t9\tx\t0\t1\n", "line 1: expected a strand, + or - or ., in column 6, got '1'", FormatError),
        ("a\t1\t2001\tx\t0\t+\n", "a:2-2001 does not lie within the 2000 bases", InputError),
        ("c\t1\t9\tx\t0\t+\n", "none of these is in", InputError),
        ("a\t1\t9\tx\t0\t.\n", "nothing to score", InputError),
    ],
)
def test_strands_that_do_not_fit(tmp_path: Path, line: str, words: str, kind: type[Exception]) -> None:
    (tmp_path / "t.bed").write_text(line)
    for prediction in (perfect(tmp_path), gff3(tmp_path / "p.gff")):
        with pytest.raises(kind, match=re.escape(words)):
            evaluate(prediction, tmp_path / "t.bed")


def test_summary_is_json_and_says_the_same(tmp_path: Path) -> None:
    found = evaluate(gff3(tmp_path / "p.gff", GENES[:2]), gff3(tmp_path / "t.gff"))
    summary = json.loads(json.dumps(summarize(found, intervals=True), allow_nan=False))
    assert summary["levels"]["strand"]["numbers"]["recall"] == found.levels["strand"].numbers().recall
    assert summary["levels"]["strand"]["numbers"]["calibration_error"] is None
    assert summary["genes"]["three-prime"]["right"] == 2
    low, high = summary["genes"]["three-prime"]["intervals"]["recall"]
    assert low <= summary["genes"]["three-prime"]["recall"] <= high
    assert [one["name"] for one in summary["sequences"]] == ["a", "b"]
    low, high = summary["levels"]["strand"]["intervals"]["recall"]
    assert low <= summary["levels"]["strand"]["numbers"]["recall"] <= high


def refused(folder: Path, prediction: Path, genes: list, lengths: dict | None) -> Evaluation:
    return evaluate(prediction, gff3(folder / "t.gff", genes, lengths))


@pytest.mark.parametrize(
    ("genes", "lengths", "words"),
    [
        ([], {"z": 5}, r"t\.gff: names 'z', and none of these is in .*'a', 'b'"),
        ([], {"a": 2000}, r"t\.gff: has no coding sequence \(CDS\)"),
        ([CodingSequence("a", 1, ((0, 30),), pseudo=True)], {"a": 2000}, "1 pseudo"),
        ([], {"a": 1999}, "sequence 'a' has 1999 bases, but 2000 in"),
        ([CodingSequence("a", 1, ((1998, 2004),), name="x")], None, r"t\.gff: sequence 'a': CDS 'cds0' .* 2000 bases"),
    ],
)
@pytest.mark.parametrize("kind", ["store", "genes"])
def test_truth_that_does_not_fit(tmp_path: Path, genes: list, lengths: dict, words: str, kind: str) -> None:
    if kind == "genes" and lengths == {"z": 5}:
        words = "and none of these is in the truth"
    prediction = perfect(tmp_path) if kind == "store" else gff3(tmp_path / "p.gff")
    if kind == "genes" and lengths == {"a": 1999}:
        words = "bases"
    with pytest.raises(InputError, match=words):
        refused(tmp_path, prediction, genes, lengths)


def test_files_of_other_kinds(tmp_path: Path) -> None:
    store, truth, empty = perfect(tmp_path), gff3(tmp_path / "t.gff"), tmp_path / "empty"
    empty.write_text("")
    fasta = tmp_path / "x.fa"
    fasta.write_text(">a\nACGT\n")
    for prediction, true, error, words in (
        (store, empty, InputError, "empty: is empty; expected an annotation"),
        (empty, truth, InputError, "empty: is empty; expected a store"),
        (store, store, FormatError, "is HDF5, not an annotation"),
        (fasta, truth, FormatError, "is FASTA, not an annotation"),
        (tmp_path / "no", truth, InputError, "no such file"),
    ):
        with pytest.raises(error, match=words):
            evaluate(prediction, true)
    with pytest.raises(InputError, match="no track 'x'; it has coding-frame"):
        evaluate(store, truth, track="x")


BOTH = Track("both", "signal", ("+", "-"), "reads", (1, 0))


def test_signals_against_bedgraphs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(0)
    true = rng.normal(100, 1, (700, 2)).astype(np.float16).astype(np.float32)
    values = (true + rng.normal(0.3, 0.5, true.shape)).astype(np.float16)
    values[:50] = np.nan
    files = {}
    for channel, column in zip(BOTH.channels, true.T, strict=True):
        files[channel] = tmp_path / f"{'plus' if channel == '+' else 'minus'}.bedgraph"
        files[channel].write_text("".join(f"a\t{i}\t{i + 1}\t{v!r}\n" for i, v in enumerate(column.tolist()) if i % 7))
    path = write_store(tmp_path / "p.h5", {"a": values}, BOTH)
    monkeypatch.setattr("genoformer.evaluate.predictions.PIECE", 64)
    found = evaluate(path, files)
    used = np.array([i for i in range(50, 700) if i % 7])
    for index, channel in enumerate(BOTH.channels):
        x, y = values[used, index].astype(np.float64), true[used, index].astype(np.float64)
        numbers = found.signals[channel].numbers()
        assert numbers.bases == len(used)
        assert numbers.pearson == pytest.approx(np.corrcoef(x, y)[0, 1], abs=1e-9)
        assert numbers.mean_squared_error == pytest.approx(((x - y) ** 2).mean(), abs=1e-9)
        assert numbers.r2 == pytest.approx(1 - ((x - y) ** 2).sum() / ((y - y.mean()) ** 2).sum(), abs=1e-9)
        assert numbers.bias == pytest.approx((x - y).mean(), abs=1e-9)
    assert found.missing == 50
    assert found.sequences[0].numbers["-"] == found.signals["-"].numbers()
    summary = json.loads(json.dumps(summarize(found, intervals=True), allow_nan=False))
    assert summary["signals"]["+"]["pearson"] == found.signals["+"].numbers().pearson


def test_signals_without_a_base_in_common_and_constants(tmp_path: Path) -> None:
    track = Track("cover", "signal", ("x",), "reads", (0,))
    values = np.full((100, 1), 2.0)
    values[:50] = np.nan
    path = write_store(tmp_path / "p.h5", {"a": values}, track)
    bed = tmp_path / "x.bedgraph"
    bed.write_text("a\t0\t50\t1\n")
    with pytest.raises(InputError, match="not one base has both"):
        evaluate(path, bed)
    bed.write_text("a\t50\t100\t3\n")
    numbers = evaluate(path, bed).signals["x"].numbers()
    assert (numbers.mean_squared_error, numbers.bias, numbers.bases) == (1, -1, 50)
    assert math.isnan(numbers.pearson)
    assert math.isnan(numbers.r2)
