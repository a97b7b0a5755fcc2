"""A made-up VCF of every kind of allele at every kind of place: all is in the output, scored or with a reason."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pysam
import pytest
from tiny import random_bases, tiny_model

from genoformer.formats.sequences import open_sequences
from genoformer.formats.vcf import Variant
from genoformer.model.checkpoint import bundled_models, load_model
from genoformer.model.genoformer import Genoformer
from genoformer.tokens import decode, encode, reverse_complement
from genoformer.variants.annotate import annotate_vcf
from genoformer.variants.score import score_variants
from genoformer.variants.scoring import METHODS, Scoring

ROOT = Path(__file__).resolve().parents[2]
LAMBDA = ROOT / "data" / "lambda.fa.gz"
VALIDATION = ROOT.parent / "shared" / "genomes" / "validation" / "Tpallidum_Nichols_NC_021490.fa.gz"
HEADER = "##fileformat=VCFv4.2\n#CHROM\tPOS\tID\tREF\tALT\tQUAL\tFILTER\tINFO\n"
WRONG = {"A": "C", "C": "G", "G": "T", "T": "A", "N": "A"}


class Row(NamedTuple):
    start: int
    reference: str
    alternates: str
    reason: str  # of all of them; "" if they can be scored


def with_odd_letters(bases: bytes) -> bytes:
    """Put unknown bases and lower case into a genome, at places of its own."""
    letters = bytearray(bases.upper())
    for start in range(100, len(letters) - 100, 997):
        letters[start] = ord("N")
    for start in range(0, len(letters), 1500):
        letters[start : start + 700] = letters[start : start + 700].lower()
    letters[len(letters) // 2 : len(letters) // 2 + 60] = b"N" * 60
    return bytes(letters)


def rows(bases: str, count: int) -> list[Row]:
    """Return records of every kind in turn, at random places, and at the first and last bases."""
    rng = np.random.default_rng(0)
    end = len(bases)
    edges = [0, 1, end - 1, end - 2, *(place + 1 for place in range(100, end - 100, 997))]
    places = [*edges[:30], *rng.integers(0, end - 12, count).tolist()][:count]
    found = []
    for number, place in enumerate(places):
        one, more = bases[place], bases[place : place + 4]
        ins, others = "GATTACA"[: 1 + number % 7], ",".join(sorted(set("ACGT") - {one}))
        unknown = "ambiguous" if "N" in more else ""
        known = "ambiguous" if one == "N" else ""
        kinds = [
            Row(place, one, WRONG[one], known), Row(place, one, others, known), Row(place, one, one + ins, known),
            Row(place, more, one, unknown),
            Row(place, more, "".join(WRONG[x] for x in more), unknown), Row(place, more, ins + "C", unknown),
            Row(place, one, "<DEL>", known or "symbolic"), Row(place, one, "*", known or "overlapping_deletion"),
            Row(place, one, f"{one}[s:5[", known or "breakend"),
            Row(place, WRONG[one], one if one != "N" else "C", known or "reference_mismatch"),
            Row(place, one, ".", known or "no_alternate"), Row(place, one.lower(), WRONG[one].lower(), known),
        ]  # fmt: skip
        row = kinds[number % len(kinds)]
        found.append(row._replace(reason="same") if row.reference == row.alternates and not row.reason else row)
    return found


def check(bases: bytes, count: int, model: Genoformer, folder: Path, scoring: Scoring) -> None:
    genome = with_odd_letters(bases)
    (folder / "r.fa").write_bytes(b">s\n" + genome + b"\n")
    given = rows(genome.decode().upper(), count)
    lines = [f"s\t{row.start + 1}\tv{n}\t{row.reference}\t{row.alternates}\t.\t.\t.\n" for n, row in enumerate(given)]
    (folder / "x.vcf").write_text(HEADER + "".join(lines))
    summary = annotate_vcf(folder / "x.vcf", folder / "r.fa", model, str(folder / "o.vcf.gz"), scoring=scoring)
    assert summary.records == count
    with pysam.VariantFile(str(folder / "o.vcf.gz")) as file:
        found = list(file)
    assert Counter(record.id for record in found) == Counter(
        f"v{number}" for number, row in enumerate(given) for _ in row.alternates.split(",")
    )
    assert [record.start for record in found] == sorted(record.start for record in found)
    for record in found:
        row = given[int(record.id[1:])]
        reason = record.info.get("GF_SKIPPED", "")
        beside_unknown = "N" in record.ref  # the base before it, once it is left-aligned
        assert reason == ("ambiguous" if beside_unknown else row.reason), (row, reason)
        if not reason:
            for field in ("GF_CODING_PLUS_GAIN", "GF_CODING_PLUS_LOSS", "GF_CODING_MINUS_LOSS", "GF_CODING_SHIFT"):
                assert 0 <= record.info[field][0] <= 1
            for field in ("GF_CODING_PLUS_GAIN_AT", "GF_CODING_SHIFT_AT"):
                place = record.info[field][0]
                assert place is None or (abs(place) <= scoring.window and 0 <= record.start + place < len(genome))
    assert {row.reason for row in given} >= {"", "ambiguous", "symbolic", "breakend", "reference_mismatch"}


@pytest.mark.parametrize("method", METHODS)
def test_every_record_is_in_the_output(tmp_path, method):
    check(random_bases(3000, 2), 96, tiny_model(), tmp_path, Scoring(900, 300, method=method))


needs_model = pytest.mark.skipif("prokaryote-genes" not in bundled_models(), reason="the bundled model is not there")


@pytest.mark.slow
@needs_model
@pytest.mark.parametrize("path", [LAMBDA, VALIDATION], ids=lambda path: path.name.partition("_")[0])
def test_a_thousand_of_a_genome(path, tmp_path):
    if not path.is_file():
        pytest.skip(f"{path.name} is not there")
    record = next(open_sequences(path).records())
    check(record.bases[:100_000], 1000, load_model(), tmp_path, Scoring(1500, 700, method="crop"))


@pytest.mark.slow
@needs_model
@pytest.mark.parametrize("method", METHODS)
def test_the_opposite_strand_of_lambda(method):
    """Within 0.001: plus and minus change places."""
    (record,) = open_sequences(LAMBDA).records()
    bases = record.bases[10_000:20_000]
    other = decode(reverse_complement(encode(bases)))
    turn, model = str.maketrans("ACGT", "TGCA"), load_model()
    places = np.random.default_rng(4).integers(0, len(bases), 100)
    variants = [Variant("s", int(p), chr(bases[p]), WRONG[chr(bases[p])]) for p in places]
    mirrored = [Variant("s", len(bases) - 1 - v.start, v.reference.translate(turn), v.alternate.translate(turn))
                for v in variants]  # fmt: skip
    here, there = (
        list(score_variants(some, {"s": letters}, model, scoring=Scoring(1500, 700, method=method)))
        for some, letters in ((variants, bases), (mirrored, other))
    )
    for one, two in zip(here, there, strict=True):
        for name, turned in (("coding_plus", "coding_minus"), ("coding_minus", "coding_plus")):
            a, b = one.effect.changes[name], two.effect.changes[turned]
            assert (a.gain, a.loss) == pytest.approx((b.gain, b.loss), abs=1e-3)
