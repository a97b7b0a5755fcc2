"""CRAM: read with the reference it was made with, of any shape, and refused without; no network is asked."""

from __future__ import annotations

import http.server
import os
import shutil
import threading

import pysam
import pytest
from bam_samples import (
    REFERENCE,
    REVERSE,
    contents,
    reverse_complement,
    write,
)

from genoformer.errors import FormatError, InputError
from genoformer.formats.sequences import open_sequences
from genoformer.regions import Region


@pytest.fixture
def cram(tmp_path):
    folder = tmp_path / "made"
    folder.mkdir()
    reference = folder / "ref.fa"
    reference.write_text(f">c\n{REFERENCE}\n")
    some = [(f"r{start}", REVERSE * (start % 2), REFERENCE[start : start + 20], 0, start) for start in range(50)]
    head = {"HD": {"VN": "1.6", "SO": "coordinate"}, "SQ": [{"SN": "c", "LN": 400}]}
    path = write(tmp_path / "x.cram", some, mode="wc", head=head, reference_filename=str(reference))
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    shutil.move(reference, elsewhere / "ref.fa")
    shutil.rmtree(folder)
    return path


def test_cram_needs_its_reference(cram, capfd):
    with pytest.raises(InputError, match=r"x\.cram: .*--reference REF\.fa") as caught:
        contents(open_sequences(cram))
    assert "\n" not in str(caught.value)
    assert capfd.readouterr() == ("", "")


@pytest.mark.parametrize("shape", ["plain", "gzip", "bgzip", "ragged", "crlf"])
def test_cram_with_its_reference_of_any_shape(shape, cram, private_cache):
    from strategies import COMPRESSIONS

    reference = cram.parent / "elsewhere" / "ref.fa"
    text = reference.read_bytes()
    if shape == "ragged":
        text = text[:50] + b"\n" + text[50:53] + b"\n" + text[53:]
    if shape == "crlf":
        text = text.replace(b"\n", b"\r\n")
    reference.write_bytes(COMPRESSIONS.get(shape, bytes)(text))
    sequences = open_sequences(cram, reference=reference)
    expected = [
        (f"r{start}", reverse_complement(REFERENCE[start : start + 20]) if start % 2 else REFERENCE[start : start + 20])
        for start in range(50)
    ]
    assert contents(sequences) == contents(sequences) == expected
    assert contents(sequences, regions=[Region("c", 0, 5)]) == expected[:5]
    assert [path.name for path in reference.parent.iterdir()] == ["ref.fa"]  # no index beside it
    assert sorted(path.suffix for path in private_cache.iterdir() if path.suffix != ".gzi") == [".crai", ".fa", ".fai"]


def test_cram_with_a_wrong_reference(cram):
    reference = cram.parent / "other.fa"
    reference.write_text(f">c\n{REFERENCE[5:]}AAAAA\n")
    with pytest.raises(FormatError, match=r"other\.fa does not belong to it"):
        contents(open_sequences(cram, reference=reference))
    reference.write_text(f">z\n{REFERENCE}\n")
    with pytest.raises(FormatError, match=r"other\.fa does not belong to it"):
        contents(open_sequences(cram, reference=reference))
    with pytest.raises(InputError, match=r"absent\.fa: no such file"):
        contents(open_sequences(cram, reference=cram.parent / "absent.fa"))


def test_cram_asks_nothing_of_the_network(cram, monkeypatch):
    asked = []

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self):
            asked.append(self.path)
            self.send_error(404)

        def log_message(self, *words):
            pass

    with http.server.HTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        url = f"http://127.0.0.1:{server.server_port}"
        try:
            monkeypatch.setenv("REF_PATH", f"{url}/%s")
            with pytest.raises(InputError, match="--reference"):
                contents(open_sequences(cram))
            assert os.environ["REF_PATH"] == f"{url}/%s"
            with_url = cram.parent / "url.cram"
            head = pysam.view("-H", "--no-PG", str(cram)).splitlines()
            lines = [
                "\t".join([field for field in line.split("\t") if not field.startswith("UR:")] + [f"UR:{url}/ref.fa"])
                if line.startswith("@SQ") else line
                for line in head
            ]  # fmt: skip
            (cram.parent / "head.sam").write_text("\n".join(lines) + "\n")
            with_url.write_bytes(cram.read_bytes())
            pysam.reheader("-i", "-P", str(cram.parent / "head.sam"), str(with_url), catch_stdout=False)
            assert f"UR:{url}" in pysam.view("-H", str(with_url))
            with pytest.raises(InputError, match=rf"url\.cram: its reference is at {url}/ref\.fa.*--reference"):
                contents(open_sequences(with_url))
            reference = cram.parent / "elsewhere" / "ref.fa"
            assert len(contents(open_sequences(with_url, reference=reference))) == 50
        finally:
            server.shutdown()
            thread.join(10)
    assert asked == []
