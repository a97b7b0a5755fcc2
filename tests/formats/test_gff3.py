"""GFF3: what is written is read back, over origins too; each convention of real files; each fault with its line."""

from __future__ import annotations

import gzip
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from genoformer.annotation import CodingSequence, coding_frame_labels
from genoformer.errors import FormatError, InputError
from genoformer.formats.gff3 import read_gff3
from genoformer.tokens import encode, reverse_complement

VALIDATION = Path(__file__).resolve().parents[3] / "shared" / "genomes" / "validation"


def line(start, end, strand="+", attributes="ID=c", *, kind="CDS", phase=0, name="s"):
    return "\t".join([name, "test", kind, str(start), str(end), ".", strand, str(phase), attributes])


def region(length, *, circular=True, name="s"):
    return line(1, length, "+", f"ID={name};Is_circular={str(circular).lower()}", kind="region", phase=".", name=name)


def write(path: Path, *lines: str) -> Path:
    path.write_text("\n".join(["##gff-version 3", *lines]) + "\n")
    return path


@pytest.fixture
def read(tmp_path):
    def read(*lines: str, name="s") -> list[CodingSequence]:
        return read_gff3(write(tmp_path / "a.gff", *lines)).coding_sequences[name]

    return read


def to_lines(cds: CodingSequence) -> list[str]:
    lines, done = [], -cds.phase
    for start, end in cds.parts:
        attributes = (
            f"ID={cds.name}" + (";partial=true" if cds.partial else "") + (";pseudo=true" if cds.pseudo else "")
        )
        if cds.genetic_code:
            attributes += f";transl_table={cds.genetic_code}"
        lines.append(line(start + 1, end, "-" if cds.strand == -1 else "+", attributes, phase=-done % 3))
        done += end - start
    return lines


@st.composite
def genes(draw, name: str) -> CodingSequence:
    """Parts in transcription order, with introns, skipped bases and parts that overlap by one or two bases."""
    strand = draw(st.sampled_from([1, -1]))
    here, parts = draw(st.integers(0, 50)), []
    for size, gap in draw(st.lists(st.tuples(st.integers(5, 30), st.integers(-2, 20)), min_size=1, max_size=4)):
        parts.append((here, here + size))
        here += size + gap
    if strand == -1:
        parts = [(500 - end, 500 - start) for start, end in parts]
    code = draw(st.sampled_from([None, 1, 4, 11]))
    phase, pseudo, partial = draw(st.integers(0, 2)), draw(st.booleans()), draw(st.booleans())
    return CodingSequence("s", strand, tuple(parts), phase, name, pseudo, partial, code)


@settings(max_examples=60, deadline=None)
@given(first=genes("a"), second=genes("b"), random=st.randoms())
def test_what_is_written_is_read_back_in_any_order_of_lines(first, second, random, tmp_path_factory):
    lines = to_lines(first) + to_lines(second)
    random.shuffle(lines)
    path = write(tmp_path_factory.mktemp("gff") / "a.gff", *lines)
    assert sorted(read_gff3(path).coding_sequences["s"], key=lambda cds: cds.name) == [first, second]


@settings(max_examples=60, deadline=None)
@given(
    strand=st.sampled_from("+-"),
    start=st.integers(0, 39),
    codons=st.integers(2, 12),
    style=st.sampled_from(["parts", "reversed parts", "end beyond the length"]),
)
def test_a_gene_over_the_origin_is_labeled_as_the_rotated_one(strand, start, codons, style, tmp_path_factory):
    length, size = 40, 3 * codons
    path = tmp_path_factory.mktemp("gff") / "a.gff"
    end = start + size
    if end <= length or style == "end beyond the length":
        lines = [line(start + 1, end, strand)]
    else:
        # the phase of each part counts from its own 5' end
        left_phase = -(length - start) % 3 if strand == "+" else 0
        right_phase = 0 if strand == "+" else -(end - length) % 3
        lines = [line(start + 1, length, strand, phase=right_phase), line(1, end - length, strand, phase=left_phase)]
    if style == "reversed parts":
        lines.reverse()
    annotation = read_gff3(write(path, region(length), *lines))
    labels = coding_frame_labels(length, annotation.coding_sequences["s"])
    whole = coding_frame_labels(length, [CodingSequence("s", 1 if strand == "+" else -1, ((0, size),))])
    assert labels.used == 1
    np.testing.assert_array_equal(labels.frames, np.roll(whole.frames, start))
    np.testing.assert_array_equal(labels.strands, np.roll(whole.strands, start))


