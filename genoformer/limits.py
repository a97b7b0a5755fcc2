"""Checks of the numbers and names of a configuration; what does not fit is a ConfigError."""

from __future__ import annotations

import math
import typing

from genoformer.errors import ConfigError


def require(condition: bool, message: str) -> None:
    """Raise ConfigError with the message unless the condition holds."""
    if not condition:
        raise ConfigError(message)


def one_of(name: str, value: str, known: typing.Collection[str]) -> None:
    """Refuse a value that is none of those known."""
    require(value in known, f"{name} must be one of {', '.join(known)}; got {value!r}")


def require_positive(config: object, *names: str, most: float = math.inf) -> None:
    """Refuse numbers that are not finite and above 0, or more than the most that makes sense."""
    for name in names:
        value = getattr(config, name)
        require(math.isfinite(value) and value > 0, f"{name} must be above 0, got {value}")
        require(value <= most, f"{name} must be at most {most:,}, got {value:,}")


def listed(numbers: typing.Iterable[float]) -> str:
    """Write numbers for a message."""
    return ", ".join(map(str, numbers))


def check_shares(name: str, shares: tuple[float, ...], of: str, count: int) -> None:
    """Refuse shares that are not one for each of so many things, or none at all."""
    require(len(shares) in (0, count), f"{name} must have one number for each of {of}, {count}, or none")
    require(
        all(0 <= share < math.inf for share in shares) and (not shares or sum(shares) > 0),
        f"{name} must not be negative, and not all 0, got {listed(shares)}",
    )


def check_class_weights(name: str, weights: tuple[float, ...]) -> None:
    """Refuse weights of classes that are negative, or all 0."""
    require(
        not weights or (all(0 <= weight < math.inf for weight in weights) and sum(weights) > 0),
        f"{name} must not be negative, and not all 0, got {listed(weights)}",
    )


def check_seed(seed: int) -> None:
    """Refuse seeds that a generator cannot take."""
    require(0 <= seed < 1 << 32, f"seed must be from 0 to 4294967295, got {seed}")
