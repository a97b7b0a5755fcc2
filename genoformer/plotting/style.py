"""How figures look: colors that people with any color vision can tell apart, type that is read from afar.

The colors are those of the report: blues for the forward strand, oranges for the reverse one.
"""

from __future__ import annotations

from typing import Any

FORWARD = ("#1f5a99", "#3f8fd0", "#86bde8")
REVERSE = ("#a84a0b", "#e2711d", "#f2a968")
"""A color for each reading frame of a strand."""
OTHERS = ("#6b4fa0", "#2f8f7f", "#b0327a", "#8a7a1f", "#4a5a8c")
NOTHING = "#a8adb5"
INK, SOFT, RULE, GAP = "#1b1f24", "#59626d", "#d9dde2", "#eceef1"
TRUTH, GC = "#5b5f66", "#4d7f3a"
FONT = 11
"""Points."""


def shortened(name: str, most: int = 40) -> str:
    """Make a name printable, and short enough for a figure, whose mathematics it must not start."""
    text = "".join(letter if letter.isprintable() else "\ufffd" for letter in name)
    text = text if len(text) <= most else f"{text[: most - 1]}…"
    return text.replace("$", r"\$")


def plain(panel: Any) -> None:
    """Take away what a panel does not need, and make its axes quiet."""
    panel.spines[["top", "right"]].set_visible(False)
    panel.spines[["left", "bottom"]].set_color(SOFT)
    panel.tick_params(labelsize=FONT - 1, color=SOFT, labelcolor=INK, length=3)


def channel_colors(channels: tuple[str, ...], strands: list[str]) -> list[str]:
    """Return a color for each channel: shades by strand, others for those without one."""
    used = {"+": 0, "-": 0, ".": 0}
    found = []
    for _, strand in zip(channels, strands, strict=True):
        shades = {"+": FORWARD, "-": REVERSE, ".": OTHERS}[strand]
        found.append(shades[used[strand] % len(shades)])
        used[strand] += 1
    return found
