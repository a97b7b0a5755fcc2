"""Where a model runs: the device, its threads, and memory that is used again instead of given back."""

from __future__ import annotations

import ctypes
import sys

import torch

from genoformer.errors import ConfigError, ResourceError

DEVICES = ("auto", "cpu", "cuda", "mps")
CPU_CHUNK = 4096
"""Tokens computed at a time on a CPU: their activations stay in its caches."""


def choose_device(name: str) -> torch.device:
    """Return the device of that name; "auto" is the first of cuda, mps, cpu that there is.

    Raises
    ------
    ConfigError : this names no kind of device
    ResourceError : there is no such device here
    """
    available = {"cuda": torch.cuda.is_available(), "mps": torch.backends.mps.is_available(), "cpu": True}
    there = [kind for kind, is_there in available.items() if is_there]
    if name == "auto":
        return torch.device(there[0])
    kind, colon, index = name.partition(":")
    if kind not in available or (colon and not index.isdecimal()):
        raise ConfigError(f"device {name!r} is not known; expected {', '.join(DEVICES)}, or cuda:1 for the second")
    count = torch.cuda.device_count() if kind == "cuda" else int(available[kind])
    if not available[kind] or int(index or 0) >= count:
        raise ResourceError(f"device {name!r} is not available here; available: {', '.join(there)}")
    return torch.device(name)


def choose_devices(names: str, *, processes: int | None = None) -> list[torch.device]:
    """Return the device of each process; where there are more of these, they take turns.

    Parameters
    ----------
    names : as of `choose_device`; or several GPUs, "cuda:0,1"; or "all" of them
    processes : how many, at least one for each device; None: so many

    Raises
    ------
    ConfigError : these are no devices, come twice, or are more than the processes
    ResourceError : there is no such device here
    """
    if names == "all":
        if not torch.cuda.is_available():
            raise ResourceError("device 'all' stands for all GPUs (cuda), and there is none here; leave out --device")
        devices = [torch.device("cuda", index) for index in range(torch.cuda.device_count())]
    else:
        first, *others = names.split(",")
        kind = first.partition(":")[0]
        others = [f"{kind}:{name}" if name.isdecimal() else name for name in others]
        devices = [choose_device(name) for name in (first, *others)]
    if len(devices) > 1 and any(device.type != "cuda" or device.index is None for device in devices):
        raise ConfigError(f"devices {names!r}: only GPUs can be several, by their numbers, such as cuda:0,1")
    if len(set(devices)) < len(devices):
        raise ConfigError(f"devices {names!r}: one is named twice; use --processes for several processes on a device")
    count = len(devices) if processes is None else processes
    if count < len(devices):
        raise ConfigError(f"{len(devices)} devices take at least as many processes, got {count}")
    return [devices[number % len(devices)] for number in range(count)]


def default_chunk_size(device: torch.device) -> int | None:
    """Return how many tokens to compute at a time where the user does not say; None is all."""
    return CPU_CHUNK if device.type == "cpu" else None


def keep_freed_memory(most: int = 1 << 30) -> bool:
    """Have the C library keep up to ``most`` freed bytes for the next tensor, instead of returning them at once.

    Each large tensor is otherwise mapped anew, page by page, by the kernel; on CPU this makes training up to four
    times as fast. Acts on the whole process, so commands call it, the library does not. Returns whether it took
    effect: only glibc has it.
    """
    if sys.platform != "linux":
        return False
    trim_threshold, mmap_max = -1, -4  # M_TRIM_THRESHOLD, M_MMAP_MAX of malloc.h
    try:
        library = ctypes.CDLL(None)
        return bool(library.mallopt(mmap_max, 0)) and bool(library.mallopt(trim_threshold, most))
    except (OSError, AttributeError):
        return False
