"""predict with several processes: what is refused before anything is read, and huge pages of memory."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest
from samples import bases, fasta

MAIN = "import os, genoformer.cli as cli; cli.run = lambda: print(os.environ.get({name!r})); cli.main()"
PAGES = "THP_MEM_ALLOC_ENABLE"


@pytest.mark.parametrize(
    ("options", "code", "said"),
    [
        (["--device", "cpu,cpu"], 2, "only GPUs can be several, by their numbers, such as cuda:0,1"),
        (["--device", "cuda:0,0"], 2, "one is named twice"),
        (["--device", "all", "--processes", 1], 2, "2 devices take at least as many processes, got 1"),
        (["--device", "cuda:0,2"], 3, "device 'cuda:2' is not available here"),
        (["--device", "cuda:0,x"], 2, "device 'x' is not known"),
        (["--processes", 0], 2, "0 is not in the range"),
    ],
)
def test_devices_that_cannot_be_are_refused_at_once(call, tiny, tmp_path, monkeypatch, options, code, said):
    monkeypatch.setattr("torch.cuda.is_available", lambda: True)
    monkeypatch.setattr("torch.cuda.device_count", lambda: 2)
    source = fasta(tmp_path / "x.fa", a=bases(500))
    result = call("predict", source, "-o", tmp_path / "x.h5", "--model", tiny, *options)
    assert result.code == code
    assert said in result.err
    assert "to predict" not in result.err
    assert list(tmp_path.iterdir()) == [source]


@pytest.mark.skipif(sys.platform != "linux", reason="of Linux")
@pytest.mark.parametrize(("given", "found"), [({}, "1"), ({PAGES: "0"}, "0")])
def test_the_program_asks_for_huge_pages(given, found):
    environment = {name: value for name, value in os.environ.items() if name != PAGES} | given
    words = [sys.executable, "-c", MAIN.format(name=PAGES)]
    done = subprocess.run(words, capture_output=True, text=True, check=True, env=environment)
    assert done.stdout.strip() == found


def test_the_library_does_not():
    code = f"import os; os.environ.pop({PAGES!r}, None); import genoformer.cli; print(os.environ.get({PAGES!r}))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "None"
