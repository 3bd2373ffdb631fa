"""Homes of groups: alive, kept where they can be, by contention, and as many as asked for."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from muntin.collections.groups import Bounds, Groups
from muntin.collections.homes import Executor, contention, placed, replicated

MACHINES = [Executor("host", str(n)) for n in range(6)]
ALIVE = st.sets(st.sampled_from(MACHINES), min_size=1).map(sorted)


@given(st.lists(st.integers(0, 100), min_size=1, max_size=32), st.lists(ALIVE, min_size=1))
def test_groups_live_in_executors_that_run(sizes: list[int], runs: list[list[Executor]]) -> None:
    groups = Groups.even(len(sizes), 8)
    homes = placed(groups.leaves, {}, runs[0], sizes)
    for alive in runs:
        kept = homes
        homes = placed(groups.leaves, kept, alive, sizes)
        assert homes.keys() == set(groups.leaves)
        assert all(places and set(places) <= set(alive) for places in homes.values())
        assert placed(groups.leaves, homes, alive, sizes) == homes  # at rest
        groups = groups.balanced(sizes, Bounds(10, 60, 3))


@given(st.lists(st.integers(0, 100), min_size=16, max_size=16), ALIVE)
def test_no_move_would_relieve_the_busiest_by_much(sizes: list[int], alive: list[Executor]) -> None:
    groups = Groups.even(16, 16)
    homes = placed(groups.leaves, {}, alive, sizes)
    held = contention(homes, alive, sizes)
    busiest, idlest = max(held.values()), min(held.values())
    for group, (home,) in homes.items():
        if held[home] == busiest:
            weight = 1 + group.size(sizes)
            assert max(busiest - weight, idlest + weight) >= 0.8 * busiest


def test_a_split_moves_one_half_and_nobody_else() -> None:
    groups, alive = Groups.even(8, 4), MACHINES[:4]
    before = placed(groups.leaves, {}, alive, [1] * 8)
    assert sorted(home for (home,) in before.values()) == alive
    sizes = [100, 100, 1, 1, 1, 1, 1, 1]
    after = placed(groups.balanced(sizes, Bounds(0, 150, 4)).leaves, before, alive, sizes)
    left, right, *others = after.items()
    assert left[1] == before[groups.leaves[0]] or right[1] == before[groups.leaves[0]]
    assert left[1] != right[1]
    assert [home for _, home in others] == [before[group] for group, _ in others]


def test_hot_groups_get_homes_of_least_contention_and_lose_them_when_cold() -> None:
    groups, alive = Groups.even(8, 4), MACHINES[:4]
    sizes = [10, 10, 1, 1, 50, 50, 90, 90]
    homes = placed(groups.leaves, {}, alive, sizes)
    hot = groups.leaves[0]
    demand = {group: 200.0 if group == hot else 10.0 for group in groups.leaves}
    more = replicated(homes, alive, demand, sizes)
    assert len(more[hot]) == 4
    assert more[hot][0] == homes[hot][0]
    by_contention = sorted(
        (each for each in alive if each != homes[hot][0]),
        key=contention(homes, alive, sizes).__getitem__,
    )
    assert list(more[hot][1:]) == by_contention
    assert all(len(more[group]) == 1 for group in groups.leaves if group != hot)
    cold = dict.fromkeys(groups.leaves, 20.0)
    assert replicated(more, alive, cold, sizes) == homes
    assert replicated(more, alive, {}, sizes) == homes


@given(st.integers(1, 40), ALIVE, st.integers(1, 8))
def test_partitions_of_one_size_are_placed_by_how_many_there_are(
    size: int, alive: list[Executor], groups_: int
) -> None:
    """As published (minimum contention first): executors by the partitions that they hold."""
    groups, sizes = Groups.even(16, groups_), [size] * 16
    homes = placed(groups.leaves, {}, alive, sizes)
    hot = groups.leaves[0]
    more = replicated(homes, alive, {hot: 1000.0}, sizes)
    held = dict.fromkeys(alive, 0)
    for group, (home,) in homes.items():
        held[home] += len(group)
    assert len(more[hot]) == len(alive)
    numbers = [held[each] for each in more[hot][1:]]
    assert numbers == sorted(numbers)


@given(
    st.lists(st.floats(0, 1000), min_size=8, max_size=8),
    st.lists(st.floats(0, 1000), min_size=8, max_size=8),
    ALIVE,
)
def test_homes_are_different_and_equal_demand_changes_nothing(
    first: list[float], second: list[float], alive: list[Executor]
) -> None:
    groups, sizes = Groups.even(8, 8), [1] * 8
    homes = placed(groups.leaves, {}, alive, sizes)
    for asked in (first, second):
        demand = dict(zip(groups.leaves, asked, strict=True))
        homes = replicated(homes, alive, demand, sizes)
        assert all(len(set(places)) == len(places) >= 1 for places in homes.values())
        assert replicated(homes, alive, demand, sizes) == homes
