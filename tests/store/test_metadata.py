"""The provenance of a store: what programs rely on is of the kind that it should be, or no store is read or made."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import h5py
import pytest
from store_samples import begin, write_all

from genoformer.errors import ConfigError, FormatError
from genoformer.store import open_store
from genoformer.store.metadata import _KINDS, check_metadata

CHOICE = {"reference": None, "min-mapq": 1, "include-flags": 0, "exclude-flags": 4}
WHOLE: dict[str, Any] = {
    "accounting": {"total": 1},
    "alignments": "a.bam",
    "command": "",
    "identity": {"genetic-code": 11, "overlap": 0, "window": "whole sequence", "more": [{}]},
    "input": "a.fa",
    "left-out": {"no bases": 2},
    "letters": {"known": 1},
    "made-by": {"choice": CHOICE, "counts": {"consensus": {"called": 1}}},
    "missing": {"bases": 3},
    "versions": {},
    "of others": None,
}


def with_value(metadata: dict[str, Any], path: list[str], value: Any) -> dict[str, Any]:
    """Put a value at a path; a star is the first key."""
    key, *rest = path
    key = next(iter(metadata)) if key == "*" else key
    return {**metadata, key: with_value(metadata[key], rest, value) if rest else value}


@pytest.mark.parametrize("value", [{}, [], "text", 1, 1.5, None], ids=repr)
@pytest.mark.parametrize("path", list(_KINDS))
def test_kinds_of_values(path: str, value: Any) -> None:
    check_metadata(WHOLE)
    metadata = with_value(WHOLE, path.split("."), value)
    if isinstance(value, _KINDS[path]) and not (path == "made-by.choice" and value == {}):
        check_metadata(metadata)
    else:
        with pytest.raises(ValueError, match=r"^metadata: "):
            check_metadata(metadata)


@pytest.mark.parametrize("path", ["alignments", *(f"made-by.choice.{key}" for key in CHOICE)])
def test_a_consensus_that_could_not_be_made_again(path: str) -> None:
    metadata = json.loads(json.dumps(WHOLE))
    place = metadata
    *parents, key = path.split(".")
    for parent in parents:
        place = place[parent]
    del place[key]
    with pytest.raises(ValueError, match=r"made-by\.choice must have"):
        check_metadata(metadata)


@pytest.mark.parametrize("metadata", [[], [["input", "x"]], "text", None], ids=repr)
def test_what_is_no_object(metadata: Any) -> None:
    with pytest.raises(ValueError, match="metadata: must be an object"):
        check_metadata(metadata)


def test_a_long_value_is_cut_in_the_message() -> None:
    with pytest.raises(ValueError, match=r"^metadata: input must be text, got .{,1000}$"):
        check_metadata({"input": [{"x" * 10**6: [[]] * 10**6}] * 1000})


def test_a_store_of_other_kinds(tmp_path: Path) -> None:
    path = write_all(tmp_path / "s.h5")
    with h5py.File(path, "r+") as file:
        file.attrs["metadata"] = json.dumps({"identity": {"window": {}}})
    with pytest.raises(FormatError, match=r"s.h5: damaged .*identity.window must be a whole number or text, got {}"):
        open_store(path)
    with pytest.raises(ConfigError, match=r"t.h5: metadata: input must be text, got 5"):
        begin(tmp_path / "t.h5", provenance={"input": 5})
    assert [each.name for each in tmp_path.iterdir()] == ["s.h5"]
