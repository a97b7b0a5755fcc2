"""What files of strangers cannot do: run code, take memory they do not fill, follow paths, leave things behind."""

from __future__ import annotations

import ast
import gzip
import io
import json
import stat
import sys
import tracemalloc
from contextlib import contextmanager
from pathlib import Path

import pytest
import torch
from safetensors.torch import save
from tiny import CHOICES, tiny_config, tiny_model

import genoformer
from genoformer.errors import CheckpointError, FormatError, GenoformerError, InputError, printable
from genoformer.formats import cache
from genoformer.formats.bed import read_bed
from genoformer.formats.bytestream import Source
from genoformer.formats.gff3 import read_gff3
from genoformer.formats.sequences import open_sequences
from genoformer.model.allowance import check_allowance, least_numbers
from genoformer.model.checkpoint import load_model, named_tensors, save_model, sha256

PACKAGE = Path(genoformer.__file__).parent
FORBIDDEN_MODULES = {"pickle", "cPickle", "dill", "cloudpickle", "joblib", "shelve", "marshal", "yaml", "runpy", "imp"}
FORBIDDEN_CALLS = {
    *("eval", "exec", "compile", "__import__", "os.system", "os.popen", "os.execv", "os.execvp", "torch.load"),
    *("torch.save", "torch.jit.load", "torch.hub.load", "numpy.load_pickle", "tempfile.mktemp", "pty.spawn"),
}


def written(node: ast.expr) -> str:
    return ast.unparse(node) if isinstance(node, ast.Name | ast.Attribute) else ""


def offences(tree: ast.AST) -> list[str]:
    """List what could run code from a file."""
    found = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found += [alias.name for alias in node.names if alias.name.split(".")[0] in FORBIDDEN_MODULES]
        if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] in FORBIDDEN_MODULES:
            found.append(str(node.module))
        if isinstance(node, ast.Call):
            name, keywords = written(node.func), {word.arg: word.value for word in node.keywords}
            if name in FORBIDDEN_CALLS:
                found.append(name)
            if (
                name in ("np.load", "numpy.load")
                and ast.unparse(keywords.get("allow_pickle", ast.Name("?"))) != "False"
            ):
                found.append(name)
            if "shell" in keywords and ast.unparse(keywords["shell"]) != "False":
                found.append(f"{name} in a shell")
    return found


@pytest.mark.parametrize("path", sorted(PACKAGE.rglob("*.py")), ids=lambda path: str(path.relative_to(PACKAGE)))
def test_no_code_comes_from_files(path):
    assert offences(ast.parse(path.read_text(encoding="utf-8"))) == []


def test_the_search_finds_what_it_looks_for():
    for text in ("import pickle", "from yaml import load", "eval(x)", "torch.load(p)", "np.load(p)",
                 "subprocess.run(x, shell=True)", "os.system('x')"):  # fmt: skip
        assert offences(ast.parse(text)), text
    assert not offences(ast.parse("np.load(p, allow_pickle=False); model.eval(); re.compile('x')"))


@contextmanager
def bounded(most: float):
    """Fail if more memory than this many bytes is taken within."""
    tracemalloc.start()
    try:
        yield
        assert tracemalloc.get_traced_memory()[1] < most
    finally:
        tracemalloc.stop()


# Models


@pytest.mark.parametrize("choice", CHOICES)
def test_no_model_has_fewer_numbers_than_foretold(choice):
    config = tiny_config(**CHOICES[choice])
    numbers = sum(tensor.numel() for tensor in named_tensors(tiny_model(config)).values())
    assert 0.6 * numbers < least_numbers(config) <= numbers


HUGE = {
    "width": 10**9, "stem_channels": 10**6, "heads": 10**9, "expansion": 10**6, "performer_count": 10**6,
    "conv_kernel": 10**6 + 1, "stem_kernel": 10**6 + 1, "stem_stride": 10**6, "linformer_rank": 10**12,
    "attention": ["softmax"] * 100_000, "seed": 10**30,
}  # fmt: skip


