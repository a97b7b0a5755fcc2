"""Tests of formats share a private cache folder and the way to the real files."""

from __future__ import annotations

from pathlib import Path

import pytest

INPUTS = Path(__file__).resolve().parents[3] / "shared" / "inputs"


@pytest.fixture(autouse=True)
def private_cache(tmp_path_factory, monkeypatch):
    folder = tmp_path_factory.mktemp("cache")
    monkeypatch.setenv("GENOFORMER_CACHE", str(folder))
    return folder


@pytest.fixture(scope="session")
def real_inputs() -> Path:
    if not INPUTS.is_dir():
        pytest.skip(f"real files are not here: {INPUTS}")
    return INPUTS
