"""Options that several commands share."""

from __future__ import annotations

import os
import shlex
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, fields
from functools import reduce, wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import click

from genoformer.errors import ConfigError, GenoformerError, ResourceError
from genoformer.regions import DEFAULT_OVERLAP, DEFAULT_WINDOW, usual_overlap

if TYPE_CHECKING:
    import torch

    from genoformer.cli.interrupts import Stop
    from genoformer.formats.sequences import BamAs, Sequences
    from genoformer.model.genoformer import Genoformer
    from genoformer.store import Output, Shard
    from genoformer.workers import Workers

Command = Callable[..., Any]


def command_line() -> str:
    """Return the command that is running, as a shell takes it."""
    return shlex.join(["genoformer", *sys.argv[1:]])


@dataclass(frozen=True)
class InputOptions:
    """What to read."""

    input: str
    regions: tuple[str, ...]
    reference: str | None
    min_length: int
    min_mapq: int
    include_flags: int
    exclude_flags: int | None
    bam_as: BamAs
    circular: tuple[str, ...]

    def files(self) -> Iterator[Path]:
        """Yield the files that are read: the input, the reference, and BED files of regions."""
        for given in (self.input, self.reference, *self.regions):
            with suppress(OSError, ValueError):  # the name of a sequence need not be possible for a file
                if given and Path(given).exists():
                    yield Path(given)

    def open(self) -> Sequences:
        """Open the input: sequences, reads, or what `tokenize` wrote."""
        from genoformer.formats.alignments import ReadFilter
        from genoformer.formats.consensus import USUALLY_EXCLUDED
        from genoformer.tokenizing import open_sequences_or_tokens

        exclude = self.exclude_flags
        if exclude is None:
            exclude = USUALLY_EXCLUDED if self.bam_as == "consensus" else 0
        reads = ReadFilter(self.min_mapq, self.min_length, self.include_flags, exclude)
        return open_sequences_or_tokens(self.input, reference=self.reference, reads=reads, bam_as=self.bam_as)


@dataclass(frozen=True)
class WindowOptions:
    """How to cut it."""

    window: int | None
    overlap: int | None

    def sizes(self, sequences: Sequences | None) -> tuple[int, int]:
        """Return window and overlap; a tokenized input keeps those that it was cut by."""
        cut = getattr(sequences, "window", DEFAULT_WINDOW), getattr(sequences, "overlap", DEFAULT_OVERLAP)
        window = cut[0] if self.window is None else self.window
        return window, usual_overlap(window, cut[1]) if self.overlap is None else self.overlap


@dataclass(frozen=True)
class WholeOptions:
    """Whether each sequence is one window, and where tokens are kept then."""

    whole_sequence: bool
    offload: bool

    def check(self, cut: WindowOptions, *, project: bool) -> None:
        """Raise ConfigError if options contradict each other."""
        if self.offload and not self.whole_sequence:
            raise ConfigError("--offload is for --whole-sequence; windows need no room for it")
        if self.whole_sequence and cut.window is not None:
            raise ConfigError("--whole-sequence has no windows; leave out --window")
        if self.whole_sequence and project:
            raise ConfigError("--project predicts reads, one by one; leave out --whole-sequence")

    def check_run(self, source: InputOptions, hardware: ProcessOptions) -> None:
        """Raise ConfigError if a prediction cannot go together with this, or with processes that torchrun started."""
        from genoformer.cli.together import started_together

        count = started_together()
        if count > 1 and not self.whole_sequence:
            raise ConfigError(
                f"torchrun started {count} processes, which share out sequences with --whole-sequence only; use "
                "--processes, or --shard"
            )
        given = Path(source.input)
        if count > 1 and (source.input == "-" or (given.exists() and not given.is_file())):
            raise ConfigError(f"{source.input}: cannot be read by {count} processes; name a file")
        several = hardware.processes not in (None, 1) or hardware.device == "all" or "," in hardware.device
        if self.whole_sequence and several:
            raise ConfigError(
                "--whole-sequence is computed by one process, or by those that torchrun starts (torchrun "
                "--nproc-per-node 2 -m genoformer predict ...); leave out --processes, and name one --device"
            )


