"""The parts of a page that are plain text and tables: what was run, and what became of every base."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from genoformer.report.gather import Gathered
from genoformer.report.markup import Content, Markup, element, join, shown, text
from genoformer.report.values import Values
from genoformer.store import TrackStore

_ACCOUNT = ("predicted", "masked", "skipped", "not_requested")
_SETTINGS = ("window", "overlap", "genetic-code", "strand-average", "precision")


def cards(pairs: Iterable[tuple[str, str]]) -> Markup:
    """Return a few numbers, large."""
    made = [element("div", element("dt", label), element("dd", value)) for label, value in pairs]
    return element("dl", *made, attributes={"class": "cards"})


def table(
    heads: Iterable[str], rows: Iterable[Iterable[Content]], *, caption: str = "", style: str = "numbers"
) -> Markup:
    """Return a table whose first column is a heading; it scrolls by itself where it is too wide."""
    head = element("tr", *[element("th", name, attributes={"scope": "col"}) for name in heads])
    body = []
    for row in rows:
        first, *rest = row
        cells = [element("th", first, attributes={"scope": "row"}), *[element("td", cell) for cell in rest]]
        body.append(element("tr", *cells))
    parts = [element("caption", caption)] if caption else []
    made = element("table", *parts, element("thead", head), element("tbody", *body), attributes={"class": style})
    where: dict[str, str | int] = {
        "class": "scrolls",
        "tabindex": 0,
        "role": "region",
        "aria-label": caption or "Table",
    }
    return element("div", made, attributes=where)


def figure(title: str, chart: Markup, *, note: str = "") -> Markup:
    """Return a chart with its title."""
    said = [element("p", note, attributes={"class": "note"})] if note else []
    return element("figure", element("figcaption", title), chart, *said)


def key_numbers(store: TrackStore, values: Values, gathered: Gathered) -> Markup:
    """Return what one wants to know first."""
    total, predicted = store.sequences.total_bases, int(values.predicted.sum())
    pairs = [
        ("sequences", f"{len(store.sequences):,}"),
        ("bases", f"{total:,}"),
        ("predicted", share(predicted, total)),
    ]
    if gathered.has_bases:
        pairs.append(("GC", share(int(gathered.gc.sum()), int(gathered.known.sum()))))
    if gathered.has_genes:
        pairs.append(("genes", f"{int(gathered.genes.sum()):,}"))
        pairs.append(("coding density", share(int(gathered.covered.sum()), predicted)))
    if values.track.kind == "class":
        mean = float(values.certainty.sum()) / predicted if predicted else None
        pairs.append(("mean confidence", "-" if mean is None else f"{mean:.3f}"))
    return cards(pairs)


def share(part: int, whole: int) -> str:
    """Write a share in percent, rounded towards the middle: 100% and 0% only where all or nothing is meant.

    >>> share(1, 3), share(99_999, 100_000), share(1, 100_000), share(5, 5), share(0, 0)
    ('33.3%', '99.9%', '0.1%', '100%', '-')
    """
    if not whole:
        return "-"
    if part in (0, whole):
        return "100%" if part else "0%"
    return f"{min(max(100 * part / whole, 0.1), 99.9):.1f}%"


def what_was_run(store: TrackStore, genes_from: str) -> Markup:
    """Return how the predictions came about, as the store tells it."""
    rows = [element("div", element("dt", name), element("dd", value)) for name, value in _facts(store, genes_from)]
    return element("dl", *rows, attributes={"class": "facts"})


def _facts(store: TrackStore, genes_from: str) -> Iterator[tuple[str, Markup]]:
    metadata = store.metadata
    identity = _mapping(metadata.get("identity"))
    yield "predictions", code(str(store.path))
    if metadata.get("input"):
        yield "input", code(str(metadata["input"]))
    if identity.get("model"):
        digest = str(identity.get("model-sha256", ""))[:16]
        said = text(shown(str(identity["model"])))
        yield "model", join(said, " (SHA-256 ", code(digest), ")") if digest else said
    for track in store.tracks.values():
        channels = ", ".join(shown(channel) for channel in track.channels)
        yield "track", text(f"{shown(track.name)}: {track.kind}, {shown(track.units)}; channels {channels}")
    settings = [f"{key.replace('-', ' ')} {_word(identity[key])}" for key in _SETTINGS if key in identity]
    if settings:
        yield "settings", text(shown(", ".join(settings)))
    if metadata.get("command"):
        yield "command", code(str(metadata["command"]))
    yield "written by", text(f"{shown(store.generated_by)}, layout {store.format_version}")
    if store.created:
        yield "begun", text(shown(store.created).replace("T", " ").replace("+00:00", " UTC"))
    versions = _mapping(metadata.get("versions"))
    if versions:
        yield "versions", text(shown(", ".join(f"{name} {version}" for name, version in versions.items())))
    if genes_from:
        yield "genes", text(shown(genes_from, most=1000))


def _word(value: Any) -> str:
    return {True: "yes", False: "no"}[value] if isinstance(value, bool) else str(value)


def code(words: str) -> Markup:
    """Return words as they were typed."""
    return element("code", shown(words, most=2000))


def _mapping(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def account(store: TrackStore, values: Values) -> Markup:
    """Return what became of every base and every letter of the input."""
    counts = _mapping(store.metadata.get("accounting"))
    numbers = {name: int(counts.get(name, 0)) for name in _ACCOUNT}
    total = int(counts.get("total", 0)) or store.sequences.total_bases
    if not counts:
        predicted = int(values.predicted.sum())
        numbers = {"predicted": predicted, "not predicted": total - predicted}
    rows = [(name.replace("_", " "), f"{number:,}", share(number, total)) for name, number in numbers.items()]
    rows.append(("total", f"{total:,}", share(total, total)))
    parts = [table(("bases", "number", "share"), rows, caption="What became of every base")]
    letters = _mapping(store.metadata.get("letters"))
    if letters:
        said = [(name.replace("_", " "), f"{int(number):,}") for name, number in letters.items()]
        parts.append(table(("letters", "number"), said, caption="Letters; all but known ones are read as N"))
    left_out = _mapping(store.metadata.get("left-out"))
    if any(left_out.values()):
        said = [(shown(str(reason)), f"{int(number):,}") for reason, number in left_out.items()]
        parts.append(table(("left out", "number"), said, caption="Left out of the input"))
    return element("div", *parts, attributes={"class": "beside"})