@pytest.mark.parametrize("key", HUGE)
def test_a_description_that_asks_for_the_world_is_refused_before_memory_is_touched(key, tmp_path):
    save_model(tmp_path, tiny_model(), tiny_config(), name="m")
    described = json.loads((tmp_path / "config.json").read_text())
    described["model"][key] = HUGE[key]
    (tmp_path / "config.json").write_text(json.dumps(described))
    with bounded(30e6), pytest.raises(CheckpointError):
        load_model(tmp_path)


def head(**tensors: object) -> bytes:
    text = json.dumps(tensors).encode()
    return len(text).to_bytes(8, "little") + text


LIES = {
    "longer than the file": head(x={"dtype": "F32", "shape": [10**6, 10**6], "data_offsets": [0, 4 * 10**12]}),
    "more than 64 bits": head(x={"dtype": "F32", "shape": [2**40, 2**40], "data_offsets": [0, 0]}),
    "a head of 2^60 bytes": (2**60).to_bytes(8, "little") + b"{}",
    "overlapping": head(x={"dtype": "U8", "shape": [1], "data_offsets": [0, 1]},
                        y={"dtype": "U8", "shape": [1], "data_offsets": [0, 1]}) + b"\0",
    "a hole": head(x={"dtype": "U8", "shape": [1], "data_offsets": [5, 6]}) + bytes(6),
    "no JSON": (4).to_bytes(8, "little") + b"abcd",
    "nothing": b"",
    "not our numbers": save({"x": torch.zeros(100_000)}),
}  # fmt: skip


@pytest.mark.parametrize("lie", LIES)
def test_weights_that_lie_are_refused(lie, tmp_path):
    save_model(tmp_path, tiny_model(), tiny_config(), name="m")
    (tmp_path / "model.safetensors").write_bytes(LIES[lie])
    described = json.loads((tmp_path / "config.json").read_text())
    described["weights-sha256"] = sha256(tmp_path / "model.safetensors")
    (tmp_path / "config.json").write_text(json.dumps(described))
    with pytest.raises(CheckpointError):
        load_model(tmp_path)


def test_a_description_that_is_no_description(tmp_path):
    save_model(tmp_path, tiny_model(), tiny_config(), name="m")
    check_allowance(tiny_config(), tmp_path / "model.safetensors")
    for text in ("[" * 10**6, " " * (17 << 20), '{"format": "genoformer-model", "format-version": 1, "training": 3}'):
        (tmp_path / "config.json").write_text(text)
        with pytest.raises(CheckpointError):
            load_model(tmp_path)


# Text, compression, temporary files


@pytest.mark.parametrize("read", [read_gff3, lambda path: list(read_bed(path, {"c": 9}))], ids=["GFF3", "BED"])
def test_a_line_without_an_end_is_not_gathered(read, tmp_path):
    path = tmp_path / "bomb.gz"
    with gzip.open(path, "wb", compresslevel=1) as file:
        for _ in range(100):
            file.write(bytes(1 << 20))
    with bounded(400e6), pytest.raises(FormatError, match="a line of more than 64 MiB"):
        read(path)


def test_a_header_without_an_end_is_not_gathered(tmp_path):
    path = tmp_path / "bomb.gz"
    with gzip.open(path, "wb", compresslevel=1) as file:
        file.write(b">")
        for _ in range(40):
            file.write(b"A" * (1 << 20))
    for work in (lambda: list(open_sequences(path).records()), lambda: open_sequences(path).lengths()):
        with pytest.raises(FormatError, match="a header of more than 16 MiB"):
            work()


def test_temporary_files_are_private_and_go_away(monkeypatch, tmp_path):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b">a\nACGT\n")))
    source = Source("-")
    assert stat.S_IMODE(source.path.stat().st_mode) == 0o600
    path = source.path
    del source
    assert not path.exists()
    cache._temporary_folder.cache_clear()
    folder = cache._temporary_folder()
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    assert folder.parent == tmp_path
    cache._temporary_folder.cache_clear()


def test_messages_are_one_line_that_a_terminal_does_not_obey():
    evil = "x\x1b]0;title\x07\u202e\n\r\x9b"
    said = str(InputError(f"{evil}: no"))
    assert said.isprintable()
    assert str(InputError(printable(evil))) == printable(evil)
    assert len(str(InputError("9" * 10**6))) < 300
    assert len(str(InputError("9 " * 10**6))) < 3000
    assert str(GenoformerError("a", 1)) == "('a', 1)"
