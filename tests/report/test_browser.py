"""The page in a real browser, where there is one: no complaints, zooming, moving, finding, sorting, light and dark."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[1]))

import chromium
from gene_twins import genome
from report_samples import HOSTILE, coding_sample

from genoformer.report import ReportSettings, build_report

pytestmark = pytest.mark.skipif(chromium.executable() is None, reason="no Chromium on this machine")
READY = "document.documentElement.dataset.ready === 'yes'"
WHERE = "document.getElementById('where').textContent"


@pytest.fixture(scope="module")
def report(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("browser")
    made = {HOSTILE: genome(1, genes=30), "x:1-100": genome(2, genes=3)}
    sample = coding_sample(folder, made)
    path = folder / "report.html"
    path.write_bytes(build_report(sample.store, ReportSettings(truth=str(sample.truth)), date="today"))
    return path


@pytest.fixture(scope="module")
def page(report):
    with chromium.Page(report) as opened:
        opened.wait(READY)
        yield opened


def span(page) -> tuple[int, int]:
    words = page.evaluate(WHERE).rpartition(": ")[2].partition(" of ")[0]
    first, last = words.replace(",", "").split("\u2013")
    return int(first), int(last)


def painted(page) -> int:
    """Return how many pixels of the canvas are neither transparent nor gray."""
    return page.evaluate("""(() => {
      const canvas = document.getElementById("canvas");
      const data = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height).data;
      let count = 0;
      for (let k = 0; k < data.length; k += 4) {
        const [red, green, blue, alpha] = data.subarray(k, k + 4);
        if (alpha && Math.max(red, green, blue) - Math.min(red, green, blue) > 40) count += 1;
      }
      return count;
    })()""")


def focus(page) -> None:
    page.evaluate("document.getElementById('stage').focus()")
    page.key("0", text="0")


def test_keys_zoom_and_move(page):
    focus(page)
    whole = span(page)
    assert whole[0] == 1
    page.wait("window.requestAnimationFrame && true")
    assert painted(page) > 5000
    page.key("+", text="+")
    zoomed = span(page)
    assert zoomed[1] - zoomed[0] < 0.51 * (whole[1] - whole[0])
    page.key("ArrowRight")
    moved = span(page)
    assert moved[0] > zoomed[0]
    assert abs((moved[1] - moved[0]) - (zoomed[1] - zoomed[0])) <= 1
    page.key("ArrowLeft")
    assert abs(span(page)[0] - zoomed[0]) <= 1
    page.key("-", text="-")
    assert span(page) == whole


def test_zoomed_far_in_the_bases_are_there(page):
    focus(page)
    for _ in range(20):
        page.key("+", text="+")
    first, last = span(page)
    assert 40 <= last - first + 1 <= 42
    for _ in range(20):
        page.key("ArrowLeft")
    page.key("Home")
    assert span(page)[0] == 1
    page.wait("document.getElementById('readout') !== null")


def test_a_gene_is_found_by_its_name(page):
    focus(page)
    page.evaluate("document.getElementById('find').focus()")
    page.evaluate("document.getElementById('find').value = ''")
    page.type(f"{HOSTILE}_12")
    page.wait("document.querySelectorAll('#found li').length > 0")
    assert page.evaluate("document.querySelector('#found li').textContent").startswith(f"{HOSTILE}_12")
    page.key("Enter")
    facts = page.evaluate("document.getElementById('gene').textContent")
    assert f"{HOSTILE}_12" in facts
    assert "exactly there" in facts
    first, last = span(page)
    start, end = page.evaluate("""(() => {
      const place = [...document.querySelectorAll("#gene dd")][1].textContent;
      return place.split(": ").pop().replaceAll(",", "").split("\u2013").map(Number);
    })()""")
    assert first < start < end < last
    page.key("n", text="n")
    assert f"{HOSTILE}_13" in page.evaluate("document.getElementById('gene').textContent")


def test_positions_and_other_sequences(page):
    for text, expected in [("x:1-100:11-120", (11, 120)), ("x:1-100", None)]:
        page.evaluate("document.getElementById('find').focus()")
        page.evaluate("document.getElementById('find').value = ''")
        page.type(text)
        page.wait("document.querySelectorAll('#found li[role=option]').length > 0")
        page.key("Enter")
        assert page.evaluate(WHERE).startswith("x:1-100: ")
        assert expected is None or span(page) == expected
    page.evaluate("location.hash = encodeURIComponent('x:1-100:21-90')")
    page.wait(f"{WHERE}.includes('21\u201390')")


def center(page) -> tuple[float, float]:
    """Bring the canvas into view and return a place on it."""
    return tuple(
        page.evaluate("""(() => {
      document.getElementById("stage").scrollIntoView({ block: "center" });
      const box = document.getElementById("canvas").getBoundingClientRect();
      return [box.left + box.width / 2, box.top + 100];
    })()""")
    )


def test_the_wheel_zooms_only_when_asked(page):
    focus(page)
    whole = span(page)
    page.evaluate("document.activeElement.blur()")
    x, y = center(page)
    page.mouse("mouseWheel", x, y, deltaX=0, deltaY=-300, modifiers=2)  # with Ctrl
    page.wait(f"!{WHERE}.includes('1\u2013{whole[1]:,} of')")
    zoomed = span(page)
    assert zoomed[1] - zoomed[0] < whole[1] - whole[0]
    page.mouse("mousePressed", x, y, button="left", buttons=1, clickCount=1)
    page.mouse("mouseMoved", x - 100, y, button="left", buttons=1)
    page.mouse("mouseReleased", x - 100, y, button="left", clickCount=1)
    moved = span(page)
    assert moved[0] > zoomed[0]
    page.evaluate("document.activeElement.blur()")
    page.mouse("mouseWheel", x, y, deltaX=0, deltaY=-300)  # which scrolls the page
    assert span(page) == moved


def test_tables_sort_and_filter(page):
    first = "document.querySelector('#gene-table tbody td').textContent"
    rows = "document.querySelectorAll('#gene-table tbody tr').length"
    assert page.evaluate(rows) == 25
    page.evaluate(
        "[...document.querySelectorAll('#gene-table thead button')].find((b) => b.textContent === 'length').click()"
    )
    lengths = page.evaluate("""[...document.querySelectorAll("#gene-table tbody tr")].map((row) => {
      return Number(row.cells[[...row.parentNode.parentNode.tHead.rows[0].cells].findIndex(
        (cell) => cell.textContent === "length")].textContent.replaceAll(",", ""));
    })""")
    assert lengths == sorted(lengths, reverse=True)
    page.evaluate("document.querySelector('#gene-table input').focus()")
    page.type("x:1-100_2")
    page.wait(f"{rows} === 1")
    assert page.evaluate(first) == "x:1-100_2"
    page.evaluate("document.querySelector('#gene-table .link').click()")
    assert page.evaluate(WHERE).startswith("x:1-100: ")


def test_light_and_dark(page):
    ground = "getComputedStyle(document.body).backgroundColor"
    before = page.evaluate(ground)
    page.evaluate("document.getElementById('theme').click()")
    dark = page.evaluate(ground)
    assert dark != before
    page.evaluate("document.getElementById('theme').click()")
    assert page.evaluate(ground) == before


def test_focus_goes_from_top_to_bottom(page):
    order = page.evaluate("""[...document.querySelectorAll("a, button, input, select, summary, [tabindex]")]
      .filter((one) => one.tabIndex >= 0 && one.offsetParent).map((one) => one.tabIndex)""")
    assert set(order) == {0}
    page.evaluate("document.getElementById('all').focus()")
    page.key("Tab")
    assert page.evaluate("document.activeElement.id") in ("stage", "all")


def test_nothing_was_complained_about_or_fetched(page, report):
    assert page.complaints == []
    assert page.requests == [report.resolve().as_uri()]
    assert not page.evaluate("document.getElementById('problem').textContent")


def test_a_phone_in_the_dark(report):
    with chromium.Page(report, width=390, height=840, dark=True) as page:
        page.wait(READY)
        assert page.evaluate("document.documentElement.scrollWidth") <= 390
        assert page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(20, 23, 28)"
        assert page.evaluate("document.getElementById('theme').textContent") == "Light"
        sizes = page.evaluate("""[...document.querySelectorAll(".buttons button")].map(
          (one) => one.getBoundingClientRect().height)""")
        assert min(sizes) >= 40
        assert page.complaints == []
