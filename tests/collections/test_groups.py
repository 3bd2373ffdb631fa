"""Groups of partitions: a cover at all times, within bounds, and at rest once they are balanced."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from muntin.collections.groups import Bounds, Group, Groups, newest

SIZES = st.lists(st.integers(0, 1000), min_size=1, max_size=40)


@st.composite
def bounds(draw: st.DrawFn) -> Bounds:
    lower = draw(st.integers(0, 500))
    return Bounds(lower, draw(st.integers(2 * lower, 2000)), draw(st.integers(1, 8)))


def covers(groups: Groups, partitions: int) -> bool:
    return [p for group in groups.leaves for p in group.partitions] == list(range(partitions))


@given(SIZES, st.lists(bounds(), min_size=1, max_size=4), st.randoms())
def test_groups_cover_all_partitions_and_keep_to_their_bounds(
    sizes: list[int], changes: list[Bounds], random: object
) -> None:
    groups = Groups.even(len(sizes), 4)
    for each in changes:
        groups = groups.balanced(sizes, each)
        assert covers(groups, len(sizes))
        for group in groups.leaves:
            assert group.size(sizes) <= each.upper or len(group) == 1
        assert len(groups.leaves) >= min(each.at_least, len(sizes))
        assert groups.balanced(sizes, each) == groups


@given(SIZES, bounds())
def test_neighbours_that_are_small_together_merge(sizes: list[int], limits: Bounds) -> None:
    groups = Groups.even(len(sizes), len(sizes)).balanced(sizes, limits)
    if len(groups.leaves) <= limits.at_least:
        return
    nodes = [Group(0, len(sizes))]
    for node in nodes:  # all of the tree
        if len(node) > 1:
            nodes += node.halves
            if all(half in groups.leaves for half in node.halves):
                assert node.size(sizes) >= limits.lower


@given(st.integers(1, 64), st.integers(1, 80))
def test_even_groups_differ_by_a_factor_of_three_at_most(partitions: int, count: int) -> None:
    groups = Groups.even(partitions, count)
    lengths = [len(group) for group in groups.leaves]
    assert len(lengths) == min(partitions, count)
    assert max(lengths) <= 3 * min(lengths)


def test_a_split_leaves_all_other_groups_as_they_are() -> None:
    before = Groups.even(16, 4)
    sizes = [1] * 4 + [100] * 4 + [1] * 8
    after = before.balanced(sizes, Bounds(0, 250, 4))
    assert set(before.leaves) - set(after.leaves) == {Group(4, 8)}
    assert set(after.leaves) - set(before.leaves) == {Group(4, 6), Group(6, 8)}
    assert after.balanced([1] * 16, Bounds(10, 250, 4)) == before


def test_the_published_example() -> None:
    """Four regions in Z-order, of four partitions each: those that are crowded are split, and only
    leaves of the same parent are merged again."""
    before = Groups.even(16, 4)
    assert before.leaves == tuple(Group(n, n + 4) for n in (0, 4, 8, 12))
    left = [30] * 4 + [5] * 4 + [30] * 4 + [5] * 4  # the left half of the city
    after = before.balanced(left, Bounds(30, 100))
    halves = [Group(0, 2), Group(2, 4), Group(4, 8), Group(8, 10), Group(10, 12), Group(12, 16)]
    assert after.leaves == tuple(halves)
    right = [1] * 4 + [30] * 4 + [1] * 4 + [30] * 4
    moved = after.balanced(right, Bounds(30, 100))
    assert moved.leaves == (
        Group(0, 4), Group(4, 6), Group(6, 8), Group(8, 12), Group(12, 14), Group(14, 16)
    )  # fmt: skip


def test_the_group_of_a_partition_is_found() -> None:
    groups = Groups.even(13, 5)
    for partition in range(13):
        assert partition in groups.of(partition).partitions


def test_bounds_that_would_never_rest_are_refused() -> None:
    with pytest.raises(ValueError, match="half of the first at most"):
        Bounds(60, 100)


@given(st.integers(0, 1 << 40), st.integers(1, 64))
def test_fitting_bounds_leave_room_for_all_tasks(total: int, tasks: int) -> None:
    fitting = Bounds.fitting(total, tasks)
    assert fitting.at_least == tasks
    assert fitting.upper >= total // tasks


def test_the_newest_datasets_count() -> None:
    assert newest([[9, 9], [1, 2], [3, 4]], 2, 2) == [4, 6]
    assert newest([], 2, 2) == [0, 0]
