"""What every test runs under: fixed seeds, `torch.empty` that shows what nobody filled, `--slow`."""

from __future__ import annotations

import os
import random
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings

sys.path.insert(0, str(Path(__file__).parent))  # `import naive`, wherever a test lives

if "PYTEST_XDIST_WORKER" in os.environ:  # parallel tests do not fight for cores; takes effect before torch is loaded
    os.environ.setdefault("OMP_NUM_THREADS", "1")

settings.register_profile("genoformer", deadline=None)  # a busy machine is not a failure
settings.load_profile("genoformer")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--slow", action="store_true", help="also run tests that take more than a few seconds")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if not config.getoption("--slow"):
        for item in items:
            if item.get_closest_marker("slow"):
                item.add_marker(pytest.mark.skip(reason="slow: run with --slow"))
    gpu = [item for item in items if item.get_closest_marker("gpu")]
    if gpu:
        import torch

        if not torch.cuda.is_available():
            for item in gpu:
                item.add_marker(pytest.mark.skip(reason="no CUDA device"))


@pytest.fixture(autouse=True)
def _seeds() -> None:
    """Start every test from the same random state; libraries that are not loaded stay so."""
    random.seed(0)
    if "numpy" in sys.modules:
        sys.modules["numpy"].random.seed(0)
    if "torch" in sys.modules:
        sys.modules["torch"].manual_seed(0)


@pytest.fixture(autouse=True)
def _poisoned_empty(monkeypatch: pytest.MonkeyPatch) -> None:
    """Fill what `torch.empty` and its kin return with NaN, or with the lowest integer: unset memory is never zero."""
    if "torch" in sys.modules:
        torch = sys.modules["torch"]
        for owner, name in [
            (torch, "empty"),
            (torch, "empty_like"),
            (torch, "empty_strided"),
            (torch.Tensor, "new_empty"),
        ]:
            monkeypatch.setattr(owner, name, _poisoned(torch, getattr(owner, name)))


def _poisoned(torch: Any, make: Callable[..., Any]) -> Callable[..., Any]:
    def poisoned(*args: Any, **kwargs: Any) -> Any:
        tensor = make(*args, **kwargs)
        if tensor.device.type != "meta" and tensor.dtype != torch.bool:
            poison = (
                float("nan") if tensor.is_floating_point() or tensor.is_complex() else torch.iinfo(tensor.dtype).min
            )
            with torch.no_grad():
                tensor.fill_(poison)
        return tensor

    return poisoned
