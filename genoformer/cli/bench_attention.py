"""genoformer bench attention: time and memory of attention mechanisms, side by side."""

from __future__ import annotations

import csv
import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import click

from genoformer.cli.options import DeviceOptions, device_options
from genoformer.cli.progress import console, quiet_pipe, say, size
from genoformer.errors import ResourceError

if TYPE_CHECKING:
    from genoformer.bench.speed import Measurement, Report

WIDTH = 100


def parse_lengths(context: click.Context, parameter: click.Parameter, text: str) -> tuple[int, ...]:
    """Read numbers of tokens separated by commas."""
    try:
        lengths = tuple(int(part.replace("_", "")) for part in text.split(","))
    except ValueError:
        raise click.BadParameter(f"expected numbers of tokens separated by commas, got {text!r}") from None
    if min(lengths) < 1:
        raise click.BadParameter(f"a sequence has at least 1 token, got {min(lengths)}")
    return lengths


# fmt: off
@click.command("attention")
@click.option("--lengths", default="256,1024,4096,16384,65536", show_default=True, metavar="TOKENS,..",
              callback=parse_lengths, help="Tokens of a sequence.")
@click.option("--heads", type=click.IntRange(min=1), default=4, show_default=True, help="Attention heads.")
@click.option("--dim", type=click.IntRange(min=2), default=32, show_default=True, help="Dimensions of a head.")
@click.option("--features", type=click.IntRange(min=1), default=128, show_default=True,
              help="Random features a head, of Performers.")
@click.option("--rank", type=click.IntRange(min=1), default=256, show_default=True, help="Slots, of Linformers.")
@click.option("--radius", type=click.IntRange(min=1), default=64, show_default=True, metavar="TOKENS",
              help="To each side, of local attention.")
@click.option("--only", multiple=True, metavar="PATTERN",
              help="Only mechanisms whose name fits, such as 'linformer*', also those not measured by default; "
                   "may be repeated.")
@click.option("--group", type=click.Choice(["core", "layer", "both"]), default="both", show_default=True,
              help="Attention alone, whole layers with projections, or both.")
@click.option("--backward", is_flag=True, help="Measure forward and backward pass together.")
@click.option("--repeats", type=click.IntRange(min=1), default=5, show_default=True,
              help="Rounds, of which the median counts.")
@click.option("--time-limit", type=click.FloatRange(min=0, min_open=True), default=20.0, show_default=True,
              metavar="SECONDS", help="Skip lengths at which one run would take longer.")
@click.option("--memory-limit", type=click.FloatRange(min=0, min_open=True), default=4.0, show_default=True,
              metavar="GB", help="Skip lengths at which a mechanism would need more.")
@click.option("--csv", "csv_path", type=click.Path(path_type=Path, dir_okay=False), metavar="FILE",
              help="Write the table here, too, one line a measurement.")
@click.option("--json", "json_path", type=click.Path(path_type=Path, dir_okay=False), metavar="FILE",
              help="Write all that was measured here.")
@click.option("--plot", "plot_path", type=click.Path(path_type=Path, dir_okay=False), metavar="FILE",
              help="Draw time and memory against length (pip install 'genoformer[plots]').")
@device_options
def command(
    lengths: tuple[int, ...], heads: int, dim: int, features: int, rank: int, radius: int, only: tuple[str, ...],
    group: str, backward: bool, repeats: int, time_limit: float, memory_limit: float, csv_path: Path | None,
    json_path: Path | None, plot_path: Path | None, hardware: DeviceOptions,
) -> None:
    """Measure our attention mechanisms, exact attention and, where installed (pip install 'genoformer[bench]'),
    performer-pytorch, linformer, linformer-pytorch and local-attention, in one run and in turns. The table is printed;
    numbers of different runs are not to be compared.

    "of peak" relates the operations of the method, by formula, to what a large matrix product reaches here; "memory"
    is the most held at a time beyond inputs, parameters and outputs, in a process that does nothing else.

    \b
    Example:
      genoformer bench attention --lengths 1024,4096,16384 --csv attention.csv --plot attention.png
    """
    from genoformer.bench.contenders import Shape
    from genoformer.bench.probe import Limits
    from genoformer.bench.speed import Setup, measure, select

    for path in (csv_path, json_path, plot_path):
        if path and not path.absolute().parent.is_dir():
            raise ResourceError(f"{path.parent}: no such folder; make it first")
    if plot_path:
        from genoformer.cli.bench_plot import draw_plot
        from genoformer.plotting.files import check_plot

        check_plot(plot_path)
    contenders = select(only, groups=() if group == "both" else (group,))
    setup = Setup(
        Shape(heads, dim, features, rank, radius), lengths, repeats, backward, str(hardware.use()),
        Limits(time_limit, memory_limit * 1e9),
    )  # fmt: skip
    with telling() as tell:
        report = measure(setup, contenders, tell=tell)
    if csv_path:  # files before the table, whose reader may leave
        write_csv(report, csv_path)
    if json_path:
        json_path.write_text(json.dumps(report.as_dict(), indent=2, allow_nan=False) + "\n", encoding="utf-8")
    if plot_path:
        draw_plot(report, plot_path)
    with quiet_pipe():
        show(report)


