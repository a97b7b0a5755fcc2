"""HTML by construction: text is escaped wherever it comes in, and only `Markup` is taken as it is."""

from __future__ import annotations

from collections.abc import Mapping
from html import escape


class Markup(str):
    """HTML that may stand in a page as it is."""

    __slots__ = ()


Content = str | int | float | Markup
Attributes = Mapping[str, str | int | float]

_VOID = {"br", "col", "input", "meta"}


def text(content: Content) -> Markup:
    """Return content as HTML: `Markup` as it is, anything else escaped.

    >>> text("<b> & 'c'")
    '&lt;b&gt; &amp; &#x27;c&#x27;'
    """
    return content if isinstance(content, Markup) else Markup(escape(str(content), quote=True))


def join(*parts: Content) -> Markup:
    """Return parts one after the other."""
    return Markup("".join(map(text, parts)))


def element(tag: str, *parts: Content, attributes: Attributes | None = None) -> Markup:
    """Return an element around its parts; names of tags and attributes are the program's own, never data.

    >>> element("a", "1 < 2", attributes={"title": 'say "x"'})
    '<a title="say &quot;x&quot;">1 &lt; 2</a>'
    """
    given = "".join(f' {name}="{escape(str(value), quote=True)}"' for name, value in (attributes or {}).items())
    if tag in _VOID:
        return Markup(f"<{tag}{given}>")
    return Markup(f"<{tag}{given}>{join(*parts)}</{tag}>")


def shown(name: str, *, most: int = 200) -> str:
    """Return a name from a file so that all of it can be seen: what cannot be printed is spelled out, the rest cut.

    >>> shown("a\\u202eb"), shown("chr1")
    ('a\\\\u202eb', 'chr1')
    """
    name = name if name.isprintable() else ascii(name)[1:-1]
    return name if len(name) <= most else f"{name[: most - 1]}…"
