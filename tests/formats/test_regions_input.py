"""Regions: whatever way they are written, the same bases, each once; what does not fit is named."""

from __future__ import annotations

import gzip

import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st
from strategies import AWKWARD_NAMES

from genoformer.errors import FormatError, InputError
from genoformer.formats.bed import merge_regions, parse_regions, read_bed
from genoformer.regions import Region

LENGTHS = {"chr2": 50, "chr1": 100, "x:1-100": 40, "x": 1000, "HLA-A*01:01": 30, "{odd}": 9}
fast = settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])


@st.composite
def regions(draw):
    name = draw(st.sampled_from(sorted(LENGTHS)))
    start = draw(st.integers(0, LENGTHS[name] - 1))
    region = Region(name, start, draw(st.integers(start + 1, LENGTHS[name])))
    assume(str(region) not in LENGTHS)  # the text would be a name
    return region


def bases(some):
    return [(region.sequence, position) for region in some for position in range(region.start, region.end)]


@fast
@given(some=st.lists(regions(), min_size=1, max_size=8))
def test_text_and_bed_name_the_same_bases_each_once(some, tmp_path):
    bed = tmp_path / "x.bed"
    bed.write_text("".join(f"{region.sequence}\t{region.start}\t{region.end}\tname\t0\n" for region in some))
    merged = parse_regions(bed, LENGTHS)
    assert merged == parse_regions([str(region) for region in some], LENGTHS)
    assert set(bases(merged)) == set(bases(some))
    assert len(bases(merged)) == len(set(bases(some)))
    order = list(LENGTHS)
    assert merged == sorted(merged, key=lambda region: (order.index(region.sequence), region.start))


@fast
@given(some=st.lists(regions(), max_size=8), data=st.data())
def test_merging_forgets_the_order_and_settles(some, data):
    merged = merge_regions(some, LENGTHS)
    assert merge_regions(data.draw(st.permutations(some)), LENGTHS) == merged
    assert merge_regions(merged, LENGTHS) == merged


@fast
@given(region=regions())
def test_samtools_text_reads_back(region):
    assert parse_regions(str(region), LENGTHS) == [region]
    assert parse_regions(f"{{{region.sequence}}}:{region.start + 1}-{region.end}", LENGTHS) == [region]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("chr1", Region("chr1", 0, 100)),
        ("chr1:10-20", Region("chr1", 9, 20)),
        ("chr1:10", Region("chr1", 9, 100)),
        ("chr1:10-", Region("chr1", 9, 100)),
        ("chr1:-20", Region("chr1", 0, 20)),
        ("chr1:100-100", Region("chr1", 99, 100)),
        ("x:1,000-1,000", Region("x", 999, 1000)),
        ("x:1-100", Region("x:1-100", 0, 40)),  # the whole string is a name
        ("{x}:1-100", Region("x", 0, 100)),
        ("{x:1-100}:2-3", Region("x:1-100", 1, 3)),
        ("x:1-100:2-3", Region("x:1-100", 1, 3)),
        ("HLA-A*01:01", Region("HLA-A*01:01", 0, 30)),
        ("HLA-A*01:01:5-6", Region("HLA-A*01:01", 4, 6)),
        ("{odd}", Region("{odd}", 0, 9)),
        ("{odd}:2-3", Region("{odd}", 1, 3)),
        ("{chr1}", Region("chr1", 0, 100)),
    ],
)
def test_ways_to_write_a_region(text, expected):  # faults 12
    assert parse_regions(text, LENGTHS) == [expected]
    assert parse_regions((text,), LENGTHS) == [expected]


