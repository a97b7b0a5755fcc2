"""The page: what stands in it, that names are text, that it is the same each time, its size, what it leaves out."""

from __future__ import annotations

import base64
import hashlib
import json
import re
import zlib
from html.parser import HTMLParser

import numpy as np
import pytest
from evaluation_samples import write_store
from gene_twins import genome, rotated
from report_samples import HOSTILE, NAMES, coding_sample, other_track

from genoformer.errors import FormatError, InputError
from genoformer.regions import Block
from genoformer.report import ReportSettings, build_report, gather, selection
from genoformer.store import SequenceTable, TrackStore, open_store
from genoformer.tracks import TOKENS


class Page(HTMLParser):
    """Elements, identifiers, texts and scripts of a page."""

    def __init__(self, source: bytes):
        super().__init__(convert_charrefs=True)
        self.source = source.decode()
        self.tags: list[tuple[str, dict]] = []
        self.words: list[str] = []
        self.scripts: list[tuple[dict, str]] = []
        self.feed(self.source)
        self.close()
        (block,) = [text for attributes, text in self.scripts if attributes.get("id") == "data"]
        self.data = json.loads(block)

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))
        if tag == "script":
            self.scripts.append((dict(attrs), ""))

    def handle_data(self, data):
        if self.tags and self.tags[-1][0] == "script" and self.scripts and not self.scripts[-1][1]:
            self.scripts[-1] = (self.scripts[-1][0], data)
        else:
            self.words.append(data)

    def packed(self, key):
        return json.loads(inflate(self.data[key]))

    def tile(self, number):
        tile = self.data["tiles"][number]
        return tile, np.frombuffer(inflate(tile["data"]), np.uint8).reshape(-1, tile["bases"])


def inflate(text):
    return zlib.decompress(base64.b64decode(text))


@pytest.fixture(scope="module")
def sample(tmp_path_factory):
    return coding_sample(tmp_path_factory.mktemp("report"))


@pytest.fixture(scope="module")
def page(sample):
    return Page(build_report(sample.store, ReportSettings(truth=str(sample.truth)), date="today"))


def test_everything_that_is_linked_is_there(page):
    identifiers = [attributes["id"] for _, attributes in page.tags if "id" in attributes]
    assert len(identifiers) == len(set(identifiers))
    links = [attributes["href"] for tag, attributes in page.tags if tag == "a"]
    assert {link[1:] for link in links} <= set(identifiers)
    used = set(re.findall(r'byId\("([\w-]+)"\)', page.source))
    assert used <= set(identifiers) | {"data"}
    for tag, attributes in page.tags:
        for key in ("for", "aria-controls", "aria-describedby"):
            assert attributes.get(key, "main") in identifiers, (tag, attributes)


def test_nothing_is_fetched_and_nothing_else_may_run(page):
    assert not re.search(r"""(src|href|url\(|import)\s*=?\s*["'(]?\s*(https?:)?//""", page.source)
    assert [a["href"] for tag, a in page.tags if tag in ("a", "link") and not a["href"].startswith("#")] == []
    assert not any(tag in ("img", "iframe", "link", "object", "embed", "base", "form") for tag, _ in page.tags)
    assert not any(key.startswith("on") or key == "style" for _, attributes in page.tags for key in attributes)
    (policy,) = [a["content"] for _, a in page.tags if a.get("http-equiv") == "Content-Security-Policy"]
    assert policy.startswith("default-src 'none'; ")
    assert "unsafe" not in policy
    style = re.search(r"<style>(.*?)</style>", page.source, re.DOTALL)[1]
    (program,) = [text for attributes, text in page.scripts if "type" not in attributes]
    for text in (style, program):
        assert f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'" in policy


