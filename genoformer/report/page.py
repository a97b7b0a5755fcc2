"""The page as a whole: the template, its style and programs, and the policy that nothing else may run in it."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from importlib.resources import files
from string import Template
from typing import Any

from genoformer.report.embed import json_block, policy
from genoformer.report.markup import Markup, text

STYLES = ("base", "layout", "table", "browser")
SCRIPTS = (
    "util", "theme", "data", "values", "view", "lanes", "features", "draw", "readout", "search", "finder", "browser",
    "controls", "table", "main",
)  # fmt: skip
"""Files of assets/js, in the order in which they are joined into one program."""


@cache
def _read(name: str) -> str:
    return (files("genoformer.report") / "assets" / name).read_text(encoding="utf-8")


@cache
def style() -> str:
    """Return the whole style."""
    return "\n" + "\n".join(_read(f"css/{name}.css") for name in STYLES)


@cache
def script() -> str:
    """Return the whole program, in a scope of its own."""
    return '\n"use strict";\n(() => {\n' + "\n".join(_read(f"js/{name}.js") for name in SCRIPTS) + "})();\n"


def render(parts: Mapping[str, Markup | str], data: Any) -> bytes:
    """Return the page.

    Parameters
    ----------
    parts : what stands in the places of assets/page.html; text is escaped
    data : for the programs, as JSON
    """
    filled = {name: text(part) for name, part in parts.items()}
    filled |= {"policy": text(policy([script()], [style()])), "style": Markup(style()), "script": Markup(script())}
    filled["data"] = json_block("data", data)
    page = Template(_read("page.html")).substitute(filled)
    return page.encode("utf-8", "replace")
