"""What makes the command line comfortable: versions, silence, completion, models by name."""

from __future__ import annotations

import os
import re
import subprocess
import sys

import pytest
from samples import fasta

from genoformer import __version__
from genoformer.cli import COMMANDS, group
from genoformer.model import checkpoint


def test_versions_of_what_matters(call):
    for option in ("--version", "-V"):
        result = call(option)
        assert (result.code, result.err) == (0, "")
        first, second = result.out.splitlines()
        assert first == f"genoformer {__version__}"
        for name in ("python", "torch", "numpy", "h5py", "pysam"):
            assert re.search(rf"\b{name} \d", second)


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_can_be_quiet(name):
    command = group.get_command(None, name)
    inner = command.commands.values() if hasattr(command, "commands") else [command]
    if name == "bench":
        inner = [command.get_command(None, each) for each in command.list_commands(None)]
    for each in inner:
        assert sum("--quiet" in parameter.opts for parameter in each.params) == 1


def test_quiet_says_errors_only(call, tmp_path):
    fasta(tmp_path / "x.fa", a="ACGT" * 30)
    loud = call("tokenize", tmp_path / "x.fa", "-o", tmp_path / "loud.h5")
    quiet = call("tokenize", tmp_path / "x.fa", "-o", tmp_path / "quiet.h5", "--quiet")
    assert loud.code == quiet.code == 0
    assert loud.err
    assert quiet.err == ""
    again = call("tokenize", tmp_path / "x.fa", "-o", tmp_path / "quiet.h5", "-q")
    assert again.code == 2
    assert "exists already" in again.complaints[0]
    assert call("tokenize", tmp_path / "x.fa", "-o", tmp_path / "other.h5").err, "silence lasts for one command"


def test_completion(tmp_path):
    def completed(words: str) -> str:
        settings = {"_GENOFORMER_COMPLETE": "bash_complete", "COMP_WORDS": words, "COMP_CWORD": str(words.count(" "))}
        return subprocess.run(
            [sys.executable, "-m", "genoformer"], env=os.environ | settings, capture_output=True, text=True, check=True
        ).stdout

    assert "plain,predict" in completed("genoformer pre")
    assert "plain,--quiet" in completed("genoformer merge --q")


def test_models_are_carried_by_name(call, tiny, tmp_path, monkeypatch):
    bundle = tmp_path / "m.tar"
    result = call("models", "export", tiny, "-o", bundle)
    assert result.code == 0, result.err
    assert call("models", "export", tiny, "-o", bundle).code == 2
    monkeypatch.setenv(checkpoint.ENVIRONMENT, str(tmp_path / "models"))
    imported = call("models", "import", bundle)
    assert imported.code == 0, imported.err
    assert "--model tiny" in imported.err
    assert "tiny" in call("models").out
    assert call("models", "path", "tiny").out.strip() == str(tmp_path / "models" / "tiny")
    bundle.write_bytes(bundle.read_bytes()[: bundle.stat().st_size // 2])
    damaged = call("models", "import", bundle, "--overwrite")
    assert damaged.code == 1
    assert len(damaged.complaints) == 1
