"""The command line: one command a file, found by name and imported only when called."""

from __future__ import annotations

import errno
import importlib
import logging
import os
import signal
import sys
from pathlib import Path

import click

from genoformer.cli import events
from genoformer.cli.quiet import speak, with_quiet
from genoformer.errors import ConfigError, GenoformerError, ResourceError, is_out_of_memory, printable

_PLACES = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EROFS, errno.EACCES, errno.EPERM}

COMMANDS = {
    "predict": "Predict every base of FASTA, GenBank, BAM or CRAM into HDF5.",
    "merge": "Join the shards of a prediction.",
    "plan": "Check an input and tell what predicting it would take.",
    "tokenize": "Cut an input into tokenized windows, in HDF5.",
    "export": "Write genes, tracks, intervals or tables in the formats of other programs.",
    "report": "Make one page of HTML: browser, charts, tables, accuracy.",
    "variants": "Score the alleles of a VCF: what each changes in the predictions.",
    "explain": "Tell what each base of a region does: by substitution or gradient.",
    "embed": "Write the hidden states of a layer of the model into HDF5.",
    "plot": "Draw a region: genes, probabilities, truth and GC content.",
    "train": "Train a model from sequences and their annotation.",
    "evaluate": "Compare predictions with an annotation, by base and by gene.",
    "inspect": "Show what an HDF5 file holds, or the values of a region.",
    "models": "List models, describe one, or print where it lies.",
    "bench": "Measure attention mechanisms against exact attention and each other.",
    "doctor": "Check versions, devices and the bundled model.",
}
"""Every command and its help in one line; the command itself is `genoformer.cli.<name>.command`."""


class _Commands(click.Group):
    """Commands by name, without importing any before it is needed."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, name: str) -> click.Command | None:
        if name not in COMMANDS:
            return None
        return with_quiet(importlib.import_module(f"genoformer.cli.{name}").command)

    def invoke(self, ctx: click.Context) -> object:
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt as error:  # for which click would begin a new line
            if events.is_json():
                raise click.Abort from error
            raise

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl(list(COMMANDS.items()))


def show_versions(context: click.Context) -> None:
    """Print the version, and on a second line those of Python and the libraries, and end."""
    from genoformer.cli.doctor import versions

    (_, own), *others = versions()
    click.echo(f"genoformer {own}")
    click.echo(", ".join(f"{name} {version.split()[0]}" for name, version in others if version != "not installed"))
    context.exit()


@click.group(
    cls=_Commands,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    epilog="Exit codes: 0 done; 1 nothing useful came of it because of the input; 2 wrong usage; "
    "3 memory, disk or device lacking; 130 interrupted.",
)
@click.option("-V", "--version", is_flag=True, is_eager=True, expose_value=False,
              callback=lambda context, _, value: show_versions(context) if value else None,
              help="Show the version, and those of what matters, and exit.")  # fmt: skip
def group() -> None:
    """Per-base predictions for long DNA, by exactly streamed linear attention."""


def exit_code(error: BaseException) -> int:
    """Return the exit code that belongs to an error."""
    if isinstance(error, KeyboardInterrupt | click.Abort):
        return 130
    if isinstance(error, ResourceError | MemoryError):
        return 3
    if isinstance(error, ConfigError | click.UsageError):
        return 2
    return 1


def run(arguments: list[str] | None = None) -> int:
    """Run a command and return its exit code; errors of ours become one line on stderr."""
    log, said = logging.getLogger("genoformer"), events.LogHandler()
    log.addHandler(said)
    try:
        code = _run(arguments)
        if events.is_json():
            events.emit("end", {"exit_code": code})
        return code
    finally:
        log.removeHandler(said)
        events.forget()
        speak()


def _run(arguments: list[str] | None) -> int:
    try:
        result = group.main(args=arguments, prog_name="genoformer", standalone_mode=False)
    except click.ClickException as error:
        if "--log-json" in (sys.argv[1:] if arguments is None else arguments):  # which may not have been read yet
            events.ask(getattr(error, "ctx", None))
            _complain(type(error).__name__, error.format_message())
        else:
            error.show()
        return exit_code(error)
    except (KeyboardInterrupt, click.Abort) as error:
        cause = error.__cause__ if isinstance(error, click.Abort) else error  # click hides what was raised
        _complain("", "; ".join(["interrupted", *map(str, getattr(cause, "args", ()))]))
        return exit_code(error)
    except GenoformerError as error:
        _complain(type(error).__name__, str(error))
        return exit_code(error)
    except (MemoryError, RuntimeError, OSError) as error:
        lacking = _lacking(error)
        if not lacking:
            raise
        _complain("ResourceError", lacking)
        return 3
    return result if isinstance(result, int) else 0


def _complain(kind: str, text: str) -> None:
    """Say in one line why a command ends."""
    if events.is_json():
        events.emit("error", {"kind": kind or "KeyboardInterrupt", "text": text})
    else:
        click.echo(printable(": ".join(filter(None, ["genoformer", kind, text]))), err=True)


def _lacking(error: Exception) -> str:
    """Say what the machine lacks, if that is what an error of Python or torch is about; else nothing."""
    if isinstance(error, OSError) and error.errno in _PLACES:
        return f"{error.filename or 'output'}: {error.strerror}; free some space, or name a place that can be written"
    if is_out_of_memory(error):
        return "out of memory; try a smaller --window, --chunk-size or --batch-size"
    return ""


def fill_closed_streams() -> None:
    """Open what the caller closed (``>&-``) on the null device, lest the next file to be opened takes its number."""
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            setattr(sys, name, Path(os.devnull).open(mode))  # noqa: SIM115 - open until the end


def main() -> None:
    """Run as the program ``genoformer``."""
    fill_closed_streams()
    if sys.platform == "linux":
        os.environ.setdefault("THP_MEM_ALLOC_ENABLE", "1")  # torch asks for huge pages, of which there is less to clear
    signal.signal(signal.SIGTERM, _interrupt)
    sys.exit(run())


def _interrupt(*_: object) -> None:
    """End as Ctrl-C does when a scheduler asks to: what was done is kept."""
    raise KeyboardInterrupt
