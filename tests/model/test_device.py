"""Devices by name: one, several, all of them; and processes dealt out to them."""

from __future__ import annotations

import pytest
import torch

from genoformer.errors import ConfigError, ResourceError
from genoformer.model.device import choose_devices


@pytest.fixture
def _gpus(monkeypatch: pytest.MonkeyPatch) -> None:
    """As if there were three GPUs."""
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 3)


@pytest.mark.usefixtures("_gpus")
@pytest.mark.parametrize(
    ("names", "processes", "expected"),
    [
        ("all", None, ["cuda:0", "cuda:1", "cuda:2"]),
        ("cuda:0,1", None, ["cuda:0", "cuda:1"]),
        ("cuda:0,cuda:2", None, ["cuda:0", "cuda:2"]),
        ("cuda:2,0", 5, ["cuda:2", "cuda:0", "cuda:2", "cuda:0", "cuda:2"]),
        ("cuda:1", None, ["cuda:1"]),
        ("cuda:1", 2, ["cuda:1", "cuda:1"]),
        ("cuda", 2, ["cuda", "cuda"]),
        ("auto", None, ["cuda"]),
        ("cpu", 3, ["cpu"] * 3),
    ],
)
def test_devices_of_processes(names: str, processes: int | None, expected: list[str]) -> None:
    assert list(map(str, choose_devices(names, processes=processes))) == expected


@pytest.mark.usefixtures("_gpus")
@pytest.mark.parametrize(
    ("names", "kind", "said"),
    [
        ("cuda:0,3", ResourceError, "'cuda:3' is not available"),
        ("cuda:0,0", ConfigError, "one is named twice; use --processes"),
        ("cuda:0,cuda", ConfigError, "only GPUs can be several, by their numbers"),
        ("cuda:0,cpu", ConfigError, "only GPUs can be several"),
        ("cpu,cpu", ConfigError, "only GPUs can be several"),
        ("cuda:0,", ConfigError, "device '' is not known"),
        ("cuda:0, 1", ConfigError, "device ' 1' is not known"),
        ("0,1", ConfigError, "device '0' is not known"),
        ("tpu", ConfigError, "device 'tpu' is not known"),
    ],
)
def test_devices_that_cannot_be(names: str, kind: type[Exception], said: str) -> None:
    with pytest.raises(kind, match=said):
        choose_devices(names)


@pytest.mark.usefixtures("_gpus")
def test_fewer_processes_than_devices() -> None:
    with pytest.raises(ConfigError, match="3 devices take at least as many processes, got 2"):
        choose_devices("all", processes=2)


def test_all_of_none(monkeypatch: pytest.MonkeyPatch) -> None:
    """Fault 29: not silently the CPU."""
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(ResourceError, match="there is none here; leave out --device"):
        choose_devices("all")
