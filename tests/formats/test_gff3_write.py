"""GFF3 written: what the specification asks for, and what is read back."""

from __future__ import annotations

import re
import shutil
import subprocess

import pytest
from hypothesis import given
from hypothesis import strategies as st

from genoformer.formats.gff3 import read_gff3
from genoformer.formats.gff3_write import (
    CodingFeature,
    coding_lines,
    escape_name,
    escape_value,
    header,
    sequence_lines,
)

NAME = "gi|1/2;x=y,z&%\t>~é"
FORWARD = CodingFeature("a;b=1", 1, [(9, 19), (20, 40)], 12.3456, {"partial": "00", "note": "50%, or=so; &c"})
OVER = CodingFeature("over", 1, [(80, 110)], 1.0, {})
BACKWARD = CodingFeature("back", -1, [(70, 90), (41, 71)], -1.0, {"partial": "01"})


def written(tmp_path, *, name=NAME, circular=False, features=(FORWARD, BACKWARD)):
    path = tmp_path / "out.gff3"
    lines = [header(["a comment\nof two lines"]), sequence_lines(name, 100, circular=circular)]
    path.write_text("".join([*lines, *(coding_lines(name, feature) for feature in features)]))
    return path


@given(st.text(st.characters(exclude_characters="\0", exclude_categories=("Cs",)), min_size=1))
def test_names_hold_what_the_specification_allows(text):
    from urllib.parse import unquote

    assert re.fullmatch(r"(?:[a-zA-Z0-9.:^*$@!+_?|-]|%[0-9A-F]{2})+", escape_name(text))
    assert unquote(escape_name(text)) == text
    assert not set(escape_value(text)) & set(";=&,\t\n\r")
    assert unquote(escape_value(text)) == text


def test_nine_columns_phases_and_order(tmp_path):
    lines = written(tmp_path).read_text().splitlines()
    assert lines[0] == "##gff-version 3"
    assert lines[1] == "# a comment of two lines"
    assert lines[2] == f"##sequence-region {escape_name(NAME)} 1 100"
    rows = [line.split("\t") for line in lines[3:]]
    assert all(len(row) == 9 for row in rows)
    assert [(row[3], row[4], row[6], row[7]) for row in rows] == [
        ("10", "19", "+", "0"), ("21", "40", "+", "2"), ("42", "71", "-", "1"), ("71", "90", "-", "0"),
    ]  # fmt: skip
    assert rows[0][8] == "ID=a%3Bb%3D1;partial=00;note=50%25%2C or%3Dso%3B %26c"
    assert rows[0][5] == "12.35"


def test_what_is_written_is_read_back(tmp_path):
    found = read_gff3(written(tmp_path))
    assert found.lengths == {NAME: 100}
    forward, backward = found.coding_sequences[NAME]
    assert (forward.name, forward.strand, forward.parts, forward.partial) == ("a;b=1", 1, ((9, 19), (20, 40)), False)
    assert (backward.name, backward.strand, backward.partial) == ("back", -1, True)
    assert set(backward.parts) == {(70, 90), (41, 71)}


def test_over_the_origin(tmp_path):
    path = written(tmp_path, circular=True, features=(OVER,))
    assert "Is_circular=true" in path.read_text()
    (cds,) = read_gff3(path).coding_sequences[NAME]
    assert cds.parts == ((80, 100), (0, 10))


def test_an_empty_sequence_is_not_named():
    assert sequence_lines("x", 0) == ""


@pytest.mark.skipif(not shutil.which("gt"), reason="no GenomeTools")
@pytest.mark.parametrize(("circular", "features"), [(False, (FORWARD, BACKWARD)), (True, (FORWARD, OVER)), (False, ())])
def test_genometools_agrees(tmp_path, circular, features):
    path = written(tmp_path, name="gi|1/2;x=y", circular=circular, features=features)
    result = subprocess.run(["gt", "gff3validator", path], capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stderr
    assert "input is valid GFF3" in result.stdout
