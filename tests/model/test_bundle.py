"""Models as one file: the same model comes out, at its name; whatever is wrong with the file, nothing does."""

from __future__ import annotations

import io
import subprocess
import tarfile
from pathlib import Path

import pytest
import torch
from tiny import tiny_config, tiny_model

from genoformer.errors import CheckpointError, ConfigError, ResourceError
from genoformer.model import checkpoint
from genoformer.model.bundle import SUMS, export_model, import_model
from genoformer.model.checkpoint import CARD, CONFIG, WEIGHTS, find_model, known_models, load_model, save_model


@pytest.fixture(scope="module")
def saved(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("saved") / "somewhere"
    save_model(folder, tiny_model(), tiny_config(), name="mine-1.0", training={"steps": 3})
    (folder / CARD).write_text("# Mine\n")
    (folder / "secret.txt").write_text("not part of it")
    return folder


@pytest.fixture
def bundle(saved, tmp_path) -> Path:
    export_model(saved, tmp_path / "mine.tar")
    return tmp_path / "mine.tar"


def test_there_and_back(saved, bundle, tmp_path, monkeypatch):
    monkeypatch.setenv(checkpoint.ENVIRONMENT, str(tmp_path / "models"))
    found = import_model(bundle)
    assert found.path == tmp_path / "models" / "mine-1.0" == find_model("mine-1.0")
    assert sorted(path.name for path in found.path.iterdir()) == sorted([CONFIG, WEIGHTS, CARD])
    assert [path.name for path in (tmp_path / "models").iterdir()] == ["mine-1.0"]
    assert found.training == {"steps": 3}
    ours, theirs = load_model(saved).state_dict(), load_model("mine-1.0").state_dict()
    assert all(torch.equal(ours[name], theirs[name]) for name in ours)
    with pytest.raises(ConfigError, match="--overwrite"):
        import_model(bundle)
    assert import_model(bundle, overwrite=True).sha256 == found.sha256
    assert [path.name for path in (tmp_path / "models").iterdir()] == ["mine-1.0"]


def test_the_same_bytes_again_and_other_programs_check_them(saved, bundle, tmp_path):
    export_model(saved, tmp_path / "again.tar")
    assert (tmp_path / "again.tar").read_bytes() == bundle.read_bytes()
    subprocess.run(["tar", "-xf", bundle, "-C", tmp_path], check=True)
    subprocess.run(["sha256sum", "--check", "--quiet", SUMS], cwd=tmp_path / "mine-1.0", check=True)


def changed(bundle: Path, change) -> None:
    """Write a bundle again, its entries changed: name, content -> pairs."""
    with tarfile.open(bundle) as old:
        entries = [(entry.name, old.extractfile(entry).read()) for entry in old]
    with tarfile.open(bundle, "w") as new:
        for name, content in change(entries):
            entry = tarfile.TarInfo(name)
            entry.size = len(content)
            new.addfile(entry, io.BytesIO(content))


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda e: [(n, c[:-1] + b"x" if n.endswith(WEIGHTS) else c) for n, c in e], f"{WEIGHTS} is not what"),
        (lambda e: [(n, c.replace(b"mine", b"time")) for n, c in e if SUMS not in n], "is not what"),
        (lambda e: [x for x in e if CARD not in x[0]], f"{CARD} is not what"),
        (lambda e: [x for x in e if WEIGHTS not in x[0]], "no bundle of one model"),
        (lambda e: [*e, ("mine-1.0/../../evil", b"x")], "belongs to no bundle"),
        (lambda e: [*e, ("/etc/evil", b"x")], "belongs to no bundle"),
        (lambda e: [*e, e[-1]], "belongs to no bundle"),
        (lambda e: [*e[:-1], (e[-1][0].replace("mine", "other"), e[-1][1])], "no bundle of one model"),
        (lambda e: [(n.replace("mine-1.0", ".."), c) for n, c in e], "cannot be called"),
        (lambda e: [], "no bundle of one model"),
    ],
)
def test_nothing_comes_of_what_is_wrong(bundle, tmp_path, change, words):
    changed(bundle, change)
    with pytest.raises((CheckpointError, ConfigError), match=words):
        import_model(bundle, folder=tmp_path / "models")
    assert list((tmp_path / "models").iterdir()) == []
    assert sorted(path.name for path in tmp_path.iterdir()) == ["mine.tar", "models"]


def test_links_and_damage(bundle, tmp_path):
    whole = bundle.read_bytes()
    for content in (whole[:3000], b"", b"no tar", whole[: len(whole) // 2]):
        bundle.write_bytes(content)
        with pytest.raises(CheckpointError, match=r"damaged|no bundle"):
            import_model(bundle, folder=tmp_path / "models")
    with tarfile.open(bundle, "w") as new:
        entry = tarfile.TarInfo(f"mine-1.0/{CONFIG}")
        entry.type, entry.linkname = tarfile.SYMTYPE, "/etc/passwd"
        new.addfile(entry)
    with pytest.raises(CheckpointError, match="no file of a model"):
        import_model(bundle, folder=tmp_path / "models")
    with pytest.raises(CheckpointError, match="no such file"):
        import_model(tmp_path / "none.tar", folder=tmp_path / "models")


def test_where_nothing_can_be(saved, bundle, tmp_path, monkeypatch):
    monkeypatch.delenv(checkpoint.ENVIRONMENT, raising=False)
    with pytest.raises(ConfigError, match=checkpoint.ENVIRONMENT):
        import_model(bundle)
    (tmp_path / "file").write_text("")
    with pytest.raises(ResourceError):
        import_model(bundle, folder=tmp_path / "file")
    with pytest.raises(ResourceError):
        export_model(saved, tmp_path / "none" / "x.tar")
    monkeypatch.setattr(checkpoint, "BUNDLED", saved.parent)
    saved.rename(saved.with_name("mine-1.0"))
    try:
        with pytest.raises(ConfigError, match="comes with genoformer"):
            import_model(bundle, folder=tmp_path / "models")
    finally:
        saved.with_name("mine-1.0").rename(saved)


def test_bundled_names_go_first(saved, tmp_path, monkeypatch):
    monkeypatch.setattr(checkpoint, "BUNDLED", saved.parent)
    monkeypatch.setenv(checkpoint.ENVIRONMENT, str(tmp_path))
    save_model(tmp_path / saved.name, tiny_model(), tiny_config(), name="x")
    save_model(tmp_path / "more", tiny_model(), tiny_config(), name="x")
    assert known_models() == {saved.name: saved, "more": tmp_path / "more"}
