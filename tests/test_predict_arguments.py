"""What a caller of predict may leave out, or say in other words; and what is none of it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from prediction_samples import joined
from tiny import Memory, random_bases, tiny_model

from genoformer.errors import ConfigError, InputError
from genoformer.model.genoformer import Genoformer
from genoformer.predict import Settings, predict
from genoformer.regions import Region

CUT = {"window": 120, "overlap": 30}


@pytest.fixture(scope="module")
def model() -> Genoformer:
    torch.manual_seed(0)
    return tiny_model(attention=("local", "performer", "hybrid"))


def run(sequences: Memory, model: Genoformer, **cut: Any) -> dict[str, np.ndarray]:
    return joined(list(predict(sequences, model, **cut)), sequences)


def test_regions_as_text(model: Genoformer) -> None:
    sequences = Memory(("a", random_bases(400)), ("b", random_bases(90, 1)))
    regions = [Region("a", 9, 70), Region("b", 0, 90)]
    expected = run(sequences, model, regions=regions, **CUT)
    for given in (["a:10-70", "b"], ["b", Region("a", 9, 70)], ["b", "a:10-40", "a:30-70"]):
        for name, values in run(sequences, model, regions=given, **CUT).items():
            np.testing.assert_array_equal(values, expected[name])
    one = run(sequences, model, regions="b", **CUT)
    assert np.isinf(one["a"]).all()  # nothing of it came
    with pytest.raises(InputError, match="no sequence 'c'"):
        run(sequences, model, regions=["c:1-5"], **CUT)


def test_what_is_not_said_of_windows(model: Genoformer) -> None:
    sequences = Memory(("a", random_bases(400)))
    quarter = run(sequences, model, window=120, overlap=30)
    np.testing.assert_array_equal(run(sequences, model, window=120)["a"], quarter["a"])
    ring = run(sequences, model, circular="a", **CUT)
    np.testing.assert_array_equal(ring["a"], run(sequences, model, circular=["a"], **CUT)["a"])


def test_what_is_no_model_and_no_code() -> None:
    with pytest.raises(TypeError, match=r"expected a model, as genoformer.load_model returns it, got str"):
        list(predict(Memory(("a", b"ACGT")), "prokaryote-genes"))  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="genetic code must be the number of a translation table, got 'auto'"):
        Settings(genetic_code="auto")  # type: ignore[arg-type]
    assert Settings(genetic_code=np.int64(4)).genetic_code == 4  # type: ignore[arg-type]
