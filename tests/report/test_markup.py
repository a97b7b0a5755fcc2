"""HTML by construction: nothing that comes in as text goes out as markup."""

from __future__ import annotations

from html.parser import HTMLParser

import pytest
from hypothesis import given
from hypothesis import strategies as st

from genoformer.report.markup import Markup, element, join, shown, text


class Seen(HTMLParser):
    def __init__(self, source: str):
        super().__init__(convert_charrefs=True)
        self.tags: list[tuple[str, dict]] = []
        self.words = ""
        self.feed(source)
        self.close()

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))

    def handle_data(self, data):
        self.words += data


@given(st.text(), st.text())
def test_any_text_comes_back_as_text(words, value):
    seen = Seen(element("p", words, attributes={"title": value}))
    assert [tag for tag, _ in seen.tags] == ["p"]
    assert seen.words == words
    assert seen.tags[0][1]["title"] == value


def test_markup_is_taken_as_it_is_once():
    inner = element("b", "<")
    assert element("p", inner, " & ", 1.5) == "<p><b>&lt;</b> &amp; 1.5</p>"
    assert join(inner, "<") == "<b>&lt;</b>&lt;"
    assert text(Markup("<br>")) == "<br>"
    assert element("br") == "<br>"


@pytest.mark.parametrize(
    ("name", "expected"),
    [("chr1", "chr1"), ("é x", "é x"), ("a\x1b[31m", "a\\x1b[31m"), ("a\u202eb", "a\\u202eb"), ("\udcff", "\\udcff"),
     ("a\nb", "a\\nb"), ("x" * 300, "x" * 199 + "…")],
)  # fmt: skip
def test_names_can_be_seen(name, expected):
    assert shown(name) == expected
    shown(name).encode()
