"""The designs that tests/benchmarks/design_search.py compares are changes that the bundled model's recipe can take."""

from __future__ import annotations

import runpy
from pathlib import Path

import pytest

from genoformer.plain import read_toml
from genoformer.training.config import RunConfig

SEARCH = runpy.run_path(str(Path(__file__).resolve().parents[1] / "benchmarks" / "design_search.py"))


@pytest.mark.parametrize("name", SEARCH["DESIGNS"])
def test_a_design_fits_the_recipe(name: str) -> None:
    recipe = read_toml(RunConfig, SEARCH["CONFIG"])
    found = SEARCH["configured"](recipe, SEARCH["DESIGNS"][name], seed=3, steps=40)
    assert (found.train.steps, found.train.seed, found.model.seed) == (40, 3, 3)
    assert (found.model, found.train) != (recipe.model, recipe.train)