def test_on_a_linear_sequence_the_order_is_never_rotated(read):
    cds = read("##sequence-region s 1 100", region(100, circular=False), line(1, 10), line(91, 100))
    assert cds[0].parts == ((0, 10), (90, 100))


def test_topology_and_lengths(tmp_path):
    path = write(
        tmp_path / "a.gff",
        "##sequence-region chr%201 1 500",
        "##sequence-region b 1 70",
        region(90, name="plasmid"),
        line(5, 10, kind="gene", name="c", phase="."),
    )
    annotation = read_gff3(path)
    assert annotation.topology == {"chr 1": "linear", "b": "linear", "plasmid": "circular", "c": "linear"}
    assert annotation.lengths == {"chr 1": 500, "b": 70, "plasmid": 90}
    assert annotation.coding_sequences == {"chr 1": [], "b": [], "plasmid": [], "c": []}


def test_one_id_on_two_sequences_is_two_coding_sequences(tmp_path):
    annotation = read_gff3(write(tmp_path / "a.gff", line(1, 9, name="s|1:2/3"), line(1, 6, name="t")))
    assert [cds.parts for cds in annotation.coding_sequences["s|1:2/3"]] == [((0, 9),)]
    assert [cds.parts for cds in annotation.coding_sequences["t"]] == [((0, 6),)]


def test_without_ids_the_parent_joins_parts(read):
    cds = read(
        line(1, 4, attributes="Parent=t1,t2"),
        line(11, 15, attributes="Parent=t1", phase=2),
        line(21, 25, attributes="Parent=t2", phase=2),
        line(31, 36, attributes="note=alone"),
        line(41, 46, attributes="."),
    )
    assert [c.parts for c in cds] == [((0, 4), (10, 15)), ((0, 4), (20, 25)), ((30, 36),), ((40, 46),)]
    assert [c.name for c in cds] == ["t1", "t2", "line 5", "line 6"]


def test_transcripts_with_the_same_parts_count_once_where_they_have_no_id(read):
    cds = read(line(1, 6, attributes="Parent=t1,t1-protein"), line(11, 16, attributes="Parent=t1,t1-protein"))
    assert [(c.name, c.parts) for c in cds] == [("t1", ((0, 6), (10, 16)))]


def test_an_id_for_each_part_is_seen_through(read):
    cds = read(
        line(21, 25, "-", "ID=t.1;Parent=t", phase=0),
        line(11, 14, "-", "ID=t.2;Parent=t", phase=1),
        line(31, 36, "+", "ID=u.1;Parent=u"),
        line(35, 40, "+", "ID=u.2;Parent=u"),  # two overlapping genes of one parent stay two
        line(51, 55, "+", "ID=v.1;Parent=v"),
        line(61, 64, "+", "ID=v.2;Parent=v", phase=2),  # does not continue the first
    )
    assert [(c.name, c.parts) for c in cds if c.name == "t"] == [("t", ((20, 25), (10, 14)))]
    assert sorted(c.name for c in cds) == ["t", "u.1", "u.2", "v.1", "v.2"]


@pytest.mark.parametrize(
    ("attributes", "pseudo", "partial"),
    [
        ("ID=c", False, False),
        ("ID=c;pseudo=true", True, False),
        ("ID=c;pseudo=false", False, False),
        ("ID=c;pseudo", True, False),
        ("ID=c;pseudogene=unprocessed", True, False),
        ("ID=c;partial=true", False, True),
        ("ID=c;partial=00", False, False),
        ("ID=c;partial=10", False, True),
        ("ID=c;start_range=.,1", False, True),
        ("ID=c;end_range=6,.", False, True),
        ("ID=c;5_prime_partial=true;", False, True),
        ("ID=c;product=pseudo=true partial%3Dtrue", False, False),
        ("ID=c;Parent=g1", True, False),
        ("ID=c;Parent=t1", True, False),
        ("ID=c;Parent=g2", False, False),
        ("ID=c;locus_tag=L1", True, False),
        ("ID=c;locus_tag=", False, False),
    ],
)
def test_pseudo_and_partial(read, attributes, pseudo, partial):
    cds = read(
        line(1, 9, attributes="ID=g1;pseudo=true;locus_tag=L1", kind="gene", phase="."),
        line(1, 9, attributes="ID=t1;Parent=g1", kind="mRNA", phase="."),
        line(1, 9, attributes="ID=g2;pseudo=false;locus_tag=", kind="gene", phase="."),
        line(1, 6, attributes=attributes),
    )
    assert (cds[0].name, cds[0].pseudo, cds[0].partial) == ("c", pseudo, partial)


