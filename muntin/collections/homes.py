"""Where groups live: the executors that hold their data, and who gets or loses one.

A group has one home, or several while it is hot. Homes that stay alive are kept, so that data
stays where it is; whoever needs a home gets one where there is least contention.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from math import ceil
from typing import NamedTuple

from muntin.collections.groups import Group

_WORTH_MOVING = 0.8  # moves leave every executor with less than this of what the busiest had
_TOO_LITTLE = 0.02  # of what the busiest had, to be moved
_HOT, _COLD = 1.5, 0.75  # of what one home serves: where it gets help, and where help leaves
ENOUGH_DEMAND = 16.0  # queries of late, without which nothing is hot


class Executor(NamedTuple):
    """One of Spark's, as its scheduler knows it."""

    host: str
    id: str


Homes = Mapping[Group, tuple[Executor, ...]]


def contention(
    homes: Homes, executors: Iterable[Executor], sizes: Sequence[int]
) -> dict[Executor, int]:
    """What competes for each executor: bytes of all groups at home there, and one a group."""
    held = dict.fromkeys(executors, 0)
    for group, places in homes.items():
        for executor in places:
            if executor in held:
                held[executor] += _weight(group, sizes)
    return held


def placed(
    groups: Iterable[Group], former: Homes, executors: Sequence[Executor], sizes: Sequence[int]
) -> dict[Group, tuple[Executor, ...]]:
    """A home for every group, of executors that are there, by least contention first.

    A group keeps its homes as far as they live. One that comes of a split or merge takes up the
    homes of whoever had most of its partitions. After that groups move only where it relieves
    the busiest executor by much.
    """
    alive = set(executors)
    homes: dict[Group, tuple[Executor, ...]] = {}
    homeless = []
    for group in groups:
        kept = tuple(home for home in _inherited(group, former) if home in alive)
        if kept:
            homes[group] = kept
        else:
            homeless.append(group)
    held = contention(homes, executors, sizes)
    for group in sorted(homeless, key=lambda each: (-_weight(each, sizes), each)):
        home = _least(held)
        homes[group] = (home,)
        held[home] += _weight(group, sizes)
    _relieve(homes, held, sizes)
    return dict(sorted(homes.items()))


def replicated(
    homes: Homes, executors: Sequence[Executor], demand: Mapping[Group, float], sizes: Sequence[int]
) -> dict[Group, tuple[Executor, ...]]:
    """More homes for groups that are asked for more than one executor should serve; else fewer.

    Each executor's fair share is the demand of all groups over the number of executors. The first
    home of a group stays; further ones come by least contention, and the last come leaves first.
    """
    share = sum(demand.values()) / max(1, len(executors))
    settled = dict(homes)
    held = contention(settled, executors, sizes)
    for group in sorted(homes, key=lambda each: (-demand.get(each, 0.0), each)):
        asked, places = demand.get(group, 0.0), settled[group]
        if asked < ENOUGH_DEMAND or not share:
            wanted = 1
        elif asked > _HOT * share * len(places):
            wanted = min(len(executors), ceil(asked / share))
        elif asked < _COLD * share * len(places):
            wanted = max(1, ceil(asked / share))
        else:
            wanted = len(places)
        while len(places) > wanted:
            held[places[-1]] -= _weight(group, sizes)
            places = places[:-1]
        while len(places) < wanted:
            home = _least({each: held[each] for each in executors if each not in places})
            held[home] += _weight(group, sizes)
            places += (home,)
        settled[group] = places
    return settled


def _inherited(group: Group, former: Homes) -> tuple[Executor, ...]:
    if group in former:
        return former[group]
    shared = {each: min(each.upper, group.upper) - max(each.lower, group.lower) for each in former}
    nearest = max(shared, key=lambda each: (shared[each], -each.lower), default=None)
    return former[nearest][:1] if nearest is not None and shared[nearest] > 0 else ()


def _relieve(
    homes: dict[Group, tuple[Executor, ...]], held: dict[Executor, int], sizes: Sequence[int]
) -> None:
    """Moves groups from the busiest executor to the idlest, if that relieves the busiest by much.

    Several moves may be needed for that, and none is made where they would not be worth it.
    """
    moved, left = dict(homes), dict(held)
    before = max(held.values())
    while True:
        busy, idle = max(left, key=lambda each: (left[each], each)), _least(left)
        moving = [
            (max(left[busy] - weight, left[idle] + weight), group)
            for group, places in moved.items()
            if busy in places and idle not in places
            for weight in [_weight(group, sizes)]
            if _TOO_LITTLE * before < weight < left[busy] - left[idle]
        ]
        if not moving:
            break
        _, group = min(moving)
        moved[group] = tuple(idle if home == busy else home for home in moved[group])
        left[busy] -= _weight(group, sizes)
        left[idle] += _weight(group, sizes)
    if max(left.values()) < _WORTH_MOVING * before:
        homes.update(moved)
        held.update(left)


def _least(held: Mapping[Executor, int]) -> Executor:
    return min(held, key=lambda each: (held[each], each))


def _weight(group: Group, sizes: Sequence[int]) -> int:
    return 1 + group.size(sizes)