# fmt: on


@contextmanager
def telling() -> Iterator[Callable[[str], None]]:
    """Say what is being done: in one changing line on a terminal, in lines elsewhere."""
    if not console.is_terminal:
        yield lambda words: say(f"bench: {words}")
        return
    with console.status("bench") as status:
        yield lambda words: status.update(f"bench: {words}")


def show(report: Report) -> None:
    """Print what was measured: a table for each group, crossovers, and what was not measured."""
    from rich.console import Console

    from genoformer.bench.contenders import GROUPS

    out = Console(width=WIDTH, highlight=False)
    shape = report.setup.shape
    out.print(
        f"{shape.heads} heads of {shape.dim}, {shape.features} features, {shape.rank} slots, radius {shape.radius}, "
        f"{'forward and backward' if report.setup.backward else 'forward'}, float32\n"
        f"{report.processor}, {report.threads} threads, torch {report.torch_version}, "
        f"matrix product {report.peak / 1e9:,.0f} GFLOP/s"
    )
    for group, words in GROUPS.items():
        rows = [row for row in report.measurements if row.group == group and not row.skipped]
        if rows:
            out.print()
            out.print(_table(report, rows, f"{group} ({words})"))
    crossovers = report.crossovers()
    if crossovers:
        out.print("\nFaster than exact attention (fused, same group) from this many tokens on:")
        for key, words in crossovers.items():
            out.print(f"  {key:32} {words}")
    skipped: dict[str, list[str]] = {}
    for row in report.measurements:
        if row.skipped:
            skipped.setdefault(f"{row.group}/{row.name}", []).append(f"{row.tokens:,} tokens ({row.skipped})")
    for key, lengths in skipped.items():
        out.print(f"not measured: {key} at {', '.join(lengths)}", markup=False)
    for reason in report.missing.values():
        out.print(f"not measured: {reason}", markup=False)


def _table(report: Report, rows: list[Measurement], title: str) -> object:
    from rich import box
    from rich.table import Table

    table = Table(box=box.SIMPLE, title=title, title_justify="left", title_style="bold", pad_edge=False)
    for name, justify in (
        ("tokens", "right"),
        ("mechanism", "left"),
        ("ms", "right"),
        ("spread", "right"),
        ("memory", "right"),
        ("GFLOP/s", "right"),
        ("of peak", "right"),
        ("exact / this", "right"),
    ):
        table.add_column(name, justify=justify)  # type: ignore[arg-type]
    for tokens in report.setup.lengths:
        here = sorted((row for row in rows if row.tokens == tokens), key=lambda row: row.seconds)
        for row in here:
            table.add_row(*_cells(report, row), end_section=row is here[-1])
    return table


def _cells(report: Report, row: Measurement) -> list[str]:
    from genoformer.bench.contenders import FUSED

    exact = report.find(row.group, FUSED, row.tokens)
    return [
        f"{row.tokens:,}",
        row.name,
        f"{1e3 * row.seconds:,.2f}",
        f"{(row.slowest - row.fastest) / row.seconds:.0%}",
        "?" if row.memory is None else size(row.memory),
        f"{row.rate / 1e9:,.1f}",
        f"{row.share:.0%}",
        f"{exact.seconds / row.seconds:.2f}" if exact else "",
    ]


def write_csv(report: Report, path: Path) -> None:
    """Write a line for each measurement."""
    from genoformer.bench.speed import Measurement

    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(Measurement._fields)
        writer.writerows(report.measurements)
