"""models and doctor: what is bundled, and whether a model predicts what it did when it was made."""

from __future__ import annotations

import shutil

import numpy as np
import pytest
import torch

from genoformer.model import checkpoint, reference
from genoformer.model.checkpoint import load_model, save_model
from genoformer.model.genoformer import build
from genoformer.tokens import A, G, T


@pytest.fixture
def bundle(tiny, tmp_path, monkeypatch):
    """A folder of bundled models that holds the tiny one."""
    shutil.copytree(tiny, tmp_path / "models" / "tiny")
    (tmp_path / "models" / "tiny" / "MODEL_CARD.md").write_text("# Tiny\nPredicts nonsense.\n")
    monkeypatch.setattr(checkpoint, "BUNDLED", tmp_path / "models")
    return tmp_path / "models"


def test_list_show_path(bundle, call):
    for arguments in (["models"], ["models", "list"]):
        result = call(*arguments)
        assert (result.code, result.err) == (0, "")
        head, row = (line.split() for line in result.out.splitlines())
        assert head == ["name", "parameters", "tracks", "size", "sha256", "state"]
        assert row[0] == "tiny"
        assert int(row[1].replace(",", "")) == sum(p.numel() for p in load_model("tiny").parameters())
        assert row[-1] == "intact"
    shown = call("models", "show", "tiny").out
    assert "Predicts nonsense." in shown
    assert '"width": 32' in shown
    assert call("models", "path", "tiny").out.strip() == str(bundle / "tiny")


def test_a_damaged_one_is_listed_as_such(bundle, call):
    (bundle / "tiny" / "model.safetensors").write_bytes(b"x")
    result = call("models")
    assert result.code == 1
    assert "tiny" in result.out
    assert "unusable" in result.out


def test_none_is_bundled(call, tmp_path, monkeypatch):
    monkeypatch.setattr(checkpoint, "BUNDLED", tmp_path)
    result = call("models")
    assert (result.code, result.out) == (0, "")
    assert "no model is bundled" in result.err
    result = call("doctor")
    assert result.code == 1
    assert "no such model" in result.complaints[0]


# The self-test


def test_doctor(bundle, call):
    lacking = call("doctor", "--model", "tiny")
    assert lacking.code == 1
    assert "reference.safetensors" in lacking.complaints[0]
    assert "torch" in lacking.out
    assert call("doctor", "--model", "tiny", "--write-reference").code == 0
    passed = call("doctor", "--model", "tiny", "--threads", 1)
    assert (passed.code, passed.err) == (0, "")
    for word in ("python:", "torch:", "h5py:", "cpu:", "cuda:", "hdf5:", "cache folder:", "self-test:", "passed: tiny"):
        assert word in passed.out


def test_doctor_compares_ways_to_compute(bundle, call, monkeypatch):
    monkeypatch.setattr("genoformer.parity.BASES", 4_000)
    assert call("doctor", "--model", "tiny", "--write-reference").code == 0
    held = call("doctor", "--model", "tiny", "--parity")
    assert held.code == 0
    assert "float64 on cpu, float32 on cpu" in held.out
    monkeypatch.setattr("genoformer.parity.ALLOWED", {"float32": -1.0})
    failed = call("doctor", "--model", "tiny", "--parity")
    assert failed.code == 1
    assert failed.out.count("FAILED") == 1
    assert "1 comparisons failed" in failed.err


@pytest.mark.parametrize("amount", [3e-3, float("nan")])
def test_doctor_notices_other_predictions(amount, bundle, call, monkeypatch):
    assert call("doctor", "--model", "tiny", "--write-reference").code == 0
    compute = reference.compute
    monkeypatch.setattr(
        reference, "compute", lambda *given: {name: values + amount for name, values in compute(*given).items()}
    )
    result = call("doctor", "--model", "tiny")
    assert result.code == 1
    assert "FAILED" in result.out
    assert "do not trust" in result.err


def test_doctor_refuses_the_reference_of_another_model(bundle, call, tiny):
    assert call("doctor", "--model", "tiny", "--write-reference").code == 0
    model = load_model(tiny)
    with torch.no_grad():
        model.decoder.up.bias += 0.1
    save_model(bundle / "tiny", model, model.checkpoint.config, name="tiny")
    result = call("doctor", "--model", "tiny")
    assert result.code == 1
    assert "another model" in result.complaints[0]


def test_the_reference_holds_a_gene():
    codes = reference.reference_codes()
    assert codes.shape == (1000,)
    assert codes.dtype == np.uint8
    assert np.array_equal(codes, reference.reference_codes())
    start = (1000 - 606) // 2
    codons = codes[start : start + 606].reshape(-1, 3)
    assert codons[0].tolist() == [A, T, G]
    stops = {(T, A, A), (T, A, G), (T, G, A)}
    assert [tuple(codon) in stops for codon in codons.tolist()] == [False] * 201 + [True]


def test_the_reference_is_the_same_for_the_same_weights(tiny):
    model = load_model(tiny)
    again = build(model.checkpoint.config).eval()
    codes = reference.reference_codes()
    for name, values in reference.compute(model, codes).items():
        assert values.shape == (1000, 7)
        assert torch.equal(values, reference.compute(again, codes)[name])