def test_programs_set_text_only(page):
    (program,) = [text for attributes, text in page.scripts if "type" not in attributes]
    assert not re.search(r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|eval\(|new Function|fetch\(", program)


def test_names_are_text(page):
    assert page.source.count("<script") == page.source.count("</script>") == 2
    assert HOSTILE not in page.source
    assert page.packed("sequences")["name"] == NAMES
    assert f"{HOSTILE}_1" in page.packed("genes")["name"]
    words = " ".join(page.words)
    assert "perfect<b>" in words
    assert "genoformer predict <i>" in words
    assert not any(tag in ("b", "i") for tag, _ in page.tags)


def test_what_was_run_and_every_base(page, sample):
    words = " ".join(page.words)
    for said in (str(sample.store), str(sample.fasta), "window 100000", "What became of every base", "masked"):
        assert said in words
    with open_store(sample.store) as store:
        assert store.created.endswith("+00:00")
        assert f"{store.created[:10]} {store.created[11:19]} UTC" in words
    total = sum(len(one.bases) for one in sample.genomes.values())
    assert f"{total:,}" in words
    assert f"{total - 60:,}" in words  # predicted: all but the unknown sequence


def test_tables_and_genes(page, sample):
    sequences, genes, truth = (page.packed(key) for key in ("sequences", "genes", "truth"))
    assert sequences["length"] == [len(one.bases) for one in sample.genomes.values()]
    assert sequences["genes"] == [len(one.genes) for one in sample.genomes.values()]
    assert sequences["status"][-2:] == ["predicted", "masked: no known base"]
    assert sequences["predicted"] == [1.0] * 6 + [0.0]
    assert sequences["gc"][-2:] == [0.5, None]
    assert set(sequences["gene_f1"][:5]) == {1.0}
    placed = list(zip(genes["place"], genes["start"], genes["end"], genes["strand"], strict=True))
    expected = [(place, *gene) for place, one in enumerate(sample.genomes.values()) for gene in one.genes]
    assert placed == expected
    assert set(genes["match"]) == {"exact"}
    assert list(zip(truth["place"], truth["start"], truth["end"], truth["strand"], strict=True)) == expected
    assert not any(truth["missed"])
    assert len({len(column) for column in genes.values()}) == 1


def test_values_base_by_base(page, sample):
    found = {page.tile(k)[0]["place"]: page.tile(k) for k in range(len(page.data["tiles"]))}
    assert sorted(found) == [0, 1, 2, 3, 4, 5]  # the unknown sequence has no values
    for place, (name, one) in enumerate(list(sample.genomes.items())[:6]):
        tile, rows = found[place]
        assert (tile["start"], tile["bases"]) == (0, len(one.bases)), name
        assert bytes(rows[-1]).translate(bytes.maketrans(bytes(range(5)), b"ACGTN")) == one.bases
        for strand, first in ((1, 0), (-1, 3)):
            inside = np.zeros(len(one.bases), dtype=bool)
            for start, end, sign in one.genes:
                inside[start:end] |= sign == strand
            assert np.array_equal(rows[first : first + 3].max(axis=0) > 25, inside)


def test_the_same_page_each_time(sample):
    pages = [build_report(sample.store, ReportSettings(truth=str(sample.truth)), date=date) for date in ("1", "1", "2")]
    assert pages[0] == pages[1]
    assert pages[0] == pages[2].replace(b'<time id="date">2<', b'<time id="date">1<')
    assert b"UTC</time>" in build_report(sample.store)


def test_called_and_true_that_differ(tmp_path):
    """A gene of the truth that has values but was not called is missed, one without values is not."""
    one = genome(0, genes=6)
    start, end, _ = one.genes[2]
    values = one.values.copy()
    values[start:end] = 0.005
    values[start:end, 0] = 0.97
    values[one.genes[5][0] - 50 :] = np.nan
    sample = coding_sample(tmp_path, {"a": one._replace(values=values)})
    text = sample.truth.read_text().splitlines(keepends=True)
    sample.truth.write_text("".join(line for line in text if ".true0" not in line))
    page = Page(build_report(sample.store, ReportSettings(truth=str(sample.truth))))
    genes, truth = page.packed("genes"), page.packed("truth")
    assert [truth["start"][k] for k, missed in enumerate(truth["missed"]) if missed] == [start]
    assert [genes["start"][k] for k, match in enumerate(genes["match"]) if match == "wrong"] == [one.genes[0][0]]
    assert genes["match"].count("exact") == len(genes["match"]) - 1 == 3


@pytest.mark.parametrize("size", [0.1, 0.3, 1])
def test_no_larger_than_asked(tmp_path, size):
    rng = np.random.default_rng(0)
    made = genome(3, genes=1)
    noise = rng.dirichlet(np.ones(7), 300_000).astype(np.float16)
    store = write_store(tmp_path / "x.h5", {"a": noise, "b": made.values})
    source = build_report(store, ReportSettings(size=size, detail=("b",)))
    page = Page(source)
    limits = " ".join(page.words)
    detailed = sum(tile["bases"] for tile in page.data["tiles"])
    assert len(source) <= size * 1e6 or not page.data["tiles"]
    if size == 1:
        assert len(source) > 0.8e6
        assert page.data["tiles"][0]["place"] == 1  # what was asked for comes first
        assert f"Base by base are {detailed:,} bases" in limits


def test_many_short_sequences_are_no_larger_either(tmp_path):
    rng = np.random.default_rng(0)
    made = {f"s{k}": rng.dirichlet(np.ones(7), 40).astype(np.float16) for k in range(1500)}
    source = build_report(write_store(tmp_path / "x.h5", made), ReportSettings(size=0.3))
    assert 0.29e6 < len(source) <= 0.3e6
    assert 100 < len(Page(source).data["tiles"]) < 1500


def test_a_page_of_many_says_what_it_leaves_out(tmp_path, monkeypatch):
    monkeypatch.setattr(selection.select, "__kwdefaults__", {"most": 20})
    monkeypatch.setattr(gather, "GENES", 30)
    made = {f"s{k}": genome(k, genes=1 + k % 3) for k in range(40)}
    sample = coding_sample(tmp_path, made)
    page = Page(build_report(sample.store, ReportSettings(truth=str(sample.truth))))
    words = " ".join(page.words)
    assert "20 longest of 40 sequences" in words
    lengths = sorted((len(one.bases) for one in made.values()), reverse=True)[:20]
    assert sorted(page.packed("sequences")["length"], reverse=True) == lengths
    genes = page.packed("genes")
    assert len(genes["place"]) == 30
    assert genes["place"] == sorted(genes["place"])
    assert re.search(r"Listed and drawn are 30 of \d\d genes", words)


def test_without_the_sequences(tmp_path):
    sample = coding_sample(tmp_path)
    sample.fasta.unlink()
    page = Page(build_report(sample.store, ReportSettings(truth=str(sample.truth))))
    words = " ".join(page.words)
    assert f"'{sample.fasta}' is not there" in words
    assert page.data["genes"] is None
    assert page.data["overview"]["gc"] is None
    given = Page(build_report(sample.store, ReportSettings(genes=str(sample.truth), truth=str(sample.truth))))
    assert len(given.packed("genes")["name"]) == sum(len(one.genes) for one in sample.genomes.values())
    assert set(given.packed("genes")["match"]) == {"exact"}


def test_given_genes_have_their_start_codons(sample):
    genes = Page(build_report(sample.store, ReportSettings(genes=str(sample.truth)))).packed("genes")
    called = Page(build_report(sample.store)).packed("genes")
    assert genes["codon"] == called["codon"]
    assert set(genes["codon"]) <= {"ATG", "GTG", "TTG"}


def test_a_gene_over_the_origin(tmp_path):
    one = genome(0)
    turned = rotated(one, one.genes[2][0] + 50)
    sample = coding_sample(tmp_path, {"ring": turned})
    genes = Page(build_report(sample.store, ReportSettings(circular=("ring",)))).packed("genes")
    (over,) = [k for k, end in enumerate(genes["end"]) if end > len(turned.bases)]
    assert genes["end"][over] - genes["start"][over] == one.genes[2][1] - one.genes[2][0]


@pytest.mark.parametrize(("kind", "channels"), [("class", 1), ("class", 5), ("signal", 1), ("signal", 14)])
def test_other_tracks(tmp_path, kind, channels):
    rng = np.random.default_rng(0)
    array = rng.dirichlet(np.ones(channels), 1000) if kind == "class" else rng.normal(size=(1000, channels))
    array[300:400] = np.nan
    store = write_store(tmp_path / "x.h5", {"a": array, "b": array[:1]}, other_track(kind, channels))
    page = Page(build_report(store))
    assert len(page.data["overview"]["mean"]) == channels
    assert (page.data["overview"]["low"] is None) == (kind == "class")
    means = np.frombuffer(inflate(page.data["overview"]["mean"][0]), np.uint8)
    assert (means[19:25] == 255).all()
    assert (means[:18] < 255).all()
    assert page.data["genes"] is None


def test_other_tracks_with_truth(tmp_path):
    labels = np.repeat([0, 1, 2, 1], 250)
    store = write_store(tmp_path / "c.h5", {"a": np.eye(3)[labels]}, other_track("class"))
    bed = tmp_path / "c.bed"
    bed.write_text("a\t250\t500\t<b>1\na\t500\t750\t<b>2\na\t750\t1000\t<b>1\n")
    page = Page(build_report(store, ReportSettings(truth=str(bed))))
    true = np.frombuffer(inflate(page.data["overview"]["true_classes"]), np.uint8)
    assert true.tolist() == [int(np.bincount(labels[k : k + 16]).argmax()) for k in range(0, 1000, 16)]
    assert page.packed("sequences")["f1"] == [1.0]
    signal = np.arange(1000.0)[:, None]
    store = write_store(tmp_path / "s.h5", {"a": signal}, other_track("signal", 1))
    graph = tmp_path / "s.bedgraph"
    graph.write_text("".join(f"a\t{k}\t{k + 1}\t{k}\n" for k in range(500)))
    page = Page(build_report(store, ReportSettings(truth={"<b>0": str(graph)})))
    assert page.packed("sequences")["pearson"] == [1.0]
    (true,) = page.data["overview"]["true_signals"]
    (mean,) = page.data["overview"]["mean"]
    assert inflate(true)[:31] == inflate(mean)[:31]
    assert set(inflate(true)[32:]) == {255}


def test_strands_from_bed(tmp_path):
    sample = coding_sample(tmp_path)
    bed = tmp_path / "x.bed"
    bed.write_text("".join(f"{name}\t{start}\t{end}\t.\t0\t{'+-'[strand < 0]}\n" for name, one in sample.genomes.items()
                           for start, end, strand in one.genes))  # fmt: skip
    page = Page(build_report(sample.store, ReportSettings(truth=str(bed))))
    assert page.data["overview"]["true_class_names"] == ["none", "+", "-"]
    assert page.data["truth"] is None


@pytest.mark.parametrize("made", [{}, {"a": np.zeros((0, 7))}, {"a": np.eye(7)[[1]]}, {"a": np.full((9, 7), np.nan)}])
def test_next_to_nothing(tmp_path, made):
    page = Page(build_report(write_store(tmp_path / "x.h5", made)))
    assert page.packed("sequences")["name"] == list(made)


def test_what_cannot_be_shown(tmp_path):
    tokens = tmp_path / "tokens.h5"
    table = SequenceTable.build(["a"], [4])
    with TrackStore.create(tokens, table, [TOKENS], provenance={}, blocks=np.array([[0, 4]]), dtype="uint8") as writer:
        writer.write(Block("a", 0, {TOKENS.name: np.zeros((4, 1), np.uint8)}))
        writer.finish()
    with pytest.raises(FormatError, match="holds codes, not predictions"):
        build_report(tokens)
    sample = coding_sample(tmp_path)
    for settings, error, words in [
        (ReportSettings(track="x"), InputError, "no track 'x'"),
        (ReportSettings(fasta=str(sample.truth)), FormatError, "GFF3"),
        (ReportSettings(genes=str(sample.fasta)), FormatError, "FASTA"),
        (ReportSettings(truth=str(tmp_path / "no.gff")), InputError, "no such file"),
        (ReportSettings(detail=("nowhere:1-2",)), InputError, "nowhere"),
        (ReportSettings(truth={"a": "x", "b": "y"}), InputError, "one annotation"),
    ]:
        with pytest.raises(error, match=words):
            build_report(sample.store, settings)
    other = tmp_path / "other.fa"
    other.write_text(sample.fasta.read_text().replace("A", "C"))
    with pytest.raises(InputError, match="is not the one that"):
        build_report(sample.store, ReportSettings(fasta=str(other)))


def test_progress_counts_every_base_twice(sample):
    done: list[int] = []
    build_report(sample.store, report=done.append)
    with open_store(sample.store) as store:
        assert sum(done) == 2 * store.sequences.total_bases
