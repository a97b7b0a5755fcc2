"""What the README shows works: its commands and its Python, in order, in a folder of their own."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

import pytest

ROOT = Path(__file__).resolve().parents[1]
README = (ROOT / "README.md").read_text(encoding="utf-8")
MODEL = ROOT / "genoformer" / "models" / "prokaryote-genes"
INSTALL = re.compile(r"^pip install [^&]+ && ")


class Snippet(NamedTuple):
    language: str
    text: str


def marked_snippets() -> list[Snippet]:
    """Return the blocks that are marked as tested, in order."""
    found = re.findall(r"^<!-- tested -->\n```(bash|python)\n(.*?)^```$", README, re.MULTILINE | re.DOTALL)
    return [Snippet(*match) for match in found]


def first_commands() -> tuple[str, str]:
    """Return the two commands that the README begins with, as they are written."""
    run, test = re.findall(r"^```sh\n(pip install .*)\n```$", README, re.MULTILINE)
    return run, test


def environment() -> dict[str, str]:
    """Return an environment in which `genoformer` is this one, installed or not."""
    folders = [str(Path(sys.executable).parent), os.environ.get("PATH", "")]
    paths = [str(ROOT), os.environ.get("PYTHONPATH", "")]
    return os.environ | {
        "PATH": os.pathsep.join(folders),
        "PYTHONPATH": os.pathsep.join(path for path in paths if path),
        "PYTHONWARNINGS": "error",
    }


def execute(snippet: Snippet, folder: Path) -> str:
    program = [sys.executable, "-c"] if snippet.language == "python" else ["bash", "-euo", "pipefail", "-c"]
    done = subprocess.run(
        [*program, snippet.text],
        cwd=folder,
        env=environment(),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert done.returncode == 0, f"{snippet.text}\n{done.stdout}\n{done.stderr}"
    return done.stdout


def links(text: str) -> list[str]:
    return [target for target in re.findall(r"\]\(([^)#]+)\)", text) if "://" not in target]


@pytest.mark.skipif(not MODEL.is_dir(), reason="the bundled model prokaryote-genes is not there")
def test_commands_and_python(tmp_path):
    """The first command, without its installation, and all that is marked; later ones use what earlier ones wrote."""
    shutil.copytree(ROOT / "data", tmp_path / "data")
    run, _ = first_commands()
    execute(Snippet("bash", INSTALL.sub("", run)), tmp_path)
    assert (tmp_path / "lambda.h5").is_file()
    for snippet in marked_snippets():
        output = execute(snippet, tmp_path)
        assert output or " -o " in snippet.text, f"prints nothing:\n{snippet.text}"


def test_five_commands_are_among_those_tested():
    install, *commands = re.findall(r"## In five commands.*?```sh\n(.*?)```", README, re.DOTALL)[0].splitlines()
    assert len([install, *commands]) == 5
    tested = [INSTALL.sub("", first_commands()[0])]
    tested += [line for snippet in marked_snippets() for line in snippet.text.splitlines()]
    assert set(commands) <= set(tested)


def test_two_commands_come_first():
    run, test = first_commands()
    assert run == "pip install . && genoformer predict data/lambda.fa.gz -o lambda.h5"
    assert INSTALL.match(test)
    assert README.index(run) < README.index(test) < README.index("## ")


def test_ends_with_limitations():
    assert README.rpartition("\n## ")[2].startswith("Limitations\n")


def test_checks_run_the_readme_command():
    """.ci/run installs and tests as the README says."""
    _, test = first_commands()
    install, _, run = test.partition(" && ")
    script = (ROOT / ".ci" / "run").read_text(encoding="utf-8").splitlines()
    assert script[-1] == run
    assert any(install.removeprefix("pip install") in line for line in script if "pip install --quiet" in line)
    assert os.access(ROOT / ".ci" / "run", os.X_OK)


def test_something_is_tested():
    kinds = [snippet.language for snippet in marked_snippets()]
    assert kinds.count("python") >= 3
    assert kinds.count("bash") >= 3
    assert README.count("<!-- tested -->") == len(kinds)
    assert README.count("```python") == kinds.count("python"), "a block of Python that no test runs"


def test_every_command_is_described():
    from genoformer.cli import COMMANDS

    described = re.findall(r"^\| `(\w+)` \|", README.partition("## Commands")[2], re.MULTILINE)
    assert sorted(described) == sorted(COMMANDS)


def test_every_benchmark_is_listed():
    text = (ROOT / "tests" / "benchmarks" / "README.md").read_text(encoding="utf-8")
    listed = set(re.findall(r"python tests/benchmarks/(\w+\.py)", text))
    scripts = (ROOT / "tests" / "benchmarks").glob("*.py")
    assert listed == {path.name for path in scripts if '__name__ == "__main__"' in path.read_text(encoding="utf-8")}


DOCUMENTS = ["README.md", "CONTRIBUTING.md", "CHANGELOG.md", "data/README.md", "pipelines/README.md"]


@pytest.mark.parametrize("document", DOCUMENTS)
def test_links_lead_somewhere(document):
    path = ROOT / document
    for target in links(path.read_text(encoding="utf-8")):
        if not MODEL.is_dir() and MODEL.name in target and "models" in target:
            continue
        assert (path.parent / target).exists(), target
