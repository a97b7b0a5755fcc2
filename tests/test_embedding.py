"""Embeddings: the tokens of windows are those of whole sequences, each once; the file says what it is."""

from __future__ import annotations

import h5py
import numpy as np
import pytest
import torch
from tiny import Memory, random_bases, tiny_model

from genoformer.embedding import embed, embed_to_store, open_embeddings
from genoformer.errors import ConfigError, FormatError, InputError, ResourceError
from genoformer.model.genoformer import Genoformer
from genoformer.plan import make_plan
from genoformer.predict import Settings
from genoformer.regions import Region
from genoformer.tokens import encode

NAMES = Memory(
    ("a/b", random_bases(301, 1)),
    ("one", b"A"),
    ("gapped", random_bases(60, 2) + b"N" * 70 + random_bases(21, 3)),
    ("unknown", b"N" * 80),
    ("empty", b""),
    *((f"s{n}", random_bases(10 + n, 10 + n)) for n in range(7)),
)


@pytest.fixture(scope="module")
def model() -> Genoformer:
    torch.manual_seed(0)
    return tiny_model(attention=("local", "performer", "local"), stem_stride=3, inputs=("open-frames",))


def whole(model: Genoformer, bases: bytes, layer: int) -> np.ndarray:
    return model.embed(torch.from_numpy(encode(bases).copy())[None], layer=layer)[0].numpy()


@pytest.mark.parametrize("layer", [0, 1, 2, 3])
def test_layers_are_what_each_block_returns(model, layer):
    """Twin: run the blocks by hand, with hooks."""
    codes = torch.from_numpy(encode(random_bases(50, 4)).copy())[None]
    seen = []
    hooks = [block.register_forward_hook(lambda *_: None) for block in model.encoder.blocks]
    updates = [block.update for block in model.encoder.blocks]
    for block, update in zip(model.encoder.blocks, updates, strict=True):
        block.update = lambda *given, update=update: seen.append(update(*given)) or seen[-1]
    try:
        model(codes)
    finally:
        for block, hook in zip(model.encoder.blocks, hooks, strict=True):
            hook.remove()
            del block.update
    found = model.embed(codes, layer=layer)
    assert found.shape == (1, 17, 16)
    if layer:
        torch.testing.assert_close(found, seen[layer - 1])
    assert torch.equal(found, model.embed(codes, layer=layer - 4))
    torch.testing.assert_close(found, model.embed(codes, layer=layer, chunk_size=4), rtol=1e-4, atol=1e-5)


def test_no_such_layer(model):
    for layer in (4, -5):
        with pytest.raises(ConfigError, match="layers 0"):
            model.embed(torch.zeros((1, 9), dtype=torch.uint8), layer=layer)


