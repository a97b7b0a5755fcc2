"""--quiet, which every command has: no words and no progress, errors still."""

from __future__ import annotations

import click


def with_quiet(command: click.Command) -> click.Command:
    """Give a command, and those below it, the option --quiet, if they do not have it."""
    if isinstance(command, click.Group):
        for inner in command.commands.values():
            with_quiet(inner)
    elif not any("--quiet" in parameter.opts for parameter in command.params):
        option = click.Option(
            ["-q", "--quiet"], is_flag=True, expose_value=False, is_eager=True,
            callback=lambda _context, _parameter, value: hush() if value else None,
            help="Say nothing on standard error but errors.",
        )  # fmt: skip
        command.params.append(option)
    return command


def hush() -> None:
    """Say nothing and show no progress until `speak`; JSON lines, which were asked for, still are."""
    from genoformer.cli.progress import console

    console.quiet = True


def speak() -> None:
    """Say and show things again."""
    import sys

    shown = sys.modules.get("genoformer.cli.progress")
    if shown is not None:
        shown.console.quiet = False
