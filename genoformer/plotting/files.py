"""Figures as files: what can be drawn, told before any work is done, and written so that no file is half a figure."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from genoformer.errors import ConfigError, ResourceError
from genoformer.formats.output import writing

PLOTS = (".png", ".svg", ".pdf")
"""Endings of the kinds of figures."""


def need_matplotlib() -> None:
    """Raise ResourceError if matplotlib is not installed."""
    try:
        import matplotlib.figure  # noqa: F401
    except ImportError as error:
        raise ResourceError("plots need matplotlib; get it with: pip install 'genoformer[plots]'") from error


def check_plot(path: Path) -> None:
    """Raise before any work is done if nothing can be drawn, or not to that file.

    Raises
    ------
    ResourceError : matplotlib is not installed
    ConfigError : the ending is none of `PLOTS`
    """
    need_matplotlib()
    if path.suffix.lower() not in PLOTS:
        raise ConfigError(f"{path}: the name of a plot must end in {', '.join(PLOTS[:-1])} or {PLOTS[-1]}")


def write_figure(figure: Any, path: str | os.PathLike[str], *, dpi: int) -> None:
    """Write a figure of matplotlib in the kind that its name ends in; it appears once it is whole.

    The same figure gives the same bytes: no date is written.

    Raises
    ------
    ConfigError : the ending is none of `PLOTS`
    ResourceError : it cannot be written there
    """
    check_plot(Path(path))
    from matplotlib import rc_context

    kind = Path(path).suffix[1:].lower()
    metadata = {"svg": {"Date": None}, "pdf": {"CreationDate": None}}.get(kind)
    with (
        rc_context({"svg.hashsalt": "genoformer", "pdf.fonttype": 42, "hatch.linewidth": 0.4}),
        writing(path) as stream,
    ):
        figure.savefig(stream, format=kind, dpi=dpi, metadata=metadata)
