"""Which steps stay in memory when there is not room for all of them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

_STAYING = 2.0  # how much more a step must be asked for than one it is exchanged for


@dataclass(frozen=True)
class Kept:
    """A step as memory sees it."""

    start: int
    size: int  # bytes
    demand: float
    in_memory: bool = True


def to_keep(steps: Iterable[Kept], limit: int) -> set[int]:
    """The starts of the steps to have in memory, together no larger than the limit.

    Those that are asked for most come first, and newer ones before older ones. One that is in
    memory already is preferred, so that two of about equal demand do not take turns.
    """
    kept, room = set(), limit
    for step in sorted(steps, key=_rank, reverse=True):
        if step.size <= room:
            kept.add(step.start)
            room -= step.size
    return kept


def _rank(step: Kept) -> tuple[float, int]:
    asked = step.demand * (_STAYING if step.in_memory else 1.0)
    return (asked if asked >= 1.0 else 0.0, step.start)  # less than once, of late, is age alone
