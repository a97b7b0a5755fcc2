"""Tables of samples with labels of own tracks: columns by track or by channel."""

from __future__ import annotations

from pathlib import Path

import pytest
from own_track_samples import OWN

from genoformer.errors import InputError
from genoformer.training.config import Sample
from genoformer.training.samples_table import read_samples_table


def table(folder: Path, *lines: str) -> Path:
    (folder / "s.tsv").write_text("".join(f"{line}\n" for line in lines))
    return folder / "s.tsv"


def test_columns_of_labels(tmp_path: Path) -> None:
    path = table(
        tmp_path,
        "fasta\tpurine\tamount.of A\tamount.of T\tsplit",
        "a.fa\ta.bed\tx.bw\ty.bw\ttrain",
        "b.fa\t\tx.bw\t\tvalidation",
    )
    assert read_samples_table(path, tracks=OWN) == (
        Sample("a.fa", labels={"purine": "a.bed", "amount": {"of A": "x.bw", "of T": "y.bw"}}),
        Sample("b.fa", split="validation", labels={"amount": {"of A": "x.bw"}}),
    )
    path = table(tmp_path, "fasta\tannotation\tpurine", "a.fa\ta.gff\ta.bed", "b.fa\t\tb.bed", "c.fa\tc.gff\t")
    assert read_samples_table(path, tracks=OWN) == (
        Sample("a.fa", "a.gff", labels={"purine": "a.bed"}),
        Sample("b.fa", labels={"purine": "b.bed"}),
        Sample("c.fa", "c.gff"),
    )


@pytest.mark.parametrize(
    ("lines", "word"),
    [
        (("fasta\tmotif", "a.fa\tx.bed"), r"and for labels purine, amount .or TRACK.CHANNEL.; got fasta, motif"),
        (("fasta\tamount.of C", "a.fa\tx.bed"), r"got fasta, amount\.of C"),
        (("fasta", "a.fa"), "the first line must name"),
        (("fasta\tamount\tamount.of A", "a.fa\tx\ty"), "not both"),
        (("fasta\tpurine\tsplit", "a.fa\tx.bed\t"), "line 2: expected 3 cells, of which fasta, split must not be"),
        (("fasta\tpurine", "a.fa"), "line 2: expected 2 cells"),
    ],
)
def test_tables_that_cannot_be_used(tmp_path: Path, lines: tuple[str, ...], word: str) -> None:
    with pytest.raises(InputError, match=word) as caught:
        read_samples_table(table(tmp_path, *lines), tracks=OWN)
    assert "\n" not in str(caught.value)
