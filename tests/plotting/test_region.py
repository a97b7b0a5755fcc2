"""Figures: what is drawn is what the store and the files say, at the ends too; legible or left out."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest
from export_samples import SIGNAL, coding_values, write_store
from gene_twins import genome
from hypothesis import given
from hypothesis import strategies as st

from genoformer.errors import ConfigError, InputError
from genoformer.plotting.arrows import Arrow, within
from genoformer.plotting.files import check_plot
from genoformer.plotting.panels import round_length, unit_of
from genoformer.plotting.style import shortened
from genoformer.plotting.values import gc_share, read_drawn
from genoformer.regions import Block, Region
from genoformer.store import open_store
from genoformer.tracks import CODING_FRAME, Track

matplotlib = pytest.importorskip("matplotlib")

GENES = [(0, 300, 1), (330, 630, -1), (700, 1000, 1)]
CLASSES = Track("site", "class", ("none", "site", "other"), "probability", (0, 1, 2))


def plot(*arguments, **options):
    from genoformer.plotting import plot_region

    return plot_region(*arguments, **options)


@pytest.fixture(scope="module")
def coding(tmp_path_factory):
    values = {"a|$1$": coding_values(1000, GENES)}
    values["a|$1$"][640:690] = np.nan
    with open_store(write_store(tmp_path_factory.mktemp("plots") / "x.h5", values, CODING_FRAME)) as store:
        yield store


@given(st.integers(1, 40), st.integers(0, 960), st.integers(1, 1000))
def test_bins_are_means_of_bases(most, start, length):
    values = np.random.default_rng(0).normal(size=(1000, 2)).astype(np.float16)
    values[400:450] = np.nan

    def blocks(track, region):
        for first in range(region.start, region.end, 77):
            yield Block("a", first, {track: values[first : min(first + 77, region.end)]})

    store = SimpleNamespace(tracks={"signal": SIGNAL}, blocks=blocks)
    region = Region("a", start, min(1000, start + length))
    drawn = read_drawn(store, "signal", region, most_bins=most)
    assert len(drawn.means) <= most
    assert (drawn.edges[0], drawn.edges[-1]) == (region.start, region.end)
    assert np.diff(drawn.edges).min() >= 1
    for number, (low, high) in enumerate(zip(drawn.edges[:-1], drawn.edges[1:], strict=True)):
        here = values[low:high].astype(np.float64)
        here = here[~np.isnan(here[:, 0])]
        if len(here):
            assert np.allclose(drawn.means[number], here.mean(axis=0), atol=1e-3)
            assert np.array_equal(drawn.low[number], here.min(axis=0))
            assert np.array_equal(drawn.high[number], here.max(axis=0))
        else:
            assert np.isnan(drawn.means[number]).all()


def test_reading_frames_stay_along_a_gene(coding):
    drawn = read_drawn(coding, CODING_FRAME.name, Region("a|$1$", 0, 300), most_bins=10)
    assert drawn.channels == ("+0", "+1", "+2", "-0", "-1", "-2")
    assert np.allclose(drawn.means[:, 0], 0.94, atol=1e-3)
    assert np.allclose(drawn.means[:, 1:], 0.01, atol=1e-3)


def polygons(panel):
    """Return (first base, last base, lane) of each gene drawn, from 1."""
    from matplotlib.collections import PolyCollection

    shapes = [
        path.vertices for found in panel.collections if type(found) is PolyCollection for path in found.get_paths()
    ]
    return sorted((shape[:, 0].min() + 0.5, shape[:, 0].max() - 0.5, round(shape[:, 1].mean())) for shape in shapes)


def test_genes_on_both_strands_and_gaps(coding, tmp_path):
    path = tmp_path / "g.gff3"
    rows = [f"a|$1$\tx\tCDS\t{a + 1}\t{b}\t.\t{'+' if s > 0 else '-'}\t0\tID=cds-g{a}" for a, b, s in GENES]
    path.write_text("\n".join(["##gff-version 3", *rows, ""]))
    axes = plot(coding, "a|$1$", genes=path, truth=path)
    assert list(axes) == ["genes", "truth", "values"]
    assert polygons(axes["genes"]) == polygons(axes["truth"]) == [(1, 300, 1), (331, 630, 0), (701, 1000, 1)]
    assert {text.get_text() for text in axes["genes"].texts} >= {"g0", "g330", "g700"}
    assert axes["values"].get_xlim() == (0.5, 1000.5)
    axes["values"].figure.canvas.draw()
    part = plot(coding, "a|$1$:299-720", genes=path)
    assert polygons(part["genes"]) == [(299, 300, 1), (331, 630, 0), (701, 720, 1)]
    stairs = [patch for patch in part["values"].patches if type(patch).__name__ == "StepPatch"]
    assert len(stairs) == 6
    assert np.isnan(stairs[0].get_data().values).sum() == 50


def test_genes_that_are_called_are_those_of_export(tmp_path):
    made = genome(0)
    fasta = tmp_path / "x.fa"
    fasta.write_bytes(b">first\nACGT\n>a\n" + made.bases + b"\n")
    values = {"first": np.full((4, 7), np.nan), "a": made.values}
    store = write_store(tmp_path / "x.h5", values, CODING_FRAME, input=str(fasta))
    axes = plot(store, "a", genes="call", fasta=fasta)
    found = [(int(a) - 1, int(b), 1 if lane else -1) for a, b, lane in polygons(axes["genes"])]
    assert found == made.genes
    assert "gc" in axes
    with pytest.raises(InputError, match="give the sequences that were predicted"):
        plot(store, "a", genes="call")
    other = tmp_path / "other.fa"
    other.write_text(">a\nACGT\n")
    with pytest.raises(InputError):
        plot(store, "a", fasta=other)


def test_a_gene_over_the_origin_is_at_both_ends():
    over = Arrow(((900, 1100),), 1, "x")
    assert [(a.start, a.end) for a in within([over], Region("c", 0, 1000), 1000)] == [(900, 1100), (-100, 100)]
    assert within([over], Region("c", 200, 800), 1000) == []
    assert [a.start for a in within([over], Region("c", 50, 60), 1000)] == [-100]


@pytest.mark.parametrize("length", [1, 2, 11, 60, 300])
def test_short_regions(coding, length):
    axes = plot(coding, Region("a|$1$", 1000 - length, 1000))
    axes["values"].figure.canvas.draw()
    ticks = [label.get_text() for label in axes["values"].get_xticklabels() if label.get_text()]
    assert all("." not in tick for tick in ticks)


def test_signals_and_their_truth(tmp_path):
    values = np.random.default_rng(0).gamma(2, 1, size=(3000, 2))
    values[100:900] = np.nan
    store = write_store(tmp_path / "x.h5", {"a": values})
    truth = tmp_path / "t.bedgraph"
    truth.write_text("a\t0\t1000\t5\na\t2000\t3000\t2\n")
    axes = plot(store, "a", truth={"s+": truth}, width=5)
    lines = {line.get_label(): line.get_ydata() for line in axes["values"].lines}
    assert np.nanmax(lines["s+ truth"]) == 5
    assert np.isnan(lines["s+ truth"]).sum() == 332  # bins of three bases
    assert np.isnan(lines["s- truth"]).all()
    assert "not predicted" in {text.get_text() for text in axes["values"].texts}
    axes["values"].figure.canvas.draw()


def test_classes_and_their_truth(tmp_path):
    values = np.random.default_rng(0).dirichlet([1, 1, 1], size=200)
    store = write_store(tmp_path / "x.h5", {"a": values}, CLASSES)
    truth = tmp_path / "t.bed"
    truth.write_text("a\t0\t10\tsite\na\t150\t200\tother\n")
    axes = plot(store, "a:1-200", truth=truth)
    assert list(axes) == ["labels", "values"]
    assert [text.get_text() for text in axes["values"].get_legend().get_texts()] == list(CLASSES.channels)
    spans = [path.get_extents() for found in axes["labels"].collections for path in found.get_paths()]
    assert sorted((span.x0, span.x1) for span in spans) == [(0.5, 10.5), (150.5, 200.5)]


@pytest.mark.parametrize("kind", ["png", "svg", "pdf"])
def test_files(coding, tmp_path, kind):
    from genoformer.plotting import save_figure

    path = tmp_path / f"x.{kind}"
    contents = []
    for _ in range(2):
        save_figure(plot(coding, "a|$1$", width=4), path, dpi=60)
        contents.append(path.read_bytes())
    assert contents[0].startswith({"png": b"\x89PNG", "svg": b"<?xml", "pdf": b"%PDF"}[kind])
    assert contents[0] == contents[1]
    assert [found.name for found in tmp_path.iterdir()] == [path.name]


def test_what_cannot_be(coding, tmp_path):
    for region, words in (
        ("b", "no sequence 'b'"),
        (Region("a|$1$", 5, 5), "no base"),
        ("a|$1$:1-1001", "past the end"),
    ):
        with pytest.raises(InputError, match=words):
            plot(coding, region)
    with pytest.raises(InputError, match="no track 'x'"):
        plot(coding, "a|$1$", track="x")
    for name in ("x.docx", "x.jpg", "x.tif", "x", "png"):
        with pytest.raises(ConfigError, match=r"must end in \.png, \.svg or \.pdf$"):
            check_plot(tmp_path / name)


def test_words():
    assert [round_length(length) for length in (1, 4.9, 5, 99, 1999, 20_000)] == [1, 2, 5, 50, 1000, 20_000]
    assert [unit_of(length)[1] for length in (1, 1999, 2000, 1_999_999, 2_000_000)] == [
        "bases",
        "bases",
        "kb",
        "kb",
        "Mb",
    ]
    assert shortened("a\tb$" + "x" * 50) == "a\ufffdb\\$" + "x" * 35 + "…"


def test_gc():
    assert gc_share(b"GGGGAAAANNNN", most_bins=3, window=4).tolist()[:2] == [1.0, 0.0]
    assert np.isnan(gc_share(b"GGGGAAAANNNN", most_bins=3, window=4)[2])
    assert gc_share(b"gc", most_bins=1, window=51).tolist() == [1.0]