@dataclass(frozen=True)
class OutputOptions:
    """Where to write, and what to do about what is there."""

    output: Path
    resume: bool
    overwrite: bool
    wait: float

    def check(self, source: InputOptions) -> None:
        """Raise ConfigError or ResourceError if nothing can be written there, before any work is done."""
        if str(self.output) == "-":
            raise ConfigError("-: HDF5 cannot be written to standard output; name a file")
        try:
            self._check(source)
        except OSError as error:  # such as a name that is too long
            if isinstance(error, GenoformerError):
                raise
            raise ResourceError(f"{self.output}: {error.strerror}; name another output") from error

    def _check(self, source: InputOptions) -> None:
        path, folder = self.output, self.output.parent
        if not folder.is_dir():
            raise ResourceError(f"{folder}: no such folder; make it first")
        if path.exists() and not path.is_file():
            raise ConfigError(f"{path}: is a folder or a device; name a file")
        if path.exists() and any(path.samefile(given) for given in source.files()):
            raise ConfigError(f"{path}: is what is to be read, and would be lost; name another output")
        if path.exists() and not self.overwrite and not self.may_be_done:
            raise ConfigError(f"{path}: exists already; use --overwrite to replace it, or name another output")
        if self.is_interrupted and not (self.resume or self.overwrite):
            advice = "use --resume to continue it, or --overwrite to start again"
            raise ConfigError(f"{self.part}: an interrupted run; {advice}")
        if not os.access(folder, os.W_OK):
            raise ResourceError(f"{folder}: cannot be written to; name an output elsewhere")

    @property
    def part(self) -> Path:
        """Where a run writes until it is whole."""
        return self.output.with_name(self.output.name + ".part")

    @property
    def is_interrupted(self) -> bool:
        """Whether an interrupted run lies there."""
        return self.part.exists()

    @property
    def may_be_done(self) -> bool:
        """Whether the run to be resumed seems to have ended; `Output.is_done` tells whether it was this one."""
        return self.store().may_be_done

    def store(self, shard: Shard | None = None) -> Output:
        """Return this as what a function that writes a store takes."""
        from genoformer.store import Output

        return Output(self.output, command_line(), self.resume, self.overwrite, shard, self.wait)

    @contextmanager
    def resumable(self) -> Iterator[Stop]:
        """Let a signal finish a block (see `Stop.after`), and have it say how to go on, if anything was begun."""
        from genoformer.cli.interrupts import finishing, how_to_resume

        try:
            with finishing("block") as stop:
                yield stop
        except KeyboardInterrupt as error:
            if self.is_interrupted:
                raise KeyboardInterrupt(how_to_resume()) from error
            raise


@dataclass(frozen=True)
class DeviceOptions:
    """Where to compute."""

    device: str
    threads: int | None

    def use(self) -> torch.device:
        """Choose the device, and set up threads and memory."""
        from genoformer.model.device import choose_device

        self._set_up()
        return choose_device(self.device)

    def _set_up(self) -> None:
        import torch

        from genoformer.model.device import keep_freed_memory

        keep_freed_memory()
        if self.threads is not None:
            torch.set_num_threads(self.threads)


@dataclass(frozen=True)
class ProcessOptions(DeviceOptions):
    """Where to compute, by one or several processes."""

    processes: int | None

    @property
    def count(self) -> int:
        """Count the processes that compute."""
        from genoformer.model.device import choose_devices

        return len(choose_devices(self.device, processes=self.processes))

    def use(self) -> torch.device:
        """Choose the device of this process, and set up threads and memory: the CPU where others do the work."""
        import torch

        from genoformer.model.device import choose_devices

        self._set_up()
        devices = choose_devices(self.device, processes=self.processes)
        return devices[0] if len(devices) == 1 else torch.device("cpu")

    @contextmanager
    def workers(self, model: Genoformer) -> Iterator[Workers | None]:
        """Start the processes that compute, and end them; None where this one does."""
        from genoformer.workers import Workers

        if self.count == 1:
            yield None
            return
        with Workers(model, device=self.device, processes=self.processes, threads=self.threads) as workers:
            yield workers


def bundle(name: str, kind: type, *options: Callable[[Command], Command]) -> Callable[[Command], Command]:
    """Return a decorator that adds options and hands their values over as one argument ``name`` of type ``kind``."""
    keys = [item.name for item in fields(kind)]

    def decorate(command: Command) -> Command:
        @wraps(command)
        def gather(**values: Any) -> Any:
            values[name] = kind(**{key: values.pop(key) for key in keys})
            return command(**values)

        return reduce(lambda decorated, option: option(decorated), reversed(options), cast("Command", gather))

    return decorate


def circular_option(help: str) -> Callable[[Command], Command]:
    """Return the option that names sequences whose ends are joined."""
    return click.option("--circular", multiple=True, metavar="NAME|all", help=help)


