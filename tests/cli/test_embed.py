"""genoformer embed: states of a layer from the command line."""

from __future__ import annotations

import pytest
from samples import bases, fasta


def test_embeddings_are_no_predictions(call, tiny, tmp_path):
    genome = fasta(tmp_path / "x.fa", a=bases(200))
    assert call("embed", genome, "-o", tmp_path / "e.h5", "--model", tiny).code == 0
    result = call("inspect", tmp_path / "e.h5")
    assert (result.code, "e.h5: holds embeddings, not predictions; genoformer.open_embeddings" in result.err) == (
        1,
        True,
    )


def test_embeds(call, tiny, tmp_path):
    from genoformer.embedding import open_embeddings

    path = fasta(tmp_path / "x.fa", a=bases(500), b="ACGT")
    result = call("embed", path, "-o", tmp_path / "o.h5", "--model", tiny, "--layer", 1, "--window", 200)
    assert result.code == 0, result.err
    assert "layer 1" in result.err
    with open_embeddings(tmp_path / "o.h5") as found:
        assert found.layer == 1
        assert found["a"].shape[1] == 32
    assert call("embed", path, "-o", tmp_path / "o.h5", "--model", tiny).code == 2
    assert call("embed", path, "-o", tmp_path / "o.h5", "--model", tiny, "--overwrite").code == 0


@pytest.mark.parametrize(
    ("options", "code", "word"),
    [(["--layer", 9], 2, "layer 9"), (["-r", "zz"], 1, "zz"), (["--circular", "a"], 2, "--circular: ")],
)
def test_what_cannot_be(options, code, word, call, tiny, tmp_path):
    path = fasta(tmp_path / "x.fa", a=bases(100))
    result = call("embed", path, "-o", tmp_path / "o.h5", "--model", tiny, *options)
    assert result.code == code
    assert word in result.complaints[0]
    assert list(tmp_path.iterdir()) == [path]


def test_help_offers_only_what_embeds(call):
    result = call("embed", "--help")
    assert "--layer" in result.out
    assert "--circular" not in result.out