@pytest.mark.parametrize("batch_size", [1, 3])
def test_each_token_once_and_in_order(model, batch_size):
    found: dict[str, list] = {}
    for part in embed(NAMES, model, window=90, overlap=30, settings=Settings(batch_size=batch_size)):
        parts = found.setdefault(part.sequence, [])
        assert part.start == sum(map(len, parts))
        parts.append(part.values)
    for name, bases in NAMES.held:
        tokens = -(-len(bases) // 3)
        assert sum(map(len, found.get(name, []))) == (0 if name in ("unknown", "empty") else tokens)
        if 0 < len(bases) <= 90 and name != "unknown":
            np.testing.assert_allclose(np.concatenate(found[name]), whole(model, bases, -1), atol=4e-3, rtol=4e-3)


def test_an_input_that_changed_since_it_was_planned_is_noticed(model, tmp_path):
    held = [("a", random_bases(30)), ("b", random_bases(9, 1))]
    plan = make_plan(Memory(*held))
    for changed in (held[:1], [*held, ("c", b"A")], [held[0], ("b", held[1][1] + b"A")]):
        with pytest.raises(InputError, match="has changed since it was planned"):
            embed_to_store(plan, Memory(*changed), model, tmp_path / "x.h5", layer=1)
        assert not list(tmp_path.glob("x.h5"))


def test_tokens_of_windows_are_those_of_the_whole():
    """The stem sees little: its tokens are the same whatever the window."""
    flat = tiny_model(attention=("local",), stem_stride=3, inputs=())
    found = np.concatenate([part.values for part in embed(Memory(NAMES.held[0]), flat, layer=0, window=90, overlap=31)])
    np.testing.assert_allclose(found, whole(flat, NAMES.held[0][1], 0), atol=4e-3, rtol=4e-3)


@pytest.fixture
def written(model, tmp_path):
    plan = make_plan(NAMES, window=90, overlap=30)
    return embed_to_store(plan, NAMES, model, tmp_path / "x.h5", layer=2, command="me")


def test_file(model, written):
    assert [path.name for path in written.parent.iterdir()] == ["x.h5"]
    with open_embeddings(written) as store:
        assert (store.layer, store.stride, store.width) == (2, 3, 16)
        assert store.sequences.names == [name for name, _ in NAMES.held]
        assert store["a/b"].shape == (101, 16)
        assert not np.isnan(store["a/b"]).any()
        assert np.array_equal(store.tokens(Region("a/b", 3, 7)), store["a/b"][1:3])
        assert store.tokens(Region("a/b", 300, 301)).shape == (1, 16)
        assert store.tokens(Region("a/b", 5, 5)).shape[0] <= 1
        assert store["empty"].shape == (0, 16)
        assert np.isnan(store["unknown"]).all()
        rows = np.isnan(store["gapped"])
        assert np.array_equal(rows.all(axis=1), rows.any(axis=1))
        assert np.flatnonzero(rows[:, 0]).tolist() == list(range(20, 43))  # tokens of bases 60-129, all in the gap
        np.testing.assert_allclose(store["s3"], whole(model, dict(NAMES.held)["s3"], 2), atol=4e-3, rtol=4e-3)
        with pytest.raises(InputError):
            store.tokens(Region("a/b", 0, 302))
        with pytest.raises(InputError):
            store["nobody"]
    with h5py.File(written) as file:
        assert file.attrs["format"] == "genoformer-embeddings"
        assert file["embedding/values"].dtype == np.float16


def test_regions(model, tmp_path):
    plan = make_plan(NAMES, window=90, overlap=30, regions=[Region("a/b", 10, 20), Region("a/b", 20, 200)])
    embed_to_store(plan, NAMES, model, tmp_path / "x.h5")
    with open_embeddings(tmp_path / "x.h5") as store:
        there = ~np.isnan(store["a/b"][:, 0])
        assert np.flatnonzero(there).tolist() == list(range(3, 67))
        assert np.isnan(store["s1"]).all()


def test_nothing_is_left_of_a_failure(model, tmp_path, monkeypatch):
    plan = make_plan(NAMES, window=90, overlap=30)

    def fail(bases: int) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        embed_to_store(plan, NAMES, model, tmp_path / "x.h5", report=fail)
    assert list(tmp_path.iterdir()) == []
    monkeypatch.setattr("shutil.disk_usage", lambda _: __import__("shutil")._ntuple_diskusage(9, 9, 10))
    with pytest.raises(ResourceError, match="are free"):
        embed_to_store(plan, NAMES, model, tmp_path / "x.h5")


def test_other_files(tmp_path):
    with pytest.raises(InputError, match="no such file"):
        open_embeddings(tmp_path / "none.h5")
    (tmp_path / "x.h5").write_text("hello")
    with h5py.File(tmp_path / "y.h5", "w") as file:
        file["x"] = 1
    for name in ("x.h5", "y.h5"):
        with pytest.raises(FormatError, match=name):
            open_embeddings(tmp_path / name)


@pytest.mark.parametrize("metadata", ["[]", "5", '{"input": 5}', "{", "[" * 5000])
def test_provenance_of_other_kinds(model, tmp_path, metadata):
    path = tmp_path / "x.h5"
    embed_to_store(make_plan(NAMES, window=90, overlap=30), NAMES, model, path)
    with h5py.File(path, "r+") as file:
        file.attrs["metadata"] = metadata
    with pytest.raises(FormatError, match=r"x.h5: not HDF5, or damaged"):
        open_embeddings(path)
