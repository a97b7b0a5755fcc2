"""GenBank: locations in all their forms, qualifiers, records, and files that are no good."""

from __future__ import annotations

import gzip
import logging

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from genoformer.annotation import CodingSequence, coding_frame_labels
from genoformer.errors import FormatError, InputError
from genoformer.formats.bytestream import Source
from genoformer.formats.genbank import GenBankSequences, read_genbank
from genoformer.regions import Region

BASES = "acgtn" + "gattacagat" * 20  # 205 bases


def record(*features, name="TEST1", topology="linear", bases=BASES, kind="DNA", origin=True) -> str:
    """Write a record; a feature is (key, location, qualifier lines...)."""
    unit = "aa" if kind == "" else "bp"
    lines = [
        f"LOCUS       {name:<16} {len(bases):>11} {unit}    {kind:<6}  {topology:<8} BCT 01-JAN-2000",
        f"DEFINITION  A made-up {name}.",
        f"ACCESSION   {name}",
        f"VERSION     {name}.1",
        "FEATURES             Location/Qualifiers",
        f"     source          1..{len(bases)}",
    ]
    for key, location, *qualifiers in features:
        lines += [f"     {key:<16}{location}", *(f"                     /{text}" for text in qualifiers)]
    if origin:
        lines.append("ORIGIN")
        for start in range(0, len(bases), 60):
            row = bases[start : start + 60]
            lines.append(f"{start + 1:>9} " + " ".join(row[i : i + 10] for i in range(0, len(row), 10)))
    return "\n".join([*lines, "//", ""])


@pytest.fixture
def read(tmp_path):
    def read(*records: str):
        path = tmp_path / "a.gbk"
        path.write_text("".join(records))
        return read_genbank(path)

    return read


@pytest.fixture
def read_cds(read):
    def read_cds(location, *qualifiers, topology="linear") -> list[CodingSequence]:
        found = read(record(("CDS", location, *qualifiers), topology=topology))
        return found.annotation.coding_sequences["TEST1.1"]

    return read_cds


@pytest.mark.parametrize(
    ("location", "strand", "parts", "partial"),
    [
        ("1..9", 1, ((0, 9),), False),
        ("complement(1..9)", -1, ((0, 9),), False),
        ("join(1..4,11..15)", 1, ((0, 4), (10, 15)), False),
        ("complement(join(1..4,11..15))", -1, ((10, 15), (0, 4)), False),
        ("join(complement(11..15),complement(1..4))", -1, ((10, 15), (0, 4)), False),
        ("join(1..4,4..8)", 1, ((0, 4), (3, 8)), False),
        ("<1..9", 1, ((0, 9),), True),
        ("1..>9", 1, ((0, 9),), True),
        ("complement(<1..9)", -1, ((0, 9),), True),
        ("join(<1..4,11..15)", 1, ((0, 4), (10, 15)), True),
        ("join(200..205,1..3)", 1, ((199, 205), (0, 3)), False),
        ("complement(join(200..205,1..3))", -1, ((0, 3), (199, 205)), False),
        ("join(J00194.1:1..4,11..15)", 1, ((10, 15),), True),
    ],
)
def test_locations(read_cds, location, strand, parts, partial):
    (cds,) = read_cds(location, topology="circular")
    assert (cds.strand, cds.parts, cds.partial, cds.pseudo) == (strand, parts, partial, False)


def test_parts_on_another_record_still_count_for_the_codon_position(read_cds):
    (cds,) = read_cds("join(J00194.1:1..4,11..15)")
    assert coding_frame_labels(205, [cds]).frames[10:15].tolist() == [2, 3, 1, 2, 3]


