"""predict --one-genome."""

from __future__ import annotations

import numpy as np
import pytest
from tiny import random_bases, tiny_config, tiny_model, write_fasta

from genoformer import Settings, organism_context, predict_file
from genoformer.errors import ConfigError
from genoformer.model.checkpoint import load_model, save_model
from genoformer.store import open_store

CONTIGS = {f"c{n}": random_bases(n, n) for n in (90, 40, 120)}
SEEING = {"attention": ("local", "performer")}


def test_the_option(call, tmp_path):
    folder = tmp_path / "model"
    save_model(folder, tiny_model(**SEEING), tiny_config(**SEEING), name="tiny")
    fasta = write_fasta(tmp_path / "x.fa", CONTIGS)
    result = call("predict", fasta, "-o", tmp_path / "x.h5", "--model", folder, "--window", 100, "--overlap", 20,
                  "--one-genome", "--genetic-code", 11)  # fmt: skip
    assert result.code == 0, result.err
    model = load_model(folder)
    settings = Settings(context=organism_context(fasta, model))
    predict_file(fasta, tmp_path / "e.h5", model, window=100, overlap=20, settings=settings)
    with open_store(tmp_path / "x.h5") as found, open_store(tmp_path / "e.h5") as expected:
        for name, bases in CONTIGS.items():
            np.testing.assert_array_equal(found[name, 0 : len(bases)], expected[name, 0 : len(bases)])
    result = call("predict", fasta, "-o", tmp_path / "y.h5", "--model", folder, "--whole-sequence", "--one-genome")
    assert (result.code, "with --whole-sequence each sequence tells for itself" in result.err) == (2, True)


def test_a_model_that_cannot(call, tmp_path):
    config = tiny_config(attention=("local",))
    save_model(tmp_path / "model", tiny_model(config), config, name="tiny")
    fasta = write_fasta(tmp_path / "x.fa", {"a": b"ACGT" * 30})
    result = call("predict", fasta, "-o", tmp_path / "x.h5", "--model", tmp_path / "model", "--one-genome")
    assert (result.code, "a context needs Performer attention" in result.err) == (2, True)
    assert not list(tmp_path.glob("x.h5*"))
    with pytest.raises(ConfigError):
        organism_context(fasta, load_model(tmp_path / "model"))
