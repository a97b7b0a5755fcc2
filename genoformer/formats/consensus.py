"""The consensus of alignments: what samtools calls at every base of the reference sequences of BAM, CRAM and SAM."""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import sys
import tempfile
import threading
import weakref
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from genoformer.errors import FormatError, InputError, ResourceError
from genoformer.formats.alignments import (
    DUPLICATE,
    QC_FAIL,
    SECONDARY,
    UNMAPPED,
    AlignmentInput,
    Order,
    ReadFilter,
    Tally,
)
from genoformer.formats.bytestream import Kind, Source
from genoformer.formats.htslib import quiet_and_offline
from genoformer.formats.sequences import Record, check_region, open_sequences
from genoformer.regions import Region

if TYPE_CHECKING:
    from pysam import AlignedSegment

USUALLY_EXCLUDED = QC_FAIL | DUPLICATE
"""Flags of the reads that `samtools consensus` leaves out unless it is told otherwise, beside those never taken."""
_LINE = 1 << 16
_OPTIONS = ("-a", "--show-ins", "no", "--show-del", "yes")
_CALL = """
import sys, pysam
try:
    pysam.consensus(*sys.argv[1:], catch_stdout=False)
except pysam.SamtoolsError as error:
    sys.exit(str(error))
"""


class ConsensusSequences:
    """The consensus of a BAM, CRAM or SAM file in the coordinates of its reference sequences, see `Sequences`.

    Insertions are left out. N stands for bases that no read covers, that the reads have deleted, or that cannot be
    decided. The file is read when sequences are first asked for; the consensus lies in a temporary file as long as this
    object lives, a byte for each base of a sequence with reads.

    Attributes
    ----------
    counts : Counter, alignments left out, by reason
    made_by : dict, how it was made, and what became of the bases; empty before it was
    """

    def __init__(
        self,
        source: Source,
        *,
        kind: Kind = "bam",
        reference: str | os.PathLike[str] | None = None,
        reads: ReadFilter | None = None,
    ):
        """Take primary and supplementary alignments; a filter says which. Its least length is not heeded."""
        given = ReadFilter(exclude_flags=USUALLY_EXCLUDED) if reads is None else reads
        self.source = source.name
        self.counts: Counter[str] = Counter()
        self.made_by: dict[str, Any] = {}
        self._filter = ReadFilter(
            given.min_mapq,
            include_flags=given.include_flags,
            exclude_flags=given.exclude_flags,
            supplementary=True,
        )
        self._alignments = AlignmentInput(source, kind=kind, reference=reference)
        self._spool: IO[bytes] | None = None
        self._offsets: dict[str, int] = {}
        self._lock = threading.Lock()

    def records(self) -> Iterator[Record]:
        """Yield every reference sequence in the order of the header.

        Raises
        ------
        FormatError : the file is damaged or cut short
        InputError : it has no reference sequences or is not sorted by position, or a CRAM lacks its reference
        ResourceError : no room for the temporary file
        """
        lines = self._alignments.header()
        self._make()
        for name, line in zip(self.lengths(), lines, strict=True):
            topology = "circular" if line.get("TP") == "circular" else "linear"
            yield Record(name, "", topology, self.fetch(Region(name, 0, self.lengths()[name])))

    def lengths(self) -> dict[str, int]:
        """Return the length in bases of every reference sequence."""
        return self._alignments.lengths()

    def fetch(self, region: Region) -> bytes:
        """Return the consensus of a region; errors as of `records`."""
        check_region(region, self.lengths(), self.source)
        self._make()
        with self._lock:
            if region.sequence not in self._offsets:
                return b"N" * region.length
            assert self._spool is not None
            self._spool.seek(self._offsets[region.sequence] + region.start)
            return self._spool.read(region.length)

    def _make(self) -> None:
        """Make the consensus, once."""
        with self._lock:
            if self._spool is not None:
                return
            lengths = self.lengths()
            if not lengths:
                raise InputError(
                    f"{self.source}: names no reference sequences, so there is no consensus; "
                    "leave out --bam-as consensus to predict its reads"
                )
            covered = self._survey(list(lengths))
            self._check_space(sum(lengths[name] for name in covered))
            spool = tempfile.TemporaryFile(prefix="genoformer-")  # noqa: SIM115 - as long as this object
            weakref.finalize(self, spool.close)
            letters = self._call(spool, lengths) if covered else Counter[str]()
            self._describe(letters, total=sum(lengths.values()), covered=sum(covered.values()))
            self._spool = spool

    def _survey(self, names: list[str]) -> dict[str, int]:
        """Read the file once: count what is left out, check the order, and count the bases that reads span."""
        tally, order = Tally(self._filter), Order(self.source, "a consensus")
        self.counts = tally.counts

        def take(read: AlignedSegment) -> tuple[int, int, int] | None:
            if not tally.takes(read, placed=True):
                return None
            return read.reference_id, read.reference_start, read.reference_end or read.reference_start

        covered: Counter[str] = Counter()
        lengths, reach = self.lengths(), (-1, 0)
        for number, start, end in self._alignments.taken(take):
            order.check(number, start)
            done = reach[1] if reach[0] == number else 0
            end = min(end, lengths[names[number]])
            covered[names[number]] += max(end - max(start, done), 0)
            reach = number, max(done, end)
        return dict(covered)

    def _check_space(self, needed: int) -> None:
        folder = tempfile.gettempdir()
        free = shutil.disk_usage(folder).free
        if free < needed:
            raise ResourceError(
                f"{folder}: {free:,} bytes are free, the consensus of {self.source} needs {needed:,}; "
                "free some space, or set TMPDIR to another folder"
            )

    def _arguments(self) -> list[str]:
        """Return the options of `samtools consensus` that make it take what the filter takes."""
        wanted = self._filter
        flags = UNMAPPED | SECONDARY | wanted.exclude_flags
        terms = ["length(seq) > 0"]
        if wanted.min_mapq:
            terms.append(f"mapq >= {wanted.min_mapq}")
        if wanted.include_flags:
            terms.append(f"(flag & {wanted.include_flags}) == {wanted.include_flags}")
        chosen = ["--ff", f"{flags:#x}", "--input-fmt-option", f"filter={' && '.join(terms)}"]
        return [*_OPTIONS, *chosen]

    def _call(self, spool: IO[bytes], lengths: dict[str, int]) -> Counter[str]:
        """Have samtools make the consensus, in a process of its own, which an interrupt can end; count its letters."""
        reference = self._alignments.reference
        arguments = [*self._arguments(), "-l", str(_LINE), "-o", "/dev/stdout"]
        arguments += [] if reference is None else ["--input-fmt-option", f"reference={reference}"]
        with quiet_and_offline():
            environment = dict(os.environ)
        with self._alignments.input.path.open("rb") as stream, tempfile.TemporaryFile() as complaints:
            with subprocess.Popen(
                [sys.executable, "-P", "-c", _CALL, *arguments, "-"],
                stdin=stream,
                stdout=subprocess.PIPE,
                stderr=complaints,
                env=environment,
            ) as process:
                assert process.stdout is not None
                try:
                    letters = self._take(process.stdout, spool, lengths)
                except BaseException:
                    process.kill()
                    raise
            complaints.seek(0)
            words = complaints.read().decode("utf-8", "replace")
            if process.returncode:
                raise self._alignments.failure(f"samtools consensus: {' '.join(words.split())[-200:]}")
        return letters

    def _take(self, stream: IO[bytes], spool: IO[bytes], lengths: dict[str, int]) -> Counter[str]:
        """Write the bases of a FASTA one behind the other, and note where each sequence begins."""
        letters: Counter[str] = Counter()
        names = {name.encode("utf-8", "surrogateescape"): name for name in lengths}
        ends: dict[str, int] = {}
        name, here = "", 0
        try:
            for line in stream:
                if line.startswith(b">"):
                    name = names[line[1:].rstrip(b"\n")]
                    self._offsets[name] = here
                    continue
                room = lengths[name] - (here - self._offsets[name])  # reads may reach beyond the end
                bases = line.rstrip(b"\n")[:room]
                letters["*"] += bases.count(b"*")
                letters["N"] += bases.count(b"N")
                letters["all"] += len(bases)
                here += spool.write(bases.replace(b"*", b"N"))
                ends[name] = here
            spool.flush()
        except OSError as error:
            raise ResourceError(
                f"{self.source}: its consensus cannot be written to the temporary folder {tempfile.gettempdir()} "
                f"({error.strerror}); free some space, or set TMPDIR to another folder"
            ) from error
        for name, end in ends.items():
            if end - self._offsets[name] != lengths.get(name):
                raise FormatError(f"{self.source}: samtools made a consensus of another length of {name!r}")
        return letters

    def _choice(self) -> dict[str, Any]:
        """Return what `open_consensus_again` needs."""
        given, wanted = self._alignments.given_reference, self._filter
        return {
            "reference": None if given is None else os.fspath(given),
            "min-mapq": wanted.min_mapq,
            "include-flags": wanted.include_flags,
            "exclude-flags": wanted.exclude_flags,
        }

    def _describe(self, letters: Counter[str], *, total: int, covered: int) -> None:
        import pysam

        uncovered = total - covered
        undecided = letters["N"] - (uncovered - (total - letters["all"]))
        self.made_by = {
            "how": f"consensus by samtools {pysam.__samtools_version__} ({shlex.join(self._arguments())})",
            "versions": {"samtools": pysam.__samtools_version__},
            "choice": self._choice(),
            "counts": {
                "consensus": {
                    "called": letters["all"] - letters["N"] - letters["*"],
                    "uncovered": uncovered,
                    "deleted": letters["*"],
                    "undecided": undecided,
                }
            },
        }


def open_consensus_again(metadata: dict[str, Any]) -> ConsensusSequences | None:
    """Return the consensus that a store was predicted from, by its provenance; None if it was another input.

    Raises
    ------
    InputError : the alignments are no longer there
    """
    choice = metadata.get("made-by", {}).get("choice")
    if choice is None:
        return None
    if not Path(metadata["alignments"]).is_file():
        raise InputError(
            f"{metadata['alignments']}: is not there, so its consensus cannot be made again; give it as --fasta, made "
            "with the options of samtools consensus that `genoformer inspect` tells, and N for *"
        )
    reads = ReadFilter(choice["min-mapq"], include_flags=choice["include-flags"], exclude_flags=choice["exclude-flags"])
    found = open_sequences(metadata["alignments"], reference=choice["reference"], reads=reads, bam_as="consensus")
    assert isinstance(found, ConsensusSequences)
    return found
