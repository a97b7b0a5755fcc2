"""The Dataset of windows: each base owned once, with its labels; workers change nothing; one can train."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from tiny import Memory, made_up_genome, random_bases, tiny_model, write_fasta, write_gff
from torch.utils.data import DataLoader

from genoformer.dataset import WindowDataset
from genoformer.errors import InputError
from genoformer.formats.sequences import open_sequences
from genoformer.labels import read_labels
from genoformer.tokens import encode
from genoformer.tracks import CODING_FRAME, IGNORED

MEMORY = Memory(("a/b", random_bases(105, 1)), ("short", b"ACGTN"), ("n", b"N" * 60), ("empty", b""), ("one", b"a"))
LABELS = {name: np.arange(len(bases), dtype=np.uint8) for name, bases in MEMORY.held}


def test_each_base_is_owned_once():
    dataset = WindowDataset(MEMORY, window=40, overlap=10, labels=LABELS)
    seen: dict[str, list[int]] = {}
    for number in range(len(dataset)):
        example = dataset[number]
        first, last = example["owned"].tolist()
        labels = example["labels"][first:last].tolist()
        seen.setdefault(example["sequence"], []).extend(labels)
        start, bases = example["start"], dict(MEMORY.held)[example["sequence"]]
        codes = encode(bases[start : start + 40]).tolist()
        assert example["codes"].tolist() == codes + [5] * (40 - len(codes))
        assert example["labels"].tolist()[len(codes) :] == [IGNORED] * (40 - len(codes))
    assert seen == {"a/b": list(range(105)), "short": list(range(5)), "one": [0]}


def test_signals_are_filled_with_nan():
    dataset = WindowDataset(MEMORY, window=40, overlap=0, labels={"short": np.ones((5, 2), np.float32)}, min_length=2)
    example = next(dataset[n] for n in range(len(dataset)) if n == 3)
    assert example["labels"].shape == (40, 2)
    assert torch.isnan(example["labels"][5:]).all()
    assert all("labels" not in WindowDataset(MEMORY, window=40)[n] for n in (0, 1))


def test_labels_of_another_length_are_refused():
    dataset = WindowDataset(MEMORY, window=40, overlap=0, labels={"a/b": np.zeros(104, np.uint8)})
    with pytest.raises(ValueError, match="105 bases, its labels 104"):
        dataset[0]


def test_no_such_file():
    with pytest.raises(InputError):
        WindowDataset("none.fa")


def test_one_can_train(tmp_path: Path):
    bases, genes = made_up_genome(6, seed=1)
    fasta = write_fasta(tmp_path / "g.fa", {"g": bases})
    gff = write_gff(tmp_path / "g.gff", {"g": genes})
    sequences = open_sequences(fasta)
    labels = read_labels(gff, sequences.lengths(), CODING_FRAME)
    dataset = WindowDataset(sequences, window=300, overlap=0, labels=labels)
    model = tiny_model(attention=("local",)).train()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    losses = []
    for _ in range(3):
        for batch in DataLoader(dataset, batch_size=4, shuffle=True):
            loss = model.heads[CODING_FRAME.name].loss(model(batch["codes"])[CODING_FRAME.name], batch["labels"])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
    assert losses[-1] < losses[0]


def test_workers_read_the_same(tmp_path: Path):
    dataset = WindowDataset(MEMORY, window=40, overlap=10, labels=LABELS)
    alone = [batch["codes"] for batch in DataLoader(dataset, batch_size=2)]
    helped = [batch["codes"] for batch in DataLoader(dataset, batch_size=2, num_workers=1)]
    assert all(torch.equal(one, two) for one, two in zip(alone, helped, strict=True))