@pytest.mark.parametrize("name", AWKWARD_NAMES)
def test_awkward_names(name):  # faults 12, 13
    assert parse_regions(name, {name: 8}) == [Region(name, 0, 8)]
    assert parse_regions(f"{name}:3-4", {name: 8}) == [Region(name, 2, 4)]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("1", r"no sequence '1' .* did you mean 'chr1'\?"),
        ("1:5-10", r"region '1:5-10': there is no sequence '1' .* did you mean 'chr1'\?"),
        ("CHR1:5", "did you mean 'chr1'"),
        ("chr1.2", "did you mean 'chr1'"),
        ("zzz", "it has 'chr2', 'chr1', 'x:1-100', 'x', 'HLA-A.01:01' and 1 more"),
        ("chr1:50-101", "'chr1:50-101': goes past the end of 'chr1', which has 100 bases"),
        ("chr1:101", "goes past the end"),
        ("chr1:0-5", "positions count from 1"),
        ("chr1:20-10", "ends before it starts"),
        ("chr1:1,2-3", "no sequence 'chr1:1,2-3'"),
        ("chr1:a-b", "no sequence 'chr1:a-b'"),
        ("nowhere/x.bed", "no such BED file"),
        ("x.bed.gz", "no such BED file"),
        ("", "there is no sequence"),
        ("a" * 5000, "there is no sequence"),
        ("a\0b", "there is no sequence"),
        ("chr1:" + "9" * 5000, "there is no sequence"),
        ("chr1:\u0663", "there is no sequence"),
        ("/", "is a folder"),
    ],
)
def test_what_does_not_fit_is_named(text, message):  # faults 40
    with pytest.raises(InputError, match=message) as caught:
        parse_regions(text, LENGTHS)
    assert "\n" not in str(caught.value)


def test_no_region_at_all(tmp_path):
    with pytest.raises(InputError, match="hold no base"):
        parse_regions([], LENGTHS)
    bed = tmp_path / "x.bed"
    bed.write_text("# nothing\nchr1\t5\t5\n")
    with pytest.raises(InputError, match=r"x\.bed: hold no base"):
        parse_regions(bed, LENGTHS)


def test_bed_of_every_shape(tmp_path):
    bed = tmp_path / "x.bed"
    text = (
        "\ufeffbrowser position chr1:1-10\r\ntrack name=x\r\n# comment\r\n\r\n"
        "chr1\t5\t10\tgene 1\t0\t+\r\nchr1 20 30\r\nchr2\t0\t50"
    )
    for content in (text.encode(), gzip.compress(text.encode())):
        bed.write_bytes(content)
        assert parse_regions(bed, LENGTHS) == [Region("chr2", 0, 50), Region("chr1", 5, 10), Region("chr1", 20, 30)]
    assert list(read_bed(bed, LENGTHS))[-1] == Region("chr2", 0, 50)


def test_names_that_look_like_other_lines(tmp_path):
    bed = tmp_path / "x.bed"
    bed.write_text("track1\t0\t5\nbrowser2\t0\t5\n")
    assert len(parse_regions(bed, {"track1": 5, "browser2": 9})) == 2


@pytest.mark.parametrize(
    ("line", "error", "message"),
    [
        ("chr1\t5", FormatError, r"x\.bed:2: is no BED line: 'chr1\\t5'"),
        ("chr1\tfive\t10", FormatError, r"x\.bed:2: is no BED line"),
        ("chr1\t10\t5", FormatError, r"x\.bed:2: start 10 and end 5"),
        ("chr1\t-1\t5", FormatError, r"x\.bed:2: is no BED line"),
        ("chr1\t1_0\t50", FormatError, r"x\.bed:2: is no BED line"),
        ("chr1\t1\t" + "9" * 5000, FormatError, r"x\.bed:2: is no BED line"),
        ("1\t0\t5", InputError, r"x\.bed:2: there is no sequence '1' .* 'chr1'"),
        ("chr1\t90\t101", InputError, r"x\.bed:2: goes past the end of 'chr1', which has 100 bases"),
        ("chr1\t101\t101", InputError, r"x\.bed:2: goes past the end"),
    ],
)
def test_a_bad_bed_line_is_named(line, error, message, tmp_path):
    bed = tmp_path / "x.bed"
    bed.write_text(f"chr1\t0\t5\n{line}\n")
    with pytest.raises(error, match=message) as caught:
        parse_regions(bed, LENGTHS)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("content", [b"\xff\xfe\x00", bytes(range(256)), gzip.compress(b"chr1\t0\t5\n", mtime=0)[:-4]])
def test_a_file_that_is_no_bed(content, tmp_path):
    bed = tmp_path / "x.bed"
    bed.write_bytes(content)
    with pytest.raises(FormatError, match=r"x\.bed"):
        parse_regions(bed, LENGTHS)


def test_a_name_wins_over_a_file_of_that_name(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name in ("chr1", "chr1:5-6", "mine"):
        (tmp_path / name).write_text("chr2\t0\t5\n")
    assert parse_regions("chr1", LENGTHS) == [Region("chr1", 0, 100)]
    assert parse_regions("chr1:5-6", LENGTHS) == [Region("chr1", 4, 6)]
    assert parse_regions("mine", LENGTHS) == [Region("chr2", 0, 5)]
