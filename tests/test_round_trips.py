"""What is written in any of the ways that a format allows is what is read: BED, GFF3, TOML, compressed or not."""

from __future__ import annotations

import json

import pytest
from hypothesis import HealthCheck, given, settings
from strategies import COMPRESSIONS, bed_files, gff3_files, train_tables

from genoformer.formats.bed import read_bed
from genoformer.formats.gff3 import read_gff3
from genoformer.formats.spans import read_bed_spans, read_bed_strands
from genoformer.plain import from_dict, read_toml, to_dict
from genoformer.training.config import RunConfig, TrainConfig

RELAXED = settings(max_examples=20, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
compressions = pytest.mark.parametrize("compress", COMPRESSIONS.values(), ids=COMPRESSIONS)


@compressions
@RELAXED
@given(file=bed_files())
def test_bed(file, compress, tmp_path):
    rows, content = file
    path = tmp_path / "x.bed"
    path.write_bytes(compress(content))
    lengths = {row.sequence: 1 << 41 for row in rows}
    assert [tuple(region) for region in read_bed(path, lengths)] == [row[:3] for row in rows]
    for read, column in ((read_bed_spans, "word"), (read_bed_strands, "strand")):
        found = read(path)
        assert set(found) == set(lengths)
        for name, spans in found.items():
            mine = [(row.start, row.end, getattr(row, column)) for row in rows if row.sequence == name]
            assert list(zip(*(part.tolist() for part in spans), strict=True)) == mine


@compressions
@RELAXED
@given(file=gff3_files())
def test_gff3(file, compress, tmp_path):
    coding, content = file
    path = tmp_path / "x.gff"
    path.write_bytes(compress(content))
    found = [cds for held in read_gff3(path).coding_sequences.values() for cds in held]
    assert sorted((cds.sequence, cds.strand, cds.parts, cds.phase) for cds in found) == sorted(map(tuple, coding))


@RELAXED
@given(values=train_tables())
def test_toml(values, tmp_path):
    path = tmp_path / "x.toml"
    lines = [
        f"{key} = {json.dumps(value, ensure_ascii=False)}" for key, value in values.items()
    ]  # of these kinds, JSON is TOML
    path.write_text("\n".join(["[train]", *lines]).replace("\x7f", "\\u007f"), encoding="utf-8")
    config = read_toml(RunConfig, path)
    assert config.train == from_dict(TrainConfig, values)
    assert from_dict(RunConfig, json.loads(json.dumps(to_dict(config)))) == config
