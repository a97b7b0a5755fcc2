"""Measuring and the model card, on tiny genomes with a tiny model and a made-up other program."""

from __future__ import annotations

import math
import sys
from pathlib import Path
from typing import Any

import card
import common
import measure
import pytest
import tables
from common import annotation_text, read_json, read_manifest, write_json
from measure import OURS_SHIFTS, Setup, collect
from peers import PRODIGAL, Peer
from recipe_samples import write_folder
from simulate import Design
from tables import ONE_GENOME, OURS, OURS_GENES, Estimate

from genoformer.errors import ConfigError, FormatError, InputError, ResourceError
from genoformer.evaluate.evaluation import evaluate
from genoformer.formats.gff3 import read_gff3
from genoformer.model.checkpoint import read_checkpoint

COPY = """import shutil, sys
from pathlib import Path
assert sys.argv[1] == "11"
truth = {"one.fa": "one.gff", "two.fa": "two.gff"}.get(Path(sys.argv[2]).name)
Path(sys.argv[3]).write_text(Path(sys.argv[2]).with_name(truth).read_text() if truth else "##gff-version 3\\n")
"""


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a model that predicts nonsense, fast."""
    import torch

    from genoformer.config import ModelConfig
    from genoformer.model.checkpoint import save_model
    from genoformer.model.genoformer import build

    torch.set_num_threads(1)
    torch.manual_seed(0)
    config = ModelConfig(width=16, heads=2, stem_channels=8, performer_count=8, attention=("performer",))
    training = {
        "steps": 5,
        "train": {"step_bases": 1000, "seed": 1, "class_weights": []},
        "data-sha256": {"genomes/train/Hinfluenzae_Rd_NC_000907.fa.gz": "0"},
        "calibration": {"coding-frame": {"temperature": 1.5}},
    }
    folder = tmp_path_factory.mktemp("models") / "tiny"
    save_model(folder, build(config), config, name="tiny", training=training)
    return folder


@pytest.fixture(scope="module")
def setup(model: Path, tmp_path_factory: pytest.TempPathFactory) -> Setup:
    folder = tmp_path_factory.mktemp("measured")
    (folder / "copy.py").write_text(COPY)
    peer = Peer("Prodigal", PRODIGAL, str(folder / "copy.py"), ("CODE",), ("genome", "reads"))
    design = Design((300,), (0.05,), 400, 2000)
    checkpoint = read_checkpoint(model)
    return Setup("tiny", model, checkpoint.sha256, folder / "work", design, peers=((peer, Path(sys.executable)),),
                 predict=("--threads=1", "--no-strand-average"), one_genome=True)  # fmt: skip


@pytest.fixture(scope="module")
def genomes(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_folder(tmp_path_factory.mktemp("genomes") / "g")


@pytest.fixture(scope="module")
def measured(setup: Setup, genomes: Path) -> dict[str, Any]:
    return collect(read_manifest(genomes, "validation"), setup, split="validation")


def test_every_caller_on_every_data_set(measured: dict[str, Any], setup: Setup, genomes: Path) -> None:
    expected = {
        "genome": [OURS, OURS_GENES, "Prodigal"],
        "contigs-300": [OURS, OURS_GENES, OURS + ONE_GENOME, OURS_GENES + ONE_GENOME],
        "reads-0.05": [
            OURS,
            OURS_GENES,
            OURS_SHIFTS,
            *(x + ONE_GENOME for x in (OURS, OURS_GENES, OURS_SHIFTS)),
            "Prodigal",
        ],
    }
    for genome in ("one", "two"):
        for data, callers in expected.items():
            assert [row["caller"] for row in tables.of(measured["rows"], genome=genome, data=data)] == callers
    copied = tables.of(measured["rows"], genome="two", caller="Prodigal")
    assert copied[0]["strand"]["f1"] == copied[0]["genes"]["exact"]["f1"] == 1
    assert (copied[1]["strand"]["recall"], copied[1]["genes"]) == (0, None)
    row = tables.of(measured["rows"], genome="two", data="genome", caller=OURS)[0]
    store = setup.output / "validation" / "two" / f"genoformer-{setup.sha256[:12]}" / "genome.h5"
    found = evaluate(store, genomes / "validation" / "two.gff", call_genes=False)
    assert row["strand"]["f1"] == pytest.approx(found.levels["strand"].numbers().f1)
    assert row["strand"]["intervals"]["f1"] is not None


def test_what_is_there_is_not_done_again(
    measured: dict[str, Any], setup: Setup, genomes: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[tuple] = []
    real = measure.genoformer
    monkeypatch.setattr(measure, "genoformer", lambda *words: (asked.append(words), real(*words)))
    rows = read_manifest(genomes, "validation")
    assert collect(rows, setup, split="validation") == measured
    assert not asked
    folder = setup.output / "validation" / "one" / f"genoformer-{setup.sha256[:12]}"
    (folder / "contigs-300.gff.json").unlink()
    (folder / "reads-0.05.gff").unlink()
    assert collect(rows, setup, split="validation") == measured
    assert [words[0] for words in asked] == ["evaluate", "export", "evaluate"]
    assert not list(setup.output.rglob("*.part"))


def test_what_fails_leaves_nothing_under_its_name(setup: Setup, genomes: Path, tmp_path: Path) -> None:
    (tmp_path / "bad.py").write_text("import sys; open(sys.argv[-1], 'w').write('half'); sys.exit('no such thing')")
    peer = Peer("Bad", PRODIGAL, str(tmp_path / "bad.py"), (), ("genome",))
    with pytest.raises(ResourceError, match=r"Bad on .*one\.fa: .*bad\.py .* ended with 1: no such thing"):
        peer.call(Path(sys.executable), genomes / "validation" / "one.fa", tmp_path / "x.gff", genetic_code=11)
    assert not list(tmp_path.glob("x.gff*"))
    with pytest.raises(ResourceError, match=r"genoformer predict nowhere.fa -o x.h5 ended with 1: .*nowhere.fa"):
        measure.genoformer("predict", "nowhere.fa", "-o", "x.h5")


def test_only_the_split_is_touched(genomes: Path, tmp_path: Path) -> None:
    text = (genomes / "MANIFEST.tsv").read_text() + "test\tthree.fa\tthree.gff\tX\t11\n"
    folder = write_folder(tmp_path / "g")
    (folder / "MANIFEST.tsv").write_text(text)
    assert [genome.name for genome in read_manifest(folder, "validation")] == ["one", "two"]
    with pytest.raises(InputError, match=r"three\.fa: no such file"):
        read_manifest(folder, "test")
    with pytest.raises(InputError, match=r"no genome 'four' in split validation; it has one.fa, two.fa"):
        read_manifest(folder, "validation", only=["four"])
    with pytest.raises(InputError, match="no genome in split train"):
        read_manifest(folder, "train")


def test_the_command(model: Path, genomes: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["--genomes", str(genomes), "--model", str(model), "-o", str(tmp_path / "w"), "--peer", "none", "--kind",
             "reads", "--genome", "one", "--bases", "5000", "--predict=--threads=1"]  # fmt: skip
    measure.command.main(words, standalone_mode=False)
    out = capsys.readouterr().out
    assert "| reads, 5% errors | genoformer genes, frameshifts | 1 |" in out
    assert "whole genomes" not in out
    found = read_json(tmp_path / "w" / "validation.json")
    assert (found["predict"], found["programs"]) == (["--threads=1"], {})


def test_means_and_cells() -> None:
    one = Estimate(0.9, 0.88, 0.92)
    assert tables.mean([one]) == pytest.approx(one)
    assert tables.mean([one, Estimate(0.8, 0.78, 0.82)]) == pytest.approx(
        (0.85, 0.85 - 0.0141421, 0.85 + 0.0141421), abs=1e-6
    )
    assert tables.mean([one, Estimate(math.nan)]) == pytest.approx(one)
    assert str(tables.mean([])) == "-"
    assert str(one) == "0.9000 (0.8800-0.9200)"
    assert str(Estimate(0.9)) == "0.9000"
    assert tables.table(["a", "b"], [["x|y", 1], ["z", "-"]]) == "| a | b |\n| --- | ---: |\n| x\\|y | 1 |\n| z | - |"


def test_the_card(measured: dict[str, Any], model: Path, tmp_path: Path) -> None:
    checkpoint = read_checkpoint(model)
    (tmp_path / "ablation.tsv").write_text("attention\tF1\nnone\t0.91\nperformer\t0.92\n")
    notes = {"training": "Two hours on an abacus.", "fails": ["Small genes."], "near": "All close relatives.",
             "ablation": "Little time."}  # fmt: skip
    text = card.fill(checkpoint, [measured], notes, ablation=tmp_path / "ablation.tsv")
    for words in (
        "# Model card: tiny", "Two hours on an abacus.", "- Small genes.", "| performer | 0.92 |", checkpoint.sha256,
        "divided, coding-frame by 1.500", "1 genome sets; 5 steps", "| `seed` | 1 |",
        "there are 2,000 bases of each genome",
        "| Haemophilus influenzae Rd KW20 | train | silver | NC_000907 | 1,830,138 |", "`--no-strand-average`",
        "MG1655 | test | gold | NC_000913.3 |", "| Organism two | Prodigal | 1.0000 |",
        "By bases it passes Prodigal on none.", "No validation or test genome is of the genus", "## Validation genomes",
        "Reads have 400 bases", "Prodigal learned from", "All close relatives.", "Little time.\n\n| attention | F1 |",
    ):  # fmt: skip
        assert words in text, words
    assert "class_weights" not in text
    assert "$" not in text
    assert "Bradyrhizobium" not in text  # it has not learned from that


def test_what_the_card_refuses(measured: dict[str, Any], model: Path, tmp_path: Path) -> None:
    checkpoint = read_checkpoint(model)
    assert "Nothing was measured yet." in card.fill(checkpoint, [], {})
    path = tmp_path / "m.json"
    write_json(path, measured | {"model": {"name": "x", "weights-sha256": "abc"}})
    with pytest.raises(ConfigError, match="with other weights"):
        card.read_measured(path, checkpoint)
    path.write_text("[]")
    with pytest.raises(InputError, match="is not what measure"):
        card.read_measured(path, checkpoint)
    path.write_text('hours = "9"')
    with pytest.raises(InputError, match="'hours' is not one of training"):
        card.read_notes(path)
    path.write_text("split\tname\ttier\torganism\taccessions\tbases\tlicence\tnote\n")
    with pytest.raises(InputError, match="lacks 'Hinfluenzae_Rd_NC_000907'"):
        card.fill(checkpoint, [], {}, accessions=path)


def test_metrics_of_orforise() -> None:
    from peers import _numbers

    names = [
        "Percentage_of_Genes_Detected",
        "x",
        "Percentage_of_ORFs_that_Detected_a_Gene",
        "Percentage_of_Perfect_Matches",
    ]
    found = _numbers([["Representative_Metrics:"], names, ["94.48", "1", "94.00", "71.97"]], "x")
    assert list(found.values()) == [94.48, 94.0, 71.97]
    with pytest.raises(FormatError, match="lacks Percentage"):
        _numbers([names], "x")


def test_genes_written_by_prodigal_are_read(tmp_path: Path) -> None:
    """What call_prodigal.py writes, in its words."""
    text = (
        "##gff-version 3\n##sequence-region a%20b 1 90\na%20b\tProdigal\tCDS\t1\t30\t5.0\t+\t0\tID=gene1;partial=10\n"
    )
    (tmp_path / "p.gff").write_text(text)
    found = read_gff3(tmp_path / "p.gff")
    assert found.coding_sequences["a b"][0].partial
    assert "".join(annotation_text(found)).count("partial=true") == 1


def test_errors_are_one_line_with_a_code(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "file").write_text("")
    for words, code, line in (
        (["nomodel"], 1, "card.py: CheckpointError: nomodel: no such model"),
        (["prokaryote-genes", "-o", str(tmp_path / "file" / "x.md")], 3, f"card.py: ResourceError: {tmp_path}/file: "),
        (["--bogus"], 2, "No such option"),
    ):
        monkeypatch.setattr(sys, "argv", ["card.py", *words])
        with pytest.raises(SystemExit) as ended:
            common.main(card.command)
        assert ended.value.code == code
        assert line in capsys.readouterr().err.splitlines()[-1]
