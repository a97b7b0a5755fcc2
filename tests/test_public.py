"""What `import genoformer` offers, as users of the library take it."""

from __future__ import annotations

import inspect
import io
import runpy
from pathlib import Path

import numpy as np
import pytest
from tiny import made_up_genome, tiny_config, tiny_model, write_fasta, write_gff

import genoformer
from genoformer.model.checkpoint import bundled_models, save_model

DATA = Path(__file__).resolve().parents[1] / "data"


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    folder, config = tmp_path_factory.mktemp("model"), tiny_config(inputs=("open-frames",))
    save_model(folder, tiny_model(config), config, name="tiny")
    return genoformer.load_model(folder)


@pytest.mark.parametrize("name", genoformer.__all__)
def test_every_name_is_there_and_explained(name):
    value = getattr(genoformer, name)
    assert name == "__version__" or inspect.getdoc(value)
    assert name in dir(genoformer)


def test_the_same_from_a_file_an_open_one_and_records(tmp_path, model):
    bases, _ = made_up_genome(3)
    path = write_fasta(tmp_path / "x.fa", {"one": bases, "two": bases[100:400]})
    records = [("one", bases), ("two", bases[100:400])]
    with path.open("rb") as stream:
        given = [path, str(path), stream, io.StringIO(path.read_text()), iter(records), dict(records)]
        found = [genoformer.collect(genoformer.predict(each, model)) for each in given]
    written = genoformer.predict_file(path, tmp_path / "x.h5", model)
    with genoformer.open_store(written) as store:
        found.append({name: {"coding-frame": store[name]} for name, _ in records})
    with genoformer.open_store(genoformer.predict_file(path, tmp_path / "w.h5", model, window=None)) as store:
        assert store.metadata["identity"]["window"] == "whole sequence"
        found.append({name: {"coding-frame": store[name]} for name, _ in records})  # no longer than a window: the same
    for values in found:
        assert list(values) == ["one", "two"]
        for name, some in records:
            assert values[name]["coding-frame"].shape == (len(some), 7)
            assert np.array_equal(values[name]["coding-frame"], found[0][name]["coding-frame"])
    with pytest.raises(genoformer.GenoformerError, match="exists already"):
        genoformer.predict_file(path, written, model)


def test_genes_of_values_and_of_a_store(tmp_path, model):
    bases, places = made_up_genome(4, codons=200)
    values = np.full((len(bases), 7), 0.01, np.float16)
    classes = np.zeros(len(bases), dtype=np.int64)
    for start, end, strand in places:
        codon = np.arange(end - start) % 3
        classes[start:end] = codon + 1 if strand > 0 else codon[::-1] + 4
    values[np.arange(len(bases)), classes] = 0.94
    genes = genoformer.call_genes(bases, values)
    assert [(gene.start, gene.end, gene.strand) for gene in genes] == places
    assert genoformer.call_genes(bases.decode(), values) == genes
    with pytest.raises(ValueError, match="values of"):
        genoformer.call_genes(bases, values[1:])
    path = write_fasta(tmp_path / "x.fa", {"s": bases})
    with genoformer.open_store(genoformer.predict_file(path, tmp_path / "x.h5", model)) as store:
        (found,) = genoformer.stored_genes(store, genoformer.open_sequences(path))
        assert found.name == "s"
        assert found.genes == genoformer.call_genes(bases, store["s"])


def test_evaluate_is_a_function_and_a_package(tmp_path, model):
    bases, places = made_up_genome(3)
    path = write_fasta(tmp_path / "x.fa", {"s": bases})
    written = genoformer.predict_file(path, tmp_path / "x.h5", model)
    result = genoformer.evaluate(written, write_gff(tmp_path / "x.gff", {"s": places}))
    assert result.bases == len(bases)
    from genoformer.evaluate import Score

    assert genoformer.evaluate.Score is Score


def test_embeddings_and_variants_of_bases(model):
    bases = b"ACGTTGCA" * 40
    (part,) = genoformer.embed({"s": bases}, model)
    assert part.values.shape == (-(-len(bases) // 3), 16)
    (score,) = genoformer.score_variants([genoformer.Variant("s", 8, "A", "C")], {"s": bases}, model)
    assert score.reason == ""


@pytest.mark.skipif("prokaryote-genes" not in bundled_models(), reason="the bundled model is not there")
def test_the_tutorial(capsys, monkeypatch, tmp_path):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    runpy.run_path(str(DATA / "tutorial.py"), run_name="__main__")
    said = capsys.readouterr().out
    assert "genes, the same" in said
    assert "drawn: " in said or "matplotlib" in said
    counts = [line.split()[0] for line in said.splitlines() if " genes; the longest" in line]
    assert f"{counts[0]} genes, the same" in said
