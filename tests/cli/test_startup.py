"""What starting costs: nothing heavy is imported before it is needed; the public names; help and exit codes."""

from __future__ import annotations

import subprocess
import sys

import pytest

from genoformer.cli import COMMANDS, exit_code, run
from genoformer.errors import CheckpointError, ConfigError, FormatError, InputError, ResourceError

HEAVY = ("torch", "h5py", "pysam", "numpy", "Bio", "safetensors")


def python(code: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=False)


@pytest.mark.parametrize(
    "work",
    [
        "import genoformer",
        "import genoformer; dir(genoformer); genoformer.__version__",
        "from genoformer.cli import run; assert run(['--help']) == 0",
        "from genoformer.cli import run; assert run(['--version']) == 0",
        *(f"from genoformer.cli import run; assert run(['{name}', '--help']) == 0" for name in COMMANDS),
    ],
)
def test_nothing_heavy_is_imported(work):
    done = python(f"{work}\nimport sys\nprint('heavy:', *[name for name in {HEAVY} if name in sys.modules])")
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1] == "heavy:"


def test_public_names_are_the_functions_whatever_was_imported_first():
    code = """
import genoformer.predict
import genoformer
from genoformer import Settings, load_model, open_sequences, open_store, predict
import genoformer.predict
from genoformer.predict import predict as same
assert genoformer.predict is predict is same and callable(predict)
assert all(hasattr(genoformer, name) for name in genoformer.__all__)
assert Settings().genetic_code == 11
"""
    done = python(code)
    assert done.returncode == 0, done.stderr


def test_unknown_public_name():
    import genoformer

    with pytest.raises(AttributeError, match="no attribute 'predikt'"):
        _ = genoformer.predikt


def test_the_program_and_the_module_are_the_same():
    done = subprocess.run(
        [sys.executable, "-m", "genoformer", "--help"], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0
    assert all(f"  {name}" in done.stdout for name in COMMANDS)
    assert "Exit codes" in done.stdout


@pytest.mark.parametrize("name", COMMANDS)
def test_help_has_an_example(name, capsys):
    assert run([name, "--help"]) == 0
    text, words = capsys.readouterr()
    assert "Example:" in text
    assert f"genoformer {name}" in text
    assert words == ""


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (InputError("x"), 1),
        (FormatError("x"), 1),
        (CheckpointError("x"), 1),
        (ConfigError("x"), 2),
        (ResourceError("x"), 3),
        (MemoryError(), 3),
        (KeyboardInterrupt(), 130),
    ],
)
def test_exit_code_of_each_error(error, code, monkeypatch, capsys):
    assert exit_code(error) == code

    def fail(*_: object, **__: object) -> None:
        raise error

    monkeypatch.setattr("genoformer.store.open_store", fail)
    assert run(["inspect", "x.h5"]) == code
    assert len([line for line in capsys.readouterr().err.splitlines() if line]) == 1


@pytest.mark.parametrize(
    ("error", "word"),
    [
        (OSError(28, "No space left on device", "/full/x"), "/full/x: No space left"),
        (RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried to allocate 9 bytes"), "out of memory"),
    ],
)
def test_what_the_machine_lacks_is_one_line(error, word, monkeypatch, capsys):
    monkeypatch.setattr("genoformer.store.open_store", lambda *_, **__: (_ for _ in ()).throw(error))
    assert run(["inspect", "x.h5"]) == 3
    assert word in capsys.readouterr().err


def test_a_defect_keeps_its_traceback(monkeypatch):
    monkeypatch.setattr("genoformer.store.open_store", lambda *_, **__: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        run(["inspect", "x.h5"])


@pytest.mark.parametrize(
    "arguments",
    [
        ["nonsense"], ["predict"], ["predict", "x.fa"], ["predict", "x.fa", "-o", "y.h5", "--window", "0"],
        ["predict", "x.fa", "-o", "y.h5", "--precision", "float8"], ["inspect"], ["train", "x.toml"], ["models", "hm"],
        ["plan", "x.fa", "--speed", "0"], ["predict", "x.fa", "-o", "y.h5", "--seed", str(1 << 70)],
    ],
)  # fmt: skip
def test_wrong_usage(arguments, capsys):
    assert run(arguments) == 2
    assert "Error" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("work", "closed", "code"),
    [("models", ">&-", 0), ("--help", ">&- 2>&-", 0), ("plan -", "<&- >&-", 1), ("plan -", "<&- >&- 2>&-", 1)],
)
def test_closed_streams(work, closed, code):
    done = subprocess.run(
        ["sh", "-c", f'"$0" -m genoformer {work} {closed}', sys.executable], capture_output=True, text=True, check=False
    )
    assert done.returncode == code
    assert "Traceback" not in done.stderr
