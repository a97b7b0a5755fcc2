"""What of a summary is needed near each query only, and so is not kept for a whole sequence but made again there.

A summary of a whole sequence is split: `far` keeps what every query asks for, of a size that does not depend on the
sequence where the mechanism allows that; `with_near` puts back the tokens around some queries, from a summary of
`reach` tokens more to each side.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from genoformer.attention.attention import Attention, Pair, Summary
from genoformer.attention.hybrid import Hybrid
from genoformer.attention.joint import Joined, Joint
from genoformer.attention.local import Local


@dataclass(frozen=True)
class Nothing:
    """Stands for what is not kept; ``+`` keeps it so."""

    def __add__(self, other: Nothing) -> Nothing:
        return self


def reach_of(attention: Attention) -> int:
    """Return how many tokens to each side of a query must be at hand as they are."""
    if isinstance(attention, Hybrid):
        return max(reach_of(attention.first), reach_of(attention.second))
    if isinstance(attention, Joint):
        return attention.cell + attention.radius
    return attention.radius if isinstance(attention, Local) else 0


def looks_far(attention: Attention) -> bool:
    """Tell whether queries ask for anything beyond `reach_of`."""
    if isinstance(attention, Hybrid):
        return looks_far(attention.first) or looks_far(attention.second)
    return not isinstance(attention, Local)


def far(summary: Any, attention: Attention) -> Summary:
    """Return a summary without the tokens that only queries near them ask for. It can be merged with others like it."""
    if isinstance(attention, Hybrid):
        return Pair(far(summary.first, attention.first), far(summary.second, attention.second))
    if isinstance(attention, Joint):
        return Joined(Nothing(), summary.far)  # type: ignore[arg-type]
    return Nothing() if isinstance(attention, Local) else summary


def with_near(whole: Any, near: Any, attention: Attention) -> Any:
    """Return what `Attention.attend` takes for some queries.

    Parameters
    ----------
    whole : what `far` left of the whole sequence, merged and finished
    near : summary of the queries' tokens and of `reach_of` more to each side, as far as the sequence goes
    """
    if isinstance(attention, Hybrid):
        first = with_near(whole.first, near.first, attention.first)
        return Pair(first, with_near(whole.second, near.second, attention.second))
    if isinstance(attention, Joint):
        return Joined(near.near, whole.far)
    return near if isinstance(attention, Local) else whole