# fmt: off
_reading = (
    click.argument("input", metavar="INPUT"),
    click.option("--regions", "-r", multiple=True, metavar="BED|REGION",
                 help="Only these: a BED file, or chr:start-end (from 1, both ends included); may be repeated. "
                      "Of BAM and CRAM: the reads that overlap them."),
    click.option("--bam-as", type=click.Choice(["reads", "consensus"]), default="reads", show_default=True,
                 help="Take BAM and CRAM for their reads, or for the consensus of these by samtools: the reference's "
                      "coordinates, N where no read tells a base."),
    click.option("--reference", type=click.Path(dir_okay=False), metavar="FASTA",
                 help="Reference that a CRAM was made with."),
    click.option("--min-length", type=click.IntRange(min=1), default=1, show_default=True, metavar="BASES",
                 help="Skip, and list, shorter sequences."),
    click.option("--min-mapq", type=click.IntRange(0, 255), default=0, show_default=True, metavar="QUALITY",
                 help="Of BAM and CRAM: leave out reads mapped worse."),
    click.option("--include-flags", type=click.IntRange(0, 0xFFFF), default=0, show_default=True, metavar="BITS",
                 help="Of BAM and CRAM: only reads with all these flag bits set (samtools view -f)."),
    click.option("--exclude-flags", type=click.IntRange(0, 0xFFFF), metavar="BITS",
                 help="Of BAM and CRAM: no reads with any of these flag bits set (samtools view -F).  "
                      "[default: 0; of a consensus 1536, failed reads and duplicates]"),
)
input_options = bundle(
    "source", InputOptions, *_reading,
    circular_option("Sequence whose ends are joined, beside those that GenBank says are: windows reach over the "
                    "origin. May be repeated."),
)
straight_input_options = bundle(  # of a command that says why it takes no circle
    "source", InputOptions, *_reading, click.option("--circular", multiple=True, hidden=True),
)

window_options = bundle(
    "cut", WindowOptions,
    click.option("--window", type=click.IntRange(min=1), metavar="BASES",
                 help=f"Bases the model sees at once.  [default: {DEFAULT_WINDOW}]"),
    click.option("--overlap", type=click.IntRange(min=0), metavar="BASES",
                 help="Bases that neighboring windows share; each base is predicted by one of them.  "
                      f"[default: {DEFAULT_OVERLAP}, at most a quarter of the window]"),
)

whole_options = bundle(
    "whole", WholeOptions,
    click.option("--whole-sequence", is_flag=True,
                 help="No windows: each sequence is one attention context, however long, computed in chunks. Processes "
                      "that torchrun started share out its positions."),
    click.option("--offload", is_flag=True,
                 help="With --whole-sequence: keep what is computed of a sequence, 0.2 kB a base with the bundled "
                      "model, in a temporary file ($TMPDIR), not in memory."),
)

device_options = bundle(
    "hardware", DeviceOptions,
    click.option("--device", default="auto", show_default=True, metavar="auto|cpu|cuda|mps",
                 help="Where to compute; auto takes the first of cuda, mps and cpu."),
    click.option("-t", "--threads", type=click.IntRange(min=1), metavar="N", help="CPU threads.  [default: all cores]"),
)

process_options = bundle(
    "hardware", ProcessOptions,
    click.option("--device", default="auto", show_default=True, metavar="auto|cpu|cuda:0,1|all",
                 help="Where to compute; auto takes the first of cuda, mps and cpu; cuda:0,1 takes two GPUs and all "
                      "takes every one, with a process for each."),
    click.option("--processes", type=click.IntRange(1, 1024), metavar="N",
                 help="Processes that compute; they share the devices, and divide the threads.  "
                      "[default: one for each device]"),
    click.option("-t", "--threads", type=click.IntRange(min=1), metavar="N",
                 help="CPU threads of all processes together.  [default: all cores]"),
)

model_option = click.option("--model", default="prokaryote-genes", show_default=True, metavar="NAME|PATH",
                            help="Bundled model, or the folder of one that was trained.")
chunk_option = click.option("--chunk-size", type=click.IntRange(min=0), metavar="TOKENS",
                            help="Tokens computed at a time, 0 for all: bounds memory, changes nothing else.  "
                                 "[default: 4096 on cpu, else all]")
batch_option = click.option("--batch-size", type=click.IntRange(min=1), default=1, show_default=True, metavar="N",
                            help="Windows computed together: for speed, changes nothing else.")
shard_option = click.option("--shard", metavar="I/N",
                            help="Only the I-th of N parts, of as many bases each, for genoformer merge to join: for "
                                 "clusters.")
project_option = click.option("--project", is_flag=True,
                              help="Of BAM and CRAM sorted by position: put the predictions of each read where it is "
                                   "aligned, and write their means along the reference, with a track of their depth.")
resume_option = click.option("--resume", is_flag=True,
                             help="Go on where an interrupted run stopped; nothing is done where it has ended.")


def output_options(*, required: bool, help: str) -> Callable[[Command], Command]:
    """Return the options of a store to write, handed over as `OutputOptions`."""
    return bundle(
        "target", OutputOptions,
        click.option("-o", "--output", required=required, type=click.Path(path_type=Path), metavar="OUT.h5", help=help),
        resume_option,
        click.option("--overwrite", is_flag=True, help="Replace the output if it exists."),
        click.option("--wait", type=click.FloatRange(min=0), default=0, show_default=True, metavar="SECONDS",
                     help="Wait for another process that writes the same output, instead of failing at once."),
    )
# fmt: on
