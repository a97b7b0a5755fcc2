"""genoformer bench: measure attention mechanisms, imported only when called."""

from __future__ import annotations

import importlib

import click

from genoformer.cli.quiet import with_quiet

BENCHMARKS = {
    "attention": "Time and memory of every mechanism, exact attention and other libraries.",
    "approximation": "How far each mechanism is from exact attention, and what it would take.",
}
"""Every benchmark and its help in one line; the command is `genoformer.cli.bench_<name>.command`."""


class _Benchmarks(click.Group):
    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(BENCHMARKS)

    def get_command(self, ctx: click.Context, name: str) -> click.Command | None:
        if name not in BENCHMARKS:
            return None
        return with_quiet(importlib.import_module(f"genoformer.cli.bench_{name}").command)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl(list(BENCHMARKS.items()))


@click.group("bench", cls=_Benchmarks)
def command() -> None:
    """Measure attention: how fast and how large each mechanism is, and how far from exact attention.

    \b
    Example:
      genoformer bench attention --lengths 1024,4096,16384 --plot attention.png
      genoformer bench approximation --help
    """