@pytest.mark.parametrize(
    ("attributes", "kind"),
    [
        ("ID=g;pseudo=true", "gene"),
        ("pseudo=true", "gene"),
        ("ID=g;biotype=processed_pseudogene", "gene"),
        ("ID=g", "pseudogene"),
    ],
)
def test_a_pseudo_gene_without_cds_masks_its_span(read, attributes, kind):
    cds = read(line(11, 19, "-", attributes, kind=kind, phase="."), line(31, 36, attributes="ID=other"))
    assert [(c.parts, c.pseudo) for c in cds] == [(((30, 36),), False), (((10, 19),), True)]
    labels = coding_frame_labels(40, cds)
    assert (labels.frames[10:19] == 255).all()
    assert (labels.frames != 255).sum() == 31


def test_a_pseudo_gene_with_a_cds_is_there_once(read):
    cds = read(
        line(11, 19, attributes="ID=g;locus_tag=L", kind="pseudogene", phase="."),
        line(11, 19, attributes="ID=c;locus_tag=L"),
    )
    assert [(c.name, c.pseudo) for c in cds] == [("c", True)]


def test_names_are_percent_decoded(tmp_path):
    annotation = read_gff3(write(tmp_path / "a.gff", line(1, 6, attributes="ID=a%3Bb%25", name="chr%7C1")))
    assert [cds.name for cds in annotation.coding_sequences["chr|1"]] == ["a;b%"]


def test_gzip_is_told_by_content_and_line_ends_do_not_matter(tmp_path):
    text = "\r\n".join(["##gff-version 3", "# comment caf\u00e9", "", line(1, 6), "###"])
    (tmp_path / "plain.gff.gz").write_bytes(text.encode())
    (tmp_path / "packed.gff").write_bytes(gzip.compress(b"\xef\xbb\xbf" + text.encode()))
    plain, packed = (read_gff3(tmp_path / name) for name in ("plain.gff.gz", "packed.gff"))
    assert plain == packed
    assert [cds.parts for cds in plain.coding_sequences["s"]] == [((0, 6),)]


def test_a_byte_order_mark_is_no_part_of_a_name(tmp_path):
    (tmp_path / "a.gff").write_bytes(b"\xef\xbb\xbf" + line(1, 6).encode())
    assert list(read_gff3(tmp_path / "a.gff").coding_sequences) == ["s"]


def test_the_sequences_at_the_end_are_not_read_as_features(read):
    assert len(read(line(1, 6), "##FASTA", ">s", "ACGTACGT")) == 1


def test_a_file_that_says_it_has_no_features_is_empty(tmp_path):
    annotation = read_gff3(write(tmp_path / "a.gff", "##sequence-region s 1 10"))
    assert annotation.coding_sequences == {"s": []}


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("s\ttest\tCDS\t1\t6\t.\t+\t0", "9 columns"),
        (line(1, 6).replace("\t", " "), "9 columns"),
        (line(1, 6) + "\textra", "got 10"),
        (line(7, 6), "start <= end"),
        (line(0, 6), "1 <= start"),
        (line("x", 6), "whole numbers"),
        (line(1, "6.0"), "whole numbers"),
        (line(-1, 6), "whole numbers"),
        (line(1, "٦"), "whole numbers"),
        (line(1, 6, "."), "strand"),
        (line(1, 6, "?"), "strand"),
        (line(1, 6, "x", kind="gene"), "strand"),
        (line(1, 6, phase="."), "phase"),
        (line(1, 6, phase=3), "phase"),
        (line(1, 6, attributes='gene_id "g"; transcript_id "t";'), "tag=value"),
        (line(1, 6, attributes="ID=c;transl_table=eleven"), "transl_table"),
        ("##sequence-region s 1", "##sequence-region NAME START END"),
        ("##sequence-region s 1 99", "two lengths"),
    ],
)
def test_a_wrong_line_is_named(tmp_path, text, says):
    path = write(tmp_path / "bad.gff", "##sequence-region s 1 50", line(20, 25, attributes="ID=fine"), text)
    with pytest.raises(FormatError, match=rf"bad\.gff: line 4: .*{says}") as error:
        read_gff3(path)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("content", [b"", b"\n\n", b">s\nACGT\n", b"# nothing\n", gzip.compress(b"", mtime=0)])
