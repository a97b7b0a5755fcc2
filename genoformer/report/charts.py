"""Small charts as SVG: histograms, bars and curves; colors come from the page's style."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

import numpy as np

from genoformer.report.markup import Attributes, Markup, element, join

WIDTH, HEIGHT = 380, 230
_LEFT, _RIGHT, _TOP, _BOTTOM = 58, 22, 10, 42


class Line(NamedTuple):
    """A line of a chart."""

    name: str
    xs: Sequence[float]
    ys: Sequence[float]
    style: str
    """class of the page's style"""


def number(value: float) -> str:
    """Write a number for an axis.

    >>> number(1500), number(0.25), number(2_500_000)
    ('1,500', '0.25', '2.5 M')
    """
    if abs(value) >= 1e6:
        return f"{value / 1e6:g} M"
    return f"{value:,.0f}" if value == round(value) else f"{value:g}"


def ticks(low: float, high: float, *, most: int = 5) -> list[float]:
    """Return round numbers from low to high, at most so many."""
    width = (high - low) / most
    if width <= 0:
        return [low]
    power = 10.0 ** math.floor(math.log10(width))
    step = next(power * factor for factor in (1, 2, 5, 10) if power * factor >= width * (1 - 1e-9))
    first = math.ceil(low / step - 1e-9)
    return [round(k * step, 12) for k in range(first, math.floor(high / step + 1e-9) + 1)]


def histogram(
    edges: Sequence[float], counts: Sequence[float], *, across: str, up: str, words: Callable[[float], str] = number
) -> Markup:
    """Draw counts between edges.

    Parameters
    ----------
    edges : one more than ``counts``
    across, up : what the axes are
    words : how an edge is written
    """
    frame = _Frame(edges[0], edges[-1], max([*counts, 0]) or 1)
    bars = []
    for low, high, count in zip(edges, edges[1:], counts, strict=False):
        left, right, top = frame.x(low), frame.x(high), frame.y(count)
        title = element("title", f"{words(low)} to {words(high)}: {count:,.0f}")
        box = {"x": _f(left + 0.5), "y": _f(top), "width": _f(max(right - left - 1, 0.5)),
               "height": _f(HEIGHT - _BOTTOM - top), "class": "bar"}  # fmt: skip
        bars.append(element("rect", title, attributes=box))
    return _svg(frame.axes(across, up), *bars, label=f"Histogram: {up} by {across}")


def bars(counts: Iterable[tuple[str, int]], *, label: str) -> Markup:
    """Draw a horizontal bar for each of a few names, with its count and share."""
    rows = list(counts)
    total, most = sum(count for _, count in rows) or 1, max([count for _, count in rows] or [1]) or 1
    step = min(30.0, (HEIGHT - 20) / max(len(rows), 1))
    parts = []
    for k, (name, count) in enumerate(rows):
        y = 10 + k * step
        width = (WIDTH - 190) * count / most
        box: dict[str, str | int | float] = {
            "x": 66,
            "y": _f(y + 3),
            "width": _f(width),
            "height": _f(step - 6),
            "class": "bar",
        }
        parts += [
            _text(58, y + step * 0.62, name, anchor="end"),
            element("rect", attributes=box),
            _text(72 + width, y + step * 0.62, f"{count:,} ({100 * count / total:.1f}%)"),
        ]
    return _svg(*parts, label=label, height=20 + step * len(rows))


def curves(
    lines: Iterable[Line], *, across: str, up: str, columns: Sequence[tuple[float, float, float]] = ()
) -> Markup:
    """Draw lines over the unit square, with bars (left, right, height) behind them."""
    frame = _Frame(0, 1, 1)
    parts = [frame.axes(across, up)]
    for low, high, height in columns:
        top = frame.y(height)
        parts.append(element("rect", attributes={
            "x": _f(frame.x(low)), "y": _f(top), "width": _f(frame.x(high) - frame.x(low)),
            "height": _f(HEIGHT - _BOTTOM - top), "class": "faint"}))  # fmt: skip
    for line in lines:
        points = " ".join(f"{_f(frame.x(x))},{_f(frame.y(y))}" for x, y in zip(line.xs, line.ys, strict=True))
        title = element("title", line.name)
        parts.append(element("polyline", title, attributes={"points": points, "class": f"line {line.style}"}))
    return _svg(*parts, label=f"{up} against {across}")


class _Frame:
    """Where values lie on the drawing; both axes are linear, the vertical one begins at 0."""

    def __init__(self, low: float, high: float, top: float):
        self.low, self.high, self.top = low, high if high > low else low + 1, top

    def x(self, value: float) -> float:
        return _LEFT + (value - self.low) / (self.high - self.low) * (WIDTH - _LEFT - _RIGHT)

    def y(self, value: float) -> float:
        return _TOP + (1 - value / self.top) * (HEIGHT - _TOP - _BOTTOM)

    def axes(self, across: str, up: str) -> Markup:
        base = HEIGHT - _BOTTOM
        parts = []
        for value in ticks(0, self.top, most=6):
            y = _f(self.y(value))
            parts += [
                element("line", attributes={"x1": _LEFT, "x2": WIDTH - _RIGHT, "y1": y, "y2": y, "class": "grid"}),
                _text(_LEFT - 6, self.y(value) + 4, number(value), anchor="end"),
            ]
        for value in ticks(self.low, self.high):
            parts.append(_text(self.x(value), base + 16, number(value), anchor="middle"))
        parts.append(_text((WIDTH + _LEFT - _RIGHT) / 2, HEIGHT - 6, across, anchor="middle", style="axis"))
        middle = (_TOP + base) / 2
        turned = {"transform": f"rotate(-90 12 {_f(middle)})"}
        parts.append(_text(12, middle, up, anchor="middle", style="axis", more=turned))
        return join(*parts)


def _text(
    x: float, y: float, words: str, *, anchor: str = "start", style: str = "tick", more: Attributes | None = None
) -> Markup:
    given = {"x": _f(x), "y": _f(y), "text-anchor": anchor, "class": style, **(more or {})}
    return element("text", words, attributes=given)


def _svg(*parts: Markup, label: str, height: float = HEIGHT) -> Markup:
    given = {"viewBox": f"0 0 {WIDTH} {_f(height)}", "role": "img", "aria-label": label, "class": "chart"}
    return element("svg", *parts, attributes=given)


def _f(value: float) -> str:
    return f"{value:.1f}".removesuffix(".0")


def counted_in(values: Iterable[float], edges: Sequence[float]) -> list[int]:
    """Count values between edges; what lies beyond the last one is counted in the last bin."""
    array = np.asarray(list(values), dtype=np.float64).clip(edges[0], edges[-1])
    return np.histogram(array, bins=np.asarray(edges))[0].tolist()
