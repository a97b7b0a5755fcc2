"""Attack a reader with damaged files, for as long as wanted: python tests/fuzz/run.py --parser fasta --inputs 1000000

The reader works in a process of its own, so that crashes and hangs of C libraries are found too. What hurts is shrunk
and written to tests/fuzz/corpus, which the tests read from then on; exit code 1.
"""

from __future__ import annotations

import argparse
import contextlib
import logging
import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE), str(HERE.parent), str(HERE.parent.parent)]

from loop import CORPUS, MEMORY, PATIENCE, attack, damaged, fault, guarded, prepared  # noqa: E402
from mutations import shrink  # noqa: E402
from targets import TARGETS  # noqa: E402


def work(name: str, folder: Path, *, first: int, last: int) -> int:
    """Read damaged files in this process; what hurts is left in the folder."""
    logging.disable(logging.CRITICAL)  # warnings about the good files
    count = folder / "reached"
    with count.open("w") as stream:

        def reached(number: int) -> None:
            stream.seek(0)
            stream.write(f"{number:20}")
            stream.flush()

        found = attack(name, folder, first=first, last=last, reached=reached)
    if found is None:
        return 0
    (folder / "bad").write_bytes(found[0])
    print(found[1])
    return 1


def replay(name: str, folder: Path, content: bytes) -> str | None:
    """Read one file in this process; return what is wrong."""
    _, path = prepared(TARGETS[name], folder)
    path.write_bytes(TARGETS[name].wrap(content))
    with guarded():
        return fault(TARGETS[name], path)


def progress_of(pid: int, known: float) -> tuple[bool, float]:
    """Tell whether a process waits for something else than a processor, and its seconds of these so far."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:  # it has ended
        return False, known
    return fields[0] in "SD", (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def child(name: str, folder: Path, *arguments: str) -> tuple[int, str]:
    """Run this program for one reader; stop it when it no longer moves. Returns its exit code, and what it said."""
    environment = os.environ | {"GENOFORMER_CACHE": str(folder / "cache"), "TMPDIR": str(folder)}
    command = [sys.executable, __file__, "--parser", name, "--folder", str(folder), *arguments]
    words = folder / "words"  # no pipe: a full one would hold up who writes much
    with words.open("wb") as stream:
        process = subprocess.Popen(command, stdout=stream, stderr=subprocess.STDOUT, env=environment)
    seen, count = "", folder / "reached"
    idle = used = since = 0.0  # seconds: of waiting, of processors, and of these when it last moved
    try:
        while process.poll() is None:
            pause = 0.2 if "--replay" in arguments else 1.0
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(pause)
            is_waiting, used = progress_of(process.pid, used)
            now = count.read_text() if count.exists() else ""
            if now != seen:
                seen, idle, since = now, 0.0, used
            idle = idle + pause if is_waiting else 0.0
            if max(idle, used - since) > (PATIENCE if now else 5 * PATIENCE):
                return 2, "hangs"
    finally:
        process.kill()
        process.wait()
    return process.returncode, words.read_text(errors="replace").strip()


def hurts(name: str, content: bytes) -> str | None:
    """Read one file in a process of its own; return what is wrong."""
    with tempfile.TemporaryDirectory(prefix="genoformer-fuzz-") as folder:
        given = Path(folder) / "given"
        given.write_bytes(content)
        code, said = child(name, Path(folder), "--replay", str(given))
    return None if code == 0 else f"exit code {code}: {said[-400:]}"


def smallest(name: str, content: bytes, folder: Path) -> bytes:
    """Shrink what hurts, in this process if it stays alive at it."""
    if replay(name, folder, content) is None:
        return content
    _, path = prepared(TARGETS[name], folder)

    def still(smaller: bytes) -> bool:
        path.write_bytes(TARGETS[name].wrap(smaller))
        return fault(TARGETS[name], path) is not None

    with guarded():
        return shrink(content, still)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--parser", default="all", metavar="NAME", help=f"all, or of {', '.join(TARGETS)}")
    parser.add_argument("--inputs", type=int, default=10_000, help="damaged files a reader")
    parser.add_argument("--seed", type=int, default=0, help="the first is number seed x 1,000,000,000")
    parser.add_argument("--skip", type=int, default=0, metavar="N", help="files to leave out first: read before")
    parser.add_argument("--folder", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--range", type=int, nargs=2, help=argparse.SUPPRESS)
    parser.add_argument("--replay", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--shrink", type=Path, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.range:
        first, last = given.range
        return max(work(name, given.folder, first=first, last=last) for name in given.parser.split(","))
    if given.replay:
        wrong = replay(given.parser, given.folder, given.replay.read_bytes())
        print(wrong or "")
        return 1 if wrong else 0
    if given.shrink:
        given.shrink.write_bytes(smallest(given.parser, given.shrink.read_bytes(), given.folder))
        return 0
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    names = list(TARGETS) if given.parser == "all" else given.parser.split(",")
    if not set(names) <= set(TARGETS):
        parser.error(f"--parser must be all, or of {', '.join(TARGETS)}")
    return max(hunt(name, given.seed * 10**9 + given.skip, given.inputs) for name in names)


def hunt(name: str, first: int, inputs: int) -> int:
    """Attack a reader, say how it went."""
    began, last = time.monotonic(), first + inputs
    leak = TARGETS[name].leak
    size = min(inputs, MEMORY // 2 // leak) if leak else inputs  # what is not given back ends with the process
    for start in range(first, last, size):
        if hunt_in_one(name, start, min(start + size, last)):
            return 1
    print(f"{name}: {inputs:,} damaged files from number {first:,} on, none hurt, {time.monotonic() - began:.0f} s",
          flush=True)  # fmt: skip
    return 0


def hunt_in_one(name: str, first: int, last: int) -> int:
    """Attack a reader in one process, shrink and keep what hurts."""
    with tempfile.TemporaryDirectory(prefix="genoformer-fuzz-") as at:
        folder = Path(at)
        code, said = child(name, folder, "--range", str(first), str(last))
        if code == 0 and not said:  # words on stderr are those of a C library, or a traceback at closing
            return 0
        bad = folder / "bad"
        reached = folder / "reached"
        number = reached.read_text().strip() if reached.exists() else "none"
        if number != "none" and not bad.exists():  # the process is gone
            bad.write_bytes(damaged(TARGETS[name], prepared(TARGETS[name], folder)[0], int(number)))
        print(f"{name}: file {number} hurts, exit code {code}: {said[-1000:]}", flush=True)
        if number == "none" or not bad.exists() or not bad.read_bytes():
            return 1
        kept = CORPUS / name / f"{number}.bin"
        kept.parent.mkdir(parents=True, exist_ok=True)
        kept.write_bytes(bad.read_bytes())
        with tempfile.TemporaryDirectory(prefix="genoformer-fuzz-") as other:
            child(name, Path(other), "--shrink", str(kept))
        print(f"{name}: kept as {kept}, {kept.stat().st_size} bytes; again: {hurts(name, kept.read_bytes())}")
    return 1


if __name__ == "__main__":
    sys.exit(main())
