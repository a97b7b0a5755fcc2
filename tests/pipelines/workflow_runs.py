"""Runs of the workflow in folders of their own, with the `genoformer` of this interpreter."""

from __future__ import annotations

import importlib.util
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PIPELINES = ROOT / "pipelines"
SNAKEFILE = PIPELINES / "workflow" / "Snakefile"
LOCAL = PIPELINES / "profiles" / "local"

SHIM = """#!{python}
import os, signal, sys
from pathlib import Path
from genoformer.cli import main
from genoformer.store.writer import TrackWriter

fatal, write = Path({fatal!r}), TrackWriter.write

def write_and_die(self, block):
    write(self, block)
    self.commit()
    fatal.unlink()
    os.kill(os.getpid(), signal.SIGKILL)

if fatal.exists() and fatal.read_text() in sys.argv:
    TrackWriter.write = write_and_die
main()
"""


def find_snakemake() -> list[str]:
    """Return the words that start Snakemake, of this environment or on the PATH; skip the test if there is none."""
    if importlib.util.find_spec("snakemake"):
        return [sys.executable, "-m", "snakemake"]
    found = shutil.which("snakemake")
    if found is None:
        pytest.skip("snakemake is not installed: pip install 'snakemake>=9'")
    return [found]


def copy_case(folder: Path) -> Path:
    """Copy the .test case, and the example data that it names; return its folder."""
    shutil.copytree(PIPELINES / ".test" / "config", folder / "pipelines" / "case" / "config")
    shutil.copytree(ROOT / "data", folder / "data")
    return folder / "pipelines" / "case"


def environment(folder: Path) -> dict[str, str]:
    """Return an environment whose `genoformer` is that of this interpreter.

    A shard that ``folder/fatal`` names is killed, once, when its first block is written.
    """
    programs = folder / "bin"
    programs.mkdir(exist_ok=True)
    (programs / "genoformer").write_text(SHIM.format(python=sys.executable, fatal=str(folder / "fatal")))
    (programs / "genoformer").chmod(0o755)
    (programs / "python").unlink(missing_ok=True)
    (programs / "python").write_text(f'#!/bin/sh\nexec {sys.executable} "$@"\n')
    (programs / "python").chmod(0o755)
    path = os.pathsep.join([str(programs), os.environ.get("PATH", "")])
    return os.environ | {"PATH": path, "PYTHONPATH": str(ROOT), "XDG_CACHE_HOME": str(folder / "cache")}


def snakemake(folder: Path, *words: object, expected: int | None = 0) -> str:
    """Run the workflow in a folder; return what it said.

    Parameters
    ----------
    folder : to work in
    words : more options
    expected : exit code; None: any but 0
    """
    command = [*find_snakemake(), "--snakefile", SNAKEFILE, "--directory", folder, *words]
    done = subprocess.run(
        [str(word) for word in command],
        env=environment(folder),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
        timeout=3600,
    )
    said = done.stdout + done.stderr
    assert done.returncode == expected if expected is not None else done.returncode, said
    return said