def test_trans_splicing_keeps_the_codon_positions(read_cds):
    first, second = read_cds("join(complement(1..4),101..105)", 'locus_tag="L"')
    assert (first.strand, first.parts, second.strand, second.parts) == (-1, ((0, 4),), 1, ((100, 105),))
    labels = coding_frame_labels(205, [first, second])
    assert labels.frames[:4].tolist() == [4, 6, 5, 4]
    assert labels.frames[100:105].tolist() == [2, 3, 1, 2, 3]
    assert labels.used == 2


def test_broken_trans_splicing_is_masked_on_both_strands(read_cds):
    labels = coding_frame_labels(205, read_cds("join(complement(1..4),101..104)"))
    assert (labels.used, labels.pseudo) == (0, 2)
    assert (labels.frames == 255).sum() == 8


@settings(max_examples=40, deadline=None)
@given(
    strand=st.sampled_from([1, -1]), start=st.integers(0, 204), codons=st.integers(2, 30), topology=st.just("circular")
)
def test_a_gene_over_the_origin_is_labeled_as_the_rotated_one(strand, start, codons, topology, tmp_path_factory):
    length, size = len(BASES), 3 * codons
    end = start + size
    location = f"{start + 1}..{end}" if end <= length else f"join({start + 1}..{length},1..{end - length})"
    path = tmp_path_factory.mktemp("gbk") / "a.gbk"
    path.write_text(record(("CDS", location if strand == 1 else f"complement({location})"), topology=topology))
    found = read_genbank(path)
    assert found.annotation.topology == {"TEST1.1": "circular"}
    labels = coding_frame_labels(length, found.annotation.coding_sequences["TEST1.1"])
    whole = coding_frame_labels(length, [CodingSequence("s", strand, ((0, size),))])
    np.testing.assert_array_equal(labels.frames, np.roll(whole.frames, start))


def test_qualifiers(read_cds):
    (cds,) = read_cds("2..9", 'locus_tag="LT_1"', "codon_start=3", "transl_table=4", "ribosomal_slippage")
    assert (cds.name, cds.phase, cds.genetic_code, cds.pseudo, cds.is_broken) == ("LT_1", 2, 4, False, False)
    (cds,) = read_cds("1..9", 'protein_id="P.1"', "partial")
    assert (cds.name, cds.phase, cds.genetic_code, cds.partial) == ("P.1", 0, None, True)


@pytest.mark.parametrize("mark", ["pseudo", 'pseudogene="unknown"'])
def test_pseudo_genes(read, mark):
    found = read(
        record(
            ("gene", "1..9", 'locus_tag="A"', mark),
            ("CDS", "1..9", 'locus_tag="A"'),
            ("gene", "complement(21..30)", 'locus_tag="B"', mark),
            ("gene", "41..49", 'locus_tag="C"'),
            ("CDS", "41..49", 'locus_tag="C"'),
            ("CDS", "61..69", 'locus_tag="D"', mark),
            ("CDS", "order(81..85,91..94)", 'locus_tag="E"'),
            ("gene", "101..109", mark),
        )
    )
    cds = found.annotation.coding_sequences["TEST1.1"]
    assert [(c.name, c.parts[0], c.pseudo) for c in cds] == [
        ("A", (0, 9), True),
        ("C", (40, 49), False),
        ("D", (60, 69), True),
        ("E", (80, 85), True),
        ("B", (20, 30), True),
        ("", (100, 109), True),
    ]


def test_records_and_annotation_agree(read):
    found = read(record(), record(name="TEST2", topology="circular", bases="ACGTRN"))
    assert [(r.name, r.description, r.topology, len(r.bases)) for r in found.records] == [
        ("TEST1.1", "A made-up TEST1", "linear", 205),
        ("TEST2.1", "A made-up TEST2", "circular", 6),
    ]
    assert found.records[0].bases.upper() == BASES.upper().encode()
    assert found.annotation.lengths == {"TEST1.1": 205, "TEST2.1": 6}
    assert found.annotation.topology == {"TEST1.1": "linear", "TEST2.1": "circular"}
    assert found.annotation.coding_sequences == {"TEST1.1": [], "TEST2.1": []}