def test_no_features_at_all_is_an_error(tmp_path, content):
    (tmp_path / "bad.gff").write_bytes(content)
    with pytest.raises(FormatError, match=r"bad\.gff"):
        read_gff3(tmp_path / "bad.gff")


@pytest.mark.parametrize("cut", [5, 30, -6])
def test_damaged_gzip_is_an_error(tmp_path, cut):
    packed = gzip.compress("\n".join(line(3 * i + 1, 3 * i + 3, attributes=f"ID={i}") for i in range(500)).encode())
    (tmp_path / "bad.gff.gz").write_bytes(packed[:cut])
    with pytest.raises(FormatError, match=r"bad\.gff\.gz: .*gzip"):
        read_gff3(tmp_path / "bad.gff.gz")


def test_a_missing_file_and_a_folder_are_errors(tmp_path):
    for path in (tmp_path / "absent.gff", tmp_path):
        with pytest.raises(InputError, match=path.name):
            read_gff3(path)


def read_fasta(path: Path) -> dict[str, np.ndarray]:
    records = gzip.decompress(path.read_bytes()).split(b">")[1:]
    parts = [record.partition(b"\n") for record in records]
    return {head.split()[0].decode(): encode(bases.replace(b"\n", b"")) for head, _, bases in parts}


@pytest.mark.parametrize(
    ("genome", "stops", "fewest_codons"),
    [
        ("Mmycoides_GCF_000023685", (b"TAA", b"TAG"), 300_000),
        ("Tpallidum_Nichols_NC_021490", (b"TAA", b"TAG", b"TGA"), 300_000),
    ],
)
def test_real_codons_hold_no_stop_but_at_the_end(genome, stops, fewest_codons):
    if not VALIDATION.is_dir():
        pytest.skip(f"needs the genomes of {VALIDATION}")
    annotation = read_gff3(VALIDATION / f"{genome}.gff.gz")
    ((name, codes),) = read_fasta(VALIDATION / f"{genome}.fa.gz").items()
    assert annotation.lengths[name] == len(codes)
    assert annotation.topology[name] == "circular"
    whole = [cds for cds in annotation.coding_sequences[name] if len(cds.parts) == 1]
    assert {cds.genetic_code for cds in whole if not cds.pseudo} == {4 if len(stops) == 2 else 11}
    frames = coding_frame_labels(len(codes), whole).frames
    weights = np.array([25, 5, 1])
    stop_numbers = [int(encode(stop) @ weights) for stop in stops]
    found, inner = 0, 0
    for bases, labels, base, last in (
        (codes, frames, 1, {cds.parts[0][1] - 3 for cds in whole if cds.strand == 1}),
        (
            reverse_complement(codes),
            frames[::-1],
            4,
            {len(codes) - cds.parts[0][0] - 3 for cds in whole if cds.strand == -1},
        ),
    ):
        triplets = np.lib.stride_tricks.sliding_window_view(labels, 3)
        starts = np.flatnonzero((triplets == [base, base + 1, base + 2]).all(axis=1))
        numbers = np.lib.stride_tricks.sliding_window_view(bases, 3)[starts] @ weights
        stop_starts = set(starts[np.isin(numbers, stop_numbers)].tolist())
        found += len(starts)
        inner += len(stop_starts - last)
        assert len(stop_starts & last) > 0.6 * len(last)  # overlaps and pseudo genes hide the others
    assert found > fewest_codons
    assert inner == 0


def test_strands_as_numbers_are_read_and_counted(tmp_path, caplog):
    path = write(tmp_path / "a.gff", line(1, 6, "1", "ID=a"), line(11, 16, "-1", "ID=b"), line(21, 26, "+1", "ID=c"))
    assert [cds.strand for cds in read_gff3(path).coding_sequences["s"]] == [1, -1, 1]
    assert [record.getMessage() for record in caplog.records] == [
        f"{path}: 3 features, line 2 first, have strand 1 or -1: read as + and -"
    ]
    with pytest.raises(FormatError, match=r"strand .column 7. of a CDS must be '.' or '-', got '2'"):
        read_gff3(write(tmp_path / "b.gff", line(1, 6, "2")))


def test_a_header_and_no_feature_is_no_genes(tmp_path):
    assert read_gff3(write(tmp_path / "a.gff", "# found none")).coding_sequences == {}
    (tmp_path / "b.gff").write_text("# no header\n")
    with pytest.raises(FormatError, match="no GFF3 features found"):
        read_gff3(tmp_path / "b.gff")