@pytest.mark.parametrize("accession", ["", "ACCESSION   .\nVERSION     .\n", "ACCESSION   unknown\n"])
def test_a_record_without_accession_goes_by_its_locus(read, accession):
    text = record().replace("ACCESSION   TEST1\nVERSION     TEST1.1\n", accession)
    assert [r.name for r in read(text).records] == ["TEST1"]


def test_gzip_is_told_by_content(tmp_path, read):
    (tmp_path / "b.gbk").write_bytes(gzip.compress(record(("CDS", "1..9")).encode()))
    assert read_genbank(tmp_path / "b.gbk") == read(record(("CDS", "1..9")))


def test_as_a_source_of_sequences(tmp_path):
    (tmp_path / "a.gbk").write_text(record() + record(name="TEST2", bases="ACGTRN"))
    sequences = GenBankSequences(Source(tmp_path / "a.gbk"))
    assert sequences.lengths() == {"TEST1.1": 205, "TEST2.1": 6}
    assert [r.name for r in sequences.records()] == [r.name for r in sequences.records()] == ["TEST1.1", "TEST2.1"]
    assert sequences.fetch(Region("TEST2.1", 1, 4)).upper() == b"CGT"
    with pytest.raises(InputError, match="TEST3"):
        sequences.fetch(Region("TEST3", 0, 1))
    with pytest.raises(InputError, match="6 bases"):
        sequences.fetch(Region("TEST2.1", 0, 7))


def test_what_does_no_harm_is_logged(read, caplog):
    odd = record(("CDS", "1..9")).replace("BCT 01-JAN-2000", "")
    with caplog.at_level(logging.WARNING):
        found = read(odd)
    assert len(found.annotation.coding_sequences["TEST1.1"]) == 1
    assert "a.gbk: record 1: " in caplog.text


@pytest.mark.parametrize(
    ("text", "error", "says"),
    [
        ("", FormatError, "LOCUS"),
        (">a\nACGT\n", FormatError, "LOCUS"),
        (record()[:480], FormatError, "record 1"),
        (record() + record(name="TEST2")[:480], FormatError, "record 2"),
        (record() + record(name="TEST2")[:300], FormatError, "record 2"),
        (record() + record(), InputError, "TEST1.1"),
        (record(origin=False), FormatError, "record 1"),
        (record(origin=False).replace("//", "CONTIG      join(U00096.3:1..205)\n//"), InputError, "no bases"),
        (record(kind="", bases="mkvlaa"), InputError, "protein"),
        (record(("CDS", "5..?")), FormatError, "no valid location"),
        (record(("CDS", "9..5", 'locus_tag="L"')), FormatError, "'L' has no valid location"),
        (record(("CDS", "1..9", "codon_start=4")), FormatError, "codon_start must be 1, 2 or 3"),
        (record(("CDS", "1..9", "codon_start=x")), FormatError, "codon_start"),
        (record(("CDS", "1..9", "transl_table=x")), FormatError, "transl_table"),
    ],
)
def test_what_is_wrong_is_said_in_one_line(tmp_path, text, error, says):
    (tmp_path / "bad.gbk").write_text(text)
    with pytest.raises(error, match=rf"bad\.gbk.*{says}") as raised:
        read_genbank(tmp_path / "bad.gbk")
    assert "\n" not in str(raised.value)


def test_damaged_gzip_is_an_error(tmp_path):
    (tmp_path / "bad.gbk.gz").write_bytes(gzip.compress(record().encode())[:200])
    with pytest.raises(FormatError, match="gzip"):
        read_genbank(tmp_path / "bad.gbk.gz")


def test_a_cds_beyond_the_end_is_refused_when_labeled(read_cds):
    with pytest.raises(InputError, match=r"TEST1\.1.*205 bases"):
        coding_frame_labels(205, read_cds("201..209"))
